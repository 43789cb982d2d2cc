//! Sums of rows of `gpu_usage`. A month of a large fleet has millions of them, so GPUs, places and groups are numbers until the end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::answer::{
    HOLDINGS_TRAIL_NS, Holding, HoldingGroup, HoldingSums, HoldingsAnswer, HoldingsQuery, RankedGroup,
    keep_same,
};
use crate::identity::split_profile;
use crate::integral::rounded;
use crate::number::float;
use crate::time::{self, DAY_NS};
use crate::usage::holders::HOLDING;
use crate::usage::job_texts::JobTexts;
use crate::usage::ledger::{NOBODY, UNOBSERVED, hour_of};
use crate::{Identity, IdentityColumn};

/// Adds up rows of `gpu_usage` over a range.
#[derive(Debug)]
pub struct Holdings {
    start_ns: i64,
    end_ns: i64,
    pub(super) by: HoldingGroup,
    holder: Option<Arc<str>>,
    /// By what is told of jobs holders are put together, if they are.
    told: Option<Arc<JobTexts>>,
    /// The numbers of the groups of these, by the places of their texts: there are millions of jobs, and few texts that all threads
    /// have in common.
    told_groups: Vec<Option<u32>>,
    groups: Numbered<GroupKey, HeldGroup>,
    nobody: HoldingSums,
    unobserved: HoldingSums,
    gpus: Numbered<Arc<str>, HeldGpu>,
    places: Numbered<HeldPlace, HeldPlace>,
    /// Names of nodes, models and clusters.
    texts: Numbered<Arc<str>, Arc<str>>,
}

/// Cluster and name of a group; the cluster counts for holders alone.
type GroupKey = (Option<Arc<str>>, Option<Arc<str>>);

/// Things with a number each, by the order in which they came.
#[derive(Debug)]
struct Numbered<K, V> {
    numbers: HashMap<K, u32, RandomState>,
    things: Vec<V>,
}

/// A group so far.
#[derive(Debug)]
struct HeldGroup {
    key: GroupKey,
    /// The holder, and namespace, pod, container and job: as far as they are the same in all of it.
    holder: Option<Arc<str>>,
    names: [Option<Arc<str>>; HOLDING.len()],
    /// Of each of its places, as of when the last row is.
    places: HashMap<u32, i64, RandomState>,
    sums: HoldingSums,
}

/// A GPU or MIG instance so far.
#[derive(Debug)]
struct HeldGpu {
    key: Arc<str>,
    /// All of its time; none: no row has any.
    sums: Option<HoldingSums>,
    /// Whether its time is in that of its card.
    is_instance: bool,
    /// Whether it has no rows of `gpu_usage`, but those of its samples.
    is_by_rows: bool,
    /// As of when its last row is.
    last_ns: Option<i64>,
}

/// A GPU or MIG instance with what its rows say of it, by the numbers of their texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct HeldPlace {
    gpu: u32,
    /// The card, if it is an instance.
    card: Option<u32>,
    cluster: Option<u32>,
    node: Option<u32>,
    model: Option<u32>,
    is_simulated: bool,
}

/// Whose time a row tells.
pub(super) struct NamedHolder<'a> {
    /// As `gpu_usage` names it.
    pub(super) holder: &'a str,
    pub(super) cluster: Option<&'a str>,
    /// Namespace, pod, container and job.
    pub(super) names: [Option<&'a str>; HOLDING.len()],
    /// The text of the column by which holders are put together, if they are by one.
    pub(super) text: Option<&'a str>,
    pub(super) place: u32,
    /// An instant of its day.
    pub(super) time_ns: i64,
}

/// To whom a row counts.
#[derive(Debug, Clone, Copy)]
pub(super) enum CountsTo {
    Group(u32),
    /// A holder who is not asked for.
    Others,
    Nobody,
    Unobserved,
}

/// A row of `gpu_usage`, as far as it lies in the range.
pub(super) struct HeldRow {
    pub(super) place: u32,
    pub(super) to: CountsTo,
    pub(super) as_of_ns: i64,
    /// Whether it has the time for itself.
    pub(super) is_exclusive: bool,
    pub(super) sums: HoldingSums,
}

