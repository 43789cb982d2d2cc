//! Whether a limit holds the clocks down: by the driver's bits, or as a share of time if the firmware counts it. From
//! MI300 on an AMD GPU reports no state but the number of its steps under each limit.

use arrow_array::RecordBatch;

use crate::batch::{MetricColumn, Value, metric_of};
use crate::number::float;
use crate::{Batch, MetricId};

/// All steps in which the firmware looked for a limit.
pub const STEPS: MetricId = MetricId::of("throttle_sample_count");
/// Those at the power limit.
pub const STEPS_AT_POWER_LIMIT: MetricId = MetricId::of("throttle_ppt_count");
/// Those at a thermal limit.
pub const STEPS_OF_HEAT: [MetricId; 4] = [
    MetricId::of("throttle_prochot_count"),
    MetricId::of("throttle_socket_thermal_count"),
    MetricId::of("throttle_vr_thermal_count"),
    MetricId::of("throttle_hbm_thermal_count"),
];
/// Steps at the power limit, then those at a thermal limit.
const UNDER: [MetricId; 5] = {
    let [prochot, socket, regulator, memory] = STEPS_OF_HEAT;
    [STEPS_AT_POWER_LIMIT, prochot, socket, regulator, memory]
};
/// The counters have 32 bits and wrap.
const WRAP: i64 = 1 << 32;

/// The columns of the counters, looked up once a batch.
#[derive(Debug)]
pub struct StepColumns<'a> {
    steps: Option<MetricColumn<'a>>,
    under: [Option<MetricColumn<'a>>; UNDER.len()],
}

/// The counters at one instant.
#[derive(Debug, Clone, Copy)]
pub struct Steps {
    steps: i64,
    under: [Option<i64>; UNDER.len()],
}

/// Shares of the time since the reading before, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shares {
    /// At the power limit.
    pub power: f64,
    /// At a thermal limit: the longest of them.
    pub heat: f64,
}

/// Shares from successive readings of one GPU's counters.
#[derive(Debug, Clone, Default)]
pub struct Residency {
    before: Option<Steps>,
}

impl<'a> StepColumns<'a> {
    /// The columns of a batch.
    pub fn of(batch: &'a Batch) -> Self {
        Self::of_records(batch.records())
    }

    fn of_records(records: &'a RecordBatch) -> Self {
        Self { steps: metric_of(records, STEPS), under: UNDER.map(|id| metric_of(records, id)) }
    }

    /// The counters of a row; none if it lacks the steps or any limit.
    pub fn at(&self, row: usize) -> Option<Steps> {
        let under = self.under.map(|column| whole(column, row));
        let steps = whole(self.steps, row)?;
        under.iter().any(Option::is_some).then_some(Steps { steps, under })
    }
}

impl Shares {
    /// Under any limit. Several limits may apply at the same time, so the longest is a lower bound.
    pub fn any(self) -> f64 {
        self.power.max(self.heat)
    }
}

impl Residency {
    /// Whether there was a reading: other throttling columns are derived from these counters and contain
    /// less.
    pub fn is_told(&self) -> bool {
        self.before.is_some()
    }

    /// Takes a reading. The first has no time before it, so its shares are 0; none while the counters do not
    /// move, and after they restarted.
    pub fn read(&mut self, now: Steps) -> Option<Shares> {
        let Some(before) = self.before else {
            self.before = Some(now);
            return Some(Shares { power: 0.0, heat: 0.0 });
        };
        let steps = risen(now.steps, before.steps);
        if steps == 0 {
            return None;
        }
        self.before = Some(now);
        let mut shares = [0.0_f64; UNDER.len()];
        for ((share, now), before) in shares.iter_mut().zip(now.under).zip(before.under) {
            if let (Some(now), Some(before)) = (now, before) {
                let under = risen(now, before);
                // More steps under a limit than in total.
                if under > steps || steps > WRAP / 2 {
                    return None;
                }
                *share = float(under) / float(steps);
            }
        }
        let [power, heat @ ..] = shares;
        Some(Shares { power, heat: heat.into_iter().fold(0.0, f64::max) })
    }
}

const THROTTLED: MetricId = MetricId::of("throttled");
/// NVIDIA's clock event reasons, as bits.
pub const REASONS: MetricId = MetricId::of("throttle_reasons");
/// AMD's throttle status, as bits.
pub const STATUS: MetricId = MetricId::of("throttle_status");
/// NVIDIA's clock event reasons: software power cap.
const REASONS_POWER: i64 = 0x4;
/// Power brake of the chassis.
const REASONS_BRAKE: i64 = 0x80;
/// Software and hardware thermal slowdown.
const REASONS_HEAT: i64 = 0x20 | 0x40;
/// Hardware slowdown, which may be either.
const REASONS_HARDWARE: i64 = 0x8;
/// AMD's throttle status: limits of power and current.
const STATUS_POWER: i64 = 0xffff_ffff;
/// Limits of temperature.
const STATUS_HEAT: i64 = 0xffff << 32;

