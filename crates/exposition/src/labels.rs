//! Labels of a GPU's series, written once per identity.

use gpuvitals_core::figures::{Labels, write_label};
use gpuvitals_core::identity::split_profile;
use gpuvitals_core::{Identity, IdentityColumn};

/// The labels of a series besides those of its family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LabelSet {
    /// `gpu`, `uuid`, `vendor`, `partition`.
    Own,
    /// The whole identity of the device.
    Info,
    /// The holder of the GPU; none if it has no known holder.
    Attribution,
    /// dcgm-exporter's up to 4.8.
    Legacy,
    /// dcgm-exporter's from 4.9 on.
    Modern,
    /// Those of both dialects, for names that are in both.
    Both,
    /// None: the scraper knows its target.
    Host,
    /// `core`, of a CPU of the host.
    Core,
}

/// The sets of a GPU.
const SETS: [LabelSet; 6] = [
    LabelSet::Own,
    LabelSet::Info,
    LabelSet::Attribution,
    LabelSet::Legacy,
    LabelSet::Modern,
    LabelSet::Both,
];

/// The holder's columns, in dcgm-exporter's order.
const HOLDERS: [(IdentityColumn, &str); 3] = [
    (IdentityColumn::Container, "container"),
    (IdentityColumn::Namespace, "namespace"),
    (IdentityColumn::Pod, "pod"),
];

const INFO: [IdentityColumn; 10] = [
    IdentityColumn::Uuid,
    IdentityColumn::Vendor,
    IdentityColumn::Partition,
    IdentityColumn::Model,
    IdentityColumn::Pci,
    IdentityColumn::Driver,
    IdentityColumn::Vbios,
    IdentityColumn::Source,
    IdentityColumn::Node,
    IdentityColumn::Cluster,
];

const ATTRIBUTION: [IdentityColumn; 7] = [
    IdentityColumn::Uuid,
    IdentityColumn::Vendor,
    IdentityColumn::Partition,
    IdentityColumn::Pod,
    IdentityColumn::Namespace,
    IdentityColumn::Container,
    IdentityColumn::Job,
];

/// The label texts of one GPU, each up to and with `} `; empty if the set does not apply.
#[derive(Debug, Default)]
pub(crate) struct GpuLabels([Vec<u8>; SETS.len()]);

impl GpuLabels {
    pub(crate) fn new(identity: &Identity) -> Self {
        Self(SETS.map(|set| {
            let mut out = Vec::with_capacity(256);
            for (name, text) in set.of(identity) {
                write_label(&mut out, name, &text);
            }
            if !out.is_empty() {
                out.extend_from_slice(b"} ");
            }
            out
        }))
    }

    pub(crate) fn text(&self, set: LabelSet) -> &[u8] {
        self.0.get(set as usize).map_or(&[], Vec::as_slice)
    }
}

impl LabelSet {
    /// The labels of a GPU in this set; empty if the set does not apply to it.
    pub(crate) fn of(self, identity: &Identity) -> Labels {
        use IdentityColumn as Id;
        let mut labels = Labels::new();
        if self == Self::Attribution
            && HOLDERS.iter().all(|(column, _)| identity.get(*column).is_none())
            && identity.get(Id::Job).is_none()
        {
            return labels;
        }
        labels.extend(identity.index.map(|index| ("gpu", index.to_string())));
        let named = |column: &Id| Some((column.name(), identity.get(*column)?.to_owned()));
        match self {
            Self::Own => labels.extend([Id::Uuid, Id::Vendor, Id::Partition].iter().filter_map(named)),
            Self::Info => labels.extend(INFO.iter().filter_map(named)),
            Self::Attribution => labels.extend(ATTRIBUTION.iter().filter_map(named)),
            Self::Legacy | Self::Modern | Self::Both => labels.extend(self.of_dcgm(identity)),
            Self::Host | Self::Core => {}
        }
        labels
    }

    fn of_dcgm(self, identity: &Identity) -> impl Iterator<Item = (&'static str, String)> {
        use IdentityColumn as Id;
        let (legacy, modern) = (self != Self::Modern, self != Self::Legacy);
        let text = |column| identity.get(column).map(str::to_owned);
        let (model, profile) = identity.get(Id::Model).map(split_profile).unzip();
        let labels = [
            ("UUID", text(Id::Uuid)),
            ("pci_bus_id", identity.get(Id::Pci).map(bus_id)),
            ("device", device(identity)),
            ("modelName", model.map(str::to_owned)),
            ("GPU_I_PROFILE", profile.flatten().map(str::to_owned)),
            ("GPU_I_ID", text(Id::Partition)),
            ("Hostname", identity.node().filter(|_| legacy).map(str::to_owned)),
            ("hostname", identity.node().filter(|_| modern).map(str::to_owned)),
            ("DCGM_FI_DRIVER_VERSION", text(Id::Driver).filter(|_| legacy)),
            ("DCGM_FI_SYSTEM_DRIVER_VERSION", text(Id::Driver).filter(|_| modern)),
        ];
        let holders = HOLDERS.map(|(column, name)| (name, text(column)));
        let labels = labels.into_iter().chain(holders).chain([("hpc_job", text(Id::Job))]);
        labels.filter_map(|(name, text)| Some((name, text?)))
    }
}

/// `0000:0c:00.0` as NVIDIA's tools spell it: `00000000:0C:00.0`.
fn bus_id(pci: &str) -> String {
    format!("{:0>16}", pci.to_ascii_uppercase())
}

/// The device node: `nvidia0`; other vendors' GPUs are named in the same way.
fn device(identity: &Identity) -> Option<String> {
    Some(format!("{}{}", identity.get(IdentityColumn::Vendor).unwrap_or("gpu"), identity.index?))
}