impl<K: Hash + Eq, V> Numbered<K, V> {
    fn new() -> Self {
        Self { numbers: HashMap::default(), things: Vec::new() }
    }

    /// The number of a thing; one that is new is made.
    fn number(&mut self, key: K, new: impl FnOnce(&K) -> V) -> u32 {
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let number = u32::try_from(self.things.len()).unwrap_or(u32::MAX);
        self.things.push(new(&key));
        self.numbers.insert(key, number);
        number
    }

    fn get(&self, number: u32) -> Option<&V> {
        self.things.get(number as usize)
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut V> {
        self.things.get_mut(number as usize)
    }
}

impl Holdings {
    /// Nothing yet, of the range and the holder of a question; `told`: holders are put together by it.
    pub fn of(query: &HoldingsQuery, told: Option<&Arc<JobTexts>>) -> Self {
        let HoldingsQuery { start_ns, end_ns, by, ref holder, .. } = *query;
        Self {
            start_ns,
            end_ns,
            by,
            holder: holder.clone(),
            told: told.cloned(),
            told_groups: Vec::new(),
            groups: Numbered::new(),
            nobody: HoldingSums::default(),
            unobserved: HoldingSums::default(),
            gpus: Numbered::new(),
            places: Numbered::new(),
            texts: Numbered::new(),
        }
    }

    /// The times of the rows that are wanted: rows have the start of their hour.
    pub fn rows_ns(&self) -> (i64, i64) {
        (hour_of(self.start_ns), self.end_ns)
    }

    /// How many groups there are so far.
    pub fn groups(&self) -> usize {
        self.groups.things.len()
    }

    /// The GPUs of the holders so far, and the times of the rows of all holders that say who has them still.
    pub fn last_rows(&self) -> (Vec<Arc<str>>, (i64, i64)) {
        let places = self.groups.things.iter().flat_map(|group| group.places.keys());
        let gpus: BTreeSet<Arc<str>> = places.filter_map(|place| self.key_of(*place).cloned()).collect();
        let from_ns = hour_of(self.end_ns.saturating_sub(HOLDINGS_TRAIL_NS));
        (gpus.into_iter().collect(), (from_ns, self.end_ns))
    }

    pub(super) fn note_last(&mut self, gpu: u32, as_of_ns: i64) {
        if let Some(gpu) = self.gpus.get_mut(gpu) {
            gpu.last_ns = gpu.last_ns.max(Some(as_of_ns));
        }
    }

    /// The number of a GPU.
    pub(super) fn gpu(&mut self, key: Arc<str>) -> u32 {
        self.gpus.number(key, |key| HeldGpu {
            key: Arc::clone(key),
            sums: None,
            is_instance: false,
            is_by_rows: false,
            last_ns: None,
        })
    }

    /// The number of the place that an identity names; none: it names no GPU.
    pub(super) fn place(&mut self, identity: &Identity) -> Option<u32> {
        let gpu = self.gpu(identity.key()?);
        let has_profile =
            identity.get(IdentityColumn::Model).is_some_and(|model| split_profile(model).1.is_some());
        let card = identity.card().filter(|_| has_profile).and_then(|card| card.key());
        let card = card.map(|card| self.gpu(card));
        let mut text = |column| Some(self.text(identity.shared(column)?));
        let [cluster, node, model] =
            [IdentityColumn::Cluster, IdentityColumn::Node, IdentityColumn::Model].map(&mut text);
        let place = HeldPlace { gpu, card, cluster, node, model, is_simulated: identity.is_simulated() };
        Some(self.places.number(place, |place| *place))
    }

    fn text(&mut self, text: &Arc<str>) -> u32 {
        self.texts.number(Arc::clone(text), Arc::clone)
    }

    /// Key of the GPU or instance of a place.
    fn key_of(&self, place: u32) -> Option<&Arc<str>> {
        Some(&self.gpus.get(self.places.get(place)?.gpu)?.key)
    }

    /// Whether the time of a GPU or instance is added up.
    pub(super) fn has_sums(&self, key: &Arc<str>) -> bool {
        let gpu = self.gpus.numbers.get(key).and_then(|number| self.gpus.get(*number));
        gpu.is_some_and(|gpu| gpu.sums.is_some() || gpu.is_instance)
    }

