//! Rows that are accepted together, as one transaction.
//!
//! Most rows are new. So they are copied straight into their table; if one of them is there already, all are merged instead, and
//! so are those of the next transactions: repeats come together. Rows of a table with a version come again and again: they are
//! always merged, and hold up no others.

use bytes::Bytes;
use futures_util::{SinkExt, TryFutureExt};
use gpuvitals_core::batch::TIMESTAMP_COLUMN;
use gpuvitals_core::catalogue::{ColumnType, TableColumn};
use gpuvitals_core::merge::Overwritten;
use gpuvitals_core::{Batch, IdentityColumn, Table, time};
use tokio_postgres::Transaction;
use tokio_postgres::error::SqlState;

use crate::encode::{CopyStream, Gathered};
use crate::error::PostgresError;
use crate::link::Lease;
use crate::names::Names;
use crate::schema::{self, ColumnKind, EXTRAS};

/// What became of rows.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Rows that were sent, each once.
    pub(crate) rows: usize,
    /// The rows that were put together with another of the same key although they differ.
    pub(crate) overwritten: Overwritten,
}

/// Writes batches, whose partitions are there; they are durable when it returns.
///
/// # Errors
/// If the server refuses, or is lost: then some or all of the rows may have become durable.
pub(crate) async fn write(
    lease: &mut Lease<'_>,
    names: &Names,
    batches: &[Batch],
) -> Result<Written, PostgresError> {
    let (mut tables, mut written) = (Vec::new(), Written::default());
    for table in Table::ALL {
        let own: Vec<&Batch> = batches.iter().filter(|batch| batch.table() == table).collect();
        let Some(mut gathered) = Gathered::new(table, &own)? else { continue };
        written.rows += gathered.rows();
        written.overwritten.add(std::mem::take(&mut gathered.overwritten));
        let subjects = names.subjects(lease, &gathered.subjects).await?;
        let identities = names.identities(lease, &gathered.identities).await?;
        tables.push((gathered, subjects, identities));
    }
    if lease.copies_directly() {
        match copy(lease, &tables).await {
            Ok(()) => return Ok(written),
            Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => lease.note_repeat(),
            Err(error) => return Err(error),
        }
    }
    written.overwritten.add(merge(lease, &tables).await?);
    Ok(written)
}

/// The rows of a table, and the numbers of their subjects and identities.
type Prepared = (Gathered, Vec<i32>, Vec<i32>);

/// Copies rows to where they stay; those of a table with a version are merged.
///
/// # Errors
/// [`SqlState::UNIQUE_VIOLATION`] if one that is copied is there already; then none was taken.
async fn copy(lease: &mut Lease<'_>, tables: &[Prepared]) -> Result<(), PostgresError> {
    let mut staged = lease.staged().clone();
    let transaction = begin(lease).await?;
    for prepared in tables {
        let (gathered, subjects, identities) = prepared;
        let table = gathered.table();
        if table.version().is_some() {
            merge_table(&transaction, &mut staged, prepared).await?;
        } else {
            copy_into(&transaction, table.name(), gathered.copy(subjects, identities)).await?;
        }
    }
    transaction.commit().await.map_err(PostgresError::statement("commit rows"))?;
    *lease.staged() = staged;
    Ok(())
}

/// Merges rows with those that are there. Returns those of these that differ.
async fn merge(lease: &mut Lease<'_>, tables: &[Prepared]) -> Result<Overwritten, PostgresError> {
    let mut overwritten = Overwritten::default();
    let mut staged = lease.staged().clone();
    let transaction = begin(lease).await?;
    for prepared in tables {
        overwritten.add(merge_table(&transaction, &mut staged, prepared).await?);
    }
    transaction.commit().await.map_err(PostgresError::statement("commit rows"))?;
    *lease.staged() = staged;
    Ok(overwritten)
}

/// Copies rows into their temporary twin, which is made unless it is among `staged`, and merges them with those that are there.
/// Returns those of these that differ.
async fn merge_table(
    transaction: &Transaction<'_>,
    staged: &mut Vec<Table>,
    (gathered, subjects, identities): &Prepared,
) -> Result<Overwritten, PostgresError> {
    let table = gathered.table();
    if !staged.contains(&table) {
        stage(transaction, table).await?;
        staged.push(table);
    }
    let copied = gathered.copy(subjects, identities);
    let names = copied.names.clone();
    copy_into(transaction, &format!("stage_{table}"), copied).await?;
    let overwritten = contradicted(transaction, table, &names, gathered.span()).await?;
    take_over(transaction, table, &names).await?;
    Ok(overwritten)
}

async fn begin<'a>(lease: &'a mut Lease<'_>) -> Result<Transaction<'a>, PostgresError> {
    lease.transaction().await.map_err(PostgresError::statement("begin a transaction"))
}

/// Makes a table's temporary twin, which is emptied with each transaction.
async fn stage(transaction: &Transaction<'_>, table: Table) -> Result<(), PostgresError> {
    let sql = format!("CREATE TEMP TABLE stage_{table} (LIKE {table}) ON COMMIT DELETE ROWS");
    transaction.batch_execute(&sql).await.map_err(PostgresError::statement("make a temporary table"))
}

