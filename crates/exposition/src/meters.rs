//! Energy used by a GPU, and its busy and throttled time, since it was first seen.

use gpuvitals_analysis::energy::{Energy, EnergyColumns, EnergySource};
use gpuvitals_analysis::integral::{Blanks, Integral, Pace, RunningTotal};
use gpuvitals_analysis::throttle::{Residency, StepColumns};
use gpuvitals_core::batch::MetricColumn;
use gpuvitals_core::catalogue::gpu_metrics;
use gpuvitals_core::{Batch, MetricId};

use crate::values::{bits, number};

pub(crate) const ENERGY: MetricId = MetricId::of("energy_j");
const BUSY: MetricId = MetricId::of("utilization_pct");
const THROTTLED: MetricId = MetricId::of("throttled");
const REASONS: MetricId = MetricId::of("throttle_reasons");
const STATUS: MetricId = MetricId::of("throttle_status");
const BY_POWER: MetricId = MetricId::of("throttled_power_ns");
const BY_HEAT: MetricId = MetricId::of("throttled_thermal_ns");

/// NVIDIA's clock event reasons: software power cap, power brake.
const REASONS_POWER: i64 = 0x4 | 0x80;
/// Software and hardware thermal slowdown.
const REASONS_HEAT: i64 = 0x20 | 0x40;
/// Hardware slowdown, which may be either.
const REASONS_HARDWARE: i64 = 0x8;
/// AMD's throttle status: limits of power and current.
const STATUS_POWER: i64 = 0xffff_ffff;
/// Limits of temperature.
const STATUS_HEAT: i64 = 0xffff << 32;

/// Family of the driver's throttled times, and so of ours.
pub(crate) const THROTTLED_FAMILY: &str = "gpu_throttled_seconds_total";

/// A total of a GPU.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Total {
    /// Joule.
    Energy,
    /// Seconds of full utilisation.
    Busy,
    /// Seconds throttled for any reason.
    Throttled,
    /// Seconds under the reason of a column.
    ThrottledBy(MetricId),
    /// Unobserved seconds.
    Gap,
}

/// The totals of one GPU.
#[derive(Debug)]
pub(crate) struct Meters {
    energy: Energy,
    busy: Integral,
    throttled: Integral,
    reasons: Vec<(MetricId, RunningTotal)>,
    residency: Residency,
    row_ns: Option<i64>,
    pace: Pace,
    gap_ns: i64,
    /// Whether it has reported nothing since the last row.
    is_lost: bool,
}

/// Reasons that hold the clocks down: 1 or 0 for a state, shares if they are counted.
#[derive(Debug, Clone, Copy)]
struct Held {
    power: f64,
    heat: f64,
    any: f64,
}

impl Meters {
    pub(crate) fn new() -> Self {
        let times = gpu_metrics().filter(|(_, metric)| metric.prometheus == THROTTLED_FAMILY);
        Self {
            energy: Energy::default(),
            busy: Integral::default(),
            throttled: Integral::default(),
            reasons: times.map(|(id, _)| (id, RunningTotal::default())).collect(),
            residency: Residency::default(),
            row_ns: None,
            pace: Pace::new(0),
            gap_ns: 0,
            is_lost: false,
        }
    }

    /// Takes these rows of a batch, over the monotonic clock if they have it.
    pub(crate) fn take(&mut self, batch: &Batch, rows: &[usize]) {
        let times = batch.monotonic().unwrap_or_else(|| batch.timestamps());
        let columns = Columns::of(batch);
        let counted: Vec<_> = self.reasons.iter().map(|(id, _)| batch.metric(*id)).collect();
        for &row in rows {
            let Some(&time_ns) = times.get(row) else { continue };
            if columns.blanks.has(row) {
                self.lose();
                continue;
            }
            let gap_max_ns = self.passes(time_ns);
            let shown = |column| number(column, row);
            for ((_, meter), column) in self.reasons.iter_mut().zip(&counted) {
                if let Some(ns) = shown(*column) {
                    meter.read(time_ns, ns / 1e9, gap_max_ns);
                }
            }
            self.energy.row(&columns.energy, row, time_ns, gap_max_ns);
            if let Some(percent) = shown(columns.busy) {
                self.busy.sample(time_ns, (percent / 100.0).clamp(0.0, 1.0), gap_max_ns);
            }
            self.hold(&columns, row, time_ns, gap_max_ns);
        }
    }

