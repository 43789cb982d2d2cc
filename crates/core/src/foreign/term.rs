//! A foreign name as base term, unit and instance: `gpu0_mem_used_gib` is the used memory of GPU 0 in GiB.
//!
//! The words of a name are brought to one spelling and lose what says nothing. What is left must be a term of the table
//! as a whole: a name with one more word means something else. The written unit chooses among the metrics of a term, and
//! a name whose unit none of them has is unknown.

use std::collections::BTreeSet;

use super::spelling::{is_numbered, spelled, words};
use super::unit;
use crate::catalogue::{self, MetricId, Table};

/// Longest name that is taken apart.
const NAME_LEN_MAX: usize = 160;

/// The subject of a file's columns that do not name it, as the file's name tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Topic {
    /// The GPUs of the file.
    #[default]
    Gpu,
    /// The host's CPUs.
    Cpu,
    /// The host's memory.
    HostMemory,
    /// The same where a column says so that no GPU has (`available`, `swap`): what is a GPU's elsewhere is the host's.
    HostMemoryAlone,
    /// The whole machine: memory that is not said to be a GPU's is the host's.
    Machine,
    /// A machine of which no GPU is named: memory is the host's.
    Host,
}

impl Topic {
    /// What messages and files with these names are about: the machine, if some are of its CPU and some of a GPU.
    pub fn of<'a>(names: &(impl Iterator<Item = &'a str> + Clone)) -> Self {
        let has_cpu = |name: &str| name.as_bytes().windows(3).any(|part| part.eq_ignore_ascii_case(b"cpu"));
        let is_machine = names.clone().any(has_cpu)
            && names.clone().any(|name| words(name).first().is_some_and(|word| word == "cpu"))
            && names.clone().any(|name| names_gpu(name) && words(name).len() > 1);
        if is_machine { Self::Machine } else { Self::Gpu }
    }
}

/// The meaning of a name.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Term {
    /// The metric that the name means.
    pub id: MetricId,
    /// Column value = foreign value × factor.
    pub factor: f64,
    /// The GPU that the name has in it: `0`, `card1`.
    pub gpu: Option<String>,
    /// The unit in the name.
    pub unit: Option<String>,
}

/// What a term needs beside its words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TermNeeds {
    Nothing,
    /// The name must say that it is about a GPU: `usage` alone is anything.
    Gpu,
    /// A unit: `gpu_memory` alone is a size or a share.
    Unit,
    /// That it is about a GPU, and a unit.
    GpuAndUnit,
}

use TermNeeds::{Gpu, GpuAndUnit, Nothing, Unit};

/// Words in alphabetical order, what they need, columns with the unit of a name without one (empty: the column's).
type TermRow = (&'static str, TermNeeds, &'static [(&'static str, &'static str)]);

const UTIL: &[(&str, &str)] = &[("utilization_pct", "%")];
const MEM_UTIL: &[(&str, &str)] = &[("memory_utilization_pct", "%"), ("memory_used_mb", "MiB")];
const MEM_USED: &[(&str, &str)] = &[("memory_used_mb", "MiB"), ("memory_used_pct", "%")];
const LIMIT: &[(&str, &str)] = &[("power_limit_w", "W")];
const CLOCK: &[(&str, &str)] = &[("gpu_clock_mhz", "MHz")];
const MEM_CLOCK: &[(&str, &str)] = &[("mem_clock_mhz", "MHz")];
const ENERGY: &[(&str, &str)] = &[("energy_mj", "J")];
const FAN: &[(&str, &str)] = &[("fan_speed_pct", "%"), ("fan_speed_rpm", "rpm")];
const HOST_USED: &[(&str, &str)] = &[("memory_mb", "MiB")];
const HOST_TOTAL: &[(&str, &str)] = &[("host_memory_total_mb", "MiB")];
const HOST_AVAILABLE: &[(&str, &str)] = &[("host_memory_available_mb", "MiB")];
const CPU: &[(&str, &str)] = &[("cpu_pct", "%")];
const LOAD_1: &[(&str, &str)] = &[("load1", "")];
const LOAD_5: &[(&str, &str)] = &[("load5", "")];
const LOAD_15: &[(&str, &str)] = &[("load15", "")];
const PCIE_TX: &[(&str, &str)] = &[("pcie_tx_bytes_per_s", "B/s")];
const PCIE_RX: &[(&str, &str)] = &[("pcie_rx_bytes_per_s", "B/s")];
const LINK_TX: &[(&str, &str)] = &[("interconnect_tx_bytes_per_s", "B/s"), ("interconnect_tx_bytes", "B")];
const LINK_RX: &[(&str, &str)] = &[("interconnect_rx_bytes_per_s", "B/s"), ("interconnect_rx_bytes", "B")];

