//! The seam between the sampler and the dialects: a probe reads, the sampler decides when.
//!
//! A probe is what one worker thread drives: a GPU with its partitions, the host, or a tool that answers for
//! all GPUs at once. Opening it is cheap (names and addresses only); anything that may hang or cost is done
//! in [`Probe::read`], on its own thread, so that a sick device affects no other.
//!
//! Rules for a `read`:
//! - the fast tier is always due; read it first, and stamp the row with [`Row::taken`] if the reading itself takes
//!   long;
//! - nothing is allocated in the steady state, no file is opened, no text is formatted;
//! - permanently missing values (`NotSupported`, `Denied`) are reported when the rare tier is due and not read again;
//!   values missing this time are reported each time;
//! - a value is set in its column unit, once; a sentinel is an absence.

mod checked;
mod plausible;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::Tier;
use gpuvitals_core::clock::mono_ns;
use gpuvitals_core::{AbsenceReason, Identity, MetricId, Table};

use crate::finding::Finding;

use plausible::KnownReadings;

pub use crate::driver::Driver;

pub(crate) use plausible::Causes;

/// Which tiers are due at a tick; the fast one always is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Due {
    /// Values read once a second.
    pub slow: bool,
    /// Values read every 30 to 60 seconds.
    pub rare: bool,
}

impl Due {
    /// Everything, as at the first tick.
    pub const ALL: Self = Self { slow: true, rare: true };

    /// Whether a tier is due.
    pub fn has(self, tier: Tier) -> bool {
        match tier {
            Tier::Fast => true,
            Tier::Slow => self.slow,
            Tier::Rare => self.rare,
        }
    }
}

/// A whole device without values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// The device or its driver is gone (`ENODEV`, GPU lost); it is retried slowly.
    #[error("gone: {0}")]
    Gone(String),
    /// The right to read it is missing.
    #[error("denied: {0}")]
    Denied(String),
    /// It did not answer, or not sensibly, this time.
    #[error("failed: {0}")]
    Failed(String),
}

impl ProbeError {
    /// The absence reason.
    pub fn reason(&self) -> AbsenceReason {
        match self {
            Self::Gone(_) => AbsenceReason::Gone,
            Self::Denied(_) => AbsenceReason::Denied,
            Self::Failed(_) => AbsenceReason::Invalid,
        }
    }
}

/// Reads one device, the host, or all GPUs of a tool. See the module for the rules.
pub trait Probe: Send {
    /// The table of its rows.
    fn table(&self) -> Table {
        Table::GpuEvents
    }

    /// The driver path by which it reads.
    fn driver(&self) -> Driver;

    /// The targets of its rows, as far as known now; resolved identities ([`Identity::resolve`]) with `node`,
    /// `vendor` and `source` set. May grow with the first reading (partitions, the GPUs of a tool).
    fn targets(&self) -> Vec<Arc<Identity>>;

    /// From now on it also reads the CPUs of the host one by one ([`Row::detail`]). A probe of GPUs ignores this: it gives
    /// its details at the rare tier.
    fn read_instances(&mut self) {}

    /// Sets its GPU's index among those of its vendor on the node, before it is read. A probe whose index
    /// comes from a library keeps that.
    fn renumber(&mut self, _index: i32) {}

    /// Shortest sensible time between two fast readings: below it a rate is refused with the reason.
    fn interval_min(&self) -> Duration {
        Duration::from_millis(1)
    }

