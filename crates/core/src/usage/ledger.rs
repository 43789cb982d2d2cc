//! What each holder of a GPU uses of it, hour by hour, added up where the samples are.
//!
//! The sums are those of every other use ([`UseFold`]): time and energy between two rows belong to the holder of the earlier
//! one, and to its hour. Time in which no row came is `unobserved`, time of rows without a holder is that of `nobody`: so the
//! rows of a GPU add up to its own time and energy. Where several have a GPU at once and nothing says who uses it, each gets the
//! same part, and the row says so.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::fold::{HolderUse, UseFold};
use super::holders::HOLDING;
use super::rows::UseColumns;
use crate::batch::{MetricColumn, RowKeys, Value};
use crate::energy::EnergySource;
use crate::integral::seconds;
use crate::throttle::Residency;
use crate::time::{DAY_NS, HOUR_NS};
use crate::{Batch, BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table};

/// The holder of the time in which nobody has the GPU.
pub const NOBODY: &str = "nobody";
/// The holder of the time without rows.
pub const UNOBSERVED: &str = "unobserved";

/// Time between two rows about one holder, as the samples count it.
const TOLD_EVERY_NS: u64 = 10_000_000_000;
/// A GPU without a sample for so long is gone: what waits for its next ones is added up.
const GONE_NS: u64 = 3_600_000_000_000;
/// A sample that is further behind the one before it: the clock was set back. The GPU's sums begin anew, as another run.
const BEHIND_NS: i64 = 10_000_000_000;
/// Longest time without rows that is told. A longer one is none: a clock was set, such as one that began in 1970.
const UNOBSERVED_MAX_NS: i64 = 31 * DAY_NS;
/// The columns of throttled time by limit, in the order of [`ByLimit`](crate::throttle::ByLimit).
const THROTTLED_BY: [&str; 4] =
    ["throttled_by_power_ns", "throttled_by_heat_ns", "throttled_by_hardware_ns", "throttled_by_other_ns"];
const TEMPERATURE: MetricId = MetricId::of("temperature_c");
const MEMORY: MetricId = MetricId::of("memory_used_mb");

/// Knows who shares a GPU.
pub trait Sharing: fmt::Debug + Send + Sync {
    /// The identity once for each pod and container that holds it, in the order of their names, if it has several: those that
    /// share it in slices of time.
    fn sharers(&self, identity: &Arc<Identity>) -> Vec<Arc<Identity>>;
}

/// The sums of all GPUs of a process, from its samples in the order of their times.
#[derive(Debug, Default)]
pub struct Ledger {
    accounts: HashMap<Arc<str>, Account, RandomState>,
    /// Those to which nothing is added any more, until they are told.
    ended: Vec<Account>,
    origin: Origin,
    /// Batches of rows so far.
    told: u64,
    /// Time of the last sample when rows were last given.
    told_ns: i64,
    /// Time of the last sample.
    last_ns: i64,
    /// Whether a GPU has changed hands since then.
    has_changed: bool,
}

/// A GPU.
#[derive(Debug)]
struct Account {
    fold: UseFold,
    counted: Residency,
    /// The GPU, without a holder.
    gpu: Arc<Identity>,
    /// How often its sums have begun anew.
    run: i64,
    /// Time of its last sample.
    last_ns: i64,
    /// Who had it in the last row.
    last: Option<Holders>,
    slots: Vec<Slot>,
    /// Number of the next place of the fold.
    next: u32,
    unobserved: Vec<Unobserved>,
}

/// The identities of a GPU with each of its holders; none: nobody has it.
type Holders = Arc<[Arc<Identity>]>;

/// Some holders of a GPU in an hour.
#[derive(Debug)]
struct Slot {
    /// Its place in the fold.
    number: u32,
    hour_ns: i64,
    holders: Holders,
    peaks: Peaks,
    /// What was told last.
    told: Option<HolderUse>,
}

/// Time of an hour without rows.
#[derive(Debug)]
struct Unobserved {
    hour_ns: i64,
    unseen_ns: i64,
    is_told: bool,
}

/// Rows, and the highest values in them.
#[derive(Debug, Clone, Copy, Default)]
struct Peaks {
    samples: u64,
    power_w: Option<f64>,
    temperature_c: Option<f64>,
    memory_mb: Option<f64>,
}

