//! A reading of one device: whom it asks, and where the answers and the reasons for none go.

use gpuvitals_core::MetricId;

use super::code::Answer;
use super::ledger::{Gate, Ledger};
use super::raw::{Gpu, Raw};
use crate::probe::{Due, ProbeError, Row};

/// A GPU at a tick: how to ask it, when, and for which tiers.
#[derive(Clone, Copy)]
pub(super) struct GpuTick {
    pub(super) raw: &'static Raw,
    pub(super) gpu: Gpu,
    /// When the tick began, on the monotonic clock.
    pub(super) now_ns: i64,
    pub(super) due: Due,
}

/// A GPU or a MIG instance at a tick, with its row and the ledger of what the row lacks.
pub(super) struct DeviceReading<'a> {
    pub(super) tick: GpuTick,
    pub(super) ledger: &'a mut Ledger,
    pub(super) row: &'a mut Row,
}

impl DeviceReading<'_> {
    /// Makes a call on the device, as [`Ledger::ask`].
    pub(super) fn ask<T>(
        &mut self,
        gate: &mut Gate,
        metrics: &[MetricId],
        call: impl FnOnce(&'static Raw, Gpu) -> Answer<T>,
    ) -> Result<Option<T>, ProbeError> {
        let GpuTick { raw, gpu, .. } = self.tick;
        self.ledger.ask(gate, metrics, || call(raw, gpu))
    }
}
