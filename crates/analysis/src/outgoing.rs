//! Which rows leave a node, in all tables: made from the rows of its sampler, wherever these are published.

use std::collections::HashMap;
use std::sync::Arc;

use gpuvitals_core::batch::{RowKeys, numbers};
use gpuvitals_core::catalogue::Scope;
use gpuvitals_core::usage::{Ledger, Sharing};
use gpuvitals_core::{Batch, Table};

use crate::events::HealthEvents;

/// Shortest time between two details of one instance: 30 s, less what a reading every 30 s may come early.
const DETAIL_EVERY_NS: i64 = 29_000_000_000;
/// A value that has not changed is published again after so long: who begins to store later has it then too.
const DETAIL_AGAIN_NS: i64 = 600_000_000_000;

/// Turns a sampler's rows into those to publish.
#[derive(Debug, Default)]
pub struct Outgoing {
    events: HealthEvents,
    details: Details,
    accounts: Option<Accounts>,
}

/// What the holders of the GPUs use, and who shares one.
#[derive(Debug)]
struct Accounts {
    ledger: Ledger,
    sharing: Arc<dyn Sharing>,
}

impl Outgoing {
    /// The same, which also adds up what each holder of a GPU uses: of a sampler whose rows are all of the GPUs' and come as they
    /// are sampled.
    pub fn accounting(sharing: Arc<dyn Sharing>) -> Self {
        Self { accounts: Some(Accounts { ledger: Ledger::default(), sharing }), ..Self::default() }
    }

    /// The rows to publish for a batch of the sampler: its own, those of them that are news, the health events found
    /// in it, and what the holders of the GPUs have used so far, if that is due.
    pub fn take(&mut self, batch: Batch) -> impl Iterator<Item = Batch> {
        let mut used = None;
        let (rows, events) = match batch.table() {
            Table::GpuEvents => {
                if let Some(Accounts { ledger, sharing }) = &mut self.accounts {
                    ledger.add(&batch, &**sharing);
                    used = ledger.due();
                }
                let events = self.events.of(&batch);
                (Some(batch), events)
            }
            // The key of a host has no CPU in it: rows of single CPUs would be merged into the host's.
            Table::SystemEvents => {
                let keep = |row| batch.instance(Scope::CpuCore, row).is_none();
                (batch.filter(&(0..batch.rows()).map(keep).collect::<Vec<_>>()), None)
            }
            Table::GpuDetails => (self.details.news(&batch), None),
            Table::GpuProcesses => {
                if let Some(Accounts { ledger, sharing }) = &mut self.accounts {
                    ledger.add(&batch, &**sharing);
                }
                (Some(batch), None)
            }
            Table::GpuHealthEvents | Table::GpuUsage | Table::Jobs => (Some(batch), None),
        };
        rows.into_iter().chain(events).chain(used)
    }

    /// What the holders of the GPUs have used when no row comes any more.
    pub fn finish(&mut self) -> Option<Batch> {
        self.accounts.as_mut().and_then(|accounts| accounts.ledger.finish())
    }
}

/// The details last published: by GPU, metric and instance the value and its time.
#[derive(Debug, Default)]
struct Details {
    last: HashMap<Arc<str>, (f64, i64)>,
}

impl Details {
    /// The rows whose value is another one than that last published, unless that was just now, and those that have not been
    /// published for long. Times before the last one are of a clock that was set back: it begins anew.
    fn news(&mut self, batch: &Batch) -> Option<Batch> {
        let keys = RowKeys::whole(batch.records(), batch.table()).ok()?;
        let values = batch.records().column_by_name("value").and_then(numbers)?;
        let mut keep = Vec::with_capacity(batch.rows());
        for (row, (id, &time_ns)) in keys.ids.iter().zip(batch.timestamps()).enumerate() {
            let value = values.value(row).map(gpuvitals_core::batch::Value::as_f64);
            let is_news = value.zip(keys.keys.get(*id as usize)).is_some_and(|(value, key)| {
                let before = self.last.get(key);
                #[expect(clippy::float_cmp, reason = "any other value is news")]
                let is_news = before.is_none_or(|(last, at_ns)| {
                    let quiet_ns = if *last == value { DETAIL_AGAIN_NS } else { DETAIL_EVERY_NS };
                    !(0..quiet_ns).contains(&time_ns.saturating_sub(*at_ns))
                });
                if is_news {
                    self.last.insert(Arc::clone(key), (value, time_ns));
                }
                is_news
            });
            keep.push(is_news);
        }
        batch.filter(&keep)
    }
}
