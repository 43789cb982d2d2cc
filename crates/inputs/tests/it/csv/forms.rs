//! The CSV source through its public surface: forms, encodings, values, times.

use std::fmt::Write as _;
use std::io::Write as _;

use super::reading::{NOW, SECOND_NS, config, drain, open, reports, rows};
use gpuvitals_core::ports::{Poll, Source as _};
use gpuvitals_core::time;
use gpuvitals_inputs::csv::{CsvError, CsvForm, CsvInput, CsvSource};
use gpuvitals_inputs::replay::{Replay, ReplayConfig, ReplayPace};

const WIDE: &str = "gpu_id,temperature,utilization,memory_used,power_draw\n\
                    gpu_0,61,97.5,1024,300.25\n\
                    gpu_1,35,0,12,70\n";

#[test]
fn the_wide_form_without_times_is_taken_as_of_now() {
    let mut source = open(WIDE);
    assert_eq!(source.form(), CsvForm::Wide);
    let batches = drain(&mut source);
    assert_eq!(
        rows(&batches),
        [
            "2026-11-20T12:00:00Z gpu_0 memory_used_mb=1024 power_w=300.25 temperature_c=61 utilization_pct=97.5 \
             source=csv",
            "2026-11-20T12:00:00Z gpu_1 memory_used_mb=12 power_w=70 temperature_c=35 utilization_pct=0 source=csv",
        ]
    );
    let counts = source.counts();
    assert_eq!((counts.rows_read, counts.rows_taken, counts.rows_skipped()), (2, 2, 0));
    assert_eq!(counts.bytes_read, WIDE.len() as u64);
}

#[test]
fn a_gpu_is_told_by_its_best_column_and_its_host() {
    let text = "id,hostname,gpu_id,memory_used [MB]\n1001,a,gpu_0,10 MB\n1002,b,gpu_0,20\n1003,a,gpu_0,30\n";
    let batches = drain(&mut open(text));
    let keys: Vec<String> =
        rows(&batches).iter().filter_map(|row| row.split(' ').nth(1).map(str::to_owned)).collect();
    assert_eq!(keys, ["gpu_0@a", "gpu_0@b", "gpu_0@a"]);
    let of = |row: usize, what: &str| rows(&batches)[row].contains(what);
    assert!(
        of(0, "memory_used_mb=10 ") && of(1, "memory_used_mb=20 ") && of(2, "id=1003"),
        "{:?}",
        rows(&batches)
    );
}

#[test]
fn line_ends_mark_quotes_blanks_and_delimiters_make_no_difference() {
    let expected = rows(&drain(&mut open(WIDE)));
    let quoted = WIDE.replace("gpu_0,61", "\"gpu_0\", 61 ").replace("power_draw", "\"power_draw\"");
    for text in [
        WIDE.replace('\n', "\r\n"),
        WIDE.replace('\n', "\r"),
        format!("\u{feff}{WIDE}"),
        format!("\n\n{}", WIDE.replace('\n', "\n\n")),
        WIDE.trim_end().to_owned(),
        WIDE.replace(',', ";"),
        WIDE.replace(',', "\t"),
        quoted,
    ] {
        let mut source = open(&text);
        assert_eq!(rows(&drain(&mut source)), expected, "{text:?}");
        assert!(source.drain_reports().is_empty(), "{text:?}");
    }
}

#[test]
fn gzip_is_known_by_its_magic_number_even_in_two_members() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.csv");
    let mut bytes = Vec::new();
    for part in [&WIDE[..70], &WIDE[70..]] {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(part.as_bytes()).unwrap();
        bytes.extend(encoder.finish().unwrap());
    }
    std::fs::write(&path, &bytes).unwrap();
    let mut source = CsvSource::open(path.clone(), config(), NOW).unwrap();
    assert_eq!(rows(&drain(&mut source)), rows(&drain(&mut open(WIDE))));
    assert_eq!(source.counts().bytes_read, bytes.len() as u64);
    assert_eq!(source.counts().bytes_total, Some(bytes.len() as u64));

    std::fs::write(&path, &bytes[..bytes.len() - 12]).unwrap();
    let mut source = CsvSource::open(path, config(), NOW).unwrap();
    assert!(matches!(source.poll(NOW), Ok(Poll::Ready(batch)) if batch.rows() == 1));
    assert!(matches!(source.poll(NOW), Err(CsvError::Read { line: 3, .. })));
    assert!(matches!(source.poll(NOW), Ok(Poll::End)));
}

