//! Logs as people have them: what each column becomes, whose rows they are, when they were.

use std::path::{Path, PathBuf};

use gpuvitals_core::time::Zone;
use gpuvitals_sources::csv::{CsvError, CsvInput, CsvSource, Hints};
use gpuvitals_sources::replay::{Cause, Replay, ReplayConfig};

use crate::reading::{NOW, config, drain, open, reader, rows};

fn log(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/logs").join(name)
}

fn hinted(hints: Hints) -> ReplayConfig {
    ReplayConfig { hints, ..config() }
}

fn column(text: &str) -> Hints {
    Hints { columns: vec![text.parse().unwrap()], timezone: Some(Zone::utc()), ..Hints::default() }
}

/// The rows of a log, each without its source, and how many were skipped.
fn read_with(input: impl Into<CsvInput>, config: ReplayConfig) -> (Vec<String>, u64) {
    let mut source = CsvSource::open(input, config, NOW).unwrap();
    let read = rows(&drain(&mut source));
    (read.iter().map(|row| row.replace(" source=csv", "")).collect(), source.counts().rows_skipped())
}

fn read(name: &str) -> Vec<String> {
    let (rows, skipped) = read_with(log(name), config());
    assert_eq!(skipped, 0, "{name}");
    rows
}

fn refused(text: &str) -> String {
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
    assert_eq!(first("time,power_w\n05/05/2025 10:00,1\n05/05/2025 10:01,2\n"), "2025-05-05");
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
    // Rows of one GPU and time with different labels merge later.
    assert_eq!(
        rows,
        [
            "2023-11-14T22:13:20Z n1:gpu0 temperature_c=40 gpu=0 node=n1 label_sensor=gpu",
            "2023-11-14T22:13:20Z n1:gpu0 temperature_memory_c=50 gpu=0 node=n1 label_sensor=memory",
            "2023-11-14T22:13:20Z n1:gpu0 memory_used_mb=1 utilization_pct=50 gpu=0 node=n1",
        ]
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
            .any(|it| it.contains("column power is kept under the name power: 2 of its first 3")),
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
         memory_utilization_pct=6 utilization_pct=22 model=NVIDIA GeForce RTX 2070 node=cleaned pci=0000:01:00.0 \
         vendor=nvidia index_gpu=0"
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
        let lacking = source
            .warnings()
            .iter()
            .filter(|remark| remark.contains("every row lacks the last fields"))
            .count();
        assert_eq!(lacking, 1, "{:?}", source.warnings());
    }
}

/// The rows of a text without its source and the time of those that have none.
fn said(text: &str) -> Vec<String> {
    let (rows, skipped) = read_with(reader(text.as_bytes().to_vec()), config());
    assert_eq!(skipped, 0, "{text}");
    rows.iter().map(|row| row.split_once(' ').map_or("", |(_, row)| row).to_owned()).collect()
}

#[test]
fn rocm_smi_names_each_card_and_keeps_the_models_number() {
    let text = "device,GPU ID,Unique ID,Temperature (Sensor edge) (C),Average Graphics Package Power (W),GPU use (%),PCI Bus,\
                VIS_VRAM Total Used Memory (B),sclk clock level:,sclk clock speed:,GFX Activity\n\
                card0,0x738c,N/A,31.0,39.0,0,0000:1E:00.0,6782976,1,(852Mhz),77\n\
                card1,0x738c,N/A,30.0,0.0,5,0000:22:00.0,6782976,1,(852Mhz),77\n";
    assert_eq!(
        said(text),
        [
            "card0@rows gpu_clock_level=1 gpu_clock_mhz=852 power_average_w=39 power_w=39 temperature_c=31 \
             temperature_edge_c=31 utilization_pct=0 visible_memory_used_mb=6 node=rows pci=0000:1e:00.0 \
             GFX Activity=77 GPU ID=0x738c",
            "card1@rows gpu_clock_level=1 gpu_clock_mhz=852 temperature_c=30 temperature_edge_c=30 utilization_pct=5 \
             visible_memory_used_mb=6 node=rows pci=0000:22:00.0 GFX Activity=77 GPU ID=0x738c",
        ]
    );
}

