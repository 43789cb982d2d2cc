//! A history as it was at an instant.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, OnceLock};

use foldhash::fast::RandomState;

use super::asked::{History, HistoryStats};
use super::buckets::{Buckets, Cell};
use super::error::QueryError;
use super::fleet::{Fleet, GpuState, LatestValue};
use super::live::{FleetBounds, LiveFleet, PASSING};
use super::part::{Answered, Change, Changes, Part};
use super::query::{Aggregate, BucketQuery, GroupColumn, Rows, RowsQuery};
use super::rows::BucketsInParts;
use super::sweep::TakeRows;
use crate::batch::{RowKeys, Value};
use crate::ports::Answer;
use crate::time::{DAY_NS, HOUR_NS, MINUTE_NS, SECOND_NS};
use crate::usage::{GpuUse, UseQuery};
use crate::{Health, Identity, IdentityColumn, MetricId, Table};

/// How far before the instant values are looked for: each time those that were not found nearer. Most sources send nearly all within
/// seconds, and what is read rarely once a minute: little beyond that is read again for the few that were late.
const BACK_NS: [i64; 4] = [15 * SECOND_NS, 65 * SECOND_NS, NEAR_NS, DAY_NS];
/// Where GPUs are looked for of which nothing is found in [`BACK_NS`]: which have been silent for longer are out of service.
const FAR_NS: i64 = 7 * DAY_NS;
/// The steps of rollups: one that goes on after the instant says nothing of the time before it.
const ROLLUPS_NS: [i64; 2] = [HOUR_NS, DAY_NS];
/// Where rows without values are looked for.
const NEAR_NS: i64 = 2 * MINUTE_NS;
/// Age of the newest value of a GPU from which it is looked whether it has newer rows, without values.
const QUIET_NS: i64 = 10 * SECOND_NS;
/// Most of these rows.
const BLANK_ROWS_MAX: usize = 100_000;

/// What may change of a GPU's identity from row to row: where it is, its driver, and who holds it. All else is as the history knows
/// it now.
const CHANGING: [IdentityColumn; 7] = [
    IdentityColumn::Node,
    IdentityColumn::Driver,
    IdentityColumn::Pod,
    IdentityColumn::Namespace,
    IdentityColumn::Container,
    IdentityColumn::Job,
    IdentityColumn::Source,
];

/// A history as it was at an instant: no row in its answers is later. Where only rollups are left, the last step of a course may reach
/// beyond it.
///
/// The latest state of a GPU holds the newest value of each column in the day before the instant.
/// Columns that the catalogue does not know are in it only where they have not changed since.
#[derive(Debug)]
pub struct AsOf {
    history: Arc<dyn History>,
    at_ns: i64,
    version: u64,
    /// The latest state then, once it was asked for.
    fleet: OnceLock<Part<Arc<Fleet>>>,
}

impl AsOf {
    /// A history at an instant, nanoseconds UTC since 1970. Rows of before it that come later may not be seen.
    pub fn new(history: Arc<dyn History>, at_ns: i64) -> Self {
        Self { version: history.version(), history, at_ns, fleet: OnceLock::new() }
    }
}

impl History for AsOf {
    fn version(&self) -> u64 {
        self.version
    }

