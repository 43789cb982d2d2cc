//! Logs as people have them: what each column becomes, whose rows they are, when they were.

use std::path::{Path, PathBuf};

use gpuvitals_core::time::Zone;
use gpuvitals_inputs::csv::{CsvError, CsvInput, CsvSource, Hints};
use gpuvitals_inputs::replay::{Cause, Replay, ReplayConfig};

use super::reading::{NOW, config, drain, open, reader, rows};

fn log(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/logs").join(name)
}

pub(crate) fn hinted(hints: Hints) -> ReplayConfig {
    ReplayConfig { hints, ..config() }
}

fn column(text: &str) -> Hints {
    Hints { columns: vec![text.parse().unwrap()], timezone: Some(Zone::utc()), ..Hints::default() }
}

/// The rows of a log, each without its source, and how many were skipped.
pub(crate) fn read_with(input: impl Into<CsvInput>, config: ReplayConfig) -> (Vec<String>, u64) {
    let mut source = CsvSource::open(input, config, NOW).unwrap();
    let read = rows(&drain(&mut source));
    (read.iter().map(|row| row.replace(" source=csv", "")).collect(), source.counts().rows_skipped())
}

fn read(name: &str) -> Vec<String> {
    let (rows, skipped) = read_with(log(name), config());
    assert_eq!(skipped, 0, "{name}");
    rows
}

pub(crate) fn refused(text: &str) -> String {
    CsvSource::open(reader(text.as_bytes().to_vec()), config(), NOW).unwrap_err().to_string()
}

#[test]
fn date_and_time_in_two_columns_are_one_instant() {
    assert_eq!(
        read("date-and-time.csv"),
        [
            "2023-05-07T00:00:01Z node01:gpu0 temperature_c=45 utilization_pct=98 gpu=0 node=node01",
            "2023-05-07T00:05:01Z node01:gpu0 temperature_c=47 utilization_pct=97 gpu=0 node=node01",
            "2023-05-07T00:10:01Z node01:gpu0 temperature_c=49 utilization_pct=12 gpu=0 node=node01",
            "2023-05-08T00:00:01Z node01:gpu0 temperature_c=40 utilization_pct=0 gpu=0 node=node01",
        ]
    );
}

#[test]
fn a_log_without_a_column_for_the_gpu_is_of_one_gpu() {
    assert_eq!(
        read("name-only.csv")[0],
        "2026-01-03T15:36:53.507Z NVIDIA_GeForce_RTX_4090@name-only memory_used_mb=1129 memory_utilization_pct=2 \
         power_w=33.09 utilization_pct=1 model=NVIDIA GeForce RTX 4090 node=name-only vendor=nvidia"
    );
    assert_eq!(
        read("power-only.csv")[0],
        "2025-04-24T15:58:57.879Z power-only:gpu0 power_w=18.81 gpu=0 node=power-only"
    );
    let hints = Hints {
        gpu: Some("left card".to_owned()),
        host: Some("lab/3".to_owned()),
        timezone: Some(Zone::named("+02:00").unwrap()),
        ..Hints::default()
    };
    assert_eq!(
        read_with(log("power-only.csv"), hinted(hints)).0[0],
        "2025-04-24T13:58:57.879Z left_card@lab_3 power_w=18.81 node=lab_3"
    );
}

