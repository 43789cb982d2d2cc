//! Hosts whose clock is ahead: their rows have times that have not come.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gpuvitals_core::history::{
    Aggregate, BucketQuery, Buckets, GpuState, GroupColumn, Matcher, Selector, TextTest,
};
use gpuvitals_core::number::float;
use gpuvitals_core::time::{AHEAD_MAX_NS, FUTURE_MAX_NS, MINUTE_NS, SECOND_NS};
use gpuvitals_core::{Identity, IdentityColumn, Table, time};

use crate::cells::REPORTED;

use super::{Candidate, Evidence, Reach, Subject, finding};

/// Sources send a row a minute at least.
const RISES_WITHIN_NS: i64 = 2 * MINUTE_NS;
/// Rows further ahead are not counted. None is kept that is more than [`FUTURE_MAX_NS`] ahead when it comes.
const COUNTED_NS: i64 = 2 * FUTURE_MAX_NS;

/// The newest row of a host, whose time has not come.
#[derive(Debug, Clone, PartialEq)]
pub struct RowAhead {
    /// Its time, nanoseconds UTC since 1970.
    pub at_ns: i64,
    /// Identity of the row, which names the host.
    pub identity: Identity,
}

/// The clocks that are ahead. A clock is wrong while more and more rows of it are: those that came before it was set right stay
/// ahead until their time. One of these may be further ahead than all that come: so the newest is watched, and the number of rows.
#[derive(Debug, Default)]
pub struct ClockWatch {
    hosts: HashMap<Subject, HostClock>,
}

#[derive(Debug)]
struct HostClock {
    /// The newest row that was ahead.
    newest: RowAhead,
    /// The time of the row that came last, as far as that is known.
    latest_ns: i64,
    /// When one was last seen to be.
    seen_ns: i64,
    /// By how much it was ahead when it was first seen.
    lead_ns: i64,
    /// When one came, after the first.
    rose_ns: Option<i64>,
    /// How many rows are ahead, by the start of their minute; none: not counted yet.
    counts: Option<BTreeMap<i64, u64>>,
}

impl ClockWatch {
    /// What to ask the history to count the rows of these hosts that are ahead; none: there is none.
    pub fn query(ahead: &[RowAhead], now_ns: i64) -> Option<BucketQuery> {
        let newest_ns = ahead.iter().map(|row| row.at_ns).max()?.min(now_ns.saturating_add(COUNTED_NS));
        let start_ns = now_ns.saturating_add(AHEAD_MAX_NS);
        let nodes = ahead.iter().map(|row| Arc::from(row.identity.node().unwrap_or_default())).collect();
        let of_hosts = Matcher { column: IdentityColumn::Node, test: TextTest::Is(nodes) };
        let end_ns = newest_ns.max(start_ns);
        Some(BucketQuery {
            selector: Selector::new(vec![of_hosts]).ok()?,
            aggregates: vec![Aggregate::Last],
            group_by: [IdentityColumn::Cluster, IdentityColumn::Node].map(GroupColumn::Identity).to_vec(),
            ..BucketQuery::of(Table::GpuEvents, REPORTED.to_vec(), start_ns, end_ns, MINUTE_NS)
        })
    }

    /// The wrong clocks of the hosts of these rows, and of those whose rows were ahead a moment ago; of a row without a host that of
    /// its GPU. A row a minute of a clock that is half a minute ahead is so for half of the time. `counted` is the answer to
    /// [`ClockWatch::query`], if there is one and nothing is missing in it.
    pub fn look(
        &mut self,
        ahead: &[RowAhead],
        counted: Option<&Buckets>,
        gpus: &[Arc<GpuState>],
        now_ns: i64,
    ) -> Vec<Candidate> {
        for row in ahead {
            let Some(subject) = subject(row) else { continue };
            let clock = self.hosts.entry(subject).or_insert_with(|| HostClock {
                newest: row.clone(),
                latest_ns: row.at_ns,
                lead_ns: row.at_ns.saturating_sub(now_ns),
                seen_ns: now_ns,
                rose_ns: None,
                counts: None,
            });
            clock.seen_ns = now_ns;
            let more_ns = counted.and_then(|counted| clock.count(row, counted));
            if row.at_ns > clock.newest.at_ns {
                clock.newest = row.clone();
                clock.rise(row.at_ns, now_ns);
            } else if let Some(at_ns) = more_ns {
                clock.rise(at_ns, now_ns);
            }
        }
        let is_recent = |at_ns: i64| now_ns.saturating_sub(at_ns) <= RISES_WITHIN_NS;
        self.hosts.retain(|_, clock| is_recent(clock.seen_ns));
        let mut rising: Vec<(&Subject, &HostClock)> =
            self.hosts.iter().filter(|(_, clock)| clock.rose_ns.is_some_and(is_recent)).collect();
        rising.sort_unstable_by_key(|(subject, _)| *subject);
        rising.into_iter().filter_map(|(subject, clock)| wrong_clock(clock, subject.clone(), gpus)).collect()
    }
}

