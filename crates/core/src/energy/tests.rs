use super::*;

const GAP: i64 = 2_500_000_000;

/// Samples power 100 times a second for `seconds`, and reads the counter once a second from 0.3 s on.
fn fed(seconds: u32, power: impl Fn(f64) -> f64, counter: impl Fn(f64) -> Option<f64>) -> EnergyTotal {
    let mut energy = Energy::default();
    for n in 0..=seconds * 100 {
        let (time_ns, t) = (i64::from(n) * 10_000_000, f64::from(n) / 100.0);
        energy.sample(time_ns, power(t), GAP);
        if n % 100 == 30
            && let Some(counter) = counter(t)
        {
            energy.read(time_ns, counter, GAP);
        }
    }
    energy.total().unwrap()
}

/// 300 W and 100 W alternating, ten seconds each; and its energy.
fn square(t: f64) -> f64 {
    if (t / 10.0).rem_euclid(2.0) < 1.0 { 300.0 } else { 100.0 }
}

fn square_j(t: f64) -> f64 {
    let (periods, rest) = ((t / 20.0).floor(), t.rem_euclid(20.0));
    periods * 4_000.0 + 300.0 * rest.min(10.0) + 100.0 * (rest - 10.0).max(0.0)
}

fn near(total: &EnergyTotal, wanted: f64) {
    assert!((total.joules - wanted).abs() <= 0.01 * wanted, "{total:?} is not {wanted}");
}

#[test]
fn a_counter_that_agrees_is_believed_and_the_power_tells_what_lies_between_its_readings() {
    let total = fed(600, square, |t| Some(5_000.0 + 1.05 * square_j(t)));
    assert_eq!(total.source, EnergySource::Counter);
    assert!(matches!(total.reason, EnergyReason::Agrees(apart) if (apart - 0.05).abs() < 0.01));
    // From its first agreement on the counter is used.
    let wanted = 1.05 * square_j(600.0);
    assert!((total.joules - wanted).abs() < 0.02 * 1.05 * square_j(20.0) + 80.0, "{total:?} is not {wanted}");
}

#[test]
fn a_linear_ramp_is_integrated_exactly() {
    let total = fed(10, |t| 50.0 + 20.0 * t, |_| None);
    assert_eq!((total.source, total.reason), (EnergySource::Integrated, EnergyReason::NoCounter));
    assert!((total.joules - 1_500.0).abs() < 1e-6 && (total.seen_s - 10.0).abs() < 1e-9);
}

#[test]
fn a_counter_that_errs_is_not_believed() {
    let check = |seconds, counter: &dyn Fn(f64) -> Option<f64>, is: &dyn Fn(EnergyReason) -> bool| {
        let total = fed(seconds, square, counter);
        assert_eq!(total.source, EnergySource::Integrated, "{total:?}");
        assert!(is(total.reason), "{total:?}");
        near(&total, square_j(f64::from(seconds)));
    };
    let differs = |why: EnergyReason| matches!(why, EnergyReason::Disagrees { .. });
    check(200, &|_| Some(777.0), &|why| why == EnergyReason::Still);
    check(200, &|t| Some(square_j(t) / 1_000.0), &differs);
    check(200, &|t| Some(1.2 * square_j(t)), &differs);
    check(200, &|t| Some(square_j(t) + 200.0 * t), &differs);
    check(200, &|t| Some(10.0 * square_j(t)), &|why| matches!(why, EnergyReason::TooFast(_)));
    check(200, &|t| (t < 1.0).then_some(4.0), &|why| why == EnergyReason::TooShort);
    check(9, &|t| Some(square_j(t)), &|why| why == EnergyReason::TooShort);
}

#[test]
fn a_counter_that_goes_wrong_is_found_out_and_what_it_said_too_much_or_too_little_is_made_good() {
    let (twice, stuck) = (|t: f64| square_j(t.max(150.0)), |t: f64| square_j(t.min(150.0)));
    for (what, counter) in [
        ("twice", Box::new(move |t: f64| square_j(t) + twice(t)) as Box<dyn Fn(f64) -> f64>),
        ("stuck", Box::new(stuck)),
    ] {
        let total = fed(600, square, |t| Some(counter(t)));
        assert!(matches!(total.reason, EnergyReason::Disagrees { .. }), "{what}: {total:?}");
        near(&total, square_j(600.0));
    }
}

#[test]
fn a_jump_is_refused_and_a_reset_is_no_lie() {
    for jump in [2e9, 5e3, -1e9] {
        let total = fed(600, square, |t| Some(1e9 + square_j(t) + if t > 300.0 { jump } else { 0.0 }));
        assert_eq!(total.source, EnergySource::Counter, "{total:?}");
        near(&total, square_j(600.0));
    }
}

#[test]
fn a_rise_is_possible_up_to_the_power_limit_or_half_more_than_the_highest_power_seen() {
    // Idle when sampled; the counter saw a burst in between.
    let burst = |limit: f64, joules: f64| {
        let mut energy = Energy { limit, ..Energy::default() };
        for second in 0..=100_i64 {
            let counter = if second > 50 { joules } else { 0.0 };
            energy.sample(second * 1_000_000_000, 100.0, GAP);
            energy.read(
                second * 1_000_000_000,
                100.0 * f64::from(i32::try_from(second).unwrap()) + counter,
                GAP,
            );
        }
        energy.total().unwrap().joules
    };
    for (limit, possible, refused) in [(0.0, 80.0, 95.0), (300.0, 300.0, 320.0)] {
        for (more, counted) in [(possible, possible), (refused, 0.0)] {
            let found = burst(limit, more) - 10_000.0;
            assert!((found - counted).abs() < 1e-6, "{limit} W: {found} J of {more} J");
        }
    }
}