#[test]
fn a_date_whose_day_may_be_its_month_is_asked_for_and_never_guessed() {
    let error = CsvSource::open(log("jetson.csv"), config(), NOW).unwrap_err();
    assert!(matches!(&error, CsvError::Time { .. }));
    let text = error.to_string();
    assert!(text.contains("--column timestamp=time:dmy") && text.contains("time:mdy"), "{text}");
    let (rows, _) = read_with(log("jetson.csv"), hinted(column("timestamp=time:mdy")));
    assert_eq!(
        rows[0],
        "2026-03-11T15:13:16Z Orin@jetson memory_free_mb=36669 memory_used_mb=26133 memory_utilization_pct=0 \
         temperature_c=45.218 utilization_pct=99 model=Orin node=jetson"
    );
    // A later row tells: its 13th is no month, and the file goes from day to day.
    let first = |text: &str| read_with(reader(text.as_bytes().to_vec()), config()).0[0][..10].to_owned();
    assert_eq!(first("time,power_w\n03/11/2025 10:00,1\n13/11/2025 10:00,2\n"), "2025-11-03");
    assert_eq!(first("time,power_w\n03/11/2025 10:00,1\n03/13/2025 10:00,2\n"), "2025-03-11");
    assert_eq!(
        first("time,power_w\n03/11/2025 10:00,1\n04/11/2025 10:00,2\n05/11/2025 10:00,2\n"),
        "2025-11-03"
    );
    // Day and month are one number here, but a stream may go on.
    let may = "time,power_w\n05/05/2025 10:00,1\n05/05/2025 10:01,2\n";
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("may.csv"), may).unwrap();
    assert!(read_with(dir.path().join("may.csv"), config()).0[0].starts_with("2025-05-05T10:00:00Z"));
    assert!(refused(may).contains("--column time=time:dmy"));
    assert_eq!(first("time,power_w\n03.04.2025 10:00:00,1\n"), "2025-04-03");
    assert!(
        refused("time,power_w\n13/11/2025 10:00,1\n11/13/2025 10:00,2\n").contains("has the day first and")
    );
}

#[test]
fn other_languages_and_decimal_commas() {
    assert_eq!(
        read("german.csv"),
        ["2023-10-04T12:33:21Z german:gpu0 power_w=45.37 temperature_c=51.5 gpu=0 node=german"]
    );
    assert_eq!(
        read("comma.csv")[1],
        "2023-10-04T12:33:22Z comma:gpu0 power_w=46.12 temperature_c=51.6 gpu=0 node=comma"
    );
    let (rows, skipped) = read_with(
        reader(b"sep=;\ntime;power [W];temp\n04.10.2023 12:33:21,5;1.045,37 W;51,5;\n".to_vec()),
        config(),
    );
    assert_eq!(
        (rows, skipped),
        (
            vec![
                "2023-10-04T12:33:21.5Z rows:gpu0 power_w=1045.37 temperature_c=51.5 gpu=0 node=rows"
                    .to_owned()
            ],
            0
        )
    );
    let thousands =
        "time,gpu,memory_used\n2025-01-01T00:00:00Z,0,\"12,345\"\n2025-01-01T00:00:00Z,1,\"1,345.5\"\n";
    let (rows, _) = read_with(reader(thousands.as_bytes().to_vec()), config());
    assert!(
        rows[0].contains("memory_used_mb=12345 ") && rows[1].contains("memory_used_mb=1346 "),
        "{rows:?}"
    );
}

#[test]
fn amd_smi_is_known_by_its_header() {
    let rows = read("amd-smi-metric.csv");
    assert!(
        rows[0].starts_with(
            "2026-08-12T16:57:32Z amd-smi-metric:gpu0 fabric_clock_mhz=1250 gpu_clock_max_mhz=2400 gpu_clock_mhz=111 \
             mem_clock_max_mhz=2000 mem_clock_mhz=2000 "
        ),
        "{}",
        rows[0]
    );
    for part in [
        "memory_utilization_pct=0",
        "power_w=238",
        "temperature_c=37",
        "temperature_junction_c=37",
        "temperature_memory_c=23",
        "utilization_pct=0",
    ] {
        assert!(rows[0].contains(part), "{part} is not in {}", rows[0]);
    }
}

