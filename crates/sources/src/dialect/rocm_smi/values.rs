//! The cards of a report as rows and identities. What the tool's keys mean stands in `core::foreign`.

use std::sync::Arc;

use gpuvitals_core::batch::Value;
use gpuvitals_core::foreign::{ROCM_SMI, ToolField};
use gpuvitals_core::number::float;
use gpuvitals_core::{AbsenceReason, Identity, IdentityColumn, MetricId};

use super::report::{RocmCard, RocmReport};
use crate::probe::{Driver, Due, Row};

const TEMPERATURE: MetricId = MetricId::of("temperature_c");
const HBM: MetricId = MetricId::of("temperature_hbm_c");
const POWER: MetricId = MetricId::of("power_w");
const EDGE: MetricId = MetricId::of("temperature_edge_c");
const JUNCTION: MetricId = MetricId::of("temperature_junction_c");
const VOLTAGE: MetricId = MetricId::of("voltage_gfx_mv");
const CLOCK: MetricId = MetricId::of("gpu_clock_mhz");
const MEMORY_TOTAL: MetricId = MetricId::of("memory_total_mb");
const MEMORY_USED: MetricId = MetricId::of("memory_used_mb");
const MEMORY_FREE: MetricId = MetricId::of("memory_free_mb");
const MEMORY_USED_PCT: MetricId = MetricId::of("memory_used_pct");

const HBM_KEYS: [&str; 4] = [
    "temperature (sensor hbm 0) (c)",
    "temperature (sensor hbm 1) (c)",
    "temperature (sensor hbm 2) (c)",
    "temperature (sensor hbm 3) (c)",
];

/// Fills a row with the card's values; due values that are missing are absent.
pub(super) fn fill(card: &RocmCard, due: Due, row: &mut Row) {
    for field in ROCM_SMI.iter().filter(|field| due.has(field.metric.metric().tier)) {
        match told(card, field).and_then(|value| believe(row, field.metric, value)) {
            Ok(value) => row.set(field.metric, value),
            Err(reason) => row.missing(field.metric, reason, due),
        }
    }
    let of = |metric: MetricId| ROCM_SMI.iter().find(move |field| field.metric == metric);
    let edge = of(EDGE);
    let hottest = HBM_KEYS
        .iter()
        .filter_map(|key| edge?.value(card.text(key)?, None).ok())
        .max_by(|a, b| a.as_f64().total_cmp(&b.as_f64()));
    match hottest {
        Some(value) => row.set(HBM, value),
        None => row.missing(HBM, AbsenceReason::NotSupported, due),
    }
    match [EDGE, JUNCTION].into_iter().find_map(|metric| told(card, of(metric)?).ok()) {
        Some(value) => row.set(TEMPERATURE, value),
        None => row.missing(TEMPERATURE, AbsenceReason::NotSupported, due),
    }
    let total = of(MEMORY_TOTAL).and_then(|field| told(card, field).ok());
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

/// What the card has of a field; of several keys the first that it has.
fn told(card: &RocmCard, field: &ToolField) -> Result<Value, AbsenceReason> {
    let text = field.names.iter().find_map(|key| card.text(key)).ok_or(AbsenceReason::NotSupported)?;
    field.value(text, None)
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
        (VOLTAGE, Value::Int(0)) if row.get(CLOCK) != Some(Value::Int(0)) => Err(AbsenceReason::NotSupported),
        _ => Ok(value),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a share in per cent")]
fn share(part: i64, whole: i64) -> f32 {
    (float(part) / float(whole) * 100.0) as f32
}

/// Identities of the cards, by the tool's numbers. Cards of one name are partitions of one package, and
/// numbered. A text that its column does not allow is left out; the number always names the card.
pub(super) fn identify(report: &RocmReport, node: &str) -> Vec<(u32, Arc<Identity>)> {
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

fn identity(card: &RocmCard, report: &RocmReport, node: &str) -> Option<Identity> {
    // A name of two devices is not unique, whatever it is called; partitions of one device share it.
    let device =
        |card: &RocmCard| card.text("pci bus").and_then(|pci| Some(pci.rsplit_once('.')?.0.to_owned()));
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
fn unique_id(card: &RocmCard) -> Option<String> {
    let digits = card.text("unique id")?.strip_prefix("0x")?;
    let id = u64::from_str_radix(digits, 16).ok().filter(|id| *id != 0 && *id != u64::MAX)?;
    Some(format!("{id:016x}"))
}

/// The product's name; versions that find none print the vendor's number in its place.
fn model(card: &RocmCard) -> Option<&str> {
    let keys = ["card series", "device name", "card model"];
    let names = keys.iter().filter_map(|key| card.text(key));
    names.into_iter().find(|name| !name.starts_with("0x") && !name.starts_with("N/A"))
}
