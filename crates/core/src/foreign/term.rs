//! A foreign name as base term, unit and instance: `gpu0_mem_used_gib` is the used memory of GPU 0 in GiB.
//!
//! The words of a name are brought to one spelling and lose what says nothing. What is left must be a term of the table
//! as a whole: a name with one more word means something else. The written unit chooses among the metrics of a term, and
//! a name whose unit none of them has is unknown.

use std::collections::BTreeSet;

use super::unit;
use crate::catalogue::{self, MetricId, Table};

/// Longest name that is taken apart.
const NAME_LEN_MAX: usize = 160;

/// The subject of a file's columns that do not name it, as the file's name tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Topic {
    /// GPUs.
    #[default]
    Gpu,
    /// The host's CPUs.
    Cpu,
    /// The host's memory.
    HostMemory,
    /// The whole machine: memory that is not said to be a GPU's is the host's.
    Machine,
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
    /// The metric.
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
enum Needs {
    Nothing,
    /// The name must say that it is about a GPU: `usage` alone is anything.
    Gpu,
    /// A unit: `gpu_memory` alone is a size or a share.
    Unit,
    /// Both.
    GpuAndUnit,
}

use Needs::{Gpu, GpuAndUnit, Nothing, Unit};

/// Words in alphabetical order, what they need, columns with the unit of a name without one (empty: the column's).
type Row = (&'static str, Needs, &'static [(&'static str, &'static str)]);

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