    fn fleet(&self) -> Answered<'_, Arc<Fleet>> {
        Box::pin(async {
            if let Some(fleet) = self.fleet.get() {
                return Ok(fleet.clone());
            }
            let fleet = fleet_as_of(self.history.as_ref(), self.at_ns).await?;
            Ok(self.fleet.get_or_init(|| fleet).clone())
        })
    }

    fn rows(&self, query: RowsQuery) -> Answered<'_, Rows> {
        if query.start_ns.is_some_and(|start_ns| start_ns > self.at_ns) {
            let total = query.with_total.then_some(0);
            return Box::pin(async move { Ok(Part::whole(Rows { batch: None, total })) });
        }
        let end_ns = query.end_ns.map_or(self.at_ns, |end_ns| end_ns.min(self.at_ns));
        self.history.rows(RowsQuery { end_ns: Some(end_ns), ..query })
    }

    fn sweep(&self, query: RowsQuery, take: TakeRows) -> Answered<'_, ()> {
        if query.start_ns.is_some_and(|start_ns| start_ns > self.at_ns) {
            return Box::pin(async { Ok(Part::whole(())) });
        }
        let end_ns = query.end_ns.map_or(self.at_ns, |end_ns| end_ns.min(self.at_ns));
        self.history.sweep(RowsQuery { end_ns: Some(end_ns), ..query }, take)
    }

    fn buckets(&self, query: BucketQuery) -> Answered<'_, Buckets> {
        if query.start_ns > self.at_ns {
            let none = query.steps().map(|steps| Buckets::new(steps, &query.metrics, &query.aggregates));
            return Box::pin(async move { none.map(Part::whole) });
        }
        let end_ns = query.end_ns.min(self.at_ns);
        self.history.buckets(BucketQuery { end_ns, ..query })
    }

    fn usage(&self, query: UseQuery) -> Answered<'_, Vec<GpuUse>> {
        if query.start_ns > self.at_ns {
            return Box::pin(async { Ok(Part::default()) });
        }
        let end_ns = query.end_ns.min(self.at_ns);
        self.history.usage(UseQuery { end_ns, ..query })
    }

    fn changes(&self) -> Box<dyn Changes> {
        Box::new(NoChanges)
    }

    fn health(&self) -> Health {
        self.history.health()
    }

    fn stats(&self) -> HistoryStats {
        self.history.stats()
    }
}

/// The latest state of all GPUs at an instant, nanoseconds UTC since 1970, as [`AsOf`] gives it.
///
/// # Errors
/// When the history gives no answer.
pub async fn fleet_as_of(history: &dyn History, at_ns: i64) -> Result<Part<Arc<Fleet>>, QueryError> {
    let Part { answer: now, mut missing } = history.fleet().await?;
    let there = now.gpus.iter().filter(|gpu| gpu.first_seen_ns <= at_ns);
    let (moved, still): (Vec<_>, Vec<_>) = there.cloned().partition(|gpu| gpu.last_seen_ns > at_ns);
    let unchanged: Vec<Arc<GpuState>> = moved.iter().map(|gpu| Arc::new(unchanged(gpu, at_ns))).collect();
    let mut then = of_all(still.iter().chain(&unchanged), now.version);
    // Nobody else has them: so they are changed in place.
    drop(unchanged);
    let found = look_back(history, &mut then, &moved, at_ns).await?;
    missing.extend(look_for_blanks(history, &mut then, &moved, at_ns).await?);
    let mut fleet = then.snapshot();
    if !found.missing.is_empty() {
        // What could not be read may hold their rows: nobody knows how they were, and silent they are not.
        let nothing: HashSet<&str> = moved.iter().map(|gpu| gpu.key.as_ref()).collect();
        let nothing = |key: &str| nothing.contains(key) && !found.keys.contains(key);
        fleet = of_all(fleet.gpus.iter().filter(|gpu| !nothing(&gpu.key)), now.version).snapshot();
    }
    missing.extend(found.missing);
    let missing: BTreeSet<String> = missing.into_iter().collect();
    Ok(Part { answer: Arc::new(fleet), missing: missing.into_iter().collect() })
}

/// A fleet of these GPUs.
fn of_all<'a>(gpus: impl Iterator<Item = &'a Arc<GpuState>>, version: u64) -> LiveFleet {
    let mut fleet = LiveFleet::new(FleetBounds { gpus_max: usize::MAX, ..FleetBounds::default() });
    gpus.for_each(|gpu| fleet.add(gpu));
    fleet.set_version(version);
    fleet
}

