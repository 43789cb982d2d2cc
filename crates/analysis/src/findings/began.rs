//! When findings began, by history: the first row that shows them.
//!
//! A gateway that has just started sees everything for the first time. A [`LookBack`] asks the history of the last day by the minute and
//! goes back from now, as long as the finding would have stayed open.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpuvitals_core::batch::Value;
use gpuvitals_core::history::{
    BucketQuery, Buckets, Cell, Fleet, GpuState, GroupColumn, Matcher, POINTS_MAX, RowsQuery, Selector,
    TextTest,
};
use gpuvitals_core::time::MINUTE_NS;
use gpuvitals_core::{Batch, IdentityColumn, MetricId, Table};

use super::level::WorkLevel;
use super::recent::{self, HolderScope, Minute};
use super::since::{Began, LOOK_BACK_NS};
use super::threshold::{
    BRAKE_SHARE, FAN_AT_LIMIT_PCT, FAN_NEEDED_FROM_C, HEAT_SHARE, HELD_CLOCK, STARVED_PCT, STRAGGLER_CLOCK,
    WINDOW_MINUTES,
};
use super::{FindingKind, FleetFinding, Recent, Subject};
use crate::cells::GpuCells;
use crate::condition;
use crate::coverage::Coverage;

/// Most rows of a minute that are read for the first that shows a finding.
const ROWS_MAX: usize = 1_000;

/// A question to the history: when did findings of one kind begin?
#[derive(Debug, Clone)]
pub struct LookBack {
    /// What to ask.
    pub query: BucketQuery,
    kind: &'static FindingKind,
    trace: Trace,
    asked: Vec<AskedFinding>,
}

/// A finding whose beginning is asked for.
#[derive(Debug, Clone)]
struct AskedFinding {
    subject: Subject,
    /// The GPU that shows it, of a job the first that the finding names; none: the model does.
    gpu: Option<Arc<GpuState>>,
    /// What its value is compared with.
    level: f64,
}

/// The first minute that shows a finding.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Kind of the finding.
    pub kind: &'static FindingKind,
    /// The GPU, node, job or model that it is about.
    pub subject: Subject,
    /// When it began, to the minute; none: history does not show it.
    pub began: Option<Began>,
    gpu: Option<Arc<GpuState>>,
    metrics: Vec<MetricId>,
    trace: Trace,
    /// What its value is compared with.
    level: f64,
    /// No later row is looked at.
    until_ns: i64,
}

/// How values show a finding.
#[derive(Debug, Clone, Copy)]
enum Trace {
    /// A condition holds.
    Condition,
    /// The values of a minute beside what the finding is compared with; none: they say nothing. Those under these
    /// holders count.
    Minutes { shows: fn(&Minute, f64) -> Option<bool>, holders: HolderScope, run: MinuteRun },
    /// Several drivers on GPUs of the model.
    Drivers,
}

/// How the minutes that show a finding follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MinuteRun {
    /// Some between them do not show it: the finding is about the last minutes together.
    Loose,
    /// Without a break; rows decide where it begins.
    Unbroken,
}

impl Trace {
    fn is_unbroken(self) -> bool {
        matches!(self, Self::Minutes { run: MinuteRun::Unbroken, .. })
    }
}

fn minutes(shows: fn(&Minute, f64) -> Option<bool>) -> Trace {
    Trace::Minutes { shows, holders: HolderScope::All, run: MinuteRun::Loose }
}

/// The same under the present holder.
fn of_holder(run: MinuteRun, shows: fn(&Minute, f64) -> Option<bool>) -> Trace {
    Trace::Minutes { shows, holders: HolderScope::Present, run }
}

