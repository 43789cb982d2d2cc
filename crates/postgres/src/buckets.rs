//! Values by steps of time.
//!
//! Smallest, largest, mean and count are put together by the server: one row of its answer is the cells of a step, a GPU and an
//! identity, as far as the question tells them apart. For quantiles, newest values and rates its rows come here one by one,
//! narrow ones, and are counted as they come.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::pin::pin;
use std::sync::Arc;

use foldhash::fast::RandomState;
use futures_util::TryStreamExt;
use gpuvitals_core::IdentityColumn;
use gpuvitals_core::history::{
    Aggregate, BucketQuery, Buckets, Cell, GroupColumn, GroupName, QueryError, TimeSteps, Track,
};
use tokio_postgres::types::ToSql;
use tokio_postgres::{GenericClient, Row};

use crate::condition::{Condition, Scope};
use crate::error::PostgresError;
use crate::names::{Names, all_subjects};

/// Rows that are counted between two looks at the size of the answer.
const ROWS_BETWEEN_CHECKS: usize = 2_000;

/// Answers the question.
///
/// # Errors
/// When the question makes no sense or its answer is too large (see [`QueryError`]), or the server refuses.
pub(crate) async fn buckets(
    client: &impl GenericClient,
    names: &Names,
    query: &BucketQuery,
) -> Result<Buckets, QueryError> {
    let steps = query.steps()?;
    query.check_metrics()?;
    let buckets = Buckets::new(steps, &query.metrics, &query.aggregates);
    let BucketQuery { gpus, selector, start_ns, end_ns, .. } = query;
    let scope = Scope { gpus, selector, start_ns: *start_ns, end_ns: *end_ns };
    let Some(condition) = Condition::of(client, names, scope).await? else { return Ok(buckets) };
    let form = AnswerForm::of(query);
    let subjects = if form.by_subject { all_subjects(client).await? } else { HashMap::default() };
    let failed = PostgresError::statement("read values");
    let statement = form.statement(query, steps, &condition.sql);
    let parameters = condition.numbers.iter().map(|numbers| numbers as &(dyn ToSql + Sync));
    let found = client.query_raw(&statement, parameters).await.map_err(&failed)?;
    let mut found = pin!(found.try_chunks(ROWS_BETWEEN_CHECKS));
    let mut series = Series { query, subjects, known: HashMap::default() };
    let mut buckets = buckets;
    while let Some(rows) = found.try_next().await.map_err(|error| failed(error.1))? {
        series.identify(&rows, &form, &mut buckets)?;
        for row in &rows {
            form.count(row, &series, &mut buckets).map_err(&failed)?;
        }
        buckets.check(query.aggregates.len())?;
        // Others use this thread too.
        tokio::task::yield_now().await;
    }
    buckets.check(query.aggregates.len())?;
    Ok(buckets)
}

/// What a row of the server's answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerRow {
    /// The cells of a step.
    Cells,
    /// A row of the table.
    Row,
    /// A row of the table, behind the earlier ones of its GPU.
    Track,
}

/// What the rows of the server's answer are, and what tells them apart.
struct AnswerForm {
    kind: AnswerRow,
    by_subject: bool,
    /// The columns of the identity that tell groups apart.
    texts: Vec<IdentityColumn>,
}

impl AnswerForm {
    fn of(query: &BucketQuery) -> Self {
        let plain = [Aggregate::Min, Aggregate::Max, Aggregate::Mean, Aggregate::Count];
        let kind = if query.aggregates.iter().copied().any(Aggregate::needs_tracks) {
            AnswerRow::Track
        } else if query.aggregates.iter().all(|aggregate| plain.contains(aggregate)) {
            AnswerRow::Cells
        } else {
            AnswerRow::Row
        };
        let text = |column: &GroupColumn| match column {
            GroupColumn::Identity(column) => Some(*column),
            GroupColumn::Gpu => None,
        };
        Self {
            kind,
            by_subject: kind == AnswerRow::Track || query.group_by.contains(&GroupColumn::Gpu),
            texts: query.group_by.iter().filter_map(text).collect(),
        }
    }

    /// Columns of the answer for each metric.
    fn width(&self) -> usize {
        if self.kind == AnswerRow::Cells { 4 } else { 1 }
    }

