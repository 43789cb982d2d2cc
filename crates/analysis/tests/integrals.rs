//! Integrals equal the analytic ones; gaps, falls and clocks that step add nothing that was not seen.

use gpuvitals_analysis::integral::{EnergyMeter, Integral, Meter, Origin, Pace, Rise};
use proptest::prelude::*;

const S: i64 = 1_000_000_000;
const GAP: i64 = 5 * S;

#[test]
fn energy_is_the_integral_of_the_power() {
    // A load that swings 300 W ± 200 W every 2.5 s, read at 100 Hz for 50 whole swings: 300 W × 125 s.
    let mut energy = Integral::default();
    for tick in 0..=12_500_i32 {
        let t = f64::from(tick) / 100.0;
        let power = 300.0 + 200.0 * (std::f64::consts::TAU * t / 2.5).sin();
        energy.sample(i64::from(tick) * S / 100, power, GAP);
    }
    let wanted = 300.0 * 125.0;
    assert!((energy.total().unwrap_or(0.0) - wanted).abs() < wanted * 1e-6);
}

#[test]
fn a_gap_is_not_integrated() {
    let mut energy = Integral::default();
    for second in [0, 1, 2, 100, 101] {
        energy.sample(second * S, 100.0, GAP);
    }
    assert_eq!(energy.total(), Some(300.0));
}

#[test]
fn late_samples_and_steps_of_the_clock_count_no_time_twice() {
    let mut energy = Integral::default();
    for second in [10, 11, 10, 11, 12] {
        energy.sample(second * S, 100.0, GAP);
    }
    assert_eq!(energy.total(), Some(200.0), "a late sample is left out");
    for second in [3_612, 3_613, 13, 14] {
        energy.sample(second * S, 100.0, GAP);
    }
    assert_eq!(energy.total(), Some(400.0), "a step forth and one back: one second each beside them");
}

#[test]
fn a_counter_that_falls_was_reset_and_takes_nothing_away() {
    let mut rise = Rise::default();
    assert_eq!(rise.total(), None);
    for (second, value) in [(0, 5_000.0), (1, 5_100.0), (2, 40.0), (3, 90.0), (2, 1.0)] {
        rise.read(second * S, value, GAP);
    }
    assert_eq!((rise.total(), rise.falls()), (Some(150.0), 1));
}

#[test]
fn a_counter_takes_over_from_the_integral_without_counting_twice() {
    let mut throttled = Meter::default();
    assert_eq!(throttled.total(), None);
    for second in 0..=10 {
        throttled.sample(second * S, 1.0, GAP);
    }
    throttled.read(10 * S, 777.0, GAP);
    for second in 11..=20_i32 {
        throttled.sample(i64::from(second) * S, 1.0, GAP);
        throttled.read(i64::from(second) * S, 777.0 + 0.5 * f64::from(second - 10), GAP);
    }
    assert_eq!(throttled.total(), Some(15.0));
}

/// Energy after so many seconds at 300 W, with a counter that says this much after each.
fn energy(seconds: std::ops::RangeInclusive<i32>, counter: impl Fn(f64) -> f64) -> EnergyMeter {
    let mut energy = EnergyMeter::default();
    for second in seconds {
        energy.sample(i64::from(second) * S, 300.0, GAP);
        energy.read(i64::from(second) * S, 5e6 + counter(f64::from(second)), GAP);
    }
    energy
}

