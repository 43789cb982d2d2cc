//! Figures that a service reports about itself and its devices: families of samples, typed.
//!
//! Every service returns families. [`render`] writes them as Prometheus text, the OTLP exporter converts
//! them; nothing parses the text. Absent is absent: a sample that was not read is not in its family, a family
//! without samples is not written, and a value that is not finite is left out.

mod family;
mod histogram;
mod number;
mod text;

pub use family::{Family, Kind, Labels, Sample, SampleValue};
pub use histogram::{BUCKET_BOUNDS, BucketCounts, Histogram};
pub use number::{Number, whole};
pub use text::{Format, render, write_all, write_label};

/// Resident memory of this process in bytes; none if the system does not say.
pub fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
