//! Which files may give which metric, the better one first.

use std::path::{Path, PathBuf};

use gpuvitals_core::MetricId;

use super::card::{Card, read_text};
use super::parse;
use super::sensor::{ASLEEP, Parse, Scale};

/// A file, and the metric it gives.
pub(super) type Candidate = (PathBuf, (MetricId, Parse, Scale));

type FileMetric = (&'static str, MetricId, Parse, Scale);

const fn place(file: &'static str, column: &str, parse: Parse, scale: Scale) -> FileMetric {
    (file, MetricId::of(column), parse, scale)
}

const MICRO: Scale = Scale(1, 1_000_000);
const MILLI: Scale = Scale(1, 1_000);
const MIB: Scale = Scale(1, 1 << 20);
const TENTH: Scale = Scale(1, 10);

/// Files of the device folder.
const DEVICE: &[FileMetric] = &[
    place("gpu_busy_percent", "utilization_pct", number, Scale::ONE),
    place("mem_busy_percent", "memory_utilization_pct", number, Scale::ONE),
    place("vcn_busy_percent", "media_utilization_pct", number, Scale::ONE),
    place("mem_info_vis_vram_used", "visible_memory_used_mb", number, MIB),
    place("mem_info_vis_vram_total", "visible_memory_total_mb", number, MIB),
    place("mem_info_gtt_used", "gtt_used_mb", number, MIB),
    place("mem_info_gtt_total", "gtt_total_mb", number, MIB),
    place("pp_dpm_sclk", "gpu_clock_mhz", dpm_current, Scale::ONE),
    place("pp_dpm_mclk", "mem_clock_mhz", dpm_current, Scale::ONE),
    place("pp_dpm_socclk", "soc_clock_mhz", dpm_current, Scale::ONE),
    place("pp_dpm_fclk", "fabric_clock_mhz", dpm_current, Scale::ONE),
    place("pp_dpm_vclk", "video_clock_mhz", dpm_current, Scale::ONE),
    place("pp_dpm_dclk", "video_decode_clock_mhz", dpm_current, Scale::ONE),
    place("pp_dpm_vclk1", "video1_clock_mhz", dpm_current, Scale::ONE),
    place("pp_dpm_dclk1", "video1_decode_clock_mhz", dpm_current, Scale::ONE),
    place("pp_dpm_sclk", "gpu_clock_level", dpm_level, Scale::ONE),
    place("pp_dpm_mclk", "mem_clock_level", dpm_level, Scale::ONE),
    place("pp_dpm_sclk", "gpu_clock_max_mhz", dpm_max, Scale::ONE),
    place("pp_dpm_mclk", "mem_clock_max_mhz", dpm_max, Scale::ONE),
    place("pp_dpm_vclk", "video_clock_max_mhz", dpm_max, Scale::ONE),
    // The board's link to the slot; the next is the port of the chip, behind a switch of the card on RDNA and Vega20.
    place("pp_dpm_pcie", "pcie_speed_gtps", dpm_pcie_speed, TENTH),
    place("pp_dpm_pcie", "pcie_width", dpm_pcie_width, Scale::ONE),
    place("current_link_speed", "pcie_speed_gtps", link_speed, TENTH),
    place("current_link_width", "pcie_width", positive, Scale::ONE),
    place("max_link_speed", "pcie_gen_max", link_generation, Scale::ONE),
    place("max_link_width", "pcie_width_max", positive, Scale::ONE),
    place("numa_node", "numa_node", not_negative, Scale::ONE),
    place("pcie_replay_count", "pcie_replays", number, Scale::ONE),
    place("power_dpm_force_performance_level", "performance_level", performance_level, Scale::ONE),
    place("gpu_od/fan_ctrl/acoustic_target_rpm_threshold", "fan_target_rpm", overdrive, Scale::ONE),
    place("gpu_od/fan_ctrl/fan_target_temperature", "temperature_fan_target_c", overdrive, Scale::ONE),
];

/// Files of the hardware monitor with self-explanatory names.
const HWMON: &[FileMetric] = &[
    place("power1_cap", "power_limit_w", number, MICRO),
    place("power1_cap_default", "power_limit_default_w", number, MICRO),
    place("power1_cap_min", "power_limit_min_w", number, MICRO),
    place("power1_cap_max", "power_limit_max_w", number, MICRO),
    place("fan1_input", "fan_speed_rpm", number, Scale::ONE),
    // `fan1_target` is left alone: the driver answers with the present speed (`amdgpu_hwmon_get_fan1_target`).
    place("fan1_min", "fan_speed_min_rpm", number, Scale::ONE),
    place("fan1_max", "fan_speed_max_rpm", positive, Scale::ONE),
];

/// The sensor of `temperature_c`: the edge, else the junction.
const MAIN: &str = "main";

/// Limits of the temperatures: label of the sensor, end of the file's name.
const LIMITS: &[(&str, &str, MetricId)] = &[
    (MAIN, "crit", MetricId::of("temperature_slowdown_c")),
    (MAIN, "emergency", MetricId::of("temperature_shutdown_c")),
    ("junction", "crit", MetricId::of("temperature_junction_slowdown_c")),
    ("junction", "emergency", MetricId::of("temperature_junction_shutdown_c")),
    ("mem", "crit", MetricId::of("temperature_memory_slowdown_c")),
    ("mem", "emergency", MetricId::of("temperature_memory_shutdown_c")),
];

/// The metrics of files with fixed names, and of limits.
pub(super) fn metrics_of_files() -> impl Iterator<Item = MetricId> {
    let files = DEVICE.iter().chain(HWMON).map(|&(_, metric, ..)| metric);
    files.chain(LIMITS.iter().map(|&(.., metric)| metric))
}

/// Every file that may give a metric, the better one first: hwmon before the tables of levels. Opens nothing that
/// would wake a GPU: labels and names only.
pub(super) fn candidates(card: &Card, hwmon: Option<&Path>) -> Vec<Candidate> {
    let mut found = Vec::new();
    if let Some(hwmon) = hwmon {
        sensors(card, hwmon, &mut found);
        found.extend(
            HWMON.iter().map(|&(file, metric, parse, scale)| (hwmon.join(file), (metric, parse, scale))),
        );
        let pwm_max = read_text(&hwmon.join("pwm1_max")).as_deref().and_then(parse::parse_number);
        let duty = Scale(100, pwm_max.filter(|&max| max > 0).unwrap_or(255));
        found.push((hwmon.join("pwm1"), (MetricId::of("fan_speed_pct"), number, duty)));
    }
    found.extend(
        DEVICE.iter().map(|&(file, metric, parse, scale)| (card.device.join(file), (metric, parse, scale))),
    );
    found
}

/// Sensors by their labels. The oldest cards have none: then the first has its fixed meaning.
fn sensors(card: &Card, hwmon: &Path, found: &mut Vec<Candidate>) {
    let mut add = |file: String, column: MetricId, parse: Parse, scale: Scale| {
        found.push((hwmon.join(file), (column, parse, scale)));
    };
    let label = |file: String| read_text(&hwmon.join(file));
    // The second die of an MI250 reports 0 W; the first reports for both.
    let watts: Parse = if card.is_instinct() { positive } else { number };
    if !card.is_power_slow() {
        add("power1_input".to_owned(), MetricId::of("power_w"), watts, MICRO);
        add("power1_average".to_owned(), MetricId::of("power_average_w"), watts, MICRO);
    }
    for at in 1..=2 {
        let usual = if at == 1 { "sclk" } else { "mclk" };
        let metric = match label(format!("freq{at}_label")).as_deref().unwrap_or(usual) {
            "sclk" => MetricId::of("gpu_clock_mhz"),
            "mclk" => MetricId::of("mem_clock_mhz"),
            _ => continue,
        };
        add(format!("freq{at}_input"), metric, number, MICRO);
    }
    for at in 0..=1 {
        let usual = if at == 0 { "vddgfx" } else { "vddnb" };
        match label(format!("in{at}_label")).as_deref().unwrap_or(usual) {
            "vddgfx" => add(format!("in{at}_input"), MetricId::of("voltage_gfx_mv"), number, Scale::ONE),
            "vddnb" => add(format!("in{at}_input"), MetricId::of("voltage_soc_mv"), positive, Scale::ONE),
            _ => {}
        }
    }
    temperatures(hwmon, &mut add);
}

/// Temperatures and their limits, by their labels.
fn temperatures(hwmon: &Path, add: &mut impl FnMut(String, MetricId, Parse, Scale)) {
    let label = |file: String| read_text(&hwmon.join(file));
    let labels: Vec<Option<String>> = (1..=3).map(|at| label(format!("temp{at}_label"))).collect();
    let is_main = |label: &str| match label {
        "edge" => true,
        "junction" => labels.iter().flatten().all(|other| other != "edge"),
        _ => false,
    };
    for (at, label) in (1..).zip(&labels) {
        let label = label.as_deref().unwrap_or(if at == 1 { "edge" } else { "" });
        let (metric, parse): (MetricId, Parse) = match label {
            "edge" => (MetricId::of("temperature_c"), number),
            "junction" => (MetricId::of("temperature_junction_c"), number),
            "mem" => (MetricId::of("temperature_memory_c"), positive),
            _ => continue,
        };
        add(format!("temp{at}_input"), metric, parse, MILLI);
        let is_its = |sensor: &str| sensor == label || (sensor == MAIN && is_main(label));
        for (_, kind, metric) in LIMITS.iter().filter(|(sensor, ..)| is_its(sensor)) {
            add(format!("temp{at}_{kind}"), *metric, positive, MILLI);
        }
    }
}

fn number(text: &str) -> Option<i64> {
    parse::parse_number(text)
}

/// A number where 0 and below mean a missing value: -273150 is a limit that is not set.
fn positive(text: &str) -> Option<i64> {
    parse::parse_number(text).filter(|&number| number > 0)
}

/// A number where -1 means none: the kernel's word for a machine with one NUMA node.
fn not_negative(text: &str) -> Option<i64> {
    parse::parse_number(text).filter(|&number| number >= 0)
}

fn dpm_current(text: &str) -> Option<i64> {
    parse::parse_pp_dpm_current(text).map(i64::from)
}

fn dpm_level(text: &str) -> Option<i64> {
    parse::parse_pp_dpm_level(text).map(|level| match level {
        parse::DpmIndex::Level(number) => i64::from(number),
        parse::DpmIndex::Sleep => ASLEEP,
    })
}

fn dpm_max(text: &str) -> Option<i64> {
    parse::parse_pp_dpm_max(text).map(i64::from)
}

fn dpm_pcie_speed(text: &str) -> Option<i64> {
    parse::parse_pp_dpm_pcie(text).and_then(|link| tenths(link.gtps))
}

fn dpm_pcie_width(text: &str) -> Option<i64> {
    parse::parse_pp_dpm_pcie(text).map(|link| i64::from(link.width))
}

fn link_speed(text: &str) -> Option<i64> {
    parse::parse_link_speed(text).and_then(tenths)
}

fn link_generation(text: &str) -> Option<i64> {
    parse::parse_link_speed(text).and_then(parse::pcie_generation).map(i64::from)
}

/// Tenths of gigatransfers: every speed of PCIe is a whole number of them.
#[expect(clippy::cast_possible_truncation, reason = "bounded just before")]
fn tenths(gtps: f32) -> Option<i64> {
    let tenths = (gtps * 10.0).round();
    (1.0..=10_000.0).contains(&tenths).then_some(tenths as i64)
}

fn overdrive(text: &str) -> Option<i64> {
    parse::parse_overdrive(text)
}

fn performance_level(text: &str) -> Option<i64> {
    parse::parse_performance_level(text).map(i64::from)
}
