//! The meaning of the tool's keys: columns, units, identity. Keys of all versions from ROCm 4 to 6.

use std::sync::Arc;

use gpuvitals_core::batch::Value;
use gpuvitals_core::{AbsenceReason, Identity, IdentityColumn, MetricId};

use super::report::{Card, Report};
use crate::probe::{Driver, Due, Row};

/// From the printed text to the value in the column unit, or the reason for its absence.
type Parse = fn(&str) -> Result<Value, AbsenceReason>;

/// A column and its keys, each version's own; of several the first that the card has.
struct Column {
    metric: MetricId,
    keys: &'static [&'static str],
    parse: Parse,
}

const fn column(metric: &str, keys: &'static [&'static str], parse: Parse) -> Column {
    Column { metric: MetricId::of(metric), keys, parse }
}

const TEMPERATURE: MetricId = MetricId::of("temperature_c");
const HBM: MetricId = MetricId::of("temperature_hbm_c");
const POWER: MetricId = MetricId::of("power_w");
const POWER_AVERAGE: MetricId = MetricId::of("power_average_w");
const TEMPERATURE_MEMORY: MetricId = MetricId::of("temperature_memory_c");
const VOLTAGE: MetricId = MetricId::of("voltage_gfx_mv");
const CLOCK: MetricId = MetricId::of("gpu_clock_mhz");
const MEMORY_USED: MetricId = MetricId::of("memory_used_mb");
const MEMORY_FREE: MetricId = MetricId::of("memory_free_mb");
const MEMORY_USED_PCT: MetricId = MetricId::of("memory_used_pct");

const CURRENT_POWER: &str = "current socket graphics package power (w)";
const AVERAGE_POWER: &str = "average graphics package power (w)";
const EDGE: &str = "temperature (sensor edge) (c)";
const JUNCTION: &str = "temperature (sensor junction) (c)";
const VRAM_TOTAL: &str = "vram total memory (b)";
const HBM_KEYS: [&str; 4] = [
    "temperature (sensor hbm 0) (c)",
    "temperature (sensor hbm 1) (c)",
    "temperature (sensor hbm 2) (c)",
    "temperature (sensor hbm 3) (c)",
];

/// `gfx activity` is left out: if it is a number it is the same for all cards of a machine.
const COLUMNS: &[Column] = &[
    column("temperature_edge_c", &[EDGE], number),
    column("temperature_junction_c", &[JUNCTION], number),
    column("temperature_memory_c", &["temperature (sensor memory) (c)"], number),
    column("power_w", &[CURRENT_POWER, AVERAGE_POWER], number),
    column("power_average_w", &[AVERAGE_POWER], number),
    column("utilization_pct", &["gpu use (%)"], number),
    column("gpu_clock_mhz", &["sclk clock speed", "sclk clock level"], megahertz),
    column("mem_clock_mhz", &["mclk clock speed", "mclk clock level"], megahertz),
    column("soc_clock_mhz", &["socclk clock speed", "socclk clock level"], megahertz),
    column("fabric_clock_mhz", &["fclk clock speed", "fclk clock level"], megahertz),
    column("gpu_clock_level", &["sclk clock level"], clock_level),
    column("mem_clock_level", &["mclk clock level"], clock_level),
    column("pcie_speed_gtps", &["pcie clock level"], link_speed),
    column("pcie_gen", &["pcie clock level"], link_generation),
    column("pcie_width", &["pcie clock level"], link_width),
    column("pcie_replays", &["pcie replay count"], integer),
    column("memory_total_mb", &[VRAM_TOTAL], mebibytes),
    column("memory_used_mb", &["vram total used memory (b)"], mebibytes),
    column("visible_memory_total_mb", &["vis_vram total memory (b)"], mebibytes),
    column("visible_memory_used_mb", &["vis_vram total used memory (b)"], mebibytes),
    column("gtt_total_mb", &["gtt total memory (b)"], mebibytes),
    column("gtt_used_mb", &["gtt total used memory (b)"], mebibytes),
    column("memory_utilization_pct", &["gpu memory read/write activity (%)", "gpu memory use (%)"], number),
    column("fan_speed_pct", &["fan speed (%)", "fan level"], fan_share),
    column("fan_speed_rpm", &["fan rpm"], integer),
    column("voltage_gfx_mv", &["voltage (mv)"], integer),
    column("power_limit_w", &["max graphics package power (w)"], number),
    column("performance_level", &["performance level"], performance_level),
];

