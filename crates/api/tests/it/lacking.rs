//! A store that is not all there, for answers that have to say so.

use std::sync::Arc;

use gpuvitals_core::history::{
    Answered, BucketQuery, Buckets, Changes, Fleet, History, HistoryStats, QueryError, Rows, RowsQuery,
};
use gpuvitals_core::{Health, Table};
use gpuvitals_store::Store;

/// Why it is not.
pub(crate) const REASON: &str = "host b does not answer";

/// What is away.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lack {
    /// A part of the fleet: what is there is answered, and the part is named.
    Part,
    /// All rows of a table.
    Rows(Table),
}

/// A store of which something is away.
#[derive(Debug)]
pub(crate) struct Lacking(pub(crate) Store, pub(crate) Lack);

impl Lacking {
    /// What answers name as missing.
    fn missing(&self) -> impl Iterator<Item = String> + use<> {
        matches!(self.1, Lack::Part).then(|| REASON.to_owned()).into_iter()
    }
}

impl History for Lacking {
    fn version(&self) -> u64 {
        self.0.version()
    }

    fn fleet(&self) -> Answered<'_, Arc<Fleet>> {
        Box::pin(async {
            let mut part = History::fleet(&self.0).await?;
            part.missing.extend(self.missing());
            Ok(part)
        })
    }

    fn rows(&self, query: RowsQuery) -> Answered<'_, Rows> {
        Box::pin(async move {
            if matches!(self.1, Lack::Rows(table) if table == query.table) {
                return Err(QueryError::away(REASON));
            }
            let mut part = self.0.rows(query).await?;
            part.missing.extend(self.missing());
            Ok(part)
        })
    }

    fn buckets(&self, query: BucketQuery) -> Answered<'_, Buckets> {
        self.0.buckets(query)
    }

    fn changes(&self) -> Box<dyn Changes> {
        self.0.changes()
    }

    fn health(&self) -> Health {
        self.0.health()
    }

    fn stats(&self) -> HistoryStats {
        History::stats(&self.0)
    }
}
