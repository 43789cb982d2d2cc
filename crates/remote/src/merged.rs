//! Several histories as one.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{join_all, select_all};
use gpuvitals_core::history::{
    Answered, BucketQuery, Buckets, Change, Changes, Fleet, FleetBounds, History, HistoryStats, LiveFleet,
    Part, QueryError, Rows, RowsQuery, buckets_of_rows, use_of_rows,
};
use gpuvitals_core::merge::{Order, merge, without_empty};
use gpuvitals_core::number::float;
use gpuvitals_core::ports::Answer;
use gpuvitals_core::quantity::counted;
use gpuvitals_core::usage::{GpuUse, UseQuery, join};
use gpuvitals_core::{Batch, Health, Origin, Status, Table, causes};
use tokio::sync::watch;

use crate::border::{check_page_end, too_many, work};

/// Versions of each list of members: more than the members count in their lives.
const VERSIONS_OF_A_LIST: u64 = 1 << 40;

/// Most rows of a use that are read again because several members have the same GPU at the same time.
const SHARED_ROWS_MAX: usize = 2_000_000;
/// Most rows of values by steps that are read again because several members have them. A page waits for these.
const SHARED_VALUES_MAX: usize = 300_000;

/// Why there is no answer without members.
const NOBODY: &str = "no collector is known";

/// A history among several.
#[derive(Debug, Clone)]
pub struct NamedHistory {
    /// Its name, for people: `collector b:8080`.
    pub name: Arc<str>,
    /// The history that is asked.
    pub history: Arc<dyn History>,
}

/// A history of several, each of which holds some rows, or some columns of a row.
///
/// Every question goes to all of them at once. One that has not answered within the deadline, or fails, is named in the answer;
/// only if all fail, or there is no member, there is none. Rows are put together by key: null never overwrites, and of two values that of the later member
/// in the list stays. A total counts each row once if every member gave all of its rows; else it is the sum of theirs without
/// those that were seen twice. Each member sends all rows up to the end of a page, so a page far on is refused, unless it is asked for
/// by `after`.
///
/// Values by steps are added up. Where two members have values of one GPU in a step, they may hold the same rows: the steps are made of
/// the merged rows then. If these are too many, the sums stand, and the answer names the GPUs whose rows may count twice in it. Two
/// collectors of one queue hold the same row only if one of them stored it and ended before it acknowledged.
///
/// Members may come and go: answers that are under way are those of the members they began with, and changes are followed of all
/// that are there.
#[derive(Debug)]
pub struct Merged {
    members: watch::Sender<MemberList>,
    deadline: Duration,
    bounds: FleetBounds,
    fleet: Mutex<Option<WholeFleet>>,
}

/// The members, and how many lists came before this one.
#[derive(Debug, Clone)]
struct MemberList {
    list: Arc<[NamedHistory]>,
    number: u64,
}

/// The fleets of the members, and the one that was made of them.
#[derive(Debug, Clone)]
struct WholeFleet {
    of: Vec<Arc<Fleet>>,
    fleet: Arc<Fleet>,
    /// GPUs without room in it.
    forgotten: u64,
}

impl Merged {
    /// Of these members, each of which has so long for an answer.
    pub fn new(members: Vec<NamedHistory>, deadline: Duration) -> Self {
        let members = MemberList { list: members.into(), number: 0 };
        let bounds = FleetBounds::default();
        Self { members: watch::Sender::new(members), deadline, bounds, fleet: Mutex::default() }
    }

    /// With other bounds of the latest state.
    #[must_use]
    pub fn with_bounds(self, bounds: FleetBounds) -> Self {
        Self { bounds, ..self }
    }

    /// From now on these are the members.
    pub fn set_members(&self, members: Vec<NamedHistory>) {
        self.members.send_modify(|held| {
            *held = MemberList { list: members.into(), number: held.number.wrapping_add(1) };
        });
    }

    fn members(&self) -> Arc<[NamedHistory]> {
        Arc::clone(&self.members.borrow().list)
    }