/// Fills a row with the card's values; due values that are missing are absent.
pub(super) fn fill(card: &Card, due: Due, row: &mut Row) {
    for column in COLUMNS.iter().filter(|column| due.has(column.metric.metric().tier)) {
        let text = column.keys.iter().find_map(|key| card.text(key)).ok_or(AbsenceReason::NotSupported);
        let value = text.and_then(|text| read(text, column.parse));
        match value.and_then(|value| believe(row, column.metric, value)) {
            Ok(value) => row.set(column.metric, value),
            Err(reason) => row.missing(column.metric, reason, due),
        }
    }
    let hottest = HBM_KEYS
        .iter()
        .filter_map(|key| read(card.text(key)?, number).ok())
        .max_by(|a, b| a.as_f64().total_cmp(&b.as_f64()));
    match hottest {
        Some(value) => row.set(HBM, value),
        None => row.missing(HBM, AbsenceReason::NotSupported, due),
    }
    match [EDGE, JUNCTION].iter().find_map(|key| read(card.text(key)?, number).ok()) {
        Some(value) => row.set(TEMPERATURE, value),
        None => row.missing(TEMPERATURE, AbsenceReason::NotSupported, due),
    }
    let total = card.text(VRAM_TOTAL).and_then(|text| read(text, mebibytes).ok());
    match (total, row.get(MEMORY_USED)) {
        (Some(Value::Int(total)), Some(Value::Int(used))) if (0..=total).contains(&used) && total > 0 => {
            row.float(MEMORY_USED_PCT, share(used, total));
            if due.has(MEMORY_FREE.metric().tier) {
                row.int(MEMORY_FREE, total - used);
            }
        }
        (total, _) => {
            let reason = total.map_or(AbsenceReason::NotSupported, |_| AbsenceReason::Invalid);
            let is_due = |metric: &MetricId| due.has(metric.metric().tier);
            for metric in [MEMORY_USED_PCT, MEMORY_FREE].into_iter().filter(is_due) {
                row.missing(metric, reason, due);
            }
        }
    }
}

/// A number that cannot be what it says is none.
fn believe(row: &Row, metric: MetricId, value: Value) -> Result<Value, AbsenceReason> {
    let is_mi325x = || {
        let model = row.identity().get(IdentityColumn::Model);
        model.is_some_and(|model| model.contains("MI325"))
    };
    match (metric, value) {
        // It is known to print 0 to 2 W whatever it draws.
        (POWER, Value::Float32(watt)) if watt <= 2.0 && is_mi325x() => Err(AbsenceReason::Invalid),
        // No card draws nothing: 0 is what old versions print for the second die of a package. And 0 degrees
        // is the driver's value for a sensor that the board does not have.
        (POWER | POWER_AVERAGE | TEMPERATURE_MEMORY, Value::Float32(0.0)) => Err(AbsenceReason::NotSupported),
        (VOLTAGE, Value::Int(0)) if row.get(CLOCK) != Some(Value::Int(0)) => Err(AbsenceReason::NotSupported),
        _ => Ok(value),
    }
}

#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a share in per cent")]
fn share(part: i64, whole: i64) -> f32 {
    (part as f64 / whole as f64 * 100.0) as f32
}

