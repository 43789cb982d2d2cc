//! The fleet as rows change it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, DictionaryArray};
use foldhash::fast::RandomState;

use super::ahead::RowsAhead;
use super::fleet::{ExtraValue, Fleet, GpuState, LatestValue, Names, name_on};
use crate::batch::{EXTRA_COLUMNS_MAX, MetricColumn, RowKeys, text_at};
use crate::identity::INDEX_COLUMN;
use crate::{Batch, Identity, IdentityColumn, MetricId};

pub(super) use super::fleet::aliases_of;

/// Holder of the GPU, and origin of the row: empty if the newest row lacks them. All other columns describe
/// the device, and a row that lacks one changes nothing.
pub(super) const PASSING: [IdentityColumn; 5] = [
    IdentityColumn::Pod,
    IdentityColumn::Namespace,
    IdentityColumn::Container,
    IdentityColumn::Job,
    IdentityColumn::Source,
];

/// The columns that determine the order of GPUs and their names, besides the index. The others may change
/// every second.
const NAMING: [IdentityColumn; 3] = [IdentityColumn::Node, IdentityColumn::Uuid, IdentityColumn::Pci];

/// One of this many GPUs leaves with those that find no room, so that not each further GPU costs a look at all.
const SPARE: usize = 256;

/// What a fleet holds, and which rows count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetBounds {
    /// Most GPUs; the longest silent leave first.
    pub gpus_max: usize,
    /// A row that is further ahead of the clock than this counts when its time has come, nanoseconds.
    pub ahead_max_ns: i64,
}

impl FleetBounds {
    /// Most GPUs, unless a setting says otherwise.
    pub const GPUS_MAX: usize = 131_072;
}

impl Default for FleetBounds {
    /// Rows of any time count at once.
    fn default() -> Self {
        Self { gpus_max: Self::GPUS_MAX, ahead_max_ns: i64::MAX }
    }
}

/// Latest state of every GPU, changed in place; state that a snapshot holds is copied first.
#[derive(Debug, Default)]
pub struct LiveFleet {
    bounds: FleetBounds,
    version: u64,
    forgotten: u64,
    ahead: RowsAhead,
    ordinals: HashMap<Arc<str>, usize, RandomState>,
    gpus: Vec<Arc<GpuState>>,
    /// Order of presentation and names, until a naming column changes.
    index: Option<(Vec<usize>, Arc<Names>)>,
}

