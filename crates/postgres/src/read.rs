//! Questions, asked in SQL and answered by the server's rows, one after another.

use std::collections::BTreeSet;
use std::time::Duration;

use gpuvitals_core::batch::{BatchBuilder, RowId, TIMESTAMP_COLUMN, Value};
use gpuvitals_core::catalogue::{ColumnType, by_column};
use gpuvitals_core::history::{QueryError, Rows, RowsQuery, TakeRows};
use gpuvitals_core::{Batch, Identity, Origin, Table, ValueError};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Portal, Row, Transaction};

use crate::condition::{self, Condition, Scope};
use crate::error::PostgresError;
use crate::names::Names;
use crate::schema::{self, ColumnKind, EXTRAS};

/// Most rows of a page, with those that it passes over.
const ROWS_MAX: u64 = 16_000_000;
/// Rows up to which a total is counted; beyond there is none.
const COUNTED_MAX: i64 = 1_000_000;
/// Longest time for counting them.
const COUNTED_WITHIN: Duration = Duration::from_secs(2);
/// Rows that are held as the server sent them.
const ROWS_AT_ONCE: i32 = 500;
/// Rows of a batch of very many, each of which is given at once.
const SWEPT_ROWS: usize = 20_000;
/// Newest rows of a GPU in which its latest values are looked for.
const LATEST_ROWS: usize = 256;
/// GPUs whose latest values are read at once.
const GPUS_AT_ONCE: i64 = 64;

/// Rows of a range of time.
///
/// # Errors
/// If the range ends before it starts, or the server refuses.
pub(crate) async fn rows(
    client: &Transaction<'_>,
    names: &Names,
    query: &RowsQuery,
) -> Result<Rows, QueryError> {
    let scope = scope(query)?;
    let rows = query.offset.saturating_add(query.limit) as u64;
    if rows > ROWS_MAX {
        return Err(QueryError::TooManyRows { rows, max: ROWS_MAX });
    }
    let Some(Condition { sql: condition, numbers }) = Condition::of(client, names, scope).await? else {
        return Ok(Rows { batch: None, total: query.with_total.then_some(0) });
    };
    let (table, columns) = (query.table, columns(query));
    let order = if query.newest_first { "DESC" } else { "ASC" };
    let key = condition::key(table);
    let behind = query.after.as_ref().map(|after| condition::behind(query, after, numbers.len()));
    let (behind, texts) = behind.unwrap_or_default();
    let select = format!(
        "{} FROM {table} e JOIN gpuvitals_subjects s ON s.id = e.subject_id {condition}{behind} \
         ORDER BY e.timestamp_ns {order}, {} LIMIT {} OFFSET {}",
        selected(&columns),
        key.join(", "),
        query.limit,
        query.offset
    );
    let parameters = numbers.iter().map(|numbers| numbers as &(dyn ToSql + Sync));
    let parameters: Vec<_> = parameters.chain(texts.iter().map(|text| text as _)).collect();
    let statement = RowsStatement { table, columns: &columns, select: &select, parameters: &parameters };
    let batch = batch(client, names, &statement, |name| is_wanted(query, name)).await?;
    let total = if query.with_total { total(client, table, &condition, &numbers).await? } else { None };
    Ok(Rows { batch, total })
}

/// Gives all rows of a range to `take`, some at a time, in no order: the server sorts none.
///
/// # Errors
/// If the range ends before it starts, the server refuses, or `take` does.
pub(crate) async fn sweep(
    client: &Transaction<'_>,
    names: &Names,
    query: &RowsQuery,
    take: &TakeRows,
) -> Result<(), QueryError> {
    let scope = scope(query)?;
    let Some(Condition { sql: condition, numbers }) = Condition::of(client, names, scope).await? else {
        return Ok(());
    };
    let (table, columns) = (query.table, columns(query));
    let select = format!("{} FROM {table} e {condition}", selected(&columns));
    let parameters: Vec<_> = numbers.iter().map(|numbers| numbers as &(dyn ToSql + Sync)).collect();
    let portal = client.bind(select.as_str(), &parameters).await;
    let portal = portal.map_err(PostgresError::statement("read rows"))?;
    let is_wanted = |name: &str| is_wanted(query, name);
    let mut taken = TakenRows { builder: BatchBuilder::new(table), columns: &columns, is_wanted };
    loop {
        let has_more = taken.next(client, names, &portal).await?;
        if !has_more || taken.builder.rows() >= SWEPT_ROWS {
            let mut full = std::mem::replace(&mut taken.builder, BatchBuilder::new(table));
            full.finish(Origin::default(), 0).iter().try_for_each(|batch| take(batch))?;
        }
        if !has_more {
            return Ok(());
        }
    }
}

/// The rows that a question is about.
fn scope(query: &RowsQuery) -> Result<Scope<'_>, QueryError> {
    let (start_ns, end_ns) = (query.start_ns.unwrap_or(i64::MIN), query.end_ns.unwrap_or(i64::MAX));
    if end_ns < start_ns {
        return Err(QueryError::Range { start_ns, end_ns, step_ns: 1 });
    }
    Ok(Scope { gpus: &query.gpus, selector: &query.selector, start_ns, end_ns })
}

