//! Contents and omissions of a scrape.

use std::time::Duration;

use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::{Series, Table};
use gpuvitals_core::figures::Format;
use gpuvitals_core::{AbsenceReason, BatchBuilder, IdentityColumn, MetricId, Origin};
use gpuvitals_exposition::{Compat, DeviceStatus, Exposition};

use crate::fleet::{NOON, S, amd, batch, cores, everything, exposition, host, identity, nvidia, text, up};
use crate::reader::{Sample, read};

pub(crate) fn scrape(exposition: &mut Exposition, now_ns: i64, devices: &[DeviceStatus]) -> Vec<Sample> {
    read(Format::Prometheus, text(exposition, Format::Prometheus, now_ns, devices, &[]).as_bytes())
}

/// The value of the series with this name and these labels among others.
pub(crate) fn value(samples: &[Sample], name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let has = |sample: &&Sample| {
        sample.name == name
            && labels.iter().all(|(label, text)| sample.labels.get(*label).is_some_and(|found| found == text))
    };
    samples.iter().find(has).map(|sample| sample.value)
}

/// A fully equipped GPU, held by a pod and a job, with every column read and two windows passed.
fn full(set: Series, compat: Compat) -> (Exposition, Vec<DeviceStatus>) {
    let mut everyone = (*amd()).clone();
    for column in
        [IdentityColumn::Pod, IdentityColumn::Namespace, IdentityColumn::Container, IdentityColumn::Job]
    {
        everyone.set(column, "x").unwrap();
    }
    let everyone = std::sync::Arc::new(everyone);
    let mut exposition = exposition(set, compat);
    for second in 0..=90 {
        exposition.observe(&everything(&everyone, NOON + second * S));
    }
    let status = DeviceStatus { update_interval: Some(Duration::from_secs(1)), ..up(&everyone) };
    (exposition, vec![status])
}

#[test]
fn the_sets_stay_within_their_budgets_with_all_that_a_gpu_can_have() {
    for (set, at_most) in [(Series::Basic, 50), (Series::Standard, 100), (Series::All, 400)] {
        let (mut exposition, devices) = full(set, Compat::Off);
        let mut samples = scrape(&mut exposition, NOON + 90 * S, &devices);
        assert!(samples.iter().all(|sample| sample.name.starts_with("gpu_")));
        samples.retain(|sample| sample.name != "gpu_condition");
        assert!((at_most / 2..=at_most).contains(&samples.len()), "{set}: {} series", samples.len());
    }
}

#[test]
fn a_spike_between_two_scrapes_is_the_maximum_of_its_window() {
    let mut exposition = exposition(Series::Standard, Compat::Off);
    for second in 0..=30 {
        let ticks: Vec<i64> = (0..100).map(|tick| NOON + second * S + tick * S / 100).collect();
        let spike = NOON + 7 * S + 30 * S / 100;
        let rows: Vec<_> = ticks
            .iter()
            .map(|&at| (at, if at == spike { &[("power_w", 693.25)][..] } else { &[("power_w", 71.5)][..] }))
            .collect();
        exposition.observe(&batch(&nvidia(), &rows));
    }
    let samples = scrape(&mut exposition, NOON + 31 * S, &[up(&nvidia())]);
    let window = |stat| value(&samples, "gpu_power_watts_window", &[("stat", stat)]);
    assert_eq!((window("min"), window("max")), (Some(71.5), Some(693.25)));
    assert_eq!(value(&samples, "gpu_power_watts", &[]), Some(71.5), "the last value says nothing of it");
    let p99 = window("p99").unwrap();
    assert!((p99 - 71.5).abs() <= 71.5 * 0.01, "{p99}");
    assert_eq!(
        value(&samples, "gpu_window_end_timestamp_seconds", &[]),
        Some(1_752_840_030.0),
        "the grid of the wall clock"
    );
}