/// A batch's columns, looked up once.
struct BatchColumns<'a> {
    times: &'a [i64],
    metrics: Vec<(MetricId, MetricColumn<'a>)>,
    texts: Vec<(IdentityColumn, Option<&'a DictionaryArray<Int32Type>>)>,
    index: Option<&'a arrow_array::Int32Array>,
    extras: Vec<(Arc<str>, &'a ArrayRef)>,
}

impl<'a> BatchColumns<'a> {
    fn of(batch: &'a Batch) -> Self {
        let mut metrics: Vec<_> = batch.metrics().collect();
        metrics.sort_by_key(|(id, _)| *id);
        Self {
            times: batch.timestamps(),
            metrics,
            texts: IdentityColumn::ALL.into_iter().map(|c| (c, batch.identity_column(c))).collect(),
            index: batch
                .records()
                .column_by_name(INDEX_COLUMN)
                .and_then(|c| c.as_primitive_opt::<Int32Type>()),
            extras: batch.extras().map(|(name, column)| (Arc::from(name), column)).collect(),
        }
    }
}

impl LiveFleet {
    /// Without a GPU.
    pub fn new(bounds: FleetBounds) -> Self {
        Self { bounds, ..Self::default() }
    }

    /// What it holds, and which rows count.
    pub fn bounds(&self) -> FleetBounds {
        self.bounds
    }

    /// Sets the version that readers see from now on.
    pub fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    /// Number of GPUs that are held.
    pub fn gpus(&self) -> usize {
        self.gpus.len()
    }

    /// Whether a GPU is held.
    pub fn holds(&self, key: &str) -> bool {
        self.ordinals.contains_key(key)
    }

    /// The state of a GPU, by its key.
    pub(super) fn get(&self, key: &str) -> Option<&GpuState> {
        self.gpus.get(*self.ordinals.get(key)?).map(AsRef::as_ref)
    }

    /// GPUs that left to make room, the same GPU each time.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The earliest time that a row waits for, nanoseconds UTC since 1970.
    pub fn next_ns(&self) -> Option<i64> {
        self.ahead.next_ns()
    }

    /// Takes in rows of `gpu_events` that come at `now_ns`: those of a clock ahead ([`FleetBounds::ahead_max_ns`]) count when
    /// their time has come. `keys` are those of the batch.
    pub fn arrive(&mut self, batch: &Batch, keys: &RowKeys, now_ns: i64) {
        self.advance(now_ns);
        let limit_ns = now_ns.saturating_add(self.bounds.ahead_max_ns);
        let counts: Vec<bool> = batch.timestamps().iter().map(|time| *time <= limit_ns).collect();
        if !counts.contains(&false) {
            return self.apply(batch, keys);
        }
        self.ahead.hold(batch, keys, (now_ns, limit_ns), self.bounds.gpus_max);
        if let Some(rest) = batch.filter(&counts) {
            self.apply_rows(&rest);
        }
    }

    /// Takes in the rows whose time has come by now, and says whether there were any.
    pub fn advance(&mut self, now_ns: i64) -> bool {
        let due = self.ahead.due(now_ns);
        for batch in &due {
            self.apply_rows(batch);
        }
        !due.is_empty()
    }

    fn apply_rows(&mut self, batch: &Batch) {
        // They are rows of batches that had keys.
        if let Ok(keys) = RowKeys::of(batch.records(), batch.table()) {
            self.apply(batch, &keys);
        }
    }

    /// Takes rows of `gpu_events` in. `keys` are those of the batch.
    pub fn apply(&mut self, batch: &Batch, keys: &RowKeys) {
        let columns = BatchColumns::of(batch);
        let mut newest = vec![i64::MIN; keys.keys.len()];
        for (&time, &id) in columns.times.iter().zip(&keys.ids) {
            if let Some(newest) = newest.get_mut(id as usize) {
                *newest = time.max(*newest);
            }
        }
        let ordinals: Vec<Option<usize>> = keys
            .keys
            .iter()
            .zip(&newest)
            .map(|(key, &newest)| (newest > i64::MIN).then(|| self.ordinal(key)))
            .collect();
        for (row, (&time, &id)) in columns.times.iter().zip(&keys.ids).enumerate() {
            let ordinal = ordinals.get(id as usize).copied().flatten();
            let Some(gpu) = ordinal.and_then(|ordinal| self.gpus.get_mut(ordinal)) else { continue };
            let gpu = Arc::make_mut(gpu);
            if newest.get(id as usize) == Some(&time)
                && time >= gpu.last_seen_ns
                && describe(gpu, &columns, row, time)
            {
                self.index = None;
            }
            gpu.last_seen_ns = gpu.last_seen_ns.max(time);
            gpu.first_seen_ns = gpu.first_seen_ns.min(time);
            measure(gpu, &columns.metrics, row, time);
            for (name, column) in &columns.extras {
                if let Some(value) = ExtraValue::of(column, row) {
                    note(gpu, name, value, time);
                }
            }
        }
        self.make_room();
    }

    /// Takes in the state of a GPU that another history has: of each column the newer value, and the identity of the newer row with
    /// what it lacks from the older one. Of two rows of one time that of the other history is the newer.
    pub fn add(&mut self, state: &Arc<GpuState>) {
        let is_known = self.ordinals.contains_key(&state.key);
        let ordinal = self.ordinal(&state.key);
        let Some(own) = self.gpus.get_mut(ordinal) else { return };
        if is_known {
            Arc::make_mut(own).take(state);
            self.index = None;
        } else {
            *own = Arc::clone(state);
        }
        self.make_room();
    }

    /// Lets the longest silent go if there are too many.
    fn make_room(&mut self) {
        let most = self.bounds.gpus_max;
        if self.gpus.len() <= most {
            return;
        }
        let gone = self.gpus.len() - (most - most / SPARE);
        let last_seen = |gpu: &Arc<GpuState>| gpu.last_seen_ns;
        self.gpus.select_nth_unstable_by_key(gone - 1, last_seen);
        self.gpus.drain(..gone);
        let ordinals = self.gpus.iter().enumerate();
        self.ordinals = ordinals.map(|(ordinal, gpu)| (Arc::clone(&gpu.key), ordinal)).collect();
        self.index = None;
        self.forgotten += gone as u64;
    }

    fn ordinal(&mut self, key: &Arc<str>) -> usize {
        match self.ordinals.entry(Arc::clone(key)) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                self.index = None;
                self.gpus.push(Arc::new(GpuState {
                    key: Arc::clone(key),
                    identity: Identity::default(),
                    first_seen_ns: i64::MAX,
                    last_seen_ns: i64::MIN,
                    latest: Vec::new(),
                    extras: Vec::new(),
                }));
                *entry.insert(self.gpus.len() - 1)
            }
        }
    }

    /// The readers' view.
    pub fn snapshot(&mut self) -> Fleet {
        let gpus = &self.gpus;
        let (order, names) = self.index.get_or_insert_with(|| index(gpus));
        let gpus = order.iter().filter_map(|&ordinal| gpus.get(ordinal).cloned()).collect();
        Fleet::new(self.version, gpus, Arc::clone(names))
    }
}