#[test]
fn nvidia_smi_means_in_a_log_what_it_means_to_the_sampler() {
    let text = "timestamp, index, power.draw [W], power.draw.instant [W], gpu.power.current_limit [W], pstate, \
                clocks_throttle_reasons.active, clocks_event_reasons_counters.sw_power_cap [us], ecc.mode.current, \
                retired_pages.pending, gpu_recovery_action, temperature.memory\n\
                2025/07/18 20:42:34.123, 0, 60.00 W, 66.84 W, 300.00 W, P8, 0x0000000000000004, 12 us, Enabled, No, Reset, 0\n\
                2025/07/18 20:42:35.123, 0, 187.00 W, 0.00 W, 300.00 W, P0, 0x0000000000000000, 13 us, [N/A], Yes, None, 50\n\
                2025/07/18 20:42:36.123, 0, [N/A], 66.84 W, 300.00 W, P0, Active, 13 us, Odd, [N/A], None, 50\n";
    let mut source = CsvSource::open(reader(text.as_bytes().to_vec()), config(), NOW).unwrap();
    let read = rows(&drain(&mut source));
    assert_eq!(
        read.iter().map(|row| row.split_once(":gpu0 ").unwrap().1).collect::<Vec<_>>(),
        [
            "ecc_mode=1 performance_state=8 power_limit_enforced_w=300 power_w=66.84 recovery_action=1 \
             retired_pages_pending=0 throttle_reasons=4 throttled_sw_power_cap_ns=12000 gpu=0 node=rows source=csv",
            "performance_state=0 power_limit_enforced_w=300 power_w=187 recovery_action=0 retired_pages_pending=1 \
             temperature_memory_c=50 throttle_reasons=0 throttled_sw_power_cap_ns=13000 gpu=0 node=rows source=csv",
            "performance_state=0 power_limit_enforced_w=300 power_w=66.84 recovery_action=0 temperature_memory_c=50 \
             throttled_sw_power_cap_ns=13000 gpu=0 node=rows source=csv",
        ]
    );
    let counts = source.counts();
    assert_eq!((counts.values_absent, counts.values_invalid), (4, 3));
}

#[test]
fn memory_beside_the_cpu_and_a_gpu_is_the_hosts_unless_it_says_the_gpus() {
    let lines = |text: &str| said(text).join("; ").replace(" source=csv", "");
    assert_eq!(
        lines(
            "timestamp,cpu_percent,memory_percent,memory_used_gb,gpu_util,gpu_memory_used,gpu_temp\n\
             1752871354,12.5,45.3,28.9,77,10240,61\n"
        ),
        "rows:gpu0 memory_used_mb=10240 temperature_c=61 utilization_pct=77 gpu=0 node=rows memory_percent=45.3; \
         host cpu_pct=12.5 memory_mb=29594 node=rows"
    );
    assert_eq!(
        lines("timestamp,cpu_usage,memory_usage,gpu_usage,gpu_memory_usage\n1752871354,12.5,45.3,77,60.5\n"),
        "rows:gpu0 utilization_pct=77 gpu=0 node=rows gpu_memory_usage=60.5 memory_usage=45.3; \
         host cpu_pct=12.5 node=rows"
    );
    // Without the CPU it is the GPU's, and the name that says so goes first.
    assert_eq!(
        lines("timestamp,memory_used,gpu_memory_used,gpu_util\n1752871354,5,10240,77\n"),
        "rows:gpu0 memory_used_mb=10240 utilization_pct=77 gpu=0 node=rows memory_used=5"
    );
}

#[test]
fn numbers_of_a_column_that_is_called_gpu_or_index_may_name_none() {
    let owners = |text: &str| {
        let rows = said(text);
        let owner = |row: &String| row.split(' ').take(2).collect::<Vec<_>>().join(" ");
        rows.iter().map(owner).collect::<Vec<_>>()
    };
    let check = |text: &str, expected: &[&str]| assert_eq!(owners(text), expected, "{text}");
    let load = ["rows:gpu0 temperature_c=60", "rows:gpu0 temperature_c=61"];
    check("time,gpu,temp\n1752871354,45,60\n1752871355,77,61\n", &load);
    check("time,gpu,temp\n1752871354,45.5,60\n1752871355,77.2,61\n", &load);
    check(
        "time,gpu,temp\n1752871354,45,60\n1752871355,77,61\n1752871356,99,62\n",
        &[load[0], load[1], "rows:gpu0 temperature_c=62"],
    );
    check("time,GPU,temp\n1752871354,45%,60\n1752871355,77%,61\n", &load);
    assert!(said("time,gpu,temp\n1752871354,45,60\n1752871355,77,61\n")[0].contains("utilization_pct=45"));
    for name in ["id", "index"] {
        let text = format!("{name},time,power_w\n0,1752871354,7\n1,1752871355,8\n2,1752871356,9\n");
        check(&text, &["rows:gpu0 power_w=7", "rows:gpu0 power_w=8", "rows:gpu0 power_w=9"]);
    }
    // One look at several GPUs, rows of one time, and rows that come back to a GPU.
    check(
        "index,time,power_w\n0,1752871354.1,7\n1,1752871354.2,8\n2,1752871354.3,9\n",
        &["rows:gpu0 power_w=7", "rows:gpu1 power_w=8", "rows:gpu2 power_w=9"],
    );
    check(
        "time,gpu,power_w\n1752871354,20,7\n1752871354,40,8\n1752871355,20,9\n",
        &["rows:gpu20 power_w=7", "rows:gpu40 power_w=8", "rows:gpu20 power_w=9"],
    );
    check(
        "time,gpu,power_w\n1752871354.1,0,7\n1752871354.2,1,8\n1752871355.6,0,9\n",
        &["rows:gpu0 power_w=7", "rows:gpu1 power_w=8", "rows:gpu0 power_w=9"],
    );
}

