//! Windows are on the wall clock's grid; every sample in one counts, none counts twice.
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "small numbers, and the very values that went in"
)]

use gpuvitals_analysis::window::{Stats, Windows};
use gpuvitals_core::sketch::Sketch;
use proptest::prelude::*;

const S: i64 = 1_000_000_000;

fn exact(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = ((share * sorted.len() as f64).ceil() as usize).max(1);
    sorted[rank - 1]
}

#[test]
fn a_spike_of_ten_milliseconds_is_the_maximum_of_its_window() {
    let mut windows = Windows::new(30 * S, 1);
    for tick in 0..=6_000 {
        let at = 60 * S + tick * S / 100;
        assert!(windows.enter(at));
        windows.push(0, if tick == 1_234 { 690.5 } else { 100.0 });
    }
    assert_eq!(windows.end_ns(), Some(120 * S));
    let last = windows.summary(0).unwrap();
    assert_eq!((last.count, last.min, last.max), (3_000, 100.0, 100.0), "the spike was in the window before");
    let mut windows = Windows::new(30 * S, 1);
    for tick in 0..=3_000 {
        windows.enter(60 * S + tick * S / 100);
        windows.push(0, if tick == 1_234 { 690.5 } else { 100.0 });
    }
    let last = windows.summary(0).unwrap();
    assert_eq!((last.min, last.max), (100.0, 690.5));
    assert!((last.mean - (2_999.0 * 100.0 + 690.5) / 3_000.0).abs() < 1e-9);
    assert!((last.p99 - 100.0).abs() <= 1.0);
}

#[test]
fn the_first_window_is_shown_only_when_it_was_watched_from_its_beginning() {
    let mut windows = Windows::new(10 * S, 1);
    windows.enter(3 * S);
    windows.push(0, 1.0);
    windows.enter(10 * S);
    assert_eq!((windows.end_ns(), windows.summary(0)), (None, None), "only seven seconds of it were seen");
    windows.push(0, 2.0);
    windows.enter(20 * S);
    assert_eq!(windows.end_ns(), Some(20 * S));
    assert_eq!(windows.summary(0).unwrap().max, 2.0);
}

#[test]
fn a_window_in_whose_middle_sampling_began_again_is_not_shown() {
    let mut windows = Windows::new(10 * S, 1);
    let mut sample = |at: i64, value: f64| {
        assert!(windows.enter(at));
        windows.push(0, value);
        windows.summary(0).map(|summary| summary.max)
    };
    assert_eq!((sample(0, 1.0), sample(11 * S, 2.0)), (None, Some(1.0)));
    assert_eq!(sample(58 * S, 3.0), Some(2.0), "the outage is after it");
    assert_eq!(sample(60 * S, 4.0), None, "two of its ten seconds were seen");
    assert_eq!(sample(71 * S, 5.0), Some(4.0));
    windows.close_by(80 * S);
    windows.enter(95 * S);
    windows.push(0, 6.0);
    windows.close_by(100 * S);
    assert_eq!((windows.end_ns(), windows.summary(0)), (None, None), "nor after one that time has closed");
}

#[test]
fn late_samples_are_counted_and_left_out_and_disorder_within_a_window_is_not() {
    let mut windows = Windows::new(10 * S, 1);
    for at in [10 * S, 15 * S, 12 * S] {
        assert!(windows.enter(at));
        windows.push(0, at as f64);
    }
    assert!(windows.enter(20 * S));
    assert!(!windows.enter(19 * S), "its window is closed");
    assert_eq!((windows.late(), windows.summary(0).unwrap().count), (1, 3));
}

#[test]
fn a_window_ends_without_a_sample_after_it() {
    let mut windows = Windows::new(10 * S, 2);
    windows.enter(10 * S);
    windows.push(1, 5.0);
    windows.close_by(20 * S - 1);
    assert_eq!(windows.end_ns(), None);
    windows.close_by(20 * S);
    assert_eq!(windows.end_ns(), Some(20 * S));
    assert_eq!((windows.summary(0), windows.summary(1).unwrap().max), (None, 5.0));
    assert!(!windows.enter(19 * S));
    assert!(windows.enter(21 * S));
}

#[test]
fn a_clock_that_is_set_back_begins_anew() {
    let mut windows = Windows::new(10 * S, 1);
    for second in 1_000..1_025 {
        windows.enter(second * S);
        windows.push(0, 1.0);
    }
    assert_eq!(windows.end_ns(), Some(1_020 * S));
    assert!(windows.enter(505 * S), "an hour back is no late sample");
    windows.push(0, 2.0);
    assert_eq!(windows.end_ns(), None, "nothing is shown from a time that has not come");
    for second in 506..521 {
        windows.enter(second * S);
        windows.push(0, 3.0);
    }
    assert_eq!((windows.end_ns(), windows.summary(0).unwrap().min), (Some(520 * S), 3.0));
    // And forward: the window before the step is closed with its samples.
    windows.enter(9_000 * S);
    assert_eq!(windows.end_ns(), Some(530 * S));
}

proptest! {
    #[test]
    fn a_quantile_is_within_one_percent(
        values in proptest::collection::vec(prop_oneof![Just(0.0), 0.01_f64..100.0, 1.0_f64..1e9, -80.0_f64..-0.01], 1..400),
        share in 0.0_f64..=1.0,
    ) {
        let mut sketch = Sketch::default();
        for value in &values {
            sketch.add(*value);
        }
        let wanted = exact(&values, share);
        let found = sketch.quantile(share).unwrap();
        prop_assert!((found - wanted).abs() <= wanted.abs() * 0.01, "{} instead of {}", found, wanted);
        prop_assert_eq!(sketch.count(), values.len() as u64);
    }

    #[test]
    fn every_sample_is_in_one_window_or_late(steps in proptest::collection::vec(-900_i64..3_000, 1..300)) {
        let mut windows = Windows::new(10 * S, 1);
        let (mut at, mut latest, mut shown, mut counted, mut end) = (1_000 * S, 1_000 * S, 0, 0, None);
        windows.enter(at);
        let mut count = |windows: &Windows, end: &mut Option<i64>| {
            if windows.end_ns() != *end {
                *end = windows.end_ns();
                counted += windows.summary(0).map_or(0, |summary| summary.count);
            }
        };
        for step in &steps {
            // Never so far back that it were a step of the clock.
            at = (at + step * 1_000_000).max(latest - 9 * S);
            latest = latest.max(at);
            if windows.enter(at) {
                shown += 1;
                windows.push(0, 1.0);
            }
            count(&windows, &mut end);
        }
        windows.close_by(i64::MAX);
        count(&windows, &mut end);
        prop_assert_eq!(counted, shown);
        prop_assert_eq!(shown + windows.late(), steps.len() as u64);
    }

    #[test]
    fn figures_hold_for_any_numbers(values in proptest::collection::vec(any::<f64>(), 0..200)) {
        let mut stats = Stats::default();
        for value in &values {
            stats.add(*value);
        }
        let finite: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        match stats.summary() {
            None => prop_assert!(finite.is_empty()),
            Some(summary) => {
                prop_assert_eq!(summary.count, finite.len() as u64);
                prop_assert_eq!(summary.max, finite.iter().copied().fold(f64::MIN, f64::max));
                prop_assert_eq!(summary.min, finite.iter().copied().fold(f64::MAX, f64::min));
                prop_assert!(summary.min <= summary.p99 && summary.p99 <= summary.max);
            }
        }
        stats.clear();
        prop_assert_eq!(stats.summary(), None);
    }
}