/// Looks for the values of GPUs further and further back.
async fn look_back(
    history: &dyn History,
    then: &mut LiveFleet,
    gpus: &[Arc<GpuState>],
    at_ns: i64,
) -> Result<LookedBack, QueryError> {
    let mut found = LookedBack { at_ns, keys: HashSet::new(), is_later: false, missing: Vec::new() };
    let mut end_ns = at_ns;
    for back_ns in BACK_NS {
        let start_ns = at_ns.saturating_sub(back_ns);
        look(history, then, gpus, (start_ns, end_ns), &mut found).await?;
        end_ns = start_ns.saturating_sub(1);
    }
    let [.., last_ns] = BACK_NS;
    for step_ns in ROLLUPS_NS {
        if !found.is_later {
            break;
        }
        let end_ns = at_ns.div_euclid(step_ns) * step_ns - 1;
        look(history, then, gpus, (at_ns.saturating_sub(last_ns), end_ns), &mut found).await?;
    }
    let silent = gpus.iter().filter(|gpu| !found.keys.contains(&gpu.key));
    let silent: Vec<Arc<GpuState>> = silent.filter_map(|gpu| Some(Arc::new(told_last(gpu)?))).collect();
    let far = (at_ns.saturating_sub(FAR_NS), at_ns.saturating_sub(last_ns).saturating_sub(1));
    look(history, then, &silent, far, &mut found).await?;
    Ok(found)
}

/// The GPU with the metric alone that it told last: whether it was there is all that is asked.
fn told_last(gpu: &GpuState) -> Option<GpuState> {
    let newest = gpu.latest.iter().max_by_key(|(_, latest)| latest.timestamp_ns)?;
    Some(GpuState { latest: vec![*newest], ..gpu.clone() })
}

/// What was found.
#[derive(Debug)]
struct LookedBack {
    /// The instant, nanoseconds UTC since 1970.
    at_ns: i64,
    /// The GPUs that have a value.
    keys: HashSet<Arc<str>>,
    /// Whether a value was later than the instant: a rollup's, whose step goes on after it.
    is_later: bool,
    missing: Vec<String>,
}

/// What is known of a GPU at an instant by its state now: what has not changed since. Who held it then is not known.
fn unchanged(now: &GpuState, at_ns: i64) -> GpuState {
    let mut identity = now.identity.clone();
    // Whether it is simulated stays said.
    for column in PASSING.into_iter().filter(|column| *column != IdentityColumn::Source) {
        let _an_empty_text_is_always_taken = identity.set(column, "");
    }
    let latest: Vec<_> =
        now.latest.iter().filter(|(_, latest)| latest.timestamp_ns <= at_ns).copied().collect();
    let newest_ns = latest.iter().map(|(_, latest)| latest.timestamp_ns).max();
    GpuState {
        key: Arc::clone(&now.key),
        identity,
        first_seen_ns: now.first_seen_ns,
        last_seen_ns: newest_ns.map_or(now.first_seen_ns, |newest_ns| newest_ns.max(now.first_seen_ns)),
        latest,
        extras: now.extras.iter().filter(|(_, _, time_ns)| *time_ns <= at_ns).cloned().collect(),
    }
}

/// The metrics of a GPU whose values then are not known. Both lists are sorted by metric: one walk.
fn unknown(then: &LiveFleet, now: &GpuState) -> impl Iterator<Item = MetricId> {
    let known = then.get(&now.key).map_or(&[][..], |gpu| gpu.latest.as_slice());
    let mut known = known.iter().map(|(metric, _)| *metric).peekable();
    now.latest.iter().map(|(metric, _)| *metric).filter(move |metric| {
        while known.next_if(|known| known < metric).is_some() {}
        known.peek() != Some(metric)
    })
}

/// Takes the values in a range of time that are not known and not later than the instant.
async fn look(
    history: &dyn History,
    then: &mut LiveFleet,
    gpus: &[Arc<GpuState>],
    (start_ns, end_ns): (i64, i64),
    found: &mut LookedBack,
) -> Result<(), QueryError> {
    let mut keys = Vec::new();
    let mut metrics: HashSet<MetricId, RandomState> = HashSet::default();
    for gpu in gpus {
        let mut lacking = unknown(then, gpu).peekable();
        if lacking.peek().is_some() {
            keys.push(Arc::clone(&gpu.key));
            metrics.extend(lacking);
        }
    }
    if keys.is_empty() || end_ns < start_ns {
        return Ok(());
    }
    let mut metrics: Vec<MetricId> = metrics.into_iter().collect();
    metrics.sort_unstable();
    // A day is a multiple of every rollup's step.
    let query = BucketQuery {
        gpus: keys,
        aggregates: vec![Aggregate::Last],
        group_by: [GroupColumn::Gpu].into_iter().chain(CHANGING.map(GroupColumn::Identity)).collect(),
        ..BucketQuery::of(Table::GpuEvents, metrics, start_ns, end_ns, DAY_NS)
    };
    let mut parts = BucketsInParts::new(query);
    while let Some(Part { answer, missing: more }) = parts.next(history).await? {
        take(then, &answer, found);
        found.missing.extend(more);
    }
    Ok(())
}

