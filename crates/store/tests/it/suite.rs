//! The store does what every sink and history does, whatever it has flushed, merged and rolled up; and so does a view beside it.

use std::sync::Arc;

use gpuvitals_core::history::{
    Aggregate, BucketQuery, FleetBounds, GroupColumn, History, Matcher, Pattern, Selector, TextTest,
};
use gpuvitals_core::{IdentityColumn, MetricId, Table};
use gpuvitals_rig::rounds::rounds;
use gpuvitals_store::{Store, StoreConfig, StoreView};
use gpuvitals_suite::{
    AHEAD_AT_MOST_NS, BASE_NS, Case, Model, TestRow, Write, cases, check_buckets, check_fleet,
    check_later_stays, check_row_due, check_rows_ahead, write_in_any_order,
};
use proptest::prelude::*;
use tokio::runtime::{Builder, Runtime};

const SECOND_NS: i64 = 1_000_000_000;

/// Row groups, pages and merged files so small that a handful of rows makes use of them.
fn config(dir: &std::path::Path) -> StoreConfig {
    StoreConfig {
        row_group_gpus: 2,
        row_group_rows: 32,
        page_rows: 4,
        merge_files: 2,
        file_bytes: 1,
        ..StoreConfig::new(dir)
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

/// Opens a store with rollups of few rows. Whatever settles is merged, by the day only if so said.
async fn rolling(dir: &std::path::Path, case: &Case, days: bool) -> (Store, Model) {
    let day_bytes = if days { u64::MAX } else { 0 };
    let (store, _) = Store::open(StoreConfig { rollup_rows: 1, day_bytes, ..config(dir) }).unwrap();
    let settle = async || {
        store.flush().await.unwrap();
        store.compact().await.unwrap();
    };
    let model = case.write(&store, settle).await;
    (store, model)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: rounds(96), ..ProptestConfig::default() })]
    #[test]
    fn the_store_answers_as_all_histories_do(case in cases(), merges in any::<bool>()) {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(StoreConfig { merge: merges, ..config(dir.path()) }).unwrap();
        runtime().block_on(async {
            let model = case.write(&store, async || store.flush().await.unwrap()).await;
            case.ask(&store, &model).await;
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: rounds(32), ..ProptestConfig::default() })]
    #[test]
    fn rollups_have_the_answers_of_their_rows(case in cases(), days in any::<bool>()) {
        let dir = tempfile::tempdir().unwrap();
        runtime().block_on(async {
            let (store, model) = rolling(dir.path(), &case, days).await;
            case.ask(&store, &model).await;
        });
    }

    #[test]
    fn a_view_answers_as_its_store_did(case in cases()) {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(config(dir.path())).unwrap();
        runtime().block_on(async {
            let model = case.write(&store, async || store.flush().await.unwrap()).await;
            case.ask(&StoreView::open(dir.path()).unwrap(), &model).await;
        });
    }
}

#[test]
fn of_two_rows_of_one_key_the_later_version_stays_in_memory_in_files_merged_and_opened_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(StoreConfig { rollup_rows: 1, ..config(dir.path()) }).unwrap();
    runtime().block_on(async {
        let settle = async || {
            store.flush().await.unwrap();
            store.compact().await.unwrap();
        };
        write_in_any_order(&[&store], settle).await;
        check_later_stays(&store).await;
        check_later_stays(&StoreView::open(dir.path()).unwrap()).await;
        store.flush().await.unwrap();
        store.compact().await.unwrap();
        check_later_stays(&store).await;
    });
}

#[test]
fn a_step_of_a_rollup_is_split_where_the_pod_changes() {
    let rows = (20..60).map(|second| {
        // A job of three pods in turns, and a counter that falls in the middle of one.
        let energy = u64::try_from(if second < 43 { second * 4 } else { (second - 43) * 8 }).unwrap();
        TestRow {
            pod: Some(u8::try_from(second / 7 % 3).unwrap()),
            energy: Some(energy),
            ..TestRow::of(0, second)
        }
    });
    let writes = vec![Write::Rows(rows.collect()), Write::Settle];
    let case = Case { writes, rows: Vec::new(), pages: Vec::new(), buckets: Vec::new(), uses: Vec::new() };
    let dir = tempfile::tempdir().unwrap();
    let pod = GroupColumn::Identity(IdentityColumn::Pod);
    let questions = [
        (vec![], TextTest::IsNot(Vec::new())),
        (vec![pod], TextTest::IsNot(Vec::new())),
        (vec![], TextTest::Is(vec![Arc::from("pod-1")])),
        (vec![GroupColumn::Gpu, pod], TextTest::Matches(Pattern::new("pod-[02]").unwrap())),
    ];
    runtime().block_on(async {
        let (store, model) = rolling(dir.path(), &case, false).await;
        for (group_by, test) in questions {
            let query = BucketQuery {
                table: Table::GpuEvents,
                gpus: Vec::new(),
                selector: Selector::new(vec![Matcher { column: IdentityColumn::Pod, test }]).unwrap(),
                metrics: vec![MetricId::of("energy_mj")],
                start_ns: BASE_NS + 20 * SECOND_NS,
                end_ns: BASE_NS + 59 * SECOND_NS + 999_999_999,
                step_ns: 20 * SECOND_NS,
                phase_ns: 0,
                aggregates: vec![Aggregate::Rate, Aggregate::Increase, Aggregate::Delta, Aggregate::Count],
                group_by,
            };
            check_buckets(&store, &model, &query).await;
            assert_eq!(store.buckets(query).await.unwrap().answer.rollup_ns(), 10 * SECOND_NS);
        }
    });
}

#[test]
fn rows_of_a_clock_ahead_count_when_their_time_has_come() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = FleetBounds { ahead_max_ns: AHEAD_AT_MOST_NS, ..FleetBounds::default() };
    let open = || Store::open(StoreConfig { fleet, ..config(dir.path()) }).unwrap().0;
    runtime().block_on(async {
        let store = open();
        let mut counted = check_rows_ahead(&store, &store).await;
        check_row_due(&store, &store, &mut counted).await;
        store.flush().await.unwrap();
        check_fleet(&store, &counted).await;
        store.close().await.unwrap();
        drop(store);
        check_fleet(&open(), &counted).await;
    });
}