    /// Asks all members at once. What could not be had is named.
    async fn ask<T>(
        &self,
        ask: impl for<'a> Fn(&'a dyn History) -> Answered<'a, T>,
    ) -> Result<Part<Vec<T>>, QueryError> {
        let members = self.members();
        if members.is_empty() {
            return Err(QueryError::away(NOBODY));
        }
        let asked = members.iter().map(|member| {
            let asked = tokio::time::timeout(self.deadline, ask(member.history.as_ref()));
            async { (member.name.as_ref(), asked.await) }
        });
        let (mut found, mut error) = (Part::whole(Vec::new()), None);
        for (name, answer) in join_all(asked).await {
            match answer {
                Ok(Ok(Part { answer, missing })) => {
                    found.answer.push(answer);
                    found.missing.extend(missing.iter().map(|words| format!("{name}: {words}")));
                }
                Ok(Err(
                    why @ (QueryError::Failed(_) | QueryError::Away { .. } | QueryError::NotKept { .. }),
                )) => {
                    found.missing.push(format!("{name}: {}", causes(&why)));
                    error.get_or_insert(why);
                }
                // The question is at fault: all would say so.
                Ok(Err(refused)) => return Err(refused),
                Err(_) => {
                    found.missing.push(format!("{name}: no answer within {} s", self.deadline.as_secs_f32()));
                }
            }
        }
        match error {
            _ if !found.answer.is_empty() => Ok(found),
            Some(QueryError::Away { .. }) | None => Err(QueryError::away(found.missing.join("; "))),
            Some(error) => Err(error),
        }
    }

    async fn whole_fleet(&self) -> Result<Part<Arc<Fleet>>, QueryError> {
        let version = self.version();
        let Part { answer: fleets, mut missing } = self.ask(|history| history.fleet()).await?;
        let held = self.fleet.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_same = |of: &[Arc<Fleet>]| {
            of.len() == fleets.len() && of.iter().zip(&fleets).all(|(a, b)| Arc::ptr_eq(a, b))
        };
        if let Some(WholeFleet { fleet, forgotten, .. }) = held.filter(|held| is_same(&held.of)) {
            missing.extend(too_many(self.bounds, forgotten));
            return Ok(Part { answer: fleet, missing });
        }
        let parts = fleets.clone();
        let bounds = self.bounds;
        let merging = work(move || {
            let mut whole = LiveFleet::new(bounds);
            parts.iter().flat_map(|fleet| &fleet.gpus).for_each(|gpu| whole.add(gpu));
            whole.set_version(version);
            Ok((Arc::new(whole.snapshot()), whole.forgotten()))
        });
        let (fleet, forgotten) = merging.await?;
        missing.extend(too_many(bounds, forgotten));
        let held = WholeFleet { of: fleets, fleet: Arc::clone(&fleet), forgotten };
        *self.fleet.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
        Ok(Part { answer: fleet, missing })
    }

    async fn merged_rows(&self, query: RowsQuery) -> Result<Part<Rows>, QueryError> {
        let limit = if query.limit == 0 { 0 } else { query.offset.saturating_add(query.limit) };
        check_page_end(limit)?;
        let of_each = RowsQuery { offset: 0, limit, ..query.clone() };
        let Part { answer: found, missing } = self.ask(|history| history.rows(of_each.clone())).await?;
        let answer = work(move || page(&found, &query)).await?;
        Ok(Part { answer, missing })
    }

    async fn merged_buckets(&self, query: BucketQuery) -> Result<Part<Buckets>, QueryError> {
        let Part { answer: BucketSum { buckets, members, meet }, mut missing } =
            self.sum_of_buckets(&query).await?;
        if !meet || query.aggregates.iter().all(|aggregate| aggregate.is_extreme()) {
            return Ok(Part { answer: buckets, missing });
        }
        let shared = self.shared_gpus(&query).await?;
        if shared.as_ref().is_some_and(Vec::is_empty) {
            return Ok(Part { answer: buckets, missing });
        }
        let values = buckets.values().into_iter().max().unwrap_or(0);
        let of_rows = if values <= SHARED_VALUES_MAX as u64 {
            buckets_of_rows(self, &query, SHARED_VALUES_MAX).await?
        } else {
            None
        };
        match of_rows {
            Some(Part { answer, missing: unread }) if answer.covers(&buckets, members) => {
                missing
                    .extend(unread.into_iter().filter(|words| !missing.contains(words)).collect::<Vec<_>>());
                Ok(Part { answer, missing })
            }
            _ => {
                let whose = shared.map_or_else(|| query.table.to_string(), |gpus| named(&gpus));
                missing.push(format!(
                    "counts, means and percentiles are added up over the collectors: a row that two of them hold counts \
                     twice. Take a shorter or newer range, or fewer GPUs: {whose}"
                ));
                Ok(Part { answer: buckets, missing })
            }
        }
    }

    /// The GPUs of a question that several members know; none if nobody knows whose the rows are.
    async fn shared_gpus(&self, query: &BucketQuery) -> Result<Option<Vec<Arc<str>>>, QueryError> {
        if query.table != Table::GpuEvents {
            return Ok(None);
        }
        let Part { answer: fleets, .. } = self.ask(|history| history.fleet()).await?;
        let asked: HashSet<&Arc<str>> = query.gpus.iter().collect();
        let (mut seen, mut shared) = (HashSet::new(), BTreeSet::new());
        for gpu in fleets.iter().flat_map(|fleet| &fleet.gpus) {
            if (asked.is_empty() || asked.contains(&gpu.key)) && !seen.insert(&gpu.key) {
                shared.insert(Arc::clone(&gpu.key));
            }
        }
        Ok(Some(shared.into_iter().collect()))
    }

    /// What all members have, added up.
    async fn sum_of_buckets(&self, query: &BucketQuery) -> Result<Part<BucketSum>, QueryError> {
        let steps = query.steps()?;
        query.check_metrics()?;
        let aggregates = query.aggregates.len();
        let empty = Buckets::new(steps, &query.metrics, &query.aggregates);
        let sum = Arc::new(Mutex::new(BucketSum { buckets: empty, members: 0, meet: false }));
        let asked = self.ask(|history| {
            let (asked, sum) = (history.buckets(query.clone()), Arc::clone(&sum));
            Box::pin(async move {
                let Part { answer, missing } = asked.await?;
                let adding = work(move || {
                    let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
                    sum.add(answer)?;
                    sum.buckets.check_points(aggregates)
                });
                adding.await?;
                Ok(Part { answer: (), missing })
            })
        });
        let Part { missing, .. } = asked.await?;
        work(move || {
            // A member that is named as late may still add to what is left behind.
            let nothing = BucketSum { buckets: Buckets::new(steps, &[], &[]), members: 0, meet: false };
            let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
            let answer = std::mem::replace(&mut *sum, nothing);
            answer.buckets.check(aggregates)?;
            Ok(Part { answer, missing })
        })
        .await
    }
}

