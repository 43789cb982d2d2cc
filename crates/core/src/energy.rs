//! Energy: the hardware's counter when it is credible, integrated power otherwise. One rule, for running
//! totals and for recordings.
//!
//! Both come from the same sensors and are off by the same few per cent, so more than [`TOLERANCE`] apart
//! means a wrong unit or rate, or a counter that does not move. The integral is the energy until the counter
//! has agreed with it over [`PIECE_S`]; then every rise of the counter, from its first reading on, replaces the integral
//! over the same span, until the two disagree over the last [`CHECK_S`] in which both are known. Then it is integrated
//! again, from where they last agreed, until the two agree over [`CHECK_S`] once more: power that is sampled
//! once a second may miss faster changes. A rise that the power cannot explain is refused, and a fall is a
//! reset: over such a span it is integrated. The total never falls from row to row: after a correction downwards it stays
//! until the new value has caught up.

mod averaged;
mod interval;
mod sensor;
mod timing;

use std::collections::VecDeque;
use std::fmt;

use arrow_array::RecordBatch;

use crate::batch::{MetricColumn, Value, metric_of};
use crate::{Batch, Identity, MetricId};

use crate::integral::{Integral, Order, order, seconds};
use crate::usage::{CountedSpan, CounterSpan, PowerSpan, SeenPower, is_seen};
use interval::{EnergyFacts, PowerSignal};

pub use averaged::SamplesBeside;
pub use interval::{EnergyErrorCause, EnergyErrorPart, EnergyInterval, IntervalUnknown, PowerInTime};
pub use sensor::PowerSensor;
pub use timing::{SensorTiming, TimingUnknown};

/// Joules in a kilowatt hour.
pub const JOULES_PER_KWH: f64 = 3.6e6;
/// Largest difference between counter and integrated power, as a share of the larger.
pub const TOLERANCE: f64 = 0.10;
/// Seconds over which they must disagree for the counter to be rejected, and agree to be accepted again.
pub const CHECK_S: f64 = 60.0;
/// Seconds over which they must agree for the counter to be accepted.
pub const PIECE_S: f64 = 10.0;
/// Least energy that is compared, in joules.
const CHECK_J: f64 = 100.0;
/// Additional tolerance, in seconds of the highest power: a counter moves in steps, and late.
pub(crate) const STEP_S: f64 = 0.25;
/// Allowed power of a part without a known limit, as a multiple of the highest power seen.
const UNLIMITED: f64 = 1.5;

const POWER: MetricId = MetricId::of("power_w");
const POWER_AVERAGE: MetricId = MetricId::of("power_average_w");
const COUNTER: MetricId = MetricId::of("energy_mj");
/// Units of the counter in a joule.
const PER_JOULE: f64 = 1e3;
const LIMITS: [MetricId; 2] = [MetricId::of("power_limit_w"), MetricId::of("power_limit_enforced_w")];

/// The columns that energy is computed from, looked up once a batch.
#[derive(Debug)]
pub struct EnergyColumns<'a> {
    power: Option<MetricColumn<'a>>,
    average: Option<MetricColumn<'a>>,
    counter: Option<MetricColumn<'a>>,
    limits: [Option<MetricColumn<'a>>; LIMITS.len()],
}

impl<'a> EnergyColumns<'a> {
    /// Metrics that they hold.
    pub const METRICS: [MetricId; 5] = {
        let [limit, enforced] = LIMITS;
        [POWER, POWER_AVERAGE, COUNTER, limit, enforced]
    };

    /// The columns of a batch.
    pub fn of(batch: &'a Batch) -> Self {
        Self::of_records(batch.records())
    }

    /// The columns of rows of `gpu_events`.
    pub fn of_records(records: &'a RecordBatch) -> Self {
        let column = |id: MetricId| metric_of(records, id);
        Self {
            power: column(POWER),
            average: column(POWER_AVERAGE),
            counter: column(COUNTER),
            limits: LIMITS.map(column),
        }
    }

    /// Power of a row, watts, and whether it is an average over the time before.
    pub fn power(&self, row: usize) -> Option<(f64, bool)> {
        let instant = number(self.power, row).map(|watts| (watts, false));
        instant.or_else(|| self.average(row).map(|watts| (watts, true)))
    }

    fn average(&self, row: usize) -> Option<f64> {
        number(self.average, row)
    }

