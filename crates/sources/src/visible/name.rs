//! What names a GPU to a runtime, and whether a row is of it.

use std::sync::Arc;

use gpuvitals_core::{Identity, IdentityColumn};

use crate::dialect::nvml;

/// The GPUs of a vendor that a process may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VisibleGpus {
    /// All: no variable names some.
    All,
    /// The ones that a variable names.
    Named(Vec<VisibleName>),
    /// A variable names some, and this is why nobody can say which.
    Unclear(&'static str),
}

/// A GPU or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VisibleName {
    /// The GPU of this UUID, with its parts.
    Uuid(Arc<str>),
    /// A MIG instance, as the driver names it.
    Instance(Arc<str>),
    /// The GPU at an address, or a partition of it.
    Place {
        /// PCI address of the GPU.
        pci: Arc<str>,
        /// Number of the partition; none: the GPU with its parts.
        partition: Option<u32>,
    },
}

impl VisibleName {
    /// Whether a row of this identity is wanted. The whole GPU is, with a part of it: power and clocks are of the whole.
    pub(super) fn covers(&self, identity: &Identity) -> bool {
        let part = identity.get(IdentityColumn::Partition);
        match self {
            Self::Uuid(uuid) => identity.uuid() == Some(&**uuid),
            Self::Instance(name) => {
                let Some((key, uuid)) = nvml::instance_key(name).zip(identity.uuid()) else { return false };
                let rest = key.strip_prefix(uuid).and_then(|rest| rest.strip_prefix(':'));
                rest.is_some_and(|rest| part.is_none_or(|part| part == rest))
            }
            Self::Place { pci, partition } => {
                let is_wanted = |part: &str| partition.is_none_or(|wanted| number_of(part) == Some(wanted));
                identity.get(IdentityColumn::Pci) == Some(&**pci) && part.is_none_or(is_wanted)
            }
        }
    }

    /// Whether it names a part of a GPU: then rows of the other parts are not wanted.
    pub(super) fn is_of_a_part(&self) -> bool {
        match self {
            Self::Uuid(_) => false,
            Self::Instance(_) => true,
            Self::Place { partition, .. } => partition.is_some(),
        }
    }
}

/// The number of a partition: `cpx6` is 6.
fn number_of(partition: &str) -> Option<u32> {
    partition.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(columns: &[(IdentityColumn, &str)]) -> Identity {
        let with = |identity: Identity, (column, text): &(IdentityColumn, &str)| {
            identity.with(*column, text).unwrap()
        };
        columns.iter().fold(Identity::default(), with)
    }

    #[test]
    fn a_gpu_is_wanted_with_its_parts_and_with_one_of_them() {
        use IdentityColumn::{Partition, Pci, Uuid};

        let (whole, part) = (identity(&[(Uuid, "GPU-1")]), identity(&[(Uuid, "GPU-1"), (Partition, "7")]));
        let name = VisibleName::Uuid("GPU-1".into());
        assert!(name.covers(&whole) && name.covers(&part));
        assert!(!VisibleName::Uuid("GPU-2".into()).covers(&whole));
        assert!(!VisibleName::Instance("MIG-nobody".into()).covers(&part), "not seen yet");

        let at = |address, partition: Option<&str>| {
            let mut identity = identity(&[(Pci, address)]);
            identity.set(Partition, partition.unwrap_or_default()).unwrap();
            identity
        };
        let place = |partition| VisibleName::Place { pci: "0000:05:00.0".into(), partition };
        for (partition, row, wanted) in [
            (None, at("0000:05:00.0", None), true),
            (None, at("0000:05:00.0", Some("cpx3")), true),
            (None, at("0000:06:00.0", None), false),
            (Some(3), at("0000:05:00.0", Some("cpx3")), true),
            (Some(3), at("0000:05:00.0", Some("cpx13")), false),
            (Some(3), at("0000:05:00.0", None), true),
            (Some(3), at("0000:06:00.0", Some("cpx3")), false),
        ] {
            assert_eq!(place(partition).covers(&row), wanted, "{partition:?} {row:?}");
        }
    }
}
