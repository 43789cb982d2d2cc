//! The calls that a device does not support: they are not repeated, and every absence has its reason.

use gpuvitals_core::{AbsenceReason, MetricId};

use super::code::{Answer, Code, Meaning};
use crate::probe::{Due, ProbeError, Row};

/// After this many unknown errors with no answer between them, the device counts as sick.
const UNKNOWN_MAX: u32 = 5;

/// Whether a call is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Gate {
    #[default]
    Open,
    /// It refused the handle once.
    Doubted,
    /// It will never answer.
    Shut,
}

/// The absences of one row's metrics.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    never: Vec<(MetricId, AbsenceReason)>,
    now: Vec<(MetricId, AbsenceReason)>,
    unknown_in_a_row: u32,
    /// Whether a handle was refused: it must be looked up again.
    pub(super) is_stale: bool,
}

impl Ledger {
    /// A reading begins.
    pub(super) fn begin(&mut self) {
        self.now.clear();
        self.is_stale = false;
    }

    /// Calls unless it is known to be useless. None without an answer; the reason is recorded for these
    /// metrics.
    pub(super) fn ask<T>(
        &mut self,
        gate: &mut Gate,
        metrics: &[MetricId],
        call: impl FnOnce() -> Answer<T>,
    ) -> Result<Option<T>, ProbeError> {
        if *gate == Gate::Shut {
            return Ok(None);
        }
        match call() {
            Ok(value) => {
                *gate = Gate::Open;
                self.answered();
                Ok(Some(value))
            }
            Err(code) => {
                self.refused(gate, metrics, code)?;
                Ok(None)
            }
        }
    }

    /// A call gave an answer: the device is well enough for one.
    pub(super) fn answered(&mut self) {
        self.unknown_in_a_row = 0;
    }

    /// Notes why a call gave nothing.
    pub(super) fn refused(
        &mut self,
        gate: &mut Gate,
        metrics: &[MetricId],
        code: Code,
    ) -> Result<(), ProbeError> {
        match code.meaning() {
            Meaning::Never(reason) => {
                *gate = Gate::Shut;
                self.never(metrics, reason);
            }
            Meaning::Stale if *gate == Gate::Doubted => {
                // Refused with a fresh handle as well: it is the question that this device does not know.
                *gate = Gate::Shut;
                self.never(metrics, AbsenceReason::NotSupported);
            }
            Meaning::Stale => {
                *gate = Gate::Doubted;
                self.is_stale = true;
                self.not_now(metrics, AbsenceReason::Invalid);
            }
            Meaning::NotNow(reason) => self.not_now(metrics, reason),
            Meaning::Unknown => {
                self.unknown_in_a_row += 1;
                if self.unknown_in_a_row >= UNKNOWN_MAX {
                    return Err(ProbeError::Failed(code.to_string()));
                }
                self.not_now(metrics, AbsenceReason::Invalid);
            }
            Meaning::Device(error) => return Err(error),
        }
        Ok(())
    }

    /// The device will not give these metrics.
    pub(super) fn never(&mut self, metrics: &[MetricId], reason: AbsenceReason) {
        for metric in metrics {
            match self.never.iter_mut().find(|(known, _)| known == metric) {
                // A missing right can be granted; so it is the better reason to report.
                Some((_, known)) if *known == AbsenceReason::Denied => {}
                Some((_, known)) => *known = reason,
                None => self.never.push((*metric, reason)),
            }
        }
    }

    /// The device does not give these metrics this time.
    pub(super) fn not_now(&mut self, metrics: &[MetricId], reason: AbsenceReason) {
        self.now.extend(metrics.iter().map(|metric| (*metric, reason)));
    }

    /// Another call gives the metric.
    pub(super) fn has(&mut self, metric: MetricId) {
        self.never.retain(|(known, _)| *known != metric);
    }

    /// The reading ends: records the values missing from its row.
    pub(super) fn close(&self, due: Due, row: &mut Row) {
        let never = self.never.iter().filter(|_| due.rare);
        for (metric, reason) in never.chain(&self.now) {
            if row.get(*metric).is_none() {
                row.absent(*metric, *reason);
            }
        }
    }
}
