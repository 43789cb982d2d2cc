//! Values by steps of time, from the rows of a history.

use std::collections::BTreeSet;

use super::tally::{Grid, Tally, labels};
use super::{BucketQuery, Buckets, History, Part, QueryError, RowsQuery};
use crate::Batch;
use crate::batch::RowKeys;

/// Rows of a page that a history is asked for.
const PAGE_ROWS: usize = 20_000;

/// Answers a question about steps of time from the merged rows of a history, page by page; none if there are more rows than so many.
///
/// # Errors
/// When the question makes no sense, its answer is too large, or the history gives no rows.
pub async fn buckets_of_rows(
    history: &(impl History + ?Sized),
    query: &BucketQuery,
    rows_max: usize,
) -> Result<Option<Part<Buckets>>, QueryError> {
    let grid = Grid::new(query.steps()?, query.start_ns, query.end_ns);
    query.check_metrics()?;
    let mut tally = Tally::new(&grid, (0, grid.steps.count - 1), query);
    let (mut after, mut read, mut missing) = (None, 0_usize, BTreeSet::new());
    loop {
        let page = RowsQuery {
            gpus: query.gpus.clone(),
            selector: query.selector.clone(),
            start_ns: Some(query.start_ns),
            end_ns: Some(query.end_ns),
            metrics: Some(query.metrics.iter().map(|metric| metric.metric().column.to_owned()).collect()),
            after: after.take(),
            ..RowsQuery::of(query.table, PAGE_ROWS)
        };
        let Part { answer: rows, missing: unread } = history.rows(page).await?;
        missing.extend(unread);
        after = rows.end();
        let found = rows.batch.as_ref().map_or(0, Batch::rows);
        read = read.saturating_add(found);
        if read > rows_max {
            return Ok(None);
        }
        if let Some(batch) = rows.batch {
            let keys = RowKeys::of(batch.records(), query.table).map_err(QueryError::failed)?;
            let labels = labels(batch.records(), query, keys);
            tally.add(batch.records(), &labels, &grid, &[])?;
            tally.buckets.check(query.aggregates.len())?;
        }
        if found < PAGE_ROWS {
            let missing = missing.into_iter().collect();
            return Ok(Some(Part { answer: tally.buckets, missing }));
        }
    }
}