/// The columns by which a finding is looked for, and how; none: the finding says itself when it began.
fn trace(finding: &FleetFinding) -> Option<(Vec<MetricId>, Trace)> {
    let of_load = |more: &[MetricId]| [&[recent::UTILIZATION], more].concat();
    Some(match finding.kind.id {
        "thermal_throttling" => {
            (recent::metrics_of_heat(), minutes(|minute, _| minute.heat.map(|share| share >= HEAT_SHARE.1)))
        }
        "power_brake" => (
            recent::metrics_of_brake(),
            minutes(|minute, _| minute.brake.map(|share| share >= BRAKE_SHARE.1)),
        ),
        "clock_held" => (
            of_load(&recent::CLOCKS),
            minutes(|minute, median| Some(minute.loaded()?.clock? < HELD_CLOCK.1 * median)),
        ),
        "straggler" => (
            of_load(&recent::CLOCKS),
            of_holder(MinuteRun::Loose, |minute, median| {
                Some(minute.loaded()?.clock? < STRAGGLER_CLOCK.1 * median)
            }),
        ),
        "starved" => (
            vec![recent::UTILIZATION],
            of_holder(MinuteRun::Loose, |minute, median| Some(minute.utilization? <= median - STARVED_PCT.1)),
        ),
        "job_hung" => {
            let stands_still = |minute: &Minute, power_w| {
                let level = WorkLevel { power_w, ..WorkLevel::default() };
                Some(level.is_far_above(minute.utilization?, minute.power?))
            };
            (of_load(&recent::POWERS), of_holder(MinuteRun::Unbroken, stands_still))
        }
        "pcie_degraded" if finding.evidence.iter().any(|one| one.quantity == "pcie_gen") => (
            of_load(&[recent::PCIE_GENERATION]),
            minutes(|minute, others| Some(minute.loaded()?.pcie_generation? < others)),
        ),
        "pcie_degraded" => (
            of_load(&[recent::PCIE_WIDTH]),
            minutes(|minute, others| Some(minute.loaded()?.pcie_width? < others)),
        ),
        "links_down" => (vec![recent::LINKS_UP], minutes(|minute, others| Some(minute.links_up? < others))),
        "fan_stopped" => {
            // A fan that stands still while the GPU is cool is sound.
            let stands_while_hot = |minute: &Minute, _| {
                let (_, highest) = minute.fan?;
                Some(highest <= 0.0 && minute.temperature? >= FAN_NEEDED_FROM_C)
            };
            (vec![recent::FAN, recent::TEMPERATURE], minutes(stands_while_hot))
        }
        "fan_at_limit" => {
            (vec![recent::FAN], minutes(|minute, _| minute.fan.map(|(mean, _)| mean >= FAN_AT_LIMIT_PCT.1)))
        }
        "duplicate_gpu" => {
            (vec![recent::UTILIZATION, recent::TEMPERATURE], minutes(|minute, _| Some(minute.of_two_nodes)))
        }
        "driver_mismatch" => (vec![recent::UTILIZATION, recent::TEMPERATURE], Trace::Drivers),
        id => {
            let metrics = condition::columns(id);
            return (!metrics.is_empty()).then_some((metrics, Trace::Condition));
        }
    })
}

/// A finding, and what shows it.
type Traced<'a> = (&'a FleetFinding, Trace);

impl LookBack {
    /// The questions about these findings: as few as the size of an answer allows.
    pub fn of(findings: &[FleetFinding], fleet: &Fleet, now_ns: i64) -> Vec<Self> {
        let mut kinds: BTreeMap<(&str, Vec<MetricId>), Vec<Traced<'_>>> = BTreeMap::new();
        for finding in findings {
            if let Some((metrics, trace)) = trace(finding) {
                kinds.entry((finding.kind.id, metrics)).or_default().push((finding, trace));
            }
        }
        let mut all = Vec::new();
        for ((_, metrics), findings) in kinds {
            let minutes = LOOK_BACK_NS / MINUTE_NS;
            // Far less than an answer may have: a GPU that changes hands is in it more than once.
            let series = metrics.len() * recent::FIGURES.len();
            let points = u64::try_from(minutes).unwrap_or(1) * series as u64;
            let most = usize::try_from((POINTS_MAX / 8 / points).max(1)).unwrap_or(1);
            all.extend(findings.chunks(most).filter_map(|some| Self::about(&metrics, some, fleet, now_ns)));
        }
        all
    }