/// The limits that bits name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitBits {
    /// The limit of power or current.
    pub power: bool,
    /// The power brake of the chassis.
    pub brake: bool,
    /// A limit of temperature.
    pub heat: bool,
}

impl LimitBits {
    /// Those of [`REASONS`].
    pub fn of_reasons(bits: i64) -> Self {
        let has = |mask| bits & mask != 0;
        Self { power: has(REASONS_POWER), brake: has(REASONS_BRAKE), heat: has(REASONS_HEAT) }
    }

    /// Those of [`STATUS`].
    pub fn of_status(bits: i64) -> Self {
        Self { power: bits & STATUS_POWER != 0, brake: false, heat: bits & STATUS_HEAT != 0 }
    }
}

/// How far limits hold the clocks down, 0 to 1: a state has 0 or 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throttling {
    /// By a limit of power; none if the driver does not say which limit it is.
    pub power: Option<f64>,
    /// By a limit of temperature; none as well.
    pub heat: Option<f64>,
    /// By the hardware's own slowdown or the power brake of the chassis; none as well.
    pub hardware: Option<f64>,
    /// By any limit.
    pub any: f64,
    /// Whether these are shares of the time since the reading before. A state lasts until the next one.
    pub is_share: bool,
}

impl Throttling {
    /// The parts of the throttled time under each group of limits, 0 to 1. Several may have been at once.
    pub fn limits(&self) -> ByLimit {
        let told = [self.power, self.heat, self.hardware].map(|share| share.unwrap_or(0.0));
        if self.any <= 0.0 {
            return ByLimit::default();
        }
        let [power, heat, hardware] = told.map(|share| (share / self.any).clamp(0.0, 1.0));
        let other = if told.iter().all(|share| *share <= 0.0) { 1.0 } else { 0.0 };
        ByLimit([power, heat, hardware, other])
    }
}

/// Something of each group of limits that hold the clocks down: power, heat, the hardware, and those that are not known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ByLimit(pub [f64; 4]);

impl ByLimit {
    /// The sums of both, limit by limit.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let mut sum = self;
        sum.0.iter_mut().zip(other.0).for_each(|(one, other)| *one += other);
        sum
    }

    /// So much of it.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self(self.0.map(|one| one * factor))
    }
}

/// The columns that say whether a GPU is throttled, looked up once a batch.
#[derive(Debug)]
pub struct ThrottleColumns<'a> {
    throttled: Option<MetricColumn<'a>>,
    reasons: Option<MetricColumn<'a>>,
    status: Option<MetricColumn<'a>>,
    steps: StepColumns<'a>,
}

impl<'a> ThrottleColumns<'a> {
    /// Metrics that they hold.
    pub const METRICS: [MetricId; 9] = {
        let [power, prochot, socket, regulator, memory] = UNDER;
        [THROTTLED, REASONS, STATUS, STEPS, power, prochot, socket, regulator, memory]
    };

    /// The columns of rows of `gpu_events`.
    pub fn of(records: &'a RecordBatch) -> Self {
        Self {
            throttled: metric_of(records, THROTTLED),
            reasons: metric_of(records, REASONS),
            status: metric_of(records, STATUS),
            steps: StepColumns::of_records(records),
        }
    }

    /// A row of a GPU whose earlier counters these are; none if it says nothing new.
    pub fn at(&self, row: usize, counted: &mut Residency) -> Option<Throttling> {
        if let Some(steps) = self.steps.at(row) {
            let Shares { power, heat } = counted.read(steps)?;
            let any = power.max(heat);
            let (power, heat, hardware) = (Some(power), Some(heat), Some(0.0));
            return Some(Throttling { power, heat, hardware, any, is_share: true });
        }
        if counted.is_told() {
            return None;
        }
        let state = |held: bool| f64::from(u8::from(held));
        let told = self.throttled.and_then(|column| column.value(row)).map(Value::as_decimal);
        let (reasons, status) = (whole(self.reasons, row), whole(self.status, row));
        if reasons.or(status).is_none() {
            let (power, heat, hardware) = (None, None, None);
            return told.map(|any| Throttling { power, heat, hardware, any, is_share: false });
        }
        let reasons = reasons.unwrap_or(0);
        let (of_reasons, of_status) =
            (LimitBits::of_reasons(reasons), LimitBits::of_status(status.unwrap_or(0)));
        let power = of_reasons.power || of_reasons.brake || of_status.power;
        let heat = of_reasons.heat || of_status.heat;
        let hardware = of_reasons.brake || reasons & REASONS_HARDWARE != 0;
        let any = told.unwrap_or_else(|| state(power || heat || hardware));
        let [power, heat, hardware] = [power, heat, hardware].map(|held| Some(state(held)));
        Some(Throttling { power, heat, hardware, any, is_share: false })
    }
}

/// The whole number of a row.
pub fn whole(column: Option<MetricColumn<'_>>, row: usize) -> Option<i64> {
    match column?.value(row)? {
        Value::Int(value) => Some(value),
        Value::Float32(_) | Value::Float(_) => None,
    }
}

fn risen(now: i64, before: i64) -> i64 {
    now.saturating_sub(before).rem_euclid(WRAP)
}
