//! The jobs of this node as hooks tell of them: who has which GPUs, and rows of `jobs`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpuvitals_core::batch::Value;
use gpuvitals_core::clock::Moment;
use gpuvitals_core::figures::Family;
use gpuvitals_core::time::{DAY_NS, HOUR_NS, MINUTE_NS};
use gpuvitals_core::usage::hour_of;
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table};
use gpuvitals_sources::attribution::{GpuName, Owner, Ownership, slurm};
use gpuvitals_sources::sampler::TargetState;
use tokio::sync::Notify;

use super::asked::SlurmWord;
use super::fact::ToldJob;
use super::heard::HeardCounts;
use super::kept::{KeptJob, KeptJobs};
use super::message::JobHook;
use super::pace::RowPace;
use super::steps::KnownSteps;

/// Most jobs that are known, by hook; of more, those that ended first are forgotten.
const JOBS_MAX: usize = 16_384;
/// How long a job is known after its end.
const ENDED_KEPT_NS: i64 = HOUR_NS;
/// A job whose end was lost is forgotten after so long.
const RUNNING_KEPT_NS: i64 = 31 * DAY_NS;
/// A recording that has not been told of for so long is over: its recorder tells again every ten seconds.
const RUN_SILENT_NS: i64 = MINUTE_NS;
/// Most rows of a batch; the rest is published at the next look.
const ROWS_MAX: usize = 500;
/// Jobs about which Slurm is asked at once; it is asked about the rest later.
const ASKED_MAX: usize = 200;
/// So often it is asked how a job ended: while its scripts run, for two minutes.
const ASKED_TIMES: u32 = 40;
/// The step of a row about a job as a whole: hooks are about no other.
const WHOLE: &str = "whole";

/// The jobs of this node.
#[derive(Debug)]
pub(crate) struct Jobs {
    ownership: Arc<Ownership>,
    host: Identity,
    origin: Origin,
    known: Mutex<KnownJobs>,
    /// Where those that run are kept for the next start, if there is a place.
    kept: Option<KeptJobs>,
    /// Tells that something is to be kept.
    pub news: Notify,
    /// Tells that a controller has told of a job.
    pub controlled: Notify,
    /// What became of messages.
    pub counts: HeardCounts,
}

#[derive(Debug, Default)]
struct KnownJobs {
    /// By hook and number: what each hook knows is kept apart.
    jobs: BTreeMap<(JobHook, String), KnownJob>,
    /// Their steps, which no hook tells of.
    steps: KnownSteps,
    /// Whether something was told since they were last kept.
    has_news: bool,
    batches: u64,
}

#[derive(Debug)]
struct KnownJob {
    told: ToldJob,
    start_ns: Option<i64>,
    end_ns: Option<i64>,
    /// When a later job was given one of its GPUs: it is over, and nobody has told of its end.
    superseded_ns: Option<i64>,
    /// When the program of a recording last set a mark.
    marked_ns: Option<i64>,
    /// How it ended, as Slurm said when it was asked, and how often it was.
    outcome: Option<&'static str>,
    asked: u32,
    as_of_ns: i64,
    /// When it was last told of, or a job in its place, monotonic.
    heard_ns: i64,
    /// When its row was last published.
    pace: RowPace,
}

impl Jobs {
    /// No job is known on this node.
    pub(crate) fn new(ownership: Arc<Ownership>, node: &str) -> Self {
        let mut host = Identity::default();
        let cluster = ownership.owners().cluster().unwrap_or_default();
        for (column, text) in [(IdentityColumn::Node, node), (IdentityColumn::Cluster, cluster)] {
            // The cluster was checked when it was set. On a node whose name cannot be in a row no row is made.
            let _refused = host.set(column, text);
        }
        let origin = Origin { node: node.into(), started_ns: Moment::now().wall_ns };
        let (known, news, controlled) = (Mutex::default(), Notify::new(), Notify::new());
        Self { ownership, host, origin, known, kept: None, news, controlled, counts: HeardCounts::default() }
    }