const TERMS: &[TermRow] = &[
    (
        "",
        GpuAndUnit,
        &[("utilization_pct", "%"), ("power_w", "W"), ("temperature_c", "C"), ("energy_mj", "J")],
    ),
    ("util", Nothing, UTIL),
    ("usage", Gpu, UTIL),
    ("load", Gpu, UTIL),
    ("busy", Gpu, UTIL),
    ("gfx util", Nothing, UTIL),
    ("gfx usage", Nothing, UTIL),
    ("gfx load", Nothing, UTIL),
    ("gfx", GpuAndUnit, UTIL),
    ("compute util", Nothing, UTIL),
    ("sm util", Nothing, UTIL),
    ("sm", Unit, &[("utilization_pct", "%"), ("sm_clock_mhz", "MHz")]),
    ("mem util", Nothing, MEM_UTIL),
    ("busy mem", Nothing, &[("memory_utilization_pct", "%")]),
    ("umc util", Nothing, &[("memory_utilization_pct", "%")]),
    ("controller mem util", Nothing, &[("memory_utilization_pct", "%")]),
    ("bandwidth mem util", Nothing, &[("memory_utilization_pct", "%")]),
    ("mem usage", Unit, MEM_USED),
    ("mem used", Nothing, MEM_USED),
    ("mem total used", Nothing, MEM_USED),
    ("mem", Unit, &[("memory_used_mb", "MiB"), ("memory_used_pct", "%"), ("temperature_memory_c", "C")]),
    ("mem total", Nothing, &[("memory_total_mb", "MiB")]),
    ("free mem", Nothing, &[("memory_free_mb", "MiB")]),
    ("available mem", Gpu, &[("memory_free_mb", "MiB")]),
    ("mem reserved", Nothing, &[("memory_reserved_mb", "MiB")]),
    ("total", GpuAndUnit, &[("memory_total_mb", "MiB")]),
    ("enc util", Nothing, &[("encoder_utilization_pct", "%")]),
    ("enc usage", Nothing, &[("encoder_utilization_pct", "%")]),
    ("enc", Unit, &[("encoder_utilization_pct", "%")]),
    ("dec util", Nothing, &[("decoder_utilization_pct", "%")]),
    ("dec usage", Nothing, &[("decoder_utilization_pct", "%")]),
    ("dec", Unit, &[("decoder_utilization_pct", "%")]),
    ("jpeg util", Nothing, &[("jpeg_utilization_pct", "%")]),
    ("ofa util", Nothing, &[("ofa_utilization_pct", "%")]),
    ("media util", Nothing, &[("media_utilization_pct", "%")]),
    ("util vcn", Nothing, &[("media_utilization_pct", "%")]),
    ("power", Nothing, &[("power_w", "W")]),
    ("power usage", Nothing, &[("power_w", "W")]),
    ("instant power", Nothing, &[("power_w", "W")]),
    ("asic power", Nothing, &[("power_w", "W")]),
    ("gfx power", Nothing, &[("power_w", "W")]),
    ("average power", Nothing, &[("power_average_w", "W")]),
    ("average gfx power", Nothing, &[("power_average_w", "W")]),
    ("limit power", Nothing, LIMIT),
    ("limit management power", Nothing, LIMIT),
    ("enforced limit power", Nothing, &[("power_limit_enforced_w", "W")]),
    ("default limit power", Nothing, &[("power_limit_default_w", "W")]),
    ("energy", Nothing, ENERGY),
    ("energy total", Nothing, ENERGY),
    ("accumulated energy", Nothing, ENERGY),
    // Of `rocm-smi` it is a count of steps of 15.3 µJ, beside which the energy stands.
    ("counter energy", Unit, ENERGY),
    ("temp", Nothing, &[("temperature_c", "C")]),
    ("gfx temp", Nothing, &[("temperature_c", "C")]),
    ("die temp", Nothing, &[("temperature_c", "C")]),
    ("edge temp", Nothing, &[("temperature_edge_c", "C")]),
    ("edge", GpuAndUnit, &[("temperature_edge_c", "C")]),
    ("junction temp", Nothing, &[("temperature_junction_c", "C")]),
    ("hot spot temp", Nothing, &[("temperature_junction_c", "C")]),
    ("hot spot", Nothing, &[("temperature_junction_c", "C")]),
    ("junction", Unit, &[("temperature_junction_c", "C")]),
    ("junction mem temp", Nothing, &[("temperature_memory_c", "C")]),
    ("mem temp", Nothing, &[("temperature_memory_c", "C")]),
    ("hbm temp", Nothing, &[("temperature_memory_c", "C")]),
    ("limit temp", Nothing, &[("temperature_slowdown_c", "C")]),
    ("slowdown temp", Nothing, &[("temperature_slowdown_c", "C")]),
    ("shutdown temp", Nothing, &[("temperature_shutdown_c", "C")]),
    ("clock", Gpu, CLOCK),
    ("clock speed", Gpu, CLOCK),
    ("clock gfx", Nothing, CLOCK),
    ("clock gfx speed", Nothing, CLOCK),
    ("clock compute", Nothing, CLOCK),
    ("clock sm", Nothing, &[("sm_clock_mhz", "MHz")]),
    ("clock mem", Nothing, MEM_CLOCK),
    ("clock mem speed", Nothing, MEM_CLOCK),
    ("clock video", Nothing, &[("video_clock_mhz", "MHz")]),
    ("clock soc", Nothing, &[("soc_clock_mhz", "MHz")]),
    ("clock soc speed", Nothing, &[("soc_clock_mhz", "MHz")]),
    ("clock fabric", Nothing, &[("fabric_clock_mhz", "MHz")]),
    ("clock fabric speed", Nothing, &[("fabric_clock_mhz", "MHz")]),
    ("clock gfx max", Nothing, &[("gpu_clock_max_mhz", "MHz")]),
    ("clock max mem", Nothing, &[("mem_clock_max_mhz", "MHz")]),
    ("clock max sm", Nothing, &[("sm_clock_max_mhz", "MHz")]),
    ("fan", Unit, FAN),
    ("fan speed", Nothing, FAN),
    ("voltage", Gpu, &[("voltage_gfx_mv", "mV")]),
    ("gfx voltage", Nothing, &[("voltage_gfx_mv", "mV")]),
    ("soc voltage", Nothing, &[("voltage_soc_mv", "mV")]),
    ("mem voltage", Nothing, &[("voltage_mem_mv", "mV")]),
    ("pcie tx", Nothing, PCIE_TX),
    ("bandwidth pcie tx", Nothing, PCIE_TX),
    ("pcie rx", Nothing, PCIE_RX),
    ("bandwidth pcie rx", Nothing, PCIE_RX),
    ("nvlink tx", Unit, LINK_TX),
    ("nvlink rx", Unit, LINK_RX),
    ("tx xgmi", Unit, LINK_TX),
    ("rx xgmi", Unit, LINK_RX),
    ("count pcie replay", Nothing, &[("pcie_replays", "")]),
    ("pcie replay", Nothing, &[("pcie_replays", "")]),
    ("performance state", Nothing, &[("performance_state", "")]),
    // The host.
    ("cpu", Unit, CPU),
    ("cpu util", Nothing, CPU),
    ("cpu usage", Nothing, CPU),
    ("cpu total", Unit, CPU),
    ("cpu total util", Nothing, CPU),
    ("cpu total usage", Nothing, CPU),
    ("cpu load", Unit, CPU),
    ("cpu user", Nothing, &[("cpu_user_pct", "%")]),
    ("cpu sys", Nothing, &[("cpu_system_pct", "%")]),
    ("cpu iowait", Nothing, &[("cpu_iowait_pct", "%")]),
    ("1m load", Nothing, LOAD_1),
    ("1m average load", Nothing, LOAD_1),
    ("1 average load", Nothing, LOAD_1),
    ("5m load", Nothing, LOAD_5),
    ("5m average load", Nothing, LOAD_5),
    ("15m load", Nothing, LOAD_15),
    ("15m average load", Nothing, LOAD_15),
    ("5 average load", Nothing, LOAD_5),
    ("15 average load", Nothing, LOAD_15),
    ("ram", Unit, HOST_USED),
    ("ram used", Nothing, HOST_USED),
    ("ram usage", Unit, HOST_USED),
    ("host mem used", Nothing, HOST_USED),
    ("host mem usage", Unit, HOST_USED),
    ("mem sys used", Nothing, HOST_USED),
    ("mem sys usage", Unit, HOST_USED),
    ("ram total", Nothing, HOST_TOTAL),
    ("host mem total", Nothing, HOST_TOTAL),
    ("mem sys total", Nothing, HOST_TOTAL),
    ("available ram", Nothing, HOST_AVAILABLE),
    ("available host mem", Nothing, HOST_AVAILABLE),
    ("available mem sys", Nothing, HOST_AVAILABLE),
    ("swap", Unit, &[("swap_used_mb", "MiB")]),
    ("swap used", Nothing, &[("swap_used_mb", "MiB")]),
];

