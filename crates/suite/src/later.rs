//! Of two rows with one key the one with the later version stays, whatever came later: frames of `gpu_usage` in every order.

use std::collections::BTreeMap;

use gpuvitals_core::batch::Value;
use gpuvitals_core::history::{History, RowsQuery, all_holdings};
use gpuvitals_core::ports::Sink;
use gpuvitals_core::time::{HOUR_NS, SECOND_NS};
use gpuvitals_core::usage::{HoldingGroup, HoldingsQuery};
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table};

use crate::rows::{BASE_NS, answer};

/// The orders in which three versions of a row can come: each is that of a GPU of its own.
const ORDERS: [[i64; 3]; 6] = [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]];
/// The version that stays.
const LAST: i64 = 3;
/// Between which versions the back end does what it does on its own: a bit for each.
const SETTLED: std::ops::Range<usize> = 0..4;
/// Processes that add up: each has rows of its own.
const RUNS: [i64; 2] = [7, 8];
/// Seconds that a version adds to the one before.
const VERSION_S: i64 = 10;

fn hour_ns() -> i64 {
    BASE_NS - BASE_NS.rem_euclid(HOUR_NS)
}

fn key(pass: usize, order: usize) -> String {
    format!("GPU-{pass}-{order}")
}

/// The rows of all GPUs of a pass that come at a place of their orders.
fn frame(pass: usize, place: usize) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuUsage);
    for (order, versions) in ORDERS.iter().enumerate() {
        let version = versions[place];
        let mut identity = Identity::default();
        for (column, text) in
            [(IdentityColumn::Uuid, key(pass, order)), (IdentityColumn::Job, "7".to_owned())]
        {
            identity.set(column, &text).unwrap();
        }
        let identity = builder.intern(&identity);
        for run in RUNS {
            let row = builder.row(hour_ns(), identity);
            builder.set_extra_text(row, "holder", "job:7").unwrap();
            builder.set_extra_text(row, "share", "exclusive").unwrap();
            let held_ns = version * VERSION_S * SECOND_NS;
            for (column, number) in [
                ("run", run),
                ("as_of_ns", hour_ns() + held_ns),
                ("held_ns", held_ns),
                ("known_ns", held_ns),
                ("busy_ns", held_ns / 2),
            ] {
                builder.set_extra(row, column, Value::Int(number)).unwrap();
            }
            // What the last version does not have is no part of the row that stays.
            if version < LAST {
                builder.set_extra(row, "power_max_w", Value::Float(700.0)).unwrap();
            }
        }
    }
    builder.finish(Origin::default(), 0).unwrap()
}

/// Writes versions of rows of `gpu_usage` in every order, with the first of them once more at the end, in turns to these sinks. `settle` does
/// what the back end does on its own.
pub async fn write_in_any_order(sinks: &[&dyn Sink], settle: impl AsyncFn()) {
    for pass in SETTLED {
        for (turn, place) in [0, 1, 2, 0].into_iter().enumerate() {
            sinks[turn % sinks.len()].accept(vec![frame(pass, place)]).await.unwrap();
            if (pass >> turn) & 1 == 1 {
                settle().await;
            }
        }
    }
}

/// Checks that of each row the last version stays, alone and whole, and counts once.
pub async fn check_later_stays(history: &dyn History) {
    let rows = history.rows(RowsQuery::of(Table::GpuUsage, 1_000)).await.unwrap().answer;
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    let last = Value::Int(hour_ns() + LAST * VERSION_S * SECOND_NS).as_f64().to_string();
    for row in answer(&rows) {
        assert_eq!(row["as_of_ns"], last, "{row:?}");
        assert!(!row.contains_key("power_max_w"), "of an earlier version: {row:?}");
        *found.entry(row["uuid"].clone()).or_default() += 1;
    }
    let keys = SETTLED.flat_map(|pass| (0..ORDERS.len()).map(move |order| key(pass, order)));
    let wanted: BTreeMap<String, usize> = keys.map(|key| (key, RUNS.len())).collect();
    assert_eq!(found, wanted, "rows by GPU");
    let query = HoldingsQuery {
        gpus: Vec::new(),
        start_ns: hour_ns(),
        end_ns: hour_ns() + HOUR_NS,
        by: HoldingGroup::Gpu,
        holder: None,
    };
    let held = all_holdings(history, &query, None).await.unwrap().answer.finish();
    assert_eq!(held.groups.len(), wanted.len());
    for group in held.groups {
        // Runs add up, versions do not: sixty seconds.
        assert!((group.sums.held_s - 60.0).abs() < 1e-6, "{group:?}");
        assert!(group.sums.busy_s.is_some_and(|busy_s| (busy_s - 30.0).abs() < 1e-6), "{group:?}");
    }
}