#[test]
fn columns_the_catalogue_does_not_know_are_kept() {
    let text = "timestamp,gpu_id,temperature,rack,load,gpu_id,temperature_c,,rack\n\
                2026-01-01T00:00:00Z,g,50,r1,0.5,x,51,3,9\n\
                2026-01-01T00:00:01Z,g,50,,,,,N/A,\n";
    let mut source = open(text);
    assert_eq!(
        rows(&drain(&mut source)),
        [
            "2026-01-01T00:00:00Z g temperature_c=50 source=csv column_8=3 gpu_id=x load=0.5 rack=r1 rack_2=9 \
             temperature_c_2=51",
            "2026-01-01T00:00:01Z g temperature_c=50 source=csv",
        ]
    );
}

#[test]
fn a_column_of_numbers_that_turns_to_text_keeps_both() {
    let text = "timestamp,gpu_id,slot\n1700000001,g,7\n1700000002,g,7\n1700000003,g,upper\n1700000004,g,8\n";
    let mut source = open(text);
    let batches = drain(&mut source);
    assert_eq!(
        rows(&batches),
        [
            "2023-11-14T22:13:21Z g source=csv slot=7",
            "2023-11-14T22:13:22Z g source=csv slot=7",
            "2023-11-14T22:13:23Z g source=csv slot=upper",
            "2023-11-14T22:13:24Z g source=csv slot=8",
        ]
    );
    assert_eq!(source.counts().values_invalid, 0);
}

#[test]
fn nvidia_smi_writes_units_in_header_and_cells_and_texts_for_what_is_missing() {
    let text = "timestamp, name, pci.bus_id, driver_version, utilization.gpu [%], memory.used [MiB], power.draw [W], \
                clocks.sm [MHz], fan.speed [%], power.limit [mW]\n\
                2025/07/18 20:42:34.500, NVIDIA H100 80GB HBM3, 00000000:0C:00.0, 535.129.03, 97 %, 70000 MiB, \
                689.40 W, 1.98 GHz, [N/A], 700000\n\
                2025/07/18 20:42:35.500, NVIDIA H100 80GB HBM3, 00000000:0C:00.0, 535.129.03, [GPU is lost], \
                [Insufficient Permissions], [Unknown Error], [Not Supported], -, 700 W\n";
    let mut source = open(text);
    let batches = drain(&mut source);
    assert_eq!(
        rows(&batches),
        [
            "2025-07-18T20:42:34.5Z 0000:0c:00.0@rows memory_used_mb=70000 power_limit_w=700 \
             power_w=689.4 sm_clock_mhz=1980 utilization_pct=97 driver=535.129.03 model=NVIDIA H100 80GB HBM3 node=rows pci=0000:0c:00.0 \
             source=csv vendor=nvidia",
            "2025-07-18T20:42:35.5Z 0000:0c:00.0@rows power_limit_w=700 driver=535.129.03 \
             model=NVIDIA H100 80GB HBM3 node=rows pci=0000:0c:00.0 source=csv vendor=nvidia",
        ]
    );
    assert_eq!(source.counts().values_absent, 6);
    let mut absences: Vec<String> = batches[0]
        .absences()
        .iter()
        .map(|a| format!("{} {} {}", a.metric.metric().column, a.reason.as_str(), a.count))
        .collect();
    absences.sort();
    assert_eq!(
        absences,
        [
            "fan_speed_pct not_supported 2",
            "memory_used_mb denied 1",
            "power_w invalid 1",
            "sm_clock_mhz not_supported 1",
            "utilization_pct gone 1",
        ]
    );
}

#[test]
fn dcgms_mean_power_is_the_power_only_of_a_gpu_without_the_instant_in_any_order() {
    let (mean, instant) = ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_POWER_USAGE_INSTANT");
    let expected = [
        "2023-11-14T22:13:20Z n1:gpu0 power_average_w=300 power_w=410 gpu=0 node=n1 source=csv",
        "2023-11-14T22:13:20Z n1:gpu1 power_w=90 gpu=1 node=n1 source=csv",
        "2023-11-14T22:13:21Z n1:gpu0 power_average_w=310 power_w=420 gpu=0 node=n1 source=csv",
        "2023-11-14T22:13:21Z n1:gpu1 power_w=91 gpu=1 node=n1 source=csv",
    ];
    for names in [[mean, instant], [instant, mean]] {
        let mut wide = format!("timestamp,gpu_id,Hostname,{},{}\n", names[0], names[1]);
        let mut long = "timestamp,metric_name,gpu_id,Hostname,value\n".to_owned();
        for (second, gpus) in
            [(1_700_000_000, [(300, "410"), (90, "")]), (1_700_000_001, [(310, "420"), (91, "")])]
        {
            for (gpu, (averaged, now)) in gpus.into_iter().enumerate() {
                let averaged = averaged.to_string();
                let cells = names.map(|name| if name == mean { averaged.as_str() } else { now });
                writeln!(wide, "{second},{gpu},n1,{},{}", cells[0], cells[1]).unwrap();
                for (name, cell) in names.into_iter().zip(cells).filter(|(_, cell)| !cell.is_empty()) {
                    writeln!(long, "{second},{name},{gpu},n1,{cell}").unwrap();
                }
            }
        }
        for text in [wide, long] {
            assert_eq!(rows(&drain(&mut open(&text))), expected, "{text}");
        }
    }
}