    /// Notes that the GPU of a place is known by the rows of its samples alone.
    pub(super) fn note_by_rows(&mut self, place: u32) {
        let gpu = self.places.get(place).map(|place| place.gpu);
        if let Some(gpu) = gpu.and_then(|gpu| self.gpus.get_mut(gpu)) {
            gpu.is_by_rows = true;
        }
    }

    /// To whom a row counts; none: to nobody at all.
    pub(super) fn counts_to(&mut self, row: &NamedHolder<'_>) -> Option<CountsTo> {
        let NamedHolder { holder, cluster, names, .. } = *row;
        let is_asked = self.holder.as_deref().is_none_or(|asked| asked == holder);
        match holder {
            UNOBSERVED => return Some(CountsTo::Unobserved),
            NOBODY => return Some(CountsTo::Nobody),
            _ if !is_asked => return Some(CountsTo::Others),
            _ => {}
        }
        let told = self.told.as_ref().filter(|_| self.by == HoldingGroup::Holder);
        let told_place = told.and_then(|told| told.place_of(cluster, holder));
        let known = told_place.and_then(|place| self.told_groups.get(place as usize).copied().flatten());
        let group = known.unwrap_or_else(|| self.group_of(row, told_place));
        self.groups.get_mut(group)?.keep_same(Some(holder), names);
        Some(CountsTo::Group(group))
    }

    /// The number of a row's group.
    fn group_of(&mut self, row: &NamedHolder<'_>, told_place: Option<u32>) -> u32 {
        let NamedHolder { holder, cluster, names, text, place, time_ns } = *row;
        let key: GroupKey = match (self.by, &self.told) {
            (HoldingGroup::Holder, Some(told)) => (None, told.group(cluster, holder)),
            (HoldingGroup::Holder, None) => (cluster.map(Arc::from), Some(Arc::from(holder))),
            (HoldingGroup::Gpu, _) => (None, self.key_of(place).cloned()),
            (HoldingGroup::Identity(_), _) => (None, text.map(Arc::from)),
            (HoldingGroup::Day, _) => (None, Some(day_of(time_ns))),
        };
        let new = |key: &GroupKey| HeldGroup::first(key.clone(), Some(Arc::from(holder)), names);
        let group = self.groups.number(key, new);
        if let Some(place) = told_place {
            let until = self.told_groups.len().max(place as usize + 1);
            self.told_groups.resize(until, None);
            self.told_groups.get_mut(place as usize).into_iter().for_each(|known| *known = Some(group));
        }
        group
    }

    /// The part of an hour, as far as it is added up, that lies in the range; none: nothing of it.
    pub(super) fn part_of(&self, (from_ns, until_ns): (i64, i64)) -> Option<f64> {
        let whole_ns = until_ns.saturating_sub(from_ns);
        let within_ns = until_ns.min(self.end_ns).saturating_sub(from_ns.max(self.start_ns));
        let part = float(within_ns) / float(whole_ns);
        (whole_ns > 0 && within_ns > 0).then(|| part.min(1.0))
    }

    pub(super) fn add_row(&mut self, row: &HeldRow) {
        let Some(&HeldPlace { gpu, card, .. }) = self.places.get(row.place) else { return };
        // An instance that has its time for itself has no card with rows.
        let card = card.filter(|_| !row.is_exclusive);
        if card.is_some() {
            self.gpus.get_mut(gpu).into_iter().for_each(|gpu| gpu.is_instance = true);
        }
        if let Some(whole) = self.gpus.get_mut(card.unwrap_or(gpu)) {
            whole.sums.get_or_insert_default().add(&row.sums);
        }
        match row.to {
            CountsTo::Unobserved => return self.unobserved.add(&row.sums),
            CountsTo::Nobody => self.nobody.add(&row.sums),
            CountsTo::Others => {}
            CountsTo::Group(group) => {
                self.groups.get_mut(group).into_iter().for_each(|group| group.add(row));
            }
        }
        self.note_last(gpu, row.as_of_ns);
    }

