//! Where work can go.

use gpuvitals_analysis::hints::{NodeHint, UnfitGpu, UsedMemory};
use gpuvitals_core::number::float;
use serde::Serialize;
use utoipa::ToSchema;

use super::{Moment, Pagination};

/// Nodes and the GPUs on them that can take work.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HintList<'a> {
    /// All nodes that match, together.
    pub(crate) totals: HintTotals,
    /// The nodes, by cluster and name.
    pub(crate) nodes: Vec<NodeRoom<'a>>,
    /// When the fleet was judged.
    pub(crate) judged_at: Moment,
    /// How many nodes match in all.
    pub(crate) total: usize,
    /// Which part this is.
    pub(crate) pagination: Pagination,
    /// What could not be read, in words; missing if the answer is whole.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    #[schema(required = false)]
    pub(crate) partial: &'a [String],
}

/// Counts over nodes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HintTotals {
    /// GPUs that can take work.
    free: usize,
    /// GPUs that are held or work, or whose memory is in use.
    busy: usize,
    /// Those of them that do nothing and of which no holder is known: their memory is in use.
    memory_in_use: usize,
    /// GPUs to keep work away from.
    unhealthy: usize,
    /// Nodes all of whose GPUs are free.
    whole_nodes: usize,
    /// Share of the free GPUs that are on nodes with others that are not free; null without a free GPU.
    fragmentation: Option<f64>,
}

/// A node and its GPUs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NodeRoom<'a> {
    /// Cluster of the node; null if none is known.
    cluster: Option<&'a str>,
    /// Name of the node.
    hostname: &'a str,
    /// Model of its GPUs, if it has only one.
    model: Option<&'a str>,
    /// Whether all of its GPUs are free.
    whole: bool,
    /// Keys of the GPUs that nobody holds, that do nothing and whose memory is free.
    #[schema(value_type = Vec<String>)]
    free: Vec<&'a str>,
    /// Keys of the GPUs that are held or work, or whose memory is in use.
    #[schema(value_type = Vec<String>)]
    busy: Vec<&'a str>,
    /// Those of the busy GPUs that do nothing and of which no holder is known, and how much memory is in use: more than 1,024 MiB.
    memory_in_use: &'a [UsedMemory],
    /// GPUs to keep work away from.
    unhealthy: &'a [UnfitGpu],
}

impl HintTotals {
    /// Of these nodes.
    pub(crate) fn of(nodes: &[&NodeHint]) -> Self {
        let count = |of: fn(&NodeHint) -> usize| nodes.iter().map(|hint| of(hint)).sum::<usize>();
        let free = count(|hint| hint.free.len());
        let of_whole = count(|hint| if hint.is_whole() { hint.free.len() } else { 0 });
        Self {
            free,
            busy: count(|hint| hint.busy.len()),
            memory_in_use: count(|hint| hint.memory_in_use.len()),
            unhealthy: count(|hint| hint.unhealthy.len()),
            whole_nodes: count(|hint| usize::from(hint.is_whole())),
            fragmentation: (free > 0).then(|| 1.0 - float(of_whole) / float(free)),
        }
    }
}

impl<'a> NodeRoom<'a> {
    pub(crate) fn of(hint: &'a NodeHint) -> Self {
        Self {
            cluster: hint.cluster.as_deref(),
            hostname: &hint.node,
            model: hint.model.as_deref(),
            whole: hint.is_whole(),
            free: hint.free.iter().map(AsRef::as_ref).collect(),
            busy: hint.busy.iter().map(AsRef::as_ref).collect(),
            memory_in_use: &hint.memory_in_use,
            unhealthy: &hint.unhealthy,
        }
    }
}