/// The values that the members have, added up.
struct BucketSum {
    buckets: Buckets,
    /// Members that have answered.
    members: usize,
    /// Whether two members had values of one group in one step.
    meet: bool,
}

impl BucketSum {
    fn add(&mut self, answer: Buckets) -> Result<(), QueryError> {
        self.members += 1;
        self.meet |= self.buckets.meets(&answer);
        self.buckets.merge(answer).map_err(QueryError::failed)
    }
}

impl Merged {
    async fn merged_usage(&self, query: UseQuery) -> Result<Part<Vec<GpuUse>>, QueryError> {
        let Part { answer: found, mut missing } = self.ask(|history| history.usage(query.clone())).await?;
        let members = found.len();
        let (uses, shared) = work(move || Ok(join(found))).await?;
        // Of the same rows the times are the same.
        if shared.is_empty() || query.is_of_times() {
            return Ok(Part { answer: uses, missing });
        }
        // Neither has all rows of these GPUs, and both may have the same ones: they are read, and merged by key.
        let of_shared = UseQuery { gpus: shared.clone(), ..query };
        let of_rows = use_of_rows(self, of_shared, SHARED_ROWS_MAX).await?;
        let is_bounded = of_rows.is_none();
        let (of_rows, unread) = of_rows.map_or_else(Default::default, |part| (part.answer, part.missing));
        missing.extend(unread.into_iter().filter(|words| !missing.contains(words)).collect::<Vec<_>>());
        // Where a rollup outlives its rows, the rows are of less time than one member alone has.
        let seconds = |of: &[GpuUse]| of.iter().map(|one| one.held.seconds).sum::<f64>();
        let of_gpu = |gpu: &Arc<str>| {
            let from = of_rows.partition_point(|one| one.gpu < *gpu);
            let of = of_rows.get(from..).unwrap_or_default();
            of.get(..of.partition_point(|one| one.gpu == *gpu)).unwrap_or_default()
        };
        let is_whole = |gpu: &Arc<str>, sum_s: f64| {
            !of_gpu(gpu).is_empty() && seconds(of_gpu(gpu)) * float(members) >= sum_s * (1.0 - 1e-9)
        };
        let (mut answer, mut summed) = (Vec::with_capacity(uses.len()), Vec::new());
        for sums in uses.chunk_by(|one, next| one.gpu == next.gpu) {
            let Some(GpuUse { gpu, .. }) = sums.first() else { continue };
            let is_shared = shared.binary_search(gpu).is_ok();
            let is_replaced = is_shared && is_whole(gpu, seconds(sums));
            answer.extend_from_slice(if is_replaced { of_gpu(gpu) } else { sums });
            summed.extend((is_shared && !is_replaced).then(|| Arc::clone(gpu)));
        }
        if !summed.is_empty() {
            missing.push(format!(
                "the use of {} is added up over the collectors, of which several have rows of the same time: hours and \
                 energy may be up to {members} times too large. {}: {}",
                counted(summed.len() as u64, "GPU"),
                if is_bounded {
                    format!("Take a newer range, or a shorter one with at most {SHARED_ROWS_MAX} rows")
                } else {
                    "Their rows are not all kept, or come at uneven distances; take a newer range".to_owned()
                },
                named(&summed),
            ));
        }
        Ok(Part { answer, missing })
    }
}

