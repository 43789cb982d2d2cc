//! Whole texts of one small machine, in both formats and all dialects; `UPDATE=1` writes them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::catalogue::{Series, by_column};
use gpuvitals_core::figures::{Family, Format, Kind, render};
use gpuvitals_core::{Absence, AbsenceReason, IdentityColumn};
use gpuvitals_exposition::{Compat, DeviceStatus, Exposition};

use crate::fleet::{NOON, S, amd, batch, everything, exposition, host, identity, nvidia, text, up};
use crate::reader;

/// A minute of one H100, one MI300X partition and their host.
fn observed(set: Series, compat: Compat) -> Exposition {
    let mut exposition = exposition(set, compat);
    for second in 0..=60 {
        let at = NOON - 60 * S + second * S;
        let load = if second % 10 < 5 { 1.0 } else { 0.0 };
        let tenths = f64::from(i32::try_from(second).unwrap()) / 10.0;
        exposition.observe(&batch(
            &nvidia(),
            &[(
                at,
                &[
                    ("utilization_pct", 97.5 * load),
                    ("power_w", 71.483 + 600.0 * load),
                    ("memory_used_mb", 70_123.0),
                    ("memory_total_mb", 81_559.0),
                    ("memory_free_mb", 10_884.0),
                    ("memory_reserved_mb", 552.0),
                    ("memory_used_pct", 85.9783),
                    ("temperature_c", 41.0 + tenths),
                    ("gpu_clock_mhz", 345.0 + 1_635.0 * load),
                    ("sm_clock_mhz", 345.0 + 1_635.0 * load),
                    ("mem_clock_mhz", 2_619.0),
                    ("throttled", load),
                    ("throttle_reasons", 4.0 * load),
                    ("throttled_power_ns", 5e9 + 2.5e8 * tenths),
                    ("energy_mj", 322_435_711e3 + 3_714_830.0 * tenths),
                    ("pcie_replays", 3.0),
                    ("ecc_uncorrected_volatile", 0.0),
                    ("mig_mode", 0.0),
                    ("xid_count", 0.0),
                ],
            )],
        ));
        exposition.observe(&batch(
            &amd(),
            &[(
                at,
                &[
                    ("utilization_pct", 100.0 - 50.0 * load),
                    ("power_w", 750.0),
                    ("memory_used_mb", 100_000.0),
                    ("memory_total_mb", 196_592.0),
                    ("temperature_junction_c", 81.0),
                    ("gpu_clock_mhz", 2_100.0),
                    ("throttle_sample_count", 1_000.0 + 1_000.0 * tenths),
                    ("throttle_ppt_count", 10.0 + 250.0 * tenths),
                    ("throttle_hbm_thermal_count", 0.0),
                    ("ras_uncorrected", 1.0),
                    ("voltage_gfx_mv", 987.0),
                ],
            )],
        ));
        exposition.observe(&batch(
            &host(),
            &[(at, &[("cpu_pct", 12.5), ("memory_mb", 64_000.0), ("load1", 3.25), ("ctx_switches", 1e9)])],
        ));
    }
    let absent = batch(&amd(), &[(NOON, &[("power_w", 750.0)])]).with_absences(vec![Absence {
        gpu: amd().key().unwrap(),
        metric: by_column("fan_speed_pct").unwrap(),
        reason: AbsenceReason::NotSupported,
        count: 7,
    }]);
    exposition.observe(&absent);
    exposition
}

fn devices() -> Vec<DeviceStatus> {
    let lost = identity(
        2,
        &[
            (IdentityColumn::Uuid, "GPU-lost"),
            (IdentityColumn::Vendor, "nvidia"),
            (IdentityColumn::Job, "4711"),
        ],
    );
    vec![
        DeviceStatus { update_interval: Some(Duration::from_millis(100)), ..up(&nvidia()) },
        up(&amd()),
        DeviceStatus {
            up: false,
            reason: Some(AbsenceReason::Gone),
            since_ns: NOON - 3_599 * S,
            ..up(&lost)
        },
        up(&host()),
    ]
}

fn own() -> Vec<Family> {
    vec![
        Family::new("gpuvitals_build_info", Kind::Info, "The program.").by("version", [("0.1.0", 1.0)]),
        Family::new("gpuvitals_read_seconds_total", Kind::Counter, "Time spent reading.")
            .by("gpu", [("0", 0.0125), ("1", f64::NAN)]),
    ]
}

