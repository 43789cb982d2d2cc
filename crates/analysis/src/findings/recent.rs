//! The last minutes of every GPU, kept from values by the minute so that each minute is read once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use gpuvitals_core::history::{BucketQuery, Buckets, Cell, GpuState, GroupColumn, POINTS_MAX};
use gpuvitals_core::time::MINUTE_NS;
use gpuvitals_core::usage::IDLE_BELOW_PCT;
use gpuvitals_core::{IdentityColumn, MetricId, Table};

use super::threshold::{IDLE_AFTER_NS, LINK_MINUTES, LOADED_FROM_PCT, LOADED_MINUTES_MIN, WINDOW_MINUTES};
use crate::cells::GpuCells;
use gpuvitals_core::integral::seconds;
use gpuvitals_core::throttle::{STEPS, STEPS_AT_POWER_LIMIT, STEPS_OF_HEAT};

/// A minute is read when it has been over for so long: rows are under way for some seconds.
pub(crate) const SETTLE_NS: i64 = 10_000_000_000;
/// Minutes without a value after which a GPU is forgotten, and its idleness is not known any more.
const FORGET_NS: i64 = 15 * MINUTE_NS;
/// How far back idleness is looked for at the start.
const IDLE_BACK_NS: i64 = IDLE_AFTER_NS + 5 * MINUTE_NS;

/// Columns that name the holder of a GPU.
const HOLDER: [IdentityColumn; 3] = [IdentityColumn::Namespace, IdentityColumn::Pod, IdentityColumn::Job];
const UTILIZATION: MetricId = MetricId::of("utilization_pct");
const CLOCKS: [MetricId; 2] = [MetricId::of("gpu_clock_mhz"), MetricId::of("sm_clock_mhz")];
const POWERS: [MetricId; 2] = [MetricId::of("power_w"), MetricId::of("power_average_w")];
const TEMPERATURE: MetricId = MetricId::of("temperature_c");
const FAN: MetricId = MetricId::of("fan_speed_pct");
const PCIE_WIDTH: MetricId = MetricId::of("pcie_width");
const PCIE_GENERATION: MetricId = MetricId::of("pcie_gen");
const LINKS_UP: MetricId = MetricId::of("interconnect_links_up");
/// Nanoseconds under a limit.
const TIME_OF_HEAT: [MetricId; 3] = [
    MetricId::of("throttled_thermal_ns"),
    MetricId::of("throttled_sw_thermal_ns"),
    MetricId::of("throttled_hw_thermal_ns"),
];
const TIME_OF_POWER: [MetricId; 2] =
    [MetricId::of("throttled_power_ns"), MetricId::of("throttled_sw_power_cap_ns")];
const TIME_OF_BRAKE: [MetricId; 1] = [MetricId::of("throttled_hw_power_brake_ns")];

/// The last minutes of GPUs, by key.
#[derive(Debug, Default)]
pub struct Recent {
    gpus: HashMap<Arc<str>, RecentGpu>,
    /// End of the minutes read so far.
    end_ns: Option<i64>,
    /// All minutes of a range are kept, whoever held the GPU.
    of_range: bool,
}

/// A GPU over its last minutes. What was not measured is absent. "Loaded" minutes are those of its present holder with a mean
/// utilisation of [`LOADED_FROM_PCT`] or more.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GpuWindow {
    /// Minutes with any value.
    pub minutes: usize,
    /// Minutes under the present holder.
    pub held_minutes: usize,
    /// Minutes under load.
    pub loaded_minutes: usize,
    /// Mean utilisation under its present holder, %.
    pub utilization_pct: Option<f64>,
    /// Mean power under its present holder, W.
    pub power_w: Option<f64>,
    /// Mean clock of the loaded minutes, MHz.
    pub loaded_clock_mhz: Option<f64>,
    /// Mean power of the loaded minutes, W.
    pub loaded_power_w: Option<f64>,
    /// Highest temperature, °C.
    pub temperature_max_c: Option<f64>,
    /// Mean and highest speed of the fan, %.
    pub fan_pct: Option<(f64, f64)>,
    /// Share of the time that heat held the clock down, 0 to 1.
    pub heat_share: Option<f64>,
    /// Share at the power limit.
    pub power_share: Option<f64>,
    /// Share under the power brake of the chassis.
    pub brake_share: Option<f64>,
    /// Widest PCIe link of the newest three loaded minutes, lanes.
    pub pcie_width: Option<f64>,
    /// Highest PCIe generation of them.
    pub pcie_generation: Option<f64>,
    /// Most links between GPUs that were up in the newest three minutes.
    pub links_up: Option<f64>,
    /// Since when it has done nothing for one holder, nanoseconds UTC since 1970; none: it works.
    pub idle_since_ns: Option<i64>,
}

