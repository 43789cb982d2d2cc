//! What histories answer: events of rows, what is told of jobs, and what several answers lack together.

use std::collections::HashSet;
use std::sync::Arc;

use gpuvitals_analysis::health_event::HealthEvent;
use gpuvitals_core::causes;
use gpuvitals_core::history::{History, Part, QueryError, RowsQuery, batch_jobs};
use gpuvitals_core::time::HOUR_NS;
use gpuvitals_core::usage::BatchJobs;

/// Most batch jobs that are asked for by their numbers: each row would be compared with each of more, so all rows are read then.
const TOLD_JOBS_MAX: usize = 512;
/// Most rows about jobs.
const TOLD_ROWS_MAX: usize = 100_000;
/// A job that runs has rows in every hour.
const TOLD_BACK_NS: i64 = HOUR_NS;

/// Health events, in order of time; none of a history that does not keep them.
///
/// # Errors
/// When the history gives no answer.
pub(crate) async fn health_events(
    history: &dyn History,
    query: RowsQuery,
) -> Result<Part<Vec<HealthEvent>>, QueryError> {
    match history.rows(query).await {
        Ok(Part { answer, missing }) => {
            let events = answer.batch.map_or_else(Vec::new, |batch| HealthEvent::of_rows(&batch));
            Ok(Part { answer: events, missing })
        }
        Err(QueryError::NotKept { .. }) => Ok(Part::whole(Vec::new())),
        Err(error) => Err(error),
    }
}

/// What is told of jobs that run at an instant, by their numbers, each once. Where that cannot be read nothing is told, and is missing.
pub(crate) async fn told_of_jobs(
    history: &dyn History,
    mut ids: Vec<Arc<str>>,
    at_ns: i64,
) -> Part<BatchJobs> {
    if ids.is_empty() {
        return Part::default();
    }
    if ids.len() > TOLD_JOBS_MAX {
        ids.clear();
    }
    let range = (at_ns.saturating_sub(TOLD_BACK_NS), at_ns);
    batch_jobs(history, ids, range, TOLD_ROWS_MAX).await.unwrap_or_else(|error| {
        tracing::debug!(reason = causes(&error), "what is told of jobs cannot be read");
        Part { answer: BatchJobs::default(), missing: vec![format!("what is told of jobs: {error}")] }
    })
}

/// What two answers lack, each once.
pub(crate) fn joined(mut missing: Vec<String>, more: Vec<String>) -> Vec<String> {
    missing.extend(more);
    let mut seen = HashSet::new();
    missing.retain(|words| seen.insert(words.clone()));
    missing
}
