//! What holders used in a range of time, by the rows of `gpu_usage`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow_array::DictionaryArray;
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use foldhash::fast::RandomState;

use super::holders::HOLDING;
use super::ledger::{EQUAL, EXCLUSIVE, NOBODY, OCCUPANCY, PROCESS_TIME, UNOBSERVED, hour_of};
use crate::batch::{MetricColumn, Value, numbers, text_at};
use crate::identity::split_profile;
use crate::number::float;
use crate::time::{self, DAY_NS, HOUR_NS, MINUTE_NS};
use crate::{Batch, Identity, IdentityColumn};

/// By so much the rows of a holder that has its GPU still may end before now: they are published every ten seconds, and trail the
/// samples by four of them.
pub const HOLDINGS_TRAIL_NS: i64 = 5 * MINUTE_NS;

/// Asks for what holders used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldingsQuery {
    /// Keys of the GPUs; empty: all.
    pub gpus: Vec<Arc<str>>,
    /// First instant, nanoseconds UTC since 1970.
    pub start_ns: i64,
    /// Last instant, included.
    pub end_ns: i64,
    /// What is put together.
    pub by: HoldingGroup,
    /// This holder alone, in any cluster; none: all, with the time of nobody and the time without rows.
    pub holder: Option<Arc<str>>,
}

impl HoldingsQuery {
    /// A column and the text that all rows of the holder have there who is asked for; none: all holders are, or it is a user, whom no column
    /// names.
    pub fn holding_text(&self) -> Option<(IdentityColumn, &str)> {
        let (kind, name) = self.holder.as_deref()?.split_once(':')?;
        let (column, text) = match kind {
            "job" => (IdentityColumn::Job, name),
            "pod" => {
                let mut parts = name.split('/');
                let pod = parts.nth(1)?;
                // Of another name its parts are not known.
                (parts.count() == 1).then_some((IdentityColumn::Pod, pod))?
            }
            _ => return None,
        };
        (!text.is_empty()).then_some((column, text))
    }
}

/// What holders are put together by, the usual one first: what their rows know, and what is told of jobs. A label of them is
/// `label:KEY`.
pub const HOLDING_GROUPS: [&str; 12] = [
    "holder",
    "gpu",
    "node",
    "namespace",
    "job",
    "pod",
    "model",
    "cluster",
    "day",
    "user",
    "account",
    "queue",
];

/// By what the use of holders is put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldingGroup {
    /// By holder, in each cluster.
    Holder,
    /// By GPU, whoever holds it.
    Gpu,
    /// By the text of an identity column, such as namespace, node or model.
    Identity(IdentityColumn),
    /// By day, UTC.
    Day,
}

/// What holders used in a range of time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HoldingsAnswer {
    /// What was held, by group, the one with the most time first.
    pub groups: Vec<Holding>,
    /// Time in which nobody had the GPUs.
    pub nobody: HoldingSums,
    /// Time without rows.
    pub unobserved: HoldingSums,
    /// By key of each GPU all of its time: of its holders, of nobody and without rows. That of MIG instances is their card's.
    pub gpus: BTreeMap<Arc<str>, HoldingSums>,
    /// Keys of these instances.
    pub instances: BTreeSet<Arc<str>>,
}

/// What a group of holders used: most often one of them. Time of a GPU that it shared counts by its part.
#[derive(Debug, Clone, PartialEq)]
pub struct Holding {
    /// What the group has in common; none: its rows have no text there.
    pub group: Option<Arc<str>>,
    /// The cluster; none: none is named, or several are.
    pub cluster: Option<Arc<str>>,
    /// The holder, as `gpu_usage` names it; none: there are several.
    pub holder: Option<Arc<str>>,
    /// Namespace, pod, container and job, as far as they are known and the same in all of it.
    pub names: [Option<Arc<str>>; 4],
    /// Keys of its GPUs, and as of when the last row about each is, nanoseconds UTC since 1970.
    pub gpus: BTreeMap<Arc<str>, i64>,
    /// Names of their nodes.
    pub nodes: BTreeSet<Arc<str>>,
    /// Models of its GPUs.
    pub models: BTreeSet<Arc<str>>,
    /// Whether some of it is simulated.
    pub is_simulated: bool,
    /// Whether it had a GPU at the end of the range: no other row about that GPU is a later one.
    pub is_last: bool,
    /// Hours of GPUs, and the rest of the sums.
    pub sums: HoldingSums,
}

