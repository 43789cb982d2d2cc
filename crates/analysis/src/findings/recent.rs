//! The last minutes of every GPU, kept from values by the minute so that each minute is read once.

mod for_less;
mod holders;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use gpuvitals_core::history::{Aggregate, BucketQuery, Buckets, Cell, GpuState, GroupColumn, POINTS_MAX};
use gpuvitals_core::integral::seconds;
use gpuvitals_core::number::float;
use gpuvitals_core::throttle::{LimitBits, REASONS, STATUS, STEPS, STEPS_AT_POWER_LIMIT, STEPS_OF_HEAT};
use gpuvitals_core::time::MINUTE_NS;
use gpuvitals_core::usage::IDLE_BELOW_PCT;
use gpuvitals_core::{IdentityColumn, MetricId, Table};

use super::boots::HostBoots;
use super::level::{ACTIVITIES, Activities, MinuteOfWork, WorkLevel};
use super::marked::RunMarks;
use super::ras::RasBlocks;
use super::repeats::RepeatedXids;
use super::rhythm::WorkRhythm;
use super::since::{Began, LOOK_BACK_NS, SETTLE_NS};
use super::threshold::{IDLE_AFTER_NS, LINK_MINUTES, LOADED_FROM_PCT, LOADED_MINUTES_MIN, WINDOW_MINUTES};
use super::told::AgentWords;
use crate::cells::GpuCells;

/// Minutes without a value after which a GPU is forgotten, and its idleness is not known any more.
const FORGET_NS: i64 = 15 * MINUTE_NS;
/// How far back the idleness of all GPUs, and their work, is looked for at the start; of those that are idle for so long it is then looked for further back.
const IDLE_BACK_NS: i64 = IDLE_AFTER_NS + 5 * MINUTE_NS;
/// Most GPUs whose idleness is looked for further back at once: a question about them has far fewer values than an answer may have.
const IDLE_GPUS_MAX: usize = 128;

/// Columns that name the holder of a GPU.
const HOLDER: [IdentityColumn; 3] = [IdentityColumn::Namespace, IdentityColumn::Pod, IdentityColumn::Job];
pub(super) const UTILIZATION: MetricId = MetricId::of("utilization_pct");
pub(super) const CLOCKS: [MetricId; 2] = [MetricId::of("gpu_clock_mhz"), MetricId::of("sm_clock_mhz")];
pub(crate) const POWERS: [MetricId; 2] = [MetricId::of("power_w"), MetricId::of("power_average_w")];
pub(super) const TEMPERATURE: MetricId = MetricId::of("temperature_c");
pub(super) const FAN: MetricId = MetricId::of("fan_speed_pct");
pub(super) const PCIE_WIDTH: MetricId = MetricId::of("pcie_width");
pub(super) const PCIE_GENERATION: MetricId = MetricId::of("pcie_gen");
pub(super) const LINKS_UP: MetricId = MetricId::of("interconnect_links_up");
/// Nanoseconds under a limit.
const TIME_OF_HEAT: [MetricId; 3] = [
    MetricId::of("throttled_thermal_ns"),
    MetricId::of("throttled_sw_thermal_ns"),
    MetricId::of("throttled_hw_thermal_ns"),
];
const TIME_OF_POWER: [MetricId; 2] =
    [MetricId::of("throttled_power_ns"), MetricId::of("throttled_sw_power_cap_ns")];
const TIME_OF_BRAKE: [MetricId; 1] = [MetricId::of("throttled_hw_power_brake_ns")];

/// A limit: how sources count it, and what its bits say.
struct ClockLimit {
    /// Nanoseconds under it.
    times: &'static [MetricId],
    /// Steps under it, beside [`STEPS`].
    steps: &'static [MetricId],
    is_set: fn(LimitBits) -> bool,
}

const HEAT: ClockLimit = ClockLimit { times: &TIME_OF_HEAT, steps: &STEPS_OF_HEAT, is_set: |bits| bits.heat };
const POWER: ClockLimit =
    ClockLimit { times: &TIME_OF_POWER, steps: &[STEPS_AT_POWER_LIMIT], is_set: |bits| bits.power };
