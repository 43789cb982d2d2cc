//! Labels of a GPU's series, written once per identity.

use gpuvitals_core::{Identity, IdentityColumn};

use crate::text::write_label;

/// Which labels a series has beside those of its family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LabelSet {
    /// `gpu`, `uuid`, `vendor`, `partition`.
    Own,
    /// All that is known of the device.
    Info,
    /// Who holds the GPU; none if nobody is known to.
    Attribution,
    /// dcgm-exporter's up to 4.8.
    Legacy,
    /// dcgm-exporter's from 4.9 on.
    Modern,
    /// Those of both dialects, for names that are in both.
    Both,
}

const SETS: [LabelSet; 6] = [
    LabelSet::Own,
    LabelSet::Info,
    LabelSet::Attribution,
    LabelSet::Legacy,
    LabelSet::Modern,
    LabelSet::Both,
];

/// Who holds the GPU, in dcgm-exporter's order.
const HOLDERS: [(IdentityColumn, &str); 3] = [
    (IdentityColumn::Container, "container"),
    (IdentityColumn::Namespace, "namespace"),
    (IdentityColumn::Pod, "pod"),
];

/// The label texts of one GPU, each up to and with `} `; empty where the set does not apply.
#[derive(Debug, Default)]
pub(crate) struct GpuLabels([Vec<u8>; SETS.len()]);

impl GpuLabels {
    pub(crate) fn new(identity: &Identity) -> Self {
        Self(SETS.map(|set| {
            let mut out = Vec::with_capacity(256);
            write_set(set, identity, &mut out);
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

fn write_set(set: LabelSet, identity: &Identity, out: &mut Vec<u8>) {
    use IdentityColumn as Id;
    let one = |out: &mut Vec<u8>, name: &str, text: Option<&str>| {
        if let Some(text) = text {
            write_label(out, name, text);
        }
    };
    let of = |out: &mut Vec<u8>, columns: &[Id]| {
        for column in columns {
            one(out, column.name(), identity.get(*column));
        }
    };
    if set == LabelSet::Attribution
        && HOLDERS.iter().all(|(column, _)| identity.get(*column).is_none())
        && identity.get(Id::Job).is_none()
    {
        return;
    }
    one(out, "gpu", identity.index.map(|index| index.to_string()).as_deref());
    match set {
        LabelSet::Own => of(out, &[Id::Uuid, Id::Vendor, Id::Partition]),
        LabelSet::Info => of(
            out,
            &[
                Id::Uuid,
                Id::Vendor,
                Id::Partition,
                Id::Model,
                Id::Pci,
                Id::Driver,
                Id::Source,
                Id::Node,
                Id::Cluster,
            ],
        ),
        LabelSet::Attribution => {
            of(out, &[Id::Uuid, Id::Vendor, Id::Partition, Id::Pod, Id::Namespace, Id::Container, Id::Job]);
        }
        LabelSet::Legacy | LabelSet::Modern | LabelSet::Both => {
            let (legacy, modern) = (set != LabelSet::Modern, set != LabelSet::Legacy);
            one(out, "UUID", identity.get(Id::Uuid));
            one(out, "pci_bus_id", identity.get(Id::Pci).map(bus_id).as_deref());
            one(out, "device", device(identity).as_deref());
            let (model, profile) = identity.get(Id::Model).map(split_profile).unzip();
            one(out, "modelName", model);
            one(out, "GPU_I_PROFILE", profile.flatten());
            one(out, "GPU_I_ID", identity.get(Id::Partition));
            one(out, "Hostname", identity.node().filter(|_| legacy));
            one(out, "hostname", identity.node().filter(|_| modern));
            one(out, "DCGM_FI_DRIVER_VERSION", identity.get(Id::Driver).filter(|_| legacy));
            one(out, "DCGM_FI_SYSTEM_DRIVER_VERSION", identity.get(Id::Driver).filter(|_| modern));
            for (column, name) in HOLDERS {
                one(out, name, identity.get(column));
            }
            one(out, "hpc_job", identity.get(Id::Job));
        }
    }
}

/// `NVIDIA A100-SXM4-40GB MIG 1g.5gb`, as the driver names a MIG instance, to the GPU's name and the profile.
fn split_profile(model: &str) -> (&str, Option<&str>) {
    model.split_once(" MIG ").map_or((model, None), |(model, profile)| (model, Some(profile)))
}

/// `0000:0c:00.0` as NVIDIA's tools spell it: `00000000:0C:00.0`.
fn bus_id(pci: &str) -> String {
    format!("{:0>16}", pci.to_ascii_uppercase())
}

/// The device node: `nvidia0`; other vendors' GPUs are named alike.
fn device(identity: &Identity) -> Option<String> {
    Some(format!("{}{}", identity.get(IdentityColumn::Vendor).unwrap_or("gpu"), identity.index?))
}