/// Sums of what was used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HoldingSums {
    /// Seconds of GPUs.
    pub held_s: f64,
    /// The part of them in which somebody else had the GPU too.
    pub shared_s: f64,
    /// Seconds times utilisation; none where that is never known.
    pub busy_s: Option<f64>,
    /// The rest of the seconds in which the utilisation is known: held for nothing.
    pub wasted_s: Option<f64>,
    /// Seconds in which a GPU did nothing; none as well.
    pub idle_s: Option<f64>,
    /// Seconds in which a limit held the clocks down; none where that is never known.
    pub throttled_s: Option<f64>,
    /// Energy, joules; none without any.
    pub joules: Option<f64>,
    /// Energy of the time in which a GPU did nothing, joules.
    pub idle_joules: Option<f64>,
    /// Highest power of a GPU, watts.
    pub power_max_w: Option<f64>,
    /// Highest temperature of a GPU, °C.
    pub temperature_max_c: Option<f64>,
    /// Most memory in use on a GPU, MB.
    pub memory_max_mb: Option<f64>,
    /// The part of the held seconds that is of hours of which only a part was asked for: there the same part is taken of everything.
    pub interpolated_s: f64,
}

/// Adds up rows of `gpu_usage` over a range.
#[derive(Debug)]
pub struct Holdings {
    start_ns: i64,
    end_ns: i64,
    by: HoldingGroup,
    holder: Option<Arc<str>>,
    held: HashMap<GroupKey, Holding, RandomState>,
    nobody: HoldingSums,
    unobserved: HoldingSums,
    gpus: BTreeMap<Arc<str>, HoldingSums>,
    instances: BTreeSet<Arc<str>>,
    /// Of each GPU, as of when its last row is.
    last_ns: HashMap<Arc<str>, i64, RandomState>,
}

/// Cluster and name of a group; the cluster counts for holders alone.
type GroupKey = (Option<Arc<str>>, Option<Arc<str>>);

/// A row of `gpu_usage`, as far as it lies in the range.
struct HeldRow<'a> {
    holder: &'a str,
    hour_ns: i64,
    as_of_ns: i64,
    /// Key of the GPU or instance.
    gpu: &'a Arc<str>,
    /// That of the card in whose time an instance's is.
    card: Option<&'a Arc<str>>,
    identity: &'a Identity,
    sums: HoldingSums,
}

/// The GPU or MIG instance of some rows, with their holder.
struct HeldGpu {
    identity: Identity,
    key: Arc<str>,
    /// Key of the card, if it is an instance.
    card: Option<Arc<str>>,
}

/// The columns of numbers that are read, in the order of [`HoldingSums::of_row`].
const NUMBERS: [&str; 10] = [
    "held_ns",
    "known_ns",
    "busy_ns",
    "idle_ns",
    "throttled_ns",
    "used_mj",
    "idle_mj",
    "power_max_w",
    "temperature_max_c",
    "memory_max_mb",
];