#[test]
fn texts_are_as_they_were() {
    let cases = [
        ("basic.prom", Series::Basic, Compat::Off, Format::Prometheus),
        ("standard.prom", Series::Standard, Compat::Off, Format::Prometheus),
        ("standard.openmetrics", Series::Standard, Compat::Off, Format::OpenMetrics),
        ("all.prom", Series::All, Compat::Off, Format::Prometheus),
        ("dcgm.prom", Series::Basic, Compat::Dcgm, Format::Prometheus),
        ("dcgm-legacy.prom", Series::Basic, Compat::DcgmLegacy, Format::Prometheus),
        ("both.prom", Series::Basic, Compat::Both, Format::Prometheus),
        ("both.openmetrics", Series::Basic, Compat::Both, Format::OpenMetrics),
    ];
    let mut stale = Vec::new();
    for (name, set, compat, format) in cases {
        let found = text(&mut observed(set, compat), format, NOON + S / 2, &devices(), &own());
        if !is_golden(name, format, &found) {
            stale.push(name);
        }
    }
    assert!(stale.is_empty(), "{stale:?}: {AGAIN}");
}

#[test]
fn the_typed_families_hold_the_samples_of_the_text() {
    for compat in [Compat::Off, Compat::Both] {
        let mut exposition = observed(Series::All, compat);
        let text = text(&mut exposition, Format::Prometheus, NOON + S / 2, &devices(), &[]);
        let typed = render(&exposition.families(NOON + S / 2, &devices()));
        let typed = String::from_utf8(typed).unwrap();
        let samples = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
        };
        assert_eq!(samples(&text), samples(&typed));
    }
}

#[test]
fn a_family_goes_under_the_names_of_the_conventions_where_its_row_has_one() {
    let families = observed(Series::All, Compat::Off).families(NOON + S / 2, &devices());
    let otel = |name: &str| families.iter().find(|family| family.name == name).unwrap().otel;
    assert_eq!(otel("gpu_power_watts").unwrap().name, "hw.power");
    assert_eq!(otel("gpu_utilization_ratio").unwrap().attribute, Some(("hw.gpu.task", "general")));
    assert_eq!(otel("gpu_energy_joules_total").unwrap().name, "hw.energy");
    assert_eq!(otel("host_memory_used_bytes").unwrap().name, "system.memory.usage");
    for own in ["gpu_up", "gpu_power_watts_window", "gpu_busy_seconds_total"] {
        assert_eq!(otel(own), None, "{own}");
    }
}

const AGAIN: &str = "run `UPDATE=1 cargo test -p gpuvitals-exposition --test exposition` and look";

fn is_golden(name: &str, format: Format, found: &str) -> bool {
    reader::read(format, found.as_bytes());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exposition/goldens").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    std::fs::read_to_string(&path).unwrap_or_default() == found
}

/// The names and heads of all there can be; `promtool check metrics` has nothing to say about this text.
#[test]
fn every_family_is_as_it_was() {
    let mut exposition = exposition(Series::All, Compat::Off);
    for second in 0..=60 {
        exposition.observe(&everything(&nvidia(), NOON + second * S));
        exposition.observe(&everything(&host(), NOON + second * S));
    }
    let found = text(&mut exposition, Format::Prometheus, NOON + 60 * S, &devices()[..1], &[]);
    assert!(is_golden("every.prom", Format::Prometheus, &found), "{AGAIN}");
}

#[test]
fn a_changed_holder_is_shown_at_the_next_scrape() {
    let mut exposition = observed(Series::Basic, Compat::Dcgm);
    let before = text(&mut exposition, Format::Prometheus, NOON, &devices(), &[]);
    assert!(before.contains(r#"pod="train-0""#));
    let mut free = (*nvidia()).clone();
    for column in [IdentityColumn::Pod, IdentityColumn::Namespace, IdentityColumn::Container] {
        free.set(column, "").unwrap();
    }
    let after = text(&mut exposition, Format::Prometheus, NOON, &[up(&Arc::new(free))], &[]);
    assert!(!after.contains("pod=") && !after.contains("gpu_attribution_info"));
    assert!(after.contains("DCGM_FI_DEV_POWER_USAGE") || after.contains("DCGM_FI_DEV_BOARD_POWER_WATTS"));
}