/// The first few of some GPUs.
fn named(gpus: &[Arc<str>]) -> String {
    const NAMED: usize = 5;
    let names: Vec<&str> = gpus.iter().take(NAMED).map(AsRef::as_ref).collect();
    let more = if gpus.len() > NAMED { " …" } else { "" };
    format!("{}{more}", names.join(", "))
}

/// The page of the rows of all members.
fn page(found: &[Rows], query: &RowsQuery) -> Result<Rows, QueryError> {
    let order = if query.newest_first { Order::NewestGpu } else { Order::TimeGpu };
    // A member that has not counted leaves the total unknown.
    let totals: Option<usize> = found.iter().map(|rows| rows.total).sum();
    let held = |rows: &Rows| rows.batch.as_ref().map_or(0, Batch::rows);
    let have_all = query.after.is_none() && found.iter().all(|rows| rows.total == Some(held(rows)));
    let given: usize = found.iter().map(held).sum();
    let parts: Vec<_> =
        found.iter().filter_map(|rows| Some(rows.batch.as_ref()?.records().clone())).collect();
    let merged = merge(query.table, &parts, order)?;
    let rows = merged.as_ref().map_or(0, arrow_array::RecordBatch::num_rows);
    let total = if have_all { Some(rows) } else { totals.map(|totals| totals.saturating_sub(given - rows)) };
    let (start, end) = (query.offset.min(rows), query.offset.saturating_add(query.limit).min(rows));
    let page = merged.filter(|_| start < end).map(|merged| without_empty(&merged.slice(start, end - start)));
    let batch = page.transpose()?.map(|page| Batch::new(query.table, page, Origin::default(), 0)).transpose();
    Ok(Rows { batch: batch.map_err(QueryError::failed)?, total: total.filter(|_| query.with_total) })
}