/// The columns of a batch.
struct HeldColumns<'a> {
    holder: Option<&'a DictionaryArray<Int32Type>>,
    share: Option<&'a DictionaryArray<Int32Type>>,
    identity: [Option<&'a DictionaryArray<Int32Type>>; IdentityColumn::ALL.len()],
    as_of_ns: Option<MetricColumn<'a>>,
    numbers: [Option<MetricColumn<'a>>; NUMBERS.len()],
}

impl<'a> HeldColumns<'a> {
    fn of(batch: &'a Batch) -> Self {
        let column = |name: &str| batch.records().column_by_name(name);
        let text = |name: &str| column(name).and_then(|column| column.as_dictionary_opt::<Int32Type>());
        let number = |name: &str| column(name).and_then(numbers);
        Self {
            holder: text("holder"),
            share: text("share"),
            identity: IdentityColumn::ALL.map(|column| batch.identity_column(column)),
            as_of_ns: number("as_of_ns"),
            numbers: NUMBERS.map(number),
        }
    }

    /// What names the GPU and the holder of a row, as numbers of their texts.
    fn codes(&self, row: usize) -> [Option<usize>; IdentityColumn::ALL.len()] {
        self.identity.map(|texts| texts?.key(row))
    }

    #[expect(clippy::cast_possible_truncation, reason = "an instant is far below 2^63")]
    fn as_of_ns(&self, row: usize) -> Option<i64> {
        self.as_of_ns?.value(row).map(|as_of_ns| as_of_ns.as_f64() as i64)
    }

    fn numbers(&self, row: usize) -> [Option<f64>; NUMBERS.len()] {
        self.numbers.map(|column| column?.value(row).map(Value::as_f64))
    }
}

impl HeldGpu {
    /// None if the identity names none.
    fn of(identity: Identity) -> Option<Self> {
        let key = identity.key()?;
        let has_profile =
            identity.get(IdentityColumn::Model).is_some_and(|model| split_profile(model).1.is_some());
        let card = identity.card().filter(|_| has_profile).and_then(|card| card.key());
        Some(Self { identity, key, card })
    }
}

impl Holdings {
    /// Nothing yet, of the range and the holder of a question.
    pub fn of(query: &HoldingsQuery) -> Self {
        let HoldingsQuery { start_ns, end_ns, by, ref holder, .. } = *query;
        Self {
            start_ns,
            end_ns,
            by,
            holder: holder.clone(),
            held: HashMap::default(),
            nobody: HoldingSums::default(),
            unobserved: HoldingSums::default(),
            gpus: BTreeMap::new(),
            instances: BTreeSet::new(),
            last_ns: HashMap::default(),
        }
    }

    /// The columns of `gpu_usage` that are added up; who has the GPU, and which, is read with them.
    pub fn columns() -> impl Iterator<Item = &'static str> {
        ["holder", "share", "run", "as_of_ns"].into_iter().chain(NUMBERS)
    }

    /// The times of the rows that are wanted: rows have the start of their hour.
    pub fn rows_ns(&self) -> (i64, i64) {
        (hour_of(self.start_ns), self.end_ns)
    }

    /// Adds rows, each of its key once.
    pub fn add(&mut self, batch: &Batch) {
        let columns = HeldColumns::of(batch);
        let mut known: HashMap<_, Option<HeldGpu>, RandomState> = HashMap::default();
        for (row, &hour_ns) in batch.timestamps().iter().enumerate() {
            let Some(holder) = held_text(columns.holder, row) else { continue };
            let Some(as_of_ns) = columns.as_of_ns(row) else { continue };
            let until_ns = hour_ns.saturating_add(HOUR_NS).min(as_of_ns);
            let Some(part) = self.part_of((hour_ns, until_ns)) else { continue };
            let of_codes = known.entry(columns.codes(row));
            let gpu = of_codes.or_insert_with(|| HeldGpu::of(batch.identity(row)));
            let Some(gpu) = gpu else { continue };
            let share = held_text(columns.share, row).unwrap_or(EXCLUSIVE);
            let is_shared = [EQUAL, PROCESS_TIME, OCCUPANCY].contains(&share);
            let sums = HoldingSums::of_row(columns.numbers(row), part, is_shared);
            // An instance that has its time for itself has no card with rows.
            let card = gpu.card.as_ref().filter(|_| share != EXCLUSIVE);
            let HeldGpu { identity, key, .. } = &*gpu;
            self.add_row(&HeldRow { holder, hour_ns, as_of_ns, gpu: key, card, identity, sums });
        }
    }

    /// The GPUs of the holders so far, and the times of the rows of all holders that say who has them still.
    pub fn last_rows(&self) -> (Vec<Arc<str>>, (i64, i64)) {
        let gpus: BTreeSet<Arc<str>> = self.held.values().flat_map(|one| one.gpus.keys().cloned()).collect();
        let from_ns = hour_of(self.end_ns.saturating_sub(HOLDINGS_TRAIL_NS));
        (gpus.into_iter().collect(), (from_ns, self.end_ns))
    }

    /// Takes these rows: of a holder whose GPU somebody else has by a later one, it is known that it has lost it.
    pub fn add_last(&mut self, batch: &Batch) {
        let columns = HeldColumns::of(batch);
        for row in 0..batch.rows() {
            let is_seen = held_text(columns.holder, row).is_some_and(|holder| holder != UNOBSERVED);
            let last = columns.as_of_ns(row).zip(batch.identity(row).key()).filter(|_| is_seen);
            if let Some((as_of_ns, gpu)) = last {
                self.note_last(&gpu, as_of_ns);
            }
        }
    }

    fn note_last(&mut self, gpu: &Arc<str>, as_of_ns: i64) {
        let last_ns = self.last_ns.entry(Arc::clone(gpu)).or_insert(as_of_ns);
        *last_ns = as_of_ns.max(*last_ns);
    }

    /// The part of an hour, as far as it is added up, that lies in the range; none: nothing of it.
    fn part_of(&self, (from_ns, until_ns): (i64, i64)) -> Option<f64> {
        let whole_ns = until_ns.saturating_sub(from_ns);
        let within_ns = until_ns.min(self.end_ns).saturating_sub(from_ns.max(self.start_ns));
        let part = float(within_ns) / float(whole_ns);
        (whole_ns > 0 && within_ns > 0).then(|| part.min(1.0))
    }

    fn add_row(&mut self, row: &HeldRow<'_>) {
        let gpu = row.gpu;
        if row.card.is_some() {
            self.instances.insert(Arc::clone(gpu));
        }
        self.gpus.entry(Arc::clone(row.card.unwrap_or(gpu))).or_default().add(&row.sums);
        match row.holder {
            UNOBSERVED => return self.unobserved.add(&row.sums),
            NOBODY => self.nobody.add(&row.sums),
            _ => {}
        }
        self.note_last(gpu, row.as_of_ns);
        let is_asked = self.holder.as_deref().is_none_or(|asked| asked == row.holder);
        if row.holder == NOBODY || !is_asked {
            return;
        }
        let key = self.group_of(row);
        let group = key.1.clone();
        self.held.entry(key).or_insert_with(|| Holding::first(group, row)).add(row);
    }

    fn group_of(&self, row: &HeldRow<'_>) -> GroupKey {
        match self.by {
            HoldingGroup::Holder => {
                (row.identity.shared(IdentityColumn::Cluster).cloned(), Some(Arc::from(row.holder)))
            }
            HoldingGroup::Gpu => (None, Some(Arc::clone(row.gpu))),
            HoldingGroup::Identity(column) => (None, row.identity.shared(column).cloned()),
            HoldingGroup::Day => (None, Some(day_of(row.hour_ns))),
        }
    }

    /// What was added up.
    pub fn finish(self) -> HoldingsAnswer {
        let (last_ns, since_ns) = (self.last_ns, self.end_ns.saturating_sub(HOLDINGS_TRAIL_NS));
        let is_last = |(gpu, as_of_ns): (&Arc<str>, &i64)| {
            *as_of_ns >= since_ns && last_ns.get(gpu).is_none_or(|last_ns| as_of_ns >= last_ns)
        };
        let finished =
            self.held.into_values().map(|one| Holding { is_last: one.gpus.iter().any(is_last), ..one });
        let mut groups: Vec<Holding> = finished.collect();
        groups.sort_by(|one, other| {
            let most = other.sums.held_s.total_cmp(&one.sums.held_s);
            most.then_with(|| (&one.cluster, &one.group).cmp(&(&other.cluster, &other.group)))
        });
        HoldingsAnswer {
            groups,
            nobody: self.nobody,
            unobserved: self.unobserved,
            gpus: self.gpus,
            instances: self.instances,
        }
    }
}

