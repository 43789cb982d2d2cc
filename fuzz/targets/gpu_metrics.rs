//! Any bytes as amdgpu's `gpu_metrics`.
#![no_main]

use gpuvitals_sources::dialect::amd_gpu_metrics::{Field, GpuMetrics, XCP_MAX};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(metrics) = GpuMetrics::decode(bytes) else { return };
    let size = usize::from(metrics.version().size);
    assert!(size <= bytes.len());
    assert!(GpuMetrics::decode(&bytes[..size - 1]).is_err(), "a cut table is refused");
    for field in Field::ALL {
        assert_eq!(metrics.get(*field), metrics.all(*field).next().flatten());
        for partition in 0..=XCP_MAX {
            let elements = metrics.xcp(partition, *field);
            assert_eq!(elements.len(), elements.clone().count());
            assert!(elements.len() < size);
        }
    }
});