    /// Adds what others added up, of the same question.
    pub fn and(&mut self, other: Self) {
        let moved = |numbers: &[u32], number: u32| numbers.get(number as usize).copied().unwrap_or(u32::MAX);
        let texts: Vec<u32> = other.texts.things.iter().map(|text| self.text(text)).collect();
        let gpus: Vec<u32> = other.gpus.things.into_iter().map(|gpu| self.add_gpu(gpu)).collect();
        let places = other.places.things.into_iter().map(|place| {
            let text = |text: Option<u32>| text.map(|text| moved(&texts, text));
            let place = HeldPlace {
                gpu: moved(&gpus, place.gpu),
                card: place.card.map(|card| moved(&gpus, card)),
                cluster: text(place.cluster),
                node: text(place.node),
                model: text(place.model),
                is_simulated: place.is_simulated,
            };
            self.places.number(place, |place| *place)
        });
        let places: Vec<u32> = places.collect();
        for group in other.groups.things {
            let names = group.names.each_ref().map(Option::as_deref);
            let holder = group.holder.clone();
            let known =
                self.groups.number(group.key.clone(), |key| HeldGroup::first(key.clone(), holder, names));
            if let Some(known) = self.groups.get_mut(known) {
                known.and(&group, |place| moved(&places, place));
            }
        }
        self.nobody.add(&other.nobody);
        self.unobserved.add(&other.unobserved);
    }

    fn add_gpu(&mut self, other: HeldGpu) -> u32 {
        let number = self.gpu(other.key);
        if let Some(gpu) = self.gpus.get_mut(number) {
            if let Some(sums) = &other.sums {
                gpu.sums.get_or_insert_default().add(sums);
            }
            gpu.is_instance |= other.is_instance;
            gpu.is_by_rows |= other.is_by_rows;
            gpu.last_ns = gpu.last_ns.max(other.last_ns);
        }
        number
    }

    /// What was added up.
    pub fn finish(self) -> HoldingsAnswer {
        let groups = self.ranked();
        self.answer(&groups)
    }

    /// The groups, the one with the most time first. What is shown of a group beside its sums takes longer, and of ten thousands a page is
    /// shown.
    pub fn ranked(&self) -> Vec<RankedGroup> {
        let ranked = self.groups.things.iter().zip(0..).map(|(group, number)| RankedGroup {
            number,
            group: group.key.1.clone(),
            cluster: self.cluster_of(group),
            is_last: group.places.iter().any(|(place, as_of_ns)| self.is_last(*place, *as_of_ns)),
            sums: group.sums,
        });
        let mut ranked: Vec<RankedGroup> = ranked.collect();
        // Threads add up in any order, so that sums that are equal may differ in their last digits, each time others.
        let held_s = |one: &RankedGroup| rounded(one.sums.held_s);
        ranked.sort_by(|one, other| {
            let most = held_s(other).total_cmp(&held_s(one));
            most.then_with(|| (&one.cluster, &one.group).cmp(&(&other.cluster, &other.group)))
        });
        ranked
    }

    /// What was added up, with these groups in this order.
    pub fn answer(self, groups: &[RankedGroup]) -> HoldingsAnswer {
        let order = self.order();
        let holding = |ranked: &RankedGroup| {
            let group = self.groups.get(ranked.number)?;
            Some(self.holding(group, ranked, &order))
        };
        let gpus = || self.gpus.things.iter();
        let key = |gpu: &HeldGpu| Arc::clone(&gpu.key);
        HoldingsAnswer {
            groups: groups.iter().filter_map(holding).collect(),
            nobody: self.nobody,
            unobserved: self.unobserved,
            gpus: gpus().filter_map(|gpu| Some((key(gpu), gpu.sums?))).collect(),
            instances: gpus().filter(|gpu| gpu.is_instance).map(key).collect(),
            by_rows: gpus().filter(|gpu| gpu.is_by_rows).map(key).collect(),
        }
    }

    /// The cluster of all of a group's places, if they have one.
    fn cluster_of(&self, group: &HeldGroup) -> Option<Arc<str>> {
        let mut clusters = group.places.keys().map(|place| self.places.get(*place)?.cluster);
        let first = clusters.next()??;
        let is_same = clusters.all(|cluster| cluster == Some(first));
        self.texts.get(first).filter(|_| is_same).cloned()
    }

