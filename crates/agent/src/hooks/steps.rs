//! The steps of jobs on this node as rows of `jobs`, by the cgroups of their processes: Slurm runs no script of root's for each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gpuvitals_core::batch::Value;
use gpuvitals_core::clock::Moment;
use gpuvitals_core::time::HOUR_NS;
use gpuvitals_core::usage::hour_of;
use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn};
use gpuvitals_sources::attribution::slurm::SlurmStep;

use super::pace::RowPace;

/// Most steps that are known; of more, new ones have no rows until others are forgotten.
const STEPS_MAX: usize = 4_096;
/// How long a step is known after its end.
const ENDED_KEPT_NS: i64 = HOUR_NS;
/// Who tells of steps.
const TOLD_BY: &str = "cgroup";

/// The steps of this node.
#[derive(Debug, Default)]
pub(super) struct KnownSteps {
    /// By job and step.
    steps: BTreeMap<(Arc<str>, Arc<str>), KnownStep>,
    /// Those that were found last.
    found: Arc<[SlurmStep]>,
}

#[derive(Debug)]
struct KnownStep {
    gpus: Option<Arc<str>>,
    start_ns: i64,
    end_ns: Option<i64>,
    as_of_ns: i64,
    /// When it was seen to begin or end, monotonic.
    turned_ns: i64,
    pace: RowPace,
}

impl KnownSteps {
    /// Takes the steps that have processes now. Those that are not among them any more have ended.
    pub(super) fn take(&mut self, found: Arc<[SlurmStep]>, now: Moment) {
        let is_kept =
            |step: &KnownStep| step.end_ns.is_none() || now.mono_ns - step.turned_ns < ENDED_KEPT_NS;
        self.steps.retain(|_, step| is_kept(step));
        if Arc::ptr_eq(&self.found, &found) {
            return;
        }
        self.found = found;
        let found = Arc::clone(&self.found);
        let of_users = || found.iter().filter(|step| step.is_of_user());
        let there: BTreeSet<(&str, &str)> = of_users().map(|step| (&*step.job, &*step.step)).collect();
        for ((job, step), known) in &mut self.steps {
            if known.end_ns.is_none() && !there.contains(&(&**job, &**step)) {
                (known.end_ns, known.as_of_ns, known.turned_ns) =
                    (Some(now.wall_ns), now.wall_ns, now.mono_ns);
                known.pace = RowPace::default();
            }
        }
        for step in of_users() {
            let key = (Arc::clone(&step.job), Arc::clone(&step.step));
            let has_room = self.steps.len() < STEPS_MAX;
            match self.steps.get_mut(&key) {
                Some(known) if known.end_ns.is_none() => known.learn(step, now),
                // The job was put back into the queue, and runs again.
                Some(known) => *known = KnownStep::of(step, now),
                None if has_room => {
                    self.steps.insert(key, KnownStep::of(step, now));
                }
                None => {}
            }
        }
    }

    /// Writes the rows that are due, until there are so many in all.
    pub(super) fn write(
        &mut self,
        builder: &mut BatchBuilder,
        host: &Identity,
        (rows_max, now): (usize, Moment),
    ) {
        for ((job, name), step) in &mut self.steps {
            if builder.rows() >= rows_max {
                return;
            }
            let row_ns = hour_of(step.end_ns.unwrap_or(now.wall_ns));
            if step.pace.is_due(row_ns, now) {
                if step.end_ns.is_none() {
                    step.as_of_ns = now.wall_ns;
                }
                step.write(builder, (&**job, &**name), (row_ns, host));
            }
        }
    }
}

impl KnownStep {
    fn of(step: &SlurmStep, now: Moment) -> Self {
        Self {
            gpus: step.gpus.clone(),
            start_ns: now.wall_ns,
            end_ns: None,
            as_of_ns: now.wall_ns,
            turned_ns: now.mono_ns,
            pace: RowPace::default(),
        }
    }

    /// Takes which GPUs it has, if that was not known: at first its processes may be Slurm's own.
    fn learn(&mut self, step: &SlurmStep, now: Moment) {
        if self.gpus.is_none() && step.gpus.is_some() {
            (self.gpus, self.as_of_ns, self.pace) = (step.gpus.clone(), now.wall_ns, RowPace::default());
        }
    }

    /// Writes its row. A value that the table refuses is left out: the rest is worth more.
    fn write(&self, builder: &mut BatchBuilder, (job, step): (&str, &str), (row_ns, host): (i64, &Identity)) {
        let mut identity = host.clone();
        let _refused = identity.set(IdentityColumn::Job, job);
        let identity = builder.intern(&identity);
        let row = builder.row(row_ns, identity);
        let state = if self.end_ns.is_some() { "ended" } else { "running" };
        let texts = [("job_id", job), ("step", step), ("told_by", TOLD_BY), ("state", state)];
        for (column, text) in texts.into_iter().chain(self.gpus.as_deref().map(|gpus| ("gpus", gpus))) {
            let _refused = builder.set_extra_text(row, column, text);
        }
        let times = [("as_of_ns", self.as_of_ns), ("start_ns", self.start_ns)];
        for (column, time_ns) in times.into_iter().chain(self.end_ns.map(|end_ns| ("end_ns", end_ns))) {
            let _refused = builder.set_extra(row, column, Value::Int(time_ns));
        }
    }
}