    /// The energy counter of a row, joules.
    pub fn counter_j(&self, row: usize) -> Option<f64> {
        number(self.counter, row).map(|counter| counter / PER_JOULE)
    }

    /// The largest power limit of a row, watts; 0 without one.
    pub fn limit_w(&self, row: usize) -> f64 {
        self.limits.iter().filter_map(|column| number(*column, row)).fold(0.0, f64::max)
    }
}

fn number(column: Option<MetricColumn<'_>>, row: usize) -> Option<f64> {
    column?.value(row).map(Value::as_decimal)
}

/// The energy of one GPU, from its rows in the order of time.
#[derive(Debug, Clone, Default)]
pub struct Energy {
    power: Integral,
    seen: Integral,
    signal: PowerSignal,
    power_max: f64,
    limit: f64,
    /// When power was last sampled: averages count where that is longer ago than a gap.
    sampled_ns: Option<i64>,
    /// The counter at its first reading, or its last change.
    last: Option<CounterReading>,
    readings: u64,
    rises: u64,
    falls: u64,
    refused: u64,
    /// The latest spans in which both are known: some [`PIECE_S`] each, [`CHECK_S`] together.
    pieces: VecDeque<CountedSpan>,
    /// Seconds of sampled power when a span was last compared.
    compared_s: f64,
    piece: CountedSpan,
    /// What was compared before the first verdict.
    untried: CountedSpan,
    /// What the counter counted before it beyond the integral, where power was not seen: joules.
    unseen_j: f64,
    belief: Belief,
    /// The base: the energy is this, plus the integral since then.
    from: EnergyMark,
    /// The same when counter and integral last agreed over [`CHECK_S`].
    agreed: EnergyMark,
    total: f64,
}

#[derive(Debug, Clone, Copy)]
struct CounterReading {
    time_ns: i64,
    counter_j: f64,
    integrated_j: f64,
    seen_s: f64,
}

/// An energy, and the integral at the same instant.
#[derive(Debug, Clone, Copy, Default)]
struct EnergyMark {
    total_j: f64,
    integrated_j: f64,
}

/// The verdict about the counter.
#[derive(Debug, Clone, Copy, Default)]
enum Belief {
    #[default]
    Untried,
    /// They agreed when last compared, with this difference as a share.
    Agrees(f64),
    Refuted(CountedSpan),
}

/// The source of the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EnergySource {
    /// The hardware's counter.
    Counter,
    /// The integral of power over time.
    Integrated,
}

impl EnergySource {
    /// Its name: `counter` or `integrated`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Integrated => "integrated",
        }
    }

    /// The source of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        [Self::Counter, Self::Integrated].into_iter().find(|source| source.name() == name)
    }
}

/// The reason for the source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EnergyReason {
    /// Counter and integrated power agree, with this difference as a share.
    Agrees(f64),
    /// The GPU has a counter, but no power to check it against.
    Unchecked,
    /// The GPU has no counter.
    NoCounter,
    /// They could not be compared yet: the counter was read only once, or over too short a time.
    TooShort,
    /// The counter did not move.
    Still,
    /// The counter fell this many times and was not compared: it was reset, or is wrong.
    Fell(u64),
    /// The counter rose this many times by more than the power allows.
    TooFast(u64),
    /// They give different energies for the same time.
    Disagrees {
        /// By the counter, in joules.
        counter_j: f64,
        /// By integrated power, in joules.
        integrated_j: f64,
    },
}

impl fmt::Display for EnergyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agrees(apart) => {
                write!(f, "the counter agrees with integrated power within {:.1} %", apart * 100.0)
            }
            Self::Unchecked => f.write_str("no power reading to check the counter against"),
            Self::NoCounter => f.write_str("the GPU has no energy counter"),
            Self::TooShort => f.write_str("too short to check the counter against integrated power"),
            Self::Still => f.write_str("the counter does not change"),
            Self::Fell(times) => write!(f, "the counter fell {times} times"),
            Self::TooFast(times) => write!(f, "the counter rose {times} times by more than the power allows"),
            Self::Disagrees { counter_j, integrated_j } => {
                write!(f, "the counter says {counter_j:.1} J where integrated power says {integrated_j:.1} J")
            }
        }
    }
}