/// A row to be: what a holder used in an hour.
#[derive(Debug)]
struct Line {
    hour_ns: i64,
    holder: Arc<str>,
    share: &'static str,
    identity: Arc<Identity>,
    used: HolderUse,
    peaks: Peaks,
    is_news: bool,
}

impl Ledger {
    /// Adds samples of GPUs.
    pub fn add(&mut self, batch: &Batch, sharing: &dyn Sharing) {
        let Ok(keys) = RowKeys::of(batch.records(), Table::GpuEvents) else { return };
        self.origin = batch.origin().clone();
        let columns = Columns::of(batch);
        let mut before: Option<(u32, [Option<usize>; HOLDING.len()], Holders)> = None;
        for (row, (&id, &time_ns)) in keys.ids.iter().zip(batch.timestamps()).enumerate() {
            let Some(key) = keys.keys.get(id as usize) else { continue };
            let codes = HOLDING.map(|column| batch.identity_column(column).and_then(|texts| texts.key(row)));
            let holders = match &before {
                Some((of, same, holders)) if *of == id && *same == codes => Arc::clone(holders),
                _ => holders_of(Arc::new(batch.identity(row)), sharing),
            };
            let account = self.accounts.entry(Arc::clone(key));
            let account = account.or_insert_with(|| Account::of(&batch.identity(row), 0));
            if account.is_far_behind(time_ns) {
                let anew = Account::of(&batch.identity(row), account.run + 1);
                self.ended.push(std::mem::replace(account, anew));
            }
            self.has_changed |= account.add(&columns, row, time_ns, &holders);
            self.last_ns = time_ns;
            before = Some((id, codes, holders));
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

    /// The rows that say something new.
    fn news(&mut self) -> Option<Batch> {
        (self.told_ns, self.has_changed) = (self.last_ns, false);
        let mut builder = BatchBuilder::new(Table::GpuUsage);
        let started_ns = self.origin.started_ns;
        let gone = |account: &Account| account.last_ns.abs_diff(self.last_ns) > GONE_NS;
        self.ended.extend(self.accounts.extract_if(|_, account| gone(account)).map(|(_, account)| account));
        for account in &mut self.ended {
            for gap in account.fold.end() {
                account.note_gap(gap);
            }
        }
        for account in self.accounts.values_mut().chain(&mut self.ended) {
            let Some(as_of_ns) = account.fold.last_ns() else { continue };
            let source = account.fold.source().map(EnergySource::name);
            for line in account.lines().into_iter().filter(|line| line.is_news) {
                line.write(&mut builder, started_ns.saturating_add(account.run), as_of_ns, source);
            }
            account.settle(as_of_ns);
        }
        self.ended.clear();
        self.told += 1;
        builder.finish(self.origin.clone(), self.told)
    }
}

/// The columns of a batch.
struct Columns<'a> {
    used: UseColumns<'a>,
    temperature: Option<MetricColumn<'a>>,
    memory: Option<MetricColumn<'a>>,
}

impl<'a> Columns<'a> {
    fn of(batch: &'a Batch) -> Self {
        Self {
            used: UseColumns::of(batch.records()),
            temperature: batch.metric(TEMPERATURE),
            memory: batch.metric(MEMORY),
        }
    }

    fn peaks(&self, row: usize) -> Peaks {
        let number = |column: Option<MetricColumn<'_>>| column?.value(row).map(Value::as_f64);
        Peaks {
            samples: 1,
            power_w: self.used.power_w(row),
            temperature_c: number(self.temperature),
            memory_mb: number(self.memory),
        }
    }
}

impl Peaks {
    fn and(self, other: Self) -> Self {
        let higher = |one: Option<f64>, other: Option<f64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        };
        Self {
            samples: self.samples + other.samples,
            power_w: higher(self.power_w, other.power_w),
            temperature_c: higher(self.temperature_c, other.temperature_c),
            memory_mb: higher(self.memory_mb, other.memory_mb),
        }
    }
}

impl Account {
    fn of(identity: &Identity, run: i64) -> Self {
        let mut gpu = identity.clone();
        for column in HOLDING {
            // No text is always taken.
            let _taken = gpu.set(column, "");
        }
        Self {
            fold: UseFold::default(),
            counted: Residency::default(),
            gpu: Arc::new(gpu),
            run,
            last_ns: i64::MIN,
            last: None,
            slots: Vec::new(),
            next: 0,
            unobserved: Vec::new(),
        }
    }

