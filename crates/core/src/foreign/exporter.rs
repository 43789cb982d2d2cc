//! The names of an exporter whose samples mean something else by their labels: AMD's device-metrics-exporter.
//!
//! Units are those of its list of metrics: memory in MB, energy in microjoules, voltages in millivolts. One name has the
//! clocks of all engines, told apart by the label `clock_type`.

use super::unit;
use crate::catalogue::{self, MetricId};

/// The label without which a sample is not the exporter's.
const GPU: &str = "gpu_id";
/// The label that tells clocks apart.
const CLOCK: &str = "clock_type";
/// The type of a clock has it in front in older versions.
const CLOCK_PREFIX: &str = "gpu_clock_type_";

/// Name, column (empty: none), unit.
const NAMES: &[(&str, &str, &str)] = &[
    ("gpu_package_power", "power_w", "W"),
    ("gpu_power_usage", "power_w", "W"),
    ("gpu_average_package_power", "power_average_w", "W"),
    ("gpu_energy_consumed", "energy_mj", "uJ"),
    ("gpu_edge_temperature", "temperature_edge_c", "C"),
    ("gpu_junction_temperature", "temperature_junction_c", "C"),
    ("gpu_memory_temperature", "temperature_memory_c", "C"),
    ("gpu_gfx_activity", "utilization_pct", "%"),
    ("gpu_umc_activity", "memory_utilization_pct", "%"),
    ("gpu_mma_activity", "media_utilization_pct", "%"),
    // The system's on chip, whatever the name says.
    ("gpu_voltage", "voltage_soc_mv", "mV"),
    ("gpu_gfx_voltage", "voltage_gfx_mv", "mV"),
    ("gpu_memory_voltage", "voltage_mem_mv", "mV"),
    ("gpu_total_vram", "memory_total_mb", "MB"),
    ("gpu_used_vram", "memory_used_mb", "MB"),
    ("gpu_free_vram", "memory_free_mb", "MB"),
    ("gpu_total_visible_vram", "visible_memory_total_mb", "MB"),
    ("gpu_used_visible_vram", "visible_memory_used_mb", "MB"),
    ("gpu_total_gtt", "gtt_total_mb", "MB"),
    ("gpu_used_gtt", "gtt_used_mb", "MB"),
    ("pcie_speed", "pcie_speed_gtps", "GT/s"),
    ("pcie_replay_count", "pcie_replays", ""),
    // Bytes since the start, where others have a rate.
    ("pcie_rx", "", ""),
    ("pcie_tx", "", ""),
];

/// Type of a clock, its column.
const CLOCKS: &[(&str, &str)] = &[
    ("system", "gpu_clock_mhz"),
    ("memory", "mem_clock_mhz"),
    ("video", "video_clock_mhz"),
    ("data", "video_decode_clock_mhz"),
    ("soc", "soc_clock_mhz"),
    ("fabric", "fabric_clock_mhz"),
];
const CLOCKS_MAX: &[(&str, &str)] = &[("system", "gpu_clock_max_mhz"), ("memory", "mem_clock_max_mhz")];

/// What a sample of an exporter is.
#[derive(Debug, Clone, PartialEq)]
pub struct Exported {
    /// Its name where that alone does not say what it is: `gpu_clock_memory`.
    pub name: String,
    /// The metric, and the factor from the sample to it; none: it is kept under its own name.
    pub metric: Option<(MetricId, f64)>,
    /// Several samples of one GPU and time are of several engines, of which the largest counts.
    pub is_of_several: bool,
}

/// What the sample of that name is, if its labels say that it is an exporter's.
pub fn exported(name: &str, label: &dyn Fn(&str) -> Option<String>) -> Option<Exported> {
    let bare = bare(name)?;
    label(GPU)?;
    let clocks = match bare {
        "gpu_clock" => Some(CLOCKS),
        "gpu_max_clock" => Some(CLOCKS_MAX),
        "gpu_min_clock" => Some(&[][..]),
        _ => None,
    };
    if let Some(clocks) = clocks {
        let kind = label(CLOCK)?.to_ascii_lowercase();
        let kind = kind.strip_prefix(CLOCK_PREFIX).unwrap_or(&kind);
        let column = clocks.iter().find(|(known, _)| *known == kind).map(|(_, column)| *column);
        let metric = column.and_then(catalogue::by_alias).map(|id| (id, 1.0));
        return Some(Exported { name: format!("{name}_{kind}"), metric, is_of_several: true });
    }
    let (_, column, unit) = NAMES.iter().find(|(known, ..)| *known == bare)?;
    let metric = catalogue::by_alias(column).and_then(|id| {
        let factor = if unit.is_empty() { Some(1.0) } else { unit::factor(unit, id.metric().unit) };
        Some((id, factor?))
    });
    Some(Exported { name: name.to_owned(), metric, is_of_several: false })
}

/// Whether the labels of a sample of that name must be looked at to know what it is.
pub fn depends_on_labels(name: &str) -> bool {
    bare(name).is_some()
}

/// A name of the exporter without the prefix that it may be given.
fn bare(name: &str) -> Option<&str> {
    let bare = name.strip_prefix("amd_").unwrap_or(name);
    let is_clock = matches!(bare, "gpu_clock" | "gpu_max_clock" | "gpu_min_clock");
    (is_clock || NAMES.iter().any(|(known, ..)| *known == bare)).then_some(bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(name: &str, labels: &[(&str, &str)]) -> String {
        let label = |wanted: &str| {
            labels.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned())
        };
        let found = exported(name, &label);
        found.map_or_else(
            || "-".to_owned(),
            |it| match it.metric {
                Some((id, factor)) => format!("{} x {factor}", id.metric().column),
                None => it.name,
            },
        )
    }

    #[test]
    fn every_name_of_the_exporter_is_in_the_catalogue_with_its_unit() {
        for (name, column, unit) in NAMES.iter().filter(|(_, column, _)| !column.is_empty()) {
            let id = catalogue::by_alias(column).unwrap_or_else(|| panic!("{name}: {column}"));
            assert!(unit.is_empty() || unit::factor(unit, id.metric().unit).is_some(), "{name}: {unit}");
        }
        for (kind, column) in CLOCKS.iter().chain(CLOCKS_MAX) {
            assert!(catalogue::by_alias(column).is_some(), "{kind}: {column}");
        }
    }

    #[test]
    fn labels_say_which_clock_it_is_and_the_name_that_energy_is_in_microjoules() {
        let gpu = ("gpu_id", "0");
        assert_eq!(said("gpu_clock", &[gpu, ("clock_type", "GPU_CLOCK_TYPE_SYSTEM")]), "gpu_clock_mhz x 1");
        assert_eq!(said("amd_gpu_clock", &[gpu, ("clock_type", "memory")]), "mem_clock_mhz x 1");
        assert_eq!(said("gpu_clock", &[gpu, ("clock_type", "GPU_CLOCK_TYPE_PCIE")]), "gpu_clock_pcie");
        assert_eq!(said("gpu_energy_consumed", &[gpu]), "energy_mj x 0.001");
        assert_eq!(said("gpu_energy_consumed", &[]), "-");
        assert_eq!(said("gpu_clock", &[gpu]), "-");
        assert_eq!(said("pcie_rx", &[gpu]), "pcie_rx");
    }
}
