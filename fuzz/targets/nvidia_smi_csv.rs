//! Any text as what `nvidia-smi` prints as CSV: of GPUs and of processes.
#![no_main]

use std::collections::BTreeSet;

use gpuvitals_sources::dialect::nvidia_smi::{LINES_MAX, parse_compute_apps, parse_query_csv};
use libfuzzer_sys::fuzz_target;

const GPU: &[&str] = &["index", "uuid", "name", "pci.bus_id", "power.draw", "memory.used", "memory.total"];
const APPS: &[&str] = &["gpu_uuid", "pid", "process_name", "used_gpu_memory"];

fuzz_target!(|text: &str| {
    for fields in [&[], GPU] {
        let query = parse_query_csv(text, fields);
        assert!(query.gpus.len() + query.sentences.len() <= LINES_MAX);
        for gpu in &query.gpus {
            assert!(gpu.index.is_none_or(|index| index >= 0));
            let mut seen = BTreeSet::new();
            for (metric, value) in &gpu.values {
                assert!(seen.insert(*metric), "{metric:?} twice");
                assert!(
                    value.is_err() || value.is_ok_and(|value| value.as_f64().is_finite()),
                    "{metric:?} {value:?}"
                );
            }
        }
        query.complains_about("0000:02:00.0");
    }
    let apps = parse_compute_apps(text, APPS);
    assert!(apps.len() <= LINES_MAX);
    assert!(apps.iter().all(|app| app.memory_mb.is_none_or(|mb| mb >= 0)));
});
