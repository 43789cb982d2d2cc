//! The contents of a scrape: latest values, windows and integrals as Prometheus or OpenMetrics text.
//!
//! [`Exposition::observe`] takes every batch of the sampler, [`Exposition::render`] writes the state. A
//! scrape never touches hardware: it copies prepared names and labels and formats the numbers between them.
//!
//! - **Names** are the catalogue's, in base units, with few labels: `gpu`, `uuid`, `vendor`, `partition` if there is
//!   one, and those that distinguish the series of a family. All other identity is in `gpu_info`, the pod or job that
//!   holds the GPU in `gpu_attribution_info`.
//! - **Absent is absent**: a value that was not read has no series. A value is shown until five times its usual
//!   distance has passed since it was taken (5 s at least); a GPU that is down shows only that, since when and why,
//!   and its counts.
//! - **Windows** (`…_window{stat=…}`) are those of the wall clock's grid; the last complete one is shown.
//! - **Totals** (`gpu_energy_joules_total`, `gpu_busy_seconds_total`, `gpu_throttled_seconds_total`) begin at 0 when this
//!   process first sees the GPU, and leave out unobserved time.
//! - **Jobs** ([`JobMeters`]): what each holder of GPUs used, by the sums that are published as `gpu_usage`.
//! - **A fleet** ([`FleetExposition`]) has the same names, from the latest values that a history knows.
//! - **DCGM's names** ([`Compat`]) come beside them, in either dialect or both, for any vendor's GPUs.

mod column;
mod compat;
mod config;
mod cores;
mod dcgm;
mod exposition;
mod family;
mod fleet;
mod gpu;
mod jobs;
mod labels;
mod meters;
mod plan;
mod reading;
mod scale;
mod scrape;
mod status;
mod values;

pub use column::ColumnSeries;
pub use compat::Compat;
pub use config::ExpositionConfig;
pub use exposition::Exposition;
pub use fleet::FleetExposition;
pub use jobs::JobMeters;
pub use status::DeviceStatus;