/// Whether a name is of an amount or share of memory and does not say whose.
pub(crate) fn is_anybodys_memory(name: &str) -> bool {
    const AMOUNTS: [&str; 7] = ["mem", "used", "total", "free", "available", "usage", "util"];
    let words = words(name);
    let unitless = (0..words.len().min(3)).find_map(|len| {
        let (base, unit) = words.split_at_checked(words.len() - len)?;
        let base: BTreeSet<&str> = base.iter().flat_map(|word| spelled(word)).copied().collect();
        let is_amount = base.contains("mem") && base.iter().all(|part| AMOUNTS.contains(part));
        (is_amount && (len == 0 || unit::is_known(&unit_of(unit)))).then_some(())
    });
    unitless.is_some()
}

/// The meaning of a name that neither catalogue nor aliases know.
pub(super) fn read(name: &str, topic: Topic) -> Option<Term> {
    if name.len() > NAME_LEN_MAX {
        return None;
    }
    read_whole(name, topic).or_else(|| read_whole(behind_tag(name)?, topic))
}

/// `train/cuda:0 (gpu:3)/power_usage (W)` from the part on that has the GPU: before it stands what somebody called the run.
fn behind_tag(name: &str) -> Option<&str> {
    let mut from = 0;
    for part in name.split('/') {
        if gpu_in(part).is_some() {
            return name.get(from..).filter(|_| from > 0);
        }
        // What one process has is not the GPU's.
        if words(part).iter().any(|word| matches!(word.as_str(), "pid" | "process")) {
            return None;
        }
        from += part.len() + 1;
    }
    None
}