#[test]
fn dcgm_blanks_are_absent_and_not_numbers() {
    let mut text = "timestamp,metric_name,gpu_id,Hostname,value\n".to_owned();
    for (name, value) in [
        ("GPU_TEMP", "9223372036854775794"),
        ("SM_CLOCK", "2147483632"),
        ("POWER_USAGE", "140737488355328.000000"),
        ("FB_USED", "9223372036854775795"),
        ("GPU_UTIL", "\"\""),
        ("MEM_COPY_UTIL", "12"),
    ] {
        writeln!(text, "1752871354,DCGM_FI_DEV_{name},0,n1,{value}").unwrap();
    }
    let mut source = open(&text);
    let batches = drain(&mut source);
    assert_eq!(
        rows(&batches),
        ["2025-07-18T20:42:34Z n1:gpu0 memory_utilization_pct=12 gpu=0 node=n1 source=csv"]
    );
    assert_eq!((source.counts().values_absent, source.counts().values_invalid), (5, 0));
    assert_eq!(reports(&mut source)[0], "rows.csv: line 2: no field has a value");
}

#[test]
fn a_simulated_recording_stays_simulated() {
    let mut source = open("gpu_id,source,temperature\ng,simulated,50\nh,,50\n");
    let batches = drain(&mut source);
    assert!(batches[0].identity(0).is_simulated());
    assert!(!batches[0].identity(1).is_simulated());
}

#[test]
fn labels_name_the_gpu_where_columns_do_not() {
    let text = "metric,value,labels\n\
                DCGM_FI_DEV_FB_USED,40,\"{gpu=\"\"3\"\",UUID=\"\"GPU-1\"\",Hostname=\"\"n1\"\",pod=\"\"exporter\"\",\
                exported_pod=\"\"train-0\"\",job=\"\"dcgm\"\",GPU_I_ID=\"\"7\"\"}\"\n\
                queue_depth,3,\"gpu=\"\"3\"\",UUID=\"\"GPU-1\"\"\"\n";
    assert_eq!(
        rows(&drain(&mut open(text))),
        [
            "2026-11-20T12:00:00Z GPU-1:7 memory_used_mb=40 gpu=3 node=n1 partition=7 pod=train-0 source=csv label_job=dcgm",
            "2026-11-20T12:00:00Z GPU-1 gpu=3 source=csv queue_depth=3",
        ]
    );
}

#[test]
fn what_belongs_to_the_card_of_mig_instances_is_stored_once_on_the_card() {
    let mut text = "timestamp,metric_name,gpu_id,uuid,Hostname,pod,value,labels_raw\n".to_owned();
    for (instance, pod, used) in [(3, "a", 13), (5, "b", 14)] {
        for (name, value) in [
            ("DCGM_FI_DEV_POWER_USAGE", 80),
            ("DCGM_FI_DEV_GPU_TEMP", 31),
            ("DCGM_FI_DEV_MEMORY_TEMP", 0),
            ("DCGM_FI_DEV_FB_USED", used),
            ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1),
        ] {
            let labels = format!("\"GPU_I_ID=\"\"{instance}\"\"\"");
            writeln!(text, "2026-10-01T00:00:00Z,{name},0,GPU-1,n1,{pod},{value},{labels}").unwrap();
        }
    }
    let mut source = open(&text);
    assert_eq!(
        rows(&drain(&mut source)),
        [
            "2026-10-01T00:00:00Z GPU-1 power_w=80 temperature_c=31 gpu=0 node=n1 source=csv",
            "2026-10-01T00:00:00Z GPU-1:3 graphics_engine_active_ratio=1 memory_used_mb=13 gpu=0 node=n1 partition=3 pod=a source=csv",
            "2026-10-01T00:00:00Z GPU-1:5 graphics_engine_active_ratio=1 memory_used_mb=14 gpu=0 node=n1 partition=5 pod=b source=csv",
        ]
    );
    assert_eq!(source.counts().rows_skipped(), 2, "0 °C of the memory is no value");
    // The same in the wide form.
    let wide = "timestamp,uuid,GPU_I_ID,DCGM_FI_DEV_POWER_USAGE,DCGM_FI_DEV_FB_USED\n\
                2026-10-01T00:00:00Z,GPU-1,3,80,13\n\
                2026-10-01T00:00:00Z,GPU-1,5,80,14\n";
    assert_eq!(
        rows(&drain(&mut open(wide))),
        [
            "2026-10-01T00:00:00Z GPU-1 power_w=80 source=csv",
            "2026-10-01T00:00:00Z GPU-1:3 memory_used_mb=13 partition=3 source=csv",
            "2026-10-01T00:00:00Z GPU-1:5 memory_used_mb=14 partition=5 source=csv",
        ]
    );
}