#[derive(Debug, Default)]
struct RecentGpu {
    minutes: VecDeque<Minute>,
    counters: HashMap<MetricId, (i64, f64)>,
    holder: Vec<Option<Arc<str>>>,
    /// From this minute on all values are of this holder.
    held_from_ns: i64,
    idle_since_ns: Option<i64>,
    last_ns: i64,
    window: GpuWindow,
}

#[derive(Debug, Clone, Copy, Default)]
struct Minute {
    start_ns: i64,
    utilization: Option<f64>,
    clock: Option<f64>,
    power: Option<f64>,
    temperature: Option<f64>,
    fan: Option<(f64, f64)>,
    heat: Option<f64>,
    at_power_limit: Option<f64>,
    brake: Option<f64>,
    pcie_width: Option<f64>,
    pcie_generation: Option<f64>,
    links_up: Option<f64>,
}

/// Metrics of a minute: of all but idleness.
fn metrics() -> Vec<MetricId> {
    let single =
        [UTILIZATION, TEMPERATURE, FAN, PCIE_WIDTH, PCIE_GENERATION, LINKS_UP, STEPS, STEPS_AT_POWER_LIMIT];
    let several: [&[MetricId]; 6] =
        [&CLOCKS, &POWERS, &STEPS_OF_HEAT, &TIME_OF_HEAT, &TIME_OF_POWER, &TIME_OF_BRAKE];
    single.into_iter().chain(several.into_iter().flatten().copied()).collect()
}

fn query(metrics: Vec<MetricId>, start_ns: i64, end_ns: i64) -> BucketQuery {
    BucketQuery {
        group_by: [GroupColumn::Gpu].into_iter().chain(HOLDER.map(GroupColumn::Identity)).collect(),
        ..BucketQuery::of(Table::GpuEvents, metrics, start_ns, end_ns, MINUTE_NS)
    }
}

impl Recent {
    /// The minutes of a range, from the answer to [`Recent::range_query`], whoever held the GPUs.
    pub fn of_range(buckets: &Buckets) -> Self {
        let mut recent = Self { of_range: true, ..Self::default() };
        recent.take(buckets);
        recent
    }

    /// What to ask the history for some GPUs in a range of time: whole minutes, and the one before, with which counters begin. An end
    /// on a whole minute ends the minute before it.
    pub fn range_query(gpus: Vec<Arc<str>>, start_ns: i64, end_ns: i64) -> BucketQuery {
        let end_ns = end_ns.saturating_sub(1).max(start_ns);
        let start_ns = start_ns.div_euclid(MINUTE_NS) * MINUTE_NS - MINUTE_NS;
        BucketQuery { gpus, ..query(metrics(), start_ns, end_ns) }
    }

    /// What to ask the history for next, for [`Recent::take`]; none: it is up to date. `gpus` is the size of the fleet, by which a
    /// question is kept small.
    pub fn next_query(&self, now_ns: i64, gpus: usize) -> Option<BucketQuery> {
        let end_ns = (now_ns - SETTLE_NS).div_euclid(MINUTE_NS) * MINUTE_NS;
        let window_ns = i64::try_from(WINDOW_MINUTES).unwrap_or(0) * MINUTE_NS;
        let (whole_from, idle_from) = (end_ns - window_ns, end_ns - IDLE_BACK_NS);
        let start_ns = self.end_ns.unwrap_or(idle_from).max(idle_from);
        if start_ns >= end_ns {
            return None;
        }
        let is_whole = start_ns >= whole_from;
        let metrics = if is_whole { metrics() } else { vec![UTILIZATION] };
        let points = metrics.len().saturating_mul(gpus.max(1)) as u64;
        // Far less than an answer may have: a GPU that changes hands is in it more than once, and what an answer once took stays the
        // process's.
        let minutes = (POINTS_MAX / 8 / points).clamp(1, 60);
        let most_ns = i64::try_from(minutes).unwrap_or(1) * MINUTE_NS;
        let end_ns = if is_whole { end_ns } else { whole_from }.min(start_ns + most_ns);
        Some(query(metrics, start_ns, end_ns - 1))
    }

