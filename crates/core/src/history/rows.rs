//! Answers from the rows of a history, read page by page.

use std::collections::BTreeSet;

use super::tally::{Grid, Tally, labels};
use super::{BucketQuery, Buckets, History, Part, QueryError, RowsQuery};
use crate::Batch;
use crate::batch::RowKeys;

/// Rows of a page that a history is asked for.
const PAGE_ROWS: usize = 20_000;

/// Takes all rows that a question is about, in the order of time, and says what is missing; none if there are more rows than so
/// many. The question's page and limit do not count.
///
/// # Errors
/// When the history gives no rows, or `take` refuses some.
pub(crate) async fn each_page(
    history: &(impl History + ?Sized),
    query: &RowsQuery,
    rows_max: usize,
    mut take: impl FnMut(&Batch) -> Result<(), QueryError>,
) -> Result<Option<Vec<String>>, QueryError> {
    let (mut after, mut read, mut missing) = (None, 0_usize, BTreeSet::new());
    loop {
        let page = RowsQuery { after: after.take(), limit: PAGE_ROWS, ..query.clone() };
        let Part { answer: rows, missing: unread } = history.rows(page).await?;
        missing.extend(unread);
        after = rows.end();
        let found = rows.batch.as_ref().map_or(0, Batch::rows);
        read = read.saturating_add(found);
        if read > rows_max {
            return Ok(None);
        }
        rows.batch.iter().try_for_each(&mut take)?;
        if found < PAGE_ROWS {
            return Ok(Some(missing.into_iter().collect()));
        }
    }
}

/// Answers a question about steps of time from the merged rows of a history; none if there are more rows than so many.
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
    let rows = RowsQuery {
        gpus: query.gpus.clone(),
        selector: query.selector.clone(),
        start_ns: Some(query.start_ns),
        end_ns: Some(query.end_ns),
        metrics: Some(query.metrics.iter().map(|metric| metric.metric().column.to_owned()).collect()),
        ..RowsQuery::of(query.table, 0)
    };
    let taking = each_page(history, &rows, rows_max, |batch| {
        let keys = RowKeys::of(batch.records(), query.table).map_err(QueryError::failed)?;
        let labels = labels(batch.records(), query, keys);
        tally.add(batch.records(), &labels, &grid, &[])?;
        tally.buckets.check(query.aggregates.len())
    });
    let missing = taking.await?;
    Ok(missing.map(|missing| Part { answer: tally.buckets, missing }))
}
