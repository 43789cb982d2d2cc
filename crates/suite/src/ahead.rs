//! Rows of a clock that is ahead.

use gpuvitals_core::clock;
use gpuvitals_core::history::{History, RowsQuery};
use gpuvitals_core::ports::Sink;
use gpuvitals_core::time::{MINUTE_NS, SECOND_NS};
use gpuvitals_core::{IdentityColumn, Table};

use crate::ask::{check_fleet, check_rows};
use crate::model::Model;
use crate::rows::{TestRow, batches};

/// How far ahead of our clock a row of these tests may be and count at once.
pub const AHEAD_AT_MOST_NS: i64 = SECOND_NS / 10;
/// By how much a row is ahead whose time comes while a test waits.
const SOON_NS: i64 = SECOND_NS / 2;

/// Writes rows of clocks that are nearly an hour ahead into an empty history: they are rows at once, and no part of the latest state.
/// Returns what counts.
pub async fn check_rows_ahead(sink: &dyn Sink, history: &dyn History) -> Model {
    let now_ns = clock::now_ns();
    let known = |gpu: u8| TestRow {
        time_ns: now_ns - SECOND_NS,
        pod: Some(0),
        power: Some(800),
        memory: Some(1_000),
        energy: Some(7),
        xid: Some(79),
        ..TestRow::of(gpu, 0)
    };
    let ahead = |gpu: u8| TestRow {
        time_ns: now_ns + 50 * MINUTE_NS,
        pod: Some(1),
        power: Some(80),
        memory: Some(1),
        clock: Some(1_500),
        xid: Some(0),
        ..known(gpu)
    };
    let (mut rows, mut counted) = (Model::default(), Model::default());
    // One after the other, in one batch, the wrong clock first, and the wrong clock alone.
    for written in
        [vec![known(0)], vec![ahead(0)], vec![known(1), ahead(1)], vec![ahead(2), known(2)], vec![ahead(3)]]
    {
        sink.accept(batches(&written)).await.unwrap();
        rows.add(&written);
        counted.add(&written.into_iter().filter(|row| row.time_ns < now_ns).collect::<Vec<_>>());
        check_fleet(history, &counted).await;
    }
    let holder = async || {
        let fleet = history.fleet().await.unwrap().answer;
        fleet.get("GPU-0").unwrap().identity.get(IdentityColumn::Pod).map(str::to_owned)
    };
    assert_eq!(holder().await.as_deref(), Some("pod-0"));

    // With the right time again it goes on at once.
    let next = [TestRow { time_ns: clock::now_ns(), power: Some(808), ..known(0) }];
    sink.accept(batches(&next)).await.unwrap();
    rows.add(&next);
    counted.add(&next);
    check_fleet(history, &counted).await;
    let gpus = ["GPU-0", "GPU-1", "GPU-2"].map(Into::into).to_vec();
    check_rows(history, &rows, &RowsQuery { gpus, with_total: true, ..RowsQuery::of(Table::GpuEvents, 100) })
        .await;
    counted
}

/// Writes a row that is ahead by more than [`AHEAD_AT_MOST_NS`], and nothing else: it counts when its time has come. `counted` has the
/// rows that count, and gets it.
pub async fn check_row_due(sink: &dyn Sink, history: &dyn History, counted: &mut Model) {
    let soon = [TestRow { time_ns: clock::now_ns() + SOON_NS, xid: Some(94), ..TestRow::of(0, 0) }];
    sink.accept(batches(&soon)).await.unwrap();
    counted.add(&soon);
    until_seen(history, soon[0].time_ns).await;
    let least_ns = soon[0].time_ns - AHEAD_AT_MOST_NS;
    assert!(clock::now_ns() >= least_ns, "a row counts before its time");
    check_fleet(history, counted).await;
}

/// Asks until the latest state has a row of this time.
async fn until_seen(history: &dyn History, time_ns: i64) {
    while history.fleet().await.unwrap().answer.gpus.iter().all(|gpu| gpu.last_seen_ns != time_ns) {
        assert!(clock::now_ns() < time_ns + MINUTE_NS, "a row whose time has come does not count");
        std::thread::yield_now();
    }
}
