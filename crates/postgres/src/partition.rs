//! A partition a day: made ahead, and dropped when it is too old.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpuvitals_core::{Batch, Table, causes, time};
use tokio_postgres::Client;

use crate::error::PostgresError;
use crate::schema;

const DAY_NS: i64 = 86_400_000_000_000;

/// The partitions that are known to be there.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    known: Mutex<HashMap<Table, Days>>,
    /// Age at which a partition is dropped; none: never.
    keep: Option<Duration>,
}

/// Days since 1970 of a table.
#[derive(Debug)]
struct Days {
    /// Those that have a partition.
    made: HashSet<i64>,
    /// The first day that is kept.
    first: i64,
}

impl Partitions {
    pub(crate) fn new(keep: Option<Duration>) -> Self {
        Self { known: Mutex::default(), keep }
    }

    /// Looks for all of them anew when they are needed.
    pub(crate) fn forget(&self) {
        self.lock().clear();
    }

    /// Makes the partitions of rows. Returns the rows without those that are too old to be kept.
    ///
    /// # Errors
    /// If the server refuses.
    pub(crate) async fn make_for(
        &self,
        client: &mut Client,
        mut batches: Vec<Batch>,
    ) -> Result<Vec<Batch>, PostgresError> {
        for table in Table::ALL {
            let own = batches.iter().filter(|batch| batch.table() == table);
            let wanted: HashSet<i64> =
                own.flat_map(Batch::timestamps).map(|time_ns| day_of(*time_ns)).collect();
            if wanted.is_empty() {
                continue;
            }
            let first = self.make(client, table, &wanted).await?;
            if wanted.iter().any(|day| *day < first) {
                let young = |batch: Batch| {
                    let keep = batch.timestamps().iter().map(|time_ns| day_of(*time_ns) >= first);
                    if batch.table() == table { batch.filter(&keep.collect::<Vec<_>>()) } else { Some(batch) }
                };
                batches = batches.into_iter().filter_map(young).collect();
            }
        }
        Ok(batches)
    }

    /// Makes the partitions of these days that are kept, and of the days after them, if they are missing, and drops those
    /// that are not kept. Returns the first day that is kept.
    async fn make(
        &self,
        client: &mut Client,
        table: Table,
        wanted: &HashSet<i64>,
    ) -> Result<i64, PostgresError> {
        if let Some(days) = self.lock().get(&table)
            && wanted.iter().all(|day| *day < days.first || days.made.contains(day))
        {
            return Ok(days.first);
        }
        let mut first = i64::MIN;
        let mut old = Vec::new();
        if let Some(keep) = self.keep.and_then(|keep| i64::try_from(keep.as_nanos()).ok()) {
            let there = partitions(client, table).await?;
            let newest = wanted.iter().copied().max().max(newest_filled(client, &there).await?);
            let newest_ns = newest.unwrap_or_default().saturating_mul(DAY_NS);
            first = day_of(newest_ns.saturating_sub(keep));
            old.extend(there.into_iter().filter(|(day, _)| *day < first));
        }
        for day in wanted.iter().filter(|day| **day >= first) {
            if let Err(error) = create(client, table, *day).await {
                return Err(schema::explained(client, "make a partition", error).await);
            }
            // It is needed tomorrow: a failure is that day's.
            if let Err(error) = create(client, table, day.saturating_add(1)).await {
                tracing::warn!(%table, error = causes(&error), "cannot make the next day's partition");
            }
        }
        {
            let mut known = self.lock();
            let days = known.entry(table).or_insert_with(|| Days { made: HashSet::new(), first });
            days.first = first;
            days.made.extend(wanted);
            days.made.retain(|day| *day >= first);
        }
        for (_, name) in old {
            if let Err(error) = client.batch_execute(&format!("DROP TABLE IF EXISTS {name}")).await {
                // The next new day tries again.
                tracing::warn!(partition = name, error = causes(&error), "cannot drop an old partition");
                break;
            }
            tracing::info!(partition = name, "rows older than store.keep are deleted");
        }
        Ok(first)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Table, Days>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn day_of(time_ns: i64) -> i64 {
    time_ns.div_euclid(DAY_NS)
}

/// Days that have a partition, and its name, the newest first.
async fn partitions(client: &Client, table: Table) -> Result<Vec<(i64, String)>, PostgresError> {
    let select = "SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
                  WHERE i.inhparent = $1::text::regclass";
    let names = client.query(select, &[&table.name()]).await;
    let names = names.map_err(PostgresError::statement("look for partitions"))?;
    let mut days: Vec<(i64, String)> =
        names.iter().filter_map(|row| Some((day_named(table, row.get(0))?, row.get(0)))).collect();
    days.sort_unstable_by(|a, b| b.cmp(a));
    Ok(days)
}

/// The newest of these days that has rows.
async fn newest_filled(client: &Client, days: &[(i64, String)]) -> Result<Option<i64>, PostgresError> {
    for (day, name) in days {
        let filled = client.query_one(&format!("SELECT EXISTS (SELECT FROM {name})"), &[]).await;
        if filled.map_err(PostgresError::statement("look for the newest day"))?.get(0) {
            return Ok(Some(*day));
        }
    }
    Ok(None)
}

async fn create(client: &mut Client, table: Table, day: i64) -> Result<(), PostgresError> {
    let failed = PostgresError::statement("make a partition");
    let bound = |day: i64, otherwise: &str| {
        day.checked_mul(DAY_NS).map_or_else(|| otherwise.to_owned(), |bound_ns| bound_ns.to_string())
    };
    let (start, end) = (bound(day, "MINVALUE"), bound(day.saturating_add(1), "MAXVALUE"));
    let date: String =
        time::format(day.saturating_mul(DAY_NS)).chars().filter(char::is_ascii_digit).take(8).collect();
    let transaction = client.transaction().await.map_err(&failed)?;
    schema::lock(&transaction).await?;
    let sql = format!(
        "CREATE TABLE IF NOT EXISTS {table}_{date} PARTITION OF {table} FOR VALUES FROM ({start}) TO ({end})"
    );
    transaction.batch_execute(&sql).await.map_err(&failed)?;
    transaction.commit().await.map_err(&failed)
}

/// The day of a partition, by its name.
fn day_named(table: Table, name: &str) -> Option<i64> {
    let date = name.strip_prefix(table.name())?.strip_prefix('_')?;
    let (year, rest) = date.split_at_checked(4)?;
    let (month, day) = rest.split_at_checked(2)?;
    time::parse(&format!("{year}-{month}-{day}T00:00:00Z")).ok().map(day_of)
}
