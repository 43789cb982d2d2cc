//! What `rocm-smi` prints, by keys of all versions from ROCm 4 to 6: read from the tool, and in its CSV.

use super::tool::{Spelling, ToolField};
use crate::absence::AbsenceReason;
use crate::batch::Value;

/// From the printed text to the value in the column's unit, or the reason for its absence.
type ReadText = fn(&str) -> Result<Value, AbsenceReason>;

const fn figure(column: &str, names: &'static [&'static str], read: ReadText) -> ToolField {
    ToolField::new(names, column, Spelling::Figure(read))
}

const fn text(column: &str, names: &'static [&'static str], read: ReadText) -> ToolField {
    ToolField::new(names, column, Spelling::Text(read))
}

/// `gfx activity` is left out: if it is a number it is the same for all cards of a machine.
pub const FIELDS: &[ToolField] = &[
    figure("temperature_edge_c", &["temperature (sensor edge) (c)"], number),
    figure("temperature_junction_c", &["temperature (sensor junction) (c)"], number),
    text("temperature_memory_c", &["temperature (sensor memory) (c)"], sensor),
    text(
        "power_w",
        &["current socket graphics package power (w)", "average graphics package power (w)"],
        sensor,
    ),
    text("power_average_w", &["average graphics package power (w)"], sensor),
    figure("utilization_pct", &["gpu use (%)"], number),
    text("gpu_clock_mhz", &["sclk clock speed", "sclk clock level"], megahertz),
    text("mem_clock_mhz", &["mclk clock speed", "mclk clock level"], megahertz),
    text("soc_clock_mhz", &["socclk clock speed", "socclk clock level"], megahertz),
    text("fabric_clock_mhz", &["fclk clock speed", "fclk clock level"], megahertz),
    text("gpu_clock_level", &["sclk clock level"], clock_level),
    text("mem_clock_level", &["mclk clock level"], clock_level),
    text("pcie_speed_gtps", &["pcie clock level"], link_speed),
    text("pcie_gen", &["pcie clock level"], link_generation),
    text("pcie_width", &["pcie clock level"], link_width),
    figure("pcie_replays", &["pcie replay count"], integer),
    figure("memory_total_mb", &["vram total memory (b)"], mebibytes),
    figure("memory_used_mb", &["vram total used memory (b)"], mebibytes),
    figure("visible_memory_total_mb", &["vis_vram total memory (b)"], mebibytes),
    figure("visible_memory_used_mb", &["vis_vram total used memory (b)"], mebibytes),
    figure("gtt_total_mb", &["gtt total memory (b)"], mebibytes),
    figure("gtt_used_mb", &["gtt total used memory (b)"], mebibytes),
    figure("memory_utilization_pct", &["gpu memory read/write activity (%)", "gpu memory use (%)"], number),
    text("fan_speed_pct", &["fan speed (%)", "fan level"], fan_share),
    figure("fan_speed_rpm", &["fan rpm"], integer),
    figure("voltage_gfx_mv", &["voltage (mv)"], integer),
    figure("power_limit_w", &["max graphics package power (w)"], number),
    text("performance_level", &["performance level"], performance_level),
];

fn number(text: &str) -> Result<Value, AbsenceReason> {
    let number: f32 = text.trim().parse().map_err(|_| AbsenceReason::Invalid)?;
    if number.is_finite() { Ok(Value::Float32(number)) } else { Err(AbsenceReason::Invalid) }
}

/// No card draws nothing: 0 is what old versions print for the second die of a package. And 0 degrees is the driver's
/// value for a sensor that the board does not have.
fn sensor(text: &str) -> Result<Value, AbsenceReason> {
    match number(text)? {
        Value::Float32(0.0) => Err(AbsenceReason::NotSupported),
        value => Ok(value),
    }
}

fn integer(text: &str) -> Result<Value, AbsenceReason> {
    text.trim().parse().map(Value::Int).map_err(|_| AbsenceReason::Invalid)
}

fn mebibytes(text: &str) -> Result<Value, AbsenceReason> {
    let bytes: u64 = text.trim().parse().map_err(|_| AbsenceReason::Invalid)?;
    // To the nearest, as everywhere.
    i64::try_from(bytes.saturating_add(1 << 19) >> 20).map(Value::Int).map_err(|_| AbsenceReason::Invalid)
}

/// `(852Mhz)`, `S: (137Mhz)`, `0 (300Mhz)`.
fn megahertz(text: &str) -> Result<Value, AbsenceReason> {
    // A level alone has no clock.
    if text.trim().bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(AbsenceReason::NotSupported);
    }
    let clock = in_parentheses(text).to_ascii_lowercase();
    integer(clock.strip_suffix("mhz").ok_or(AbsenceReason::Invalid)?)
}

/// `1`, `0 (300Mhz)`, `1: (500Mhz)`; `S` in deep sleep, where no level is in force.
fn clock_level(text: &str) -> Result<Value, AbsenceReason> {
    match text.split([' ', ':']).next() {
        Some("S") => Err(AbsenceReason::Suspended),
        Some(number) => integer(number),
        None => Err(AbsenceReason::Invalid),
    }
}

/// `13`, or `33 (13%)` after the level.
fn fan_share(text: &str) -> Result<Value, AbsenceReason> {
    number(in_parentheses(text).trim_end_matches('%'))
}

fn in_parentheses(text: &str) -> &str {
    let inner = text.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
    inner.map_or(text, |(inner, _)| inner)
}

/// `1 (16.0GT/s x16)`: transfers and lanes.
fn link(text: &str) -> Option<(&str, &str)> {
    let (speed, lanes) = in_parentheses(text).split_once(' ')?;
    Some((speed.strip_suffix("GT/s")?, lanes.trim().strip_prefix('x')?))
}

fn link_speed(text: &str) -> Result<Value, AbsenceReason> {
    number(link(text).ok_or(AbsenceReason::Invalid)?.0)
}

fn link_width(text: &str) -> Result<Value, AbsenceReason> {
    integer(link(text).ok_or(AbsenceReason::Invalid)?.1)
}

fn link_generation(text: &str) -> Result<Value, AbsenceReason> {
    let speeds = ["2.5", "5.0", "8.0", "16.0", "32.0", "64.0"];
    let (speed, _) = link(text).ok_or(AbsenceReason::Invalid)?;
    let generation = speeds.iter().zip(1..).find(|(known, _)| **known == speed);
    generation.map(|(_, generation)| Value::Int(generation)).ok_or(AbsenceReason::Invalid)
}

/// In the order of the codes that the catalogue gives them.
const PERFORMANCE_LEVELS: [&str; 9] = [
    "auto",
    "low",
    "high",
    "manual",
    "profile_standard",
    "profile_min_sclk",
    "profile_min_mclk",
    "profile_peak",
    "perf_determinism",
];

fn performance_level(text: &str) -> Result<Value, AbsenceReason> {
    let word = text.trim().to_ascii_lowercase();
    let code = PERFORMANCE_LEVELS.iter().zip(0..).find(|(level, _)| **level == word);
    code.map(|(_, code)| Value::Int(code)).ok_or(AbsenceReason::Invalid)
}
