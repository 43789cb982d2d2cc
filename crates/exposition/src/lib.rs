//! What a scrape gets: the latest values, windows and integrals as Prometheus or OpenMetrics text.
//!
//! [`Exposition::observe`] takes every batch the sampler hands over, [`Exposition::render`] writes what is known. A
//! scrape never touches hardware: it copies prepared names and labels and formats the numbers between them.
//!
//! - **Names** are the catalogue's, in base units, with few labels: `gpu`, `uuid`, `vendor`, `partition` where there is
//!   one, and those that tell the series of a family apart. All other identity is in `gpu_info`, the pod or job that
//!   holds the GPU in `gpu_attribution_info`.
//! - **Absent is absent**: a value that was not read has no series. A value is shown until five times its usual
//!   distance has passed since it was taken (5 s at least); of a GPU that is down nothing is shown but that it is,
//!   since when and why, and what was counted.
//! - **Windows** (`…_window{stat=…}`) are those of the wall clock's grid; the last complete one is shown.
//! - **Totals** (`gpu_energy_joules_total`, `gpu_busy_seconds_total`, `gpu_throttled_seconds_total`) begin at 0 when this
//!   process first sees the GPU, and leave out what nobody saw.
//! - **DCGM's names** ([`Compat`]) come beside them, in either dialect or both, for any vendor's GPUs.

mod cores;
mod dcgm;
mod exposition;
mod gpu;
mod labels;
mod meters;
mod plan;
mod reading;
mod scale;
mod scrape;
mod status;
mod values;

pub use dcgm::Compat;
pub use exposition::{Exposition, ExpositionConfig};
pub use status::DeviceStatus;
