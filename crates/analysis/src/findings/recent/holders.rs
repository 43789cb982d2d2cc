//! Who held a GPU in a minute, and which nodes sent its values, by the groups of the answer.

use std::sync::Arc;

use super::HOLDER;
use crate::cells::GpuCells;

impl GpuCells<'_> {
    /// The holder at the end of a step.
    pub(super) fn holder(&self, step: usize) -> Option<&[Option<Arc<str>>]> {
        let mut newest: Option<(i64, usize)> = None;
        for measured in self.buckets.metrics() {
            for &group in &self.groups {
                let Some(cell) = measured.cells.get(self.buckets.place(group, step)) else { continue };
                if cell.count > 0 && newest.is_none_or(|(at_ns, _)| cell.last_ns > at_ns) {
                    newest = Some((cell.last_ns, group));
                }
            }
        }
        self.buckets.groups().get(newest?.1).and_then(|name| name.get(1..=HOLDER.len()))
    }

    /// The nodes that sent values in a step.
    pub(super) fn nodes(&self, step: usize) -> Vec<Arc<str>> {
        let mut nodes: Vec<Arc<str>> = Vec::new();
        for &group in &self.groups {
            let name = self.buckets.groups().get(group).and_then(|name| name.get(1 + HOLDER.len())?.as_ref());
            let Some(node) = name.filter(|node| !nodes.contains(node)) else { continue };
            let mut cells = self.buckets.metrics().iter();
            if cells.any(|one| self.cell(one.metric, group, step).is_some()) {
                nodes.push(Arc::clone(node));
            }
        }
        nodes
    }
}
