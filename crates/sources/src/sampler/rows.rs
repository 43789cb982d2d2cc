//! Rows between worker and taker: one flat list that a worker appends to, turned into columns by the taker. Values of
//! instances become rows of their own: those of GPUs in `gpu_details`, those of a host's CPUs beside the host's row.
//!
//! A tick appends some forty values to contiguous memory. Spreading them over as many columns costs a cache
//! miss or two each when the thread has slept before; the taker does it for hundreds of rows at once, and off
//! the sampling thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gpuvitals_core::batch::{READ_ERROR_COLUMN, READ_US_COLUMN, RowId, Value, ValueError};
use gpuvitals_core::clock::Moment;
use gpuvitals_core::{AbsenceReason, Batch, BatchBuilder, Identity, MetricId, Origin, Table};

use super::state::WorkerState;
use crate::probe::{Detail, OwnValue, Row};

/// The metric whose changes stand in for snapshots, for drivers without them; also the absent one in a row
/// without values.
pub(super) const WATCHED: MetricId = MetricId::of("power_w");

/// Rows of one worker, of one table.
#[derive(Debug)]
pub(crate) struct RowList {
    worker: Arc<WorkerState>,
    identities: Vec<Arc<Identity>>,
    heads: Vec<RowHead>,
    values: Vec<(MetricId, Value)>,
    details: Vec<Detail>,
    own: Vec<(&'static str, OwnValue)>,
    absences: Vec<(MetricId, AbsenceReason)>,
}

/// When a row was taken, and how long the reading took that gave it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowTimes {
    /// Nanoseconds UTC since 1970.
    pub(crate) timestamp_ns: i64,
    /// The same moment on the monotonic clock.
    pub(crate) monotonic_ns: i64,
    /// How long the reading took, microseconds, as [`ShownReads`] says it.
    pub(crate) read_us: i64,
}

impl RowTimes {
    /// Of a row with this time, taken at this moment.
    pub(crate) fn of(at: Moment, timestamp_ns: i64, read_us: i64) -> Self {
        Self { timestamp_ns, monotonic_ns: at.mono_ns, read_us }
    }
}

/// A reading that takes so many times as long as the one before has a number of its own: somebody will look for it.
const SLOWED: i64 = 5;
/// What usual readings are said to take, times a power of ten, and the end of what each stands for: the geometric mean of it and the next.
const STEPS: [(i64, i64); 6] = [(100, 122), (150, 173), (200, 245), (300, 387), (500, 592), (700, 837)];

/// How long readings of a device take, as its rows say it. One that takes about as long as the one before has its number, and usual ones
/// have those of few steps, which devices share: so the column takes few bytes. A reading that slows down shows at once.
#[derive(Debug, Default)]
pub(crate) struct ShownReads {
    us: i64,
}

impl ShownReads {
    /// The next reading, which took so many nanoseconds; in microseconds.
    pub(crate) fn next(&mut self, took_ns: i64) -> i64 {
        let us = took_ns / 1_000;
        // Between two thirds of it and half as much more.
        let is_alike = self.us > 0 && 3 * us >= 2 * self.us && 2 * us <= 3 * self.us;
        if !is_alike {
            let has_slowed = self.us > 0 && us >= SLOWED * self.us;
            self.us = if has_slowed { two_digits(us) } else { step(us) };
        }
        self.us
    }
}

/// The columns that stay on the machine and that rows have beside what was read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LocalColumns {
    /// The monotonic clock.
    pub(crate) monotonic: bool,
    /// How long the reading took, and why it gave nothing.
    pub(crate) reads: bool,
}

/// A row without its values.
#[derive(Debug, Clone, Copy)]
struct RowHead {
    identity: usize,
    times: RowTimes,
    /// Why the reading gave nothing; none: it gave something, or the device sleeps.
    error: Option<AbsenceReason>,
    /// Ends of its values, details, own values and absences in the flat lists; they begin where those of the row before end.
    values_end: usize,
    details_end: usize,
    own_end: usize,
    absences_end: usize,
}

impl RowList {
    pub(crate) fn new(worker: Arc<WorkerState>) -> Self {
        Self {
            worker,
            identities: Vec::new(),
            heads: Vec::new(),
            values: Vec::new(),
            details: Vec::new(),
            own: Vec::new(),
            absences: Vec::new(),
        }
    }