fn read_whole(name: &str, topic: Topic) -> Option<Term> {
    let (gpu, mut words) = instance(&words(of_tracker(name)));
    let mut is_gpu = gpu.is_some();
    let found = loop {
        let found = meaning(&words, is_gpu, topic);
        // The mean of a name that is known without it: `temp mean`.
        let is_mean =
            words.last().is_some_and(|word| matches!(word.as_str(), "mean" | "average" | "avg" | "last"));
        if found.is_some() || !is_mean {
            break found;
        }
        words.pop();
        is_gpu |= words.iter().any(|word| word == "gpu");
    };
    let (id, factor, unit) = found?;
    // What a GPU's name has in it is not the host's.
    (gpu.is_none() || id.metric().table == Table::GpuEvents).then_some(Term { id, factor, gpu, unit })
}

/// `system/gpu_0_power_usage_watts` without what MLflow puts before all that it measures itself; `sys.gpu.0.power_usage` of Comet
/// and `__system__gpu0.power_watts` of Aim.
fn of_tracker(name: &str) -> &str {
    const OF: [&str; 3] = ["gpu_", "cpu_", "system_memory_"];
    let measured = name.strip_prefix("system/").filter(|name| OF.iter().any(|of| name.starts_with(of)));
    let others = || {
        let bare = name.strip_prefix("sys.").or_else(|| name.strip_prefix("__system__"));
        bare.filter(|name| name.starts_with("gpu"))
    };
    measured.or_else(others).unwrap_or(name)
}

