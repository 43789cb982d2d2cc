//! The ledger against the use of the same rows, and against the clock.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::line::THROTTLED_BY;
use super::part::EXCLUSIVE;
use super::*;
use crate::MetricId;
use crate::batch::{Value, numbers};
use crate::merge::{Order, merge};
use crate::time::HOUR_NS;
use crate::usage::{RowsOfUse, Usage, UseQuery};

mod shares;

/// 09:40 of a day: rows of some minutes lie on both sides of an hour.
const BASE_NS: i64 = 1_795_167_600_000_000_000;
const SECOND_NS: i64 = 1_000_000_000;

/// A row: seconds after the one before, the pod that has the GPU, and what is read.
#[derive(Debug, Clone)]
struct Sample {
    apart_s: i64,
    pod: Option<u8>,
    watts: Option<f64>,
    percent: f64,
}

fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let apart = prop_oneof![12 => Just(1_i64), 4 => Just(2), 1 => 900..9_000_i64];
    let watts = prop::option::weighted(0.9, 50.0..700.0_f64);
    let sample = (apart, prop::option::of(0..3_u8), watts, 0.0..100.0_f64);
    let sample = sample.prop_map(|(apart_s, pod, watts, percent)| Sample { apart_s, pod, watts, percent });
    prop::collection::vec(sample, 2..400)
}

fn gpu(pod: Option<u8>) -> Identity {
    let gpu = Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap();
    match pod {
        None => gpu,
        Some(pod) => gpu
            .with(IdentityColumn::Namespace, "team")
            .and_then(|gpu| gpu.with(IdentityColumn::Pod, &format!("pod-{pod}")))
            .unwrap(),
    }
}

fn batch(rows: &[(i64, &Sample)]) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    for (time_ns, sample) in rows {
        let identity = builder.intern(&gpu(sample.pod));
        let row = builder.row(*time_ns, identity);
        let values = [("power_w", sample.watts), ("utilization_pct", Some(sample.percent))];
        for (column, value) in values.into_iter().filter_map(|(column, value)| Some((column, value?))) {
            builder.set(row, MetricId::of(column), Value::Float(value)).unwrap();
        }
    }
    builder.finish(Origin { node: Arc::from("node-1"), started_ns: 7 }, 1).unwrap()
}

/// Samples as batches of so many rows.
fn batches(samples: &[Sample], size: usize) -> Vec<Batch> {
    let mut time_ns = BASE_NS;
    let timed = samples.iter().map(|sample| {
        time_ns += sample.apart_s * SECOND_NS;
        (time_ns, sample)
    });
    timed.collect::<Vec<_>>().chunks(size).map(batch).collect()
}

