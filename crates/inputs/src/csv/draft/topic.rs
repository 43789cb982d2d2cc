//! What a file's columns are about where they do not say it.

use gpuvitals_core::catalogue::MetricId;
use gpuvitals_core::foreign::{self, Meaning, Topic, gpu_rank};
use gpuvitals_core::{IdentityColumn, Table};

use crate::csv::hints::{HintSense, Hints};

/// Metrics that a CPU and a machine have, too.
const ANYBODYS: [MetricId; 12] = [
    MetricId::of("power_w"),
    MetricId::of("power_average_w"),
    MetricId::of("power_limit_w"),
    MetricId::of("energy_mj"),
    MetricId::of("temperature_c"),
    MetricId::of("fan_speed_pct"),
    MetricId::of("fan_speed_rpm"),
    MetricId::of("memory_used_mb"),
    MetricId::of("memory_used_pct"),
    MetricId::of("memory_total_mb"),
    MetricId::of("memory_free_mb"),
    MetricId::of("memory_reserved_mb"),
];

/// What only a host's memory has.
const HOSTS_ALONE: [&str; 7] = ["available", "avail", "cached", "buffers", "buff", "swap", "slab"];

/// What columns are about: `used_gb` of a file `memory.csv` in which no name is of a GPU, `power` beside the CPU's load.
pub(super) fn topic(names: &[String], stem: &str, hints: &Hints) -> Topic {
    let is_gpu =
        |name: &String| foreign::names_gpu(name) || gpu_rank(name).is_some() || foreign::names_device(name);
    if foreign::names_gpu(stem) || names.iter().any(is_gpu) {
        return Topic::of(&names.iter().map(String::as_str));
    }
    if is_hosts(names, hints) {
        return Topic::Host;
    }
    let stem = stem.to_ascii_lowercase();
    let words = || stem.split(|c: char| !c.is_ascii_alphabetic());
    // PyTorch counts what it has allocated and reserved of a GPU's memory.
    let is_torchs = words().any(|word| matches!(word, "torch" | "pytorch"))
        || names.iter().any(|name| {
            let name = name.to_ascii_lowercase();
            name.contains("allocated") || name.contains("reserved")
        });
    let is_alone = names.iter().any(|name| {
        let name = name.to_ascii_lowercase();
        let mut words = name.split(|c: char| !c.is_ascii_alphabetic());
        words.any(|word| HOSTS_ALONE.contains(&word))
    });
    words()
        .find_map(|word| match word {
            "memory" | "mem" | "ram" if !is_torchs && is_alone => Some(Topic::HostMemoryAlone),
            "memory" | "mem" | "ram" if !is_torchs => Some(Topic::HostMemory),
            "cpu" => Some(Topic::Cpu),
            _ => None,
        })
        .unwrap_or_default()
}

/// Whether some columns are of a CPU and no name is a GPU's.
fn is_hosts(names: &[String], hints: &Hints) -> bool {
    let is_cpus = |name: &String| {
        let is_of_host = matches!(foreign::meaning(name), Meaning::Metric(id, _) if id.metric().table == Table::SystemEvents);
        is_of_host && name.trim_start().get(..3).is_some_and(|head| head.eq_ignore_ascii_case("cpu"))
    };
    // Our own columns, and nvidia-smi's, are a GPU's whatever stands beside them.
    let is_own = |name: &str| {
        matches!(name.trim(), "power_w" | "power_draw" | "temperature_c")
            || name.trim().starts_with("power.draw")
    };
    let is_gpus = |name: &String| match foreign::meaning(name) {
        Meaning::Metric(..) if is_own(name) => true,
        Meaning::Metric(id, _) => id.metric().table == Table::GpuEvents && !ANYBODYS.contains(&id),
        Meaning::Gpu | Meaning::Labels | Meaning::MetricName => true,
        Meaning::Identity(column) => matches!(
            column,
            IdentityColumn::Uuid
                | IdentityColumn::Pci
                | IdentityColumn::Model
                | IdentityColumn::Partition
                | IdentityColumn::Driver
                | IdentityColumn::Vbios
        ),
        _ => false,
    };
    let is_said = hints.gpu.is_some()
        || hints.columns.iter().any(|hint| match &hint.sense {
            HintSense::Metric(id, ..) => id.metric().table == Table::GpuEvents,
            HintSense::Gpu => true,
            _ => false,
        });
    !is_said && names.iter().any(is_cpus) && !names.iter().any(is_gpus)
}