    /// Takes the answer to [`Recent::next_query`].
    pub fn take(&mut self, buckets: &Buckets) {
        let steps = buckets.steps();
        for (key, cells) in GpuCells::by_gpu(buckets) {
            if !self.gpus.contains_key(key) {
                self.gpus.insert(Arc::clone(key), RecentGpu::default());
            }
            let Some(gpu) = self.gpus.get_mut(key) else { continue };
            for (step, start_ns) in steps.times().enumerate() {
                gpu.take(&cells, step, start_ns);
            }
            gpu.window = gpu.window();
        }
        let end_ns = steps.time(steps.count);
        self.end_ns = Some(end_ns);
        if self.of_range {
            for gpu in self.gpus.values_mut() {
                // The minute before the range is there for the counters.
                gpu.minutes.retain(|minute| minute.start_ns > steps.origin_ns);
                gpu.held_from_ns = i64::MIN;
                gpu.window = gpu.window();
            }
            return;
        }
        self.gpus.retain(|_, gpu| end_ns - gpu.last_ns < FORGET_NS);
        for gpu in self.gpus.values_mut() {
            let from_ns = end_ns - i64::try_from(WINDOW_MINUTES).unwrap_or(0) * MINUTE_NS;
            let before = gpu.minutes.len();
            while gpu.minutes.front().is_some_and(|minute| minute.start_ns < from_ns) {
                gpu.minutes.pop_front();
            }
            if gpu.minutes.len() < before {
                gpu.window = gpu.window();
            }
        }
    }

    /// The last minutes of a GPU. If it changed hands since, nothing is known under its present holder.
    pub fn window(&self, gpu: &GpuState) -> Option<GpuWindow> {
        let RecentGpu { window, holder, .. } = self.gpus.get(&gpu.key)?;
        if self.of_range {
            return Some(*window);
        }
        let is_of_holder =
            holder.iter().map(Option::as_deref).eq(HOLDER.map(|column| gpu.identity.get(column)));
        Some(if is_of_holder { *window } else { window.without_holder() })
    }

    /// End of the minutes read so far, nanoseconds UTC since 1970.
    pub fn end_ns(&self) -> Option<i64> {
        self.end_ns
    }
}

impl GpuWindow {
    /// Mean clock under load, MHz, if it was under load for long enough.
    pub(super) fn steady_clock(&self) -> Option<f64> {
        self.loaded_clock_mhz.filter(|_| self.loaded_minutes >= LOADED_MINUTES_MIN)
    }

    /// What is known whoever holds it.
    fn without_holder(self) -> Self {
        Self {
            held_minutes: 0,
            loaded_minutes: 0,
            utilization_pct: None,
            power_w: None,
            loaded_clock_mhz: None,
            loaded_power_w: None,
            pcie_width: None,
            pcie_generation: None,
            idle_since_ns: None,
            ..self
        }
    }
}

impl GpuCells<'_> {
    /// The holder at the end of a step.
    fn holder(&self, step: usize) -> Option<&[Option<Arc<str>>]> {
        let mut newest: Option<(i64, usize)> = None;
        for measured in self.buckets.metrics() {
            for &group in &self.groups {
                let Some(cell) = measured.cells.get(self.buckets.place(group, step)) else { continue };
                if cell.count > 0 && newest.is_none_or(|(at_ns, _)| cell.last_ns > at_ns) {
                    newest = Some((cell.last_ns, group));
                }
            }
        }
        self.buckets.groups().get(newest?.1).and_then(|name| name.get(1..))
    }
}

#[expect(clippy::cast_precision_loss, reason = "no minute has 2^53 values")]
fn mean(cell: Cell) -> f64 {
    cell.sum / cell.count as f64
}

impl RecentGpu {
    fn take(&mut self, cells: &GpuCells<'_>, step: usize, start_ns: i64) {
        let Some(holder) = cells.holder(step) else { return };
        let busiest = cells.whole(UTILIZATION, step);
        if self.holder != holder {
            self.holder = holder.to_vec();
            self.held_from_ns = start_ns + MINUTE_NS;
            self.idle_since_ns = None;
        }
        let is_idle = busiest.is_some_and(|cell| cell.max < IDLE_BELOW_PCT);
        self.idle_since_ns = is_idle.then(|| self.idle_since_ns.unwrap_or(start_ns));
        self.last_ns = self.last_ns.max(start_ns + MINUTE_NS);
        let highest = |metric| cells.whole(metric, step).map(|cell| cell.max);
        let minute = Minute {
            start_ns,
            utilization: busiest.map(mean),
            clock: cells.first(&CLOCKS, step).map(mean),
            power: cells.first(&POWERS, step).map(mean),
            temperature: highest(TEMPERATURE),
            fan: cells.whole(FAN, step).map(|cell| (mean(cell), cell.max)),
            heat: self.share(cells, step, &TIME_OF_HEAT, &STEPS_OF_HEAT),
            at_power_limit: self.share(cells, step, &TIME_OF_POWER, &[STEPS_AT_POWER_LIMIT]),
            brake: self.share(cells, step, &TIME_OF_BRAKE, &[]),
            pcie_width: highest(PCIE_WIDTH),
            pcie_generation: highest(PCIE_GENERATION),
            links_up: highest(LINKS_UP),
        };
        self.rise(cells, step, STEPS, true);
        self.minutes.push_back(minute);
    }

