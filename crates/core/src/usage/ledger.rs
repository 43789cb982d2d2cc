//! What each holder of a GPU uses of it, hour by hour, added up where the samples are.
//!
//! The sums are those of every other use ([`UseFold`](super::fold::UseFold)): time and energy between two rows belong to the holder of the earlier
//! one, and to its hour. Time in which no row came is `unobserved`, time of rows without a holder is that of `nobody`: so the
//! rows of a GPU add up to its own time and energy.
//!
//! Where several have a GPU at once, the row says how their parts are known: by the time that their processes worked, by the compute
//! units that they filled, by the slices of their MIG instances, by what each was given of it, or, where nothing says who uses it, each has
//! the same part.

mod account;
mod columns;
mod line;
mod part;
mod sharing;
mod work;

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use self::account::Account;
use self::columns::Columns;
pub use self::line::hour_of;
use self::part::Parts;
pub use self::part::holder_name;
pub(super) use self::part::{EQUAL, EXCLUSIVE, OCCUPANCY, PROCESS_TIME, Slice};
pub use self::sharing::{NOBODY, ProcessOwner, RUN_HOLDER, Sharing, UNOBSERVED};
use super::holders::HOLDING;
use crate::batch::RowKeys;
use crate::energy::EnergySource;
use crate::{Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table};

/// Time between two rows about one holder, as the samples count it.
const TOLD_EVERY_NS: u64 = 10_000_000_000;
/// Time between two tellings of all there is, news or not: what was told once may be lost on its way.
const WHOLE_EVERY_NS: u64 = 300_000_000_000;
/// A GPU without a sample for so long is gone: what waits for its next ones is added up.
const GONE_NS: u64 = 3_600_000_000_000;
/// So many GPUs that are gone are known when they come back.
const GONE_MAX: usize = 10_000;

/// The sums of all GPUs of a process, from its samples in the order of their times.
#[derive(Debug, Default)]
pub struct Ledger {
    accounts: HashMap<Arc<str>, Account, RandomState>,
    /// Run and last sample of those that are gone and may come back.
    gone: HashMap<Arc<str>, Gone, RandomState>,
    /// Those to which nothing is added any more, until they are told.
    ended: Vec<Account>,
    origin: Origin,
    /// Batches of rows so far.
    told: u64,
    /// Time of the last sample when rows were last given.
    told_ns: i64,
    /// Time of the last sample when all rows were last given, news or not.
    whole_ns: i64,
    /// Time of the last sample.
    last_ns: i64,
    /// Whether a GPU has changed hands since then.
    has_changed: bool,
}

/// What stays known of a GPU that is gone.
#[derive(Debug)]
struct Gone {
    run: i64,
    last_ns: i64,
}

/// Who has the GPU of some rows, and of which GPU it is a MIG instance.
#[derive(Debug)]
struct Whose {
    parts: Parts,
    slice: Option<Slice>,
}

impl Ledger {
    /// Adds samples of GPUs, or a listing of the processes on them.
    pub fn add(&mut self, batch: &Batch, sharing: &dyn Sharing) {
        match batch.table() {
            Table::GpuEvents => self.add_samples(batch, sharing),
            Table::GpuProcesses => self.add_processes(batch, sharing),
            _ => {}
        }
    }

    fn add_samples(&mut self, batch: &Batch, sharing: &dyn Sharing) {
        let Ok(keys) = RowKeys::of(batch.records(), Table::GpuEvents) else { return };
        self.origin = batch.origin().clone();
        let columns = Columns::of(batch);
        let mut known: HashMap<(u32, [Option<usize>; HOLDING.len()]), Whose, RandomState> =
            HashMap::default();
        for (row, (&id, &time_ns)) in keys.ids.iter().zip(batch.timestamps()).enumerate() {
            let Some(key) = keys.keys.get(id as usize) else { continue };
            let codes = HOLDING.map(|column| batch.identity_column(column).and_then(|texts| texts.key(row)));
            let whose = known.entry((id, codes)).or_insert_with(|| {
                let identity = batch.identity(row);
                Whose { slice: Slice::of(&identity), parts: part::of_row(identity, sharing) }
            });
            self.last_ns = time_ns;
            // An instance belongs to its GPU; one whose GPU has no rows stands for itself, until it has some.
            if let Some(slice) = &whose.slice
                && let Some(card) = self.accounts.get_mut(&slice.card)
            {
                card.note_instance(key, slice, &whose.parts, time_ns, columns.own_peaks(row));
                self.ended.extend(self.accounts.remove(key));
                continue;
            }
            let account = self.accounts.entry(Arc::clone(key)).or_insert_with(|| {
                let identity = batch.identity(row);
                let gone = self.gone.remove(key);
                gone.map_or_else(|| Account::of(&identity, 0), |gone| gone.back(&identity, time_ns))
            });
            if account.is_far_behind(time_ns) {
                let anew = Account::of(&batch.identity(row), account.run + 1);
                self.ended.push(std::mem::replace(account, anew));
            }
            self.has_changed |= account.add(&columns, row, time_ns, &whose.parts);
        }
    }