    /// The same, with those that an earlier agent knew to run, and kept for a later one.
    pub(crate) fn kept_in(self, kept: Option<KeptJobs>, now: Moment) -> Self {
        let running = kept.iter().flat_map(KeptJobs::read).take(JOBS_MAX);
        let running = running.map(|(told, since_ns)| (told.key(), KnownJob::since(told, since_ns, now)));
        self.known().jobs.extend(running);
        Self { kept, ..self }
    }

    /// Keeps what was told since the last time for the next start. Waits for the disk.
    pub(crate) fn keep(&self) {
        let Some(kept) = &self.kept else { return };
        kept.write(|| {
            let mut known = self.known();
            let has_news = std::mem::take(&mut known.has_news);
            // A recorder tells of its run again.
            let kept = known.jobs.values().filter(|job| job.told.hook != JobHook::Run);
            has_news.then(|| kept.filter_map(KnownJob::running_since).collect())
        });
    }

    fn known(&self) -> MutexGuard<'_, KnownJobs> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what a hook tells; whether there was room.
    pub(crate) fn hear(&self, told: ToldJob, now: Moment) -> bool {
        let mut known = self.known();
        let jobs = &mut known.jobs;
        let key = told.key();
        // What began by a prolog ends by an epilog.
        let begun = if told.hook == JobHook::Epilog {
            jobs.remove(&(JobHook::Prolog, told.id.clone()))
        } else {
            None
        };
        // A job that begins again after its end, or ends after it has begun again, is told of anew; so is one that has another prolog.
        let before = jobs.remove(&key).filter(|_| told.hook != JobHook::Prolog);
        let before = before.filter(|job| job.end_ns.is_none() || (told.is_over && begun.is_none()));
        if before.is_none() && jobs.len() >= JOBS_MAX && !forget_one(jobs) {
            return false;
        }
        if told.hook == JobHook::Prolog {
            supersede(jobs, &told, now);
        }
        let begun_ns = begun.and_then(|job| job.start_ns);
        let is_kept = told.hook != JobHook::Run;
        jobs.insert(key, KnownJob::of(told, before, begun_ns, now));
        known.has_news |= is_kept;
        true
    }

    /// The jobs by the controller's word of which Slurm knows more: those that run, which are named once, and those that are over and of which
    /// it is not known how they ended. Each of these is named some times at most.
    pub(super) fn to_ask(&self) -> Vec<String> {
        let mut known = self.known();
        let is_wanted = |job: &KnownJob| {
            let times = if job.end_ns.is_some() { ASKED_TIMES } else { 1 };
            job.told.hook == JobHook::Controller && job.outcome.is_none() && job.asked < times
        };
        let wanted = known.jobs.values_mut().filter(|job| is_wanted(job)).take(ASKED_MAX);
        wanted
            .map(|job| {
                job.asked += 1;
                job.told.id.clone()
            })
            .collect()
    }

    /// Takes what Slurm says of a job. One that has begun again meanwhile has not ended.
    pub(super) fn take_word(&self, id: &str, word: SlurmWord, now: Moment) {
        let mut known = self.known();
        let Some(job) = known.jobs.get_mut(&(JobHook::Controller, id.to_owned())) else { return };
        let outcome = word.outcome.filter(|_| job.end_ns.is_some()).or(job.outcome);
        let gpus_asked = word.gpus_asked.or(job.told.facts.gpus_asked);
        if (outcome, gpus_asked) == (job.outcome, job.told.facts.gpus_asked) {
            return;
        }
        (job.outcome, job.told.facts.gpus_asked) = (outcome, gpus_asked);
        (job.as_of_ns, job.pace) = (now.wall_ns, RowPace::default());
        known.has_news = true;
        drop(known);
        self.news.notify_one();
    }

    /// Gives the GPUs of jobs that run to these, from their prolog on, and those that no job has to recordings. The newest counts. Who has
    /// not been told of for long is forgotten.
    pub(crate) fn allot(&self, states: &[TargetState], now: Moment) {
        let gpus = states.iter().filter(|state| state.table == Table::GpuEvents);
        let mut vendors: Vec<&'static str> = gpus.map(|state| state.driver.vendor()).collect();
        vendors.sort_unstable();
        vendors.dedup();
        let mut known = self.known();
        known.jobs.retain(|_, job| job.is_kept(now));
        let mut allotted = known.allotted(JobHook::Prolog, |job| {
            slurm::gpus(job.told.facts.gpus.as_deref().unwrap_or_default(), &vendors)
        });
        allotted.extend(known.allotted(JobHook::Run, |run| {
            run.told.facts.gpu_names().map(|gpu| GpuName::Uuid(gpu.into())).collect()
        }));
        self.ownership.allot(allotted);
    }

