//! The present owners of the node's GPUs, shared between who asks and who samples.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gpuvitals_core::{Identity, IdentityColumn};

use crate::dialect::nvml;

/// What an owner's record calls a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum GpuName {
    /// UUID, MIG UUID or unique id.
    Uuid(Arc<str>),
    /// PCI address as the kernel spells it.
    Pci(Arc<str>),
    /// Index on the node.
    Index(i32),
    /// A partition (AMD) or GPU instance (NVIDIA) of the GPU that is so called, by its number.
    Part(Box<GpuName>, u32),
}

/// Who holds a GPU. What is not known is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// Kubernetes pod.
    pub pod: Option<Arc<str>>,
    /// Its namespace.
    pub namespace: Option<Arc<str>>,
    /// Container in the pod.
    pub container: Option<Arc<str>>,
    /// Batch job.
    pub job: Option<Arc<str>>,
}

/// The owners as last asked. Who samples looks at the generation alone until it changes.
#[derive(Debug, Default)]
pub struct Owners {
    generation: AtomicU64,
    known: Mutex<Arc<Vec<(GpuName, Owner)>>>,
}

impl Owners {
    /// Nobody holds anything.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Changes whenever the owners do.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Replaces all owners. The same again changes nothing.
    pub fn replace(&self, owners: Vec<(GpuName, Owner)>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if **known != owners {
            *known = Arc::new(owners);
            self.generation.fetch_add(1, Ordering::Release);
        }
    }

    /// The identity with its present owners in it; the same one where there is none. Several records of one GPU fill each other
    /// up; of two that contradict each other (time slicing) the first counts.
    pub fn attribute(&self, identity: &Arc<Identity>) -> Arc<Identity> {
        let known = Arc::clone(&self.known.lock().unwrap_or_else(PoisonError::into_inner));
        let mut attributed: Option<Identity> = None;
        for (_, owner) in known.iter().filter(|(name, _)| is_named(identity, name)) {
            let into = attributed.get_or_insert_with(|| Identity::clone(identity));
            let texts = [
                (IdentityColumn::Pod, &owner.pod),
                (IdentityColumn::Namespace, &owner.namespace),
                (IdentityColumn::Container, &owner.container),
                (IdentityColumn::Job, &owner.job),
            ];
            for (column, text) in texts {
                if let Some(text) = text
                    && into.get(column).is_none()
                {
                    // A name that is none is left out: the orchestrator checks its names, and a metric is worth more than a label.
                    let _refused = into.set(column, text);
                }
            }
        }
        attributed.map_or_else(|| Arc::clone(identity), Arc::new)
    }
}

fn is_named(identity: &Identity, name: &GpuName) -> bool {
    match name {
        GpuName::Uuid(uuid) => {
            identity.uuid() == Some(uuid)
                || identity.key().is_some_and(|key| key == *uuid || nvml::instance_key(uuid) == Some(key))
        }
        // A divided GPU's own address is that of its first partition; the others are platform devices.
        GpuName::Pci(pci) => has_address(identity, pci) && part_of(identity).is_none_or(|part| part == 0),
        GpuName::Index(index) => identity.index == Some(*index),
        GpuName::Part(whole, part) => {
            part_of(identity) == Some(*part)
                && match &**whole {
                    GpuName::Pci(pci) => has_address(identity, pci),
                    whole => is_named(identity, whole),
                }
        }
    }
}

fn has_address(identity: &Identity, pci: &str) -> bool {
    identity.get(IdentityColumn::Pci) == Some(pci)
}

/// Number of the partition: of `cpx3` 3, of `1` 1, of `1-0` (several compute instances in one GPU instance) 1.
fn part_of(identity: &Identity) -> Option<u32> {
    let name = identity.get(IdentityColumn::Partition)?;
    let number = name.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    number.split_once('-').map_or(number, |(instance, _compute)| instance).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_named_by_its_gpu_and_number() {
        let part = |whole, number| GpuName::Part(Box::new(whole), number);
        let identity = |partition: &str| {
            let mut identity = Identity::default()
                .with(IdentityColumn::Uuid, "GPU-1")
                .and_then(|gpu| gpu.with(IdentityColumn::Pci, "0000:0c:00.0"))
                .and_then(|gpu| gpu.with(IdentityColumn::Partition, partition))
                .unwrap();
            identity.index = Some(2);
            identity
        };
        for whole in [GpuName::Uuid("GPU-1".into()), GpuName::Pci("0000:0c:00.0".into()), GpuName::Index(2)] {
            for (partition, is) in [("3", true), ("cpx3", true), ("3-1", true), ("cpx13", false), ("", false)]
            {
                assert_eq!(
                    is_named(&identity(partition), &part(whole.clone(), 3)),
                    is,
                    "{whole:?} {partition}"
                );
            }
        }
        assert!(!is_named(&identity("cpx3"), &part(GpuName::Pci("0000:0d:00.0".into()), 3)));
    }

    #[test]
    fn the_address_of_a_divided_gpu_is_its_first_partition() {
        let owners = Owners::new();
        let pod = Owner { pod: Some("train-0".into()), ..Owner::default() };
        owners.replace(vec![(GpuName::Pci("0000:0c:00.0".into()), pod)]);
        for (partition, is_held) in
            [("", true), ("cpx0", true), ("cpx1", false), ("cpx10", false), ("0", true)]
        {
            let gpu = Identity::default()
                .with(IdentityColumn::Pci, "0000:0c:00.0")
                .and_then(|gpu| gpu.with(IdentityColumn::Partition, partition))
                .unwrap();
            let held = owners.attribute(&Arc::new(gpu));
            assert_eq!(held.get(IdentityColumn::Pod).is_some(), is_held, "{partition}");
        }
    }

    #[test]
    fn owners_are_found_by_any_name_and_fill_each_other_up() {
        let mut gpu = Identity::default()
            .with(IdentityColumn::Uuid, "GPU-1")
            .and_then(|i| i.with(IdentityColumn::Pci, "0000:0c:00.0"))
            .unwrap();
        gpu.index = Some(3);
        let gpu = Arc::new(gpu);
        let owners = Owners::new();
        assert!(Arc::ptr_eq(&owners.attribute(&gpu), &gpu));
        let pod = Owner { pod: Some("train-0".into()), namespace: Some("ml".into()), ..Owner::default() };
        let job = Owner { job: Some("4711".into()), pod: Some("other".into()), ..Owner::default() };
        owners.replace(vec![
            (GpuName::Pci("0000:0c:00.0".into()), pod),
            (GpuName::Index(3), job),
            (GpuName::Uuid("GPU-2".into()), Owner::default()),
        ]);
        assert_eq!(owners.generation(), 1);
        let attributed = owners.attribute(&gpu);
        assert_eq!(attributed.get(IdentityColumn::Pod), Some("train-0"));
        assert_eq!(attributed.get(IdentityColumn::Job), Some("4711"));
        owners.replace(Vec::new());
        owners.replace(Vec::new());
        assert_eq!(owners.generation(), 2);
    }
}