    fn add_processes(&mut self, batch: &Batch, sharing: &dyn Sharing) {
        let first = batch.identity(0);
        let vendor = first.get(IdentityColumn::Vendor);
        for (time_ns, by_gpu) in work::listings(batch) {
            for (key, account) in &mut self.accounts {
                // A GPU that a listing of its vendor's does not name has no process.
                match by_gpu.get(key) {
                    Some(processes) => account.list(time_ns, processes, sharing),
                    None if account.vendor() == vendor => account.list(time_ns, &[], sharing),
                    None => {}
                }
            }
        }
    }

    /// The rows of `gpu_usage` that are due: every ten seconds, and when a GPU has changed hands.
    pub fn due(&mut self) -> Option<Batch> {
        // Also after the clock was set back.
        let is_due = self.last_ns.abs_diff(self.told_ns) >= TOLD_EVERY_NS;
        if is_due || self.has_changed { self.news() } else { None }
    }

    /// The last rows: no sample comes any more.
    pub fn finish(&mut self) -> Option<Batch> {
        self.ended.extend(self.accounts.drain().map(|(_, account)| account));
        self.news()
    }

    /// The rows that say something new, and every five minutes the others, too. So each is given at least twice before its hour is forgotten.
    fn news(&mut self) -> Option<Batch> {
        (self.told_ns, self.has_changed) = (self.last_ns, false);
        let is_whole = self.last_ns.abs_diff(self.whole_ns) >= WHOLE_EVERY_NS;
        if is_whole {
            self.whole_ns = self.last_ns;
        }
        let mut builder = BatchBuilder::new(Table::GpuUsage);
        let started_ns = self.origin.started_ns;
        self.forget_gone();
        for account in &mut self.ended {
            for gap in account.fold.end() {
                account.note_gap(gap);
            }
        }
        let going = self.accounts.values_mut().map(|account| (account, is_whole));
        for (account, is_whole) in going.chain(self.ended.iter_mut().map(|account| (account, true))) {
            let Some(as_of_ns) = account.as_of_ns() else { continue };
            let source = account.fold.source().map(EnergySource::name);
            let lines = account.lines(as_of_ns);
            for line in lines.iter().filter(|line| is_whole || line.is_news) {
                line.write(&mut builder, started_ns.saturating_add(account.run), source);
            }
            if is_whole {
                let new = lines.iter().filter(|line| line.is_news);
                account.settle(as_of_ns, new.map(|line| line.hour_ns).min());
            }
        }
        self.ended.clear();
        self.told += 1;
        builder.finish(self.origin.clone(), self.told)
    }

    /// Ends the accounts of GPUs that are gone. After a sleep, or when the clock was set, that is each GPU whose samples come after
    /// those of the first one.
    fn forget_gone(&mut self) {
        let last_ns = self.last_ns;
        let is_gone = |account: &Account| account.last_ns.abs_diff(last_ns) > GONE_NS;
        for (key, account) in self.accounts.extract_if(|_, account| is_gone(account)) {
            if self.gone.len() < GONE_MAX {
                self.gone.insert(key, Gone { run: account.run, last_ns: account.last_ns });
            }
            self.ended.push(account);
        }
    }
}

impl Gone {
    /// The account of the GPU that came back with a sample: another run, with the time without rows before it.
    fn back(&self, identity: &Identity, time_ns: i64) -> Account {
        let mut account = Account::of(identity, self.run + 1);
        account.note_gap((self.last_ns, time_ns));
        account
    }
}

#[cfg(test)]
mod tests;