    /// Whether no other row about the GPU of a place is later than this one, which reaches to the end of the range.
    fn is_last(&self, place: u32, as_of_ns: i64) -> bool {
        let last_ns = self.places.get(place).and_then(|place| self.gpus.get(place.gpu)?.last_ns);
        let since_ns = self.end_ns.saturating_sub(HOLDINGS_TRAIL_NS);
        as_of_ns >= since_ns && last_ns.is_none_or(|last_ns| as_of_ns >= last_ns)
    }

    /// Of each GPU its place in the order of keys: they are compared once, however many groups have them.
    fn order(&self) -> Vec<usize> {
        let mut sorted: Vec<(&Arc<str>, usize)> =
            self.gpus.things.iter().zip(0..).map(|(gpu, number)| (&gpu.key, number)).collect();
        sorted.sort_unstable();
        let mut order = vec![0; sorted.len()];
        for (at, (_, number)) in sorted.into_iter().enumerate() {
            order.get_mut(number).into_iter().for_each(|place| *place = at);
        }
        order
    }

    fn holding(&self, group: &HeldGroup, ranked: &RankedGroup, order: &[usize]) -> Holding {
        let mut places: Vec<(&HeldPlace, i64)> =
            group.places.iter().filter_map(|(place, ns)| Some((self.places.get(*place)?, *ns))).collect();
        places.sort_unstable_by_key(|(place, as_of_ns)| (order.get(place.gpu as usize), *as_of_ns));
        let texts = |of: fn(&HeldPlace) -> Option<u32>| -> BTreeSet<Arc<str>> {
            let mut numbers: Vec<u32> = places.iter().filter_map(|(place, _)| of(place)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers.into_iter().filter_map(|number| self.texts.get(number).cloned()).collect()
        };
        // Of the places of one GPU the last one counts, which is the newest.
        let gpus = places
            .iter()
            .filter_map(|(place, as_of_ns)| Some((Arc::clone(&self.gpus.get(place.gpu)?.key), *as_of_ns)));
        let by_rows = places.iter().filter_map(|(place, _)| self.gpus.get(place.gpu));
        let by_rows = by_rows.filter(|gpu| gpu.is_by_rows).map(|gpu| Arc::clone(&gpu.key));
        Holding {
            group: ranked.group.clone(),
            cluster: ranked.cluster.clone(),
            holder: group.holder.clone(),
            names: group.names.clone(),
            gpus: gpus.collect::<BTreeMap<_, _>>(),
            by_rows: by_rows.collect(),
            nodes: texts(|place| place.node),
            models: texts(|place| place.model),
            is_simulated: places.iter().any(|(place, _)| place.is_simulated),
            is_last: ranked.is_last,
            sums: ranked.sums,
        }
    }
}

impl HeldGroup {
    /// A group whose first row has this holder and these names, before that is added.
    fn first(key: GroupKey, holder: Option<Arc<str>>, names: [Option<&str>; HOLDING.len()]) -> Self {
        Self {
            key,
            holder,
            names: names.map(|name| name.map(Arc::from)),
            places: HashMap::default(),
            sums: HoldingSums::default(),
        }
    }

    /// Keeps of holder and names what another one has, too.
    fn keep_same(&mut self, holder: Option<&str>, names: [Option<&str>; HOLDING.len()]) {
        keep_same(&mut self.holder, holder);
        for (name, other) in self.names.iter_mut().zip(names) {
            keep_same(name, other);
        }
    }

    fn add(&mut self, row: &HeldRow) {
        self.note_place(row.place, row.as_of_ns);
        self.sums.add(&row.sums);
    }

    fn note_place(&mut self, place: u32, as_of_ns: i64) {
        let last_ns = self.places.entry(place).or_insert(as_of_ns);
        *last_ns = as_of_ns.max(*last_ns);
    }

    /// Adds the same group of others, whose places have these numbers here.
    fn and(&mut self, other: &Self, number: impl Fn(u32) -> u32) {
        self.keep_same(other.holder.as_deref(), other.names.each_ref().map(Option::as_deref));
        for (place, as_of_ns) in &other.places {
            self.note_place(number(*place), *as_of_ns);
        }
        self.sums.add(&other.sums);
    }
}

/// The day of an instant: `2026-11-20`.
fn day_of(time_ns: i64) -> Arc<str> {
    let text = time::format(time_ns.div_euclid(DAY_NS).saturating_mul(DAY_NS));
    text.split('T').next().unwrap_or_default().into()
}
