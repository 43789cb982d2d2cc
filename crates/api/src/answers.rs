//! What histories answer: events of rows, what is told of jobs, and what several answers lack together.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::RecordBatch;
use gpuvitals_analysis::health_event::HealthEvent;
use gpuvitals_core::causes;
use gpuvitals_core::history::{ExtraValue, History, Part, QueryError, Rows, RowsQuery, batch_jobs};
use gpuvitals_core::merge::{Order, merge, without_empty};
use gpuvitals_core::time::HOUR_NS;
use gpuvitals_core::usage::BatchJobs;
use gpuvitals_core::{Batch, Origin, Table};

/// Most batch jobs that are asked for by their numbers: each row would be compared with each of more, so all rows are read then.
const TOLD_JOBS_MAX: usize = 512;
/// Most rows about jobs.
const TOLD_ROWS_MAX: usize = 100_000;
/// A job that runs has rows in every hour.
const TOLD_BACK_NS: i64 = HOUR_NS;

/// The column that says what kind of event a row is.
pub(crate) const KIND: &str = "kind";
/// Events that are looked at together for those of some kinds.
const LOOKED_AT: usize = 20_000;
/// Most events that are looked at for them.
const LOOKED_AT_MAX: usize = 200_000;

/// Health events, in order of time; none of a history that does not keep them.
///
/// # Errors
/// When the history gives no answer.
pub(crate) async fn health_events(
    history: &dyn History,
    query: RowsQuery,
) -> Result<Part<Vec<HealthEvent>>, QueryError> {
    events(history.rows(query).await)
}

/// Health events of these kinds, in order of time; none of a history that does not keep them. Of too many events the newest are looked at.
///
/// # Errors
/// When the history gives no answer.
pub(crate) async fn events_of_kinds(
    history: &dyn History,
    query: &RowsQuery,
    kinds: &[impl AsRef<str> + Sync],
) -> Result<Part<Vec<HealthEvent>>, QueryError> {
    events(rows_of_kinds(history, query, kinds).await.map(|(rows, _)| rows))
}

fn events(rows: Result<Part<Rows>, QueryError>) -> Result<Part<Vec<HealthEvent>>, QueryError> {
    match rows {
        Ok(Part { answer, missing }) => {
            let events = answer.batch.map_or_else(Vec::new, |batch| HealthEvent::of_rows(&batch));
            Ok(Part { answer: events, missing })
        }
        Err(QueryError::NotKept { .. }) => Ok(Part::whole(Vec::new())),
        Err(error) => Err(error),
    }
}

/// Rows of events of these kinds, and in words if there are too many events to look at all. A busy fleet has hundreds a minute of one kind,
/// throttling, and a page of all rows would have no other; so as many pages are looked at as it takes. Rows of other tables have no kind.
///
/// # Errors
/// When the history gives no rows.
pub(crate) async fn rows_of_kinds(
    history: &dyn History,
    query: &RowsQuery,
    kinds: &[impl AsRef<str> + Sync],
) -> Result<(Part<Rows>, Option<String>), QueryError> {
    let wanted = query.offset.saturating_add(query.limit);
    let (mut after, mut looked_at, mut found) = (query.after.clone(), 0_usize, 0_usize);
    let (mut parts, mut missing): (Vec<RecordBatch>, Vec<String>) = (Vec::new(), Vec::new());
    let mut more = None;
    while query.table == Table::GpuHealthEvents && found < wanted {
        let page = RowsQuery {
            after: after.take(),
            offset: 0,
            limit: LOOKED_AT,
            with_total: false,
            ..query.clone()
        };
        let Part { answer: rows, missing: unread } = history.rows(page).await?;
        missing = joined(missing, unread);
        let Some(batch) = &rows.batch else { break };
        looked_at += batch.rows();
        if let Some(fitting) = batch.filter(&are_of(batch, kinds)) {
            found += fitting.rows();
            parts.push(fitting.records().clone());
        }
        if batch.rows() < LOOKED_AT {
            break;
        }
        if looked_at >= LOOKED_AT_MAX && found < wanted {
            more = Some(format!("only {looked_at} events were looked at for those of these kinds"));
            break;
        }
        after = rows.end();
    }
    let order = if query.newest_first { Order::NewestGpu } else { Order::TimeGpu };
    let merged = merge(query.table, &parts, order)?.filter(|merged| merged.num_rows() > query.offset);
    let Some(merged) = merged else { return Ok((Part { answer: Rows::default(), missing }, more)) };
    let page = merged.slice(query.offset, merged.num_rows() - query.offset);
    let batch = Batch::new(query.table, without_empty(&page)?, Origin::default(), 0);
    let answer = Rows { batch: Some(batch.map_err(QueryError::failed)?), total: None };
    Ok((Part { answer, missing }, more))
}

/// Which rows are of these kinds.
fn are_of(batch: &Batch, kinds: &[impl AsRef<str>]) -> Vec<bool> {
    let column = batch.records().column_by_name(KIND);
    let is_of = |row| match column.and_then(|column| ExtraValue::of(column, row)) {
        Some(ExtraValue::Text(kind)) => kinds.iter().any(|one| *one.as_ref() == *kind),
        Some(ExtraValue::Number(_)) | None => false,
    };
    (0..batch.rows()).map(is_of).collect()
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