#[test]
fn words_for_no_number_are_absences_and_do_not_cost_the_column_its_meaning() {
    for word in ["nan", "NaN", "-inf", "Infinity", "unknown", "n.a.", "error", "null", "None", "-"] {
        let rest = format!("0,{word},45\n").repeat(3);
        let text = format!("gpu,power,temp\n{rest}0,100,45\n");
        let mut source = CsvSource::open(reader(text.into_bytes()), config(), NOW).unwrap();
        let read = rows(&drain(&mut source));
        assert!(read[3].contains(" power_w=100 temperature_c=45 "), "{word}: {read:?}");
        assert!(!read[0].contains("power"), "{word}: {read:?}");
        let counts = source.counts();
        assert_eq!((counts.values_absent, counts.values_invalid), (3, 0), "{word}");
    }
    let text = "gpu_power_watts{gpu=\"0\"} NaN\ngpu_power_watts{gpu=\"1\"} 70\n";
    let (rows, skipped) = read_with(reader(text.into()), config());
    assert_eq!((rows.len(), skipped), (1, 1));
}

#[test]
fn the_tables_of_tools_are_read() {
    let check = |text: &str, expected: &[&str]| {
        let rows: Vec<String> = said(text).iter().map(|row| row.replace(" node=rows", "")).collect();
        assert_eq!(rows, expected, "{text}");
    };
    check(
        "#gpu, pwr, gtemp, sm\n#Idx, W, C, %\n0, 50, 44, 12\n#gpu, pwr, gtemp, sm\n#Idx, W, C, %\n1, 51, -, 13\n",
        &[
            "rows:gpu0 power_w=50 temperature_c=44 utilization_pct=12 gpu=0",
            "rows:gpu1 power_w=51 utilization_pct=13 gpu=1",
        ],
    );
    check(
        "#Date       Time        gpu   pid  type    sm   mem   enc   dec    fb   command\n\
         #YYYYMMDD   HH:MM:SS    Idx     #   C/G     %     %     %     %    MB   name\n\
         \x2020250718   20:42:34      0    12     C    45    10     -     -   100   python -m x\n\
         \x2020250718   20:42:34      0    13     C    65     1     -     -    50   java\n\
         \x2020250718   20:42:35      0    12     C    47     -     -     -   100   python\n",
        &[
            "rows:gpu0 memory_used_mb=150 memory_utilization_pct=11 utilization_pct=100 gpu=0",
            "rows:gpu0 memory_used_mb=100 utilization_pct=47 gpu=0",
        ],
    );
    // Without times a process that comes again begins another look.
    check(
        "# gpu  pid  type  sm  mem  enc  dec  command\n# Idx    #   C/G   %    %    %    %  name\n\
         0 12 C 45 10 - - a\n0 13 C 5 1 - - b\n0 12 C 7 1 - - a\n",
        &[
            "rows:gpu0 memory_utilization_pct=11 utilization_pct=50 gpu=0",
            "rows:gpu0 memory_utilization_pct=1 utilization_pct=7 gpu=0",
        ],
    );
    check(
        "#Entity   GPUTL  POWER   TMPTR  GRACT\nID                W       C      \nGPU 0     45      150.5   56    0.25\n\
         #Entity   GPUTL  POWER   TMPTR  GRACT\nID                W       C      \nGPU 1     46      N/A     57    0.5\n",
        &[
            "GPU_0@rows graphics_engine_active_ratio=0.25 power_w=150.5 temperature_c=56 utilization_pct=45",
            "GPU_1@rows graphics_engine_active_ratio=0.5 temperature_c=57 utilization_pct=46",
        ],
    );
    check(
        "# Entity  POWER                TOTEC                \n      Id  W                    mJ                   \n\
         GPU 0     26.123               1234567              \n",
        &["GPU_0@rows energy_mj=1234567 power_w=26.123"],
    );
}