/// Energy of a span.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EnergyTotal {
    /// Energy of the span in joules.
    pub joules: f64,
    /// What the joules come from.
    pub source: EnergySource,
    /// The reason for the source.
    pub reason: EnergyReason,
    /// Seconds over which power was sampled.
    pub seen_s: f64,
}

impl Energy {
    /// A row. The average is used only where power is not sampled: mixing the two would distort both.
    pub fn row(&mut self, columns: &EnergyColumns<'_>, row: usize, time_ns: i64, gap_max_ns: i64) {
        self.begin_row();
        self.allow(columns.limit_w(row));
        if let Some((watts, is_average)) = columns.power(row) {
            self.power(time_ns, watts, is_average, gap_max_ns);
            if let Some(average_w) = columns.average(row).filter(|_| !is_average) {
                self.signal.beside(watts, average_w);
            }
        }
        if let Some(counter_j) = columns.counter_j(row) {
            self.read(time_ns, counter_j, gap_max_ns);
        }
    }

    /// The part may draw this power, watts.
    pub(crate) fn allow(&mut self, limit_w: f64) {
        self.limit = self.limit.max(limit_w);
    }

    /// A sample of power in watts, or an average over the time since the sample before; averages count only where there has
    /// been no sample for longer than a gap.
    pub(crate) fn power(&mut self, time_ns: i64, watts: f64, is_average: bool, gap_max_ns: i64) {
        if !is_average {
            self.sample(time_ns, watts, gap_max_ns);
        } else if !self.has_sample(time_ns, gap_max_ns) {
            self.take(time_ns, watts, gap_max_ns, Integral::mean);
        }
    }

    /// A sample of power in watts. Gaps longer than the limit are not filled.
    pub fn sample(&mut self, time_ns: i64, watts: f64, gap_max_ns: i64) {
        if watts.is_finite() {
            self.sampled_ns = Some(time_ns);
            self.take(time_ns, watts, gap_max_ns, Integral::sample);
        }
    }

    fn has_sample(&self, time_ns: i64, gap_max_ns: i64) -> bool {
        self.sampled_ns.is_some_and(|sampled_ns| time_ns.saturating_sub(sampled_ns) <= gap_max_ns)
    }

    fn take(&mut self, time_ns: i64, watts: f64, gap_max_ns: i64, add: fn(&mut Integral, i64, f64, i64)) {
        if !watts.is_finite() {
            return;
        }
        add(&mut self.power, time_ns, watts, gap_max_ns);
        add(&mut self.seen, time_ns, 1.0, gap_max_ns);
        self.signal.take(time_ns, watts, gap_max_ns);
        self.power_max = self.power_max.max(watts);
    }

    /// Takes power that was integrated elsewhere by the same rule, from the last sample here to another one.
    pub(crate) fn extend(&mut self, span: &PowerSpan, gap_max_ns: i64) {
        if !span.is_average {
            self.sampled_ns = Some(span.last.0);
        } else if self.has_sample(span.last.0, gap_max_ns) {
            return;
        }
        self.begin_row();
        self.signal.skip();
        self.power.extend(span.joules, span.last);
        self.seen.extend(span.seconds, (span.last.0, 1.0));
        self.power_max = self.power_max.max(span.max_w);
    }

    /// Takes what the counter counted elsewhere, from its last reading here to another one; call it after
    /// [`Energy::extend`] of the same time.
    pub(crate) fn count(&mut self, span: &CounterSpan) {
        self.readings += 1;
        let now = self.reading(span.last);
        let Some(before) = self.last.replace(now) else { return };
        self.falls += u64::from(span.fell);
        let elapsed_s = seconds(span.last.0.saturating_sub(before.time_ns).max(0));
        let whole = CountedSpan {
            counted_j: span.rise_j,
            integrated_j: now.integrated_j - before.integrated_j,
            seen_s: now.seen_s - before.seen_s,
        };
        // Averages beside samples are no power here, though the span was compared with them.
        let is_here = span.seen.seen_s <= whole.seen_s + 1e-6;
        self.rise(whole, if is_here { span.seen } else { CountedSpan::default() }, elapsed_s);
    }

    /// The energy so far, joules.
    pub(crate) fn joules(&self) -> f64 {
        self.total.max(self.now())
    }

    /// Integrated power, joules, and the seconds over which it was sampled.
    pub(crate) fn sampled(&self) -> SeenPower {
        SeenPower { joules: self.integrated(), seconds: self.seen_s() }
    }

