//! Changes on their way: filtered where they happen, followed from elsewhere.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::batch::{RowKeys, text_at};
use gpuvitals_core::history::{Change, Changes, Selector};
use gpuvitals_core::ports::Answer;
use gpuvitals_core::{Batch, Table, wire};
use tonic::{Status, Streaming};

use crate::remote::Connection;
use crate::{border, v1};

/// Shortest and longest pause between two tries to follow.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Which rows a follower wants.
#[derive(Debug)]
pub(crate) struct Filter {
    tables: Vec<Table>,
    gpus: HashSet<Arc<str>>,
    selector: Selector,
}

impl Filter {
    pub(crate) fn of(request: v1::ChangesRequest) -> Result<Self, Status> {
        Ok(Self {
            tables: request.tables.iter().map(|name| border::table(name)).collect::<Result<_, _>>()?,
            gpus: border::names("gpus", request.gpus)?.into_iter().collect(),
            selector: border::selector(request.selector)?,
        })
    }

    /// The rows that are wanted, if there are some.
    fn rows(&self, batch: &Batch) -> Option<Batch> {
        if !self.tables.is_empty() && !self.tables.contains(&batch.table()) {
            return None;
        }
        if self.gpus.is_empty() && self.selector.is_empty() {
            return Some(batch.clone());
        }
        // Rows without a key are in no history.
        let keys = RowKeys::of(batch.records(), batch.table()).ok()?;
        let is_wanted = |row: usize| {
            let key = keys.ids.get(row).and_then(|id| keys.keys.get(*id as usize));
            (self.gpus.is_empty() || key.is_some_and(|key| self.gpus.contains(key)))
                && self.selector.selects(|column| text_at(batch.identity_column(column)?, row))
        };
        let keep: Vec<bool> = (0..batch.rows()).map(is_wanted).collect();
        batch.filter(&keep)
    }
}

/// A follower of this history's changes.
pub(crate) struct Following {
    changes: Box<dyn Changes>,
    filter: Filter,
}

impl Following {
    pub(crate) fn new(changes: Box<dyn Changes>, filter: Filter) -> Self {
        Self { changes, filter }
    }

    /// The next message; none when the history has ended.
    pub(crate) async fn next(&mut self) -> Option<Result<v1::ChangesPart, Status>> {
        loop {
            match self.changes.next().await? {
                Change::Missed(missed) => {
                    return Some(Ok(v1::ChangesPart { missed, ..Default::default() }));
                }
                Change::Rows(batches) => {
                    let wanted = batches.iter().filter_map(|batch| self.filter.rows(batch));
                    let encoded = wanted.map(|batch| wire::encode(&batch));
                    match encoded.collect::<Result<Vec<_>, _>>() {
                        Ok(batches) if batches.is_empty() => {}
                        Ok(batches) => return Some(Ok(v1::ChangesPart { batches, missed: 0 })),
                        Err(error) => return Some(Err(Status::internal(error.to_string()))),
                    }
                }
            }
        }
    }
}

/// The changes of a history elsewhere. A connection that is lost is made anew, and what came in the meantime is missed.
pub(crate) struct RemoteChanges {
    connection: Arc<Connection>,
    open: Option<Streaming<v1::ChangesPart>>,
    was_open: bool,
    pause: Duration,
}

impl RemoteChanges {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        Self { connection, open: None, was_open: false, pause: PAUSES.0 }
    }

    async fn message(&mut self) -> Result<v1::ChangesPart, Status> {
        let Some(open) = &mut self.open else {
            let request = self.connection.request(v1::ChangesRequest::default());
            self.open = Some(self.connection.client().changes(request).await?.into_inner());
            // How many were lost, nobody knows.
            let missed = u64::from(self.was_open);
            self.was_open = true;
            return Ok(v1::ChangesPart { missed, ..Default::default() });
        };
        open.message().await?.ok_or_else(|| Status::unavailable("the stream ended"))
    }
}

impl Changes for RemoteChanges {
    fn next(&mut self) -> Answer<'_, Option<Change>> {
        Box::pin(async {
            loop {
                match self.message().await {
                    Ok(part) => {
                        self.pause = PAUSES.0;
                        let batches: Vec<Batch> =
                            part.batches.into_iter().filter_map(|bytes| wire::decode(&bytes).ok()).collect();
                        if part.missed > 0 {
                            return Some(Change::Missed(part.missed));
                        }
                        if !batches.is_empty() {
                            return Some(Change::Rows(batches.into()));
                        }
                    }
                    Err(status) => {
                        self.open = None;
                        tracing::debug!(from = %self.connection.name(), %status, "changes cannot be followed");
                        tokio::time::sleep(self.pause).await;
                        self.pause = (self.pause * 2).min(PAUSES.1);
                    }
                }
            }
        })
    }
}