    /// A list for the next rows of the same worker, in the memory of another list if there is one.
    pub(crate) fn emptied(&self, spare: Option<Self>) -> Self {
        let worker = Arc::clone(&self.worker);
        let Some(mut spare) = spare else { return Self::new(worker) };
        spare.identities.clear();
        spare.heads.clear();
        spare.values.clear();
        spare.details.clear();
        spare.own.clear();
        spare.absences.clear();
        Self { worker, ..spare }
    }

    /// Number of rows it makes.
    pub(crate) fn len(&self) -> usize {
        self.heads.len() + self.details.len()
    }

    /// When the first was taken, monotonic.
    pub(crate) fn since_ns(&self) -> Option<i64> {
        self.heads.first().map(|head| head.times.monotonic_ns)
    }

    /// Adds a row.
    pub(crate) fn add(&mut self, whose: &Arc<Identity>, row: &Row, times: RowTimes) {
        self.values.extend_from_slice(row.values());
        self.details.extend_from_slice(row.details());
        self.own.extend_from_slice(row.own_values());
        self.absences.extend_from_slice(row.absences());
        self.push(whose, times, None);
    }

    /// Adds a row without a value: from this time on the GPU reports nothing, for this reason.
    pub(crate) fn add_blank(&mut self, whose: &Arc<Identity>, reason: AbsenceReason, times: RowTimes) {
        if self.worker.table == Table::GpuEvents {
            self.absences.push((WATCHED, reason));
            // That it sleeps was read without an error.
            self.push(whose, times, Some(reason).filter(|reason| *reason != AbsenceReason::Suspended));
        }
    }

    fn push(&mut self, whose: &Arc<Identity>, times: RowTimes, error: Option<AbsenceReason>) {
        let known = self.identities.iter().position(|identity| Arc::ptr_eq(identity, whose));
        let identity = known.unwrap_or_else(|| {
            self.identities.push(Arc::clone(whose));
            self.identities.len() - 1
        });
        self.heads.push(RowHead {
            identity,
            times,
            error,
            values_end: self.values.len(),
            details_end: self.details.len(),
            own_end: self.own.len(),
            absences_end: self.absences.len(),
        });
    }

    /// The rows as batches: those of the worker's table, and those of the details of its GPUs. An impossible value is left out and
    /// counted.
    pub(crate) fn to_batches(
        &self,
        local: LocalColumns,
        origin: &Origin,
        sequence: u64,
    ) -> impl Iterator<Item = Batch> + use<> {
        let (rows, invalid_rows) = self.to_rows(local);
        let (details, invalid_details) = self.to_details();
        let invalid = invalid_rows + invalid_details;
        if invalid > 0 {
            self.worker.invalid.fetch_add(invalid, Ordering::Relaxed);
        }
        let finish = |mut builder: BatchBuilder| builder.finish(origin.clone(), sequence);
        [finish(rows), finish(details)].into_iter().flatten()
    }

    /// The rows of the worker's table; those of the CPUs of a host follow its own. Also returns the number of impossible values.
    fn to_rows(&self, local: LocalColumns) -> (BatchBuilder, u64) {
        let mut builder = BatchBuilder::new(self.worker.table);
        let ids: Vec<_> = self.identities.iter().map(|identity| builder.add_identity(identity)).collect();
        let (mut values, mut details, mut own, mut absences, mut invalid) = (0, 0, 0, 0, 0);
        for head in &self.heads {
            let Some(&id) = ids.get(head.identity) else { continue };
            let at = |builder: &mut BatchBuilder| {
                if local.monotonic {
                    builder.row_at(head.times.timestamp_ns, head.times.monotonic_ns, id)
                } else {
                    builder.row(head.times.timestamp_ns, id)
                }
            };
            let row = at(&mut builder);
            if local.reads && self.worker.table == Table::GpuEvents {
                invalid += u64::from(head.set_reading(&mut builder, row).is_err());
            }
            for (metric, value) in self.values.get(values..head.values_end).unwrap_or_default() {
                invalid += u64::from(builder.set(row, *metric, *value).is_err());
            }
            for (column, value) in self.own.get(own..head.own_end).unwrap_or_default() {
                let set = match value {
                    OwnValue::Number(value) => builder.set_extra(row, column, *value),
                    OwnValue::Text(text) => builder.set_extra_text(row, column, text),
                };
                invalid += u64::from(set.is_err());
            }
            for (metric, reason) in self.absences.get(absences..head.absences_end).unwrap_or_default() {
                builder.absent(row, *metric, *reason);
            }
            let is_host = self.worker.table == Table::SystemEvents;
            let details_of_host = self.details.get(details..head.details_end).filter(|_| is_host);
            for Detail { metric, instance, value } in details_of_host.unwrap_or_default() {
                let row = at(&mut builder);
                let set = builder
                    .set_instance(row, metric.metric().scope, &instance.to_string())
                    .and_then(|()| builder.set(row, *metric, *value));
                invalid += u64::from(set.is_err());
            }
            (values, details) = (head.values_end, head.details_end);
            (own, absences) = (head.own_end, head.absences_end);
        }
        (builder, invalid)
    }

