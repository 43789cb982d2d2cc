//! Integrals equal the analytic ones; gaps, falls and clocks that step add nothing that was not seen.

use gpuvitals_core::energy::Energy;
use gpuvitals_core::integral::{Integral, Pace, Rise, RunningTotal};
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
    assert_eq!(rise.total(), Some(150.0));
}

#[test]
fn a_counter_takes_over_from_the_integral_without_counting_twice() {
    let mut throttled = RunningTotal::default();
    assert_eq!(throttled.total(), None);
    for second in 0..=10 {
        throttled.state(second * S, 1.0, GAP);
    }
    throttled.read(10 * S, 777.0, GAP);
    for second in 11..=20_i32 {
        throttled.state(i64::from(second) * S, 1.0, GAP);
        throttled.read(i64::from(second) * S, 777.0 + 0.5 * f64::from(second - 10), GAP);
    }
    assert_eq!(throttled.total(), Some(15.0));
}

#[test]
fn what_is_known_to_be_lost_is_not_bridged_however_short_it_is() {
    let (mut energy, mut throttled) = (Integral::default(), RunningTotal::default());
    for second in 0..=6 {
        if second == 3 {
            energy.lose();
            throttled.lose();
        }
        energy.sample(second * S, 100.0, GAP);
        throttled.state(second * S, 1.0, GAP);
    }
    assert_eq!((energy.total(), throttled.total()), (Some(500.0), Some(5.0)));
    energy.lose();
    assert_eq!(energy.total(), Some(500.0), "nothing is taken away");
}

#[test]
fn a_pace_is_learnt_and_an_outage_is_no_habit() {
    let mut pace = Pace::new(S);
    assert_eq!(pace.limit_ns(), 5 * S);
    pace.step(S / 1_000);
    assert_eq!(pace.limit_ns(), 5 * S, "never less than at the start");
    for _ in 0..2 {
        pace.step(30 * S);
    }
    assert_eq!(pace.limit_ns(), 150 * S);
    for _ in 0..4 {
        pace.step(S);
    }
    pace.step(600 * S);
    assert_eq!(pace.limit_ns(), 40 * S);
    for limit in [40, 40, 40, 5] {
        pace.step(S);
        assert_eq!(pace.limit_ns(), limit * S);
    }
    // Two sources of one GPU.
    for _ in 0..4 {
        pace.step(3 * S);
        pace.step(57 * S);
    }
    assert_eq!(pace.limit_ns(), 285 * S);
    assert_eq!(Pace::new(0).limit_ns(), 5 * S / 2, "two seconds are no gap at any rate");
}

proptest! {
    #[test]
    fn totals_never_fall(readings in proptest::collection::vec((-20_i64..2_000, 0.0_f64..1e6), 1..200)) {
        let (mut integral, mut rise) = (Integral::default(), Rise::default());
        let mut energy = Energy::default();
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
            let joules = energy.total().map_or(0.0, |total| total.joules);
            prop_assert!(joules >= used);
            used = joules;
        }
    }
}
