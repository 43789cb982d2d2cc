//! Questions, and whether the answers are the model's.

use std::collections::BTreeMap;

use std::sync::{Arc, Mutex};

use gpuvitals_core::Batch;
use gpuvitals_core::history::{
    Aggregate, BucketQuery, Buckets, Fleet, History, Part, RowsQuery, TakeRows, fleet_as_of,
};
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::usage::{GpuUse, HolderUse, UseQuery};

use crate::model::{Group, Model};
use crate::rows::{answer, cells};

/// Asks for a page of rows: all of it, and the total, must be the model's.
pub async fn check_rows(history: &dyn History, model: &Model, query: &RowsQuery) {
    let found = history.rows(query.clone()).await.unwrap();
    let (expected, total) = model.rows(query);
    assert_eq!(found.missing, Vec::<String>::new());
    assert_eq!(found.answer.total, query.with_total.then_some(total), "{query:?}");
    assert_eq!(answer(&found.answer), expected, "{query:?}");
}

/// Goes from page to page by the place of the last row: together they are all rows, each once.
pub async fn check_pages(history: &dyn History, model: &Model, query: &RowsQuery) {
    let (expected, _) = model.rows(&RowsQuery { limit: usize::MAX, offset: 0, ..query.clone() });
    let mut page = RowsQuery { offset: 0, ..query.clone() };
    let mut found = Vec::new();
    while found.len() <= expected.len() {
        let rows = history.rows(page.clone()).await.unwrap().answer;
        found.extend(answer(&rows));
        let count = rows.batch.as_ref().map_or(0, Batch::rows);
        if count < page.limit || page.limit == 0 {
            break;
        }
        page.after = rows.end();
    }
    let expected = if query.limit == 0 { Vec::new() } else { expected };
    assert_eq!(found, expected, "{query:?}");
}

/// Sweeps all rows of a question: together they are the model's, each once, in whatever order.
pub(crate) async fn check_sweep(history: &dyn History, model: &Model, query: &RowsQuery) {
    let (mut expected, _) = model.rows(&RowsQuery { limit: usize::MAX, offset: 0, ..query.clone() });
    let found = Arc::new(Mutex::new(Vec::new()));
    let given = Arc::clone(&found);
    let take: TakeRows = Arc::new(move |batch: &Batch| {
        given.lock().unwrap().extend((0..batch.rows()).map(|row| cells(batch, row)));
        Ok(())
    });
    let swept = history.sweep(query.clone(), take).await.unwrap();
    assert_eq!(swept.missing, Vec::<String>::new());
    let mut found = std::mem::take(&mut *found.lock().unwrap());
    found.sort();
    expected.sort();
    assert_eq!(found, expected, "swept by {query:?}");
}

/// Asks for values by steps: quantiles must be within 1 % of the model's, sums within 1e-9, all else equal.
pub async fn check_buckets(history: &dyn History, model: &Model, query: &BucketQuery) {
    let Part { answer: found, missing } = history.buckets(query.clone()).await.unwrap();
    assert_eq!(missing, Vec::<String>::new());
    let first = |time: i64| (time - query.phase_ns).div_euclid(query.step_ns);
    let steps = first(query.start_ns)..=first(query.end_ns);
    let times: Vec<i64> = steps.map(|step| step * query.step_ns + query.phase_ns).collect();
    assert_eq!(found.steps().times().collect::<Vec<_>>(), times, "{query:?}");
    check_values(&found, model, query);
}

/// Compares values by steps with the model's, as [`check_buckets`] does.
pub fn check_values(found: &Buckets, model: &Model, query: &BucketQuery) {
    let mut expected = model.buckets(query);
    for line in found.series(&query.aggregates) {
        let metric = query.metrics.iter().position(|metric| *metric == line.metric).unwrap();
        let group: Group = line.group.iter().map(|text| text.as_deref().map(str::to_owned)).collect();
        for (step, value) in line.values.iter().enumerate() {
            let place = (metric, line.aggregate, group.clone(), found.steps().time(step));
            match (value, expected.remove(&place)) {
                (None, None) => {}
                (Some(found), Some(expected)) => {
                    let allowed = match line.aggregate {
                        Aggregate::Quantile(_) => expected.abs() * 0.01,
                        Aggregate::Mean | Aggregate::Rate | Aggregate::Increase | Aggregate::Delta => {
                            expected.abs() * 1e-9 + 1e-9
                        }
                        Aggregate::Min | Aggregate::Max | Aggregate::Last | Aggregate::Count => 0.0,
                    };
                    let is_close = (found - expected).abs() <= allowed;
                    assert!(is_close, "{place:?}: {found}, not {expected}: {query:?}");
                }
                different => panic!("{place:?}: {different:?} of {query:?}"),
            }
        }
    }
    assert!(expected.is_empty(), "no {expected:?} of {query:?}");
}