const BRAKE: ClockLimit = ClockLimit { times: &TIME_OF_BRAKE, steps: &[], is_set: |bits| bits.brake };
/// What bits name.
type NamedBy = fn(i64) -> LimitBits;
/// Bits that name limits, and what they name.
const STATES: [(MetricId, NamedBy); 2] = [(REASONS, LimitBits::of_reasons), (STATUS, LimitBits::of_status)];

/// Under whom minutes of a GPU count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HolderScope {
    /// Under the present holder, in a range under the last one.
    Present,
    All,
}

/// The last minutes of GPUs, by key.
#[derive(Debug, Default)]
pub struct Recent {
    gpus: HashMap<Arc<str>, RecentGpu>,
    /// End of the minutes read so far.
    end_ns: Option<i64>,
    /// All minutes of a range are kept, under all holders.
    of_range: bool,
    /// Of a range: start of its first step, nanoseconds UTC since 1970.
    origin_ns: Option<i64>,
    /// The blocks with errors of AMD GPUs.
    pub ras: RasBlocks,
    /// XIDs that come again and again.
    pub xids: RepeatedXids,
    /// What agents themselves say.
    pub told: AgentWords,
    /// The last marks of recordings.
    pub marks: RunMarks,
    /// What hosts counted since their boot.
    pub boots: HostBoots,
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
    /// Since when it has done nothing for one holder; none: it works.
    pub idle_since: Option<Began>,
    /// Minutes in which several nodes sent its rows.
    pub two_nodes_minutes: usize,
    /// Its work for its present holder, but for minutes in which it said that it is busy and did far less.
    pub level: Option<WorkLevel>,
    /// How many minutes those were since its last one of work, and its mean power in them, W.
    pub busy_for_less: Option<(usize, f64)>,
    /// Its work and pauses for its present holder.
    pub rhythm: WorkRhythm,
}

#[derive(Debug, Default)]
struct RecentGpu {
    minutes: VecDeque<Minute>,
    counters: HashMap<MetricId, (i64, f64)>,
    holder: Vec<Option<Arc<str>>>,
    /// From this minute on all values are of this holder.
    held_from_ns: i64,
    /// Whether another held it before.
    changed_hands: bool,
    idle_since: Option<Began>,
    /// Whether its idleness was looked for as far back as it is.
    is_looked: bool,
    last_ns: i64,
    /// The nodes that sent rows in the newest minute in which several did.
    nodes: Vec<Arc<str>>,
    level: Option<WorkLevel>,
    rhythm: WorkRhythm,
    window: GpuWindow,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Minute {
    pub(super) start_ns: i64,
    /// Whether several nodes sent its values.
    pub(super) of_two_nodes: bool,
    pub(super) utilization: Option<f64>,
    pub(super) clock: Option<f64>,
    pub(super) power: Option<f64>,
    pub(super) temperature: Option<f64>,
    pub(super) fan: Option<(f64, f64)>,
    pub(super) heat: Option<f64>,
    at_power_limit: Option<f64>,
    pub(super) brake: Option<f64>,
    pub(super) pcie_width: Option<f64>,
    pub(super) pcie_generation: Option<f64>,
    pub(super) links_up: Option<f64>,
    activities: Activities,
}

impl Minute {
    /// What one row says. Shares of time are none: they lie between two rows, unless bits tell them.
    pub(super) fn of_row(value: impl Fn(MetricId) -> Option<f64>) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "bits")]
        let states =
            || STATES.into_iter().filter_map(|(metric, bits)| value(metric).map(|value| bits(value as i64)));
        let share = |is_set: fn(LimitBits) -> bool| {
            states().map(|bits| f64::from(u8::from(is_set(bits)))).reduce(f64::max)
        };
        let first = |metrics: &[MetricId]| metrics.iter().find_map(|metric| value(*metric));
        Self {
            utilization: value(UTILIZATION),
            clock: first(&CLOCKS),
            power: first(&POWERS),
            temperature: value(TEMPERATURE),
            fan: value(FAN).map(|speed| (speed, speed)),
            heat: share(HEAT.is_set),
            at_power_limit: share(POWER.is_set),
            brake: share(BRAKE.is_set),
            pcie_width: value(PCIE_WIDTH),
            pcie_generation: value(PCIE_GENERATION),
            links_up: value(LINKS_UP),
            activities: ACTIVITIES.map(|(metric, _)| value(metric)),
            ..Self::default()
        }
    }

    /// The minute, if the GPU was under load in it.
    pub(super) fn loaded(&self) -> Option<&Self> {
        self.utilization.is_some_and(|pct| pct >= LOADED_FROM_PCT).then_some(self)
    }
}

