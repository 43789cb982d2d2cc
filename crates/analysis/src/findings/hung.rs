//! Jobs that stand still: all their GPUs say that they are busy, and together do far less than before. A kernel that waits for the other
//! ranks of a collective keeps its GPU busy for ever.

use std::collections::HashMap;
use std::sync::Arc;

use gpuvitals_core::history::GpuState;
use gpuvitals_core::number::float;
use gpuvitals_core::time::{self, MINUTE_NS, SECOND_NS};
use gpuvitals_core::{MetricId, quantity};

use super::level::{ACTIVITIES, SM_ACTIVE, WorkLevel};
use super::recent::{POWERS, UTILIZATION};
use super::survey::holder_of;
use super::threshold::{
    ACTIVITY_LEVEL_MIN_PCT, BRAKE_SHARE, HEAT_SHARE, HUNG_ACTIVITY, HUNG_BUSY_PCT, HUNG_GPUS_MIN,
    HUNG_OTHERS_SHARE, HUNG_POWER, HUNG_ROWS_MIN, HUNG_SM_ACTIVITY, LOADED_FROM_PCT, LOADED_MINUTES_MIN,
    MARKED_NOW_NS, MARKED_SINCE_NS,
};
use super::throttling::percent;
use super::{Candidate, Evidence, LostGpu, Member, Reach, Subject, Survey, finding};
use crate::freshness::newest_value;
use crate::robust::median;

/// A GPU that the others wait for had its last values at most so long before the end of their last minute of work. Who left earlier left
/// for good: the job went on without it.
const LEFT_BEFORE_NS: i64 = 3 * MINUTE_NS;
/// Or so long after it: the minute in which the others stop may already count as one in which they stand still.
const LEFT_AFTER_NS: i64 = 40_000_000_000;
/// A GPU has fallen silent once its values are older than the newest of its job by this part of the age at which it counts as away, so that
/// the others need not stand still for that long before it is seen,
const BEHIND_PART: i64 = 4;
/// and by so many of its own intervals.
const BEHIND_ROWS: i64 = 3;
const BEFORE: &str = "before";
const PROCESSES: MetricId = MetricId::of("process_count");

/// A GPU of a job now, beside its own work of before.
struct WorkLook<'a> {
    gpu: &'a Arc<GpuState>,
    /// End of its last minute of work.
    worked_until_ns: i64,
    /// From one of its rows to the next, nanoseconds.
    interval_ns: i64,
    utilization: f64,
    /// Whether no process is on it any more.
    has_no_process: bool,
    /// Power in W, now and before.
    power: (f64, f64),
    /// Of each of [`ACTIVITIES`], now and before; none: it is not read, or was hardly anything.
    activities: [Option<(f64, f64)>; ACTIVITIES.len()],
}

impl WorkLook<'_> {
    fn power_share(&self) -> f64 {
        self.power.0 / self.power.1
    }

    /// Whether it says that it is busy, and draws far less power than before.
    fn is_stuck(&self) -> bool {
        self.utilization >= HUNG_BUSY_PCT && self.power_share() <= HUNG_POWER.1
    }

    /// Whether it does nothing, while it did before.
    fn has_left(&self) -> bool {
        self.utilization < LOADED_FROM_PCT
    }
}

/// A job whose GPUs may stand still.
struct JobLook<'a> {
    present: Vec<Member<'a>>,
    /// The present ones of which enough is known.
    looks: Vec<WorkLook<'a>>,
    /// Those that fell silent about when the others stopped.
    silent: Vec<&'a Arc<GpuState>>,
    /// Those whose agent reports that they are lost.
    lost: &'a HashMap<Arc<str>, LostGpu>,
}

impl<'a> Survey<'a> {
    /// Jobs that stand still: one finding a job.
    pub(super) fn hung_jobs(&self, found: &mut Vec<Candidate>) {
        let mut away = self.away();
        for (holder, places) in &self.holders {
            let away = away.remove(holder).unwrap_or_default();
            if places.len() + away.len() >= HUNG_GPUS_MIN {
                let members: Vec<Member<'a>> = self.members(places).collect();
                let job = self.job_look(&members, &away).filter(|job| !self.goes_on(job));
                found.extend(job.and_then(|job| hung(holder, &job)));
            }
        }
    }

