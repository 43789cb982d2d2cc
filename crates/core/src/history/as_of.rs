//! A history as it was at an instant.

use std::collections::{BTreeSet, HashMap};
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
use crate::batch::{RowKeys, Value};
use crate::ports::Answer;
use crate::time::{DAY_NS, MINUTE_NS, SECOND_NS};
use crate::usage::{GpuUse, UseQuery};
use crate::{Health, Identity, IdentityColumn, MetricId, Table};

/// How far before the instant values are looked for: each time those that were not found nearer. Most sources send all within
/// seconds, and every one a row a minute.
const BACK_NS: [i64; 3] = [15 * SECOND_NS, NEAR_NS, DAY_NS];
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

/// A history as it was at an instant: nothing in its answers is later.
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
    let mut then = Then::of(&moved, at_ns);
    let mut end_ns = at_ns;
    for back_ns in BACK_NS {
        let start_ns = at_ns.saturating_sub(back_ns);
        let lacking = then.lacking(&moved);
        missing.extend(look(history, &mut then, &lacking, (start_ns, end_ns)).await?);
        end_ns = start_ns.saturating_sub(1);
    }
    missing.extend(look_for_blanks(history, &mut then, (at_ns.saturating_sub(NEAR_NS), at_ns)).await?);
    let mut live = LiveFleet::new(FleetBounds { gpus_max: usize::MAX, ..FleetBounds::default() });
    for gpu in still.into_iter().chain(then.states().map(Arc::new)) {
        live.add(&gpu);
    }
    live.set_version(now.version);
    let missing: BTreeSet<String> = missing.into_iter().collect();
    Ok(Part { answer: Arc::new(live.snapshot()), missing: missing.into_iter().collect() })
}

/// Takes the values of some GPUs in a range of time, and says what is missing.
async fn look(
    history: &dyn History,
    then: &mut Then,
    gpus: &[&Arc<GpuState>],
    (start_ns, end_ns): (i64, i64),
) -> Result<Vec<String>, QueryError> {
    let mut keys = Vec::new();
    let mut metrics = BTreeSet::new();
    for gpu in gpus {
        keys.push(Arc::clone(&gpu.key));
        metrics.extend(then.unknown(gpu));
    }
    let mut missing = Vec::new();
    if keys.is_empty() || metrics.is_empty() {
        return Ok(missing);
    }
    // A day is a multiple of every rollup's step.
    let query = BucketQuery {
        gpus: keys,
        aggregates: vec![Aggregate::Last],
        group_by: [GroupColumn::Gpu].into_iter().chain(CHANGING.map(GroupColumn::Identity)).collect(),
        ..BucketQuery::of(Table::GpuEvents, metrics.into_iter().collect(), start_ns, end_ns, DAY_NS)
    };
    let mut parts = BucketsInParts::new(query);
    while let Some(Part { answer, missing: more }) = parts.next(history).await? {
        then.take(&answer);
        missing.extend(more);
    }
    Ok(missing)
}

/// Takes the rows without values of GPUs whose values are not new.
async fn look_for_blanks(
    history: &dyn History,
    then: &mut Then,
    (start_ns, end_ns): (i64, i64),
) -> Result<Vec<String>, QueryError> {
    let gpus = then.quiet();
    if gpus.is_empty() {
        return Ok(Vec::new());
    }
    let query = RowsQuery {
        gpus,
        start_ns: Some(start_ns),
        end_ns: Some(end_ns),
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
        for (row, (id, time_ns)) in keys.ids.iter().zip(batch.timestamps()).enumerate() {
            if let Some(key) = keys.keys.get(*id as usize) {
                then.seen(key, *time_ns, || batch.identity(row));
            }
        }
    }
    Ok(missing)
}

/// What was does not change.
struct NoChanges;

impl Changes for NoChanges {
    fn next(&mut self) -> Answer<'_, Option<Change>> {
        Box::pin(async { None })
    }
}

/// GPUs that have had rows since, as they were.
struct Then {
    at_ns: i64,
    gpus: HashMap<Arc<str>, GpuThen, RandomState>,
}

struct GpuThen {
    state: GpuState,
    /// When it had its newest value; none: it is not known yet.
    valued_ns: Option<i64>,
}

