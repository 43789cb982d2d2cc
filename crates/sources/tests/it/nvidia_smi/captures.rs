//! Every captured answer parses to its golden file.

use std::fmt::Write;

use gpuvitals_core::batch::Value;
use gpuvitals_core::{AbsenceReason, MetricId};
use gpuvitals_sources::dialect::nvidia_smi::{GpuRow, Query, parse_compute_apps, parse_query_csv};
use proptest::prelude::*;

use super::{COLUMNS, files, is_as_expected};

fn rendered(query: &Query) -> String {
    let mut text = String::new();
    for gpu in &query.gpus {
        let GpuRow { index, uuid, name, pci, driver, vbios, compute_cap, values, doubted: _ } = gpu;
        writeln!(text, "{index:?} {uuid:?} {name:?} {pci:?} {driver:?} {vbios:?} {compute_cap:?}").unwrap();
        for (metric, value) in values {
            let facts = metric.metric();
            match value {
                Ok(value) => {
                    let (low, high) = facts.range;
                    assert!((low..=high).contains(&value.as_f64()), "{} {value:?}", facts.column);
                    writeln!(text, "  {} {}", facts.column, value.as_f64()).unwrap();
                }
                Err(reason) => writeln!(text, "  {} absent: {}", facts.column, reason.as_str()).unwrap(),
            }
        }
    }
    for sentence in &query.sentences {
        writeln!(text, "{sentence:?}").unwrap();
    }
    text
}

fn said(row: &GpuRow, column: &str) -> Option<Result<f64, AbsenceReason>> {
    let metric = gpuvitals_core::catalogue::by_column(column).unwrap();
    row.get(metric).map(|value| value.map(Value::as_f64))
}

#[test]
fn full_captures_parse_by_their_header() {
    for (name, text) in files("captures", ".csv") {
        let query = parse_query_csv(&text, &[]);
        assert_eq!((query.gpus.len(), query.sentences.len()), (1, 0), "{name}");
        is_as_expected("captures", &name, &rendered(&query));
    }
}

#[test]
fn captures_without_a_header_parse_by_the_query_s_own_list() {
    for (name, text) in files("query-csv", ".csv") {
        if !name.contains("compute-apps") {
            is_as_expected("query-csv", &name, &rendered(&parse_query_csv(&text, &COLUMNS)));
        }
    }
}

#[test]
fn a_capture_says_the_same_with_and_without_header_and_units() {
    for (name, text) in files("captures", ".csv") {
        let full = parse_query_csv(&text, &[]);
        let (_, bare) = files("query-csv", &name).pop().unwrap();
        let bare = parse_query_csv(&bare, &COLUMNS);
        for (metric, value) in &bare.gpus[0].values {
            if *metric == MetricId::of("power_w") {
                // The bare one has only power.draw, the full one the instant, too.
                continue;
            }
            assert_eq!(full.gpus[0].get(*metric), Some(*value), "{name} {}", metric.metric().column);
        }
    }
}

#[test]
fn every_text_for_no_value_is_an_absence_with_its_reason() {
    use AbsenceReason::{Denied, Gone, Invalid, NotSupported, TimedOut};
    for (cell, reason) in [
        ("[N/A]", NotSupported),
        ("N/A", NotSupported),
        ("", NotSupported),
        ("[Not Supported]", NotSupported),
        ("Not Supported", NotSupported),
        ("[Requested functionality has been deprecated]", NotSupported),
        ("[Function Not Found]", NotSupported),
        ("[Insufficient Permissions]", Denied),
        ("[GPU is lost]", Gone),
        ("[GPU requires reset]", Gone),
        ("[Timeout]", TimedOut),
        ("[Unknown Error]", Invalid),
        ("[A word of tomorrow]", Invalid),
        ("ERR!", Invalid),
        ("many", Invalid),
        ("1 furlong", Invalid),
        ("nan", Invalid),
        ("1e400", Invalid),
    ] {
        let query = parse_query_csv(&format!("0, {cell}\n"), &["index", "temperature.gpu"]);
        assert_eq!(said(&query.gpus[0], "temperature_c"), Some(Err(reason)), "{cell:?}");
    }
}