/// What of the values of a minute is read: a rollup gives nothing else of them.
pub(super) const FIGURES: [Aggregate; 4] = [Aggregate::Mean, Aggregate::Min, Aggregate::Max, Aggregate::Last];

/// Metrics of a minute: of all but idleness.
fn metrics() -> Vec<MetricId> {
    let single =
        [UTILIZATION, TEMPERATURE, FAN, PCIE_WIDTH, PCIE_GENERATION, LINKS_UP, STEPS, REASONS, STATUS];
    let limits = [HEAT, POWER, BRAKE].into_iter().flat_map(|limit| [limit.steps, limit.times]);
    let several = [&CLOCKS[..], &POWERS].into_iter().chain(limits);
    let activities = ACTIVITIES.map(|(metric, _)| metric);
    single.into_iter().chain(activities).chain(several.flatten().copied()).collect()
}

/// Metrics that tell of idleness and of work as before.
fn metrics_of_work() -> Vec<MetricId> {
    [UTILIZATION].into_iter().chain(POWERS).chain(ACTIVITIES.map(|(metric, _)| metric)).collect()
}

/// Metrics that tell how long heat held the clock down.
pub(super) fn metrics_of_heat() -> Vec<MetricId> {
    [&[STEPS, REASONS, STATUS][..], HEAT.steps, HEAT.times].concat()
}

/// Metrics that tell how long the power brake did.
pub(super) fn metrics_of_brake() -> Vec<MetricId> {
    [&[REASONS][..], BRAKE.times].concat()
}

/// Values by the minute, of each GPU and holder.
pub(super) fn query(metrics: Vec<MetricId>, start_ns: i64, end_ns: i64) -> BucketQuery {
    BucketQuery {
        aggregates: FIGURES.to_vec(),
        group_by: [GroupColumn::Gpu]
            .into_iter()
            .chain(HOLDER.map(GroupColumn::Identity))
            .chain([GroupColumn::Identity(IdentityColumn::Node)])
            .collect(),
        ..BucketQuery::of(Table::GpuEvents, metrics, start_ns, end_ns, MINUTE_NS)
    }
}

impl Recent {
    /// The minutes of a range under all holders of the GPUs. They come by [`Recent::take`], from the answer to
    /// [`Recent::range_query`] or its parts, those of a GPU in the order of time.
    pub fn of_range() -> Self {
        Self { of_range: true, ..Self::default() }
    }

    /// What to ask the history about the minutes in which a GPU reported, for [`crate::explain::Presence`].
    pub fn presence_query(gpu: Arc<str>, start_ns: i64, end_ns: i64) -> BucketQuery {
        BucketQuery { group_by: vec![GroupColumn::Gpu], ..Self::range_query(vec![gpu], start_ns, end_ns) }
    }

    /// What to ask the history for some GPUs in a range of time: whole minutes, and the one before, with which counters begin. An end
    /// on a whole minute ends the minute before it.
    pub fn range_query(gpus: Vec<Arc<str>>, start_ns: i64, end_ns: i64) -> BucketQuery {
        let end_ns = end_ns.saturating_sub(1).max(start_ns);
        let start_ns = start_ns.div_euclid(MINUTE_NS) * MINUTE_NS - MINUTE_NS;
        BucketQuery { gpus, ..query(metrics(), start_ns, end_ns) }
    }

    /// What to ask the history for next, for [`Recent::take`]; none: it is up to date.
    pub fn next_query(&self, now_ns: i64) -> Option<BucketQuery> {
        let end_ns = (now_ns - SETTLE_NS).div_euclid(MINUTE_NS) * MINUTE_NS;
        let window_ns = i64::try_from(WINDOW_MINUTES).unwrap_or(0) * MINUTE_NS;
        let (whole_from, idle_from) = (end_ns - window_ns, end_ns - IDLE_BACK_NS);
        let start_ns = self.end_ns.unwrap_or(idle_from).max(idle_from);
        if start_ns >= end_ns {
            return None;
        }
        let is_whole = start_ns >= whole_from;
        let metrics = if is_whole { metrics() } else { metrics_of_work() };
        let end_ns = if is_whole { end_ns } else { whole_from };
        Some(query(metrics, start_ns, end_ns - 1))
    }

