//! Changes on their way: filtered where they happen, followed from elsewhere.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::batch::{RowKeys, text_at};
use gpuvitals_core::history::{Change, Changes, Selector};
use gpuvitals_core::ports::Answer;
use gpuvitals_core::{Batch, Table, wire};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;
use tonic::{Status, Streaming};

use crate::connection::Connection;
use crate::{border, v1};

/// Shortest and longest pause between two tries to follow.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Changes that a follower here may fall behind before it loses the oldest.
const CHANGES_MAX: usize = 256;

/// Which rows a follower wants.
#[derive(Debug)]
pub(crate) struct ChangesFilter {
    tables: Vec<Table>,
    gpus: HashSet<Arc<str>>,
    selector: Selector,
}

impl ChangesFilter {
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
    filter: ChangesFilter,
}

impl Following {
    pub(crate) fn new(changes: Box<dyn Changes>, filter: ChangesFilter) -> Self {
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

/// The changes of a history elsewhere, received once for everybody who follows them here. A stream that is lost is opened again,
/// and what came in the meantime is missed.
#[derive(Debug)]
pub(crate) struct Feed {
    changes: broadcast::Sender<Change>,
    task: JoinHandle<()>,
}

impl Feed {
    /// Opens the stream, which ends when this is dropped.
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        let changes = broadcast::Sender::new(CHANGES_MAX);
        let task = tokio::spawn(receive(connection, changes.clone()));
        Self { changes, task }
    }

    /// The changes from now on. They keep the feed.
    pub(crate) fn changes(self: Arc<Self>) -> RemoteChanges {
        RemoteChanges { changes: self.changes.subscribe(), _feed: self }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Passes changes on, for ever.
async fn receive(connection: Arc<Connection>, changes: broadcast::Sender<Change>) {
    let (mut pause, mut was_open) = (PAUSES.0, false);
    loop {
        let request = connection.request(v1::ChangesRequest::default());
        let ended = match connection.client().changes(request).await {
            Ok(open) => {
                if was_open {
                    // How many were lost, nobody knows.
                    pass(&changes, Change::Missed(1));
                }
                (pause, was_open) = (PAUSES.0, true);
                pass_all(open.into_inner(), &changes).await
            }
            Err(status) => status,
        };
        tracing::debug!(from = %connection.name(), status = %ended, "changes cannot be followed");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Passes changes on until the stream ends.
async fn pass_all(mut open: Streaming<v1::ChangesPart>, changes: &broadcast::Sender<Change>) -> Status {
    loop {
        let part = match open.message().await {
            Ok(Some(part)) => part,
            Ok(None) => return Status::unavailable("the stream ended"),
            Err(status) => return status,
        };
        for change in changes_of(&part) {
            pass(changes, change);
        }
    }
}

/// A batch that does not decode is missed.
fn changes_of(part: &v1::ChangesPart) -> impl Iterator<Item = Change> + use<> {
    let batches: Vec<Batch> = part.batches.iter().filter_map(|bytes| wire::decode(bytes).ok()).collect();
    let is_damaged = batches.len() < part.batches.len();
    let missed = part.missed.saturating_add(is_damaged.into());
    let rows = (!batches.is_empty()).then(|| Change::Rows(batches.into()));
    (missed > 0).then_some(Change::Missed(missed)).into_iter().chain(rows)
}

fn pass(changes: &broadcast::Sender<Change>, change: Change) {
    // Without a follower the feed is about to be dropped.
    let _followers = changes.send(change);
}

/// A follower of a feed.
pub(crate) struct RemoteChanges {
    changes: broadcast::Receiver<Change>,
    _feed: Arc<Feed>,
}

impl Changes for RemoteChanges {
    fn next(&mut self) -> Answer<'_, Option<Change>> {
        Box::pin(async {
            match self.changes.recv().await {
                Ok(change) => Some(change),
                Err(RecvError::Lagged(missed)) => Some(Change::Missed(missed)),
                Err(RecvError::Closed) => None,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_does_not_decode_is_missed_and_the_others_are_not() {
        let batch = gpuvitals_suite::batch(&[gpuvitals_suite::TestRow::of(0, 0)]);
        let bytes = wire::encode(&batch).unwrap();
        let damaged = bytes.slice(..bytes.len() / 2);
        let part = |batches, missed| v1::ChangesPart { batches, missed };
        let counts = |part| -> Vec<(u64, usize)> {
            let count = |change| match change {
                Change::Missed(missed) => (missed, 0),
                Change::Rows(batches) => (0, batches.iter().map(Batch::rows).sum()),
            };
            changes_of(&part).map(count).collect()
        };
        assert_eq!(counts(part(vec![damaged.clone()], 0)), [(1, 0)]);
        assert_eq!(counts(part(vec![bytes.clone(), damaged, bytes], 2)), [(3, 0), (0, 2)]);
        assert_eq!(counts(part(Vec::new(), 0)), []);
    }
}
