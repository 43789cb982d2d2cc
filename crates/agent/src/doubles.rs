//! What tests of several modules make up.

use std::sync::Arc;

use gpuvitals_core::{Batch, Identity, Table};
use gpuvitals_flight::{FlightError, IncidentFiles, IncidentTable};
use gpuvitals_sources::probe::Driver;
use gpuvitals_sources::sampler::{Liveness, TargetState};

/// Incidents without files of rows, which nobody reads.
pub(crate) const NO_FILES: IncidentFiles =
    IncidentFiles { begin: |_, _| Ok(Box::new(NoFile)), read: |_| Ok(Box::new(std::iter::empty())) };

#[derive(Debug)]
struct NoFile;

impl IncidentTable for NoFile {
    fn takes(&self, _: &Batch) -> bool {
        true
    }
    fn add(&mut self, _: &Batch) -> Result<(), FlightError> {
        Ok(())
    }
    fn settle(&mut self) -> Result<(), FlightError> {
        Ok(())
    }
    fn put(self: Box<Self>) -> Result<u64, FlightError> {
        Ok(0)
    }
}

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
