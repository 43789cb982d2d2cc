//! Energy used by a GPU, and its busy and throttled time, since it was first seen.

use gpuvitals_core::batch::{MetricColumn, Value};
use gpuvitals_core::catalogue::gpu_metrics;
use gpuvitals_core::energy::{Energy, EnergyColumns, EnergySource};
use gpuvitals_core::integral::{Blanks, Integral, Pace, RunningTotal};
use gpuvitals_core::number::float;
use gpuvitals_core::throttle::{Residency, ThrottleColumns};
use gpuvitals_core::{Batch, MetricId};

use crate::values::number;

pub(crate) const ENERGY: MetricId = MetricId::of("energy_mj");
const BUSY: MetricId = MetricId::of("utilization_pct");
const BY_POWER: MetricId = MetricId::of("throttled_power_ns");
const BY_HEAT: MetricId = MetricId::of("throttled_thermal_ns");

/// Family of the driver's throttled times, and so of ours.
pub(crate) const THROTTLED_FAMILY: &str = "gpu_throttled_seconds_total";

/// A total of a GPU.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Total {
    /// Energy in joules.
    Energy,
    /// Seconds of full utilisation.
    Busy,
    /// Seconds throttled for any reason.
    Throttled,
    /// Seconds under the reason of a column.
    ThrottledBy(MetricId),
    /// Time that was not observed, s.
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

impl Meters {
    /// Of a GPU whose rows are usually so far apart.
    pub(crate) fn new(interval_ns: i64) -> Self {
        let times = gpu_metrics().filter(|(_, metric)| metric.prometheus == THROTTLED_FAMILY);
        Self {
            energy: Energy::default(),
            busy: Integral::default(),
            throttled: Integral::default(),
            reasons: times.map(|(id, _)| (id, RunningTotal::default())).collect(),
            residency: Residency::default(),
            row_ns: None,
            pace: Pace::new(interval_ns),
            gap_ns: 0,
            is_lost: false,
        }
    }

    /// Takes these rows of a batch, over the monotonic clock if they have it.
    pub(crate) fn take(&mut self, batch: &Batch, rows: &[usize]) {
        let times = batch.monotonic().unwrap_or_else(|| batch.timestamps());
        let columns = MeterColumns::of(batch);
        let counted: Vec<_> = self.reasons.iter().map(|(id, _)| batch.metric(*id)).collect();
        for &row in rows {
            let Some(&time_ns) = times.get(row) else { continue };
            if columns.blanks.has(row) {
                self.lose();
                continue;
            }
            let gap_max_ns = self.passes(time_ns);
            for ((_, meter), column) in self.reasons.iter_mut().zip(&counted) {
                if let Some(ns) = number(*column, row) {
                    meter.read(time_ns, ns / 1e9, gap_max_ns);
                }
            }
            self.energy.row(&columns.energy, row, time_ns, gap_max_ns);
            if let Some(percent) = columns.busy.and_then(|column| column.value(row)).map(Value::as_decimal) {
                self.busy.state(time_ns, (percent / 100.0).clamp(0.0, 1.0), gap_max_ns);
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
            Total::Gap => self.row_ns.map(|_| float(self.gap_ns) / 1e9),
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

    fn hold(&mut self, columns: &MeterColumns<'_>, row: usize, time_ns: i64, gap_max_ns: i64) {
        let Some(held) = columns.throttle.at(row, &mut self.residency) else { return };
        let add = if held.is_share { Integral::mean } else { Integral::state };
        add(&mut self.throttled, time_ns, held.any, gap_max_ns);
        let add = if held.is_share { RunningTotal::mean } else { RunningTotal::state };
        for (id, meter) in &mut self.reasons {
            let share = match *id {
                BY_POWER => held.power,
                BY_HEAT => held.heat,
                _ => None,
            };
            if let Some(share) = share {
                add(meter, time_ns, share, gap_max_ns);
            }
        }
    }
}

struct MeterColumns<'a> {
    blanks: Blanks<'a>,
    energy: EnergyColumns<'a>,
    busy: Option<MetricColumn<'a>>,
    throttle: ThrottleColumns<'a>,
}

impl<'a> MeterColumns<'a> {
    fn of(batch: &'a Batch) -> Self {
        Self {
            blanks: Blanks::of(batch),
            energy: EnergyColumns::of(batch),
            busy: batch.metric(BUSY),
            throttle: ThrottleColumns::of(batch.records()),
        }
    }
}