impl HoldingGroup {
    /// The group of that name: `holder`, `gpu`, `day`, or an identity column.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "holder" => Some(Self::Holder),
            "gpu" => Some(Self::Gpu),
            "day" => Some(Self::Day),
            name => IdentityColumn::by_name(name).map(Self::Identity),
        }
    }
}

impl Holding {
    /// A group whose first row this is, before that is added.
    fn first(group: Option<Arc<str>>, row: &HeldRow<'_>) -> Self {
        Self {
            group,
            cluster: row.identity.shared(IdentityColumn::Cluster).cloned(),
            holder: Some(Arc::from(row.holder)),
            names: HOLDING.map(|column| row.identity.shared(column).cloned()),
            gpus: BTreeMap::new(),
            nodes: BTreeSet::new(),
            models: BTreeSet::new(),
            is_simulated: false,
            is_last: false,
            sums: HoldingSums::default(),
        }
    }

    fn add(&mut self, row: &HeldRow<'_>) {
        let text = |column| row.identity.get(column);
        keep_same(&mut self.cluster, text(IdentityColumn::Cluster));
        keep_same(&mut self.holder, Some(row.holder));
        for (name, column) in self.names.iter_mut().zip(HOLDING) {
            keep_same(name, text(column));
        }
        let last_ns = self.gpus.entry(Arc::clone(row.gpu)).or_insert(row.as_of_ns);
        *last_ns = row.as_of_ns.max(*last_ns);
        self.nodes.extend(row.identity.shared(IdentityColumn::Node).cloned());
        self.models.extend(row.identity.shared(IdentityColumn::Model).cloned());
        self.is_simulated |= row.identity.is_simulated();
        self.sums.add(&row.sums);
    }