impl GpuState {
    /// The GPU's name for people: `node-1 / GPU 6`, with the name of its partition if it is one; its key where its node is not known.
    pub fn name(&self) -> String {
        let partition = self.identity.get(IdentityColumn::Partition);
        let partition = partition.map_or(String::new(), |part| format!(" / {part}"));
        match (self.identity.node(), self.identity.index) {
            (Some(node), Some(index)) => name_on(node, index) + &partition,
            (Some(node), None) => format!("{node} / {}", self.key),
            (None, _) => self.key.to_string(),
        }
    }

    fn take(&mut self, other: &Self) {
        let is_newer = other.last_seen_ns >= self.last_seen_ns;
        let (newer, older) = if is_newer { (other, &*self) } else { (&*self, other) };
        let mut identity = newer.identity.clone();
        identity.index = identity.index.or(older.identity.index);
        let of_device = IdentityColumn::ALL.into_iter().filter(|column| !PASSING.contains(column));
        identity.fill(of_device, &older.identity);
        self.identity = identity;
        self.first_seen_ns = self.first_seen_ns.min(other.first_seen_ns);
        self.last_seen_ns = self.last_seen_ns.max(other.last_seen_ns);
        if self.latest.is_empty() {
            self.latest.clone_from(&other.latest);
        } else {
            other.latest.iter().for_each(|(metric, latest)| self.keep_newer(*metric, *latest));
        }
        let has_room = self.extras.len() < EXTRA_COLUMNS_MAX;
        for (name, value, time) in &other.extras {
            match self.extras.iter_mut().find(|(known, ..)| known == name) {
                Some((_, own, at)) if *at < *time => (*own, *at) = (value.clone(), *time),
                None if has_room => self.extras.push((Arc::clone(name), value.clone(), *time)),
                _ => {}
            }
        }
    }

    /// Keeps the newer one of two values of a metric; of two of one time that which is there.
    fn keep_newer(&mut self, metric: MetricId, latest: LatestValue) {
        match self.latest.binary_search_by_key(&metric, |(known, _)| *known) {
            Err(place) => self.latest.insert(place, (metric, latest)),
            Ok(place) => {
                let own = self.latest.get_mut(place).map(|(_, own)| own);
                own.filter(|own| own.timestamp_ns < latest.timestamp_ns)
                    .into_iter()
                    .for_each(|own| *own = latest);
            }
        }
    }
}