/// Whether a question wants a column.
fn is_wanted(query: &RowsQuery, name: &str) -> bool {
    let wanted = query.metrics.as_ref();
    wanted.is_none_or(|wanted| wanted.iter().any(|column| column == name))
        || query.table.required().any(|column| column.name == name)
}

/// The columns of the table that it wants.
fn columns(query: &RowsQuery) -> Vec<(&'static str, ColumnKind)> {
    schema::columns(query.table).filter(|(name, _)| is_wanted(query, name)).collect()
}

/// How many rows there are; none if they are more than are counted, or it takes too long. After that the transaction is of no use.
async fn total(
    client: &Transaction<'_>,
    table: Table,
    condition: &str,
    numbers: &[Vec<i32>],
) -> Result<Option<usize>, PostgresError> {
    let failed = PostgresError::statement("count rows");
    let bound = format!("SET LOCAL statement_timeout = {}", COUNTED_WITHIN.as_millis());
    client.batch_execute(&bound).await.map_err(&failed)?;
    let count = format!("SELECT count(*) FROM (SELECT FROM {table} e {condition} LIMIT {COUNTED_MAX} + 1) c");
    let parameters: Vec<_> = numbers.iter().map(|numbers| numbers as &(dyn ToSql + Sync)).collect();
    match client.query_one(&count, &parameters).await {
        Ok(row) => {
            let count: i64 = row.get(0);
            Ok(usize::try_from(count).ok().filter(|_| count <= COUNTED_MAX))
        }
        Err(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

/// The columns that [`batch`] expects, and where they come from.
fn selected(columns: &[(&str, ColumnKind)]) -> String {
    let names: Vec<String> = columns.iter().map(|(name, _)| format!("e.{name}, ")).collect();
    format!("SELECT e.{TIMESTAMP_COLUMN}, e.identity_id, {}e.{EXTRAS}::text", names.concat())
}

/// A statement whose rows are of a table.
struct RowsStatement<'a> {
    table: Table,
    /// The columns that it [selects](selected).
    columns: &'a [(&'static str, ColumnKind)],
    select: &'a str,
    parameters: &'a [&'a (dyn ToSql + Sync)],
}

/// Rows of a statement as a batch.
async fn batch(
    client: &Transaction<'_>,
    names: &Names,
    statement: &RowsStatement<'_>,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Option<Batch>, PostgresError> {
    let portal = client.bind(statement.select, statement.parameters).await;
    let portal = portal.map_err(PostgresError::statement("read rows"))?;
    let builder = BatchBuilder::new(statement.table);
    let mut taken = TakenRows { builder, columns: statement.columns, is_wanted };
    while taken.next(client, names, &portal).await? {}
    Ok(taken.builder.finish(Origin::default(), 0))
}

/// Rows of a statement that are taken so far.
struct TakenRows<'a, F> {
    builder: BatchBuilder,
    columns: &'a [(&'static str, ColumnKind)],
    /// Which of the extra columns are taken.
    is_wanted: F,
}

impl<F: Fn(&str) -> bool> TakenRows<'_, F> {
    /// Takes the next rows, and says whether there may be more. They come in pieces, so that the identities of each can be asked for in
    /// between, and other tasks use the thread.
    async fn next(
        &mut self,
        client: &Transaction<'_>,
        names: &Names,
        portal: &Portal,
    ) -> Result<bool, PostgresError> {
        let failed = PostgresError::statement("read rows");
        let found = client.query_portal(portal, ROWS_AT_ONCE).await.map_err(&failed)?;
        let numbers: BTreeSet<i32> = found.iter().map(|row| row.get(1)).collect();
        let identities = names.by_number(client, &numbers.into_iter().collect::<Vec<_>>()).await?;
        for row in &found {
            let identity = identities.get(&row.get::<_, i32>(1)).ok_or(PostgresError::Unnumbered)?;
            self.add(row, identity).map_err(&failed)?;
        }
        tokio::task::yield_now().await;
        Ok(found.len() >= ROWS_AT_ONCE.unsigned_abs() as usize)
    }

    fn add(&mut self, row: &Row, identity: &Identity) -> Result<(), tokio_postgres::Error> {
        let (builder, columns, is_wanted) = (&mut self.builder, self.columns, &self.is_wanted);
        let identity = builder.intern(identity);
        let id = builder.row(row.get(0), identity);
        for (at, (name, kind)) in columns.iter().enumerate() {
            note(name, set(builder, id, name, &RowCell { row, place: at + 2, kind: *kind })?);
        }
        let Some(extras) = row.try_get::<_, Option<&str>>(columns.len() + 2)? else { return Ok(()) };
        let extras: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(extras).unwrap_or_default();
        for (name, value) in extras.iter().filter(|(name, _)| is_wanted(name)) {
            note(name, set_extra(builder, id, name, value));
        }
        Ok(())
    }
}