    /// The GPUs of each job that report nothing any more.
    pub(super) fn away(&self) -> HashMap<Arc<str>, Vec<&'a Arc<GpuState>>> {
        let mut away = HashMap::<_, Vec<_>>::new();
        let (fresh, gpus) = (self.now.fresh, self.now.gpus);
        for gpu in gpus.iter().filter(|gpu| fresh.is_old(gpu.last_seen_ns)) {
            if let Some(holder) = holder_of(gpu) {
                away.entry(holder).or_default().push(gpu);
            }
        }
        away
    }

    /// Whether the program of a recorded job has set a mark since its GPUs look as if they stood still, or just now.
    fn goes_on(&self, job: &JobLook<'_>) -> bool {
        let marked_ns = job.present.first().and_then(|member| self.now.recent.marks.of(member.gpu));
        let stuck = job.looks.iter().filter(|look| look.is_stuck());
        let Some((marked_ns, until_ns)) = marked_ns.zip(stuck.map(|look| look.worked_until_ns).max()) else {
            return false;
        };
        let age_ns = self.now.fresh.now_ns.saturating_sub(marked_ns);
        let is_since = marked_ns > until_ns + MINUTE_NS && age_ns <= MARKED_SINCE_NS;
        // A clock that is far ahead says nothing.
        age_ns >= -MINUTE_NS && (age_ns <= MARKED_NOW_NS || is_since)
    }

    /// What is known of a job; none if no GPU of it stands still.
    fn job_look(&self, members: &[Member<'a>], away: &[&'a Arc<GpuState>]) -> Option<JobLook<'a>> {
        let newest_ns = members.iter().map(|member| newest_value(member.gpu)).max()?;
        let is_behind = |member: &Member<'a>| {
            let interval_ns =
                member.window.and_then(|window| window.level).map_or(MINUTE_NS, |level| level.interval_ns);
            let behind_ns = (self.now.fresh.stale_after_ns / BEHIND_PART).max(BEHIND_ROWS * interval_ns);
            newest_ns - newest_value(member.gpu) > behind_ns
        };
        let stuck =
            members.iter().filter(|member| !is_behind(member)).filter_map(|member| self.look(*member));
        let until_ns = stuck.filter(WorkLook::is_stuck).map(|look| look.worked_until_ns).max()?;
        let left = until_ns - LEFT_BEFORE_NS..=until_ns + LEFT_AFTER_NS;
        let (fallen, present): (Vec<Member<'a>>, Vec<Member<'a>>) = members
            .iter()
            .copied()
            .partition(|member| is_behind(member) && left.contains(&newest_value(member.gpu)));
        let mut silent: Vec<&'a Arc<GpuState>> = fallen.iter().map(|member| member.gpu).collect();
        silent.extend(away.iter().filter(|gpu| left.contains(&newest_value(gpu))));
        let looks = present.iter().filter_map(|member| self.look(*member)).collect();
        Some(JobLook { present, looks, silent, lost: self.now.lost })
    }

    fn look(&self, Member { gpu, window }: Member<'a>) -> Option<WorkLook<'a>> {
        let WorkLevel { minutes, until_ns, interval_ns, power_w, activities } = window?.level?;
        let now = |metric: MetricId| Some(self.now.fresh.recent(gpu, metric)?.as_f64());
        let power = POWERS.iter().find_map(|metric| now(*metric))?;
        if minutes < LOADED_MINUTES_MIN || power_w <= 0.0 {
            return None;
        }
        let mut compared = [None; ACTIVITIES.len()];
        for (compared, ((metric, whole), level)) in compared.iter_mut().zip(ACTIVITIES.iter().zip(activities))
        {
            let level = level.filter(|level| 100.0 * level / whole >= ACTIVITY_LEVEL_MIN_PCT);
            *compared = now(*metric).zip(level);
        }
        let utilization = now(UTILIZATION)?;
        Some(WorkLook {
            gpu,
            worked_until_ns: until_ns,
            interval_ns,
            utilization,
            has_no_process: now(PROCESSES).is_some_and(|processes| processes <= 0.0),
            power: (power, power_w),
            activities: compared,
        })
    }
}