async fn copy_into(
    transaction: &Transaction<'_>,
    to: &str,
    rows: CopyStream<'_>,
) -> Result<(), PostgresError> {
    let copying = PostgresError::statement("copy rows");
    let copy = format!("COPY {to} ({}) FROM STDIN BINARY", rows.names.join(", "));
    let stream = transaction.copy_in::<_, Bytes>(&copy).map_err(&copying).await?;
    let mut stream = std::pin::pin!(stream);
    for piece in rows {
        stream.feed(piece).await.map_err(&copying)?;
    }
    stream.finish().await.map_err(&copying)?;
    Ok(())
}

/// The rows of the temporary twin that have another value in a column than the row of their key that is there; in a table with a
/// version that is no contradiction. Only days of their times are looked into.
async fn contradicted(
    transaction: &Transaction<'_>,
    table: Table,
    columns: &[&'static str],
    (first_ns, last_ns): (i64, i64),
) -> Result<Overwritten, PostgresError> {
    if table.version().is_some() {
        return Ok(Overwritten::default());
    }
    let compared = columns.iter().filter_map(|name| Some((*name, unlike(table, name)?)));
    let texts = IdentityColumn::ALL.into_iter().map(IdentityColumn::name);
    let texts = texts.map(|name| (name, format!("was_named.{name} <> is_named.{name}")));
    let cases = compared.chain(texts).map(|(name, unlike)| format!("WHEN {unlike} THEN '{name}'"));
    let cases = cases.collect::<Vec<_>>().join(" ");
    let key = key(table).join(", ");
    let select = format!(
        "SELECT name, timestamp_ns, subject, count(*) OVER () FROM (
             SELECT CASE {cases} END AS name, timestamp_ns, s.name AS subject
             FROM stage_{table} later JOIN {table} earlier USING ({key})
             JOIN gpuvitals_subjects s ON s.id = subject_id
             JOIN gpuvitals_identities was_named ON was_named.id = earlier.identity_id
             JOIN gpuvitals_identities is_named ON is_named.id = later.identity_id
             WHERE earlier.{TIMESTAMP_COLUMN} BETWEEN {first_ns} AND {last_ns}) c
         WHERE name IS NOT NULL ORDER BY timestamp_ns LIMIT 1"
    );
    let failed = PostgresError::statement("compare rows");
    let Some(row) = transaction.query_opt(&select, &[]).await.map_err(&failed)? else {
        return Ok(Overwritten::default());
    };
    let (name, at, subject): (String, i64, String) = (row.get(0), row.get(1), row.get(2));
    let first = format!("{name} of {subject} at {}", time::format(at));
    Ok(Overwritten { rows: row.get::<_, i64>(3).cast_unsigned(), first: Some(first.into()) })
}

/// The condition that the later row's value of a column is another than the earlier's; null is like all.
fn unlike(table: Table, name: &str) -> Option<String> {
    if name == EXTRAS {
        return Some(format!(
            "EXISTS (SELECT FROM jsonb_each(earlier.{EXTRAS}) a JOIN jsonb_each(later.{EXTRAS}) b USING (key) \
             WHERE a.value <> b.value)"
        ));
    }
    let (_, kind) = schema::column(table, name)?;
    Some(match kind {
        // Floats that differ by less are one value, as in every merge.
        ColumnKind::Number(ColumnType::F32 | ColumnType::F64) => format!(
            "abs(earlier.{name}::float8 - later.{name}::float8) > {} * greatest(abs(earlier.{name}::float8), abs(later.{name}::float8), 1e-290)",
            Overwritten::SAME
        ),
        ColumnKind::Number(_) | ColumnKind::Text | ColumnKind::Json => {
            format!("earlier.{name} <> later.{name}")
        }
    })
}

/// Names of a table's key.
fn key(table: Table) -> Vec<&'static str> {
    ["subject_id", TIMESTAMP_COLUMN].into_iter().chain(table.key().map(|column| column.name)).collect()
}

/// Merges the rows of the temporary twin.
async fn take_over(
    transaction: &Transaction<'_>,
    table: Table,
    columns: &[&'static str],
) -> Result<(), PostgresError> {
    let names = columns.join(", ");
    let key = key(table);
    let (changes, condition): (Vec<String>, String) = match table.version() {
        None => {
            let changes = columns.iter().filter(|name| !key.contains(*name)).map(|name| change(table, name));
            (changes.collect(), String::new())
        }
        Some(TableColumn { name: version, .. }) => {
            let others =
                ["identity_id", EXTRAS].into_iter().chain(schema::columns(table).map(|(name, _)| name));
            let changes =
                others.filter(|name| !key.contains(name)).map(|name| format!("{name} = excluded.{name}"));
            (changes.collect(), format!(" WHERE {table}.{version} <= excluded.{version}"))
        }
    };
    let merge = format!(
        "INSERT INTO {table} ({names}) SELECT {names} FROM stage_{table} \
         ON CONFLICT ({}) DO UPDATE SET {}{condition}",
        key.join(", "),
        changes.join(", ")
    );
    transaction.batch_execute(&merge).await.map_err(PostgresError::statement("merge rows"))
}

/// How a column takes over a later value.
fn change(table: Table, name: &str) -> String {
    match name {
        "identity_id" => format!(
            "identity_id = CASE WHEN {table}.identity_id = excluded.identity_id THEN excluded.identity_id \
             ELSE gpuvitals_merged({table}.identity_id, excluded.identity_id) END"
        ),
        EXTRAS => {
            format!("{EXTRAS} = coalesce({table}.{EXTRAS}, '{{}}') || coalesce(excluded.{EXTRAS}, '{{}}')")
        }
        _ => format!("{name} = coalesce(excluded.{name}, {table}.{name})"),
    }
}
