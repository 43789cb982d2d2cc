//! The owner of a GPU, and the names under which its owners know it.

use std::sync::Arc;

use gpuvitals_core::{Identity, IdentityColumn};

use crate::dialect::nvml;

/// The GPU in an owner's record. A name of the whole GPU does not match its partitions, nor the reverse.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum GpuName {
    /// UUID, MIG UUID, unique id, or the key of a row ([`Identity::key`]).
    Uuid(Arc<str>),
    /// PCI address as the kernel spells it.
    Pci(Arc<str>),
    /// Vendor, and the index among its GPUs on the node.
    Index(&'static str, i32),
    /// A partition (AMD) or GPU instance (NVIDIA) of the named GPU, by its number.
    Part(Box<GpuName>, u32),
}

/// The owner of a GPU. Unknown fields are none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// Kubernetes pod that the GPU is allocated to.
    pub pod: Option<Arc<str>>,
    /// Namespace of the pod.
    pub namespace: Option<Arc<str>>,
    /// Container in the pod.
    pub container: Option<Arc<str>>,
    /// Job of a batch system such as Slurm.
    pub job: Option<Arc<str>>,
    /// Whether a process alone says this of itself: whoever gave the GPU out counts before it.
    pub is_claimed: bool,
    /// Whether it has a part of the GPU, as HAMi gives out: how much stands in the environment of its processes.
    pub is_part: bool,
}

impl Owner {
    /// Its texts, with their columns.
    pub(super) fn texts(&self) -> [(IdentityColumn, &Option<Arc<str>>); 4] {
        [
            (IdentityColumn::Pod, &self.pod),
            (IdentityColumn::Namespace, &self.namespace),
            (IdentityColumn::Container, &self.container),
            (IdentityColumn::Job, &self.job),
        ]
    }
}

/// Whether an identity is that of the named GPU.
pub(super) fn is_named(identity: &Identity, name: &GpuName) -> bool {
    match name {
        GpuName::Uuid(name) => {
            identity.key().is_some_and(|key| key == *name || nvml::instance_key(name) == Some(key))
        }
        GpuName::Part(whole, part) => is_of(identity, whole) && part_of(identity) == Some(*part),
        whole => is_of(identity, whole) && identity.get(IdentityColumn::Partition).is_none(),
    }
}

/// Whether it is the named GPU, or a partition of it.
fn is_of(identity: &Identity, whole: &GpuName) -> bool {
    match whole {
        GpuName::Uuid(uuid) => identity.uuid() == Some(uuid),
        GpuName::Pci(pci) => identity.get(IdentityColumn::Pci) == Some(pci),
        GpuName::Index(vendor, index) => {
            identity.index == Some(*index) && identity.get(IdentityColumn::Vendor) == Some(vendor)
        }
        GpuName::Part(..) => false,
    }
}

/// Number of the partition: of `cpx3` 3, of `1` 1, of `1-0` (several compute instances in one GPU instance) 1.
fn part_of(identity: &Identity) -> Option<u32> {
    let name = identity.get(IdentityColumn::Partition)?;
    let number = name.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    number.split_once('-').map_or(number, |(instance, _compute)| instance).parse().ok()
}