#[test]
fn half_a_watt_refutes_nobody() {
    let mut idle = Energy::default();
    for second in 0..=100_i64 {
        idle.sample(second * 1_000_000_000, 0.5, GAP);
        idle.read(second * 1_000_000_000, 0.0, GAP);
    }
    assert_eq!(idle.total().unwrap().reason, EnergyReason::Still);
    assert!((idle.total().unwrap().joules - 50.0).abs() < 1e-9);
}

#[test]
fn what_power_did_not_see_a_proven_counter_did() {
    let mut energy = Energy::default();
    for n in 0_i64..=6_000 {
        let time_ns = n * 10_000_000;
        // From 20 s to 30 s no power is read.
        if !(2_000..3_000).contains(&n) {
            energy.sample(time_ns, 200.0, GAP);
        }
        if n % 100 == 0 {
            energy.read(time_ns, f64::from(u32::try_from(n).unwrap()) * 2.0, GAP);
        }
    }
    let total = energy.total().unwrap();
    assert_eq!(total.source, EnergySource::Counter);
    assert!((total.joules - 12_000.0).abs() < 3.0, "{total:?}");
    assert!((total.seen_s - 50.0).abs() < 0.1);
}

#[test]
fn a_counter_alone_is_used_and_said_to_be_unchecked() {
    let mut energy = Energy::default();
    assert_eq!(energy.total(), None);
    energy.read(0, 10.0, GAP);
    assert_eq!(energy.total(), None);
    energy.read(1_000_000_000, 110.0, GAP);
    let total = energy.total().unwrap();
    assert_eq!((total.source, total.reason), (EnergySource::Counter, EnergyReason::Unchecked));
    assert!((total.joules - 100.0).abs() < 1e-9);
}

/// Samples power once a second, with the counter's true energy between.
fn once_a_second(
    seconds: u32,
    mut load: impl FnMut(f64) -> f64,
    counter: impl Fn(f64, f64) -> f64,
) -> (EnergyTotal, f64) {
    let (mut energy, mut truth) = (Energy::default(), 0.0);
    for n in 0..=seconds * 100 {
        let (time_ns, t) = (i64::from(n) * 10_000_000, f64::from(n) / 100.0);
        let watts = load(t);
        if n % 100 == 0 {
            energy.sample(time_ns, watts, GAP);
            energy.read(time_ns, counter(t, truth), GAP);
        }
        truth += watts * 0.01;
    }
    (energy.total().unwrap(), truth)
}

#[test]
fn a_load_too_fast_for_the_samples_does_not_lose_a_true_counter() {
    let mut state = 7_u32;
    let (total, truth) = once_a_second(
        3_600,
        |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if state >> 31 == 0 { 100.0 } else { 700.0 }
        },
        |_, truth| truth,
    );
    assert!((total.joules / truth - 1.0).abs() < 0.02, "{total:?} of {truth} J");
    assert_eq!(total.source, EnergySource::Counter);
}

#[test]
fn a_counter_that_stands_still_at_idle_is_left_however_high_the_load_was_before() {
    let (total, truth) = once_a_second(
        7_320,
        |t| if t < 120.0 { 700.0 } else { 2.5 },
        |t, truth| if t < 120.0 { truth } else { 120.0 * 700.0 },
    );
    assert!((total.joules / truth - 1.0).abs() < 0.01, "{total:?} of {truth} J");
    assert_eq!(total.source, EnergySource::Integrated);
}

#[test]
fn a_counter_whose_every_step_is_refused_is_no_source_any_more() {
    let (total, truth) = once_a_second(
        900,
        |_| 200.0,
        |t, truth| if t < 300.0 { truth } else { 60_000.0 + (truth - 60_000.0) * 30.0 },
    );
    assert!((total.joules / truth - 1.0).abs() < 0.01, "{total:?} of {truth} J");
    assert!(matches!(total.reason, EnergyReason::TooFast(_)), "{total:?}");
}

#[test]
fn what_a_counter_alone_has_seen_stays_when_it_is_left_later() {
    let mut energy = Energy::default();
    let mut feed = |from: i64, to: i64, sees: bool, counter: &dyn Fn(f64) -> f64| {
        for second in from..to {
            let time_ns = second * 1_000_000_000;
            if sees {
                energy.sample(time_ns, 300.0, GAP);
            }
            energy.read(time_ns, counter(f64::from(i32::try_from(second).unwrap())), GAP);
        }
    };
    feed(0, 600, true, &|t| t * 300.0);
    feed(600, 1_200, false, &|t| t * 300.0);
    feed(1_200, 1_800, true, &|_| 1_200.0 * 300.0);
    let joules = energy.total().unwrap().joules;
    assert!((joules / (1_799.0 * 300.0) - 1.0).abs() < 0.01, "{joules} J");
}

#[test]
fn power_of_which_only_the_sum_is_known_has_no_interval() {
    let gpu = Identity::default().with(crate::IdentityColumn::Model, "NVIDIA A100-SXM4-80GB").unwrap();
    let mut energy = Energy::default();
    for n in 0..=100 {
        energy.sample(n * 10_000_000, 250.0, GAP);
    }
    assert!(energy.interval(&gpu).is_ok());
    let span = PowerSpan {
        is_average: false,
        first: (1_000_000_000, 250.0),
        last: (2_000_000_000, 250.0),
        joules: 250.0,
        seconds: 1.0,
        idle_joules: 0.0,
        open_joules: 0.0,
        max_w: 250.0,
    };
    energy.extend(&span, GAP);
    assert_eq!(energy.interval(&gpu), Err(IntervalUnknown::OnlySum));
}