/// Asks for the use by steps: of each GPU, holder and step with a row, by these; and of GPUs of which nothing is to be judged the seconds
/// and joules within 1e-9. Returns what the answer lacks.
pub(crate) async fn check_use(history: &dyn History, model: &Model, query: &UseQuery) -> Vec<String> {
    let Part { answer: found, missing } = history.usage(query.clone()).await.unwrap();
    assert!(found.is_sorted_by_key(|one| (&one.gpu, &one.holder, one.step_ns)), "{query:?}");
    let texts = |one: &GpuUse| one.holder.iter().map(|text| text.as_deref().map(str::to_owned)).collect();
    let mut expected = model.used(query);
    for one in &found {
        let place = (one.gpu.to_string(), texts(one), one.step_ns);
        let Some(wanted) = expected.remove(&place) else { panic!("{place:?} is too much: {query:?}") };
        let HolderUse { seconds, busy_s, idle_s, throttled_s, joules, .. } = one.held;
        let used = [Some(seconds), busy_s, idle_s, throttled_s, joules].map(|of| of.unwrap_or(0.0));
        let is_close = |(found, wanted): (&f64, &f64)| (found - wanted).abs() <= wanted.abs() * 1e-9 + 1e-9;
        let is_right = wanted.as_ref().is_none_or(|wanted| used.iter().zip(wanted).all(is_close));
        assert!(is_right, "{place:?}: {used:?}, not {wanted:?}: {query:?}");
    }
    assert!(expected.is_empty(), "no {:?} of {query:?}", expected.keys());
    missing
}

/// How much earlier a GPU of the past may seem to have been seen: rows without values are not looked for until a GPU is quiet.
const QUIET_NS: i64 = 10 * SECOND_NS;

/// Asks for the latest state: each GPU's first and last time, and the latest value of each metric with its time.
pub async fn check_fleet(history: &dyn History, model: &Model) {
    check_state(&history.fleet().await.unwrap(), model, i64::MAX);
}

/// Asks for the latest state at an instant, as [`check_fleet`] does.
pub async fn check_fleet_as_of(history: &dyn History, model: &Model, at_ns: i64) {
    check_state(&fleet_as_of(history, at_ns).await.unwrap(), model, at_ns);
}

fn check_state(fleet: &Part<Arc<Fleet>>, model: &Model, at_ns: i64) {
    assert_eq!(fleet.missing, Vec::<String>::new());
    let mut expected = model.latest(at_ns);
    for gpu in &fleet.answer.gpus {
        let key = gpu.key.as_ref();
        let latest = expected.remove(key).unwrap_or_else(|| panic!("nobody wrote {key}"));
        assert_eq!(gpu.first_seen_ns, latest.first_ns, "{key}");
        let earlier_ns = latest.last_ns - gpu.last_seen_ns;
        let is_allowed = earlier_ns == 0 || (at_ns < i64::MAX && (0..=QUIET_NS).contains(&earlier_ns));
        assert!(is_allowed, "{key}: last seen {earlier_ns} ns too early");
        let values = gpu.latest.iter().map(|(metric, latest)| {
            (metric.metric().column, (latest.timestamp_ns, latest.value.as_f64().to_string()))
        });
        let found: BTreeMap<&str, (i64, String)> = values.collect();
        let columns = [
            "power_w",
            "memory_used_mb",
            "gpu_clock_mhz",
            "energy_mj",
            "xid_last",
            "utilization_pct",
            "throttled",
        ];
        let metrics = columns.iter().filter_map(|column| Some((*column, *latest.values.get(column)?)));
        let expected = metrics.map(|(column, (time, text))| (column, (time, text.to_owned()))).collect();
        assert_eq!(found, expected, "{key}");
    }
    assert!(expected.is_empty(), "{:?} is missing", expected.keys());
}