#[test]
fn prometheus_text_and_dmon_are_read() {
    let mut source = CsvSource::open(log("dcgm.prom"), config(), NOW).unwrap();
    let read = rows(&drain(&mut source));
    assert_eq!(read.len(), 1, "{read:?}");
    assert!(
        read[0].contains("GPU-00000000-0000-0000-0000-000000000001") && read[0].contains("node=gpu1"),
        "{read:?}"
    );
    assert!(source.warnings().iter().any(|it| it.contains("no column is a time")), "{:?}", source.warnings());
    let ours = "# TYPE gpu_temperature_celsius gauge\n\
                gpu_temperature_celsius{gpu=\"0\",hostname=\"n1\",sensor=\"gpu\"} 40 1700000000000\n\
                gpu_temperature_celsius{gpu=\"0\",hostname=\"n1\",sensor=\"memory\"} 50 1700000000000\n\
                gpu_memory_used_bytes{gpu=\"0\",hostname=\"n1\"} 1048576 1700000000000\n\
                nvidia_smi_utilization_gpu_ratio{gpu=\"0\",hostname=\"n1\"} 0.5 1700000000000\n";
    let (rows, _) = read_with(reader(ours.as_bytes().to_vec()), config());
    // Samples of one GPU and time are one row, whatever else their labels say.
    assert_eq!(
        rows,
        ["2023-11-14T22:13:20Z n1:gpu0 memory_used_mb=1 temperature_c=40 temperature_memory_c=50 \
             utilization_pct=50 gpu=0 node=n1 label_sensor=memory"]
    );
    assert_eq!(
        read_dmon()[0],
        "2025-07-18T20:42:34Z dmon:gpu0 decoder_utilization_pct=0 encoder_utilization_pct=0 gpu_clock_mhz=1980 \
         mem_clock_mhz=2619 memory_utilization_pct=37 power_w=301 temperature_c=54 temperature_memory_c=61 \
         utilization_pct=99 gpu=0 node=dmon"
    );
}

fn read_dmon() -> Vec<String> {
    let rows = read("dmon.txt");
    assert_eq!(rows.len(), 4);
    rows
}

#[test]
fn what_is_no_table_of_gpus_is_named() {
    let check = |text: &str, part: &str| assert!(refused(text).contains(part), "{}", refused(text));
    check("[{\"gpu\": 0}]\n", "this is JSON, not CSV");
    check("==============NVSMI LOG==============\n\nTimestamp : x\n", "nvidia-smi -q");
    check("time_s,power_w\n0.0,12\n0.5,13\n", "one since the log began; --times now");
    check("time,power_w\n12:00:00,12\n12:00:01,13\n", "a time of day without a date");
    check("timestamp,power_w\nyesterday,12\ntoday,13\n", "is no time that is known");
}

#[test]
fn the_date_does_not_matter_when_rows_are_replayed_as_if_live() {
    let shifted = || ReplayConfig { replay: Replay::Shifted, ..config() };
    for times in
        [["0.0", "1.5"], ["23:59:59", "00:00:00.5"], ["2031-01-01 00:00:00", "2031-01-01 00:00:01.5"]]
    {
        let text = format!("time,power_w\n{},1\n{},2\n", times[0], times[1]);
        let (rows, skipped) = read_with(reader(text.into_bytes()), shifted());
        assert_eq!(skipped, 0, "{times:?}");
        assert!(rows[1].starts_with("2026-11-20T12:00:01.5Z"), "{rows:?}");
    }
}

#[test]
fn the_zone_is_the_files_else_the_one_asked_for() {
    let at = |time: &str, zone: &str| {
        let hints = Hints { timezone: Some(Zone::named(zone).unwrap()), ..Hints::default() };
        let text = format!("timestamp,power_w\n{time},1\n");
        read_with(reader(text.into_bytes()), hinted(hints)).0[0][..20].to_owned()
    };
    assert_eq!(at("2026/01/03 15:36:53", "Asia/Tokyo"), "2026-01-03T06:36:53Z");
    assert_eq!(at("2026-07-03 15:36:53", "America/New_York"), "2026-07-03T19:36:53Z");
    assert_eq!(at("2026-07-03T15:36:53+02:00", "Asia/Tokyo"), "2026-07-03T13:36:53Z");
    assert_eq!(at("1767454613", "Asia/Tokyo"), "2026-01-03T15:36:53Z");
}

