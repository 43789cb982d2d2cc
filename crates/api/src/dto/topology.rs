//! How the GPUs of a host are plugged in and linked.

use serde::Serialize;
use utoipa::ToSchema;

use super::Moment;

/// Where the GPUs of a host are plugged in, and what their links lead to.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Topology<'a> {
    /// Name of the host.
    pub(crate) hostname: &'a str,
    /// When it was so: the newest row of its GPUs.
    pub(crate) as_of: Moment,
    /// Its GPUs, by index.
    pub(crate) gpus: Vec<GpuPlace<'a>>,
    /// What the links of each GPU lead to, in the order of the GPUs. Those between two GPUs are told by each of them. A GPU whose driver
    /// does not tell has none here.
    pub(crate) links: Vec<GpuLink>,
    /// What could not be read, in words; missing if the answer is whole.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    #[schema(required = false)]
    pub(crate) partial: &'a [String],
}

/// Where a GPU is plugged in.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GpuPlace<'a> {
    /// Identity of the GPU, as everywhere.
    pub(crate) id: &'a str,
    /// Its name for people.
    pub(crate) name: String,
    /// Its index on the host.
    pub(crate) index: Option<i32>,
    /// Its PCI address.
    pub(crate) pci: Option<&'a str>,
    /// The host's NUMA node that it is plugged into.
    pub(crate) numa_node: Option<i64>,
    /// Its NVLink or xGMI links that are up.
    pub(crate) links_up: Option<i64>,
}

/// Links of a GPU to one other end.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GpuLink {
    /// Key of the GPU that has them.
    pub(crate) gpu: String,
    /// Key of the GPU of this host that they lead to; null: none of this host.
    pub(crate) to_gpu: Option<String>,
    /// The other end as the driver tells it: a GPU's PCI address, or `switch`.
    pub(crate) peer: String,
    /// How many links there are. Of xGMI the driver tells which GPUs are linked, not by how many: then it is 1.
    pub(crate) links: i64,
}