    /// The rows that are due: of jobs and steps about which something is new, of those that run in another hour than before, and of all others
    /// every ten minutes. Of too many the rest is due the next time.
    pub(crate) fn due(&self, now: Moment) -> Option<Batch> {
        // A row needs its host.
        self.host.node()?;
        let mut known = self.known();
        let mut builder = BatchBuilder::new(Table::Jobs);
        for job in known.jobs.values_mut() {
            if builder.rows() >= ROWS_MAX {
                break;
            }
            if let Some(row_ns) = job.due(now) {
                job.write(&mut builder, row_ns, &self.host);
            }
        }
        known.steps.take(self.ownership.steps(), now);
        known.steps.write(&mut builder, &self.host, (ROWS_MAX, now));
        if builder.rows() == 0 {
            return None;
        }
        known.batches += 1;
        builder.finish(self.origin.clone(), known.batches)
    }

    /// What is known, and what became of messages.
    pub(crate) fn families(&self) -> Vec<Family> {
        let running = self.known().running(JobHook::Prolog).count();
        let help = "Jobs on this node whose prolog was told of, and no epilog yet.";
        vec![
            self.counts.family(),
            Family::gauge("gpuvitals_jobs_running", help, u64::try_from(running).unwrap_or(0)),
        ]
    }
}

impl KnownJobs {
    /// Those that have their GPUs, by who tells of that.
    fn running(&self, by: JobHook) -> impl Iterator<Item = &KnownJob> {
        let with_gpus =
            self.jobs.iter().filter(move |((hook, _), job)| *hook == by && job.over_ns().is_none());
        with_gpus.map(|(_, job)| job)
    }

    /// The GPUs that these have, the newest first.
    fn allotted(&self, by: JobHook, gpus: impl Fn(&KnownJob) -> Vec<GpuName>) -> Vec<(GpuName, Owner)> {
        let mut running: Vec<&KnownJob> = self.running(by).collect();
        running.sort_by_key(|job| std::cmp::Reverse(job.start_ns));
        let of_job = |job: &KnownJob| {
            let owner = Owner { job: Some(job.told.id.as_str().into()), ..Owner::default() };
            gpus(job).into_iter().map(move |gpu| (gpu, owner.clone()))
        };
        running.into_iter().flat_map(of_job).collect()
    }
}

/// Takes all GPUs from the jobs that have one of those of a new job: Slurm gives a GPU away when the job that had it is over.
fn supersede(jobs: &mut BTreeMap<(JobHook, String), KnownJob>, told: &ToldJob, now: Moment) {
    let given: Vec<&str> = told.facts.gpu_names().collect();
    if given.is_empty() {
        return;
    }
    for ((hook, _), job) in jobs {
        let has_one = || job.told.facts.gpu_names().any(|gpu| given.contains(&gpu));
        if *hook == JobHook::Prolog && job.over_ns().is_none() && has_one() {
            job.superseded_ns = Some(now.wall_ns);
            job.heard_ns = now.mono_ns;
        }
    }
}

/// Forgets the job that was over first; whether one was.
fn forget_one(jobs: &mut BTreeMap<(JobHook, String), KnownJob>) -> bool {
    let over = jobs.iter().filter_map(|(key, job)| Some((job.over_ns()?, key)));
    let first = over.min().map(|(_, key)| key.clone());
    first.is_some_and(|key| jobs.remove(&key).is_some())
}