/// The pods that share the GPU at once.
#[derive(Debug)]
struct Pods(&'static [u8]);

impl Sharing for Pods {
    fn sharers(&self, _: &Arc<Identity>) -> Vec<Arc<Identity>> {
        self.0.iter().map(|pod| Arc::new(gpu(Some(*pod)))).collect()
    }
}

const ALONE: Pods = Pods(&[]);

/// All rows that a ledger gives.
fn told(batches: &[Batch]) -> Vec<Batch> {
    let mut ledger = Ledger::default();
    let mut told = Vec::new();
    for batch in batches {
        ledger.add(batch, &ALONE);
        told.extend(ledger.due());
    }
    told.extend(ledger.finish());
    told
}

/// Time held, busy and idle in nanoseconds, energy in millijoules.
const SUMS: [&str; 4] = ["held_ns", "busy_ns", "idle_ns", "used_mj"];

/// The rows that stay of all that was told, in whatever order.
fn merged(told: &[Batch]) -> Batch {
    let parts: Vec<_> = told.iter().map(|batch| batch.records().clone()).collect();
    let merged = merge(Table::GpuUsage, &parts, Order::GpuTime).unwrap().unwrap();
    Batch::new(Table::GpuUsage, merged, Origin::default(), 0).unwrap()
}

fn text(batch: &Batch, name: &str, row: usize) -> String {
    use arrow_array::cast::AsArray as _;
    let column = batch.records().column_by_name(name).unwrap();
    crate::batch::text_at(column.as_dictionary(), row).unwrap().to_owned()
}

fn number(batch: &Batch, name: &str, row: usize) -> Option<f64> {
    let column = batch.records().column_by_name(name).and_then(numbers)?;
    column.value(row).map(Value::as_f64)
}

/// Their sums by holder, share and hour.
fn kept(told: &[Batch]) -> BTreeMap<(String, String, i64), [f64; 4]> {
    let merged = merged(told);
    let rows = merged.timestamps().iter().enumerate();
    let row_of = |(row, hour_ns): (usize, &i64)| {
        let sums = SUMS.map(|name| number(&merged, name, row).unwrap_or(0.0));
        ((text(&merged, "holder", row), text(&merged, "share", row), *hour_ns), sums)
    };
    rows.map(row_of).collect()
}

proptest! {
    #[test]
    fn the_rows_of_a_ledger_are_the_use_of_its_samples_hour_by_hour(
        samples in samples(),
        size in 1..40_usize,
        order in prop::collection::vec(any::<prop::sample::Index>(), 8),
    ) {
        let batches = batches(&samples, size);
        let mut query = UseQuery::of(0, i64::MAX);
        query.step_ns = Some(HOUR_NS);
        let (mut usage, mut rows) = (Usage::of(&query), RowsOfUse::default());
        for batch in &batches {
            rows.add(&mut usage, batch.records()).unwrap();
        }
        let mut told = told(&batches);
        // Frames come in any order, and some twice.
        for index in &order {
            let at = index.index(told.len());
            let again = told[at].clone();
            told.swap(0, at);
            told.push(again);
        }
        let mut kept = kept(&told);
        let span_s: i64 = samples.iter().skip(1).map(|sample| sample.apart_s).sum();
        let all_ns: f64 = kept.values().map(|sums| sums[0]).sum();
        let span_ns = 1e9 * f64::from(i32::try_from(span_s).unwrap());
        prop_assert!((all_ns - span_ns).abs() < 1e4, "{all_ns} of {span_ns}");
        kept.retain(|(holder, ..), _| holder != UNOBSERVED);
        for one in usage.finish() {
            let pod = one.text(IdentityColumn::Pod);
            let holder = pod.map_or_else(|| NOBODY.to_owned(), |pod| format!("pod:team/{pod}/"));
            let found = kept.remove(&(holder, EXCLUSIVE.to_owned(), one.step_ns.unwrap())).unwrap();
            let wanted = [
                1e9 * one.held.seconds,
                1e9 * one.held.busy_s.unwrap_or(0.0),
                1e9 * one.held.idle_s.unwrap_or(0.0),
                1e3 * one.held.joules.unwrap_or(0.0),
            ];
            for (found, wanted) in found.into_iter().zip(wanted) {
                prop_assert!((found - wanted).abs() <= 1.0 + 1e-9 * wanted, "{found} is not {wanted}");
            }
        }
        prop_assert!(kept.is_empty(), "{kept:?} are nobody's");
    }
}

#[test]
fn several_that_have_a_gpu_at_once_get_the_same_part_and_it_is_said() {
    let sample = || Sample { apart_s: 1, pod: Some(0), watts: Some(100.0), percent: 50.0 };
    let samples: Vec<Sample> = (0..100).map(|_| sample()).collect();
    let mut ledger = Ledger::default();
    let mut told = Vec::new();
    for (at, batch) in batches(&samples, 10).iter().enumerate() {
        ledger.add(batch, if at < 5 { &ALONE } else { &Pods(&[0, 1]) });
        told.extend(ledger.due());
    }
    told.extend(ledger.finish());
    let kept = kept(&told);
    // Whole, as they are stored.
    let sums = |holder: &str, share: &str| {
        let rows = kept.iter().filter(|((of, how, _), _)| of == holder && how == share);
        let all: [f64; 4] =
            rows.fold([0.0; 4], |all, (_, sums)| std::array::from_fn(|at| all[at] + sums[at]));
        all.map(|sum| sum.to_string())
    };
    let whole = |sums: [f64; 4]| sums.map(|sum| sum.to_string());
    // 99 seconds lie between the rows: 50 of one alone, 49 of two.
    assert_eq!(sums("pod:team/pod-0/", EXCLUSIVE), whole([50e9, 25e9, 0.0, 5e6]));
    assert_eq!(sums("pod:team/pod-0/", EQUAL), whole([24.5e9, 12.25e9, 0.0, 2.45e6]));
    assert_eq!(sums("pod:team/pod-1/", EQUAL), sums("pod:team/pod-0/", EQUAL));
    assert_eq!(sums("pod:team/pod-1/", EXCLUSIVE), whole([0.0; 4]));
}

#[test]
fn throttled_time_is_told_by_limit_and_as_a_whole() {
    // Ten seconds each: at the power cap, too hot as well, by the brake, without a word why, and free.
    let states = [(0x4, 1), (0x4 | 0x20, 1), (0x80, 1), (0x10, 1), (0, 0)];
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let identity = builder.intern(&gpu(Some(0)));
    for second in 0..=50_usize {
        let (reasons, throttled) = states[(second / 10).min(4)];
        let row = builder.row(BASE_NS + i64::try_from(second).unwrap() * SECOND_NS, identity);
        for (column, value) in [("throttle_reasons", reasons), ("throttled", throttled)] {
            builder.set(row, MetricId::of(column), Value::Int(value)).unwrap();
        }
    }
    let samples = builder.finish(Origin::default(), 1).unwrap();
    let told = told(&[samples]);
    let last = told.last().unwrap();
    let seconds = |name: &str| number(last, name, 0).map(|ns| ns / 1e9);
    assert_eq!(seconds("throttled_ns"), Some(40.0));
    assert_eq!(THROTTLED_BY.map(seconds), [Some(30.0), Some(10.0), Some(10.0), Some(10.0)]);
}

#[test]
fn what_nobody_has_and_what_nobody_saw_are_rows_too() {
    let sample = |apart_s| Sample { apart_s, pod: None, watts: Some(100.0), percent: 0.0 };
    let mut samples: Vec<Sample> = (0..60).map(|_| sample(1)).collect();
    // Over a gap from before an hour to behind the next one.
    samples.push(sample(7_200));
    samples.extend((0..60).map(|_| sample(1)));
    let kept = kept(&told(&batches(&samples, 7)));
    let seconds: Vec<(&str, i64, f64)> = kept
        .iter()
        .map(|((holder, _, hour_ns), sums)| (holder.as_str(), (hour_ns - BASE_NS) / SECOND_NS, sums[0] / 1e9))
        .collect();
    assert_eq!(
        seconds,
        [
            ("nobody", -2_400, 59.0),
            ("nobody", 4_800, 60.0),
            ("unobserved", -2_400, 1_140.0),
            ("unobserved", 1_200, 3_600.0),
            ("unobserved", 4_800, 2_460.0),
        ]
    );
    let joules: f64 = kept.values().map(|sums| sums[3] / 1e3).sum();
    assert!((joules - 11_900.0).abs() < 1.0, "no energy is added over a gap: {joules}");
}

#[test]
fn a_clock_that_was_set_forward_by_months_has_no_hours_that_nobody_saw() {
    let sample = |apart_s| Sample { apart_s, pod: None, watts: Some(100.0), percent: 0.0 };
    let mut samples: Vec<Sample> = (0..60).map(|_| sample(1)).collect();
    samples.push(sample(40 * 86_400));
    samples.extend((0..60).map(|_| sample(1)));
    let kept = kept(&told(&batches(&samples, 7)));
    let seconds: Vec<(&str, f64)> =
        kept.iter().map(|((holder, ..), sums)| (holder.as_str(), sums[0] / 1e9)).collect();
    assert_eq!(seconds, [("nobody", 59.0), ("nobody", 60.0)]);
}

#[test]
fn after_the_clock_was_set_back_the_sums_go_on_as_another_run() {
    let sample = |apart_s| Sample { apart_s, pod: None, watts: Some(100.0), percent: 0.0 };
    let mut samples: Vec<Sample> = (0..60).map(|_| sample(1)).collect();
    // To where it was half a minute earlier.
    samples.push(sample(-30));
    samples.extend((0..60).map(|_| sample(1)));
    let told = told(&batches(&samples, 7));
    let runs: std::collections::BTreeMap<String, f64> = told
        .iter()
        .flat_map(|batch| (0..batch.rows()).map(move |row| (batch, row)))
        .map(|(batch, row)| {
            let number = |name| batch.records().column_by_name(name).and_then(numbers).unwrap().value(row);
            (number("run").unwrap().to_json().to_string(), number("held_ns").unwrap().as_f64() / 1e9)
        })
        .collect();
    // The last row of each run.
    assert_eq!(format!("{runs:?}"), r#"{"7": 59.0, "8": 60.0}"#);
}

#[test]
fn any_one_batch_of_rows_may_be_lost() {
    let sample = |apart_s, pod| Sample { apart_s, pod: Some(pod), watts: Some(100.0), percent: 50.0 };
    // Two pods, a gap in the first hour, one over its edge, and time to tell all of it again.
    let mut samples: Vec<Sample> = (0..300).map(|_| sample(1, 0)).collect();
    samples.push(sample(600, 0));
    samples.extend((0..120).map(|_| sample(1, 1)));
    samples.push(sample(1_200, 1));
    samples.extend((0..900).map(|_| sample(1, 1)));
    let told = told(&batches(&samples, 7));
    let all = kept(&told);
    // What the last one says is not told again.
    for lost in 0..told.len() - 1 {
        let mut others = told.clone();
        others.remove(lost);
        assert_eq!(kept(&others), all, "without batch {lost} of {}", told.len());
    }
}

#[test]
fn a_gpu_that_is_gone_for_an_hour_is_told_to_its_last_sample_and_forgotten() {
    let rows = |name: &str, from_s: i64, count: i64| {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        for second in from_s..from_s + count {
            let identity = builder.intern(&Identity::default().with(IdentityColumn::Uuid, name).unwrap());
            let row = builder.row(BASE_NS + second * SECOND_NS, identity);
            builder.set(row, MetricId::of("power_w"), Value::Float(100.0)).unwrap();
        }
        builder.finish(Origin { node: Arc::from("node-1"), started_ns: 7 }, 1).unwrap()
    };
    let mut ledger = Ledger::default();
    let mut told = Vec::new();
    for batch in [rows("GPU-1", 0, 60), rows("GPU-2", 0, 60), rows("GPU-2", 3_700, 60)] {
        ledger.add(&batch, &ALONE);
        told.extend(ledger.due());
    }
    let of_one: Vec<Batch> = told
        .iter()
        .filter_map(|batch| {
            let keep: Vec<bool> =
                (0..batch.rows()).map(|row| batch.identity(row).uuid() == Some("GPU-1")).collect();
            batch.filter(&keep)
        })
        .collect();
    let held: Vec<f64> = kept(&of_one).values().map(|sums| sums[0] / 1e9).collect();
    assert_eq!(format!("{held:?}"), "[59.0]");
    assert_eq!(ledger.accounts.len(), 1);
}

/// Seconds held by GPU, run and holder, of two GPUs with a batch each: a minute of samples from each of these seconds on.
fn told_of_two(from_s: &[i64]) -> Vec<String> {
    let mut ledger = Ledger::default();
    let mut told = Vec::new();
    for second in from_s.iter().flat_map(|from_s| *from_s..from_s + 60) {
        for name in ["GPU-1", "GPU-2"] {
            let mut builder = BatchBuilder::new(Table::GpuEvents);
            let identity = builder.intern(&Identity::default().with(IdentityColumn::Uuid, name).unwrap());
            let row = builder.row(BASE_NS + second * SECOND_NS, identity);
            builder.set(row, MetricId::of("power_w"), Value::Float(100.0)).unwrap();
            ledger.add(&builder.finish(Origin::default(), 1).unwrap(), &ALONE);
            told.extend(ledger.due());
        }
    }
    told.extend(ledger.finish());
    let merged = merged(&told);
    let mut held: BTreeMap<(Arc<str>, String, String), f64> = BTreeMap::new();
    for row in 0..merged.rows() {
        let of = |name: &str| number(&merged, name, row).unwrap();
        let key = merged.identity(row).key().unwrap();
        let run = of("run").to_string();
        *held.entry((key, run, text(&merged, "holder", row))).or_default() += of("held_ns") / 1e9;
    }
    held.iter().map(|((gpu, run, holder), seconds)| format!("{gpu} run {run} {holder} {seconds} s")).collect()
}

#[test]
fn after_a_node_slept_for_hours_each_of_its_gpus_has_the_time_that_nobody_saw() {
    // From the 59th second on for eight hours.
    let told = told_of_two(&[0, 28_859]);
    let wanted = [
        "GPU-1 run 0 nobody 118 s",
        "GPU-1 run 0 unobserved 28800 s",
        "GPU-2 run 0 nobody 59 s",
        "GPU-2 run 1 nobody 59 s",
        "GPU-2 run 1 unobserved 28800 s",
    ];
    assert_eq!(told, wanted);
}

#[test]
fn after_the_clock_was_set_back_by_hours_each_gpu_goes_on_as_another_run() {
    let told = told_of_two(&[8_400, 0]);
    let wanted = [
        "GPU-1 run 0 nobody 59 s",
        "GPU-1 run 1 nobody 59 s",
        "GPU-2 run 0 nobody 59 s",
        "GPU-2 run 1 nobody 59 s",
    ];
    assert_eq!(told, wanted);
}