#[test]
fn a_lost_gpu_takes_no_other_with_it() {
    let (_, text) = files("query-csv", "errors-one-gpu-lost.csv").pop().unwrap();
    let query = parse_query_csv(&text, &COLUMNS);
    let indices: Vec<_> = query.gpus.iter().map(|gpu| gpu.index).collect();
    assert_eq!(indices, [Some(0), Some(2)]);
    assert!(query.complains_about("0000:02:00.0") && !query.complains_about("0000:01:00.0"));
    assert_eq!(said(&query.gpus[1], "power_w"), Some(Ok(28.44)));
}

#[test]
fn sentences_in_place_of_gpus_are_sentences() {
    for (name, text) in files("query-csv", ".stdout.txt") {
        let query = parse_query_csv(&text, &COLUMNS);
        assert!(query.gpus.is_empty() && !query.sentences.is_empty(), "{name}: {query:?}");
    }
}

#[test]
fn units_of_header_and_cell_are_honoured() {
    let check = |text: &str, column: &str, expected: f64| {
        let query = parse_query_csv(text, &[]);
        assert_eq!(said(&query.gpus[0], column), Some(Ok(expected)), "{text:?}");
    };
    check("index, power.draw [W]\n0, 111.50\n", "power_w", 111.5);
    check("index, power.draw [mW]\n0, 111500\n", "power_w", 111.5);
    check("index, power.draw\n0, 111.50 W\n", "power_w", 111.5);
    check("index, memory.used [MiB]\n0, 8192 MiB\n", "memory_used_mb", 8192.0);
    check("index, memory.used [GiB]\n0, 8\n", "memory_used_mb", 8192.0);
    check(
        "index, clocks_event_reasons_counters.sw_power_cap [us]\n0, 12 us\n",
        "throttled_sw_power_cap_ns",
        12_000.0,
    );
    check("index, fan.speed [%]\n0, 38 %\n", "fan_speed_pct", 38.0);
    check("index, utilization.gpu [%]\n0, 38%\n", "utilization_pct", 38.0);
    check("index, pstate\n0, P8\n", "performance_state", 8.0);
    check("index, compute_mode\n0, Exclusive_Process\n", "compute_mode", 3.0);
    check("index, gpu_recovery_action\n0, Drain and Reset\n", "recovery_action", 4.0);
    check("index, remapped_rows.pending\n0, Yes\n", "remapped_rows_pending", 1.0);
    check("index, clocks_throttle_reasons.active\n0, 0x0000000000000044\n", "throttled", 1.0);
    check("index, clocks_event_reasons.active\n0, 0x0000000000000001\n", "throttled", 0.0);
}

#[test]
fn power_is_an_instant_where_the_part_tells_it() {
    let power = |text: &str| {
        let query = parse_query_csv(text, &[]);
        let gpu = &query.gpus[0];
        [said(gpu, "power_w"), said(gpu, "power_average_w")].map(|value| value.and_then(Result::ok))
    };
    let all = "index, power.draw [W], power.draw.average [W], power.draw.instant [W], compute_cap\n";
    assert_eq!(power(&format!("{all}0, 300.00, 300.00, 310.00, 9.0\n")), [Some(310.0), Some(300.0)]);
    assert_eq!(power(&format!("{all}0, 300.00, [N/A], [N/A], 9.0\n")), [Some(300.0); 2], "Hopper averages");
    assert_eq!(power(&format!("{all}0, 300.00, [N/A], [N/A], 8.0\n")), [Some(300.0), None], "A100 does not");
    assert_eq!(power("index, power.draw\n0, 39.2\n"), [Some(39.2), None], "it is not known what it is");
    assert_eq!(
        power(&format!("{all}0, 300.00, [N/A], 0.00, 8.0\n")),
        [Some(300.0), None],
        "it draws something"
    );
    // RTX PRO 6000: an instant is no average.
    assert_eq!(power(&format!("{all}0, [N/A], [N/A], 66.84, 12.0\n")), [Some(66.84), None]);
}

#[test]
fn a_sensor_that_is_not_there_reads_zero() {
    let query = parse_query_csv("index, temperature.memory\n0, 0\n", &[]);
    assert_eq!(said(&query.gpus[0], "temperature_memory_c"), Some(Err(AbsenceReason::NotSupported)));
}

