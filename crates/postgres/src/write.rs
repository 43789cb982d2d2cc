//! Rows that are accepted together, as one transaction.

use futures_util::{SinkExt, TryFutureExt};
use gpuvitals_core::{Batch, Table};
use tokio_postgres::Transaction;

use crate::encode::{Gathered, Keyed};
use crate::error::PostgresError;
use crate::link::Lease;
use crate::names::Names;
use crate::partition::Partitions;
use crate::schema::EXTRAS;

/// Writes batches; they are durable when it returns. Returns the number of distinct rows.
///
/// # Errors
/// If the server refuses, or is lost: then some or all of the rows may have become durable.
pub(crate) async fn write(
    lease: &mut Lease<'_>,
    names: &Names,
    partitions: &Partitions,
    batches: &[Batch],
) -> Result<usize, PostgresError> {
    let mut tables = Vec::new();
    for table in Table::ALL {
        let own: Vec<&Batch> = batches.iter().filter(|batch| batch.table() == table).collect();
        if own.is_empty() {
            continue;
        }
        let keyed = Keyed::new(table, &own)?;
        let subjects = names.subjects(lease, &keyed.subjects).await?;
        let gathered = keyed.gather(&subjects);
        let identities = names.identities(lease, &gathered.identities).await?;
        partitions.make(lease, table, gathered.times()).await?;
        tables.push((gathered, identities));
    }
    let mut staged = lease.staged().clone();
    let transaction =
        lease.transaction().await.map_err(PostgresError::statement("beginning a transaction"))?;
    for (gathered, identities) in &tables {
        if !staged.contains(&gathered.table()) {
            stage(&transaction, gathered.table()).await?;
            staged.push(gathered.table());
        }
        merge(&transaction, gathered, identities).await?;
    }
    transaction.commit().await.map_err(PostgresError::statement("committing rows"))?;
    *lease.staged() = staged;
    Ok(tables.iter().map(|(gathered, _)| gathered.rows()).sum())
}

/// Makes a table's temporary twin, which is emptied with each transaction.
async fn stage(transaction: &Transaction<'_>, table: Table) -> Result<(), PostgresError> {
    let sql = format!("CREATE TEMP TABLE stage_{table} (LIKE {table}) ON COMMIT DELETE ROWS");
    transaction.batch_execute(&sql).await.map_err(PostgresError::statement("making a temporary table"))
}

async fn merge(
    transaction: &Transaction<'_>,
    gathered: &Gathered<'_>,
    identities: &[i32],
) -> Result<(), PostgresError> {
    let table = gathered.table();
    let (columns, pieces) = gathered.copy(identities);
    let names = columns.join(", ");
    let copying = PostgresError::statement("copying rows");
    let copy = format!("COPY stage_{table} ({names}) FROM STDIN BINARY");
    let stream = transaction.copy_in::<_, bytes::Bytes>(&copy).map_err(&copying).await?;
    let mut stream = std::pin::pin!(stream);
    for piece in pieces {
        stream.feed(piece).await.map_err(&copying)?;
    }
    stream.finish().await.map_err(&copying)?;
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
