//! Any text as what `nvidia-smi pmon` prints.
#![no_main]

use std::collections::BTreeSet;

use gpuvitals_sources::dialect::nvidia_smi::parse_pmon;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let rows = parse_pmon(text);
    let mut seen = BTreeSet::new();
    for row in &rows {
        assert!(seen.insert((row.gpu, row.pid)), "one row for a process on a GPU");
        for share in [row.sm_pct, row.memory_pct, row.encoder_pct, row.decoder_pct].into_iter().flatten() {
            assert!((0.0..=100.0).contains(&share));
        }
        assert!(row.memory_mb.is_none_or(|mb| mb >= 0));
    }
});