#[test]
fn five_files_of_an_mi300x_machine() {
    let of = |name: &str| {
        let hints = Hints { usual_host: Some("mi300x".to_owned()), ..config().hints };
        read_with(log(name), hinted(hints))
    };
    let (rows, skipped) = of("mi300x/gpu_power.csv");
    assert_eq!((rows.len(), skipped), (15, 2), "rows without a GPU, one of them cut");
    assert_eq!(rows[0], "2025-08-07T16:58:23Z card0@mi300x power_w=152 node=mi300x");
    let (rows, _) = of("mi300x/gpu_temp.csv");
    assert_eq!(
        rows[0],
        "2025-08-07T16:58:23Z card0@mi300x temperature_c=51 temperature_edge_c=51 temperature_junction_c=44 node=mi300x"
    );
    let (rows, _) = of("mi300x/gpu_usage.csv");
    assert_eq!(
        rows[0],
        "2025-08-07T16:58:23Z card0@mi300x memory_total_mb=196592 memory_used_mb=284 utilization_pct=0 node=mi300x \
         gfx_activity=87772295"
    );
    let host = |name: &str| {
        let hints = Hints { usual_host: Some("mi300x".to_owned()), ..config().hints };
        let mut source = CsvSource::open(log(name), hinted(hints), NOW).unwrap();
        let batches = drain(&mut source);
        let batch = &batches[0];
        assert_eq!((batch.table(), batches.len()), (gpuvitals_core::Table::SystemEvents, 1));
        assert_eq!(batch.identity(0).node(), Some("mi300x"));
        let mut values: Vec<String> = batch
            .metrics()
            .filter_map(|(id, column)| Some(format!("{}={}", id.metric().column, column.value(0)?.to_json())))
            .collect();
        values.sort();
        values
    };
    assert_eq!(host("mi300x/cpu.csv"), ["cpu_system_pct=0.8", "cpu_user_pct=0.9", "load1=0.53"]);
    assert_eq!(
        host("mi300x/memory.csv"),
        ["host_memory_available_mb=2016256", "host_memory_total_mb=2062336", "memory_mb=46080"]
    );
}

#[test]
fn columns_of_a_gpu_each_become_rows() {
    let text = "timestamp,gpu0_power_W,gpu0_temp,gpu1_power_W,gpu1_temp,cpu_percent,note\n\
                1700000000,100,40,200,,12.5,x\n1700000001,101,41,201,51,,y\n";
    let mut source = open(text);
    let batches = drain(&mut source);
    let read = rows(&batches[..1]);
    assert_eq!(
        read,
        [
            "2023-11-14T22:13:20Z rows:gpu0 power_w=100 temperature_c=40 gpu=0 node=rows source=csv",
            "2023-11-14T22:13:20Z rows:gpu1 power_w=200 gpu=1 node=rows source=csv",
            "2023-11-14T22:13:21Z rows:gpu0 power_w=101 temperature_c=41 gpu=0 node=rows source=csv",
            "2023-11-14T22:13:21Z rows:gpu1 power_w=201 temperature_c=51 gpu=1 node=rows source=csv",
        ]
    );
    assert_eq!((batches[1].table(), batches[1].rows()), (gpuvitals_core::Table::SystemEvents, 2));
    assert_eq!(source.counts().rows_taken, 2);
    let wandb = "_timestamp,system.gpu.0.gpu,system.gpu.0.memoryAllocated,system.gpu.0.powerWatts,system.cpu\n\
                 1700000000.5,97,50.5,300,10\n";
    assert_eq!(
        rows(&drain(&mut open(wandb))[..1]),
        [
            "2023-11-14T22:13:20.5Z rows:gpu0 memory_used_pct=50.5 power_w=300 utilization_pct=97 gpu=0 node=rows source=csv"
        ]
    );
}

#[test]
fn a_column_whose_values_cannot_be_true_stays_under_its_own_name() {
    let text =
        "timestamp,gpu,power,temperature\n1700000000,0,45000,50\n1700000001,0,46000,51\n1700000002,0,47,52\n";
    let mut source = open(text);
    assert_eq!(
        rows(&drain(&mut source))[0],
        "2023-11-14T22:13:20Z rows:gpu0 temperature_c=50 gpu=0 node=rows source=csv power=45000"
    );
    assert!(
        source
            .warnings()
            .iter()
            .any(|it| it.contains("column power is kept under the name power: 2 of its first 3")
                && it.ends_with("; --column \"power=METRIC:UNIT\" names another unit")),
        "{:?}",
        source.warnings()
    );
    let (rows, _) = read_with(reader(text.as_bytes().to_vec()), hinted(column("POWER=power_w:mW")));
    assert!(rows[0].contains("power_w=45 "), "{rows:?}");
    let error =
        CsvSource::open(reader(text.as_bytes().to_vec()), hinted(column("watts=power_w")), NOW).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("rows.csv: there is no column \"watts\" (--column); found: timestamp, gpu")
    );
}

