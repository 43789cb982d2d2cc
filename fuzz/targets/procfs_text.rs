//! Any bytes as each of the files of procfs that are read.
#![no_main]

use gpuvitals_sources::dialect::procfs;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let stat = procfs::parse_stat(text);
    if let Some(times) = stat.times {
        assert!(times.total() >= times.idle);
        assert_eq!(times.since(times).total(), 0);
    }
    assert!(stat.cpus <= text.len() as u64);
    assert!(procfs::parse_cores(text).all(|(_, times)| times.since(times).total() == 0));
    procfs::parse_memory(text);
    procfs::parse_vmstat(text);
    procfs::parse_uptime_ns(text);
    assert!(procfs::parse_load(text).iter().flatten().all(|load| load.is_finite() && *load >= 0.0));
});
