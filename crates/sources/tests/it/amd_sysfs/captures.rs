//! Every captured machine gives the row of its golden file: `UPDATE=1` rewrites them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::{Tier, Unit};
use gpuvitals_core::{AbsenceReason, IdentityColumn};
use gpuvitals_sources::dialect::amd_sysfs;
use gpuvitals_sources::probe::{Due, Reading, Row};

use super::machines::{
    CAPTURED, absence, captured, copy, first_reading, fixture, id, machine, only_probe, table, value, write,
};

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::None | Unit::Ratio => "",
        Unit::Percent => " %",
        Unit::Megahertz => " MHz",
        Unit::Celsius => " °C",
        Unit::Watt => " W",
        Unit::Millijoule => " mJ",
        Unit::Mebibyte => " MiB",
        Unit::Byte => " B",
        Unit::BytesPerSecond => " B/s",
        Unit::Rpm => " rpm",
        Unit::Millivolt => " mV",
        Unit::Nanosecond => " ns",
        Unit::GigatransfersPerSecond => " GT/s",
    }
}

fn text(value: Value) -> String {
    match value {
        Value::Int(v) => v.to_string(),
        Value::Float32(v) => v.to_string(),
        Value::Float(v) => v.to_string(),
    }
}

/// A row as people read it, in the order of the catalogue.
fn render(row: &Row) -> String {
    let mut out = String::new();
    for column in IdentityColumn::ALL {
        if let Some(text) = row.identity().get(column) {
            writeln!(out, "{} = {text}", column.name()).unwrap();
        }
    }
    writeln!(out, "gpu = {}\nsnapshot = {:?}\n", row.identity().index.unwrap(), row.snapshot_id()).unwrap();
    let values: BTreeMap<_, _> = row.values().iter().copied().collect();
    for (id, value) in values {
        let metric = id.metric();
        writeln!(out, "{} = {}{}", metric.column, text(value), unit(metric.unit)).unwrap();
    }
    out.push('\n');
    let absences: BTreeMap<_, _> = row.absences().iter().copied().collect();
    assert_eq!(absences.len(), row.absences().len(), "an absence is told once");
    for (id, reason) in absences {
        assert!(row.get(id).is_none(), "{} is there and absent", id.metric().column);
        writeln!(out, "{}: {}", id.metric().column, reason.as_str()).unwrap();
    }
    out
}

#[test]
fn every_captured_machine_gives_its_row() {
    for name in CAPTURED {
        let reading = first_reading(name);
        assert_eq!(reading.rows().len(), 1, "{name}");
        let rendered = render(&reading.rows()[0]);
        let golden = fixture(name).join("row.txt");
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&golden, &rendered).unwrap();
        }
        let wanted = fs::read_to_string(&golden).unwrap_or_default();
        assert_eq!(rendered, wanted, "{name}: UPDATE=1 writes {}", golden.display());
    }
}