    /// Adds another group of the same question: what both have in common stays.
    pub fn and(&mut self, other: &Self) {
        keep_same(&mut self.group, other.group.as_deref());
        keep_same(&mut self.cluster, other.cluster.as_deref());
        keep_same(&mut self.holder, other.holder.as_deref());
        for (name, others) in self.names.iter_mut().zip(&other.names) {
            keep_same(name, others.as_deref());
        }
        for (gpu, as_of_ns) in &other.gpus {
            let last_ns = self.gpus.entry(Arc::clone(gpu)).or_insert(*as_of_ns);
            *last_ns = (*as_of_ns).max(*last_ns);
        }
        self.nodes.extend(other.nodes.iter().cloned());
        self.models.extend(other.models.iter().cloned());
        self.is_simulated |= other.is_simulated;
        self.is_last |= other.is_last;
        self.sums.add(&other.sums);
    }
}

impl HoldingSums {
    /// So much of the numbers of a row.
    fn of_row(numbers: [Option<f64>; NUMBERS.len()], part: f64, is_shared: bool) -> Self {
        let [
            held,
            known,
            busy,
            idle,
            throttled,
            used,
            used_idle,
            power_max_w,
            temperature_max_c,
            memory_max_mb,
        ] = numbers;
        let scaled = |number: Option<f64>, unit: f64| number.map(|number| number * unit * part);
        let held_s = scaled(held, 1e-9).unwrap_or(0.0);
        let busy_s = scaled(busy, 1e-9);
        Self {
            held_s,
            shared_s: if is_shared { held_s } else { 0.0 },
            busy_s,
            wasted_s: scaled(known, 1e-9).zip(busy_s).map(|(known_s, busy_s)| known_s - busy_s),
            idle_s: scaled(idle, 1e-9),
            throttled_s: scaled(throttled, 1e-9),
            joules: scaled(used, 1e-3),
            idle_joules: scaled(used_idle, 1e-3),
            power_max_w,
            temperature_max_c,
            memory_max_mb,
            interpolated_s: if part < 1.0 { held_s } else { 0.0 },
        }
    }

    /// Seconds in which the utilisation is known; none where it never is.
    pub fn known_s(&self) -> Option<f64> {
        self.wasted_s.zip(self.busy_s).map(|(wasted_s, busy_s)| wasted_s + busy_s)
    }

    /// Whether a part of an hour was asked for.
    pub fn is_interpolated(&self) -> bool {
        self.interpolated_s > 0.0
    }

    /// Adds what others used.
    pub fn add(&mut self, other: &Self) {
        let sum = |one: Option<f64>, other: Option<f64>| super::stay::sum(one, other, |a, b| a + b);
        let higher = |one: Option<f64>, other: Option<f64>| super::stay::sum(one, other, f64::max);
        self.held_s += other.held_s;
        self.shared_s += other.shared_s;
        self.busy_s = sum(self.busy_s, other.busy_s);
        self.wasted_s = sum(self.wasted_s, other.wasted_s);
        self.idle_s = sum(self.idle_s, other.idle_s);
        self.throttled_s = sum(self.throttled_s, other.throttled_s);
        self.joules = sum(self.joules, other.joules);
        self.idle_joules = sum(self.idle_joules, other.idle_joules);
        self.power_max_w = higher(self.power_max_w, other.power_max_w);
        self.temperature_max_c = higher(self.temperature_max_c, other.temperature_max_c);
        self.memory_max_mb = higher(self.memory_max_mb, other.memory_max_mb);
        self.interpolated_s += other.interpolated_s;
    }
}

/// Keeps a text if another one is the same.
fn keep_same(text: &mut Option<Arc<str>>, other: Option<&str>) {
    if text.as_deref() != other {
        *text = None;
    }
}

/// The day of an hour: `2026-11-20`.
fn day_of(hour_ns: i64) -> Arc<str> {
    let text = time::format(hour_ns.div_euclid(DAY_NS).saturating_mul(DAY_NS));
    text.split('T').next().unwrap_or_default().into()
}

fn held_text(texts: Option<&DictionaryArray<Int32Type>>, row: usize) -> Option<&str> {
    text_at(texts?, row)
}
