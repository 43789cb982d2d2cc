//! The minutes of a large fleet are read some GPUs at a time.

use gpuvitals_core::history::{BucketQuery, Cell, POINTS_MAX};

use super::*;

const WORKS: &str = "a";
const IDLES: &str = "b";

/// What a history answers of some of the two GPUs.
fn answer(query: &BucketQuery, gpus: &[&str]) -> Buckets {
    let steps = TimeSteps::new(query.start_ns, query.end_ns, query.step_ns, 0).unwrap();
    let mut buckets = Buckets::new(steps, &query.metrics, &[]);
    for name in gpus {
        let group: GroupName = Arc::from([Some(Arc::from(*name)), None, None, Some(Arc::from("train"))]);
        let group = buckets.group(&group);
        let value = if *name == WORKS { 80.0 } else { 0.0 };
        for step in 0..steps.count {
            let (place, last_ns) = (buckets.place(group, step), steps.time(step) + MINUTE_NS - SECOND_NS);
            let mut all = buckets.metrics_mut().iter_mut();
            let utilization = all.find(|one| one.metric.metric().column == "utilization_pct").unwrap();
            let cell = Cell { count: 6, sum: 6.0 * value, min: value, max: value, last_ns, last: value };
            *utilization.cells.get_mut(place).unwrap() = cell;
        }
    }
    buckets
}

#[test]
fn minutes_of_some_gpus_at_a_time_are_those_of_all_also_if_a_reader_begins_again() {
    let (mut whole, mut parts) = (Recent::default(), Recent::default());
    let now_ns = NOW_NS + 11 * SECOND_NS;
    while let Some(query) = whole.next_query(now_ns) {
        assert_eq!(parts.next_query(now_ns).as_ref(), Some(&query));
        whole.take(&answer(&query, &[WORKS, IDLES]));
        parts.take_part(&answer(&query, &[WORKS]));
        assert_eq!(parts.next_query(now_ns).as_ref(), Some(&query), "a GPU is still to be read");
        // Whoever read it went away.
        parts.take_part(&answer(&query, &[WORKS]));
        parts.take_part(&answer(&query, &[IDLES]));
        parts.read_until(query.end_ns + 1);
    }
    assert!(parts.next_query(now_ns).is_none());
    for name in [WORKS, IDLES] {
        let state = gpu(name, "n1", "train", 0, &[]);
        let window = whole.window(&state).unwrap();
        assert_eq!((window.minutes, window.idle_since.is_some()), (10, name == IDLES));
        assert_eq!(parts.window(&state), Some(window));
    }
}

#[test]
fn a_question_about_more_minutes_is_about_fewer_gpus() {
    let recent = Recent::default();
    let first = recent.next_query(NOW_NS + 11 * SECOND_NS).unwrap();
    let minutes =
        |query: &BucketQuery| u64::try_from((query.end_ns + 1 - query.start_ns) / MINUTE_NS).unwrap();
    let of_all = BucketQuery { start_ns: first.end_ns + 1 - MINUTE_NS, ..first.clone() };
    assert_eq!((minutes(&first), minutes(&of_all)), (25, 1));
    for query in [&first, &of_all] {
        let gpus = Recent::gpus_at_once(query) as u64;
        let points = |gpus: u64| gpus * minutes(query) * query.metrics.len() as u64;
        assert!(points(gpus) <= POINTS_MAX / 8 && points(gpus + 1) > POINTS_MAX / 8, "{gpus}");
    }
}
