//! Jobs that stand still: all their GPUs say that they are busy, and together do far less than before. A kernel that waits for the other
//! ranks of a collective keeps its GPU busy for ever.

use std::collections::HashMap;
use std::sync::Arc;

use gpuvitals_core::history::GpuState;
use gpuvitals_core::time::MINUTE_NS;
use gpuvitals_core::{MetricId, quantity};

use super::level::{ACTIVITIES, WorkLevel};
use super::recent::{POWERS, UTILIZATION};
use super::survey::holder_of;
use super::threshold::{
    ACTIVITY_LEVEL_MIN_PCT, HUNG_ACTIVITY, HUNG_BUSY_PCT, HUNG_GPUS_MIN, HUNG_OTHERS_SHARE, HUNG_POWER,
    LOADED_FROM_PCT, LOADED_MINUTES_MIN,
};
use super::throttling::percent;
use super::{Candidate, Evidence, Member, Reach, Subject, Survey, finding};
use crate::robust::median;

/// How long ago a GPU fell silent at most, if that is why its job stands still.
const LEFT_WITHIN_NS: i64 = 15 * MINUTE_NS;
/// A GPU whose rows are older than those of its job by this part of the age at which it counts as silent has fallen silent: the others
/// need not stand still so long before that is seen.
const BEHIND_PART: i64 = 4;
const BEFORE: &str = "before";

/// A GPU of a job now, beside its own work of before.
struct Look<'a> {
    gpu: &'a Arc<GpuState>,
    utilization: f64,
    /// Power in W, now and before.
    power: (f64, f64),
    /// Of each of [`ACTIVITIES`], now and before; none: it is not read, or was hardly anything.
    activities: [Option<(f64, f64)>; ACTIVITIES.len()],
}

impl Look<'_> {
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

impl<'a> Survey<'a> {
    /// Jobs that stand still: one finding a job.
    pub(super) fn hung_jobs(&self, found: &mut Vec<Candidate>) {
        let mut silent = self.fell_silent();
        for (holder, places) in &self.holders {
            let newest_ns = self.members(places).map(|member| member.gpu.last_seen_ns).max();
            let behind_ns = self.now.fresh.stale_after_ns / BEHIND_PART;
            let is_behind =
                |gpu: &GpuState| newest_ns.is_some_and(|newest| newest - gpu.last_seen_ns > behind_ns);
            let (behind, present): (Vec<Member<'a>>, Vec<Member<'a>>) =
                self.members(places).partition(|member| is_behind(member.gpu));
            let mut silent = silent.remove(holder).unwrap_or_default();
            silent.extend(behind.iter().map(|member| member.gpu));
            if present.len() + silent.len() >= HUNG_GPUS_MIN {
                let looks: Vec<Look<'a>> = present.iter().filter_map(|member| self.look(*member)).collect();
                found.extend(hung(holder, &looks, present.len(), &silent));
            }
        }
    }

    /// The GPUs of each job that fell silent lately.
    fn fell_silent(&self) -> HashMap<Arc<str>, Vec<&'a Arc<GpuState>>> {
        let mut silent = HashMap::<_, Vec<_>>::new();
        let (fresh, gpus) = (self.now.fresh, self.now.gpus);
        for gpu in gpus.iter().filter(|gpu| fresh.is_old(gpu.last_seen_ns)) {
            if fresh.now_ns - gpu.last_seen_ns <= LEFT_WITHIN_NS
                && let Some(holder) = holder_of(gpu)
            {
                silent.entry(holder).or_default().push(gpu);
            }
        }
        silent
    }

    fn look(&self, Member { gpu, window }: Member<'a>) -> Option<Look<'a>> {
        let WorkLevel { minutes, power_w, activities } = window?.level?;
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
        Some(Look { gpu, utilization: now(UTILIZATION)?, power: (power, power_w), activities: compared })
    }
}