    /// How long a reading may take before the device counts as stuck.
    fn deadline(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Reads what is due into rows, as the device tells it. Callers use [`Probe::read`].
    ///
    /// # Errors
    /// As [`Probe::read`].
    fn fill(&mut self, due: Due, reading: &mut Reading) -> Result<(), ProbeError>;

    /// Reads what is due into rows, without the values that others of the same row contradict.
    ///
    /// # Errors
    /// If the whole device gives nothing. The sampler calls again at the next tick, or with a growing delay
    /// while the device is gone; the probe itself reopens the device.
    fn read(&mut self, due: Due, reading: &mut Reading) -> Result<(), ProbeError> {
        self.fill(due, reading)?;
        reading.settle();
        Ok(())
    }

    /// New findings of readings beyond names and rights: each once, and once more as
    /// [`Verdict::Good`](crate::registry::Verdict::Good) when it is over.
    fn findings(&mut self) -> Vec<Finding> {
        Vec::new()
    }
}

/// A part of a GPU or host; its kind is the metric's scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Instance {
    /// A link, an HBM stack or a CPU.
    Number(u32),
    /// A memory or block.
    Name(Arc<str>),
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

/// The value of a metric for one instance.
#[derive(Debug, Clone, PartialEq)]
pub struct Detail {
    /// The metric, of a scope that has instances.
    pub metric: MetricId,
    /// The part that the value is of.
    pub instance: Instance,
    /// The value, in the metric's column unit.
    pub value: Value,
}

/// A value in one of the table's own columns.
#[derive(Debug, Clone, PartialEq)]
pub enum OwnValue {
    /// A number, in the column's unit.
    Number(Value),
    /// A text, as the device tells it.
    Text(Arc<str>),
}

/// Initial capacity of a row's values.
const VALUES: usize = 64;

/// The rows of one tick. Kept and reused, so that a tick allocates nothing.
#[derive(Debug, Default)]
pub struct Reading {
    rows: Vec<Row>,
    used: usize,
}

/// One row under construction.
#[derive(Debug)]
pub struct Row {
    identity: Arc<Identity>,
    values: Vec<(MetricId, Value)>,
    details: Vec<Detail>,
    own: Vec<(&'static str, OwnValue)>,
    absences: Vec<(MetricId, AbsenceReason)>,
    snapshot: Option<u64>,
    down: Option<(AbsenceReason, &'static str)>,
    taken_ns: Option<i64>,
    refused: u64,
    held: Causes,
    /// What is known of its GPU, kept from tick to tick.
    known: KnownReadings,
}

impl Reading {
    /// Begins a row of a GPU (or host). Two rows of one identity in one reading are a mistake.
    #[expect(clippy::expect_used, reason = "pushed just before where it was missing")]
    pub fn row(&mut self, identity: &Arc<Identity>) -> &mut Row {
        if self.used == self.rows.len() {
            self.rows.push(Row {
                identity: Arc::clone(identity),
                values: Vec::with_capacity(VALUES),
                details: Vec::new(),
                own: Vec::new(),
                absences: Vec::with_capacity(VALUES / 4),
                snapshot: None,
                down: None,
                taken_ns: None,
                refused: 0,
                held: Causes::default(),
                known: KnownReadings::default(),
            });
        }
        let row = self.rows.get_mut(self.used).expect("there is such a row");
        self.used += 1;
        if !Arc::ptr_eq(&row.identity, identity) {
            row.identity = Arc::clone(identity);
            row.known = KnownReadings::default();
        }
        row.clear();
        row
    }

    /// The rows so far.
    pub fn rows(&self) -> &[Row] {
        self.rows.get(..self.used).unwrap_or_default()
    }

    fn settle(&mut self) {
        let now_ns = mono_ns();
        for row in self.rows.iter_mut().take(self.used) {
            row.settle(now_ns);
        }
    }

    /// Moves the rows that are wanted to another reading, and forgets the others.
    pub(crate) fn hand_over(&mut self, to: &mut Self, is_wanted: impl Fn(&Identity) -> bool) {
        for row in self.rows.iter_mut().take(self.used).filter(|row| is_wanted(&row.identity)) {
            let identity = Arc::clone(&row.identity);
            to.row(&identity).adopt(row);
        }
        self.clear();
    }

    /// Forgets the rows, keeps the memory.
    pub fn clear(&mut self) {
        self.used = 0;
    }
}

impl Row {
    fn clear(&mut self) {
        self.values.clear();
        self.details.clear();
        self.own.clear();
        self.absences.clear();
        self.snapshot = None;
        self.down = None;
        self.taken_ns = None;
        self.refused = 0;
        self.held = Causes::default();
    }

    /// Takes over what another row of the same GPU says. Both keep their memory, and what they know of earlier readings.
    fn adopt(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.values, &mut other.values);
        std::mem::swap(&mut self.details, &mut other.details);
        std::mem::swap(&mut self.own, &mut other.own);
        std::mem::swap(&mut self.absences, &mut other.absences);
        self.snapshot = other.snapshot;
        self.down = other.down;
        self.taken_ns = other.taken_ns;
        self.refused = other.refused;
        self.held = other.held;
    }

    /// The identity of the row.
    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Sets an integer, in the column unit; [refused](Row::refuse) if impossible.
    pub fn int(&mut self, metric: MetricId, value: impl Into<i64>) {
        self.set(metric, Value::Int(value.into()));
    }

    /// Sets a 32-bit float, as [`Row::int`].
    pub fn float(&mut self, metric: MetricId, value: f32) {
        self.set(metric, Value::Float32(value));
    }

    /// Sets a 64-bit float, as [`Row::int`].
    pub fn double(&mut self, metric: MetricId, value: f64) {
        self.set(metric, Value::Float(value));
    }

    /// Sets a value, as [`Row::int`].
    pub fn set(&mut self, metric: MetricId, value: Value) {
        let number = value.as_f64();
        if !metric.metric().admits(number) {
            return self.refuse(metric);
        }
        self.values.push((metric, value));
    }

    /// Adds the value of one instance, in the column unit; an impossible one is left out and counted. Those of GPUs become rows of
    /// `gpu_details`.
    pub fn detail(&mut self, metric: MetricId, instance: Instance, value: Value) {
        if metric.metric().admits(value.as_f64()) {
            self.details.push(Detail { metric, instance, value });
        } else {
            self.refused += 1;
        }
    }

    /// Sets a number in one of the table's own columns ([`Table::columns`]).
    pub fn own(&mut self, column: &'static str, value: Value) {
        self.own.push((column, OwnValue::Number(value)));
    }

    /// Sets a text in one of the table's own columns.
    pub fn own_text(&mut self, column: &'static str, text: &Arc<str>) {
        self.own.push((column, OwnValue::Text(Arc::clone(text))));
    }

    /// The metric's reading is impossible: it is absent as `Invalid` and counted, and nothing is derived from
    /// it.
    pub fn refuse(&mut self, metric: MetricId) {
        self.refused += 1;
        self.absent(metric, AbsenceReason::Invalid);
    }

    /// Records that a metric has no value, with the reason.
    pub fn absent(&mut self, metric: MetricId, reason: AbsenceReason) {
        self.absences.push((metric, reason));
    }

    /// As [`Row::absent`], if it is time to say so: what is missing for good (`NotSupported`, `Denied`) at the rare tier, the
    /// rest whenever the metric is due.
    pub fn missing(&mut self, metric: MetricId, reason: AbsenceReason, due: Due) {
        let is_due = match reason {
            AbsenceReason::NotSupported | AbsenceReason::Denied => due.rare,
            _ => due.has(metric.metric().tier),
        };
        if is_due {
            self.absent(metric, reason);
        }
    }

    /// Names the driver's snapshot the values come from (its own clock or count): the same again is a repeat.
    pub fn snapshot(&mut self, id: u64) {
        self.snapshot = Some(id);
    }

    /// When the values were taken (nanoseconds UTC since 1970), if not when the reading began: a tool that
    /// takes a second, a driver's own stamp.
    pub fn taken(&mut self, timestamp_ns: i64) {
        self.taken_ns = Some(timestamp_ns);
    }

    /// This GPU gives nothing now, while others of the same probe may: asleep (`Suspended`), lost (`Gone`) …
    pub fn down(&mut self, reason: AbsenceReason, detail: &'static str) {
        self.down = Some((reason, detail));
    }

    /// The value set for a metric, if any: for derived values. The later one if it was set twice.
    pub fn get(&self, metric: MetricId) -> Option<Value> {
        self.values.iter().rev().find(|(id, _)| *id == metric).map(|(_, value)| *value)
    }

    /// Values in the order they were set; the last one of a metric counts.
    pub fn values(&self) -> &[(MetricId, Value)] {
        &self.values
    }

    /// Values of instances, in the order they were added.
    pub fn details(&self) -> &[Detail] {
        &self.details
    }

    /// Values of the table's own columns.
    pub fn own_values(&self) -> &[(&'static str, OwnValue)] {
        &self.own
    }

    /// Values that are missing, each with the reason.
    pub fn absences(&self) -> &[(MetricId, AbsenceReason)] {
        &self.absences
    }

    /// Number of refused values.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The driver's snapshot, if it identifies them.
    pub fn snapshot_id(&self) -> Option<u64> {
        self.snapshot
    }

    /// When taken, if not at the tick.
    pub fn taken_ns(&self) -> Option<i64> {
        self.taken_ns
    }

    /// The reason why this GPU gives nothing.
    pub fn is_down(&self) -> Option<(AbsenceReason, &'static str)> {
        self.down
    }
}