impl HostClock {
    fn rise(&mut self, at_ns: i64, now_ns: i64) {
        (self.latest_ns, self.lead_ns, self.rose_ns) = (at_ns, at_ns.saturating_sub(now_ns), Some(now_ns));
    }

    /// Takes the number of rows ahead of the host of this row. Where it rose since the last count, the newest row there.
    fn count(&mut self, row: &RowAhead, counted: &Buckets) -> Option<i64> {
        let host = [row.identity.get(IdentityColumn::Cluster), row.identity.node()];
        let is_host = |name: &[Option<Arc<str>>]| name.iter().map(Option::as_deref).eq(host);
        let steps = counted.steps();
        let mut counts = BTreeMap::new();
        let mut newest_ns = None;
        for (group, _) in counted.groups().iter().enumerate().filter(|(_, name)| is_host(name)) {
            for (step, start_ns) in steps.times().enumerate() {
                let place = counted.place(group, step);
                let cells = counted.metrics().iter().filter_map(|metric| metric.cells.get(place));
                let Some(most) = cells.max_by_key(|cell| cell.count).filter(|cell| cell.count > 0) else {
                    continue;
                };
                let is_more =
                    |before: &BTreeMap<i64, u64>| most.count > before.get(&start_ns).copied().unwrap_or(0);
                if self.counts.as_ref().is_some_and(is_more) {
                    newest_ns = newest_ns.max(Some(most.last_ns));
                }
                counts.insert(start_ns, most.count);
            }
        }
        self.counts = Some(counts);
        newest_ns
    }
}

fn subject(row: &RowAhead) -> Option<Subject> {
    let (cluster, node) = (row.identity.get(IdentityColumn::Cluster), row.identity.node());
    match node {
        Some(node) => Some(Subject::node(cluster, node)),
        None => row.identity.key().map(Subject::Gpu),
    }
}

fn wrong_clock(clock: &HostClock, subject: Subject, gpus: &[Arc<GpuState>]) -> Option<Candidate> {
    let HostClock { newest: RowAhead { identity, .. }, latest_ns, lead_ns, .. } = clock;
    let (cluster, node, key) = (identity.get(IdentityColumn::Cluster), identity.node(), identity.key()?);
    let is_of_host = |gpu: &&Arc<GpuState>| match node {
        Some(_) => gpu.identity.node() == node && gpu.identity.get(IdentityColumn::Cluster) == cluster,
        None => gpu.key == key,
    };
    let of_host: Vec<&Arc<GpuState>> = gpus.iter().filter(is_of_host).collect();
    let reach = if of_host.is_empty() {
        Reach {
            gpus: vec![key],
            concerned_gpus: 1,
            cluster: identity.shared(IdentityColumn::Cluster).cloned(),
            node: identity.shared(IdentityColumn::Node).cloned(),
            is_simulated: identity.is_simulated(),
            ..Reach::default()
        }
    } else {
        Reach::of(&of_host)
    };
    let sentence = format!(
        "its rows come with a time {} ahead (the newest is of {}); they count for the latest values when that time has come",
        lead(*lead_ns),
        time::format(*latest_ns)
    );
    let evidence = Evidence::derived("clock_ahead", "s", float(*lead_ns / SECOND_NS));
    let finding = finding("clock_wrong", subject, sentence, vec![evidence], reach);
    Some(Candidate { opens: true, began: None, finding })
}

fn lead(lead_ns: i64) -> String {
    if lead_ns < 2 * MINUTE_NS {
        format!("{} s", lead_ns / SECOND_NS)
    } else {
        format!("{} min", lead_ns / MINUTE_NS)
    }
}