    /// A total so far; none if it was never measured.
    pub(crate) fn total(&self, total: Total) -> Option<f64> {
        match total {
            Total::Energy => self.energy.total().map(|total| total.joules),
            Total::Busy => self.busy.total(),
            Total::Throttled => self.throttled.total(),
            Total::ThrottledBy(id) => self.reasons.iter().find(|(reason, _)| *reason == id)?.1.total(),
            #[expect(
                clippy::cast_precision_loss,
                reason = "gaps are far below 2^52 ns apart from years of them"
            )]
            Total::Gap => self.row_ns.map(|_| self.gap_ns as f64 / 1e9),
        }
    }

    /// The source of the energy.
    pub(crate) fn energy_source(&self) -> Option<EnergySource> {
        self.energy.total().map(|total| total.source)
    }

    /// It reports nothing from the last row to the next one.
    fn lose(&mut self) {
        self.is_lost = self.row_ns.is_some();
        self.energy.lose();
        self.busy.lose();
        self.throttled.lose();
        self.reasons.iter_mut().for_each(|(_, meter)| meter.lose());
    }

    /// Advances the time to this row. Returns the longest distance that is not a gap.
    fn passes(&mut self, time_ns: i64) -> i64 {
        let limit_ns = self.pace.limit_ns();
        let distance_ns = self.row_ns.map_or(0, |row_ns| time_ns.saturating_sub(row_ns));
        let was_lost = std::mem::take(&mut self.is_lost);
        if was_lost || distance_ns > limit_ns {
            self.gap_ns = self.gap_ns.saturating_add(distance_ns.max(0));
        }
        if !was_lost {
            self.pace.step(distance_ns);
        }
        if !(-limit_ns..0).contains(&distance_ns) {
            self.row_ns = Some(time_ns);
        }
        limit_ns
    }

    fn hold(&mut self, columns: &Columns<'_>, row: usize, time_ns: i64, gap_max_ns: i64) {
        if let Some(steps) = columns.steps.at(row) {
            if let Some(shares) = self.residency.read(steps) {
                let held = Held { power: shares.power, heat: shares.heat, any: shares.any() };
                self.throttled.mean(time_ns, held.any, gap_max_ns);
                self.by_reason(held, |meter, share| meter.mean(time_ns, share, gap_max_ns));
            }
            return;
        }
        if self.residency.is_told() {
            return;
        }
        let held = columns.state(row);
        if let Some(any) = number(columns.throttled, row).or(held.map(|held| held.any)) {
            self.throttled.sample(time_ns, any, gap_max_ns);
        }
        if let Some(held) = held {
            self.by_reason(held, |meter, share| meter.sample(time_ns, share, gap_max_ns));
        }
    }

    fn by_reason(&mut self, held: Held, add: impl Fn(&mut RunningTotal, f64)) {
        for (id, meter) in &mut self.reasons {
            match *id {
                BY_POWER => add(meter, held.power),
                BY_HEAT => add(meter, held.heat),
                _ => {}
            }
        }
    }
}

struct Columns<'a> {
    blanks: Blanks<'a>,
    energy: EnergyColumns<'a>,
    busy: Option<MetricColumn<'a>>,
    throttled: Option<MetricColumn<'a>>,
    reasons: Option<MetricColumn<'a>>,
    status: Option<MetricColumn<'a>>,
    steps: StepColumns<'a>,
}

impl<'a> Columns<'a> {
    fn of(batch: &'a Batch) -> Self {
        Self {
            blanks: Blanks::of(batch),
            energy: EnergyColumns::of(batch),
            busy: batch.metric(BUSY),
            throttled: batch.metric(THROTTLED),
            reasons: batch.metric(REASONS),
            status: batch.metric(STATUS),
            steps: StepColumns::of(batch),
        }
    }

    /// The reasons that hold the clocks down in this row, by the driver's bits.
    fn state(&self, row: usize) -> Option<Held> {
        let (reasons, status) = (bits(self.reasons, row), bits(self.status, row));
        reasons.or(status)?;
        let (reasons, status) = (reasons.unwrap_or(0), status.unwrap_or(0));
        let power = reasons & REASONS_POWER != 0 || status & STATUS_POWER != 0;
        let heat = reasons & REASONS_HEAT != 0 || status & STATUS_HEAT != 0;
        let any = power || heat || reasons & REASONS_HARDWARE != 0;
        let share = |held: bool| f64::from(u8::from(held));
        Some(Held { power: share(power), heat: share(heat), any: share(any) })
    }
}
