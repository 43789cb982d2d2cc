//! The names, users and accounts of batch jobs, which stand beside what they used and group it.

use std::sync::Arc;

use gpuvitals_core::history::{History, Part, QueryError, batch_jobs};
use gpuvitals_core::usage::{BatchJob, BatchJobs, Holding, HoldingGroup, JobText, job_of};

/// Most rows of `jobs` that are joined.
const ROWS_MAX: usize = 1_000_000;

/// What a group is called that is put together by a label, before the label's key.
pub(super) const LABEL_GROUP: &str = "label:";

/// Of more jobs all rows of the range are read: each row would be compared with each of them.
const IDS_MAX: usize = 512;

/// What holders are put together by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JobGroup {
    /// What the rows of `gpu_usage` know.
    Held(HoldingGroup),
    /// What the rows of `jobs` know.
    Told(JobText),
}

impl JobGroup {
    /// The group of that name.
    pub(super) fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "user" => Self::Told(JobText::User),
            "account" => Self::Told(JobText::Account),
            "queue" => Self::Told(JobText::Queue),
            name => match name.strip_prefix(LABEL_GROUP) {
                Some(key) => Self::Told(JobText::Label(key.into())),
                None => Self::Held(HoldingGroup::by_name(name)?),
            },
        })
    }

    /// By what the rows of `gpu_usage` are put together for it.
    pub(super) fn held(&self) -> HoldingGroup {
        match self {
            Self::Held(group) => *group,
            Self::Told(_) => HoldingGroup::Holder,
        }
    }

    /// The text of jobs that groups holders; none: a column of their rows does.
    pub(super) fn told(&self) -> Option<&JobText> {
        match self {
            Self::Held(_) => None,
            Self::Told(text) => Some(text),
        }
    }
}

/// What is told of jobs in a range of time.
#[derive(Debug, Default)]
pub(super) struct ToldJobs {
    jobs: BatchJobs,
    /// As of when, nanoseconds UTC since 1970: the end of the range, or now.
    at_ns: i64,
    /// Keys of the labels that are shown.
    labels: Arc<[Arc<str>]>,
}

impl ToldJobs {
    /// The same, which shows these labels alone.
    pub(super) fn showing(self, labels: &Arc<[Arc<str>]>) -> Self {
        Self { labels: Arc::clone(labels), ..self }
    }

    /// Of the jobs among these holders. Where there are too many rows of them, or these are away, nothing is told and that is missing:
    /// what holders used is known without.
    ///
    /// # Errors
    /// When the history fails.
    pub(super) async fn of_holders(
        history: &dyn History,
        holders: &[Holding],
        range: (i64, i64),
        now_ns: i64,
    ) -> Result<Part<Self>, QueryError> {
        let mut ids: Vec<Arc<str>> = holders.iter().filter_map(job_in).map(Arc::from).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return Ok(Part::default());
        }
        if ids.len() > IDS_MAX {
            ids.clear();
        }
        match Self::asked(history, ids, range, now_ns).await {
            Err(error @ (QueryError::TooManyRows { .. } | QueryError::Away { .. })) => {
                Ok(Part { answer: Self::default(), missing: vec![format!("what is told of jobs: {error}")] })
            }
            told => told,
        }
    }

    /// Of all jobs of a range.
    ///
    /// # Errors
    /// When there are too many rows of them, or the history gives none.
    pub(super) async fn of_range(
        history: &dyn History,
        range: (i64, i64),
        now_ns: i64,
    ) -> Result<Part<Self>, QueryError> {
        Self::asked(history, Vec::new(), range, now_ns).await
    }

    async fn asked(
        history: &dyn History,
        ids: Vec<Arc<str>>,
        range: (i64, i64),
        now_ns: i64,
    ) -> Result<Part<Self>, QueryError> {
        let Part { answer: jobs, missing } = batch_jobs(history, ids, range, ROWS_MAX).await?;
        Ok(Part { answer: Self { jobs, at_ns: range.1.min(now_ns), labels: Arc::default() }, missing })
    }

    /// The number of the job that has this place in an array, in a cluster, or without one in any.
    pub(super) fn of_array_task(&self, cluster: Option<&str>, task: &str) -> Option<&Arc<str>> {
        self.jobs.of_array_task(cluster, task)
    }

    /// Of the job that this is about alone; none: nothing, or it is none.
    pub(super) fn of(&self, holder: &Holding) -> Option<BatchJob> {
        let job = self.jobs.get(holder.cluster.as_deref(), job_in(holder)?, self.at_ns)?;
        Some(job.with_labels(&self.labels))
    }
}

/// What the rows of `jobs` call the batch job, pod or recording that this is about alone.
fn job_in(holding: &Holding) -> Option<&str> {
    job_of(holding.holder.as_deref()?)
}
