//! Every capture gives the rows beside it; no output of the tool causes a panic.

use gpuvitals_core::batch::Value;
use gpuvitals_core::{AbsenceReason, MetricId};
use gpuvitals_sources::dialect::rocm_smi::{CARDS_MAX, parse_json, parse_text};
use gpuvitals_sources::probe::{Due, Reading, Row};
use proptest::prelude::*;

use super::{FakeTool, capture, captures, read, render};

/// The rows of an answer, as the driver gives them.
fn rows(json: &str, text: &str) -> Reading {
    let tool = FakeTool::new();
    tool.says("answer.json", json).says("answer.txt", text);
    read(&mut tool.probe(), Due::ALL).unwrap()
}

/// The value of a column, or the reason for its absence; none if the row has neither.
fn cell(row: &Row, column: &str) -> Option<Result<f64, AbsenceReason>> {
    let named = |metric: &MetricId| metric.metric().column == column;
    let value = row.values().iter().find(|(metric, _)| named(metric));
    let absence = row.absences().iter().find(|(metric, _)| named(metric));
    assert!(value.is_none() || absence.is_none(), "{column} is there and absent");
    value.map(|(_, value)| Ok(value.as_f64())).or(absence.map(|(_, reason)| Err(*reason)))
}

#[test]
fn every_capture_gives_its_rows() {
    let mut seen = 0;
    for entry in std::fs::read_dir(captures()).unwrap() {
        let path = entry.unwrap().path();
        let tool = FakeTool::new();
        match path.extension().and_then(|e| e.to_str()) {
            Some("json") => tool.says("answer.json", &std::fs::read_to_string(&path).unwrap()),
            Some("txt") => {
                tool.says("answer.json", "").says("answer.txt", &std::fs::read_to_string(&path).unwrap())
            }
            _ => continue,
        };
        seen += 1;
        let got = match read(&mut tool.probe(), Due::ALL) {
            Ok(reading) => reading.rows().iter().map(render).collect(),
            Err(error) => format!("{error}\n").replace(&tool.folder.path().display().to_string(), ""),
        };
        let golden = captures().join(format!("{}.expected", path.file_name().unwrap().display()));
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&golden, &got).unwrap();
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        assert_eq!(got, expected, "{}; UPDATE=1 writes it anew", path.display());
    }
    assert!(seen >= 30, "{seen} captures");
}

#[test]
fn text_and_json_of_one_machine_give_the_same_values() {
    let values = |reading: &Reading| -> Vec<Vec<(MetricId, Value)>> {
        reading.rows().iter().map(|row| row.values().to_vec()).collect()
    };
    for machine in ["multi-vega56-rx6900xt-rx7800xt", "phoenix", "rx580", "vega56", "vangogh"] {
        let json = capture(&format!("debian5.2.3-{machine}.json"));
        let text = capture(&format!("debian5.2.3-{machine}.txt"));
        assert_eq!(values(&rows(&json, "")), values(&rows("", &text)), "{machine}");
    }
}

#[test]
fn words_for_nothing_are_no_values() {
    let check = |key: &str, text: &str, column: &str, expected: Result<f64, AbsenceReason>| {
        let json = serde_json::json!({ "card0": { key: text, "Fan RPM": "1" } }).to_string();
        assert_eq!(cell(&rows(&json, "").rows()[0], column), Some(expected), "{key}: {text}");
    };
    let average = "Average Graphics Package Power (W)";
    check(average, "N/A (Secondary die)", "power_w", Err(AbsenceReason::NotSupported));
    check(average, "0.0", "power_w", Err(AbsenceReason::NotSupported));
    check(average, "Not supported", "power_average_w", Err(AbsenceReason::NotSupported));
    check(average, "12.5", "power_w", Ok(12.5));
    check(average, "nan", "power_w", Err(AbsenceReason::Invalid));
    check(average, "many", "power_w", Err(AbsenceReason::Invalid));
    check("Current Socket Graphics Package Power (W)", "133.0", "power_w", Ok(133.0));
    check("Temperature (Sensor memory) (C)", "0.0", "temperature_memory_c", Err(AbsenceReason::NotSupported));
    check("Voltage (mV)", "0", "voltage_gfx_mv", Err(AbsenceReason::NotSupported));
    check("GPU use (%)", "", "utilization_pct", Err(AbsenceReason::NotSupported));
    check("sclk clock speed:", "(852Mhz)", "gpu_clock_mhz", Ok(852.0));
    check("sclk clock level", "S (19Mhz)", "gpu_clock_mhz", Ok(19.0));
    check("sclk clock speed:", "(None)", "gpu_clock_mhz", Err(AbsenceReason::Invalid));
    check("VRAM Total Memory (B)", "-1", "memory_total_mb", Err(AbsenceReason::Invalid));
    check("Performance Level", "perf_determinism", "performance_level", Ok(8.0));
    check("Performance Level", "turbo", "performance_level", Err(AbsenceReason::Invalid));
    check("pcie clock level", "2 (32.0GT/s x8)", "pcie_gen", Ok(5.0));
    check("GPU Memory Read/Write Activity (%)", "7", "memory_utilization_pct", Ok(7.0));
    check("Fan Level", "33 (13%)", "fan_speed_pct", Ok(13.0));
}