    /// Share of the time since the readings before under any of these limits, 0 to 1. Several may hold at once: the longest
    /// is a lower bound.
    fn share(
        &mut self,
        cells: &GpuCells<'_>,
        step: usize,
        times: &[MetricId],
        steps: &[MetricId],
    ) -> Option<f64> {
        let of_time = |(rise, span_ns): (f64, i64)| rise / 1e9 / seconds(span_ns);
        let times = times.iter().filter_map(|metric| self.rise(cells, step, *metric, true).map(of_time));
        let longest = times.collect::<Vec<_>>().into_iter().reduce(f64::max);
        let all = self.rise(cells, step, STEPS, false).map(|(rise, _)| rise).filter(|all| *all > 0.0);
        let counted: Vec<f64> =
            steps.iter().filter_map(|metric| Some(self.rise(cells, step, *metric, true)?.0 / all?)).collect();
        counted.into_iter().chain(longest).reduce(f64::max).map(|share| share.clamp(0.0, 1.0))
    }

    /// By how much a counter rose since the minute before, and in how many nanoseconds; none after it fell, and at its first
    /// reading.
    fn rise(
        &mut self,
        cells: &GpuCells<'_>,
        step: usize,
        metric: MetricId,
        keep: bool,
    ) -> Option<(f64, i64)> {
        let cell = cells.whole(metric, step)?;
        let now = (cell.last_ns, cell.last);
        let before =
            if keep { self.counters.insert(metric, now) } else { self.counters.get(&metric).copied() };
        let (before_ns, before) = before?;
        let (span_ns, rise) = (now.0 - before_ns, now.1 - before);
        (span_ns > 0 && rise >= 0.0).then_some((rise, span_ns))
    }

    fn window(&self) -> GpuWindow {
        let all = || self.minutes.iter();
        let held = || all().filter(|minute| minute.start_ns >= self.held_from_ns);
        let loaded = || held().filter(|minute| minute.utilization.is_some_and(|pct| pct >= LOADED_FROM_PCT));
        let mean = |values: Vec<f64>| {
            #[expect(clippy::cast_precision_loss, reason = "some minutes")]
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let highest = |values: Vec<f64>| values.into_iter().reduce(f64::max);
        let newest = |values: Vec<f64>| values.into_iter().rev().take(LINK_MINUTES).collect::<Vec<_>>();
        let fans: Vec<(f64, f64)> = all().filter_map(|minute| minute.fan).collect();
        let fan_mean = mean(fans.iter().map(|(mean, _)| *mean).collect());
        GpuWindow {
            minutes: self.minutes.len(),
            held_minutes: held().count(),
            loaded_minutes: loaded().count(),
            utilization_pct: mean(held().filter_map(|minute| minute.utilization).collect()),
            power_w: mean(held().filter_map(|minute| minute.power).collect()),
            loaded_clock_mhz: mean(loaded().filter_map(|minute| minute.clock).collect()),
            loaded_power_w: mean(loaded().filter_map(|minute| minute.power).collect()),
            temperature_max_c: highest(all().filter_map(|minute| minute.temperature).collect()),
            fan_pct: fan_mean.zip(highest(fans.iter().map(|(_, highest)| *highest).collect())),
            heat_share: mean(all().filter_map(|minute| minute.heat).collect()),
            power_share: mean(all().filter_map(|minute| minute.at_power_limit).collect()),
            brake_share: mean(all().filter_map(|minute| minute.brake).collect()),
            pcie_width: highest(newest(loaded().filter_map(|minute| minute.pcie_width).collect())),
            pcie_generation: highest(newest(loaded().filter_map(|minute| minute.pcie_generation).collect())),
            links_up: highest(newest(all().filter_map(|minute| minute.links_up).collect())),
            idle_since_ns: self.idle_since_ns,
        }
    }
}