#[test]
fn a_sample_that_comes_after_its_window_was_closed_is_counted_as_late() {
    let mut exposition = exposition(Series::Standard, Compat::Off);
    let at = |second: i64, watts| batch(&nvidia(), &[(NOON + second * S, &[("power_w", watts)])]);
    for (second, watts) in [(0, 100.0), (31, 100.0), (29, 700.0), (32, 100.0)] {
        exposition.observe(&at(second, watts));
    }
    assert_eq!(exposition.late_samples(), 1);
    let samples = scrape(&mut exposition, NOON + 32 * S, &[up(&nvidia())]);
    assert_eq!(value(&samples, "gpu_power_watts_window", &[("stat", "max")]), Some(100.0));
    assert_eq!(value(&samples, "gpu_power_watts", &[]), Some(100.0), "and is not the latest");
}

#[test]
fn energy_is_the_integral_of_a_made_up_load_and_busy_time_of_its_utilisation() {
    // 100 W, and 600 W with full utilisation in the second half of each second; 60 s at 100 Hz, in batches of a second.
    let mut exposition = exposition(Series::Standard, Compat::Off);
    for second in 0..60 {
        let rows: Vec<_> = (0..100)
            .map(|tick| {
                let busy = tick >= 50;
                let values: &[(&str, f64)] = if busy {
                    &[("power_w", 600.0), ("utilization_pct", 100.0)]
                } else {
                    &[("power_w", 100.0), ("utilization_pct", 0.0)]
                };
                (NOON + second * S + tick * S / 100, values)
            })
            .collect();
        exposition.observe(&batch(&amd(), &rows));
    }
    let samples = scrape(&mut exposition, NOON + 60 * S, &[up(&amd())]);
    let joules = value(&samples, "gpu_energy_joules_total", &[]).unwrap();
    assert!((joules - 60.0 * 350.0).abs() < 4.0, "{joules}: off by half a sample's rise at the ends at most");
    let busy = value(&samples, "gpu_busy_seconds_total", &[]).unwrap();
    assert!((busy - 30.0).abs() < 0.01, "{busy}");
    assert_eq!(value(&samples, "gpu_info", &[("energy_source", "integrated")]), Some(1.0));
}