impl KnownJob {
    fn of(told: ToldJob, before: Option<Self>, begun_ns: Option<i64>, now: Moment) -> Self {
        let begins_ns = match told.age_ns {
            Some(age_ns) => Some(now.wall_ns.saturating_sub(age_ns)),
            None => (!told.is_over).then_some(now.wall_ns),
        };
        let ends_ns = told.is_over.then_some(now.wall_ns);
        let marked_ns = told.mark_age_ns.map(|age_ns| now.wall_ns.saturating_sub(age_ns));
        let new = |told, start_ns, end_ns| Self {
            told,
            start_ns,
            end_ns,
            superseded_ns: None,
            marked_ns,
            outcome: None,
            asked: 0,
            as_of_ns: now.wall_ns,
            heard_ns: now.mono_ns,
            pace: RowPace::default(),
        };
        let Some(before) = before else { return new(told, begun_ns.or(begins_ns), ends_ns) };
        let told = ToldJob {
            facts: before.told.facts.and(told.facts),
            array_task: told.array_task.or(before.told.array_task),
            exit_code: told.exit_code.or(before.told.exit_code),
            ..told
        };
        new(told, before.start_ns.or(begins_ns), before.end_ns.or(ends_ns))
    }

    /// As an earlier agent knew it, running since then.
    fn since(told: ToldJob, since_ns: i64, now: Moment) -> Self {
        Self {
            told,
            start_ns: Some(since_ns),
            end_ns: None,
            superseded_ns: None,
            marked_ns: None,
            outcome: None,
            asked: 0,
            as_of_ns: now.wall_ns,
            heard_ns: now.mono_ns.saturating_sub(now.wall_ns.saturating_sub(since_ns).max(0)),
            pace: RowPace::default(),
        }
    }

    /// What was told of it, and since when it runs; none if it does not.
    fn running_since(&self) -> Option<KeptJob> {
        let since_ns = self.start_ns.filter(|_| self.over_ns().is_none())?;
        Some((self.told.clone(), since_ns))
    }

    /// Since when it does not run any more.
    fn over_ns(&self) -> Option<i64> {
        self.end_ns.or(self.superseded_ns)
    }

    fn is_kept(&self, now: Moment) -> bool {
        let kept_ns = match (self.over_ns(), self.told.hook) {
            (Some(_), _) => ENDED_KEPT_NS,
            (None, JobHook::Run) => RUN_SILENT_NS,
            (None, _) => RUNNING_KEPT_NS,
        };
        now.mono_ns - self.heard_ns < kept_ns
    }

    /// The time of its row, if that is to be published now: the hour in which it runs, or ended. Of one whose end nobody has told there is
    /// nothing to say any more.
    fn due(&mut self, now: Moment) -> Option<i64> {
        if self.superseded_ns.is_some() {
            return None;
        }
        let row_ns = hour_of(self.end_ns.unwrap_or(now.wall_ns));
        if !self.pace.is_due(row_ns, now) {
            return None;
        }
        if self.end_ns.is_none() {
            self.as_of_ns = now.wall_ns;
        }
        Some(row_ns)
    }

    /// Writes its row. A value that the table refuses is left out: the rest is worth more.
    fn write(&self, builder: &mut BatchBuilder, row_ns: i64, host: &Identity) {
        let mut identity = host.clone();
        let _refused = identity.set(IdentityColumn::Job, &self.told.id);
        let identity = builder.intern(&identity);
        let row = builder.row(row_ns, identity);
        let ended = self.outcome.unwrap_or("ended");
        let state = if self.end_ns.is_some() { ended } else { "running" };
        for (column, text) in [
            ("job_id", Some(self.told.id.as_str())),
            ("step", Some(WHOLE)),
            ("told_by", Some(self.told.hook.name())),
            ("state", Some(state)),
            ("array_task", self.told.array_task.as_deref()),
            ("exit_code", self.told.exit_code.as_deref()),
        ] {
            if let Some(text) = text {
                let _refused = builder.set_extra_text(row, column, text);
            }
        }
        let times = [
            ("as_of_ns", Some(self.as_of_ns)),
            ("start_ns", self.start_ns),
            ("end_ns", self.end_ns),
            ("marked_ns", self.marked_ns),
        ];
        for (column, time_ns) in times {
            if let Some(time_ns) = time_ns {
                let _refused = builder.set_extra(row, column, Value::Int(time_ns));
            }
        }
        self.told.facts.write(builder, row);
    }
}

#[cfg(test)]
mod tests;