/// The GPU that a name has in it, whatever else it means: `0` of `GPU 0`.
pub fn gpu_in(name: &str) -> Option<String> {
    instance(&words(name)).0
}

/// The GPU of a name that says nothing else: `0` of `GPU 0`, not of `GPU 0 power`.
pub fn gpu_alone(name: &str) -> Option<String> {
    let (gpu, others) = instance(&words(name));
    gpu.filter(|_| others.is_empty())
}

/// Whether a name has a unit in it: its numbers are not taken for another.
pub fn writes_unit(name: &str) -> bool {
    let words = words(name);
    let is_unit = |from: usize, len: usize| {
        words.get(from..from + len).is_some_and(|words| unit::is_known(&unit_of(words)))
    };
    (0..words.len()).any(|from| (1..=3).any(|len| is_unit(from, len)))
}

/// Whether the name has a word that only names of GPUs' columns have.
pub fn names_gpu(name: &str) -> bool {
    const WORDS: [&str; 13] = [
        "gpu", "gpus", "vram", "cuda", "nvidia", "amd", "radeon", "nvml", "rocm", "gfx", "sclk", "mclk", "fb",
    ];
    words(name).iter().any(|word| WORDS.contains(&word.as_str()))
}

/// The GPU in the name, and the words without it.
fn instance(words: &[String]) -> (Option<String>, Vec<String>) {
    let number = |at: usize| {
        let word = words.get(at)?;
        let is_index = word.len() <= 3 && word.bytes().all(|b| b.is_ascii_digit());
        is_index.then(|| word.clone())
    };
    let mut gpu: Option<(String, String)> = None;
    let (mut kept, mut at) = (Vec::with_capacity(words.len()), 0);
    while let Some(word) = words.get(at) {
        // `gpu_id: 0`
        let is_id = words.get(at + 1).is_some_and(|word| matches!(word.as_str(), "id" | "index" | "idx"));
        let behind = at + 1 + usize::from(is_id);
        let Some(index) = number(behind).filter(|_| is_numbered(word)) else {
            kept.push(word.clone());
            at += 1;
            continue;
        };
        // `cuda:0 (gpu:3)` is GPU 3.
        if gpu.is_none() || word == "gpu" {
            gpu = Some((word.clone(), index));
        }
        at = behind + 1;
    }
    let named = gpu.map(|(kind, index)| if kind == "card" { format!("card{index}") } else { index });
    (named, kept)
}

fn meaning(words: &[String], is_gpu: bool, topic: Topic) -> Option<(MetricId, f64, Option<String>)> {
    // The longest unit first: `mb per s` before `s`.
    for len in (0..=3.min(words.len())).rev() {
        let (base, written) = words.split_at_checked(words.len() - len)?;
        let unit = (len > 0).then(|| unit_of(written)).filter(|unit| unit::is_known(unit));
        if len > 0 && unit.is_none() {
            continue;
        }
        let found = of_base(base, unit.as_deref(), is_gpu, topic).or_else(|| {
            // The unit is written twice: `memory_percent (%)`.
            let (twin, rest) = base.split_last()?;
            let of_unit = |unit: &str| of_base(rest, Some(unit), is_gpu, topic);
            of_unit(unit.as_deref()?).filter(|found| of_unit(twin) == Some(*found))
        });
        if let Some((id, factor)) = found {
            return Some((id, factor, unit));
        }
    }
    None
}