impl Then {
    /// What is known of GPUs by their state now: values that have not changed since.
    fn of(gpus: &[Arc<GpuState>], at_ns: i64) -> Self {
        let then = |gpu: &Arc<GpuState>| {
            let state = GpuState {
                key: Arc::clone(&gpu.key),
                identity: gpu.identity.clone(),
                first_seen_ns: gpu.first_seen_ns,
                last_seen_ns: gpu.first_seen_ns,
                latest: gpu.latest.iter().filter(|(_, it)| it.timestamp_ns <= at_ns).copied().collect(),
                extras: gpu.extras.iter().filter(|(_, _, time)| *time <= at_ns).cloned().collect(),
            };
            (Arc::clone(&gpu.key), GpuThen { state, valued_ns: None })
        };
        Self { at_ns, gpus: gpus.iter().map(then).collect() }
    }

    /// The metrics of a GPU whose values of that time are not known.
    fn unknown(&self, now: &GpuState) -> impl Iterator<Item = MetricId> {
        let known = self.gpus.get(&now.key).map(|then| &then.state.latest);
        let is_known = move |metric: &MetricId| {
            known.is_some_and(|known| known.binary_search_by_key(metric, |(id, _)| *id).is_ok())
        };
        now.latest.iter().map(|(metric, _)| *metric).filter(move |metric| !is_known(metric))
    }

    /// The GPUs of which something is not known.
    fn lacking<'a>(&self, gpus: &'a [Arc<GpuState>]) -> Vec<&'a Arc<GpuState>> {
        gpus.iter().filter(|gpu| self.unknown(gpu).next().is_some()).collect()
    }

    /// The GPUs whose newest value is not new.
    fn quiet(&self) -> Vec<Arc<str>> {
        let is_quiet = |gpu: &&GpuThen| self.at_ns.saturating_sub(gpu.state.last_seen_ns) > QUIET_NS;
        self.gpus.values().filter(is_quiet).map(|gpu| Arc::clone(&gpu.state.key)).collect()
    }

    /// Takes the newest values of groups, and of the newest group the identity.
    fn take(&mut self, buckets: &Buckets) {
        for (group, name) in buckets.groups().iter().enumerate() {
            let Some((Some(key), texts)) = name.split_first() else { continue };
            let Some(gpu) = self.gpus.get_mut(key) else { continue };
            let mut newest_ns = i64::MIN;
            for measured in buckets.metrics() {
                let mut newest = Cell::EMPTY;
                for step in 0..buckets.steps().count {
                    measured
                        .cells
                        .get(buckets.place(group, step))
                        .into_iter()
                        .for_each(|it| newest.merge(it));
                }
                if newest.count > 0 {
                    newest_ns = newest_ns.max(newest.last_ns);
                    gpu.measure(measured.metric, &newest);
                }
            }
            if newest_ns > i64::MIN {
                gpu.describe(newest_ns, || {
                    let mut identity = Identity::default();
                    for (column, text) in CHANGING.into_iter().zip(texts) {
                        // It comes from an identity.
                        let _taken = identity.set(column, text.as_deref().unwrap_or_default());
                    }
                    identity
                });
            }
        }
    }

    /// Takes a row.
    fn seen(&mut self, key: &str, time_ns: i64, identity: impl FnOnce() -> Identity) {
        if let Some(gpu) = self.gpus.get_mut(key) {
            gpu.describe(time_ns, identity);
        }
    }

    /// The GPUs as they were.
    fn states(self) -> impl Iterator<Item = GpuState> {
        self.gpus.into_values().map(|gpu| gpu.state)
    }
}

impl GpuThen {
    fn measure(&mut self, metric: MetricId, newest: &Cell) {
        let latest = LatestValue { value: Value::of(metric, newest.last), timestamp_ns: newest.last_ns };
        match self.state.latest.binary_search_by_key(&metric, |(known, _)| *known) {
            Err(place) => self.state.latest.insert(place, (metric, latest)),
            Ok(place) => {
                let own = self.state.latest.get_mut(place).map(|(_, own)| own);
                own.filter(|own| own.timestamp_ns < latest.timestamp_ns)
                    .into_iter()
                    .for_each(|own| *own = latest);
            }
        }
    }

    /// Takes what may change of the identity from a row of that time, unless there was a newer one.
    fn describe(&mut self, time_ns: i64, identity: impl FnOnce() -> Identity) {
        if self.valued_ns.is_some_and(|newest_ns| newest_ns >= time_ns) {
            return;
        }
        self.valued_ns = Some(time_ns);
        self.state.last_seen_ns = self.state.last_seen_ns.max(time_ns);
        let row = identity();
        for column in CHANGING {
            let text = row.get(column).unwrap_or_default();
            if !text.is_empty() || PASSING.contains(&column) {
                // It comes from an identity.
                let _taken = self.state.identity.set(column, text);
            }
        }
    }
}