    fn is_far_behind(&self, time_ns: i64) -> bool {
        time_ns < self.last_ns.saturating_sub(BEHIND_NS)
    }

    /// Adds a row; whether the GPU has changed hands by it.
    fn add(&mut self, columns: &Columns<'_>, row: usize, time_ns: i64, holders: &Holders) -> bool {
        self.last_ns = time_ns;
        let hour_ns = hour_of(time_ns);
        let at = self.slots.iter().rposition(|slot| slot.hour_ns == hour_ns && slot.holders == *holders);
        let at = at.unwrap_or_else(|| {
            let number = self.next;
            self.next = self.next.wrapping_add(1);
            let holders = Arc::clone(holders);
            self.slots.push(Slot { number, hour_ns, holders, peaks: Peaks::default(), told: None });
            self.slots.len() - 1
        });
        let Some(slot) = self.slots.get_mut(at) else { return false };
        slot.peaks = slot.peaks.and(columns.peaks(row));
        let number = slot.number;
        let stay = columns.used.stay_by_limit(row, time_ns, &mut self.counted);
        if let Some(gap) = self.fold.add(number, stay) {
            self.note_gap(gap);
        }
        let before = self.last.replace(Arc::clone(holders));
        before.is_some_and(|before| before != *holders)
    }

    /// Notes a time without rows, hour by hour.
    fn note_gap(&mut self, (mut from_ns, until_ns): (i64, i64)) {
        if until_ns.saturating_sub(from_ns) > UNOBSERVED_MAX_NS {
            return;
        }
        while from_ns < until_ns {
            let hour_ns = hour_of(from_ns);
            let end_ns = hour_ns.saturating_add(HOUR_NS).min(until_ns);
            let unseen_ns = end_ns - from_ns;
            match self.unobserved.iter_mut().find(|hour| hour.hour_ns == hour_ns) {
                Some(hour) => {
                    hour.unseen_ns += unseen_ns;
                    hour.is_told = false;
                }
                None => self.unobserved.push(Unobserved { hour_ns, unseen_ns, is_told: false }),
            }
            from_ns = end_ns;
        }
    }

    /// What each holder used in each hour that may still change, or has not been told.
    fn lines(&mut self) -> Vec<Line> {
        let mut lines = Vec::new();
        for slot in &mut self.slots {
            let place = self.fold.held().iter().find(|place| place.number == slot.number);
            if let Some(place) = place {
                slot.add_to(&mut lines, place.held, &self.gpu);
            }
        }
        lines.extend(self.unobserved.iter_mut().map(|hour| Line {
            hour_ns: hour.hour_ns,
            holder: UNOBSERVED.into(),
            share: EXCLUSIVE,
            identity: Arc::clone(&self.gpu),
            used: HolderUse { seconds: seconds(hour.unseen_ns), ..HolderUse::default() },
            peaks: Peaks::default(),
            is_news: !std::mem::replace(&mut hour.is_told, true),
        }));
        lines
    }

    /// Forgets the hours to which nothing is added any more: all of them has been told. An hour stays or goes as a whole, since
    /// a holder's row is made of all of its slots.
    fn settle(&mut self, as_of_ns: i64) {
        let open = self.slots.iter().filter(|slot| self.fold.is_open(slot.number));
        let from_ns = open.map(|slot| slot.hour_ns).fold(hour_of(as_of_ns), i64::min);
        let slots = &mut self.slots;
        self.fold.forget(|number| slots.iter().any(|slot| slot.number == number && slot.hour_ns < from_ns));
        slots.retain(|slot| slot.hour_ns >= from_ns);
        self.unobserved.retain(|hour| hour.hour_ns >= from_ns);
    }
}

const EXCLUSIVE: &str = "exclusive";
pub(super) const EQUAL: &str = "equal";

