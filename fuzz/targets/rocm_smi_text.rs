//! Any text as what `rocm-smi` prints.
#![no_main]

use gpuvitals_sources::dialect::rocm_smi::{CARDS_MAX, parse_text};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|output: &str| {
    let report = parse_text(output);
    assert!(report.cards.len() <= CARDS_MAX);
    assert!(report.cards.is_sorted_by(|a, b| a.number < b.number), "each card once, in order");
    let again = format!("{output}\n{output}");
    let again = parse_text(&again);
    assert_eq!(again.cards, report.cards, "the first value of a key holds");
});
