//! Jobs that have stalled: all their GPUs did their work, and do nothing since.

use std::sync::Arc;

use gpuvitals_core::history::GpuState;
use gpuvitals_core::integral::seconds;
use gpuvitals_core::usage::IDLE_BELOW_PCT;
use gpuvitals_core::{IdentityColumn, quantity};

use super::groups::{job_name, span};
use super::recent::UTILIZATION;
use super::rhythm::WorkRhythm;
use super::threshold::{STALLED_AFTER_NS, STALLED_LOADED_MINUTES, STALLED_PAUSES, STALLED_POD_AFTER_NS};
use super::{Began, Candidate, Evidence, Member, Reach, Subject, Survey, finding};

/// A GPU that does nothing.
struct Resting<'a> {
    gpu: &'a Arc<GpuState>,
    since_ns: i64,
    rhythm: WorkRhythm,
}

impl Resting<'_> {
    /// Whether a batch job holds it, which is there to work until it ends.
    fn is_of_batch_job(&self) -> bool {
        self.gpu.identity.get(IdentityColumn::Job).is_some()
    }
}

impl Survey<'_> {
    /// Jobs whose GPUs have all worked and do nothing now: one finding a job. A GPU that reports nothing may still work.
    pub(super) fn stalled_jobs(&self, found: &mut Vec<Candidate>) {
        let away = self.away();
        for (holder, places) in self.holders.iter().filter(|(holder, _)| !away.contains_key(*holder)) {
            let resting: Option<Vec<Resting<'_>>> =
                self.members(places).map(|member| self.resting(member)).collect();
            found.extend(resting.and_then(|gpus| self.stalled(holder, &gpus)));
        }
    }

    /// A GPU that does nothing; none: it works, or nothing is known.
    fn resting<'a>(&self, Member { gpu, window }: Member<'a>) -> Option<Resting<'a>> {
        let window = window?;
        // Minutes say that it was idle, its newest value that it still is.
        let now = self.now.fresh.recent(gpu, UTILIZATION)?.as_f64();
        let since_ns = window.idle_since.filter(|_| now < IDLE_BELOW_PCT)?.at_ns;
        Some(Resting { gpu, since_ns, rhythm: window.rhythm })
    }

    fn stalled(&self, holder: &Arc<str>, gpus: &[Resting<'_>]) -> Option<Candidate> {
        // The job stalled when the last of them stopped.
        let since_ns = gpus.iter().map(|gpu| gpu.since_ns).max()?;
        let worked = gpus.iter().filter(|gpu| gpu.rhythm.loaded_minutes >= STALLED_LOADED_MINUTES).count();
        if 2 * worked <= gpus.len() {
            return None;
        }
        // Checkpoints, evaluations and data that come late: a job that has paused before may do so again.
        let pause_ns = gpus.iter().map(|gpu| gpu.rhythm.longest_pause_ns).max()?;
        let idle_ns = self.now.fresh.now_ns - since_ns;
        let by_pauses_ns = pause_ns.saturating_mul(STALLED_PAUSES);
        let is_batch = gpus.iter().all(Resting::is_of_batch_job);
        let after_ns = if is_batch { STALLED_AFTER_NS } else { STALLED_POD_AFTER_NS };
        if idle_ns < after_ns.max(by_pauses_ns) {
            return None;
        }
        let minutes = |ns: i64| seconds(ns) / 60.0;
        let all: Vec<&Arc<GpuState>> = gpus.iter().map(|gpu| gpu.gpu).collect();
        let name = job_name(all.first().copied());
        let held = quantity::counted(gpus.len() as u64, "GPU");
        let sentence = format!(
            "{name} worked, has done nothing on its {held} for {}, and still holds {}",
            span(minutes(idle_ns)),
            if gpus.len() == 1 { "it" } else { "them" },
        );
        let idle = Evidence::derived("idle_minutes", "min", minutes(idle_ns).floor());
        let idle = if by_pauses_ns > after_ns {
            idle.beside(minutes(pause_ns).round_ties_even(), "its longest pause before")
        } else {
            idle.beside(minutes(after_ns), "limit")
        };
        let reach = Reach { concerned_gpus: gpus.len(), ..Reach::of(&all) };
        let finding = finding("job_stalled", Subject::Job(Arc::clone(holder)), sentence, vec![idle], reach);
        Some(Candidate { opens: true, began: Some(Began::exactly(since_ns)), finding })
    }
}