impl Slot {
    /// Adds what each of the holders used, who used this together, to the lines of theirs.
    fn add_to(&mut self, lines: &mut Vec<Line>, used: HolderUse, gpu: &Arc<Identity>) {
        let is_news = self.told.replace(used) != Some(used);
        let (hour_ns, peaks) = (self.hour_ns, self.peaks);
        let share = if self.holders.len() > 1 { EQUAL } else { EXCLUSIVE };
        let used = used.part_of(self.holders.len().max(1));
        let nobody = self.holders.is_empty().then(|| (NOBODY.into(), gpu));
        let named = self.holders.iter().map(|identity| (name_of(identity), identity));
        for (holder, identity) in nobody.into_iter().chain(named) {
            let is_same =
                |line: &&mut Line| line.hour_ns == hour_ns && line.holder == holder && line.share == share;
            if let Some(line) = lines.iter_mut().find(is_same) {
                line.used.and(&used);
                line.peaks = line.peaks.and(peaks);
                line.is_news |= is_news;
            } else {
                let identity = Arc::clone(identity);
                lines.push(Line { hour_ns, holder, share, identity, used, peaks, is_news });
            }
        }
    }
}

impl Line {
    fn write(&self, builder: &mut BatchBuilder, run_ns: i64, as_of_ns: i64, source: Option<&str>) {
        let identity = builder.add_identity(&self.identity);
        let row = builder.row(self.hour_ns, identity);
        let nanoseconds = |seconds: f64| 1e9 * seconds;
        let millijoules = |joules: f64| 1e3 * joules;
        #[expect(clippy::cast_precision_loss, reason = "far fewer rows than 2^52")]
        let samples = self.peaks.samples as f64;
        let (used, is_observed) = (&self.used, &*self.holder != UNOBSERVED);
        // Nothing is said of the limits where nothing is known of throttling.
        let limits = used.throttled_by_s.0.map(|seconds| used.throttled_s.map(|_| nanoseconds(seconds)));
        let numbers = [
            ("held_ns", Some(nanoseconds(used.seconds))),
            ("busy_ns", used.busy_s.map(nanoseconds)),
            ("idle_ns", used.idle_s.map(nanoseconds)),
            ("throttled_ns", used.throttled_s.map(nanoseconds)),
            ("used_mj", used.joules.map(millijoules)),
            ("idle_mj", used.idle_joules.map(millijoules)),
            ("samples", Some(samples).filter(|_| is_observed)),
            ("power_max_w", self.peaks.power_w),
            ("temperature_max_c", self.peaks.temperature_c),
            ("memory_max_mb", self.peaks.memory_mb),
        ];
        let source = source.filter(|_| used.joules.is_some());
        let texts = [("holder", Some(&*self.holder)), ("share", Some(self.share)), ("energy_source", source)];
        for (name, text) in texts.into_iter().filter_map(|(name, text)| Some((name, text?))) {
            // The names are the table's, the texts are short.
            let _written = builder.set_extra_text(row, name, text);
        }
        for (name, number) in [("run", run_ns), ("as_of_ns", as_of_ns)] {
            let _written = builder.set_extra(row, name, Value::Int(number));
        }
        let numbers = numbers.into_iter().chain(THROTTLED_BY.into_iter().zip(limits));
        for (name, number) in numbers.filter_map(|(name, number)| Some((name, number?))) {
            // What is out of its range is no value.
            let _written = builder.set_extra(row, name, Value::Float(number));
        }
    }
}

/// The start of the hour of an instant.
pub(super) fn hour_of(time_ns: i64) -> i64 {
    time_ns.div_euclid(HOUR_NS).saturating_mul(HOUR_NS)
}

/// Who has the GPU of a row.
fn holders_of(identity: Arc<Identity>, sharing: &dyn Sharing) -> Holders {
    let is_held = HOLDING.into_iter().any(|column| identity.get(column).is_some());
    let several = sharing.sharers(&identity);
    if several.is_empty() { is_held.then_some(identity).into_iter().collect() } else { several.into() }
}

/// The holder that an identity names.
fn name_of(identity: &Identity) -> Arc<str> {
    let text = |column| identity.get(column).unwrap_or_default();
    if let (None, Some(job)) = (identity.get(IdentityColumn::Pod), identity.get(IdentityColumn::Job)) {
        return format!("job:{job}").into();
    }
    let [namespace, pod, container] =
        [IdentityColumn::Namespace, IdentityColumn::Pod, IdentityColumn::Container].map(text);
    format!("pod:{namespace}/{pod}/{container}").into()
}

#[cfg(test)]
mod tests;