/// A value of a row of a statement.
struct RowCell<'a> {
    row: &'a Row,
    place: usize,
    kind: ColumnKind,
}

fn set(
    builder: &mut BatchBuilder,
    id: RowId,
    name: &str,
    cell: &RowCell<'_>,
) -> Result<Result<(), ValueError>, tokio_postgres::Error> {
    let RowCell { row, place, kind } = *cell;
    let value = match kind {
        ColumnKind::Number(ColumnType::I32) => {
            row.try_get::<_, Option<i32>>(place)?.map(|v| Value::Int(v.into()))
        }
        ColumnKind::Number(ColumnType::I64) => row.try_get::<_, Option<i64>>(place)?.map(Value::Int),
        ColumnKind::Number(ColumnType::F32) => row.try_get::<_, Option<f32>>(place)?.map(Value::Float32),
        ColumnKind::Number(ColumnType::F64) => row.try_get::<_, Option<f64>>(place)?.map(Value::Float),
        ColumnKind::Text | ColumnKind::Json => {
            let text = row.try_get::<_, Option<&str>>(place)?;
            return Ok(text.map_or(Ok(()), |text| builder.set_extra_text(id, name, text)));
        }
    };
    let Some(value) = value else { return Ok(Ok(())) };
    Ok(match by_column(name) {
        Some(metric) => builder.set(id, metric, value),
        None => builder.set_extra(id, name, value),
    })
}

fn set_extra(
    builder: &mut BatchBuilder,
    id: RowId,
    name: &str,
    value: &serde_json::Value,
) -> Result<(), ValueError> {
    let number = value.as_i64().map(Value::Int).filter(|_| by_column(name).is_some());
    match (number.or_else(|| value.as_f64().map(Value::Float)), value.as_str(), by_column(name)) {
        // The catalogue did not know it when it was written.
        (Some(number), _, Some(metric)) => builder.set(id, metric, number),
        (Some(number), _, None) => builder.set_extra(id, name, number),
        (None, Some(text), _) => builder.set_extra_text(id, name, text),
        (None, None, _) => Ok(()),
    }
}

/// Values were checked when they came in.
fn note(name: &str, set: Result<(), ValueError>) {
    if let Err(error) = set {
        tracing::debug!(column = name, %error, "a value in PostgreSQL is not one that gpuvitals wrote");
    }
}

/// Rows of the next GPUs behind a subject: those of its newest rows that hold the latest value of a column, and its oldest row,
/// by time, of those up to `latest_ns`. With them comes the last of these subjects; none: there are no more.
///
/// # Errors
/// If the server refuses.
pub(crate) async fn latest(
    client: &Transaction<'_>,
    names: &Names,
    after: i32,
    latest_ns: i64,
) -> Result<Option<(i32, Option<Batch>)>, PostgresError> {
    let failed = PostgresError::statement("read the latest values");
    let next = format!("SELECT id FROM gpuvitals_subjects WHERE id > $1 ORDER BY id LIMIT {GPUS_AT_ONCE}");
    let subjects = client.query(&next, &[&after]).await.map_err(&failed)?;
    let subjects: Vec<i32> = subjects.iter().map(|row| row.get(0)).collect();
    let Some(last) = subjects.last().copied() else { return Ok(None) };
    // To compile a statement of so many columns takes longer than to run it.
    client.batch_execute("SET LOCAL jit = off").await.map_err(&failed)?;
    let table = Table::GpuEvents;
    let columns: Vec<(&str, ColumnKind)> = schema::columns(table).collect();
    let newest =
        columns.iter().map(|(name, _)| format!(", max(timestamp_ns) FILTER (WHERE {name} IS NOT NULL)"));
    let newest: String = newest.collect();
    let select = format!(
        "{} FROM unnest($1::int4[]) s(id) CROSS JOIN LATERAL (
             WITH newest AS MATERIALIZED (
                 SELECT * FROM {table} WHERE subject_id = s.id AND timestamp_ns <= $2
                     ORDER BY timestamp_ns DESC LIMIT {LATEST_ROWS}),
             times AS (
                 SELECT unnest(ARRAY[max(timestamp_ns){newest}]) FROM newest
                 UNION SELECT max(timestamp_ns) FROM newest, jsonb_object_keys({EXTRAS}) k(name) GROUP BY k.name)
             SELECT * FROM newest WHERE timestamp_ns IN (SELECT * FROM times)
             UNION ALL (SELECT * FROM {table} WHERE subject_id = s.id AND timestamp_ns <= $2
                 ORDER BY timestamp_ns LIMIT 1)) e
         ORDER BY e.timestamp_ns",
        selected(&columns)
    );
    let parameters: &[&(dyn ToSql + Sync)] = &[&subjects, &latest_ns];
    let statement = RowsStatement { table, columns: &columns, select: &select, parameters };
    let batch = batch(client, names, &statement, |_| true).await?;
    Ok(Some((last, batch)))
}