#[test]
fn a_counter_of_the_hardware_counts_from_the_start_and_survives_its_reset() {
    let mut exposition = exposition(Series::Standard, Compat::DcgmLegacy);
    let energies = (0..20_u32).map(|second| 5_000_000.0 + 300.0 * f64::from(second)).chain([12.0, 312.0]);
    for (second, joules) in (0..).zip(energies) {
        exposition.observe(&batch(
            &nvidia(),
            &[(NOON + second * S, &[("energy_mj", 1e3 * joules), ("power_w", 300.0)])],
        ));
    }
    let samples = scrape(&mut exposition, NOON + 21 * S, &[up(&nvidia())]);
    assert_eq!(value(&samples, "gpu_energy_joules_total", &[]), Some(21.0 * 300.0));
    assert_eq!(value(&samples, "gpu_info", &[("energy_source", "counter")]), Some(1.0));
    assert_eq!(
        value(&samples, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", &[]),
        Some(312_000.0),
        "DCGM's name has the counter itself, in mJ"
    );
}

#[test]
fn a_gpu_that_is_down_shows_why_and_none_of_its_old_values() {
    let (mut exposition, mut devices) = full(Series::All, Compat::Both);
    let now_ns = NOON + 91 * S;
    let before = scrape(&mut exposition, now_ns, &devices);
    devices[0] = DeviceStatus {
        up: false,
        stuck: true,
        reason: Some(AbsenceReason::TimedOut),
        since_ns: NOON + 90 * S,
        ..devices[0].clone()
    };
    let samples = scrape(&mut exposition, now_ns, &devices);
    let mut names: Vec<&str> = samples.iter().map(|sample| sample.name.as_str()).collect();
    names.dedup();
    assert_eq!(
        names,
        [
            "gpu_info",
            "gpu_attribution_info",
            "gpu_up",
            "gpu_down_reason",
            "gpu_state_change_timestamp_seconds",
            "gpu_last_sample_timestamp_seconds",
            "gpu_samples_total",
            "gpu_absent_total",
        ]
    );
    assert_eq!(value(&samples, "gpu_up", &[]), Some(0.0));
    assert_eq!(value(&samples, "gpu_down_reason", &[("reason", "stuck")]), Some(1.0));
    // And back: totals continue from their last values.
    devices[0] = DeviceStatus { up: true, stuck: false, reason: None, ..devices[0].clone() };
    let after = scrape(&mut exposition, now_ns, &devices);
    assert_eq!(before.len(), after.len());
}

#[test]
fn a_gpu_that_was_not_read_yet_is_starting() {
    let mut exposition = exposition(Series::Standard, Compat::Both);
    let samples = scrape(&mut exposition, NOON, &[DeviceStatus { up: false, ..up(&nvidia()) }]);
    assert_eq!(value(&samples, "gpu_down_reason", &[("reason", "starting")]), Some(1.0));
    assert_eq!(value(&samples, "gpu_last_sample_timestamp_seconds", &[]), None);
    let reasons = samples.iter().filter(|sample| sample.name == "gpu_down_reason");
    assert_eq!(reasons.count(), 1);
}

#[test]
fn a_value_that_is_not_read_any_more_goes_and_an_absent_one_never_comes() {
    let mut exposition = exposition(Series::Standard, Compat::Dcgm);
    for second in 0..60 {
        let at = NOON + second * S;
        // The utilisation is read for ten seconds only, the total only once: it is of the slow tier.
        let values: &[(&str, f64)] = if second < 10 {
            &[("power_w", 100.0), ("utilization_pct", 50.0)]
        } else {
            &[("power_w", 100.0)]
        };
        exposition.observe(&batch(&nvidia(), &[(at, values)]));
    }
    exposition.observe(&batch(&nvidia(), &[(NOON + 60 * S, &[("ecc_uncorrected_volatile", 0.0)])]));
    let at =
        |exposition: &mut Exposition, second: i64| scrape(exposition, NOON + second * S, &[up(&nvidia())]);
    let samples = at(&mut exposition, 60);
    assert_eq!(value(&samples, "gpu_power_watts", &[]), Some(100.0));
    assert_eq!(value(&samples, "gpu_utilization_ratio", &[]), None);
    assert_eq!(value(&samples, "DCGM_FI_DEV_GPU_UTIL_RATIO", &[]), None);
    assert_eq!(value(&samples, "gpu_temperature_celsius", &[]), None, "never read");
    assert_eq!(value(&samples, "gpu_power_watts_window", &[("stat", "max")]), Some(100.0));
    let samples = at(&mut exposition, 60 + 299);
    assert_eq!(value(&samples, "gpu_power_watts", &[]), None, "five minutes old");
    assert_eq!(value(&samples, "gpu_power_watts_window", &[]), None, "not the last window any more");
    assert_eq!(
        value(&samples, "gpu_ecc_errors_total", &[]),
        Some(0.0),
        "what is read every minute at most is good for five"
    );
    assert_eq!(value(&at(&mut exposition, 361), "gpu_ecc_errors_total", &[]), None);
}

#[test]
fn a_value_is_gone_with_the_row_that_lacks_it_and_back_with_the_next_that_has_it() {
    let mut exposition = exposition(Series::Standard, Compat::Off);
    let row = |second: i64, power: Result<i64, AbsenceReason>| {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let id = builder.add_identity(&nvidia());
        let row = builder.row(NOON + second * S, id);
        builder.set(row, MetricId::of("temperature_c"), Value::Int(50)).unwrap();
        match power {
            Ok(watts) => builder.set(row, MetricId::of("power_w"), Value::Int(watts)).unwrap(),
            Err(reason) => builder.absent(row, MetricId::of("power_w"), reason),
        }
        builder.finish(Origin::default(), 1).unwrap()
    };
    let shown = |exposition: &mut Exposition, second: i64| {
        let samples = scrape(exposition, NOON + second * S, &[up(&nvidia())]);
        assert_eq!(value(&samples, "gpu_temperature_celsius", &[]), Some(50.0));
        value(&samples, "gpu_power_watts", &[])
    };
    exposition.observe(&row(0, Ok(300)));
    assert_eq!(shown(&mut exposition, 0), Some(300.0));
    exposition.observe(&row(1, Err(AbsenceReason::TimedOut)));
    assert_eq!(shown(&mut exposition, 1), None, "it is not the value before");
    exposition.observe(&row(2, Ok(280)));
    assert_eq!(shown(&mut exposition, 2), Some(280.0));
    exposition.observe(&row(1, Err(AbsenceReason::TimedOut)));
    assert_eq!(shown(&mut exposition, 2), Some(280.0), "an absence that comes late is not the latest either");
    // A batch of three rows, of which the last has it.
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = builder.add_identity(&nvidia());
    for second in 3..6 {
        let row = builder.row(NOON + second * S, id);
        builder.set(row, MetricId::of("temperature_c"), Value::Int(50)).unwrap();
        if second < 5 {
            builder.absent(row, MetricId::of("power_w"), AbsenceReason::Invalid);
        } else {
            builder.set(row, MetricId::of("power_w"), Value::Int(260)).unwrap();
        }
    }
    exposition.observe(&builder.finish(Origin::default(), 1).unwrap());
    assert_eq!(shown(&mut exposition, 5), Some(260.0));
}

#[test]
fn what_is_read_rarely_stays_when_it_was_once_read_twice_in_a_row() {
    let mut exposition = exposition(Series::Standard, Compat::Off);
    // After an error everything is read at once: at 31 s, a second after its turn.
    for second in [0, 30, 31, 61] {
        exposition.observe(&batch(&nvidia(), &[(NOON + second * S, &[("ecc_uncorrected_volatile", 0.0)])]));
        for later in second..second + 30 {
            let samples = scrape(&mut exposition, NOON + later * S, &[up(&nvidia())]);
            assert_eq!(value(&samples, "gpu_ecc_errors_total", &[]), Some(0.0), "{later}");
        }
    }
}

#[test]
fn a_wall_clock_that_steps_blinds_nothing() {
    let mut exposition = exposition(Series::Standard, Compat::Off);
    let observe = |exposition: &mut Exposition, from: i64, seconds: std::ops::Range<i64>, watts: f64| {
        for second in seconds {
            exposition.observe(&batch(&nvidia(), &[(from + second * S, &[("power_w", watts)])]));
        }
    };
    observe(&mut exposition, NOON, 0..61, 100.0);
    let back = NOON - 7_200 * S;
    observe(&mut exposition, back, 0..61, 200.0);
    let samples = scrape(&mut exposition, back + 61 * S, &[up(&nvidia())]);
    assert_eq!(value(&samples, "gpu_power_watts", &[]), Some(200.0), "the new time is the time");
    assert_eq!(value(&samples, "gpu_power_watts_window", &[("stat", "max")]), Some(200.0));
    assert_eq!(value(&samples, "gpu_energy_joules_total", &[]), Some(60.0 * 100.0 + 60.0 * 200.0));
    observe(&mut exposition, NOON + 7_200 * S, 0..61, 300.0);
    let samples = scrape(&mut exposition, NOON + 7_261 * S, &[up(&nvidia())]);
    assert_eq!(value(&samples, "gpu_power_watts", &[]), Some(300.0));
    assert_eq!(value(&samples, "gpu_energy_joules_total", &[]), Some(60.0 * 600.0));
    assert!(value(&samples, "gpu_unobserved_seconds_total", &[]).unwrap() > 14_000.0);
}

#[test]
fn throttled_time_is_the_drivers_where_it_counts_it_and_integrated_where_not() {
    let mut exposition = exposition(Series::Standard, Compat::Off);
    let bits = identity(3, &[(IdentityColumn::Uuid, "rx"), (IdentityColumn::Vendor, "amd")]);
    for second in 0..=20_i32 {
        let at = NOON + i64::from(second) * S;
        let (held, elapsed) = (second < 10, f64::from(second));
        let heat = f64::from(1_u32 << 31) * 8.0; // bit 34: memory temperature
        exposition.observe(&batch(&bits, &[(at, &[("throttle_status", if held { heat } else { 0.0 })])]));
        exposition.observe(&batch(
            &nvidia(),
            &[(
                at,
                &[
                    ("throttled", f64::from(u8::from(held))),
                    ("throttle_reasons", 4.0),
                    ("throttled_power_ns", 7e12 + 2.5e8 * elapsed),
                ],
            )],
        ));
        // 30 of 100 steps at the power limit, 50 hot; the 32-bit counter wraps on the way. The state only
        // says that there were some.
        let steps = (4_294_966_000.0 + 100.0 * elapsed) % 4_294_967_296.0;
        exposition.observe(&batch(
            &amd(),
            &[(
                at,
                &[
                    ("throttled", 1.0),
                    ("throttle_sample_count", steps),
                    ("throttle_ppt_count", 30.0 * elapsed),
                    ("throttle_hbm_thermal_count", 50.0 * elapsed),
                    ("throttle_vr_thermal_count", 10.0 * elapsed),
                ],
            )],
        ));
    }
    let devices = [up(&nvidia()), up(&amd()), up(&bits)];
    let samples = scrape(&mut exposition, NOON + 20 * S, &devices);
    let throttled = |gpu, reason| {
        let total = value(&samples, "gpu_throttled_seconds_total", &[("gpu", gpu), ("reason", reason)]);
        total.map(|total| (total * 1e6).round() / 1e6)
    };
    assert_eq!((throttled("0", "power"), throttled("0", "any")), (Some(5.0), Some(10.0)));
    assert_eq!((throttled("3", "power"), throttled("3", "thermal")), (Some(0.0), Some(10.0)));
    assert_eq!((throttled("1", "power"), throttled("1", "thermal")), (Some(6.0), Some(10.0)));
    assert_eq!(throttled("1", "any"), Some(10.0));
}

#[test]
fn the_host_has_no_labels_and_vanishes_when_it_is_down() {
    let mut exposition = exposition(Series::Basic, Compat::Off);
    exposition.observe(&batch(&host(), &[(NOON, &[("cpu_pct", 12.5), ("load1", 3.25)])]));
    let samples = scrape(&mut exposition, NOON, &[]);
    assert_eq!(value(&samples, "host_cpu_utilization_ratio", &[]), Some(0.125));
    assert_eq!(value(&samples, "host_load_average", &[("window", "1m")]), Some(3.25));
    assert!(scrape(&mut exposition, NOON, &[DeviceStatus { up: false, ..up(&host()) }]).is_empty());
}

#[test]
fn each_cpu_has_a_series_until_it_is_offline() {
    let mut exposition = exposition(Series::Standard, Compat::Off);
    let share =
        |samples: &[Sample], core| value(samples, "host_cpu_core_utilization_ratio", &[("core", core)]);
    exposition.observe(&batch(&host(), &[(NOON, &[("cpu_pct", 12.5)])]));
    assert!(scrape(&mut exposition, NOON, &[]).iter().all(|sample| !sample.name.contains("core")));
    for second in 0..10 {
        let at = NOON + second * S;
        let all = [(at, "0", 25.0), (at, "2", 100.0), (at, "11", 0.0)];
        exposition.observe(&cores(if second < 3 { &all } else { &all[..2] }));
    }
    let samples = scrape(&mut exposition, NOON + 4 * S, &[up(&host())]);
    assert_eq!(["0", "2", "11"].map(|core| share(&samples, core)), [Some(0.25), Some(1.0), Some(0.0)]);
    assert_eq!(value(&samples, "host_cpu_utilization_ratio", &[]), Some(0.125), "the host's own is no sum");
    let samples = scrape(&mut exposition, NOON + 9 * S, &[up(&host())]);
    assert_eq!(["0", "2", "11"].map(|core| share(&samples, core)), [Some(0.25), Some(1.0), None]);
    assert!(scrape(&mut exposition, NOON + 9 * S, &[DeviceStatus { up: false, ..up(&host()) }]).is_empty());
}

#[test]
fn a_device_that_is_given_twice_or_sends_nothing_is_shown_once() {
    let mut exposition = exposition(Series::Standard, Compat::Both);
    exposition.observe(&everything(&nvidia(), NOON));
    let samples = scrape(&mut exposition, NOON, &[up(&nvidia()), up(&nvidia()), up(&amd())]);
    assert_eq!(samples.iter().filter(|sample| sample.name == "gpu_up").count(), 2);
    assert!(scrape(&mut exposition, NOON, &[]).is_empty(), "a GPU that is not there has no series");
}