    /// Columns: time of the row or number of the step; subject and identity, 0 where they make no difference; then of each metric
    /// its value, or count, sum, smallest and largest; then the texts of the identity.
    fn statement(&self, query: &BucketQuery, steps: TimeSteps, condition: &str) -> String {
        let subject = if self.by_subject { "e.subject_id" } else { "0" };
        let identity = if self.texts.is_empty() { "0" } else { "e.identity_id" };
        let of_metric = |column: &str| {
            if self.kind == AnswerRow::Cells {
                format!(
                    ", count({column}), sum({column}::float8), min({column})::float8, max({column})::float8"
                )
            } else {
                format!(", {column}::float8")
            }
        };
        let metrics = query.metrics.iter().map(|metric| of_metric(&format!("e.{}", metric.metric().column)));
        let metrics: String = metrics.collect();
        let (step, grouped) = if self.kind == AnswerRow::Cells {
            let TimeSteps { origin_ns, step_ns, .. } = steps;
            // No step begins before the origin, and none of the differences overflows: see `TimeSteps::new`.
            (format!("(e.timestamp_ns - ({origin_ns})) / {step_ns}"), " GROUP BY 1, 2, 3")
        } else {
            ("e.timestamp_ns".to_owned(), "")
        };
        let own = format!(
            "SELECT {step} AS time, {subject} AS subject, {identity} AS identity{metrics} FROM {} e {condition}{grouped}",
            query.table
        );
        // A track takes the values of a GPU in the order of their times.
        let order = if self.kind == AnswerRow::Track { " ORDER BY subject, time" } else { "" };
        if self.texts.is_empty() {
            return own + order;
        }
        let texts: Vec<String> = self.texts.iter().map(|column| format!(", i.{}", column.name())).collect();
        let texts = texts.concat();
        format!("SELECT c.*{texts} FROM ({own}) c JOIN gpuvitals_identities i ON i.id = c.identity{order}")
    }

    fn count(
        &self,
        row: &Row,
        series: &Series<'_>,
        buckets: &mut Buckets,
    ) -> Result<(), tokio_postgres::Error> {
        let Some(&(group, lane)) = series.known.get(&whose(row)?) else { return Ok(()) };
        let steps = buckets.steps();
        let time: i64 = row.try_get(0)?;
        let step = if self.kind == AnswerRow::Cells {
            usize::try_from(time).unwrap_or(usize::MAX)
        } else {
            steps.at(time)
        };
        if step >= steps.count {
            return Ok(());
        }
        let (place, track) = (buckets.place(group, step), buckets.place(lane, step));
        for (metric, measured) in buckets.metrics_mut().iter_mut().enumerate() {
            let column = 3 + self.width() * metric;
            let cell =
                if self.kind == AnswerRow::Cells { cell(row, column)? } else { one(row, column, time)? };
            let Some(cell) = cell else { continue };
            measured.cells.get_mut(place).into_iter().for_each(|own| own.merge(&cell));
            measured.sketches.get_mut(place).into_iter().for_each(|sketch| sketch.add(cell.last));
            measured.tracks.get_mut(track).into_iter().for_each(|own| own.merge(&Track::of(time, cell.last)));
        }
        Ok(())
    }
}

/// Numbers of subject and identity of a row of the answer.
fn whose(row: &Row) -> Result<(i32, i32), tokio_postgres::Error> {
    Ok((row.try_get(1)?, row.try_get(2)?))
}

/// The cell whose figures begin at this column. Nobody asked for the newest value.
fn cell(row: &Row, column: usize) -> Result<Option<Cell>, tokio_postgres::Error> {
    let count: i64 = row.try_get(column)?;
    let Some(sum) = row.try_get::<_, Option<f64>>(column + 1)? else { return Ok(None) };
    let (min, max) = (row.try_get(column + 2)?, row.try_get(column + 3)?);
    Ok(Some(Cell { count: count.unsigned_abs(), sum, min, max, ..Cell::EMPTY }))
}

/// The cell of one value.
fn one(row: &Row, column: usize, time_ns: i64) -> Result<Option<Cell>, tokio_postgres::Error> {
    let value: Option<f64> = row.try_get(column)?;
    let of = |value| Cell { count: 1, sum: value, min: value, max: value, last_ns: time_ns, last: value };
    Ok(value.map(of))
}

/// The series of the answer.
struct Series<'a> {
    query: &'a BucketQuery,
    subjects: HashMap<i32, Arc<str>, RandomState>,
    /// Group and lane, by the numbers of subject and identity.
    known: HashMap<(i32, i32), (usize, usize), RandomState>,
}

impl Series<'_> {
    /// Finds the groups of rows, and makes those that are new.
    fn identify(&mut self, rows: &[Row], form: &AnswerForm, buckets: &mut Buckets) -> Result<(), QueryError> {
        let failed = PostgresError::statement("read values");
        for row in rows {
            let whose = whose(row).map_err(&failed)?;
            let Entry::Vacant(place) = self.known.entry(whose) else { continue };
            let gpu = self.subjects.get(&whose.0);
            let mut texts = 3 + form.width() * self.query.metrics.len()..;
            let text = |column: &GroupColumn| match column {
                GroupColumn::Gpu => Ok(gpu.cloned()),
                GroupColumn::Identity(_) => {
                    let text: Option<&str> = row.try_get(texts.next().unwrap_or_default())?;
                    Ok(text.map(Arc::from))
                }
            };
            let group: Result<GroupName, tokio_postgres::Error> =
                self.query.group_by.iter().map(text).collect();
            let group = buckets.group(&group.map_err(&failed)?);
            let lane =
                gpu.filter(|_| form.kind == AnswerRow::Track).map_or(0, |gpu| buckets.lane(group, gpu));
            place.insert((group, lane));
            buckets.check_points(self.query.aggregates.len())?;
        }
        Ok(())
    }
}