#[test]
fn a_counter_that_agrees_with_the_power_is_believed() {
    let told = |energy: &EnergyMeter| (energy.total(), energy.origin());
    assert_eq!(told(&EnergyMeter::default()), (None, None));
    // Not the same, as no two sensors are; the counter is the better one.
    let counted = energy(0..=600, |second| 200.0 * second);
    assert_eq!(told(&counted), (Some(120_000.0), Some(Origin::Counter)));
    let reset = energy(0..=600, |second| 300.0 * (second % 100.0) - second);
    assert_eq!(reset.origin(), Some(Origin::Counter), "a counter that begins anew is no liar");
    let mut idle = EnergyMeter::default();
    for second in 0..=600 {
        idle.sample(second * S, 0.5, GAP);
        idle.read(second * S, 0.0, GAP);
    }
    assert_eq!(idle.origin(), Some(Origin::Counter), "half a watt refutes nobody");
    let mut asleep = EnergyMeter::default();
    for second in (0..30).chain(1_000..1_030).chain(2_000..2_100_i32) {
        asleep.sample(i64::from(second) * S, 300.0, GAP);
        asleep.read(i64::from(second) * S, 300.0 * f64::from(second), GAP);
    }
    assert_eq!(told(&asleep), (Some(300.0 * 2_099.0), Some(Origin::Counter)), "it saw what nobody sampled");
}

#[test]
fn a_counter_that_stands_still_or_runs_at_another_rate_is_left_for_the_integral() {
    let still = energy(0..=600, |_| 0.0);
    assert_eq!((still.total(), still.origin()), (Some(180_000.0), Some(Origin::Integrated)));
    let slow = energy(0..=600, |second| 300.0 / 65.5 * second);
    let off = slow.total().unwrap_or(0.0) - 180_000.0;
    assert!(off.abs() < 1e-6, "{off}");
    // What a fast one counted too much before it was found out stays, for a total never falls.
    let fast = energy(0..=600, |second| 300.0 * 65.5 * second);
    let wanted = 60.0 * 300.0 * 65.5 + 540.0 * 300.0;
    assert_eq!((fast.total(), fast.origin()), (Some(wanted), Some(Origin::Integrated)));
}

#[test]
fn energy_needs_no_counter_and_no_power() {
    let mut integrated = EnergyMeter::default();
    let mut counted = EnergyMeter::default();
    for second in 0..=100_i32 {
        integrated.sample(i64::from(second) * S, 300.0, GAP);
        counted.read(i64::from(second) * S, 300.0 * f64::from(second), GAP);
    }
    assert_eq!((integrated.total(), integrated.origin()), (Some(30_000.0), Some(Origin::Integrated)));
    assert_eq!((counted.total(), counted.origin()), (Some(30_000.0), Some(Origin::Counter)));
}

#[test]
fn a_pace_is_learnt_and_an_outage_is_no_habit() {
    let mut pace = Pace::new(S);
    assert_eq!(pace.limit_ns(), 5 * S);
    pace.step(S / 1_000);
    assert_eq!(pace.limit_ns(), 5 * S, "seconds are no gap at any rate");
    for _ in 0..2 {
        pace.step(30 * S);
    }
    assert_eq!(pace.limit_ns(), 150 * S);
    pace.step(S);
    pace.step(600 * S);
    assert_eq!(pace.limit_ns(), 40 * S);
    pace.step(S);
    assert_eq!(pace.limit_ns(), 5 * S);
}

proptest! {
    #[test]
    fn totals_never_fall(readings in proptest::collection::vec((-20_i64..2_000, 0.0_f64..1e6), 1..200)) {
        let (mut integral, mut rise) = (Integral::default(), Rise::default());
        let mut energy = EnergyMeter::default();
        let (mut integrated, mut risen, mut used) = (0.0, 0.0, 0.0);
        let mut at = 0;
        for (distance_ms, value) in readings {
            at += distance_ms * 1_000_000;
            integral.sample(at, value, GAP);
            rise.read(at, value, GAP);
            prop_assert!(integral.total() >= Some(integrated) && rise.total() >= Some(risen));
            integrated = integral.total().unwrap_or(0.0);
            risen = rise.total().unwrap_or(0.0);
            energy.sample(at, value % 700.0, GAP);
            energy.read(at, value, GAP);
            prop_assert!(energy.total() >= Some(used));
            used = energy.total().unwrap_or(0.0);
        }
    }
}