    /// The rows of `gpu_details`, and the number of impossible values.
    fn to_details(&self) -> (BatchBuilder, u64) {
        let mut builder = BatchBuilder::new(Table::GpuDetails);
        let (mut from, mut invalid) = (0, 0);
        let heads = self.heads.iter().filter(|_| self.worker.table == Table::GpuEvents);
        for head in heads {
            let details = self.details.get(from..head.details_end).unwrap_or_default();
            from = head.details_end;
            let Some(identity) = self.identities.get(head.identity).filter(|_| !details.is_empty()) else {
                continue;
            };
            let id = builder.intern(identity);
            for Detail { metric, instance, value } in details {
                let row = builder.row(head.times.timestamp_ns, id);
                let mut set = || -> Result<(), ValueError> {
                    builder.set_extra_text(row, "metric", metric.metric().column)?;
                    builder.set_extra_text(row, "instance", &instance.to_string())?;
                    builder.set_extra(row, "value", Value::Float(value.as_f64()))
                };
                invalid += u64::from(set().is_err());
            }
        }
        (builder, invalid)
    }
}

impl RowHead {
    /// Says of a row how long its reading took, and why it gave nothing.
    fn set_reading(&self, builder: &mut BatchBuilder, row: RowId) -> Result<(), ValueError> {
        builder.set_extra(row, READ_US_COLUMN, Value::Int(self.times.read_us))?;
        self.error.map_or(Ok(()), |error| builder.set_extra_text(row, READ_ERROR_COLUMN, error.as_str()))
    }
}

/// The step that is nearest to a duration in microseconds, from 100 on: less than that says nothing of a device.
fn step(us: i64) -> i64 {
    let mut unit = 1;
    while us / unit >= 1_000 {
        unit *= 10;
    }
    let nearest = STEPS.iter().find(|(_, end)| us / unit < *end);
    nearest.map_or(1_000, |(step, _)| *step) * unit
}

/// A number with its first two digits alone: what is behind them is noise.
fn two_digits(number: i64) -> i64 {
    let mut unit = 1;
    while number / unit >= 100 {
        unit *= 10;
    }
    (number + unit / 2) / unit * unit
}

#[cfg(test)]
mod tests {
    use super::{ShownReads, step, two_digits};

    #[test]
    fn readings_that_take_about_as_long_have_one_number() {
        let mut shown = ShownReads::default();
        let took_us = [0, 312, 330, 250, 440, 460, 41_300, 39_000, 305, 12];
        let said = took_us.map(|us| shown.next(us * 1_000));
        assert_eq!(said, [100, 300, 300, 300, 300, 500, 41_000, 41_000, 300, 100]);
    }

    #[test]
    fn usual_readings_of_devices_alike_have_the_same_number() {
        let first = |us: i64| ShownReads::default().next(us * 1_000);
        assert_eq!([262, 281, 312, 340, 380].map(first), [300; 5]);
        assert_eq!([8, 20, 45, 90, 110].map(first), [100; 5]);
    }

    #[test]
    fn a_duration_is_said_to_a_factor_of_one_and_a_half() {
        for us in 67..100_000 {
            let said = step(us);
            assert!(2 * said <= 3 * us && 2 * us <= 3 * said, "{us} is said to be {said}");
        }
        let cases =
            [(0, 100), (121, 100), (122, 150), (836, 700), (837, 1_000), (9_999, 10_000), (21_500, 20_000)];
        for (read, said) in cases {
            assert_eq!(step(read), said, "{read}");
        }
    }

    #[test]
    fn two_digits_of_a_duration_count() {
        let cases =
            [(0, 0), (7, 7), (99, 99), (104, 100), (105, 110), (312, 310), (999, 1_000), (41_499, 41_000)];
        for (read, said) in cases {
            assert_eq!(two_digits(read), said, "{read}");
        }
    }
}