    /// About how many GPUs at once such a question is small enough: its answer has far fewer values than one may have, since a GPU that
    /// changes hands is in it more than once, and what an answer once took stays the process's.
    pub fn gpus_at_once(query: &BucketQuery) -> usize {
        let minutes = u64::try_from((query.end_ns - query.start_ns) / MINUTE_NS).unwrap_or(0) + 1;
        let points = minutes * query.metrics.len() as u64;
        usize::try_from(POINTS_MAX / 8 / points.max(1)).unwrap_or(usize::MAX).max(1)
    }

    /// What to ask the history about GPUs that are held and have done nothing for as long as is known, for [`Recent::take_idle`]; none:
    /// of all of them it is known since when.
    pub fn next_idle_query(&self, now_ns: i64) -> Option<BucketQuery> {
        let mut gpus: Vec<(&Arc<str>, i64)> = self
            .gpus
            .iter()
            .filter_map(|(key, gpu)| {
                let since = gpu.idle_since.filter(|since| since.is_bound && !gpu.is_looked)?;
                let is_long = now_ns - since.at_ns >= IDLE_AFTER_NS && gpu.holder.iter().any(Option::is_some);
                is_long.then_some((key, since.at_ns))
            })
            .collect();
        gpus.sort_unstable();
        gpus.truncate(IDLE_GPUS_MAX);
        let end_ns = gpus.iter().map(|(_, since_ns)| *since_ns).max()?;
        let start_ns = (now_ns - LOOK_BACK_NS).div_euclid(MINUTE_NS) * MINUTE_NS;
        let keys = gpus.into_iter().map(|(key, _)| Arc::clone(key)).collect();
        Some(BucketQuery { gpus: keys, ..query(vec![UTILIZATION], start_ns, end_ns.max(start_ns + 1) - 1) })
    }

    /// Takes the minutes of the answer to [`Recent::next_idle_query`], which was about these GPUs.
    pub fn take_idle(&mut self, asked: &[Arc<str>], before: &Self) {
        for key in asked {
            let Some(gpu) = self.gpus.get_mut(key) else { continue };
            gpu.is_looked = true;
            let Some(since) = gpu.idle_since else { continue };
            // After a long silence nothing is known of the time before.
            let was = before.gpus.get(key).filter(|was| since.at_ns - was.last_ns < FORGET_NS);
            let Some(was) = was else { continue };
            let same = was.idle_since.filter(|_| was.holder == gpu.holder);
            gpu.idle_since = same.or(Some(Began::exactly(since.at_ns)));
            gpu.window = gpu.window(HolderScope::Present);
        }
    }

    /// The minutes of a GPU in a range.
    pub(super) fn minutes(&self, gpu: &str, holders: HolderScope) -> impl Iterator<Item = &Minute> {
        self.gpus.get(gpu).into_iter().flat_map(move |gpu| {
            let is_any = holders == HolderScope::All || !gpu.changed_hands;
            let is_wanted = move |minute: &&Minute| is_any || minute.start_ns >= gpu.held_from_ns;
            gpu.minutes.iter().filter(is_wanted)
        })
    }

    /// Takes the answer to [`Recent::next_query`].
    pub fn take(&mut self, buckets: &Buckets) {
        self.take_part(buckets);
        let steps = buckets.steps();
        let end_ns = steps.time(steps.count);
        if !self.of_range {
            return self.read_until(end_ns);
        }
        self.end_ns = Some(end_ns);
        let origin_ns = *self.origin_ns.get_or_insert(steps.origin_ns);
        for gpu in self.gpus.values_mut() {
            // The minute before the range is there for the counters.
            gpu.minutes.retain(|minute| minute.start_ns > origin_ns);
            gpu.window = gpu.window(HolderScope::All);
        }
    }

