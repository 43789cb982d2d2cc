//! Who held a GPU in a minute, and which nodes sent its values, by the groups of the answer.

use std::sync::Arc;

use super::HOLDER;
use crate::cells::GpuCells;

impl GpuCells<'_> {
    /// The holder at the end of a step.
    pub(super) fn holder(&self, step: usize) -> Option<&[Option<Arc<str>>]> {
        let newest = match self.groups.as_slice() {
            // Of one holder any value will do.
            [only] => Some(*only).filter(|only| self.has_value(*only, step))?,
            several => self.newest(several, step)?,
        };
        self.buckets.groups().get(newest).and_then(|name| name.get(1..=HOLDER.len()))
    }

    fn has_value(&self, group: usize, step: usize) -> bool {
        let place = self.buckets.place(group, step);
        let mut metrics = self.buckets.metrics().iter();
        metrics.any(|measured| measured.cells.get(place).is_some_and(|cell| cell.count > 0))
    }

    /// The group with the newest value of a step.
    fn newest(&self, groups: &[usize], step: usize) -> Option<usize> {
        let mut newest: Option<(i64, usize)> = None;
        for measured in self.buckets.metrics() {
            for &group in groups {
                let Some(cell) = measured.cells.get(self.buckets.place(group, step)) else { continue };
                if cell.count > 0 && newest.is_none_or(|(at_ns, _)| cell.last_ns > at_ns) {
                    newest = Some((cell.last_ns, group));
                }
            }
        }
        newest.map(|(_, group)| group)
    }

    /// The nodes that sent values in a step.
    pub(super) fn nodes(&self, step: usize) -> Vec<Arc<str>> {
        let mut nodes: Vec<Arc<str>> = Vec::new();
        for &group in &self.groups {
            let name = self.buckets.groups().get(group).and_then(|name| name.get(1 + HOLDER.len())?.as_ref());
            let Some(node) = name.filter(|node| !nodes.contains(node)) else { continue };
            if self.has_value(group, step) {
                nodes.push(Arc::clone(node));
            }
        }
        nodes
    }
}