fn timed(seconds: &[i64]) -> String {
    let mut text = "timestamp,gpu_id,temperature\n".to_owned();
    for s in seconds {
        writeln!(text, "{},g,{s}", time::format(NOW - 86_400 * SECOND_NS + s * SECOND_NS)).unwrap();
    }
    text
}

fn file(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.csv");
    std::fs::write(&path, text).unwrap();
    (dir, path)
}

#[test]
fn shifted_times_go_on_over_the_passes_of_a_loop() {
    let (_dir, path) = file(&timed(&[10, 12, 14]));
    let config = ReplayConfig { replay: Replay::Shifted, loop_file: true, batch_rows: 7, ..config() };
    let mut source = CsvSource::open(path, config, NOW).unwrap();
    let Ok(Poll::Ready(batch)) = source.poll(NOW) else { panic!("no batch") };
    let seconds: Vec<i64> = batch.timestamps().iter().map(|t| (t - NOW) / SECOND_NS).collect();
    assert_eq!(seconds, [0, 2, 4, 6, 8, 10, 12]);
    assert_eq!(source.counts().passes, 2);
}

#[test]
fn recorded_pace_waits_for_each_row_and_hands_over_by_age() {
    let (_dir, path) = file(&timed(&[0, 1, 5]));
    let config = ReplayConfig { pace: ReplayPace::Recorded, speed: 2.0, batch_age_ns: SECOND_NS, ..config() };
    let mut source = CsvSource::open(path, config, NOW).unwrap();
    let half = SECOND_NS / 2;
    assert!(matches!(source.poll(NOW), Ok(Poll::NotBefore(t)) if t == NOW + half));
    assert!(matches!(source.poll(NOW + 1), Ok(Poll::NotBefore(t)) if t == NOW + half));
    assert!(matches!(source.poll(NOW + half), Ok(Poll::NotBefore(t)) if t == NOW + SECOND_NS));
    let Ok(Poll::Ready(batch)) = source.poll(NOW + SECOND_NS) else { panic!("no batch") };
    assert_eq!((batch.rows(), batch.sequence()), (2, 1));
    assert_eq!(batch.timestamps()[0], NOW - 86_400 * SECOND_NS);
    assert!(matches!(source.poll(NOW + SECOND_NS), Ok(Poll::NotBefore(t)) if t == NOW + 5 * half));
    assert!(matches!(source.poll(NOW + 5 * half), Ok(Poll::Ready(batch)) if batch.rows() == 1));
    assert!(matches!(source.poll(NOW + 5 * half), Ok(Poll::End)));
    let counts = source.counts();
    assert_eq!((counts.rows_read, counts.rows_taken), (3, 3));
}

#[test]
fn a_rate_is_kept() {
    let (_dir, path) = file(&timed(&[0, 1, 2, 3, 4]));
    let config = ReplayConfig { pace: ReplayPace::Rate(10.0), batch_age_ns: 0, ..config() };
    let mut source = CsvSource::open(path, config, NOW).unwrap();
    assert!(matches!(source.poll(NOW), Ok(Poll::Ready(batch)) if batch.rows() == 1));
    assert!(matches!(source.poll(NOW), Ok(Poll::NotBefore(t)) if t == NOW + SECOND_NS / 10));
    assert!(matches!(source.poll(NOW + SECOND_NS / 4), Ok(Poll::Ready(batch)) if batch.rows() == 2));
}

#[test]
fn rows_without_a_time_of_one_gpu_stay_apart() {
    let mut source = open("gpu_id,temperature\ng,1\ng,2\nh,3\n");
    let batches = drain(&mut source);
    assert_eq!(batches[0].timestamps(), [NOW, NOW + 1_000, NOW]);
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let check = |config: ReplayConfig, expected: &str| {
        let error =
            CsvSource::open(super::reading::reader(WIDE.as_bytes().to_vec()), config, NOW).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    check(ReplayConfig { speed: 0.0, ..config() }, "speed is 0; it must be a number above 0");
    check(
        ReplayConfig { pace: ReplayPace::Rate(-1.0), ..config() },
        "rate is -1; it must be a number above 0",
    );
    check(ReplayConfig { batch_rows: 0, ..config() }, "batch rows is 0; it must be a number above 0");
    check(
        ReplayConfig { loop_file: true, ..config() },
        "rows.csv: cannot be read more than once; give a file, or do not ask for a loop",
    );
    assert_eq!(CsvInput::from(std::path::Path::new("-")).name(), "standard input");
}