    fn about(metrics: &[MetricId], findings: &[Traced<'_>], fleet: &Fleet, now_ns: i64) -> Option<Self> {
        let (first, trace) = *findings.first()?;
        let start_ns = (now_ns - LOOK_BACK_NS).div_euclid(MINUTE_NS) * MINUTE_NS;
        let asked = |(finding, _): &Traced<'_>| {
            let compared = finding.evidence.first().and_then(|evidence| evidence.compared_with);
            let gpu = match &finding.subject {
                Subject::Gpu(key) => Some(Arc::clone(fleet.get(key)?)),
                Subject::Job(_) => Some(Arc::clone(fleet.get(finding.reach.gpus.first()?)?)),
                _ => None,
            };
            let level = compared.map_or(0.0, |compared| compared.value);
            Some(AskedFinding { subject: finding.subject.clone(), gpu, level })
        };
        // A model is asked about alone: its drivers are those of all its GPUs.
        let of_model = |name: &Arc<str>| {
            let is_model = TextTest::Is(vec![Arc::clone(name)]);
            let matcher = Matcher { column: IdentityColumn::Model, test: is_model };
            let query = BucketQuery::of(Table::GpuEvents, metrics.to_vec(), start_ns, now_ns, MINUTE_NS);
            let drivers = vec![GroupColumn::Identity(IdentityColumn::Driver)];
            Some(BucketQuery { selector: Selector::new(vec![matcher]).ok()?, group_by: drivers, ..query })
        };
        let (findings, query) = if let Subject::Model(name) = &first.subject {
            (findings.get(..1)?, of_model(name)?)
        } else {
            let gpus = findings.iter().filter_map(|(finding, _)| finding.reach.gpus.first().cloned());
            let query = recent::query(metrics.to_vec(), start_ns, now_ns);
            (findings, BucketQuery { gpus: gpus.collect(), ..query })
        };
        Some(Self { query, kind: first.kind, trace, asked: findings.iter().filter_map(asked).collect() })
    }

    /// The first minute that shows each of the findings, from the answer.
    pub fn shown(&self, buckets: &Buckets, coverage: Coverage) -> Vec<Shown> {
        let steps = buckets.steps();
        let cells = GpuCells::by_gpu(buckets);
        let recent = match self.trace {
            Trace::Minutes { .. } => {
                let mut recent = Recent::of_range();
                recent.take(buckets);
                recent
            }
            Trace::Condition | Trace::Drivers => Recent::default(),
        };
        let one = |asked: &AskedFinding| {
            let mut marks: Vec<Option<bool>> = vec![None; steps.count];
            match (self.trace, &asked.gpu) {
                (Trace::Condition, Some(gpu)) => {
                    if let Some(cells) = cells.get(&gpu.key) {
                        let mark = |step| shows_condition(self.kind.id, cells, step, gpu);
                        marks = (0..steps.count).map(mark).collect();
                    }
                }
                (Trace::Minutes { shows, holders, .. }, Some(gpu)) => {
                    for minute in recent.minutes(&gpu.key, holders) {
                        if let Some(mark) = marks.get_mut(steps.at(minute.start_ns)) {
                            *mark = shows(minute, asked.level);
                        }
                    }
                }
                (Trace::Drivers, None) => {
                    marks = (0..steps.count).map(|step| shows_drivers(buckets, step)).collect();
                }
                _ => {}
            }
            let shown = first_shown(&marks, self.patience()).or_else(|| self.newest_known(&marks));
            let began = shown.map(|(step, is_first)| {
                let at_ns = steps.time(step);
                let is_older = asked.gpu.as_ref().is_none_or(|gpu| gpu.first_seen_ns < self.query.start_ns);
                Began { at_ns, is_bound: (is_first && is_older) || coverage == Coverage::Partial }
            });
            Shown {
                kind: self.kind,
                subject: asked.subject.clone(),
                began,
                gpu: asked.gpu.clone(),
                metrics: self.query.metrics.clone(),
                trace: self.trace,
                level: asked.level,
                until_ns: self.query.end_ns,
            }
        };
        self.asked.iter().map(one).collect()
    }