    /// Seconds over which power was sampled.
    fn seen_s(&self) -> f64 {
        self.seen.total().unwrap_or(0.0)
    }

    /// The power from the last sample to the next one is unknown. A counter counts on.
    pub fn lose(&mut self) {
        self.power.lose();
        self.seen.lose();
        self.signal.lose();
    }

    /// A reading of the counter in joules; call it after [`Energy::sample`] of the same instant.
    pub fn read(&mut self, time_ns: i64, counter_j: f64, gap_max_ns: i64) {
        if !counter_j.is_finite() {
            return;
        }
        self.readings += 1;
        let now = self.reading((time_ns, counter_j));
        let Some(before) = self.last else {
            self.last = Some(now);
            return;
        };
        let span = CountedSpan {
            counted_j: counter_j - before.counter_j,
            integrated_j: now.integrated_j - before.integrated_j,
            seen_s: now.seen_s - before.seen_s,
        };
        let elapsed_s = match order(before.time_ns, time_ns, gap_max_ns) {
            // It moves in steps, and late: in between the power counts.
            Order::After(_) if span.counted_j == 0.0 && span.seen_s < CHECK_S => return,
            Order::After(distance_ns) => seconds(distance_ns),
            Order::Late => return,
            Order::Reset => 0.0,
        };
        self.last = Some(now);
        if span.counted_j < 0.0 {
            self.falls += 1;
            self.leave_out(now.seen_s);
        } else {
            self.rise(
                span,
                if is_seen(span.seen_s, elapsed_s) { span } else { CountedSpan::default() },
                elapsed_s,
            );
        }
    }

    fn reading(&self, (time_ns, counter_j): (i64, f64)) -> CounterReading {
        CounterReading { time_ns, counter_j, integrated_j: self.integrated(), seen_s: self.seen_s() }
    }

    /// The counter rose over a span; power was seen in a part of it, which can be compared.
    fn rise(&mut self, span: CountedSpan, seen: CountedSpan, elapsed_s: f64) {
        if span.counted_j > self.most(elapsed_s) {
            self.refused += 1;
            self.leave_out(self.seen_s());
            return;
        }
        self.rises += u64::from(span.counted_j > 0.0);
        let has_power = self.power.total().is_some();
        // Whether the counter is accepted, or is the only source.
        if matches!(self.belief, Belief::Agrees(_)) || !has_power {
            self.from = self.mark(self.from.total_j + span.counted_j);
        }
        let unseen_j = span.counted_j - seen.counted_j - (span.integrated_j - seen.integrated_j);
        match self.belief {
            // No later comparison takes back energy that only the counter has seen.
            Belief::Agrees(_) => self.agreed.total_j += unseen_j,
            Belief::Untried if has_power => self.unseen_j += unseen_j,
            _ => {}
        }
        if seen.seen_s > 0.0 {
            self.compared_s = self.seen_s();
            self.compare(seen);
        }
    }

    /// The energy so far; none without power and counter.
    pub fn total(&self) -> Option<EnergyTotal> {
        let reason = self.reason()?;
        let source = match reason {
            EnergyReason::Agrees(_) | EnergyReason::Unchecked => EnergySource::Counter,
            _ => EnergySource::Integrated,
        };
        Some(EnergyTotal { joules: self.joules(), source, reason, seen_s: self.seen_s() })
    }

    /// Whether the power is the part's own average, because it has no other reading.
    pub fn is_averaged(&self) -> bool {
        self.sampled_ns.is_none() || self.signal.is_average()
    }

    /// Where the energy of this GPU lies, by its power sensor and by how power moved. The one rule for the error of an energy.
    ///
    /// # Errors
    /// Why it is not known: the sensor is in no table, or power was not read often enough.
    pub fn interval(&self, gpu: &Identity) -> Result<EnergyInterval, IntervalUnknown> {
        let sensor = PowerSensor::of(gpu).ok_or(IntervalUnknown::Sensor)?;
        let facts = EnergyFacts {
            joules: self.joules(),
            seen_s: self.seen_s(),
            highest_w: self.power_max,
            is_average: self.is_averaged(),
            // A counter counts on where power is not read.
            has_gaps: self.signal.has_gaps()
                && self.total().is_some_and(|total| total.source == EnergySource::Integrated),
        };
        EnergyInterval::of(sensor, &self.signal, facts)
    }

