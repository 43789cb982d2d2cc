//! Questions, asked in SQL and answered by the server's rows, one after another.

use std::collections::BTreeSet;

use futures_util::TryStreamExt;
use gpuvitals_core::batch::{BatchBuilder, RowId, TIMESTAMP_COLUMN, Value};
use gpuvitals_core::catalogue::{ColumnType, by_column};
use gpuvitals_core::history::{QueryError, Rows, RowsQuery};
use gpuvitals_core::{Batch, Origin, Table, ValueError};
use tokio_postgres::types::ToSql;
use tokio_postgres::{GenericClient, Row};

use crate::condition::{self, Condition, Scope};
use crate::error::PostgresError;
use crate::names::Names;
use crate::schema::{self, EXTRAS, Kind};

/// Newest rows of a GPU that are read for its latest values.
const LATEST_ROWS: usize = 256;

/// Rows of a range of time.
///
/// # Errors
/// If the range ends before it starts, or the server refuses.
pub(crate) async fn rows(
    client: &impl GenericClient,
    names: &Names,
    query: &RowsQuery,
) -> Result<Rows, QueryError> {
    let (start_ns, end_ns) = (query.start_ns.unwrap_or(i64::MIN), query.end_ns.unwrap_or(i64::MAX));
    if end_ns < start_ns {
        return Err(QueryError::Range { start_ns, end_ns, step_ns: 1 });
    }
    let scope = Scope { gpus: &query.gpus, selector: &query.selector, start_ns, end_ns };
    let Some(Condition { sql: condition, numbers }) = Condition::of(client, names, scope).await? else {
        return Ok(Rows { batch: None, total: query.with_total.then_some(0) });
    };
    let failed = PostgresError::statement("reading rows");
    let table = query.table;
    let mut total = None;
    if query.with_total {
        let count = format!("SELECT count(*) FROM {table} e {condition}");
        let parameters = numbers.iter().map(|numbers| numbers as &(dyn ToSql + Sync)).collect::<Vec<_>>();
        let count: i64 = client.query_one(&count, &parameters).await.map_err(&failed)?.get(0);
        total = usize::try_from(count).ok();
    }
    let is_wanted = |name: &str| {
        let wanted = query.metrics.as_ref();
        wanted.is_none_or(|wanted| wanted.iter().any(|column| column == name))
            || table.key().any(|key| key.name == name)
    };
    let columns: Vec<(&str, Kind)> = schema::columns(table).filter(|(name, _)| is_wanted(name)).collect();
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
    let found = client.query(&select, &parameters).await.map_err(&failed)?;
    let batch = batch(client, names, table, &columns, &found, is_wanted).await?;
    Ok(Rows { batch, total })
}

/// The columns that [`batch`] expects, and where they come from.
fn selected(columns: &[(&str, Kind)]) -> String {
    let names: Vec<String> = columns.iter().map(|(name, _)| format!("e.{name}, ")).collect();
    format!("SELECT e.{TIMESTAMP_COLUMN}, e.identity_id, {}e.{EXTRAS}::text", names.concat())
}

/// Found rows as a batch.
async fn batch(
    client: &impl GenericClient,
    names: &Names,
    table: Table,
    columns: &[(&'static str, Kind)],
    found: &[Row],
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Option<Batch>, PostgresError> {
    let failed = PostgresError::statement("reading rows");
    let numbers: BTreeSet<i32> = found.iter().map(|row| row.get(1)).collect();
    let identities = names.by_number(client, &numbers.into_iter().collect::<Vec<_>>()).await?;
    let mut builder = BatchBuilder::new(table);
    for row in found {
        let identity = identities.get(&row.get::<_, i32>(1)).ok_or(PostgresError::Unnumbered)?;
        let identity = builder.intern(identity);
        let id = builder.row(row.get(0), identity);
        for (place, (name, kind)) in columns.iter().enumerate() {
            let set = set(&mut builder, id, name, *kind, row, place + 2).map_err(&failed)?;
            note(name, set);
        }
        let Some(extras) = row.try_get::<_, Option<&str>>(columns.len() + 2).map_err(&failed)? else {
            continue;
        };
        let extras: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(extras).unwrap_or_default();
        for (name, value) in extras.iter().filter(|(name, _)| is_wanted(name)) {
            note(name, set_extra(&mut builder, id, name, value));
        }
    }
    Ok(builder.finish(Origin::default(), 0))
}

fn set(
    builder: &mut BatchBuilder,
    id: RowId,
    name: &str,
    kind: Kind,
    row: &Row,
    place: usize,
) -> Result<Result<(), ValueError>, tokio_postgres::Error> {
    let value = match kind {
        Kind::Number(ColumnType::I32) => row.try_get::<_, Option<i32>>(place)?.map(|v| Value::Int(v.into())),
        Kind::Number(ColumnType::I64) => row.try_get::<_, Option<i64>>(place)?.map(Value::Int),
        Kind::Number(ColumnType::F32) => row.try_get::<_, Option<f32>>(place)?.map(Value::Float32),
        Kind::Number(ColumnType::F64) => row.try_get::<_, Option<f64>>(place)?.map(Value::Float),
        Kind::Text | Kind::Json => {
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

/// The newest rows and the oldest row of every GPU, by time.
///
/// # Errors
/// If the server refuses.
pub(crate) async fn latest(
    client: &impl GenericClient,
    names: &Names,
) -> Result<Option<Batch>, PostgresError> {
    let failed = PostgresError::statement("reading the latest values");
    let table = Table::GpuEvents;
    let columns: Vec<(&str, Kind)> = schema::columns(table).collect();
    let select = format!(
        "{} FROM gpuvitals_subjects s CROSS JOIN LATERAL (
             (SELECT * FROM {table} e WHERE e.subject_id = s.id ORDER BY e.timestamp_ns DESC LIMIT {LATEST_ROWS})
             UNION ALL
             (SELECT * FROM {table} e WHERE e.subject_id = s.id ORDER BY e.timestamp_ns LIMIT 1)) e
         ORDER BY e.timestamp_ns",
        selected(&columns)
    );
    let none: [&(dyn ToSql + Sync); 0] = [];
    let found = client.query_raw(&select, none).await.map_err(&failed)?;
    let found: Vec<Row> = found.try_collect().await.map_err(&failed)?;
    batch(client, names, table, &columns, &found, |_| true).await
}
