//! The rows of one tick, in the order of the devices: workers hand them over in any order.

use std::collections::HashSet;
use std::sync::Arc;

use gpuvitals_core::catalogue::Scope;
use gpuvitals_core::{Batch, IdentityColumn, Table};

/// The key of a device, or the name of a host; the CPU of a row about one.
type RowSubject = (Arc<str>, Option<String>);

/// A row that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) batch: Arc<Batch>,
    pub(super) row: usize,
}

/// At most one row of each device.
#[derive(Debug, Default)]
pub(super) struct Round {
    rows: Vec<Waiting>,
    of: HashSet<RowSubject>,
}

impl Round {
    /// Takes a row. If its device has one here already, the round is over: its rows come back.
    pub(super) fn take(&mut self, batch: &Arc<Batch>, row: usize) -> Vec<Waiting> {
        let core = batch.instance(Scope::CpuCore, row).map(str::to_owned);
        let of = (name(batch, row), core);
        let before = if self.of.contains(&of) { self.end() } else { Vec::new() };
        self.of.insert(of);
        self.rows.push(Waiting { batch: Arc::clone(batch), row });
        before
    }

    /// Whether each of these devices has a row.
    pub(super) fn has_all(&self, names: impl IntoIterator<Item = Arc<str>>) -> bool {
        names.into_iter().all(|name| self.of.contains(&(name, None)))
    }

    /// Its rows: GPUs by host and number, then the hosts, each with its CPUs.
    pub(super) fn end(&mut self) -> Vec<Waiting> {
        self.of.clear();
        let mut rows = std::mem::take(&mut self.rows);
        rows.sort_by_cached_key(|waiting| {
            let identity = waiting.batch.identity(waiting.row);
            let node = identity.node().map(str::to_owned);
            (waiting.batch.table() == Table::SystemEvents, node, identity.index, identity.key())
        });
        rows
    }
}

/// The key of the GPU of a row, or the name of its host.
pub(super) fn name(batch: &Batch, row: usize) -> Arc<str> {
    let identity = batch.identity(row);
    identity.key().or_else(|| identity.shared(IdentityColumn::Node).cloned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::batch::Value;
    use gpuvitals_core::{BatchBuilder, Identity, MetricId, Origin};

    use super::*;

    fn row(index: i32) -> Arc<Batch> {
        let mut identity = Identity::default().with(IdentityColumn::Node, "n").unwrap();
        identity.index = Some(index);
        identity.resolve().unwrap();
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let id = builder.intern(&identity);
        let row = builder.row(1, id);
        builder.set(row, MetricId::of("power_w"), Value::Float(1.0)).unwrap();
        Arc::new(builder.finish(Origin::default(), 1).unwrap())
    }

    #[test]
    fn rows_of_a_tick_come_in_the_order_of_the_gpus_and_the_next_tick_waits() {
        let order = |rows: Vec<Waiting>| -> Vec<Option<i32>> {
            rows.iter().map(|waiting| waiting.batch.identity(waiting.row).index).collect()
        };
        let mut round = Round::default();
        for index in [10, 2, 1] {
            assert!(round.take(&row(index), 0).is_empty());
        }
        let key = |index: i32| Arc::from(format!("n:gpu{index}"));
        assert!(round.has_all([1, 2, 10].map(key)) && !round.has_all([1, 3].map(key)));
        assert_eq!(
            order(round.take(&row(2), 0)),
            [1, 2, 10].map(Some),
            "the second row of GPU 2 ends the tick"
        );
        assert!(!round.has_all([1].map(key)));
        assert_eq!(order(round.end()), [Some(2)]);
        assert!(round.end().is_empty());
    }
}