    fn reason(&self) -> Option<EnergyReason> {
        Some(match self.belief {
            Belief::Agrees(apart) => EnergyReason::Agrees(apart),
            Belief::Refuted(_) if self.rises == 0 => EnergyReason::Still,
            Belief::Refuted(CountedSpan { counted_j: counter_j, integrated_j, .. }) => {
                EnergyReason::Disagrees { counter_j, integrated_j }
            }
            Belief::Untried if self.power.total().is_none() => {
                (self.rises > 0).then_some(EnergyReason::Unchecked)?
            }
            Belief::Untried => match self.readings {
                0 => EnergyReason::NoCounter,
                1 => EnergyReason::TooShort,
                _ if self.refused > 0 => EnergyReason::TooFast(self.refused),
                _ if self.falls > 0 => EnergyReason::Fell(self.falls),
                _ if self.rises == 0 => EnergyReason::Still,
                _ => EnergyReason::TooShort,
            },
        })
    }

    fn integrated(&self) -> f64 {
        self.power.total().unwrap_or(0.0)
    }

    /// The most that the part can use in this time, in joules. Sensors err, and power exceeds a limit for
    /// moments.
    fn most(&self, elapsed_s: f64) -> f64 {
        let watts = if self.limit > 0.0 {
            self.limit.max(self.power_max) * (1.0 + TOLERANCE)
        } else if self.power.total().is_some() {
            self.power_max * UNLIMITED
        } else {
            f64::INFINITY
        };
        watts * (elapsed_s + STEP_S)
    }

    /// A span without a credible change of the counter: it is integrated. A counter with no other spans for
    /// [`CHECK_S`] starts afresh.
    fn leave_out(&mut self, seen_s: f64) {
        self.from = self.mark(self.now());
        if seen_s - self.compared_s >= CHECK_S {
            self.belief = Belief::Untried;
            (self.piece, self.untried, self.unseen_j) = (CountedSpan::default(), CountedSpan::default(), 0.0);
            self.pieces.clear();
        }
    }

    fn compare(&mut self, span: CountedSpan) {
        self.piece = self.piece.and(span);
        if matches!(self.belief, Belief::Untried) {
            self.untried = self.untried.and(span);
        }
        if self.piece.seen_s < PIECE_S {
            return;
        }
        self.pieces.push_back(std::mem::take(&mut self.piece));
        let mut over = self.pieces.iter().copied().fold(CountedSpan::default(), CountedSpan::and);
        while let Some(oldest) = self.pieces.front().filter(|oldest| over.seen_s - oldest.seen_s >= CHECK_S) {
            over = CountedSpan {
                counted_j: over.counted_j - oldest.counted_j,
                integrated_j: over.integrated_j - oldest.integrated_j,
                seen_s: over.seen_s - oldest.seen_s,
            };
            self.pieces.pop_front();
        }
        let larger = over.counted_j.max(over.integrated_j);
        if larger < CHECK_J {
            return;
        }
        let apart = (over.counted_j - over.integrated_j).abs();
        let is_whole = over.seen_s >= CHECK_S;
        // The highest power of an hour ago says nothing about the steps of an idle GPU.
        let step_w = self.power_max.min(2.0 * over.integrated_j / over.seen_s);
        if apart <= TOLERANCE * larger + STEP_S * step_w {
            match self.belief {
                Belief::Agrees(_) => {}
                // The counter was right from its first reading on: so a range and its parts have one energy.
                Belief::Untried => {
                    let more_j = self.untried.counted_j - self.untried.integrated_j + self.unseen_j;
                    self.from = self.mark(self.now() + more_j);
                }
                Belief::Refuted(_) => self.from = self.mark(self.now()),
            }
            self.belief = Belief::Agrees(apart / larger);
            if is_whole {
                self.agreed = self.from;
            }
        } else if is_whole {
            self.belief = Belief::Refuted(over);
            self.from = self.agreed;
        }
    }

    fn mark(&self, total_j: f64) -> EnergyMark {
        EnergyMark { total_j, integrated_j: self.integrated() }
    }

    fn now(&self) -> f64 {
        self.from.total_j + self.integrated() - self.from.integrated_j
    }

    /// A row, or rows that were put together, are whole: from here on the total does not fall.
    pub(crate) fn begin_row(&mut self) {
        self.total = self.joules();
    }
}

#[cfg(test)]
mod tests;
