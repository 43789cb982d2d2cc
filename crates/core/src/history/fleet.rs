//! The latest state of every GPU, at one version.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef};

use crate::batch::{Value, text_at};
use crate::number::float;
use crate::{Identity, IdentityColumn, MetricId};

/// The fleet at one version. Cheap to hold; later versions share unchanged parts.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    /// Version of the history ([`super::History::version`]) it shows.
    pub version: u64,
    /// Every GPU ever seen, by node, index and key.
    pub gpus: Vec<Arc<GpuState>>,
    names: Arc<Names>,
}

/// By the names of GPUs: position in `gpus`, or none if two GPUs have the name.
pub(super) type Names = HashMap<Arc<str>, Option<u32>, foldhash::fast::RandomState>;

/// Latest state of a GPU: the newest value of each column, with its own time.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuState {
    /// `uuid`, or `uuid:partition`.
    pub key: Arc<str>,
    /// From the newest row; device fields that the newest row lacks are kept.
    pub identity: Identity,
    /// Time of the oldest row, nanoseconds UTC since 1970.
    pub first_seen_ns: i64,
    /// Time of the newest row.
    pub last_seen_ns: i64,
    /// The newest value of each metric, sorted by metric.
    pub latest: Vec<(MetricId, LatestValue)>,
    /// Columns the catalogue does not know: name, value, time.
    pub extras: Vec<(Arc<str>, ExtraValue, i64)>,
}

/// A value and when it was taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatestValue {
    /// In the column unit.
    pub value: Value,
    /// Nanoseconds UTC since 1970.
    pub timestamp_ns: i64,
}

/// Value of a column the catalogue does not know.
#[derive(Debug, Clone, PartialEq)]
pub enum ExtraValue {
    /// A number, in a unit that nobody knows.
    Number(f64),
    /// A text, as it came.
    Text(Arc<str>),
}

impl ExtraValue {
    /// The value of a row of such a column, if it has one.
    pub fn of(column: &ArrayRef, row: usize) -> Option<Self> {
        if column.is_null(row) {
            return None;
        }
        if let Some(numbers) = column.as_primitive_opt::<Float64Type>() {
            return Some(Self::Number(numbers.value(row)));
        }
        if let Some(numbers) = column.as_primitive_opt::<Int64Type>() {
            return Some(Self::Number(float(numbers.value(row))));
        }
        text_at(column.as_dictionary_opt()?, row).map(|text| Self::Text(text.into()))
    }
}

/// Why a name is not that of a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoGpu {
    /// No GPU answers to it.
    Unknown,
    /// Several GPUs answer to it: their keys, in the order of the fleet.
    Ambiguous(Vec<Arc<str>>),
}

/// A GPU that is silent for this much longer than another of its name has been replaced by it. Nanoseconds.
const REPLACED_NS: i64 = 60_000_000_000;

/// Which of the GPUs of one name has it: the only living one, or the one that the other living ones are partitions of.
fn holder_of_name<'a>(named: &[&'a Arc<GpuState>]) -> Option<&'a Arc<GpuState>> {
    // A GPU does not take the place of one of another node: a bare PCI address is there on every node.
    let place = |gpu: &GpuState| {
        (gpu.identity.shared(IdentityColumn::Cluster).cloned(), gpu.identity.node().map(str::to_owned))
    };
    let (first, others) = named.split_first()?;
    if others.iter().any(|gpu| place(gpu) != place(first)) {
        return None;
    }
    let newest_ns = named.iter().map(|gpu| gpu.last_seen_ns).max()?;
    let mut living = named.iter().filter(|gpu| newest_ns.saturating_sub(gpu.last_seen_ns) <= REPLACED_NS);
    let mut whole = living.clone().filter(|gpu| gpu.identity.get(IdentityColumn::Partition).is_none());
    let holder = whole.next().filter(|_| whole.next().is_none());
    let is_its = |holder: &GpuState, gpu: &GpuState| gpu.identity.uuid() == holder.identity.uuid();
    match holder {
        Some(holder) => living.all(|gpu| is_its(holder, gpu)).then_some(*holder),
        None => living.next().filter(|_| living.next().is_none()).copied(),
    }
}

impl Fleet {
    pub(super) fn new(version: u64, gpus: Vec<Arc<GpuState>>, names: Arc<Names>) -> Self {
        Self { version, gpus, names }
    }

    /// The GPU of that key, or the one that alone has that `uuid`, `pci`, `pci@node`, `node:gpuN`, name for people
    /// ([`GpuState::name`]) or name on its node. A GPU of an unknown node is also found by its bare index. A name passes from
    /// a GPU that has fallen silent to the one in its place; a divided GPU has it before its partitions.
    ///
    /// # Errors
    /// When no GPU answers to the name, or several do.
    pub fn find(&self, id: &str) -> Result<&Arc<GpuState>, NoGpu> {
        match self.names.get(id) {
            None => Err(NoGpu::Unknown),
            Some(Some(position)) => {
                let position = usize::try_from(*position).unwrap_or(usize::MAX);
                self.gpus.get(position).ok_or(NoGpu::Unknown)
            }
            Some(None) => {
                let named = self.gpus.iter().filter(|gpu| aliases_of(&gpu.identity).contains(id));
                let named: Vec<&Arc<GpuState>> = named.collect();
                holder_of_name(&named)
                    .ok_or_else(|| NoGpu::Ambiguous(named.iter().map(|gpu| Arc::clone(&gpu.key)).collect()))
            }
        }
    }