#[test]
fn the_mi325x_is_not_believed_when_it_draws_nothing() {
    let card = |power: &str| {
        serde_json::json!({ "card0": {
            "Card Series": "AMD Instinct MI325X OAM", "Current Socket Graphics Package Power (W)": power,
        }})
    };
    let power = |json: serde_json::Value| cell(&rows(&json.to_string(), "").rows()[0], "power_w");
    assert_eq!(power(card("1.0")), Some(Err(AbsenceReason::Invalid)));
    assert_eq!(power(card("751.0")), Some(Ok(751.0)));
}

#[test]
fn json_is_found_among_warnings() {
    let card = r#"{"card7": {"GPU use (%)": "3"}, "system": {"Driver version": "6.3.6"}}"#;
    let noisy = format!("WARNING: {{AMD}} GPU device(s) is/are in a low-power state\n\n{card}\nWARNING: x\n");
    let report = parse_json(noisy.as_bytes()).unwrap();
    assert_eq!(report.cards[0].number, 7);
    assert_eq!(report.cards[0].text("gpu use (%)"), Some("3"));
    assert_eq!(report.driver.as_deref(), Some("6.3.6"));
    for cut in 0..card.len() {
        assert_eq!(parse_json(&card.as_bytes()[..cut]), None, "{cut} bytes");
    }
}

#[test]
fn a_bad_card_spoils_no_other() {
    let json = r#"{"card0": "broken", "card1": {"GPU use (%)": ["?"], "Fan RPM": 12}, "cardX": {"a": "b"},
        "card2": {"GPU use (%)": "9", "\u0000": "x", "Temperature (Sensor edge) (C)": {}}}"#;
    let reading = rows(json, "");
    let [first, second] = reading.rows() else { panic!("{reading:?}") };
    assert_eq!(cell(first, "fan_speed_rpm"), Some(Ok(12.0)));
    assert_eq!(cell(first, "utilization_pct"), Some(Err(AbsenceReason::NotSupported)));
    assert_eq!(cell(second, "utilization_pct"), Some(Ok(9.0)));
}

#[test]
fn there_is_an_end_to_cards() {
    let cards: Vec<String> = (0..2000).map(|n| format!("\"card{n}\": {{\"Fan RPM\": \"1\"}}")).collect();
    let report = parse_json(format!("{{{}}}", cards.join(",")).as_bytes()).unwrap();
    assert_eq!(report.cards.len(), CARDS_MAX);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_the_parsers_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _json = parse_json(&bytes);
        let _text = parse_text(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn a_line_of_a_card_comes_back(number in 0u32..64, key in "[a-z][a-z ()%]{0,30}[a-z)]", text in "[!-~]{1,30}") {
        let line = format!("GPU[{number}]\t\t: {key}: {text}\n");
        let report = parse_text(&format!("=== x ===\n{line}----\n"));
        prop_assert_eq!(report.cards.len(), 1);
        prop_assert_eq!(report.cards[0].number, number);
        prop_assert_eq!(report.cards[0].text(&key), Some(text.as_str()));
    }

    #[test]
    fn a_capture_with_bytes_changed_is_read_or_refused(
        at in 0usize..2000, bytes in proptest::collection::vec(any::<u8>(), 1..8)
    ) {
        let mut json = capture("rx6700xt_rocm602.json").into_bytes();
        let at = at.min(json.len() - bytes.len());
        json[at..at + bytes.len()].copy_from_slice(&bytes);
        if let Some(report) = parse_json(&json) {
            prop_assert!(report.cards.len() <= 1);
        }
    }
}