/// Takes the newest values of each GPU under each identity that it had.
fn take(then: &mut LiveFleet, buckets: &Buckets, found: &mut LookedBack) {
    for (group, name) in buckets.groups().iter().enumerate() {
        let Some((Some(key), texts)) = name.split_first() else { continue };
        let mut latest = Vec::new();
        for measured in buckets.metrics() {
            let mut newest = Cell::EMPTY;
            for step in 0..buckets.steps().count {
                let cell = measured.cells.get(buckets.place(group, step));
                newest.merge(cell.unwrap_or(&Cell::EMPTY));
            }
            if newest.count > 0 && newest.last_ns > found.at_ns {
                found.is_later = true;
            } else if newest.count > 0 {
                let value = Value::of(measured.metric, newest.last);
                latest.push((measured.metric, LatestValue { value, timestamp_ns: newest.last_ns }));
            }
        }
        let mut identity = Identity::default();
        for (column, text) in CHANGING.into_iter().zip(texts) {
            // It comes from an identity.
            let _taken = text.as_ref().map(|text| identity.set_shared(column, text));
        }
        if let Some(newest_ns) = latest.iter().map(|(_, latest)| latest.timestamp_ns).max() {
            found.keys.insert(Arc::clone(key));
            seen(then, key, newest_ns, identity, latest);
        }
    }
}

/// Takes the rows without values of GPUs whose values are not new.
async fn look_for_blanks(
    history: &dyn History,
    then: &mut LiveFleet,
    gpus: &[Arc<GpuState>],
    at_ns: i64,
) -> Result<Vec<String>, QueryError> {
    let is_new =
        |key: &str| then.get(key).is_some_and(|gpu| at_ns.saturating_sub(gpu.last_seen_ns) <= QUIET_NS);
    let quiet: Vec<Arc<str>> =
        gpus.iter().filter(|gpu| !is_new(&gpu.key)).map(|gpu| Arc::clone(&gpu.key)).collect();
    if quiet.is_empty() {
        return Ok(Vec::new());
    }
    let query = RowsQuery {
        gpus: quiet,
        start_ns: Some(at_ns.saturating_sub(NEAR_NS)),
        end_ns: Some(at_ns),
        metrics: Some(Vec::new()),
        newest_first: true,
        ..RowsQuery::of(Table::GpuEvents, BLANK_ROWS_MAX)
    };
    let Part { answer, missing } = match history.rows(query).await {
        Err(QueryError::NotKept { .. }) => return Ok(Vec::new()),
        rows => rows?,
    };
    if let Some(batch) = answer.batch {
        let keys = RowKeys::of(batch.records(), batch.table()).map_err(QueryError::failed)?;
        for (row, (id, &time_ns)) in keys.ids.iter().zip(batch.timestamps()).enumerate() {
            let Some(key) = keys.keys.get(*id as usize) else { continue };
            if then.get(key).is_some_and(|gpu| gpu.last_seen_ns < time_ns) {
                seen(then, key, time_ns, batch.identity(row), Vec::new());
            }
        }
    }
    Ok(missing)
}

/// A GPU was seen then, with these values.
fn seen(
    then: &mut LiveFleet,
    key: &Arc<str>,
    time_ns: i64,
    identity: Identity,
    latest: Vec<(MetricId, LatestValue)>,
) {
    let (first_seen_ns, last_seen_ns) = (time_ns, time_ns);
    let key = Arc::clone(key);
    then.add(&Arc::new(GpuState { key, identity, first_seen_ns, last_seen_ns, latest, extras: Vec::new() }));
}

/// What was does not change.
struct NoChanges;

impl Changes for NoChanges {
    fn next(&mut self) -> Answer<'_, Option<Change>> {
        Box::pin(async { None })
    }
}