/// The value, or the reason for its absence: the tool has many words for what a card lacks.
fn read(text: &str, parse: Parse) -> Result<Value, AbsenceReason> {
    let word = text.to_ascii_lowercase();
    let lacks = ["n/a", "none", "unknown", "unsupported", "not supported"];
    if word.is_empty() || lacks.iter().any(|lack| word.starts_with(lack)) {
        return Err(AbsenceReason::NotSupported);
    }
    parse(text)
}

fn number(text: &str) -> Result<Value, AbsenceReason> {
    let number: f32 = text.trim().parse().map_err(|_| AbsenceReason::Invalid)?;
    if number.is_finite() { Ok(Value::Float32(number)) } else { Err(AbsenceReason::Invalid) }
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

/// Identities of the cards, by the tool's numbers. Cards of one name are partitions of one package, and
/// numbered. A text that its column does not allow is left out; the number always names the card.
pub(super) fn identify(report: &Report, node: &str) -> Vec<(u32, Arc<Identity>)> {
    let cards = report.cards.iter();
    let mut identities: Vec<(u32, Identity)> =
        cards.filter_map(|card| Some((card.number, identity(card, report, node)?))).collect();
    let names: Vec<Option<Arc<str>>> = identities.iter().map(|(_, identity)| identity.key()).collect();
    for (at, ((_, identity), name)) in identities.iter_mut().zip(&names).enumerate() {
        if names.iter().filter(|other| *other == name).count() > 1 {
            let number = names.iter().take(at).filter(|other| *other == name).count();
            let mode = report.cards.get(at).and_then(|card| card.text("compute partition"));
            let partition = format!("{}{number}", mode.unwrap_or("xcp").to_ascii_lowercase());
            set_text(identity, IdentityColumn::Partition, Some(&partition));
        }
    }
    identities.into_iter().map(|(number, identity)| (number, Arc::new(identity))).collect()
}

fn identity(card: &Card, report: &Report, node: &str) -> Option<Identity> {
    // A name of two devices is not unique, whatever it is called; partitions of one device share it.
    let device = |card: &Card| card.text("pci bus").and_then(|pci| Some(pci.rsplit_once('.')?.0.to_owned()));
    let is_unique = |id: &String| {
        let mut same = report.cards.iter().filter(|other| unique_id(other).as_ref() == Some(id));
        same.all(|other| device(other) == device(card))
    };
    let mut identity = Identity::default();
    identity.index = i32::try_from(card.number).ok();
    for (column, text) in [
        (IdentityColumn::Node, Some(node)),
        (IdentityColumn::Vendor, Some("amd")),
        (IdentityColumn::Source, Some(Driver::RocmSmi.as_str())),
        (IdentityColumn::Driver, report.driver.as_deref()),
        (IdentityColumn::Vbios, card.text("vbios version")),
        (IdentityColumn::Model, model(card)),
        (IdentityColumn::Pci, card.text("pci bus").filter(|text| text.contains(':'))),
        (IdentityColumn::Uuid, unique_id(card).filter(is_unique).as_deref()),
    ] {
        set_text(&mut identity, column, text);
    }
    identity.resolve().ok()?;
    Some(identity)
}

fn set_text(identity: &mut Identity, column: IdentityColumn, text: Option<&str>) {
    let _fits = identity.set(column, text.unwrap_or_default());
}

/// `0x2150e7d042a1124` as the kernel prints it: 16 digits.
fn unique_id(card: &Card) -> Option<String> {
    let digits = card.text("unique id")?.strip_prefix("0x")?;
    let id = u64::from_str_radix(digits, 16).ok().filter(|id| *id != 0 && *id != u64::MAX)?;
    Some(format!("{id:016x}"))
}

/// The product's name; versions that find none print the vendor's number in its place.
fn model(card: &Card) -> Option<&str> {
    let keys = ["card series", "device name", "card model"];
    let names = keys.iter().filter_map(|key| card.text(key));
    names.into_iter().find(|name| !name.starts_with("0x") && !name.starts_with("N/A"))
}
