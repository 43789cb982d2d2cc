//! The counts since boot of hosts. Those of one machine never fall but at a boot. Where they go back and forth, two machines report
//! under one name: without UUIDs their GPUs are one and the same to the history.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use gpuvitals_core::history::{Aggregate, BucketQuery, Buckets, GroupColumn};
use gpuvitals_core::time::MINUTE_NS;
use gpuvitals_core::{IdentityColumn, MetricId, Table};

use super::since::SETTLE_NS;
use super::threshold::WINDOW_MINUTES;

/// A count that every kernel has and that always rises.
const COUNT: MetricId = MetricId::of("ctx_switches");

/// The last minutes of the counts of hosts.
#[derive(Debug, Default)]
pub struct HostBoots {
    /// Until when they were asked for.
    end_ns: Option<i64>,
    /// By cluster and node.
    hosts: HashMap<(Option<Arc<str>>, Arc<str>), HostCounts>,
}

#[derive(Debug)]
struct HostCounts {
    /// The newest minute: when it began, its smallest and its largest count.
    newest: (i64, f64, f64),
    /// Minutes in which two counts rose, the lower one below the higher one of the minute before.
    mixed: VecDeque<i64>,
}

impl HostBoots {
    /// What to ask the history for next; none: it was asked for all minutes that are over.
    pub fn next_query(&mut self, now_ns: i64) -> Option<BucketQuery> {
        let end_ns = (now_ns - SETTLE_NS).div_euclid(MINUTE_NS) * MINUTE_NS;
        let start_ns = self.end_ns.unwrap_or(i64::MIN).max(end_ns - window_ns());
        if start_ns >= end_ns {
            return None;
        }
        self.end_ns = Some(end_ns);
        Some(BucketQuery {
            aggregates: vec![Aggregate::Min, Aggregate::Max],
            group_by: [IdentityColumn::Cluster, IdentityColumn::Node].map(GroupColumn::Identity).to_vec(),
            ..BucketQuery::of(Table::SystemEvents, vec![COUNT], start_ns, end_ns - 1, MINUTE_NS)
        })
    }

    /// Takes the answer.
    pub fn take(&mut self, counts: &Buckets) {
        let Some(counted) = counts.metrics().first() else { return };
        for (group, name) in counts.groups().iter().enumerate() {
            let [cluster, Some(node)] = &**name else { continue };
            for (step, start_ns) in counts.steps().times().enumerate() {
                let cell = counted.cells.get(counts.place(group, step)).filter(|cell| cell.count > 0);
                let Some(cell) = cell else { continue };
                let newest = (start_ns, cell.min, cell.max);
                let host = self.hosts.entry((cluster.clone(), Arc::clone(node)));
                let host = host.or_insert_with(|| HostCounts { newest, mixed: VecDeque::new() });
                let (_, smallest, largest) = host.newest;
                // After a boot, or where a recording begins again, the smallest has fallen.
                if cell.min < largest && cell.min > smallest && cell.max > largest {
                    host.mixed.push_back(start_ns);
                }
                host.newest = newest;
            }
        }
        let begin_ns = self.end_ns.map_or(i64::MIN, |end_ns| end_ns - window_ns());
        for host in self.hosts.values_mut() {
            host.mixed.retain(|start_ns| *start_ns >= begin_ns);
        }
        self.hosts.retain(|_, host| host.newest.0 >= begin_ns);
    }

    /// In how many of the last minutes the counts of a host went back and forth, and when the first of them began.
    pub(super) fn mixed(&self, cluster: Option<&str>, node: &str) -> Option<(usize, i64)> {
        let host = self.hosts.get(&(cluster.map(Arc::from), Arc::from(node)))?;
        Some((host.mixed.len(), *host.mixed.front()?))
    }
}

fn window_ns() -> i64 {
    i64::try_from(WINDOW_MINUTES).unwrap_or(0) * MINUTE_NS
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::history::{Cell, GroupName};
    use gpuvitals_core::number::float;

    use super::*;

    /// Two counts a minute that rise, from a store that has rollups: the figures alone that are asked for.
    fn answer(query: &BucketQuery) -> Buckets {
        let steps = query.steps().unwrap();
        let mut buckets = Buckets::new(steps, &query.metrics, &[]);
        let group = buckets.group(&GroupName::from([None, Some(Arc::from("twin"))]));
        for step in 0..steps.count {
            let mut cell = Cell { count: 2, ..Cell::EMPTY };
            for aggregate in &query.aggregates {
                match aggregate {
                    Aggregate::Min => cell.min = 1_000.0 + float(step),
                    Aggregate::Max => cell.max = 9_000.0 + float(step),
                    _ => {}
                }
            }
            let place = buckets.place(group, step);
            for measured in buckets.metrics_mut() {
                measured.cells[place] = cell;
            }
        }
        buckets
    }

    #[test]
    fn rollups_tell_of_two_machines_of_one_name() {
        let mut boots = HostBoots::default();
        let query = boots.next_query(1_000 * MINUTE_NS).unwrap();
        boots.take(&answer(&query));
        let minutes = boots.mixed(None, "twin").map(|(minutes, _)| minutes);
        assert_eq!(minutes, Some(WINDOW_MINUTES - 1), "in all but the first");
    }
}