    fn patience(&self) -> Patience {
        let minutes = usize::try_from(self.kind.closes_after_ns / MINUTE_NS).unwrap_or(1).max(1);
        match self.trace {
            Trace::Minutes { run: MinuteRun::Loose, .. } => {
                Patience { minutes: minutes + WINDOW_MINUTES, silence_counts: true }
            }
            Trace::Minutes { run: MinuteRun::Unbroken, .. } | Trace::Condition | Trace::Drivers => {
                Patience { minutes, silence_counts: false }
            }
        }
    }

    /// Of what rows decide, the minute that may have begun as another one: less than all of it shows it.
    fn newest_known(&self, marks: &[Option<bool>]) -> Option<(usize, bool)> {
        let newest = marks.iter().rposition(Option::is_some).map(|step| (step, false));
        newest.filter(|_| self.trace.is_unbroken())
    }
}

impl Shown {
    /// What to ask for the first row of the minute that shows it; none if only minutes do.
    pub fn rows(&self) -> Option<RowsQuery> {
        let (gpu, began) = (self.gpu.as_ref()?, self.began?);
        // Of the minute before, the end may show it.
        let before_ns = if self.trace.is_unbroken() { MINUTE_NS } else { 0 };
        let columns = self.metrics.iter().map(|metric| metric.metric().column.to_owned());
        Some(RowsQuery {
            gpus: vec![Arc::clone(&gpu.key)],
            start_ns: Some(began.at_ns - before_ns),
            end_ns: Some((began.at_ns + MINUTE_NS - 1).min(self.until_ns)),
            metrics: Some(columns.collect()),
            ..RowsQuery::of(Table::GpuEvents, ROWS_MAX)
        })
    }

    /// Takes the answer: the first row that shows it, or else, of what no row shows by itself, the first with a value.
    pub fn take(&mut self, rows: &Batch) {
        let (Some(gpu), Some(began)) = (&self.gpu, &mut self.began) else { return };
        let own = |row: usize, metric: MetricId| rows.metric(metric)?.value(row);
        let shows = |row: usize| match self.trace {
            Trace::Condition => {
                condition::shows(self.kind.id, |metric| own(row, metric), |metric| newest(gpu, metric))
            }
            Trace::Minutes { shows, .. } => {
                let instant = Minute::of_row(|metric| own(row, metric).map(Value::as_f64));
                shows(&instant, self.level)
            }
            Trace::Drivers => None,
        };
        let is_any = |row: &usize| self.metrics.iter().any(|metric| own(*row, *metric).is_some());
        let (all, is_unbroken) = (|| 0..rows.rows(), self.trace.is_unbroken());
        // Without a break it begins behind the last row that does not show it.
        let last_other = all().rfind(|row| is_unbroken && shows(*row) == Some(false));
        let first = all().skip(last_other.map_or(0, |row| row + 1)).find(|row| shows(*row) == Some(true));
        let first = first.or_else(|| {
            all().find(is_any).filter(|_| !is_unbroken && !matches!(self.trace, Trace::Condition))
        });
        if let Some(at_ns) = first.and_then(|row| rows.timestamps().get(row)) {
            began.at_ns = *at_ns;
        }
    }
}

/// How long something may not be seen and goes on all the same.
#[derive(Clone, Copy)]
struct Patience {
    minutes: usize,
    /// Whether a minute that says nothing is one in which it was not seen.
    silence_counts: bool,
}

