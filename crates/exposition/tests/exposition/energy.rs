//! Energy on scripted profiles, as the agent totals it and as `record` sums it up: the same rows go to both.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    reason = "small numbers of a test, which fails by panicking"
)]

use std::time::Duration;

use gpuvitals_analysis::summary::Summary;
use gpuvitals_core::catalogue::Series;
use gpuvitals_exposition::{Compat, Exposition, ExpositionConfig};

use crate::fleet::{NOON, Row, S, batch, exposition, nvidia, up};
use crate::scrape::{scrape, value};

/// Power in watts at a time in seconds.
type Profile = (&'static str, fn(f64) -> f64);

const PROFILES: [Profile; 4] = [("sine", sine), ("square", square), ("spikes", spikes), ("random", random)];

fn sine(t: f64) -> f64 {
    250.0 + 200.0 * (std::f64::consts::TAU * t / 2.7).sin()
}

fn square(t: f64) -> f64 {
    if t.rem_euclid(3.1) < 1.3 { 400.0 } else { 60.0 }
}

/// 40 ms of 600 W, some three times a second.
fn spikes(t: f64) -> f64 {
    if t.rem_euclid(0.3371) < 0.04 { 600.0 } else { 50.0 }
}

/// Another power every half second.
fn random(t: f64) -> f64 {
    let mut bits = (t * 2.0).floor() as u64 ^ 0x9e37_79b9_7f4a_7c15;
    for _ in 0..3 {
        bits = (bits ^ (bits >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    50.0 + 400.0 * ((bits >> 40) as f64 / (1_u64 << 24) as f64)
}

/// The counter's value, from the true energy since the start, and the part of it that came after 101 s.
type Shows = fn(f64, f64) -> Option<f64>;
type Counter = (&'static str, bool, Shows);

/// Name, whether it is accepted at the end, and its value.
const COUNTERS: [Counter; 9] = [
    ("none", false, |_, _| None),
    ("good", true, |j, _| Some(5e6 + j)),
    ("reset", true, |j, after| Some(if after > 0.0 { after } else { 5e6 + j })),
    ("1.2 times", false, |j, _| Some(5e6 + 1.2 * j)),
    ("twice", false, |j, _| Some(2.0 * j)),
    ("stuck", false, |_, _| Some(5e6)),
    ("jump", true, |j, after| Some(j + if after > 0.0 { 2e9 } else { 0.0 })),
    ("in mJ", false, |j, _| Some(1e3 * j)),
    ("in kJ", false, |j, _| Some(j / 1e3)),
];

/// Asleep from 40 s to 43 s, when it draws nothing; awake and unreadable from 70 s to 72 s.
const ASLEEP: std::ops::Range<f64> = 40.0..43.0;
const LOST: std::ops::Range<f64> = 70.0..72.0;
const UNOBSERVED_S: f64 = 5.0;

struct Outcome {
    agent: f64,
    record: f64,
    unobserved: f64,
    gaps_s: f64,
    agent_counts: bool,
    /// True energy while it was observed, and while it was not.
    truth: f64,
    missed: f64,
}

/// Rows at this rate, in batches of a second; the counter is read once a second.
fn run(power: fn(f64) -> f64, counter: Shows, hz: i64, seconds: i64) -> Outcome {
    let mut exposition = exposition(Series::Standard, Compat::Off);
    let mut summary = Summary::new(Duration::from_nanos((S / hz).unsigned_abs()), Duration::from_secs(1));
    let (mut truth, mut missed, mut after, mut was_down) = (0.0, 0.0, 0.0, false);
    let fine = 10_000 / hz;
    for second in 0..seconds {
        let mut rows: Vec<(i64, Vec<(&str, f64)>)> = Vec::new();
        for tick in 0..hz {
            let t = second as f64 + tick as f64 / hz as f64;
            let (asleep, lost) = (ASLEEP.contains(&t), LOST.contains(&t));
            let at_ns = NOON + second * S + tick * S / hz;
            if asleep || lost {
                if !was_down {
                    rows.push((at_ns, Vec::new()));
                }
            } else {
                let mut values = vec![("power_w", power(t))];
                if tick == 0
                    && let Some(joules) = counter(truth + missed, after)
                {
                    values.push(("energy_mj", 1e3 * joules));
                }
                rows.push((at_ns, values));
            }
            was_down = asleep || lost;
            for part in 0..fine {
                let joules = power(t + (part as f64 + 0.5) / 10_000.0) / 10_000.0;
                match (asleep, lost) {
                    (true, _) => {}
                    (_, true) => missed += joules,
                    _ => truth += joules,
                }
                if t >= 101.0 {
                    after += joules;
                }
            }
        }
        let rows: Vec<Row<'_>> = rows.iter().map(|(at_ns, values)| (*at_ns, values.as_slice())).collect();
        if !rows.is_empty() {
            let batch = batch(&nvidia(), &rows);
            exposition.observe(&batch);
            summary.add(&batch);
        }
    }
    let samples = scrape(&mut exposition, NOON + seconds * S, &[up(&nvidia())]);
    let figure = |name| value(&samples, name, &[]).unwrap();
    let gpu = &summary.gpus()[0];
    Outcome {
        agent: figure("gpu_energy_joules_total"),
        record: gpu.energy.as_ref().unwrap().joules,
        unobserved: figure("gpu_unobserved_seconds_total"),
        gaps_s: gpu.gaps_s,
        agent_counts: value(&samples, "gpu_info", &[("energy_source", "counter")]).is_some(),
        truth,
        missed,
    }
}

#[test]
fn a_slow_rate_has_all_of_its_energy_from_the_first_row_on() {
    for seconds in [10, 100] {
        let interval = Duration::from_secs(seconds);
        let (set, compat, window) = (Series::Standard, Compat::Off, Duration::from_secs(30));
        let mut exposition = Exposition::new(ExpositionConfig { set, compat, window, interval });
        let mut summary = Summary::new(interval, interval);
        let step = i64::try_from(seconds).unwrap() * S;
        let rows: Vec<Row<'_>> =
            (0..=10).map(|n| (NOON + n * step, [("power_w", 100.0)].as_slice())).collect();
        let batch = batch(&nvidia(), &rows);
        exposition.observe(&batch);
        summary.add(&batch);
        let samples = scrape(&mut exposition, NOON + 10 * step, &[up(&nvidia())]);
        let agent = value(&samples, "gpu_energy_joules_total", &[]).unwrap();
        let record = summary.gpus()[0].energy.as_ref().unwrap().joules;
        let wanted = 1_000.0 * seconds as f64;
        assert!(
            (agent - wanted).abs() < 1e-6 && (record - wanted).abs() < 1e-6,
            "{agent} {record} of {wanted}"
        );
    }
}

fn check(what: &str, (believed, power, counter): (bool, fn(f64) -> f64, Shows), hz: i64, seconds: i64) {
    let found = run(power, counter, hz, seconds);
    let wanted = found.truth + if believed { found.missed } else { 0.0 };
    for (who, joules) in [("agent", found.agent), ("record", found.record)] {
        assert!((joules - wanted).abs() <= 0.01 * wanted, "{what}: {who} says {joules} J for {wanted} J");
    }
    assert_eq!(found.agent_counts, believed, "{what}: the source of the energy");
    // From the last sample before to the first after.
    let wanted = UNOBSERVED_S + 2.0 / hz as f64;
    for (who, seconds) in [("agent", found.unobserved), ("record", found.gaps_s)] {
        assert!((seconds - wanted).abs() < 2e-3, "{what}: {who} says {seconds} s unobserved for {wanted} s");
    }
}

#[test]
fn energy_is_within_a_hundredth_of_the_truth_whatever_the_counter_says() {
    let is_long = std::env::var_os("GPUVITALS_TEST_LONG").is_some();
    for (profile, power) in PROFILES {
        for (name, believed, counter) in COUNTERS {
            // Samples 100 ms apart miss spikes of 40 ms.
            let rates: &[(i64, i64)] = match (profile, name) {
                _ if is_long && profile == "spikes" => &[(100, 600), (1_000, 150)],
                _ if is_long => &[(10, 600), (100, 600), (1_000, 150)],
                ("spikes", "good" | "twice") => &[(100, 200), (1_000, 150)],
                ("spikes", _) => &[(100, 200)],
                _ => &[(10, 200)],
            };
            for &(hz, seconds) in rates {
                check(
                    &format!("{profile}, counter {name}, {hz} Hz"),
                    (believed, power, counter),
                    hz,
                    seconds,
                );
            }
        }
    }
}

#[test]
fn between_the_readings_of_a_counter_the_power_tells() {
    let mut counted_from = f64::INFINITY;
    let mut exposition = exposition(Series::Standard, Compat::Off);
    for tick in 0..600_i32 {
        let (at_ns, t) = (NOON + i64::from(tick) * S / 10, f64::from(tick) / 10.0);
        // The counter is read once a second; it shows 3 % more than the power.
        let values = [("power_w", 200.0), ("energy_mj", 5e9 + 206e3 * t)];
        let values = if tick % 10 == 0 { &values[..] } else { &values[..1] };
        exposition.observe(&batch(&nvidia(), &[(at_ns, values)]));
        let samples = scrape(&mut exposition, at_ns, &[up(&nvidia())]);
        let joules = value(&samples, "gpu_energy_joules_total", &[]).unwrap();
        if value(&samples, "gpu_info", &[("energy_source", "counter")]).is_some() {
            counted_from = counted_from.min(t);
        }
        // Once it is believed it was right from its first reading on.
        let wanted = if t < counted_from { 200.0 * t } else { 206.0 * t };
        assert!((joules - wanted).abs() <= 6.0, "{joules} J for {wanted} J after {t} s");
    }
    assert!((10.0..12.0).contains(&counted_from), "{counted_from}");
}

#[test]
fn totals_are_those_of_the_decimals_that_were_read() {
    let (set, compat, window) = (Series::Standard, Compat::Off, Duration::from_secs(30));
    let interval = Duration::from_secs(1);
    let mut exposition = Exposition::new(ExpositionConfig { set, compat, window, interval });
    let values = [("power_w", 100.3), ("utilization_pct", 71.1)];
    let rows: Vec<Row<'_>> = (0..=1_000).map(|second| (NOON + second * S, &values[..])).collect();
    exposition.observe(&batch(&nvidia(), &rows));
    let shown = scrape(&mut exposition, NOON + 1_000 * S, &[up(&nvidia())]);
    for (name, wanted) in [("gpu_energy_joules_total", 100_300.0), ("gpu_busy_seconds_total", 711.0)] {
        let found = value(&shown, name, &[]).unwrap();
        assert!((found - wanted).abs() <= 1e-9 * wanted, "{name}: {found}, not {wanted}");
    }
}

#[test]
fn sleep_is_not_filled_however_short_it_is() {
    let mut exposition = exposition(Series::Standard, Compat::Off);
    // Seven times 5 s awake at 80 W and 3 s asleep, at 10 Hz.
    let mut samples = 0.0;
    for round in 0..7 {
        let awake = (0..50).map(|tick| {
            (NOON + round * 8 * S + tick * S / 10, &[("power_w", 80.0), ("utilization_pct", 100.0)][..])
        });
        let rows: Vec<Row<'_>> = awake.chain([(NOON + round * 8 * S + 5 * S, &[][..])]).collect();
        exposition.observe(&batch(&nvidia(), &rows));
        samples += 50.0;
    }
    let shown = scrape(&mut exposition, NOON + 53 * S, &[up(&nvidia())]);
    let figure = |name| value(&shown, name, &[]).unwrap();
    assert!((figure("gpu_energy_joules_total") - 7.0 * 4.9 * 80.0).abs() < 1e-6);
    assert!((figure("gpu_busy_seconds_total") - 7.0 * 4.9).abs() < 1e-6);
    assert!((figure("gpu_unobserved_seconds_total") - 6.0 * 3.1).abs() < 1e-6);
    assert_eq!(figure("gpu_samples_total"), samples, "that it gives nothing is no sample");
    assert_eq!(figure("gpu_last_sample_timestamp_seconds"), (NOON / S) as f64 + 52.9);
}
