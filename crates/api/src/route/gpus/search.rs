//! The words that a list of GPUs is searched by.

use std::collections::BTreeSet;
use std::sync::Arc;

use gpuvitals_analysis::findings::{holder_of, host_of};
use gpuvitals_core::IdentityColumn;
use gpuvitals_core::history::{GpuState, History, Part};
use gpuvitals_core::usage::{BatchJobs, holder_name};

use crate::{answers, condition};

/// What is searched for, in lower case.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// All of it, without blanks around.
    phrase: String,
    words: Vec<String>,
    /// What is told of the batch jobs that hold the GPUs: their users and names stand in no row of a GPU.
    told: BatchJobs,
    /// As of when, nanoseconds UTC since 1970.
    at_ns: i64,
}

impl Search {
    pub(super) fn of(text: &str) -> Self {
        let phrase = text.trim().to_lowercase();
        let words = phrase.split_whitespace().map(str::to_owned).collect();
        Self { phrase, words, ..Self::default() }
    }

    /// The same, which knows who runs the batch jobs of these GPUs at an instant.
    pub(super) async fn knowing(
        self,
        history: &dyn History,
        gpus: &[Arc<GpuState>],
        at_ns: i64,
    ) -> Part<Self> {
        if self.words.is_empty() {
            return Part::whole(self);
        }
        let jobs = gpus.iter().filter_map(|gpu| gpu.identity.get(IdentityColumn::Job));
        let jobs: BTreeSet<&str> = jobs.collect();
        let ids = jobs.into_iter().map(Arc::from).collect();
        let Part { answer: told, missing } = answers::told_of_jobs(history, ids, at_ns).await;
        Part { answer: Self { told, at_ns, ..self }, missing }
    }

    /// The GPUs that it finds: those that it names, with their partitions; if it names none those that have each of its words somewhere.
    pub(super) fn among<'a>(&self, mut gpus: Vec<&'a Arc<GpuState>>) -> Vec<&'a Arc<GpuState>> {
        if self.words.is_empty() {
            return gpus;
        }
        let named: Vec<&Arc<GpuState>> = gpus.iter().copied().filter(|gpu| self.names(gpu)).collect();
        if !named.is_empty() {
            return named;
        }
        gpus.retain(|gpu| self.is_found_in(gpu));
        gpus
    }

    /// Whether all of it is a name of the GPU that we print: `node / GPU 6`, `node:gpu6`, its UUID, its id.
    fn names(&self, gpu: &GpuState) -> bool {
        let name = gpu.name().to_lowercase();
        let uuid = gpu.identity.get(IdentityColumn::Uuid);
        let is_part = || name.strip_prefix(&self.phrase).is_some_and(|rest| rest.starts_with(" / "));
        let is_whole = || self.phrase.contains(" / ");
        name == self.phrase
            || gpu.key.to_lowercase() == self.phrase
            || uuid.is_some_and(|uuid| uuid.to_lowercase() == self.phrase)
            || condition::address(gpu).is_some_and(|address| address.to_lowercase() == self.phrase)
            || (is_whole() && is_part())
    }

    fn is_found_in(&self, gpu: &GpuState) -> bool {
        const SEARCHED: [IdentityColumn; 6] = [
            IdentityColumn::Node,
            IdentityColumn::Model,
            IdentityColumn::Pci,
            IdentityColumn::Pod,
            IdentityColumn::Namespace,
            IdentityColumn::Job,
        ];
        let mut text =
            format!("{}\n{}\n{}", gpu.key, gpu.name(), condition::address(gpu).unwrap_or_default());
        for column in SEARCHED {
            text.push('\n');
            text.push_str(gpu.identity.get(column).unwrap_or_default());
        }
        // As findings and silences call its host and its work, and the list of holders the latter.
        let work = holder_of(gpu);
        let holder = work.is_some().then(|| holder_name(&gpu.identity));
        for name in [host_of(gpu), work, holder].into_iter().flatten() {
            text.push('\n');
            text.push_str(&name);
        }
        let identity = &gpu.identity;
        let job = identity
            .get(IdentityColumn::Job)
            .and_then(|job| self.told.get(identity.get(IdentityColumn::Cluster), job, self.at_ns));
        for name in job.iter().flat_map(|job| [job.name(), job.user()]).flatten() {
            text.push('\n');
            text.push_str(name);
        }
        let text = text.to_lowercase();
        self.words.iter().all(|word| text.contains(word.as_str()))
    }
}
