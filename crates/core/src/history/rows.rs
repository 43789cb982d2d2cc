//! Questions that are put in parts: rows page by page, steps of time by GPUs and ranges.

use super::asked::{History, PAGE_ROWS, each_page};
use super::tally::{StepGrid, Tally, labels};
use super::{BucketQuery, Buckets, Part, QueryError, RowsQuery};
use crate::batch::RowKeys;

/// Answers a question about steps of time from the merged rows of a history; none if there are more rows than so many.
///
/// # Errors
/// When the question makes no sense, its answer is too large, or the history gives no rows.
pub async fn buckets_of_rows(
    history: &(impl History + ?Sized),
    query: &BucketQuery,
    rows_max: usize,
) -> Result<Option<Part<Buckets>>, QueryError> {
    let grid = StepGrid::new(query.steps()?, query.start_ns, query.end_ns);
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
    let taking = each_page(history, &rows, (PAGE_ROWS, rows_max), |batch| {
        let keys = RowKeys::of(batch.records(), query.table).map_err(QueryError::failed)?;
        let labels = labels(batch.records(), query, keys);
        tally.add(batch.records(), &labels, &grid, &[])?;
        tally.buckets.check(query.aggregates.len())
    });
    let missing = taking.await?;
    Ok(missing.map(|missing| Part { answer: tally.buckets, missing }))
}

/// A question for values by steps that is put in as many parts as it takes, none of which is too large: of fewer GPUs if it
/// names several, else of a shorter range. The parts of a GPU come in the order of time.
#[derive(Debug)]
pub struct BucketsInParts(Vec<BucketQuery>);

impl BucketsInParts {
    /// Of this question.
    pub fn new(query: BucketQuery) -> Self {
        Self(vec![query])
    }

    /// Of these questions, one after the other.
    pub fn of_all(mut queries: Vec<BucketQuery>) -> Self {
        queries.reverse();
        Self(queries)
    }

    /// The answer to the next part; none after the last.
    ///
    /// # Errors
    /// When the history gives no answer, or one step of one GPU is too much.
    pub async fn next(
        &mut self,
        history: &(impl History + ?Sized),
    ) -> Result<Option<Part<Buckets>>, QueryError> {
        while let Some(part) = self.0.pop() {
            match history.buckets(part.clone()).await {
                Err(error @ (QueryError::TooManyPoints { .. } | QueryError::TooManyValues { .. })) => {
                    let Some([first, rest]) = halves(part)? else { return Err(error) };
                    self.0.extend([rest, first]);
                }
                answer => return answer.map(Some),
            }
        }
        Ok(None)
    }
}

/// A question as two; none if it is about one step of one GPU.
fn halves(query: BucketQuery) -> Result<Option<[BucketQuery; 2]>, QueryError> {
    if query.gpus.len() > 1 {
        let mut first = query.clone();
        let gpus = first.gpus.split_off(query.gpus.len() / 2);
        return Ok(Some([first, BucketQuery { gpus, ..query }]));
    }
    let steps = query.steps()?;
    if steps.count < 2 {
        return Ok(None);
    }
    let middle_ns = steps.time(steps.count / 2);
    Ok(Some([
        BucketQuery { end_ns: middle_ns - 1, ..query.clone() },
        BucketQuery { start_ns: middle_ns, ..query },
    ]))
}
