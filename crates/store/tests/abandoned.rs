//! A question that is dropped stops burning the processor. It is alone in its process, whose time is measured.

#![expect(clippy::unwrap_used, reason = "what fails here fails its test")]

use std::time::Duration;

use gpuvitals_core::history::{Aggregate, BucketQuery, GroupColumn, History, Selector};
use gpuvitals_core::{MetricId, Table};
use gpuvitals_rig::waiting::until;
use gpuvitals_store::{Store, StoreConfig};
use gpuvitals_suite::{BASE_NS, TestRow, batch};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Runtime};

/// Rows are added for so many seconds, until a question of them takes long enough.
const SECONDS: i64 = 1_000;

/// Processor time of the process.
fn burnt() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

/// Writes rows of some seconds to files.
fn write(runtime: &Runtime, store: &Store, from_s: i64) {
    for first in (from_s..from_s + SECONDS).step_by(50) {
        let row = |second, gpu| TestRow { power: Some(7), energy: Some(9), ..TestRow::of(gpu, second) };
        let seconds = first..first + 50;
        let rows: Vec<TestRow> =
            seconds.flat_map(|second| (0..250).map(move |gpu| row(second, gpu))).collect();
        runtime.block_on(store.append(vec![batch(&rows)])).unwrap();
    }
    runtime.block_on(store.flush()).unwrap();
}

#[test]
fn a_question_that_is_dropped_burns_no_core_for_50_ms() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
    // Without optimisation a row takes so much longer that a part must have fewer of them to take as long.
    let config = StoreConfig { merge: false, row_group_rows: 8_192, ..StoreConfig::new(dir.path()) };
    let (store, _) = Store::open(config).unwrap();
    let query_of = |seconds| BucketQuery {
        table: Table::GpuEvents,
        gpus: Vec::new(),
        selector: Selector::default(),
        metrics: vec![MetricId::of("power_w"), MetricId::of("energy_mj")],
        start_ns: BASE_NS,
        end_ns: BASE_NS + seconds * 1_000_000_000,
        // Several rows a step, so that a machine however fast has rows enough before an answer has too many points.
        step_ns: 10_000_000_000,
        phase_ns: 0,
        aggregates: vec![Aggregate::P90, Aggregate::Rate],
        group_by: vec![GroupColumn::Gpu],
    };
    // How long it takes is a matter of the machine and of optimisation.
    let (mut seconds, mut whole) = (0, Duration::ZERO);
    while whole < Duration::from_millis(300) {
        write(&runtime, &store, seconds);
        seconds += SECONDS;
        let start = burnt();
        runtime.block_on(store.buckets(query_of(seconds))).unwrap();
        whole = burnt().saturating_sub(start);
        assert!(seconds < 20 * SECONDS, "the question is too short to be dropped in its middle: {whole:?}");
    }
    let query = query_of(seconds);

    let asked = store.clone();
    let start = burnt();
    let question = runtime.spawn(async move { asked.buckets(query).await.map(drop) });
    until("its beginning", burnt, |now| now.saturating_sub(start) >= whole / 5);
    let left = burnt();
    question.abort();
    // That waits for the threads that read.
    drop(runtime);
    let after = burnt().saturating_sub(left);
    let cores = u32::try_from(std::thread::available_parallelism().unwrap().get()).unwrap();
    let most = (Duration::from_millis(50) * cores).min(whole / 3);
    assert!(after < most, "{after:?} of {whole:?} were burnt after it was dropped");
}