/// `mib`, `bytes per second`, `kb s`.
fn unit_of(words: &[String]) -> String {
    let second = |word: &str| matches!(word, "s" | "sec" | "second");
    match words {
        [one] => one.clone(),
        [one, two] if second(two) => format!("{one}/s"),
        [one, per, two] if per == "per" && second(two) => format!("{one}/s"),
        _ => words.concat(),
    }
}

fn of_base(words: &[String], unit: Option<&str>, mut is_gpu: bool, topic: Topic) -> Option<(MetricId, f64)> {
    let mut base: BTreeSet<&str> = BTreeSet::new();
    for word in words {
        for part in spelled(word) {
            is_gpu |= *part == "gpu";
            base.insert(part);
        }
    }
    // What the whole board draws: `total_board_power`.
    let is_boards = words.iter().any(|word| word == "board");
    if is_boards && base.contains("power") {
        base.remove("total");
    }
    if is_gpu && base.remove("ram") {
        base.insert("mem");
    }
    base.remove("gpu");
    let of_host = |subject| {
        let mut base = base.clone();
        base.remove("mem");
        base.insert(subject);
        fitting(&base, unit, is_gpu)
    };
    match topic {
        Topic::HostMemory | Topic::HostMemoryAlone if !is_gpu => {
            of_host("ram").or_else(|| fitting(&base, unit, is_gpu))
        }
        Topic::Cpu if !is_gpu => fitting(&base, unit, is_gpu).or_else(|| of_host("cpu")),
        _ => fitting(&base, unit, is_gpu),
    }
}

