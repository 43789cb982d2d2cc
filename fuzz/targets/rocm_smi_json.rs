//! Any bytes as what `rocm-smi --json` prints.
#![no_main]

use gpuvitals_sources::dialect::rocm_smi::{CARDS_MAX, parse_json};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|output: &[u8]| {
    let report = parse_json(output);
    let warned =
        [b"WARNING: AMD GPU device(s) is/are in a low-power state.\n\n", output, b"\nERROR: 2\n"].concat();
    assert_eq!(parse_json(&warned), report, "warnings around it change nothing");
    let Some(report) = report else { return };
    assert!(!report.cards.is_empty() && report.cards.len() <= CARDS_MAX);
    assert!(report.cards.is_sorted_by(|a, b| a.number < b.number), "each card once, in order");
});