/// The earliest step that shows something which has gone on since, and whether the look back ended before it was seen to begin.
fn first_shown(marks: &[Option<bool>], patience: Patience) -> Option<(usize, bool)> {
    let (mut earliest, mut quiet) = (None, 0);
    for (step, mark) in marks.iter().enumerate().rev() {
        match mark {
            Some(true) => (earliest, quiet) = (Some(step), 0),
            Some(false) => quiet += 1,
            None => quiet += usize::from(patience.silence_counts),
        }
        if quiet >= patience.minutes {
            return earliest.map(|step| (step, false));
        }
    }
    earliest.map(|step| (step, true))
}

/// Whether a condition held at some time of a step; none: nothing is known.
fn shows_condition(id: &str, cells: &GpuCells<'_>, step: usize, gpu: &GpuState) -> Option<bool> {
    type Pick = fn(Cell) -> f64;
    let picks: [Pick; 3] = [|cell| cell.last, |cell| cell.max, |cell| cell.min];
    let shows = |pick: Pick| {
        let own = |metric: MetricId| cells.whole(metric, step).map(|cell| Value::of(metric, pick(cell)));
        condition::shows(id, own, |metric| newest(gpu, metric))
    };
    picks.into_iter().filter_map(shows).reduce(|a, b| a || b)
}

fn newest(gpu: &GpuState, metric: MetricId) -> Option<Value> {
    Fleet::latest(gpu, metric).map(|latest| latest.value)
}

/// Whether GPUs with different drivers have values in a step.
fn shows_drivers(buckets: &Buckets, step: usize) -> Option<bool> {
    let has_values = |group: usize| {
        let mut cells = buckets.metrics().iter().filter_map(|one| one.cells.get(buckets.place(group, step)));
        cells.any(|cell| cell.count > 0)
    };
    let named =
        buckets.groups().iter().enumerate().filter(|(_, name)| name.first().is_some_and(Option::is_some));
    let versions = named.filter(|(group, _)| has_values(*group)).count();
    (versions > 0).then_some(versions > 1)
}

#[cfg(test)]
mod tests {
    use super::super::{Reach, finding};
    use super::*;

    #[test]
    fn what_goes_on_began_where_it_was_not_seen_for_long() {
        // `x` shows it, `o` does not, `.` says nothing; the newest comes last.
        let check = |marks: &str, silence_counts, expected| {
            let mark = |sign| match sign {
                'x' => Some(true),
                'o' => Some(false),
                _ => None,
            };
            let marks: Vec<Option<bool>> = marks.chars().map(mark).collect();
            let found = first_shown(&marks, Patience { minutes: 3, silence_counts });
            assert_eq!(found, expected, "{marks:?}");
        };
        check("ooooxxxx", false, Some((4, false)));
        check("oooxooxo", false, Some((3, false)));
        check("xoooxx", false, Some((4, false)));
        check("xxxxxxxx", false, Some((0, true)));
        check("ooxxx", false, Some((2, true)));
        check("xx....xx", false, Some((0, true)));
        check("xx....xx", true, Some((6, false)));
        check("...xxx", true, Some((3, false)));
        check("oooooo", false, None);
        check("......", true, None);
        check("xxxooo", false, None);
        check("", false, None);
    }

    #[test]
    fn an_answer_about_gpus_that_change_hands_all_day_is_not_too_large() {
        let held = |number: usize| {
            let gpu: Arc<str> = Arc::from(format!("GPU-{number}"));
            let reach = Reach { gpus: vec![Arc::clone(&gpu)], ..Reach::default() };
            finding("thermal_throttling", Subject::Gpu(gpu), String::new(), Vec::new(), reach)
        };
        let findings: Vec<FleetFinding> = (0..100).map(held).collect();
        let questions = LookBack::of(&findings, &Fleet::default(), 1_000_000 * MINUTE_NS);
        assert_eq!(questions.iter().map(|question| question.query.gpus.len()).sum::<usize>(), 100);
        for LookBack { query, .. } in &questions {
            let series = query.gpus.len() * query.metrics.len() * query.aggregates.len();
            // Each GPU is in the answer once for each holder.
            let values = 7 * series * query.steps().unwrap().count;
            assert!(values as u64 <= POINTS_MAX, "{values}");
        }
    }
}