#[test]
fn compute_apps_are_listed_by_program() {
    let mut seen = 0;
    for (name, text) in files("query-csv", ".compute-apps.csv") {
        let apps = parse_compute_apps(&text, &[]);
        assert_eq!(apps.len(), text.lines().count() - 1, "{name}");
        assert!(apps.iter().all(|app| !app.name.contains(['/', '\\', ' '])), "{name}: {apps:?}");
        seen += apps.len();
    }
    assert!(seen > 10);
    for (command, program) in [
        ("/opt/run --all --of=it", "run"),
        ("/usr/bin/python3 train.py s3://b/SECRET", "python3"),
        ("python3 /srv/x/run.py", "python3"),
        ("python3\t/srv/SECRET", "python3"),
        // A blank in a path costs the rest of it, never shows an argument.
        (r"C:\Program Files\x\run.exe", "Program"),
        ("/opt/a, b/run", "a,"),
    ] {
        let apps = parse_compute_apps(
            &format!("GPU-1, 7, {command}, 12 MiB\n"),
            &["gpu_uuid", "pid", "process_name", "used_gpu_memory"],
        );
        assert_eq!((apps[0].name.as_str(), apps[0].memory_mb), (program, Some(12)), "{command}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in "(?s).{0,400}") {
        parse_query_csv(&text, &COLUMNS);
        parse_query_csv(&text, &[]);
        parse_compute_apps(&text, &COLUMNS);
    }

    #[test]
    fn no_damaged_capture_panics(cut in 0_usize..9000, at in 0_usize..9000, byte in any::<char>()) {
        let (_, text) = files("captures", "h200__590.48.01__load.csv").pop().unwrap();
        let mut text: String = text.chars().take(cut).collect();
        if let Some((at, _)) = text.char_indices().nth(at) {
            text.insert(at, byte);
        }
        for gpu in parse_query_csv(&text, &[]).gpus {
            prop_assert!(gpu.values.len() < 200);
        }
    }

    #[test]
    fn numbers_are_read_as_printed(power in 0_u32..100_000, used in 0_u32..1_000_000) {
        let text = format!("0, {}.{:02}, {used}\n", power / 100, power % 100);
        let query = parse_query_csv(&text, &["index", "power.draw", "memory.used"]);
        prop_assert_eq!(said(&query.gpus[0], "power_w"), Some(Ok(f64::from(power) / 100.0)));
        prop_assert_eq!(said(&query.gpus[0], "memory_used_mb"), Some(Ok(f64::from(used))));
    }
}

#[test]
fn nothing_is_derived_from_what_cannot_be_true_or_is_not_there() {
    let (invalid, not_there) = (Err(AbsenceReason::Invalid), Err(AbsenceReason::NotSupported));
    // The text, the share of memory used, the mean power.
    for (text, share, average) in [
        ("index, memory.used [MiB], memory.total [MiB]\n0, 4294967295, 4294967295\n", Some(invalid), None),
        ("index, memory.used [MiB], memory.total [MiB]\n0, -1, 8192\n", Some(invalid), None),
        ("index, memory.used [MiB], memory.total [MiB]\n0, 8193, 8192\n", Some(invalid), None),
        ("index, memory.used [MiB], memory.total [MiB]\n0, 4096, 0\n", Some(invalid), None),
        ("index, memory.used [MiB], memory.total [MiB]\n0, 4096, [N/A]\n", Some(not_there), None),
        ("index, memory.used [MiB], memory.total [MiB]\n0, [Unknown Error], 8192\n", Some(invalid), None),
        ("index, memory.used [MiB]\n0, 4096\n", Some(not_there), None),
        ("index, memory.used [MiB], memory.total [MiB]\n0, 4096, 8192\n", Some(Ok(50.0)), None),
        ("index, compute_cap, power.draw [W]\n0, 9.0, 4294.97\n", None, Some(invalid)),
        ("index, compute_cap, power.draw [W]\n0, 9.0, 700.00\n", None, Some(Ok(700.0))),
    ] {
        let query = parse_query_csv(text, &[]);
        let row = &query.gpus[0];
        assert_eq!(said(row, "memory_used_pct"), share, "{text}");
        assert_eq!(said(row, "power_average_w"), average, "{text}");
    }
}