/// A job of so many GPUs that report, and of those that fell silent.
fn hung<'a>(
    holder: &Arc<str>,
    looks: &[Look<'a>],
    present: usize,
    silent: &[&'a Arc<GpuState>],
) -> Option<Candidate> {
    let stuck: Vec<&Look<'a>> = looks.iter().filter(|look| look.is_stuck()).collect();
    let left: Vec<&Look<'a>> = looks.iter().filter(|look| look.has_left()).collect();
    #[expect(clippy::cast_precision_loss, reason = "numbers of GPUs")]
    let others_max = (present as f64 * HUNG_OTHERS_SHARE).max(1.0);
    #[expect(clippy::cast_precision_loss, reason = "numbers of GPUs")]
    let has_many_others = (present - stuck.len()) as f64 > others_max || silent.len() > stuck.len();
    let works = looks.iter().any(|look| !look.is_stuck() && !look.has_left());
    if stuck.is_empty() || works || has_many_others {
        return None;
    }
    let activities = activities(&stuck);
    if activities.iter().any(|(_, now, before)| now / before > HUNG_ACTIVITY) {
        return None;
    }
    let middle =
        |of: fn(&Look<'a>) -> f64| median(&mut stuck.iter().map(|look| of(look)).collect::<Vec<_>>());
    let (share, now_w, before_w) =
        (middle(Look::power_share)?, middle(|look| look.power.0)?, middle(|look| look.power.1)?);
    let opens = stuck.iter().all(|look| look.power_share() <= HUNG_POWER.0);
    let name = super::groups::job_name(stuck.first().map(|look| look.gpu));
    let is_sure = !activities.is_empty();
    let sentence = format!(
        "{name} {}: {} {} that they are busy, with {} of the power of before; {}{}",
        if is_sure { "stands still" } else { "seems to stand still" },
        quantity::counted(stuck.len() as u64, "GPU"),
        if stuck.len() == 1 { "says" } else { "say" },
        percent(share),
        who_began(silent, &left),
        if is_sure { "" } else { " (only utilisation and power are read, and some work looks alike)" },
    );
    let mut evidence = vec![
        Evidence::derived("power_w", "W", now_w.round()).beside(before_w.round(), BEFORE),
        Evidence::derived("utilization_pct", "%", middle(|look| look.utilization)?.round()),
    ];
    evidence.extend(activities.into_iter().map(|(metric, now, before)| {
        let metric = metric.metric();
        Evidence::derived(metric.column, metric.unit.as_str(), now).beside(before, BEFORE)
    }));
    let gpus: Vec<&Arc<GpuState>> = looks.iter().map(|look| look.gpu).collect();
    let reach = Reach { concerned_gpus: present + silent.len(), ..Reach::of(&gpus) };
    let finding = finding("job_hung", Subject::Job(Arc::clone(holder)), sentence, evidence, reach);
    Some(Candidate { opens, began: None, finding })
}

/// Which GPU of a job left its pattern first.
fn who_began(silent: &[&Arc<GpuState>], left: &[&Look<'_>]) -> String {
    if let Some(first) = silent.iter().min_by_key(|gpu| gpu.last_seen_ns) {
        let node = first.identity.node();
        return match silent.len() {
            1 => format!("{} fell silent", first.name()),
            all if let Some(node) = node
                && silent.iter().all(|gpu| gpu.identity.node() == Some(node)) =>
            {
                format!("{node} fell silent with {all} of its GPUs")
            }
            all => format!("{} fell silent, and {} more", first.name(), all - 1),
        };
    }
    match left {
        [] => "who began is not known".to_owned(),
        [one] => format!("{} does nothing and may be the one that they wait for", one.gpu.name()),
        [one, more @ ..] => format!("{} and {} more do nothing", one.gpu.name(), more.len()),
    }
}

/// Medians of what GPUs read of their activity: metric, now, before.
fn activities(stuck: &[&Look<'_>]) -> Vec<(MetricId, f64, f64)> {
    let of = |place: usize, metric: MetricId| {
        let read = stuck.iter().filter_map(|look| look.activities.get(place).copied().flatten());
        let (mut now, mut before): (Vec<f64>, Vec<f64>) = read.unzip();
        Some((metric, median(&mut now)?, median(&mut before)?))
    };
    ACTIVITIES.iter().enumerate().filter_map(|(place, (metric, _))| of(place, *metric)).collect()
}
