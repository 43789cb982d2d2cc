//! Everything known about one GPU.

use std::sync::Arc;

use gpuvitals_analysis::window::Windows;
use gpuvitals_core::integral::Blanks;
use gpuvitals_core::{Absence, AbsenceReason, Batch, Identity, IdentityColumn, MetricId};

use crate::labels::GpuLabels;
use crate::meters::Meters;
use crate::values::{Values, number};

#[derive(Debug)]
pub(crate) struct Gpu {
    identity: Option<Arc<Identity>>,
    pub(crate) labels: GpuLabels,
    pub(crate) values: Values,
    pub(crate) windows: Windows,
    pub(crate) meters: Meters,
    pub(crate) samples: u64,
    pub(crate) absences: [u64; AbsenceReason::ALL.len()],
    pub(crate) last_ns: Option<i64>,
}

impl Gpu {
    pub(crate) fn new(window_ns: i64, interval_ns: i64, channels: usize) -> Self {
        Self {
            identity: None,
            labels: GpuLabels::default(),
            values: Values::new(),
            windows: Windows::new(window_ns, channels),
            meters: Meters::new(interval_ns),
            samples: 0,
            absences: [0; AbsenceReason::ALL.len()],
            last_ns: None,
        }
    }

    /// Takes these rows of a batch; `channels` are the metrics that have windows.
    pub(crate) fn take(&mut self, batch: &Batch, rows: &[usize], channels: &[MetricId]) {
        self.values.take(batch, rows);
        self.meters.take(batch, rows);
        let times = batch.timestamps();
        let columns: Vec<_> =
            channels.iter().enumerate().filter_map(|(at, id)| Some((at, batch.metric(*id)?))).collect();
        let blanks = Blanks::of(batch);
        for &row in rows.iter().filter(|row| !blanks.has(**row)) {
            let Some(&at_ns) = times.get(row) else { continue };
            self.samples += 1;
            self.last_ns = Some(at_ns);
            if self.windows.enter(at_ns) {
                for (channel, column) in &columns {
                    if let Some(value) = number(Some(*column), row) {
                        self.windows.push(*channel, value);
                    }
                }
            }
        }
    }

    /// Counts an absence of a batch. A metric that the last of these rows lacks is unknown from then on.
    pub(crate) fn miss(&mut self, absence: &Absence, batch: &Batch, rows: &[usize]) {
        if let Some(count) = self.absences.get_mut(absence.reason as usize) {
            *count += u64::from(absence.count);
        }
        if let Some(&last) = rows.last()
            && let Some(&at_ns) = batch.timestamps().get(last)
            && batch.metric(absence.metric).and_then(|column| column.value(last)).is_none()
        {
            self.values.forget(absence.metric, at_ns);
        }
    }

    /// Its identity, once it was shown.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.identity.as_deref()
    }

    /// Whether its counters are NVIDIA's.
    pub(crate) fn is_nvidia(&self) -> bool {
        self.identity().and_then(|identity| identity.get(IdentityColumn::Vendor)) == Some("nvidia")
    }

    /// Sets its identity. Labels are rewritten only when it has changed.
    pub(crate) fn know(&mut self, identity: &Arc<Identity>) {
        let same = |known: &Arc<Identity>| Arc::ptr_eq(known, identity) || **known == **identity;
        if !self.identity.as_ref().is_some_and(same) {
            self.labels = GpuLabels::new(identity);
        }
        self.identity = Some(Arc::clone(identity));
    }
}
