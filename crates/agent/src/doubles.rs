//! What tests of several modules make up.

use std::sync::Arc;

use gpuvitals_core::{Identity, Table};
use gpuvitals_sources::probe::Driver;
use gpuvitals_sources::sampler::{Liveness, TargetState};

/// A GPU that NVML reads and that gives rows.
pub(crate) fn gpu_up(identity: Arc<Identity>) -> TargetState {
    TargetState {
        identity,
        sharers: Vec::new(),
        table: Table::GpuEvents,
        driver: Driver::Nvml,
        liveness: Liveness::Up,
        since_ns: 0,
        last_row_ns: None,
        update_interval: None,
    }
}
