//! What foreign column names mean: the one place where a CSV header or a JSON field meets the catalogue.

use crate::catalogue::{self, MetricId};
use crate::identity::IdentityColumn;

/// Meaning of a foreign name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Meaning {
    /// The time of the row.
    Time,
    /// `gpu_id` and its kin: an integer is the index on the node, anything else the GPU's identity.
    Gpu,
    /// A textual identity column.
    Identity(IdentityColumn),
    /// A metric; column value = foreign value × factor.
    Metric(MetricId, f64),
    /// Long form: the name of the row's metric.
    MetricName,
    /// Long form: the value of the row's metric.
    MetricValue,
    /// Prometheus labels as text (`labels_raw`).
    Labels,
    /// Nothing the catalogue knows; kept under its own name.
    Unknown,
}

/// What a foreign column or field name means. Case does not count; catalogue and DCGM names come first.
pub fn meaning(name: &str) -> Meaning {
    let name = name.trim();
    if let Some(id) = catalogue::by_column(name) {
        return Meaning::Metric(id, 1.0);
    }
    if let Some((id, factor)) = catalogue::by_dcgm(name) {
        return Meaning::Metric(id, factor);
    }
    let folded: String = name
        .chars()
        .map(|c| if matches!(c, '-' | ' ' | '.') { '_' } else { c.to_ascii_lowercase() })
        .collect();
    match folded.as_str() {
        "timestamp" | "time" | "ts" | "timestamp_ns" | "datetime" | "date" => Meaning::Time,
        "gpu_id" | "gpu" | "index" | "gpu_index" | "id" => Meaning::Gpu,
        "uuid" | "gpu_uuid" | "unique_id" => Meaning::Identity(IdentityColumn::Uuid),
        "hostname" | "host" | "node" | "node_name" | "instance_host" => {
            Meaning::Identity(IdentityColumn::Node)
        }
        "modelname" | "model" | "model_name" | "name" | "gpu_name" | "product_name" => {
            Meaning::Identity(IdentityColumn::Model)
        }
        "pci" | "pci_bus_id" | "bus_id" | "pci_address" => Meaning::Identity(IdentityColumn::Pci),
        "gpu_i_id" | "mig_instance" | "partition" => Meaning::Identity(IdentityColumn::Partition),
        "driver" | "driver_version" | "dcgm_fi_driver_version" | "dcgm_fi_system_driver_version" => {
            Meaning::Identity(IdentityColumn::Driver)
        }
        "vendor" => Meaning::Identity(IdentityColumn::Vendor),
        "cluster" | "cluster_id" => Meaning::Identity(IdentityColumn::Cluster),
        "pod" | "exported_pod" => Meaning::Identity(IdentityColumn::Pod),
        "namespace" | "exported_namespace" => Meaning::Identity(IdentityColumn::Namespace),
        "container" | "exported_container" => Meaning::Identity(IdentityColumn::Container),
        "job" | "hpc_job" | "slurm_job" => Meaning::Identity(IdentityColumn::Job),
        "source" => Meaning::Identity(IdentityColumn::Source),
        "metric_name" | "metric" | "__name__" => Meaning::MetricName,
        "value" | "metric_value" => Meaning::MetricValue,
        "labels_raw" | "labels" => Meaning::Labels,
        _ => catalogue::by_alias(name).map_or(Meaning::Unknown, |id| Meaning::Metric(id, 1.0)),
    }
}

/// Vendor as the product name tells it, where it does.
pub fn vendor_of(model: &str) -> Option<&'static str> {
    let model = model.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| model.contains(word));
    if has(&["nvidia", "tesla", "geforce", "quadro", "h100", "h200", "a100", "b200"]) {
        Some("nvidia")
    } else if has(&["amd", "radeon", "instinct", "mi300", "mi250", "mi210"]) {
        Some("amd")
    } else {
        None
    }
}