#[test]
fn two_machines_are_two_gpus_and_known_spellings_are_known() {
    assert!(read("hostA.csv")[0].contains(" hostA:gpu0 ") && read("hostB.csv")[0].contains(" hostB:gpu0 "));
    assert_eq!(
        read("cleaned.csv")[0],
        "2023-06-22T18:56:56Z 0000:01:00.0@cleaned memory_free_mb=7140 memory_total_mb=8192 memory_used_mb=841 \
         memory_utilization_pct=6 utilization_pct=22 gpu=0 model=NVIDIA GeForce RTX 2070 node=cleaned \
         pci=0000:01:00.0 vendor=nvidia"
    );
}

#[test]
fn utf_16_repeated_headers_and_fields_that_no_row_has() {
    let text = "timestamp,gpu,power,limit,\r\n1700000000,GPU 0,45,\r\ntimestamp,gpu,power,limit,\r\n1700000001,rack/1,46,\r\n17000";
    for is_big in [false, true] {
        let mark = [0xfeff_u16].into_iter().chain(text.encode_utf16());
        let bytes: Vec<u8> =
            mark.flat_map(|unit| if is_big { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect();
        let mut source = CsvSource::open(reader(bytes), config(), NOW).unwrap();
        assert_eq!(
            rows(&drain(&mut source)),
            [
                "2023-11-14T22:13:20Z GPU_0@rows power_w=45 node=rows source=csv",
                "2023-11-14T22:13:21Z rack_1 power_w=46 source=csv",
            ]
        );
        assert_eq!((source.counts().rows_read, source.counts().skipped(Cause::Fields)), (3, 1));
        let lacking =
            source.warnings().iter().filter(|remark| remark.contains("no row has the last fields")).count();
        assert_eq!(lacking, 1, "{:?}", source.warnings());
    }
}

#[test]
fn a_column_that_is_called_a_time_and_is_none_is_refused_and_never_now() {
    for (text, why) in [
        (
            "when,gpu,power_w\n18 Mai 2025 20.42.34,0,1\n18 Mai 2025 20.42.35,0,2\n",
            "is no time that is known",
        ),
        ("Zeitpunkt;GPU;power_w\n18. Mai 2025, 20.42 Uhr;0;1\n", "is no time that is known"),
        (
            "moment,gpu,power_w\n18 Mai 2025 20.42.34,0,1\n18 Mai 2025 20.42.35,0,2\n",
            "is no time that is known",
        ),
        ("elapsed_s,gpu,power_w\n0.0,0,1\n1.0,0,2\n", "one since the log began"),
        ("Relative Time [ms],gpu,power_w\n500000000,0,1\n500001000,0,2\n", "one since the log began"),
        ("elapsed,gpu,power_w\n0 days 00:00:01,0,1\n", "is no time that is known"),
        ("TimeInSeconds,gpu,power_w\n0.5,0,1\n1.5,0,2\n", "one since the log began"),
        ("date,gpu,power_w\n2025-07-18,0,1\n2025-07-18,0,2\n", "no time of day"),
        ("date,elapsed,gpu,power_w\n2025-07-18,00:00:01,0,1\n2025-07-18,00:00:02,0,2\n", "no time of day"),
        ("timestamp_ns,gpu,power_w\n123456789012,0,1\n123556789012,0,2\n", "one since the log began"),
        ("time [ms],gpu,power_w\n0,0,1\n60000000,0,2\n120000000,0,3\n", "one since the log began"),
        ("time_ms,gpu,power_w\n1.75287E+12,0,1\n1.75287E+12,0,2\n", "was rounded by a spreadsheet"),
        ("day,clock,gpu,power_w\n2025-07-18,20h42m34,0,1\n2025-07-18,20h42m35,0,2\n", "no time of day"),
    ] {
        let error = refused(text);
        assert!(error.contains(why), "{text}: {error}");
    }
    // A date alone is a time where it is one row of a GPU.
    let (rows, _) = read_with(
        reader(b"date,gpu,power_w\n2025-07-18,0,1\n2025-07-18,1,2\n2025-07-19,0,3\n".to_vec()),
        config(),
    );
    assert!(rows[2].starts_with("2025-07-19T00:00:00Z rows:gpu0 power_w=3"), "{rows:?}");
}

#[test]
fn a_name_that_ends_as_a_time_makes_one_of_a_number_of_our_days() {
    for text in [
        "gpu,collected_at,power_w\n0,1752871354,1\n0,1752871355,2\n",
        "t,gpu,power_w\n1752871354,0,1\n1752871355,0,2\n",
        "gpu,scrape_ts_ms,power_w\n0,1752871354000,1\n0,1752871355000,2\n",
        "unixtime,gpu,power_w\n1752871354,0,1\n1752871355,0,2\n",
        "unixTimeMs,gpu,power_w\n1752871354000,0,1\n1752871355000,0,2\n",
        "EpochMillis,gpu,power_w\n1752871354000,0,1\n1752871355000,0,2\n",
        "epochms,gpu,power_w\n1752871354000,0,1\n1752871355000,0,2\n",
        "time_usec,gpu,power_w\n1752871354000000,0,1\n1752871355000000,0,2\n",
        "timeNs,gpu,power_w\n1752871354000000000,0,1\n1752871355000000000,0,2\n",
        "time,gpu,power_w\n1.752871354e+09,0,1\n1.752871355000000000e+09,0,2\n1.752871355000000000e+09,1,2\n",
        "date,time,gpu,power_w\n20250718,204234,0,1\n20250718,204235,0,2\n",
        "Datum;Uhrzeit;power_w\n18.07.2025;20:42:34 Uhr;1\n18.07.2025;20:42:35 Uhr;2\n",
        "moment,power_w\n2025-07-18T22:42:34+02:00[Europe/Berlin],1\n2025-07-18T22:42:35+02:00[Europe/Berlin],2\n",
    ] {
        let (rows, skipped) = read_with(
            reader(text.as_bytes().to_vec()),
            hinted(Hints { timezone: Some(Zone::utc()), ..Hints::default() }),
        );
        assert!(
            rows.len() >= 2 && rows[1].starts_with("2025-07-18T20:42:35Z") && skipped == 0,
            "{text}: {rows:?}"
        );
    }
}

#[test]
fn numbers_and_places_are_no_times_unless_a_name_says_so() {
    for text in [
        "gpu,power_w,started_at\n0,1,1752871354\n0,2,1752871354\n",
        "gpu,power_w,bytes_t\n0,1,17528713\n0,2,17528714\n",
        "gpu,power_w,busy_time_ns\n0,1,952871354000\n0,2,952971354000\n",
        "gpu,power_w,cpu_time\n0,1,1752871354\n0,2,1752871354\n",
        "device,GPU use (%),Serial Number\ncard0,12,1322919026912\ncard1,13,1322919026913\ncard2,13,N/A\n",
        "gpu,power_w,foo\n0,100,5\n1,101,6\n0,102,7\n1,103,N/A\n",
        "gpu,temp,since\n0,50,2025-07-01 08:00:00\n1,51,2025-07-01 08:00:00\n",
        "llm,gpu,power_w\ngpt-4o-2024-08-06,0,1\ngpt-4o-2024-05-13,0,2\n",
        "gpu,temp,job_start\n0,50,2025-07-01 08:00:00\n1,51,2025-07-01 09:00:00\n",
    ] {
        let source = open(text);
        assert!(source.warnings().iter().any(|text| text.contains("no column is a time")), "{text}");
    }
    let (rows, _) = read_with(
        reader(b"date,place,power_w\n2025-07-18,01:00.0,1\n2025-07-19,01:00.0,2\n".to_vec()),
        config(),
    );
    assert!(rows[1].starts_with("2025-07-19T00:00:00Z"), "{rows:?}");
}

/// Gives a line with each read, as a program does that logs into a pipe.
struct Lines(Vec<u8>);

impl std::io::Read for Lines {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let len = self.0.iter().position(|byte| *byte == b'\n').map_or(self.0.len(), |at| at + 1);
        let line: Vec<u8> = self.0.drain(..len.min(to.len())).collect();
        to[..line.len()].copy_from_slice(&line);
        Ok(line.len())
    }
}

#[test]
fn a_live_pipe_is_understood_by_its_first_row_and_not_by_its_header_alone() {
    let timed = "# HELP gpu_power_watts Power, in watts\n# TYPE gpu_power_watts gauge\n\
                 gpu_power_watts{gpu=\"0\",hostname=\"n1\"} 40 1700000000000\n";
    let logs =
        ["comma.csv", "german.csv", "dmon.txt", "date-and-time.csv", "name-only.csv", "amd-smi-metric.csv"];
    let mut texts: Vec<(&str, Vec<u8>)> =
        logs.iter().map(|name| (*name, std::fs::read(log(name)).unwrap())).collect();
    texts.push(("timed.prom", timed.into()));
    texts.push((
        "named.csv",
        "Date;GPU 0 Power (W)\n18/07/2025 20:42:34;123,45\n18/07/2025 20:42:35;124,45\n".into(),
    ));
    for (name, bytes) in texts {
        let read = |reader: Box<dyn std::io::Read + Send>| {
            read_with(CsvInput::Reader { name: name.to_owned(), reader }, config())
        };
        let (rows, skipped) = read(Box::new(Lines(bytes.clone())));
        assert_eq!((&rows, skipped), (&read(Box::new(std::io::Cursor::new(bytes))).0, 0), "{name}");
        assert!(!rows[0].starts_with("2026-11-20"), "{name} is taken as of now: {rows:?}");
    }
}

#[test]
fn a_name_tells_the_zone_of_a_time_and_the_unit_of_a_count() {
    let berlin = || Hints { timezone: Some(Zone::named("Europe/Berlin").unwrap()), ..Hints::default() };
    for name in ["timestamp_utc", "Time (UTC)", "utc_time", "time [GMT]"] {
        let text = format!("{name},power_w\n2025-07-18 20:42:34,1\n");
        let (rows, _) = read_with(reader(text.into_bytes()), hinted(berlin()));
        assert!(rows[0].starts_with("2025-07-18T20:42:34Z"), "{name}: {rows:?}");
    }
    for (name, utc) in [
        ("Timestamp (UTC+2)", "18"),
        ("Time (GMT+08:00)", "12"),
        ("Zeit (MESZ)", "18"),
        ("time-utc", "20"),
        ("time [Europe/Berlin]", "18"),
    ] {
        let text = format!("{name},power_w\n2025-07-18 20:42:34,1\n");
        let tokyo = Hints { timezone: Some(Zone::named("Asia/Tokyo").unwrap()), ..Hints::default() };
        let (rows, _) = read_with(reader(text.into_bytes()), hinted(tokyo));
        assert!(rows[0].starts_with(&format!("2025-07-18T{utc}:42:34Z")), "{name}: {rows:?}");
    }
    let placed =
        "time,timezone,power_w\n2025-07-18 20:42:34,Asia/Tokyo,1\n2025-07-18 20:42:35,Asia/Tokyo,2\n";
    let (rows, _) = read_with(reader(placed.as_bytes().to_vec()), hinted(berlin()));
    assert!(rows[0].starts_with("2025-07-18T11:42:34Z"), "{rows:?}");
    let local = "local_time,utc_time,power_w\n2025-07-18 22:42:34,2025-07-18 20:42:34,1\n";
    let (rows, _) = read_with(reader(local.as_bytes().to_vec()), hinted(berlin()));
    assert!(rows[0].starts_with("2025-07-18T20:42:34Z"), "{rows:?}");
    for (name, step) in
        [("elapsed_s", "1.5"), ("time_ms", "1500"), ("Elapsed [us]", "1500000"), ("runtime", "1.5")]
    {
        let text = format!("{name},power_w\n0,1\n{step},2\n");
        let shifted = ReplayConfig { replay: Replay::Shifted, ..config() };
        let (rows, _) = read_with(reader(text.into_bytes()), shifted);
        assert!(rows[1].starts_with("2026-11-20T12:00:01.5Z"), "{name}: {rows:?}");
    }
}

#[test]
fn numbers_since_1970_have_a_decimal_comma_or_an_exponent() {
    let first = |text: &str| read_with(reader(text.as_bytes().to_vec()), config()).0[0][..26].to_owned();
    assert_eq!(
        first("timestamp;power_w\n1752871354,25;45,5\n1752871355,25;45,6\n"),
        "2025-07-18T20:42:34.25Z ro"
    );
    assert_eq!(first("timestamp,power_w\n1.752871354500E+12,100\n"), "2025-07-18T20:42:34.5Z row");
    // A small number is no time beside a date.
    assert_eq!(first("epoch,time,power_w\n1,2025-07-18 20:42:34.5,1\n"), "2025-07-18T20:42:34.5Z row");
    assert_eq!(first("time,power_w\n25/07/18 20:42:34.5,1\n"), "2025-07-18T20:42:34.5Z row");
    let spans = "start_time,end_time,gpu,power_w\n2025-07-18 20:42:34.5,2025-07-18 20:42:35,0,1\n2025-07-18 20:42:35.5,2025-07-18 20:42:36,0,2\n";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("spans.csv"), spans).unwrap();
    assert!(read_with(folder.path().join("spans.csv"), config()).0[0].starts_with("2025-07-18T20:42:34.5Z"));
    // These are digits, too, and no number.
    assert_eq!(first("timestamp,power_w\n20250718204234500,100\n"), "2025-07-18T20:42:34.5Z row");
}