    /// The GPU that [`Fleet::find`] finds, if it finds one.
    pub fn get(&self, id: &str) -> Option<&Arc<GpuState>> {
        self.find(id).ok()
    }

    /// The latest value of a metric of a GPU.
    pub fn latest(gpu: &GpuState, metric: MetricId) -> Option<LatestValue> {
        gpu.latest
            .binary_search_by_key(&metric, |(id, _)| *id)
            .ok()
            .and_then(|i| gpu.latest.get(i))
            .map(|(_, v)| *v)
    }
}

/// Names of a GPU besides its key, each name once.
pub(super) fn aliases_of(identity: &Identity) -> BTreeSet<Arc<str>> {
    let mut aliases = BTreeSet::new();
    let node = identity.node();
    if let Some(uuid) = identity.shared(IdentityColumn::Uuid) {
        aliases.insert(Arc::clone(uuid));
        // A name that is one GPU's on each node: `gpu_0@node`.
        if let Some((name, at)) = uuid.rsplit_once('@')
            && node == Some(at)
        {
            aliases.insert(Arc::from(name));
        }
    }
    if let Some(pci) = identity.shared(IdentityColumn::Pci) {
        aliases.insert(Arc::clone(pci));
        aliases.extend(node.map(|node| Arc::from(format!("{pci}@{node}"))));
    }
    match (node, identity.index) {
        (Some(node), Some(index)) => {
            let name = name_on(node, index);
            // A partition has the name of its card, too.
            let partition = identity.get(IdentityColumn::Partition);
            aliases.extend(partition.map(|partition| Arc::from(format!("{name} / {partition}"))));
            aliases.extend([name, format!("{node}:gpu{index}")].map(Arc::from));
        }
        (Some(node), None) => aliases.extend(identity.key().map(|key| Arc::from(format!("{node} / {key}")))),
        // Of a GPU without a node its index is all that it was called by.
        (None, index) => aliases.extend(index.map(|index| Arc::from(index.to_string()))),
    }
    aliases
}

/// The name for people of the GPU with a number on a node.
pub(super) fn name_on(node: &str, index: i32) -> String {
    format!("{node} / GPU {index}")
}

#[cfg(test)]
mod tests {
    use super::super::LiveFleet;
    use super::*;

    /// A GPU of the node `n1` with index 0, last seen then.
    fn gpu(uuid: &str, partition: &str, seen_s: i64) -> Arc<GpuState> {
        let texts = [
            (IdentityColumn::Node, "n1"),
            (IdentityColumn::Uuid, uuid),
            (IdentityColumn::Partition, partition),
        ];
        let mut identity = Identity::default();
        identity.index = Some(0);
        for (column, text) in texts {
            identity.set(column, text).unwrap();
        }
        Arc::new(GpuState {
            key: identity.key().unwrap(),
            identity,
            first_seen_ns: 0,
            last_seen_ns: seen_s * 1_000_000_000,
            latest: Vec::new(),
            extras: Vec::new(),
        })
    }

    #[test]
    fn the_living_gpu_has_the_name_of_the_one_it_replaced_and_a_card_that_of_its_partitions() {
        let check = |gpus: &[Arc<GpuState>], name: &str, wanted: Option<&str>| {
            let mut live = LiveFleet::default();
            for gpu in gpus {
                live.add(gpu);
            }
            let fleet = live.snapshot();
            assert_eq!(fleet.get(name).map(|gpu| &*gpu.key), wanted, "{name}");
        };
        let replaced = [gpu("GPU-old", "", 100), gpu("GPU-new", "", 1000)];
        check(&replaced, "n1:gpu0", Some("GPU-new"));
        check(&replaced, "n1 / GPU 0", Some("GPU-new"));
        check(&replaced, "GPU-old", Some("GPU-old"));
        check(&[gpu("GPU-a", "", 990), gpu("GPU-b", "", 1000)], "n1:gpu0", None);
        let divided = [gpu("GPU-a", "", 1000), gpu("GPU-a", "3", 1000), gpu("GPU-a", "5", 1000)];
        check(&divided, "n1:gpu0", Some("GPU-a"));
        check(&divided, "GPU-a", Some("GPU-a"));
        check(&divided, "GPU-a:5", Some("GPU-a:5"));
        check(&divided, "n1 / GPU 0", Some("GPU-a"));
        check(&divided, "n1 / GPU 0 / 5", Some("GPU-a:5"));
        check(divided.get(1..).unwrap(), "n1:gpu0", None);
        check(&[gpu("GPU-a", "3", 1000), gpu("GPU-old", "", 1)], "n1:gpu0", Some("GPU-a:3"));
        check(&[gpu("GPU-a", "3", 1000), gpu("GPU-b", "", 1000)], "n1:gpu0", None);
    }
}
