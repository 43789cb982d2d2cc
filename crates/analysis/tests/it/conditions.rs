//! Values that are a condition of a GPU, and their wording.

use std::collections::BTreeSet;

use gpuvitals_analysis::condition::{CONDITIONS, Severity, found};
use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::{self, ColumnType};
use gpuvitals_core::{Identity, IdentityColumn};

fn sentences(values: &[(&str, f64)]) -> Vec<(&'static str, String)> {
    let latest = |metric: gpuvitals_core::MetricId| {
        let (_, value) = values.iter().find(|(column, _)| catalogue::by_column(column) == Some(metric))?;
        Some(match metric.metric().column_type {
            ColumnType::I32 | ColumnType::I64 => Value::Int(format!("{value}").parse().unwrap()),
            ColumnType::F32 | ColumnType::F64 => Value::Float(*value),
        })
    };
    found(latest).map(|found| (found.condition.id, found.sentence())).collect()
}

/// Values, and the conditions they are with their sentences.
type Row = (&'static [(&'static str, f64)], &'static [(&'static str, &'static str)]);

const TABLE: &[Row] = &[
    (&[], &[]),
    (&[("utilization_pct", 100.0), ("temperature_c", 84.0)], &[]),
    (&[("xid_last", 79.0)], &[("xid", "XID 79: the GPU has fallen off the bus")]),
    (&[("xid_last", 0.0)], &[]),
    (&[("xid_last", 31.0)], &[]),
    (&[("xid_last", 63.0)], &[("xid_nonfatal", "XID 63: bad memory was marked for replacement")]),
    (
        &[("ecc_uncorrected_volatile", 1.0)],
        &[("ecc_uncorrected", "1 uncorrectable memory error since the driver was loaded")],
    ),
    (
        &[("ras_uncorrected", 2.0)],
        &[("ras_uncorrected", "2 uncorrectable RAS errors since the driver was loaded")],
    ),
    (&[("ecc_uncorrected_aggregate", 1.0), ("ecc_corrected_volatile", 900.0)], &[]),
    (
        &[("remapped_rows_failed", 1.0)],
        &[("row_remap_failed", "a memory row could not be replaced: the board is due for exchange")],
    ),
    (&[("bad_pages_unreservable", 3.0)], &[("bad_pages_in_use", "3 bad memory pages still in use")]),
    (&[("sram_threshold_exceeded", 1.0)], &[("sram_errors", "SRAM errors passed their threshold")]),
    (&[("recovery_action", 2.0)], &[("recovery_action", "the driver asks for a reboot of the node")]),
    (
        &[("remapped_rows_pending", 1.0)],
        &[("row_remap_pending", "a memory row waits for a reset of the GPU to be replaced")],
    ),
    (
        &[("retired_pages_pending", 1.0)],
        &[("page_retirement_pending", "memory pages wait for a reset of the GPU to be taken out of use")],
    ),
    (&[("throttle_reasons", 4.0)], &[]),
    (
        &[("throttle_reasons", 96.0)],
        &[
            ("hardware_thermal_slowdown", "the hardware slows the GPU down because of heat"),
            ("software_thermal_slowdown", "the driver slows the GPU down because of heat"),
        ],
    ),
    (&[("temperature_margin_c", 3.0)], &[("thermal_margin", "3 °C left to the slowdown limit")]),
    (&[("temperature_margin_c", 4.0)], &[]),
    (
        &[("temperature_c", 98.0), ("temperature_slowdown_c", 100.0)],
        &[("thermal_margin", "the GPU is at 98 °C, the slowdown limit at 100 °C")],
    ),
    (&[("temperature_c", 96.0), ("temperature_slowdown_c", 100.0)], &[]),
    (&[("temperature_c", 98.0)], &[]),
    (
        &[("temperature_memory_c", 105.0), ("temperature_memory_slowdown_c", 105.0)],
        &[("memory_thermal_limit", "the device memory is at 105 °C, the slowdown limit at 105 °C")],
    ),
    // Each condition is reported once.
    (
        &[("temperature_margin_c", 3.0), ("temperature_c", 86.0), ("temperature_slowdown_c", 89.0)],
        &[("thermal_margin", "3 °C left to the slowdown limit")],
    ),
    // The worst first, whatever the order of the columns.
    (
        &[("temperature_margin_c", 0.0), ("xid_last", 48.0)],
        &[
            ("xid", "XID 48: an uncorrectable memory error of two bits"),
            ("thermal_margin", "0 °C left to the slowdown limit"),
        ],
    ),
];

#[test]
fn values_that_show_a_fault_are_a_condition_and_others_are_none() {
    for (values, wanted) in TABLE {
        let wanted: Vec<_> = wanted.iter().map(|(id, words)| (*id, (*words).to_owned())).collect();
        assert_eq!(sentences(values), wanted, "{values:?}");
    }
    let seen: BTreeSet<&str> =
        TABLE.iter().flat_map(|(_, wanted)| wanted.iter().map(|(id, _)| *id)).collect();
    let mut all: Vec<&str> = CONDITIONS.iter().map(|condition| condition.id).collect();
    all.dedup();
    assert_eq!(all.len(), seen.len(), "rows of one id stand together");
    assert_eq!(seen, all.into_iter().collect(), "each condition has its line here");
}

#[test]
fn the_worst_conditions_stand_first() {
    let order: Vec<Severity> = CONDITIONS.iter().map(|condition| condition.severity).collect();
    assert!(order.is_sorted_by(|a, b| a >= b), "{order:?}");
}

#[test]
fn the_step_has_the_commands_of_the_gpus_vendor_with_its_number() {
    let hot = |metric| (Some(metric) == catalogue::by_column("throttle_reasons")).then_some(Value::Int(32));
    let of = |vendor, index| {
        let mut gpu = Identity::default().with(IdentityColumn::Vendor, vendor).unwrap();
        gpu.index = index;
        found(hot).next().unwrap().remedy(&gpu).into_owned()
    };
    assert!(of("nvidia", Some(3)).contains("`nvidia-smi -i 3 -pl WATTS`"), "{}", of("nvidia", Some(3)));
    assert!(of("amd", Some(5)).contains("`rocm-smi -d 5 --setpoweroverdrive WATTS`"));
    assert!(of("amd", None).contains("-d INDEX"), "a number that is not known is not made up");
}
