//! A partition a day: made ahead, and dropped when it is too old.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gpuvitals_core::{Table, causes, time};
use tokio_postgres::Client;

use crate::error::PostgresError;
use crate::schema;

const DAY_NS: i64 = 86_400_000_000_000;

/// The partitions that are known to be there.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    known: Mutex<HashSet<(Table, i64)>>,
    /// Age at which a partition is dropped; none: never.
    keep: Option<Duration>,
}

impl Partitions {
    pub(crate) fn new(keep: Option<Duration>) -> Self {
        Self { known: Mutex::default(), keep }
    }

    /// Looks for all of them anew when they are needed.
    pub(crate) fn forget(&self) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Makes the partitions of these instants and of the days after them, if they are missing.
    ///
    /// # Errors
    /// If the server refuses.
    pub(crate) async fn make(
        &self,
        client: &mut Client,
        table: Table,
        times: impl Iterator<Item = i64>,
    ) -> Result<(), PostgresError> {
        let wanted: HashSet<i64> = times.map(|time_ns| time_ns.div_euclid(DAY_NS)).collect();
        let missing: Vec<i64> = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            wanted.into_iter().filter(|day| !known.contains(&(table, *day))).collect()
        };
        if missing.is_empty() {
            return Ok(());
        }
        for day in &missing {
            create(client, table, *day).await?;
            // It is needed tomorrow: a failure is that day's.
            if let Err(error) = create(client, table, day.saturating_add(1)).await {
                tracing::warn!(%table, error = causes(&error), "cannot make the next day's partition");
            }
        }
        let newest_ns = missing.iter().max().map_or(i64::MIN, |day| day.saturating_mul(DAY_NS));
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(missing.into_iter().map(|day| (table, day)));
        // Rows of a new day: others may be too old now. The next day tries again.
        if let Err(error) = self.drop_old(client, table, newest_ns).await {
            tracing::warn!(%table, error = causes(&error), "cannot drop old partitions");
        }
        Ok(())
    }

    /// Drops partitions all of whose rows are older than the newest day that has rows, or is about to, by more than is kept.
    async fn drop_old(&self, client: &mut Client, table: Table, coming_ns: i64) -> Result<(), PostgresError> {
        let Some(keep) = self.keep.and_then(|keep| i64::try_from(keep.as_nanos()).ok()) else {
            return Ok(());
        };
        let failed = PostgresError::statement("dropping old partitions");
        let names = client
            .query(
                "SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
                 WHERE i.inhparent = $1::text::regclass",
                &[&table.name()],
            )
            .await
            .map_err(&failed)?;
        let mut days: Vec<(i64, String)> =
            names.iter().filter_map(|row| Some((start_of(table, row.get(0))?, row.get(0)))).collect();
        days.sort_unstable_by(|a, b| b.cmp(a));
        let mut newest_ns = coming_ns;
        for (start_ns, name) in &days {
            let filled = client.query_one(&format!("SELECT EXISTS (SELECT FROM {name})"), &[]).await;
            if filled.map_err(&failed)?.get::<_, bool>(0) {
                newest_ns = newest_ns.max(*start_ns);
                break;
            }
        }
        for (start_ns, name) in days {
            if start_ns.saturating_add(DAY_NS) <= newest_ns.saturating_sub(keep) {
                let dropped = client.batch_execute(&format!("DROP TABLE {name}")).await;
                dropped.map_err(&failed)?;
                tracing::info!(partition = name, "rows older than store.keep are deleted");
            }
        }
        Ok(())
    }
}

async fn create(client: &mut Client, table: Table, day: i64) -> Result<(), PostgresError> {
    let failed = PostgresError::statement("making a partition");
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

/// Start of the day of a partition, by its name.
fn start_of(table: Table, name: &str) -> Option<i64> {
    let date = name.strip_prefix(table.name())?.strip_prefix('_')?;
    let (year, rest) = date.split_at_checked(4)?;
    let (month, day) = rest.split_at_checked(2)?;
    time::parse(&format!("{year}-{month}-{day}T00:00:00Z")).ok()
}