fn hung<'a>(holder: &Arc<str>, job: &JobLook<'a>) -> Option<Candidate> {
    let JobLook { present, looks, silent, .. } = job;
    let stuck: Vec<&WorkLook<'a>> = looks.iter().filter(|look| look.is_stuck()).collect();
    let left: Vec<&WorkLook<'a>> = looks.iter().filter(|look| look.has_left()).collect();
    let others_max = (float(present.len()) * HUNG_OTHERS_SHARE).max(1.0);
    let has_many_others = float(present.len() - stuck.len()) > others_max || silent.len() > stuck.len();
    let works = looks.iter().any(|look| !look.is_stuck() && !look.has_left());
    if stuck.is_empty() || works || has_many_others {
        return None;
    }
    let activities = activities(&stuck);
    let bound = |metric| if metric == SM_ACTIVE { HUNG_SM_ACTIVITY } else { HUNG_ACTIVITY };
    if activities.iter().any(|(metric, now, before)| now / before > bound(*metric)) {
        return None;
    }
    // One alone stands still for a reason that is known, or it does other work.
    let is_unexplained = silent.is_empty() && left.is_empty();
    if stuck.len() < HUNG_GPUS_MIN && (is_unexplained || activities.is_empty()) {
        return None;
    }
    let middle =
        |of: fn(&WorkLook<'a>) -> f64| median(&mut stuck.iter().map(|look| of(look)).collect::<Vec<_>>());
    let (share, now_w, before_w) =
        (middle(WorkLook::power_share)?, middle(|look| look.power.0)?, middle(|look| look.power.1)?);
    let opens = stuck.iter().all(|look| look.power_share() <= HUNG_POWER.0);
    let name = super::groups::job_name(stuck.first().map(|look| look.gpu));
    let is_sure = !activities.is_empty();
    let sentence = format!(
        "{name} {}: {} {} that they are busy, with {} of the power of before; {}{}",
        if is_sure { "stands still" } else { "seems to stand still" },
        quantity::counted(stuck.len() as u64, "GPU"),
        if stuck.len() == 1 { "says" } else { "say" },
        percent(share),
        who_began(job, &left),
        if is_sure { "" } else { " (only utilisation and power are read, and some work looks alike)" },
    );
    let mut evidence = vec![
        Evidence::derived("power_w", "W", now_w.round_ties_even()).beside(before_w.round_ties_even(), BEFORE),
        Evidence::derived("utilization_pct", "%", middle(|look| look.utilization)?.round_ties_even()),
    ];
    evidence.extend(activities.into_iter().map(|(metric, now, before)| {
        let metric = metric.metric();
        Evidence::derived(metric.column, metric.unit.as_str(), now).beside(before, BEFORE)
    }));
    // The rows of the first one say since when.
    let others = looks.iter().filter(|look| !look.is_stuck());
    let gpus: Vec<&Arc<GpuState>> = stuck.iter().copied().chain(others).map(|look| look.gpu).collect();
    let reach = Reach { concerned_gpus: present.len() + silent.len(), ..Reach::of(&gpus) };
    let mut finding = finding("job_hung", Subject::Job(Arc::clone(holder)), sentence, evidence, reach);
    let interval_ns = stuck.iter().map(|look| look.interval_ns).max()?;
    finding.opens_after_ns = finding.opens_after_ns.max((HUNG_ROWS_MIN - 1) * interval_ns);
    Some(Candidate { opens, began: None, finding })
}

/// Which GPU of a job left its pattern first, and when.
fn who_began(JobLook { present, silent, lost, .. }: &JobLook<'_>, left: &[&WorkLook<'_>]) -> String {
    if let Some(first) = silent.iter().min_by_key(|gpu| newest_value(gpu)) {
        let is_there = |gpu: &Arc<GpuState>| gpu.identity.node() == first.identity.node();
        let whole_node = first.identity.node().filter(|_| {
            silent.iter().all(|gpu| is_there(gpu)) && !present.iter().any(|member| is_there(member.gpu))
        });
        let at = to_the_second(newest_value(first));
        return match (silent.len(), whole_node) {
            (1, _) => {
                let why = lost.get(&first.key).map_or_else(String::new, |lost| format!(": {}", lost.detail));
                format!("{} fell silent at {at}{why}", first.name())
            }
            (all, Some(node)) => format!("{node} fell silent with {all} of its GPUs at {at}"),
            (all, None) => format!("{} fell silent at {at}, and {} more", first.name(), all - 1),
        };
    }
    // Of work whole minutes are known.
    let Some(first) = left.iter().min_by_key(|look| look.worked_until_ns) else {
        return format!("who began is not known{}", held_down(present).unwrap_or_default());
    };
    let why = if first.has_no_process { ", has no process any more" } else { "" };
    let until = to_the_second(first.worked_until_ns);
    let began = format!("{} has done nothing since about {until}{why}", first.gpu.name());
    match left.len() {
        1 => format!("{began} and may be the one that they wait for"),
        all => format!("{began}, and {} more do nothing", all - 1),
    }
}

/// The GPUs that heat or the power brake held down in the last minutes, if the others were not: one of them may have begun.
fn held_down(present: &[Member<'_>]) -> Option<String> {
    let is_at = |share: Option<f64>, from: f64| share.is_some_and(|share| share >= from);
    let why = |member: &Member<'_>| {
        let window = member.window?;
        let by = [
            ("the power brake", is_at(window.brake_share, BRAKE_SHARE.0)),
            ("heat", is_at(window.heat_share, HEAT_SHARE.0)),
        ];
        Some((by.into_iter().find(|(_, holds)| *holds)?.0, member.gpu.name()))
    };
    let held: Vec<_> = present.iter().filter_map(why).collect();
    let (by, name) = held.first().filter(|_| 2 * held.len() <= present.len())?;
    let more = if held.len() > 1 { format!(" and {} more", held.len() - 1) } else { String::new() };
    Some(format!(", but {by} held down {name}{more} before"))
}

/// An instant as people read it.
fn to_the_second(at_ns: i64) -> String {
    time::format(at_ns.div_euclid(SECOND_NS).saturating_mul(SECOND_NS))
}

/// Medians of what GPUs read of their activity: metric, now, before.
fn activities(stuck: &[&WorkLook<'_>]) -> Vec<(MetricId, f64, f64)> {
    let of = |place: usize, metric: MetricId| {
        let read = stuck.iter().filter_map(|look| look.activities.get(place).copied().flatten());
        let (mut now, mut before): (Vec<f64>, Vec<f64>) = read.unzip();
        Some((metric, median(&mut now)?, median(&mut before)?))
    };
    ACTIVITIES.iter().enumerate().filter_map(|(place, (metric, _))| of(place, *metric)).collect()
}
