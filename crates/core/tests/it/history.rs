//! Answers in parts.

use std::sync::Arc;

use gpuvitals_core::MetricId;
use gpuvitals_core::history::{Aggregate, Buckets, Cell, TimeSteps};
use proptest::prelude::*;

const ALL: [Aggregate; 6] =
    [Aggregate::Min, Aggregate::Max, Aggregate::Mean, Aggregate::P99, Aggregate::Last, Aggregate::Count];
const STEPS: i64 = 4;

/// A value: part it is in, metric, group, time, value in eighths.
type TakenValue = (usize, usize, u8, i64, i32);

/// The answer about some values.
fn answer<'a>(values: impl Iterator<Item = &'a TakenValue>) -> Buckets {
    let metrics = [MetricId::of("power_w"), MetricId::of("gpu_clock_mhz")];
    let mut buckets = Buckets::new(TimeSteps::new(0, STEPS * 10 - 1, 10, 0).unwrap(), &metrics, &ALL);
    for &(_, metric, group, time_ns, eighths) in values {
        let group = buckets.group(&Arc::from([Some(Arc::from(format!("GPU-{group}")))]));
        let place = buckets.place(group, buckets.steps().at(time_ns));
        let value = if metric == 0 { f64::from(eighths) / 8.0 } else { f64::from(eighths) };
        let measured = buckets.metrics_mut().get_mut(metric).unwrap();
        let one = Cell { count: 1, sum: value, min: value, max: value, last_ns: time_ns, last: value };
        measured.cells.get_mut(place).unwrap().merge(&one);
        measured.sketches.get_mut(place).unwrap().add(value);
    }
    buckets
}

proptest! {
    #[test]
    fn the_parts_of_a_split_data_set_merge_into_the_answer_of_the_whole(
        values in prop::collection::vec((0..3_usize, 0..2_usize, 0..3_u8, 0..STEPS * 10, -4_000..4_000_i32), 0..900),
    ) {
        let mut merged = answer(values.iter().filter(|value| value.0 == 0));
        for part in 1..3 {
            merged.merge(answer(values.iter().filter(|value| value.0 == part))).unwrap();
        }
        prop_assert_eq!(merged.series(&ALL), answer(values.iter()).series(&ALL));
    }

    #[test]
    fn a_percentile_is_the_largest_of_few_values_and_close_for_many(
        values in prop::collection::vec(-4_000..4_000_i32, 1..900),
        metric in 0..2_usize,
    ) {
        let taken: Vec<TakenValue> = values.iter().map(|&value| (0, metric, 0, 0, value)).collect();
        let series = answer(taken.iter()).series(&[Aggregate::P99]);
        let found = series.first().unwrap().values.first().copied().flatten().unwrap();
        let mut sorted = values;
        sorted.sort_unstable();
        let exact = f64::from(sorted[(sorted.len() * 99).div_ceil(100) - 1]) / if metric == 0 { 8.0 } else { 1.0 };
        let error = if sorted.len() < 100 { 0.0 } else { exact.abs() * 0.01 };
        prop_assert!((found - exact).abs() <= error, "{} instead of {}", found, exact);
    }
}