/// The terms.
const TERMS: &[Row] = &[
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
    ("mem util", Nothing, MEM_UTIL),
    ("busy mem", Nothing, &[("memory_utilization_pct", "%")]),
    ("umc util", Nothing, &[("memory_utilization_pct", "%")]),
    ("controller mem util", Nothing, &[("memory_utilization_pct", "%")]),
    ("bandwidth mem util", Nothing, &[("memory_utilization_pct", "%")]),
    ("mem usage", Unit, MEM_USED),
    ("mem used", Nothing, MEM_USED),
    ("mem total used", Nothing, MEM_USED),
    ("mem", Unit, MEM_USED),
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
    ("counter energy", Nothing, ENERGY),
    ("temp", Nothing, &[("temperature_c", "C")]),
    ("gfx temp", Nothing, &[("temperature_c", "C")]),
    ("die temp", Nothing, &[("temperature_c", "C")]),
    ("edge temp", Nothing, &[("temperature_edge_c", "C")]),
    ("edge", GpuAndUnit, &[("temperature_edge_c", "C")]),
    ("junction temp", Nothing, &[("temperature_junction_c", "C")]),
    ("hot spot temp", Nothing, &[("temperature_junction_c", "C")]),
    ("hot spot", Unit, &[("temperature_junction_c", "C")]),
    ("junction", Unit, &[("temperature_junction_c", "C")]),
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
    let (gpu, mut words) = instance(&words(name));
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

/// Whether the name has a word that only names of GPUs' columns have.
pub fn names_gpu(name: &str) -> bool {
    const WORDS: [&str; 13] = [
        "gpu", "gpus", "vram", "cuda", "nvidia", "amd", "radeon", "nvml", "rocm", "gfx", "sclk", "mclk", "fb",
    ];
    words(name).iter().any(|word| WORDS.contains(&word.as_str()))
}

/// The words of a name in lower case; units keep their signs.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut before = ' ';
    for c in name.chars() {
        let is_hump = before.is_ascii_lowercase() && c.is_ascii_uppercase() && word.len() > 1;
        let begins = is_hump || (c.is_ascii_digit() && is_numbered(&word));
        if begins && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() || c == '%' || c == '°' || c == 'µ' {
            word.extend(c.to_lowercase());
        } else if !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        before = c;
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Words that a number may follow without a blank.
fn is_numbered(word: &str) -> bool {
    matches!(word, "gpu" | "card" | "cuda" | "device" | "dev" | "gcd" | "accelerator" | "gpu_")
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
        let Some(index) = number(at + 1).filter(|_| is_numbered(word)) else {
            kept.push(word.clone());
            at += 1;
            continue;
        };
        // `cuda:0 (gpu:3)` is GPU 3.
        if gpu.is_none() || word == "gpu" {
            gpu = Some((word.clone(), index));
        }
        at += 2;
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
        let found = of_base(base, unit.as_deref(), is_gpu, topic);
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
        Topic::HostMemory if !is_gpu => of_host("ram").or_else(|| fitting(&base, unit, is_gpu)),
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

/// Words of names, and what they are in the spelling of the terms: nothing for those that say nothing.
const SPELLINGS: &[(&[&str], &[&str])] = &[
    (&["gpu", "gpus", "nvidia", "nvml", "cuda", "amd", "rocm", "amdgpu", "radeon"], &["gpu"]),
    (
        &[
            "smi",
            "all",
            "draw",
            "consumption",
            "consumed",
            "verbrauch",
            "current",
            "curr",
            "cur",
            "now",
            "value",
        ],
        &[],
    ),
    (
        &[
            "reading", "sensor", "of", "the", "in", "device", "dev", "card", "board", "package", "socket",
            "rate",
        ],
        &[],
    ),
    (&["graphicspackage", "metrics", "stats"], &[]),
    (&["memory", "mem", "speicher", "memoria", "mémoire"], &["mem"]),
    (&["vram", "fb", "framebuffer"], &["gpu", "mem"]),
    (&["ram"], &["ram"]),
    (&["allocated", "used", "inuse", "occupied", "belegt"], &["used"]),
    (&["total", "capacity", "gesamt"], &["total"]),
    (&["free", "frei"], &["free"]),
    (&["available", "avail"], &["available"]),
    (&["reserved"], &["reserved"]),
    (&["utilization", "utilisation", "util", "use", "activity", "auslastung", "utilización"], &["util"]),
    (&["usage"], &["usage"]),
    (&["busy"], &["busy"]),
    (&["load"], &["load"]),
    (&["loadavg"], &["load", "average"]),
    (
        &["temperature", "temp", "temps", "temperatures", "temperatur", "temperatura", "température"],
        &["temp"],
    ),
    (&["power", "pwr", "leistung", "leistungsaufnahme", "puissance"], &["power"]),
    (&["energy", "energie"], &["energy"]),
    (&["clock", "clocks", "clk", "freq", "frequency", "takt"], &["clock"]),
    (&["graphics", "graphic", "gfx", "core", "gr"], &["gfx"]),
    (&["sclk", "gfxclk", "gpuclk"], &["clock", "gfx"]),
    (&["mclk", "memclk", "uclk"], &["clock", "mem"]),
    (&["smclk"], &["clock", "sm"]),
    (&["socclk"], &["clock", "soc"]),
    (&["fclk"], &["clock", "fabric"]),
    (&["fabric"], &["fabric"]),
    (&["sm"], &["sm"]),
    (&["compute"], &["compute"]),
    (&["video"], &["video"]),
    (&["soc"], &["soc"]),
    (&["encoder", "enc", "nvenc"], &["enc"]),
    (&["decoder", "dec", "nvdec"], &["dec"]),
    (&["jpeg", "jpg", "nvjpg"], &["jpeg"]),
    (&["ofa"], &["ofa"]),
    (&["media"], &["media"]),
    (&["vcn"], &["vcn"]),
    (&["umc"], &["umc"]),
    (&["controller"], &["controller"]),
    (&["bandwidth", "bw", "throughput"], &["bandwidth"]),
    (&["edge"], &["edge"]),
    (&["junction"], &["junction"]),
    (&["hotspot"], &["hot", "spot"]),
    (&["hot"], &["hot"]),
    (&["spot"], &["spot"]),
    (&["die"], &["die"]),
    (&["hbm"], &["hbm"]),
    (&["slowdown"], &["slowdown"]),
    (&["shutdown"], &["shutdown"]),
    (&["limit", "cap", "grenze"], &["limit"]),
    (&["enforced"], &["enforced"]),
    (&["default"], &["default"]),
    (&["management"], &["management"]),
    (&["max", "maximum"], &["max"]),
    (&["average", "avg"], &["average"]),
    (&["instant", "instantaneous"], &["instant"]),
    (&["asic"], &["asic"]),
    (&["accumulated", "accum"], &["accumulated"]),
    (&["counter"], &["counter"]),
    (&["fan", "fans", "lüfter"], &["fan"]),
    (&["speed", "drehzahl"], &["speed"]),
    (&["voltage", "spannung"], &["voltage"]),
    (&["pcie", "pci"], &["pcie"]),
    (&["nvlink"], &["nvlink"]),
    (&["xgmi"], &["xgmi"]),
    (&["tx", "transmitted", "sent"], &["tx"]),
    (&["rx", "received"], &["rx"]),
    (&["replay", "replays"], &["replay"]),
    (&["count"], &["count"]),
    (&["performance"], &["performance"]),
    (&["state"], &["state"]),
    (&["cpu", "cpus"], &["cpu"]),
    (&["host"], &["host"]),
    (&["user"], &["user"]),
    (&["sys", "system"], &["sys"]),
    (&["iowait"], &["iowait"]),
    (&["swap"], &["swap"]),
    (&["1min", "1m"], &["1m"]),
    (&["5min", "5m"], &["5m"]),
    (&["15min", "15m"], &["15m"]),
    (&["1"], &["1"]),
    (&["5"], &["5"]),
    (&["15"], &["15"]),
];

/// A word in the spelling of the terms; none for one that says nothing.
fn spelled(word: &str) -> &'static [&'static str] {
    // A word that no term has.
    const STRANGE: &[&str] = &["?"];
    SPELLINGS.iter().find(|(words, _)| words.contains(&word)).map_or(STRANGE, |(_, parts)| parts)
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

    #[test]
    fn names_of_public_logs() {
        let check = |name: &str, expected: &str| {
            let found = read(name, Topic::Gpu).map_or_else(
                || "-".to_owned(),
                |term| {
                    let gpu = term.gpu.map(|gpu| format!(" of {gpu}")).unwrap_or_default();
                    format!("{} x {}{gpu}", term.id.metric().column, term.factor)
                },
            );
            assert_eq!(found, expected, "{name}");
        };
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
        check("GPU Temperature mean", "temperature_c x 1");
        check("fan_rpm", "fan_speed_rpm x 1");
        check("cpu_user_percent", "cpu_user_pct x 1");
        check("load_avg_1min", "load1 x 1");
        check("ram_used_gb", "memory_mb x 1024");
        check("powerWatts", "power_w x 1");
        check("clock_graphics_ghz", "gpu_clock_mhz x 1000");
        for unknown in [
            "load",
            "usage",
            "total_gb",
            "power_state",
            "cpu_power_w",
            "cpu_temp",
            "power_percent",
            "gpu_0",
            "temp_max",
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
