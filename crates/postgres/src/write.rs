//! Rows that are accepted together, as one transaction.
//!
//! Most rows are new. So they are copied straight into their table; if one of them is there already, all are merged instead, and
//! so are those of the next transactions: repeats come together.

use bytes::Bytes;
use futures_util::{SinkExt, TryFutureExt};
use gpuvitals_core::{Batch, Table};
use tokio_postgres::Transaction;
use tokio_postgres::error::SqlState;

use crate::encode::{CopyStream, Gathered};
use crate::error::PostgresError;
use crate::link::Lease;
use crate::names::Names;
use crate::schema::EXTRAS;

/// Writes batches, whose partitions are there; they are durable when it returns. Returns the number of distinct rows.
///
/// # Errors
/// If the server refuses, or is lost: then some or all of the rows may have become durable.
pub(crate) async fn write(
    lease: &mut Lease<'_>,
    names: &Names,
    batches: &[Batch],
) -> Result<usize, PostgresError> {
    let mut tables = Vec::new();
    for table in Table::ALL {
        let own: Vec<&Batch> = batches.iter().filter(|batch| batch.table() == table).collect();
        let Some(gathered) = Gathered::new(table, &own)? else { continue };
        let subjects = names.subjects(lease, &gathered.subjects).await?;
        let identities = names.identities(lease, &gathered.identities).await?;
        tables.push((gathered, subjects, identities));
    }
    if lease.copies_directly() {
        match copy(lease, &tables).await {
            Ok(()) => return Ok(rows(&tables)),
            Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => lease.note_repeat(),
            Err(error) => return Err(error),
        }
    }
    merge(lease, &tables).await?;
    Ok(rows(&tables))
}

/// The rows of a table, and the numbers of their subjects and identities.
type Prepared = (Gathered, Vec<i32>, Vec<i32>);

fn rows(tables: &[Prepared]) -> usize {
    tables.iter().map(|(gathered, ..)| gathered.rows()).sum()
}

/// Copies rows to where they stay.
///
/// # Errors
/// [`SqlState::UNIQUE_VIOLATION`] if one of them is there already; then none was copied.
async fn copy(lease: &mut Lease<'_>, tables: &[Prepared]) -> Result<(), PostgresError> {
    let transaction = begin(lease).await?;
    for (gathered, subjects, identities) in tables {
        copy_into(&transaction, gathered.table().name(), gathered.copy(subjects, identities)).await?;
    }
    transaction.commit().await.map_err(PostgresError::statement("committing rows"))
}

/// Copies rows into temporary tables, and merges them with those that are there.
async fn merge(lease: &mut Lease<'_>, tables: &[Prepared]) -> Result<(), PostgresError> {
    let mut staged = lease.staged().clone();
    let transaction = begin(lease).await?;
    for (gathered, subjects, identities) in tables {
        let table = gathered.table();
        if !staged.contains(&table) {
            stage(&transaction, table).await?;
            staged.push(table);
        }
        let copied = gathered.copy(subjects, identities);
        let names = copied.names.clone();
        copy_into(&transaction, &format!("stage_{table}"), copied).await?;
        take_over(&transaction, table, &names).await?;
    }
    transaction.commit().await.map_err(PostgresError::statement("committing rows"))?;
    *lease.staged() = staged;
    Ok(())
}

async fn begin<'a>(lease: &'a mut Lease<'_>) -> Result<Transaction<'a>, PostgresError> {
    lease.transaction().await.map_err(PostgresError::statement("beginning a transaction"))
}

/// Makes a table's temporary twin, which is emptied with each transaction.
async fn stage(transaction: &Transaction<'_>, table: Table) -> Result<(), PostgresError> {
    let sql = format!("CREATE TEMP TABLE stage_{table} (LIKE {table}) ON COMMIT DELETE ROWS");
    transaction.batch_execute(&sql).await.map_err(PostgresError::statement("making a temporary table"))
}

async fn copy_into(
    transaction: &Transaction<'_>,
    to: &str,
    rows: CopyStream<'_>,
) -> Result<(), PostgresError> {
    let copying = PostgresError::statement("copying rows");
    let copy = format!("COPY {to} ({}) FROM STDIN BINARY", rows.names.join(", "));
    let stream = transaction.copy_in::<_, Bytes>(&copy).map_err(&copying).await?;
    let mut stream = std::pin::pin!(stream);
    for piece in rows {
        stream.feed(piece).await.map_err(&copying)?;
    }
    stream.finish().await.map_err(&copying)?;
    Ok(())
}

/// Merges the rows of the temporary twin.
async fn take_over(
    transaction: &Transaction<'_>,
    table: Table,
    columns: &[&'static str],
) -> Result<(), PostgresError> {
    let names = columns.join(", ");
    let key = ["subject_id", "timestamp_ns"].into_iter().chain(table.key().map(|column| column.name));
    let key: Vec<&str> = key.collect();
    let changes: Vec<String> =
        columns.iter().filter(|name| !key.contains(*name)).map(|name| change(table, name)).collect();
    let merge = format!(
        "INSERT INTO {table} ({names}) SELECT {names} FROM stage_{table} ON CONFLICT ({}) DO UPDATE SET {}",
        key.join(", "),
        changes.join(", ")
    );
    transaction.batch_execute(&merge).await.map_err(PostgresError::statement("merging rows"))
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