#[test]
fn values_are_within_the_catalogue_and_of_its_type() {
    use gpuvitals_core::{BatchBuilder, Table};
    for name in CAPTURED {
        let reading = first_reading(name);
        let row = &reading.rows()[0];
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let identity = builder.add_identity(row.identity());
        let at = builder.row(1_000_000_000, identity);
        for (metric, value) in row.values() {
            builder.set(at, *metric, *value).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

#[test]
fn later_readings_give_what_is_due_and_no_more() {
    for name in CAPTURED {
        let mut probe = only_probe(&captured(name));
        let mut first = Reading::default();
        probe.read(Due::ALL, &mut first).unwrap();
        let first = &first.rows()[0];
        let check = |due: Due, reading: &Reading| {
            let row = &reading.rows()[0];
            for (metric, value) in first.values() {
                let column = metric.metric().column;
                if due.has(metric.metric().tier) {
                    assert_eq!(row.get(*metric), Some(*value), "{name}: {column}");
                }
            }
            for (metric, _) in row.values() {
                assert!(first.get(*metric).is_some(), "{name}: {}", metric.metric().column);
            }
            row.values().len()
        };
        let mut reading = Reading::default();
        probe.read(Due::default(), &mut reading).unwrap();
        let fast = check(Due::default(), &reading);
        assert!(reading.rows()[0].absences().is_empty(), "{name}: what is never there is told rarely");
        reading.clear();
        probe.read(Due { slow: true, rare: false }, &mut reading).unwrap();
        let slow = check(Due { slow: true, rare: false }, &reading);
        reading.clear();
        probe.read(Due { slow: false, rare: true }, &mut reading).unwrap();
        let rare = check(Due::ALL, &reading);
        assert!(fast < slow && slow <= rare, "{name}: {fast}, {slow}, {rare}");
        let is_rare = first.values().iter().any(|(metric, _)| metric.metric().tier == Tier::Rare);
        assert_eq!(is_rare, slow < rare, "{name}");
    }
}

#[test]
fn an_apu_under_load_is_throttled_and_says_its_clocks() {
    let dir = tempfile::tempdir().unwrap();
    let device = dir.path().join("class/drm/card0/device");
    let blob = fixture("../gpu-metrics-blobs").join("mangohud-apu-v2.2.bin");
    write(&device, "vendor", "0x1002\n");
    write(&device, "gpu_metrics", fs::read(blob).unwrap());
    let mut reading = Reading::default();
    only_probe(&machine(dir.path())).read(Due::ALL, &mut reading).unwrap();
    let row = &reading.rows()[0];
    let wanted = [
        ("gpu_clock_mhz", 1040.0),
        ("mem_clock_mhz", 687.0),
        ("temperature_c", 81.75),
        ("temperature_soc_c", 71.0),
        ("throttle_status", 96.0),
        ("throttled", 1.0),
    ];
    for (column, wanted) in wanted {
        assert_eq!(value(row, column), Some(wanted), "{column}");
    }
    // Of 2.x neither the unit of power nor that of activity is known without hwmon and gpu_busy_percent.
    assert_eq!((value(row, "power_w"), value(row, "utilization_pct")), (None, None));
}

#[test]
fn the_power_of_chips_that_take_seconds_to_tell_it_is_not_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let device = dir.path().join("class/drm/card0/device");
    write(&device, "uevent", "DRIVER=amdgpu\nPCI_ID=1002:67B1\n");
    write(&device, "hwmon/hwmon0/power1_average", "90000000\n");
    write(&device, "hwmon/hwmon0/temp1_input", "60000\n");
    let mut reading = Reading::default();
    only_probe(&machine(dir.path())).read(Due::ALL, &mut reading).unwrap();
    let row = &reading.rows()[0];
    assert_eq!((value(row, "power_w"), value(row, "temperature_c")), (None, Some(60.0)));
}

#[test]
fn doctor_is_told_what_each_machine_lacks() {
    let texts = |name| -> Vec<String> {
        let findings = amd_sysfs::find(&captured(name)).findings;
        findings.into_iter().map(|finding| finding.text).collect()
    };
    let has = |name, text: &str| texts(name).iter().any(|finding| finding.contains(text));
    assert!(has("hd7870", "bound to radeon"));
    assert!(has("vega10", "no hwmon"));
    assert!(has("rx580", "no gpu_metrics"));
    assert_eq!(texts("phoenix").len(), 1, "{:?}", texts("phoenix"));
    let nothing = tempfile::tempdir().unwrap();
    let found = amd_sysfs::find(&machine(nothing.path()));
    assert!(found.probes.is_empty());
    assert!(found.findings[0].text.starts_with("no AMD GPU in"));
}

#[test]
fn a_throttle_status_that_neither_heat_nor_power_bears_out_is_left_out() {
    const HOTSPOT: u64 = 1 << 36;
    const EDGE: u64 = 1 << 35;
    const PROCHOT: u64 = 1 << 47;
    const PPT0: u64 = 1;
    // Idle, as captured.
    let captured = first_reading("rx7600s");
    let row = &captured.rows()[0];
    assert_eq!((value(row, "throttled"), value(row, "throttle_status")), (Some(0.0), Some(0.0)));
    // Card, hotspot in °C, watts, status of the table, status told.
    for (name, hotspot, watts, status, told) in [
        ("rx7600s", 41, 5, HOTSPOT, 0),
        ("rx7600s", 41, 5, HOTSPOT | PPT0, 0),
        ("rx7600s", 41, 5, HOTSPOT | EDGE, 0),
        ("rx7600s", 41, 5, HOTSPOT | PROCHOT, PROCHOT),
        ("rx7800xt", 41, 20, HOTSPOT, 0),
        ("rx7800xt", 41, 210, HOTSPOT | PPT0, PPT0),
        ("rx7800xt", 89, 210, HOTSPOT, 0),
        ("rx7800xt", 90, 210, HOTSPOT, HOTSPOT),
        ("rx9070xt", 37, 20, HOTSPOT, 0),
        ("rx9070xt", 105, 20, HOTSPOT, HOTSPOT),
        ("rx6900xt", 41, 20, HOTSPOT, 0),
        ("rx6900xt", 95, 20, HOTSPOT | PPT0, HOTSPOT),
    ] {
        let dir = copy(name);
        let cards = dir.path().join("class/drm");
        let card = std::fs::read_dir(cards).unwrap().next().unwrap().unwrap().path();
        let fields = [(6, 2, hotspot), (22, 2, watts), (112, 8, status)];
        write(&card.join("device"), "gpu_metrics", table(120, 1, 3, &fields));
        let mut reading = Reading::default();
        only_probe(&machine(dir.path())).read(Due::ALL, &mut reading).unwrap();
        let row = &reading.rows()[0];
        let case = format!("{name}, {hotspot} °C, {watts} W, {status:x}");
        let is_told = row.get(id("throttle_status")) == Some(Value::Int(told.cast_signed()));
        assert!(is_told, "{case}: {:?}", row.get(id("throttle_status")));
        assert_eq!(value(row, "throttled"), Some(f64::from(u8::from(told != 0))), "{case}");
        assert_eq!(row.refused(), u64::from(told != status), "{case}: it is counted");
    }
}

#[test]
fn a_power_of_nothing_gives_way_to_the_file_of_the_same_quantity() {
    // Vega20's table v1.0 says 0 W at 97 % and 1725 MHz.
    let dir = copy("vega56");
    let device = dir.path().join("class/drm/card0/device");
    let fields = [(8, 8, 1), (16, 2, 61), (18, 2, 0), (28, 2, 97), (34, 2, 0), (54, 2, 1725), (68, 4, 0)];
    write(&device, "gpu_metrics", table(80, 1, 0, &fields));
    write(&device, "hwmon/hwmon4/power1_average", "187000000\n");
    write(&device, "hwmon/hwmon4/temp2_input", "66000\n");
    let mut probe = only_probe(&machine(dir.path()));
    let mut reading = Reading::default();
    for (due, microwatts, watts) in [(Due::ALL, 187_000_000, 187.0), (Due::default(), 190_000_000, 190.0)] {
        write(&device, "hwmon/hwmon4/power1_average", format!("{microwatts}\n"));
        reading.clear();
        probe.read(due, &mut reading).unwrap();
        let row = &reading.rows()[0];
        assert_eq!((value(row, "power_w"), value(row, "power_average_w")), (Some(watts), Some(watts)));
        assert_eq!(absence(row, "power_average_w"), None);
        assert_eq!(
            (value(row, "temperature_c"), value(row, "temperature_junction_c")),
            (Some(61.0), Some(66.0))
        );
        assert_eq!(row.refused(), 2, "0 W and 0 °C are counted");
    }
}

#[test]
fn what_other_values_of_the_first_row_contradict_is_left_out() {
    let dir = copy("rx6900xt");
    let device = dir.path().join("class/drm/card0/device");
    let hwmon = std::fs::read_dir(device.join("hwmon")).unwrap().next().unwrap().unwrap().path();
    write(&hwmon, "power1_cap_max", "330000000\n");
    write(&device, "gpu_metrics", table(120, 1, 3, &[(6, 2, 50), (22, 2, 1500)]));
    write(&device, "mem_info_vis_vram_used", "99999999999\n");
    write(&device, "mem_info_vis_vram_total", "17163091968\n");
    let mut reading = Reading::default();
    only_probe(&machine(dir.path())).read(Due::ALL, &mut reading).unwrap();
    let row = &reading.rows()[0];
    for column in ["power_w", "power_average_w", "visible_memory_used_mb"] {
        let told = (value(row, column), absence(row, column));
        assert_eq!(told, (None, Some(AbsenceReason::Invalid)), "{column}");
    }
    assert_eq!(value(row, "visible_memory_total_mb"), Some(16368.0));
}