/// Takes over a newest row's description of the GPU; returns whether that changed its place or its names.
fn describe(gpu: &mut GpuState, columns: &BatchColumns<'_>, row: usize, time: i64) -> bool {
    let mut changed = false;
    for (column, array) in &columns.texts {
        let text = array.and_then(|array| text_at(array, row));
        if text == gpu.identity.get(*column) {
            continue;
        }
        match text {
            Some(text) => {
                changed |= gpu.identity.set(*column, text).is_ok() && NAMING.contains(column);
            }
            None if time > gpu.last_seen_ns && PASSING.contains(column) => {
                let _an_empty_text_is_always_taken = gpu.identity.set(*column, "");
            }
            None => {}
        }
    }
    let index =
        columns.index.filter(|array| row < array.len() && array.is_valid(row)).map(|array| array.value(row));
    if index.is_some() && index != gpu.identity.index {
        gpu.identity.index = index;
        changed = true;
    }
    changed
}

/// Both lists are sorted by metric: one walk.
fn measure(gpu: &mut GpuState, metrics: &[(MetricId, MetricColumn<'_>)], row: usize, timestamp_ns: i64) {
    let mut at = 0;
    for (id, column) in metrics {
        let Some(value) = column.value(row) else { continue };
        let fresh = LatestValue { value, timestamp_ns };
        while gpu.latest.get(at).is_some_and(|(known, _)| known < id) {
            at += 1;
        }
        match gpu.latest.get_mut(at) {
            Some((known, latest)) if known == id => {
                if timestamp_ns >= latest.timestamp_ns {
                    *latest = fresh;
                }
            }
            _ => gpu.latest.insert(at, (*id, fresh)),
        }
        at += 1;
    }
}

/// The newest value of a column that the catalogue does not know.
fn note(gpu: &mut GpuState, name: &Arc<str>, value: ExtraValue, time: i64) {
    if let Some((_, latest, at)) = gpu.extras.iter_mut().find(|(known, _, _)| known == name) {
        if time >= *at {
            (*latest, *at) = (value, time);
        }
        return;
    }
    // Unknown columns may come under ever new names; the stalest is dropped.
    if gpu.extras.len() >= EXTRA_COLUMNS_MAX
        && let Some(stalest) = (0..gpu.extras.len()).min_by_key(|&i| gpu.extras.get(i).map(|(_, _, at)| *at))
    {
        gpu.extras.swap_remove(stalest);
    }
    gpu.extras.push((Arc::clone(name), value, time));
}

/// Order of presentation, and the GPU of each name.
fn index(gpus: &[Arc<GpuState>]) -> (Vec<usize>, Arc<Names>) {
    let mut order: Vec<usize> = (0..gpus.len()).collect();
    order.sort_by_key(|&i| gpus.get(i).map(|gpu| (gpu.identity.node(), gpu.identity.index, &gpu.key)));
    let mut names = Names::default();
    let mut aliases = Names::default();
    let in_order = order.iter().filter_map(|&i| gpus.get(i));
    for (position, gpu) in (0_u32..).zip(in_order) {
        names.insert(Arc::clone(&gpu.key), Some(position));
        for alias in aliases_of(&gpu.identity) {
            aliases.entry(alias).and_modify(|taken| *taken = None).or_insert(Some(position));
        }
    }
    for (name, position) in aliases {
        names.entry(name).or_insert(position);
    }
    (order, Arc::new(names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND_NS;
    use crate::{BatchBuilder, Origin, Table};

    /// A row of each of these GPUs, at a time of its own.
    fn rows(rows: &[(&str, i64)]) -> (Batch, RowKeys) {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        for (gpu, time) in rows {
            let identity = builder.intern(&Identity::default().with(IdentityColumn::Uuid, gpu).unwrap());
            builder.row(*time, identity);
        }
        let batch = builder.finish(Origin::default(), 0).unwrap();
        let keys = RowKeys::of(batch.records(), Table::GpuEvents).unwrap();
        (batch, keys)
    }

    fn held(fleet: &mut LiveFleet) -> Vec<(String, i64)> {
        fleet.snapshot().gpus.iter().map(|gpu| (gpu.key.to_string(), gpu.last_seen_ns)).collect()
    }

    #[test]
    fn the_longest_silent_leave_when_there_are_too_many() {
        let mut fleet = LiveFleet::new(FleetBounds { gpus_max: 3, ..FleetBounds::default() });
        let (batch, keys) = rows(&[("b", 2), ("a", 1), ("c", 3), ("d", 4)]);
        fleet.apply(&batch, &keys);
        assert_eq!(held(&mut fleet), [("b".to_owned(), 2), ("c".to_owned(), 3), ("d".to_owned(), 4)]);
        let (batch, keys) = rows(&[("b", 5), ("a", 6)]);
        fleet.apply(&batch, &keys);
        assert_eq!(held(&mut fleet), [("a".to_owned(), 6), ("b".to_owned(), 5), ("d".to_owned(), 4)]);
        assert!(fleet.forgotten() == 2 && fleet.holds("b") && !fleet.holds("c"));
        // As do those that come from another history.
        let mut whole = LiveFleet::new(FleetBounds { gpus_max: 2, ..FleetBounds::default() });
        fleet.snapshot().gpus.iter().for_each(|gpu| whole.add(gpu));
        assert_eq!(held(&mut whole), [("a".to_owned(), 6), ("b".to_owned(), 5)]);
    }

    #[test]
    fn a_row_of_a_clock_ahead_counts_when_its_time_has_come() {
        let bounds = FleetBounds { ahead_max_ns: 5 * SECOND_NS, ..FleetBounds::default() };
        let mut fleet = LiveFleet::new(bounds);
        let at = |second: i64| second * SECOND_NS;
        let (batch, keys) = rows(&[("a", at(3_000)), ("a", at(5)), ("b", at(20))]);
        fleet.arrive(&batch, &keys, 0);
        assert_eq!(held(&mut fleet), [("a".to_owned(), at(5))]);
        assert_eq!(fleet.next_ns(), Some(at(20)));
        let (batch, keys) = rows(&[("a", at(6))]);
        fleet.arrive(&batch, &keys, at(6));
        assert_eq!(held(&mut fleet), [("a".to_owned(), at(6))]);
        assert!(!fleet.advance(at(19)) && fleet.advance(at(20)));
        assert_eq!(held(&mut fleet), [("a".to_owned(), at(6)), ("b".to_owned(), at(20))]);
        assert!(fleet.advance(at(3_000)) && fleet.next_ns().is_none());
        assert_eq!(held(&mut fleet), [("a".to_owned(), at(3_000)), ("b".to_owned(), at(20))]);
    }

    #[test]
    fn a_clock_that_stays_ahead_is_followed_with_few_rows() {
        let bounds = FleetBounds { ahead_max_ns: 5 * SECOND_NS, ..FleetBounds::default() };
        let (mut fleet, lead) = (LiveFleet::new(bounds), 3_200);
        for second in 0..2 * lead {
            let (batch, keys) = rows(&[("a", (second + lead) * SECOND_NS)]);
            fleet.arrive(&batch, &keys, second * SECOND_NS);
            if second >= lead {
                let (_, seen) = held(&mut fleet)[0];
                let age = second - seen / SECOND_NS;
                assert!((0..=lead / 64).contains(&age), "{age} s at {second}");
            }
        }
        assert!(fleet.ahead.len() <= 65, "{} rows wait", fleet.ahead.len());
    }
}