#[test]
fn what_means_nothing_without_its_machine_gets_a_host() {
    let named = |gpu: &str| {
        let rows = said(&format!("timestamp,gpu,power_w\n1752871354,{gpu},100\n"));
        rows[0].split(' ').next().unwrap().to_owned()
    };
    for (gpu, name) in [
        ("gpu 0", "gpu_0@rows"),
        ("GPU 0", "GPU_0@rows"),
        ("/dev/nvidia3", "nvidia3@rows"),
        ("1000", "rows:gpu1000"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA_A100-SXM4-80GB@rows"),
        ("gpu_0", "gpu_0"),
        ("GPU-5fd4a100-86f3-7a43-b711-4771313afc50", "GPU-5fd4a100-86f3-7a43-b711-4771313afc50"),
    ] {
        assert_eq!(named(gpu), name, "{gpu}");
    }
    let hints = Hints { host: Some("日志".to_owned()), ..Hints::default() };
    let (rows, _) = read_with(reader(b"power_w\n1\n".to_vec()), hinted(hints));
    assert!(rows[0].contains(" +65e5+5fd7:gpu0 "), "{rows:?}");
}

#[test]
fn a_last_number_is_the_gpus_where_names_differ_in_it_alone() {
    let check = |text: &str, expected: &[&str]| {
        let rows: Vec<String> = said(text).iter().map(|row| row.replace(" node=rows", "")).collect();
        assert_eq!(rows, expected, "{text}");
    };
    check(
        "timestamp,gpu_power_0,gpu_power_1,power_w_2,util_0,util_1\n1752871354,100,101,9,45,46\n",
        &[
            "rows:gpu0 power_w=100 utilization_pct=45 gpu=0",
            "rows:gpu1 power_w=101 utilization_pct=46 gpu=1",
            "host power_w_2=9",
        ],
    );
    // Beside a column for the GPU they are not, and fans are a GPU's own.
    check(
        "timestamp,gpu,util_0,util_1,power_w\n1752871354,0,1,2,3\n",
        &["rows:gpu0 power_w=3 gpu=0 util_0=1 util_1=2"],
    );
    // What amd-smi metric writes for one of its flags.
    check(
        "gpu,edge,hotspot,mem\n0,45,50,40\n",
        &[
            "rows:gpu0 temperature_c=45 temperature_edge_c=45 temperature_junction_c=50 temperature_memory_c=40 gpu=0",
        ],
    );
    check(
        "gpu,gfx_0_clk,gfx_0_max_clk,mem_0_clk\n0,2100,2200,1300\n",
        &["rows:gpu0 gpu_clock_max_mhz=2200 gpu_clock_mhz=2100 mem_clock_mhz=1300 gpu=0"],
    );
    check(
        "gpu,socket_power,gfx_voltage,soc_voltage,throttle_status\n0,120,800,801,UNTHROTTLED\n",
        &["rows:gpu0 power_w=120 voltage_gfx_mv=800 voltage_soc_mv=801 gpu=0 throttle_status_2=UNTHROTTLED"],
    );
}

#[test]
fn what_is_of_another_run_or_of_more_than_the_gpu_is_kept_apart() {
    let text = "Runtime [s],Timestamp,a - system/gpu.0.powerWatts,b - system/gpu.0.powerWatts,b - system/gpu.0.temp\n\
                1,1752871354,100,200,60\n";
    assert_eq!(
        said(text),
        [
            "rows:gpu0 power_w=100 gpu=0 node=rows",
            "host node=rows Runtime [s]=1 b - system/gpu.0.powerWatts=200 b - system/gpu.0.temp=60"
        ]
    );
    let source = CsvSource::open(reader(text.as_bytes().to_vec()), config(), NOW).unwrap();
    assert!(
        source.notes().iter().any(|note| note.contains("only the run a is read")),
        "{:?}",
        source.notes()
    );
    let text = "timestamp,emissions_rate,cpu_energy,gpu_energy,ram_energy,energy_consumed\n1752871354,0.01,1,0.01,2,0.012\n";
    assert_eq!(
        said(text),
        [
            "rows:gpu0 energy_mj=36000000 gpu=0 node=rows cpu_energy=1 emissions_rate=0.01 energy_consumed=0.012 ram_energy=2"
        ]
    );
}