/// The metric of a term, and the factor from a number with that unit.
fn fitting(base: &BTreeSet<&str>, unit: Option<&str>, is_gpu: bool) -> Option<(MetricId, f64)> {
    let joined = base.iter().copied().collect::<Vec<_>>().join(" ");
    let (_, needs, columns) = TERMS.iter().find(|(term, ..)| *term == joined)?;
    if (matches!(needs, Gpu | GpuAndUnit) && !is_gpu)
        || (matches!(needs, Unit | GpuAndUnit) && unit.is_none())
    {
        return None;
    }
    columns.iter().find_map(|(column, usual)| {
        let id = catalogue::by_alias(column)?;
        let written = unit.unwrap_or(usual);
        let factor = if written.is_empty() { 1.0 } else { unit::factor(written, id.metric().unit)? };
        Some((id, factor))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_term_is_written_in_the_spelling_that_names_get_and_has_columns() {
        for (term, _, columns) in TERMS {
            let spelled: BTreeSet<&str> = term
                .split(' ')
                .filter(|word| !word.is_empty())
                .flat_map(|word| spelled(word).iter().copied())
                .collect();
            assert_eq!(spelled.into_iter().collect::<Vec<_>>().join(" "), *term);
            for (column, unit) in *columns {
                let id = catalogue::by_alias(column).unwrap_or_else(|| panic!("{term}: {column}"));
                assert!(unit.is_empty() || unit::factor(unit, id.metric().unit).is_some(), "{term}: {unit}");
            }
            assert_eq!(TERMS.iter().filter(|(other, ..)| other == term).count(), 1, "{term}");
        }
    }

    fn check(name: &str, expected: &str) {
        let found = read(name, Topic::Gpu).map_or_else(
            || "-".to_owned(),
            |term| {
                let gpu = term.gpu.map(|gpu| format!(" of {gpu}")).unwrap_or_default();
                format!("{} x {}{gpu}", term.id.metric().column, term.factor)
            },
        );
        assert_eq!(found, expected, "{name}");
    }

    #[test]
    fn names_with_signs_without_blanks_and_in_other_languages() {
        check("gpu_util%", "utilization_pct x 1");
        check("sm%", "utilization_pct x 1");
        check("mem%", "memory_used_pct x 1");
        check("powerdraw", "power_w x 1");
        check("total_board_power", "power_w x 1");
        check("hotspot", "temperature_junction_c x 1");
        check("gpu_mem_c", "temperature_memory_c x 1");
        check("GPU Memory Junction Temperature [°C]", "temperature_memory_c x 1");
        check("GPU Fan1 [RPM]", "fan_speed_rpm x 1");
        check("gpu_util_frac", "utilization_pct x 100");
        check("gpu_pstate", "performance_state x 1");
        check("Stromverbrauch in W", "power_w x 1");
        check("Potencia (W)", "power_w x 1");
        check("Uso de GPU (%)", "utilization_pct x 1");
        check("Mémoire utilisée (Mo)", "memory_used_mb x 1");
        check("system/gpu_1_power_usage_watts", "power_w x 1 of 1");
        check("system/gpu_0_memory_usage_megabytes", "memory_used_mb x 1 of 0");
        check("system/cpu_utilization_percentage", "cpu_pct x 1");
        check("system/system_memory_usage_megabytes", "memory_mb x 1");
    }

    #[test]
    fn names_of_public_logs() {
        check("mem_total_mib", "memory_total_mb x 1");
        check("power_watts", "power_w x 1");
        check("vram_used_bytes", "memory_used_mb x 0.00000095367431640625");
        check("gpu_use_percent", "utilization_pct x 1");
        check("clocks.current.sm [MHz]", "sm_clock_mhz x 1");
        check("gpu0_power_W", "power_w x 1 of 0");
        check("GPU 3 Temperature (C)", "temperature_c x 1 of 3");
        check("card1/vram used (MiB)", "memory_used_mb x 1 of card1");
        check("system.gpu.0.memoryAllocatedBytes", "-");
        check("temp_edge_celsius", "temperature_edge_c x 1");
        check("Temperature (Sensor junction) (C)", "temperature_junction_c x 1");
        check("VRAM Total Used Memory (B)", "memory_used_mb x 0.00000095367431640625");
        check("gpu_memory_usage_gb", "memory_used_mb x 1024");
        check("gpu_memory_usage (%)", "memory_used_pct x 1");
        check("gpu_utilization_ratio", "utilization_pct x 100");
        check("cuda:0 (gpu:3)/gpu_utilization (%)/mean", "utilization_pct x 1 of 3");
        check("train/cuda:0 (gpu:3)/power_usage (W)/mean", "power_w x 1 of 3");
        check("train/pid:7/cuda:0 (gpu:3)/gpu_memory (MiB)/mean", "-");
        check("sys.gpu.0.gpu_utilization", "utilization_pct x 1 of 0");
        check("__system__gpu0.power_watts", "power_w x 1 of 0");
        check(
            "DeviceStatsMonitor.on_train_batch_end/gpu_id: 3/utilization.gpu (%)",
            "utilization_pct x 1 of 3",
        );
        check("GPU Temperature mean", "temperature_c x 1");
        check("memory_percent (%)", "memory_used_pct x 1");
        check("memory_mib (W)", "-");
        check("fan_rpm", "fan_speed_rpm x 1");
        check("nv_gpu_memory_used_bytes", "memory_used_mb x 0.00000095367431640625");
        check("nv_gpu_power_usage", "power_w x 1");
        check("accelerator_power_watts", "power_w x 1");
        check("acc (%)", "-");
        check("cpu_user_percent", "cpu_user_pct x 1");
        check("load_avg_1min", "load1 x 1");
        check("ram_used_gb", "memory_mb x 1024");
        check("powerWatts", "power_w x 1");
        check("clock_graphics_ghz", "gpu_clock_mhz x 1000");
        for unknown in [
            "load",
            "usage",
            "total_gb",
            "total_power",
            "power_state",
            "cpu_power_w",
            "cpu_temp",
            "power_percent",
            "gpu_0",
            "temp_max",
            "Energy counter",
            "used_gb",
            "memory",
            "gpu",
            "disk_used_gb",
            "gpu0_cpu_percent",
        ] {
            check(unknown, "-");
        }
        let host = |name: &str| read(name, Topic::HostMemory).map(|term| term.id.metric().column);
        assert_eq!(host("total_gb"), Some("host_memory_total_mb"));
        assert_eq!(host("used_gb"), Some("memory_mb"));
        assert_eq!(host("available_gb"), Some("host_memory_available_mb"));
        assert_eq!(host("usage_percent"), None);
        assert_eq!(host("cached_gb"), None);
    }
}