    /// Takes a part of the answer, the minutes of some GPUs. After the last part comes [`Recent::read_until`]; without it all of them may
    /// come again.
    pub fn take_part(&mut self, buckets: &Buckets) {
        let holders = if self.of_range { HolderScope::All } else { HolderScope::Present };
        for (key, cells) in GpuCells::by_gpu(buckets) {
            if !self.gpus.contains_key(key) {
                self.gpus.insert(Arc::clone(key), RecentGpu::default());
            }
            let Some(gpu) = self.gpus.get_mut(key) else { continue };
            for (step, start_ns) in buckets.steps().times().enumerate() {
                gpu.take(&cells, step, start_ns);
            }
            gpu.window = gpu.window(holders);
        }
    }

    /// All minutes up to this instant, nanoseconds UTC since 1970, were taken.
    pub fn read_until(&mut self, end_ns: i64) {
        self.end_ns = Some(end_ns);
        self.gpus.retain(|_, gpu| end_ns - gpu.last_ns < FORGET_NS);
        for gpu in self.gpus.values_mut() {
            let from_ns = end_ns - i64::try_from(WINDOW_MINUTES).unwrap_or(0) * MINUTE_NS;
            let before = gpu.minutes.len();
            while gpu.minutes.front().is_some_and(|minute| minute.start_ns < from_ns) {
                gpu.minutes.pop_front();
            }
            if gpu.minutes.len() < before {
                gpu.window = gpu.window(HolderScope::Present);
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

    /// The nodes that sent rows of a GPU in the newest minute in which several did.
    pub(super) fn nodes(&self, gpu: &str) -> &[Arc<str>] {
        self.gpus.get(gpu).map_or(&[], |gpu| &gpu.nodes)
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

    /// The figures that do not depend on the holder.
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
            idle_since: None,
            level: None,
            busy_for_less: None,
            rhythm: WorkRhythm::UNKNOWN,
            ..self
        }
    }
}

fn mean(cell: Cell) -> f64 {
    cell.sum / float(cell.count)
}

/// The share of samples for which something holds, 0 to 1. Exact where all samples have one of two values.
#[expect(clippy::cast_possible_truncation, reason = "bits")]
fn share_of_samples(cell: Cell, holds: impl Fn(i64) -> bool) -> f64 {
    let [of_least, of_most] = [cell.min, cell.max].map(|value| f64::from(u8::from(holds(value as i64))));
    let width = cell.max - cell.min;
    let most = if width > 0.0 { ((mean(cell) - cell.min) / width).clamp(0.0, 1.0) } else { 1.0 };
    of_least * (1.0 - most) + of_most * most
}

/// A counter's last reading in a step, and when that was.
fn reading(cells: &GpuCells<'_>, step: usize, metric: MetricId) -> Option<(i64, f64)> {
    cells.whole(metric, step).map(|cell| (cell.last_ns, cell.last))
}

fn risen((before_ns, before): (i64, f64), (now_ns, now): (i64, f64)) -> Option<(f64, i64)> {
    let (span_ns, rise) = (now_ns - before_ns, now - before);
    (span_ns > 0 && rise >= 0.0).then_some((rise, span_ns))
}

impl RecentGpu {
    fn take(&mut self, cells: &GpuCells<'_>, step: usize, start_ns: i64) {
        // A minute that comes again is taken already.
        let Some(holder) = cells.holder(step).filter(|_| start_ns >= self.last_ns) else { return };
        let busiest = cells.whole(UTILIZATION, step);
        // Of the time before the first minute, or before a long silence, nothing is known.
        let is_first = start_ns - self.last_ns >= FORGET_NS;
        let is_other = self.holder != holder;
        if is_other {
            self.changed_hands = self.last_ns > 0;
            self.holder = holder.to_vec();
            self.held_from_ns = start_ns + MINUTE_NS;
        }
        if is_other || is_first {
            (self.idle_since, self.is_looked) = (None, false);
            (self.level, self.rhythm) = (None, WorkRhythm::UNKNOWN);
        }
        let is_idle = busiest.is_some_and(|cell| cell.max < IDLE_BELOW_PCT);
        let now = Began { at_ns: start_ns, is_bound: is_first };
        self.idle_since = is_idle.then(|| self.idle_since.unwrap_or(now));
        self.last_ns = self.last_ns.max(start_ns + MINUTE_NS);
        let highest = |metric| cells.whole(metric, step).map(|cell| cell.max);
        let nodes = cells.nodes(step);
        let of_two_nodes = nodes.len() > 1;
        let minute = Minute {
            start_ns,
            of_two_nodes,
            utilization: busiest.map(mean),
            clock: cells.first(&CLOCKS, step).map(mean),
            power: cells.first(&POWERS, step).map(mean),
            temperature: highest(TEMPERATURE),
            fan: cells.whole(FAN, step).map(|cell| (mean(cell), cell.max)),
            heat: self.share(cells, step, &HEAT),
            at_power_limit: self.share(cells, step, &POWER),
            brake: self.share(cells, step, &BRAKE),
            pcie_width: highest(PCIE_WIDTH),
            pcie_generation: highest(PCIE_GENERATION),
            links_up: highest(LINKS_UP),
            activities: ACTIVITIES.map(|(metric, _)| cells.whole(metric, step).map(mean)),
        };
        if start_ns >= self.held_from_ns {
            let work = MinuteOfWork {
                end_ns: start_ns + MINUTE_NS,
                rows: busiest.map_or(0, |cell| cell.count),
                busy: minute.utilization,
                power_w: minute.power,
                activities: minute.activities,
            };
            self.level = WorkLevel::with(self.level, &work);
            if let Some(cell) = busiest {
                self.rhythm.take(start_ns, mean(cell), cell.max);
            }
        }
        self.rise(cells, step, STEPS);
        self.minutes.push_back(minute);
        if of_two_nodes {
            self.nodes = nodes;
        }
    }

    /// Share of the time since the readings before under a limit, 0 to 1. Of the counters of one limit several may rise at once: the
    /// longest is a lower bound. Where nothing is counted it is the share of the minute's samples whose bits name the limit.
    fn share(&mut self, cells: &GpuCells<'_>, step: usize, limit: &ClockLimit) -> Option<f64> {
        let &ClockLimit { times, steps, is_set } = limit;
        // Bits beside the steps are derived from them and contain less.
        let mut counters = times.iter().chain(steps).chain([&STEPS]);
        if !counters.any(|metric| self.counters.contains_key(metric) || cells.whole(*metric, step).is_some())
        {
            let states = STATES.into_iter().filter_map(|(metric, bits)| {
                let cell = cells.whole(metric, step)?;
                Some(share_of_samples(cell, |value| is_set(bits(value))))
            });
            return states.reduce(f64::max);
        }
        let of_time = |(rise, span_ns): (f64, i64)| rise / 1e9 / seconds(span_ns);
        let times = times.iter().filter_map(|metric| self.rise(cells, step, *metric).map(of_time));
        let longest = times.collect::<Vec<_>>().into_iter().reduce(f64::max);
        let all = self.rise_so_far(cells, step, STEPS).map(|(rise, _)| rise).filter(|all| *all > 0.0);
        let counted: Vec<f64> =
            steps.iter().filter_map(|metric| Some(self.rise(cells, step, *metric)?.0 / all?)).collect();
        counted.into_iter().chain(longest).reduce(f64::max).map(|share| share.clamp(0.0, 1.0))
    }

    /// By how much a counter rose since the minute before, and in how many nanoseconds; none after it fell, and at its first
    /// reading. The next rise counts from this reading.
    fn rise(&mut self, cells: &GpuCells<'_>, step: usize, metric: MetricId) -> Option<(f64, i64)> {
        let now = reading(cells, step, metric)?;
        risen(self.counters.insert(metric, now)?, now)
    }

    /// The same, and the next rise counts from the reading before.
    fn rise_so_far(&self, cells: &GpuCells<'_>, step: usize, metric: MetricId) -> Option<(f64, i64)> {
        risen(*self.counters.get(&metric)?, reading(cells, step, metric)?)
    }

    /// Its figures under these holders.
    fn window(&self, holders: HolderScope) -> GpuWindow {
        let all = || self.minutes.iter();
        let is_any = holders == HolderScope::All;
        let held = || all().filter(|minute| is_any || minute.start_ns >= self.held_from_ns);
        let loaded = || held().filter_map(Minute::loaded);
        let mean =
            |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>() / float(values.len()));
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
            idle_since: self.idle_since,
            two_nodes_minutes: all().filter(|minute| minute.of_two_nodes).count(),
            level: self.level,
            busy_for_less: self.busy_for_less(),
            rhythm: self.rhythm,
        }
    }
}