impl History for Merged {
    fn version(&self) -> u64 {
        let MemberList { list, number } = self.members.borrow().clone();
        let first = number.wrapping_mul(VERSIONS_OF_A_LIST);
        list.iter().fold(first, |sum, member| sum.wrapping_add(member.history.version()))
    }

    fn fleet(&self) -> Answered<'_, Arc<Fleet>> {
        Box::pin(self.whole_fleet())
    }

    fn rows(&self, query: RowsQuery) -> Answered<'_, Rows> {
        Box::pin(self.merged_rows(query))
    }

    fn buckets(&self, query: BucketQuery) -> Answered<'_, Buckets> {
        Box::pin(self.merged_buckets(query))
    }

    fn usage(&self, query: UseQuery) -> Answered<'_, Vec<GpuUse>> {
        Box::pin(self.merged_usage(query))
    }

    fn changes(&self) -> Box<dyn Changes> {
        let mut members = self.members.subscribe();
        let list = Arc::clone(&members.borrow_and_update().list);
        let all = list.iter().map(|member| (member.clone(), member.history.changes())).collect();
        Box::new(AllChanges { members, all })
    }

    fn health(&self) -> Health {
        let members = self.members();
        if members.is_empty() {
            return Health { status: Status::Degraded, reason: NOBODY.to_owned(), since_ns: 0 };
        }
        Health::of_all(members.iter().map(|member| {
            let health = member.history.health();
            let is_well = health.status == Status::Healthy;
            let reason = if is_well { String::new() } else { format!("{}: {}", member.name, health.reason) };
            Health { reason, ..health }
        }))
    }

    fn stats(&self) -> HistoryStats {
        let members = self.members();
        let all: Vec<(&Arc<str>, HistoryStats)> =
            members.iter().map(|member| (&member.name, member.history.stats())).collect();
        let sum = |rows: fn(&HistoryStats) -> Option<u64>| all.iter().map(|(_, stats)| rows(stats)).sum();
        HistoryStats {
            rows_on_disk: sum(|stats| stats.rows_on_disk),
            rows_in_memory: sum(|stats| stats.rows_in_memory),
            own: all.iter().map(|(name, stats)| (name.to_string(), stats.own.clone())).collect(),
        }
    }
}

/// The changes of all members.
struct AllChanges {
    members: watch::Receiver<MemberList>,
    all: Vec<(NamedHistory, Box<dyn Changes>)>,
}

impl AllChanges {
    /// Follows the members of today: those that stay go on, and lose nothing.
    fn follow(&mut self) {
        let list = Arc::clone(&self.members.borrow_and_update().list);
        let is_same = |a: &NamedHistory, b: &NamedHistory| Arc::ptr_eq(&a.history, &b.history);
        self.all.retain(|(held, _)| list.iter().any(|member| is_same(held, member)));
        for member in list.iter() {
            if !self.all.iter().any(|(held, _)| is_same(held, member)) {
                self.all.push((member.clone(), member.history.changes()));
            }
        }
    }
}

impl Changes for AllChanges {
    fn next(&mut self) -> Answer<'_, Option<Change>> {
        Box::pin(async {
            loop {
                let nexts = self.all.iter_mut().map(|(_, changes)| changes.next());
                // Without a member it waits for one.
                let never = std::iter::once(std::future::pending().boxed());
                let next = tokio::select! {
                    (change, of, _) = select_all(nexts.chain(never)) => Some((change, of)),
                    changed = self.members.changed() => {
                        if changed.is_err() {
                            return None;
                        }
                        None
                    }
                };
                match next {
                    Some((Some(change), of)) => {
                        // The first that is ready is taken, so each member has its turn to be the first.
                        self.all.rotate_left(of + 1);
                        return Some(change);
                    }
                    Some((None, ended)) => drop(self.all.swap_remove(ended)),
                    None => self.follow(),
                }
            }
        })
    }
}
