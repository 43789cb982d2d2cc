//! Services that write into one database.

use std::sync::Arc;

use gpuvitals_core::history::{
    Answered, BucketQuery, Buckets, Changes, Fleet, History, HistoryStats, Rows, RowsQuery, TakeRows,
};
use gpuvitals_core::usage::{GpuUse, UseQuery};
use gpuvitals_core::{Health, causes};

/// The history of several services that write into one database: ranges of time are the database's, the latest state and the
/// changes are those of the services, which know them before any query could find them. If no service has answered yet, the
/// latest state is the one that the database had when it was asked first.
#[derive(Debug)]
pub struct SharedDatabase {
    /// The database that keeps the rows.
    pub database: Arc<dyn History>,
    /// The services that fill the database; they know rows before it does.
    pub services: Arc<dyn History>,
}

impl History for SharedDatabase {
    fn version(&self) -> u64 {
        self.database.version().wrapping_add(self.services.version())
    }

    fn fleet(&self) -> Answered<'_, Arc<Fleet>> {
        Box::pin(async {
            let why = match self.services.fleet().await {
                Ok(fleet) => return Ok(fleet),
                Err(why) => causes(&why),
            };
            let mut fleet = self.database.fleet().await?;
            fleet.missing.push(format!("the newest rows: {why}"));
            Ok(fleet)
        })
    }

    fn rows(&self, query: RowsQuery) -> Answered<'_, Rows> {
        self.database.rows(query)
    }

    fn sweep(&self, query: RowsQuery, take: TakeRows) -> Answered<'_, ()> {
        self.database.sweep(query, take)
    }

    fn buckets(&self, query: BucketQuery) -> Answered<'_, Buckets> {
        self.database.buckets(query)
    }

    fn usage(&self, query: UseQuery) -> Answered<'_, Vec<GpuUse>> {
        self.database.usage(query)
    }

    fn changes(&self) -> Box<dyn Changes> {
        self.services.changes()
    }

    fn health(&self) -> Health {
        Health::of_all([self.database.health(), self.services.health()])
    }

    fn stats(&self) -> HistoryStats {
        self.database.stats()
    }
}