#[test]
fn a_comma_or_point_between_thousands_is_told_by_the_other_numbers() {
    let read = |text: &str| {
        let hints = Hints { gpu: Some("g".to_owned()), timezone: Some(Zone::utc()), ..Hints::default() };
        let (rows, _) = read_with(reader(text.as_bytes().to_vec()), hinted(hints));
        rows[0]
            .split(' ')
            .filter(|part| part.contains("_mb=") || part.contains("_w="))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let time = "2025-07-18T20:42:34Z";
    let check = |memory: &str, power: &str, expected: &str| {
        let text = format!("timestamp;memory_used;power\n{time};{memory};{power}\n");
        assert_eq!(read(&text), expected, "{memory} {power}");
    };
    check("12,345", "45.5", "memory_used_mb=12345 power_w=45.5");
    check("12.345", "45,5", "memory_used_mb=12345 power_w=45.5");
    check("12.345,0", "45,5", "memory_used_mb=12345 power_w=45.5");
    check("12,345.0", "45.5", "memory_used_mb=12345 power_w=45.5");
    check("12345", "45,500", "memory_used_mb=12345 power_w=45.5");
    check("12345", "0,500", "memory_used_mb=12345 power_w=0.5");
    check("12345", "0.500", "memory_used_mb=12345 power_w=0.5");
    let text = format!("timestamp\tmemory_used\tpower\n{time}\t1,024\t45\n{time}\t980\t46\n");
    assert_eq!(read(&text), "memory_used_mb=1024 power_w=45", "980 and 1,024 are neighbours");
    let text = format!("timestamp,visible_devices,memory_used,power\n{time},\"0,1\",2400,24.125\n");
    assert_eq!(read(&text), "memory_used_mb=2400 power_w=24.125", "a list is no number");
    let text = format!("timestamp;memory_used;power;driver\n{time};2400;45,5;535.54\n");
    assert_eq!(read(&text), "memory_used_mb=2400 power_w=45.5", "a version is one point");
}

#[test]
fn rows_of_slow_logs_go_through_the_hour_that_is_shown_twice() {
    let hints = || Hints { timezone: Some(Zone::named("Europe/Berlin").unwrap()), ..Hints::default() };
    let times = |local: &[&str]| {
        let rows =
            local.iter().map(|time| format!("2025-10-26 {time}:00,0,100\n2025-10-26 {time}:00,1,100\n"));
        let text = format!("timestamp,gpu,power_w\n{}", rows.collect::<String>());
        let (rows, skipped) = read_with(reader(text.into_bytes()), hinted(hints()));
        assert_eq!(skipped, 0);
        rows.iter().step_by(2).map(|row| row[11..16].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        times(&["01:00", "01:30", "02:00", "02:30", "02:00", "02:30", "03:00"]),
        ["23:00", "23:30", "00:00", "00:30", "01:00", "01:30", "02:00"]
    );
    assert_eq!(times(&["01:00", "02:00", "02:00", "03:00"]), ["23:00", "00:00", "01:00", "02:00"]);
    assert_eq!(
        times(&["01:10", "01:50", "02:30", "02:10", "02:50", "03:30"]),
        ["23:10", "23:50", "00:30", "01:10", "01:50", "02:30"]
    );
}
