//! What is written and asked, by chance.

use std::sync::Arc;

use gpuvitals_core::history::{
    Aggregate, BucketQuery, GroupColumn, History, Matcher, Pattern, RowsQuery, Selector, TextTest,
};
use gpuvitals_core::ports::Sink;
use gpuvitals_core::usage::{HOLDER_COLUMNS, ToldApart, UseDetail, UseQuery};
use gpuvitals_core::{IdentityColumn, MetricId, Table};
use proptest::prelude::*;

use crate::ask::{
    check_buckets, check_fleet, check_fleet_as_of, check_pages, check_rows, check_sweep, check_use,
};
use crate::model::Model;
use crate::rows::{BASE_NS, TestRow, batches};

const SECOND_NS: i64 = 1_000_000_000;
const AGGREGATES: [Aggregate; 11] = [
    Aggregate::Min,
    Aggregate::Max,
    Aggregate::Mean,
    Aggregate::P50,
    Aggregate::P90,
    Aggregate::P99,
    Aggregate::Last,
    Aggregate::Count,
    Aggregate::Rate,
    Aggregate::Increase,
    Aggregate::Delta,
];
const COLUMNS: [IdentityColumn; 5] = [
    IdentityColumn::Pod,
    IdentityColumn::Job,
    IdentityColumn::Node,
    IdentityColumn::Model,
    IdentityColumn::Partition,
];

/// Something that is done to a sink.
#[derive(Debug, Clone)]
pub enum Write {
    /// Rows come, as one batch of each table.
    Rows(Vec<TestRow>),
    /// The rows of the last time come once more.
    Again,
    /// What the back end does on its own now and then: flushing, merging.
    Settle,
}

/// What is written, and what is asked then.
#[derive(Debug, Clone)]
pub struct Case {
    /// Writes, in order.
    pub writes: Vec<Write>,
    /// Questions for a page of rows.
    pub rows: Vec<RowsQuery>,
    /// Questions for rows, page by page.
    pub pages: Vec<RowsQuery>,
    /// Questions for values by steps.
    pub buckets: Vec<BucketQuery>,
    /// Questions for the use of GPUs by steps.
    pub uses: Vec<UseQuery>,
}

/// Cases by chance.
pub fn cases() -> impl Strategy<Value = Case> {
    let write = prop_oneof![
        5 => prop::collection::vec(row(), 0..80).prop_map(Write::Rows),
        1 => Just(Write::Again),
        3 => Just(Write::Settle),
    ];
    let pages = (row_questions(), 1..30_usize).prop_map(|(query, limit)| RowsQuery {
        limit,
        metrics: Some(Vec::new()),
        ..query
    });
    (
        (prop::collection::vec(write, 1..7), steady_rows()).prop_map(|(writes, rows)| spread(writes, rows)),
        prop::collection::vec(row_questions(), 6),
        prop::collection::vec(pages, 3),
        prop::collection::vec(bucket_questions(), 8),
        prop::collection::vec(use_questions(), 2),
    )
        .prop_map(|(writes, rows, pages, buckets, uses)| Case { writes, rows, pages, buckets, uses })
}

impl Case {
    /// Writes everything. `settle` does what the back end does on its own.
    pub async fn write(&self, sink: &dyn Sink, settle: impl AsyncFn()) -> Model {
        let mut model = Model::default();
        let mut last: &[TestRow] = &[];
        for write in &self.writes {
            match write {
                Write::Settle => settle().await,
                Write::Rows(rows) => last = rows,
                Write::Again => {}
            }
            if !matches!(write, Write::Settle) && !last.is_empty() {
                sink.accept(batches(last)).await.unwrap();
                model.add(last);
            }
        }
        model
    }

    /// Asks a history all questions of the case, and compares its answers with the model's.
    pub async fn ask(&self, history: &dyn History, model: &Model) {
        assert_eq!(self.ask_but_lacks(history, model).await, Vec::<String>::new());
    }

    /// Asks everything of a history whose sums of use may be too large. Returns what it says of that.
    pub async fn ask_but_lacks(&self, history: &dyn History, model: &Model) -> Vec<String> {
        check_fleet(history, model).await;
        for query in &self.rows {
            if let Some(at_ns) = query.end_ns {
                check_fleet_as_of(history, model, at_ns).await;
            }
            check_rows(history, model, query).await;
            check_sweep(history, model, query).await;
        }
        for query in &self.pages {
            check_pages(history, model, query).await;
        }
        for query in &self.buckets {
            check_buckets(history, model, query).await;
        }
        let mut lacks = Vec::new();
        for query in &self.uses {
            lacks.extend(check_use(history, model, query).await);
        }
        lacks
    }
}

fn row() -> impl Strategy<Value = TestRow> {
    let few = || prop::option::of(0..2_u8);
    let whose = (0..5_u8, prop::option::weighted(0.2, 0..2_u8), prop::bool::weighted(0.9), few(), few());
    let values = (
        prop::option::of(0..4000_i16),
        prop::option::of(0..90_000_i32),
        prop::option::of(0..2500_i16),
        prop::option::weighted(0.8, prop_oneof![8 => 0..400_u64, 1 => 0..1_u64 << 40]),
        prop::option::weighted(0.2, any::<i8>()),
        prop::option::weighted(0.2, 0..3_u8),
    );
    (whose, 0..60_i64, values).prop_map(
        |((gpu, partition, has_node, pod, job), second, (power, memory, clock, energy, extra, note))| {
            let own = TestRow::of(gpu, second);
            TestRow { partition, has_node, pod, job, power, memory, clock, energy, extra, note, ..own }
        },
    )
}

/// Rows of GPUs of which nothing is to be judged: with power `GPU-5`, with a counter `GPU-6`, at most four seconds apart; and where each
/// row is written.
fn steady_rows() -> impl Strategy<Value = Vec<(prop::sample::Index, TestRow)>> {
    let one = || (1..5_i64, row(), 0..3_u8, any::<bool>(), any::<prop::sample::Index>());
    let of_gpu = move |gpu: u8| {
        prop::collection::vec(one(), 2..24).prop_map(move |rows| {
            let mut second = 0;
            let steady = rows.into_iter().map(|(apart, row, load, is_held, to)| {
                second += apart;
                let has_power = gpu == 5;
                let row = TestRow {
                    gpu,
                    time_ns: BASE_NS + second * SECOND_NS,
                    partition: None,
                    power: has_power.then_some(row.power.unwrap_or(800)),
                    // Few joules, so that a difference of sums is exact enough.
                    energy: (!has_power).then_some(row.energy.unwrap_or(100) % 400),
                    utilization: Some(load * 40),
                    throttled: Some(is_held),
                    ..row
                };
                (to, row)
            });
            steady.collect::<Vec<_>>()
        })
    };
    (of_gpu(5), of_gpu(6)).prop_map(|(one, other)| [one, other].concat())
}

/// Writes these rows, too: each beside others, and with them again.
fn spread(mut writes: Vec<Write>, rows: Vec<(prop::sample::Index, TestRow)>) -> Vec<Write> {
    if !writes.iter().any(|write| matches!(write, Write::Rows(_))) {
        writes.insert(0, Write::Rows(Vec::new()));
    }
    for (to, row) in rows {
        let mut lists: Vec<&mut Vec<TestRow>> = writes
            .iter_mut()
            .filter_map(|write| if let Write::Rows(rows) = write { Some(rows) } else { None })
            .collect();
        let list = to.index(lists.len());
        lists[list].push(row);
    }
    writes
}

fn gpus() -> impl Strategy<Value = Vec<Arc<str>>> {
    let some = ["GPU-0", "GPU-1", "GPU-1:p0", "GPU-3:p1", "GPU-4", "GPU-9", "GPU", "node-0"];
    let one = prop::sample::select(some.to_vec()).prop_map(Arc::from);
    prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(one, 1..4)]
}

fn selectors() -> impl Strategy<Value = Selector> {
    let text = prop::sample::select(vec!["pod-0", "pod-1", "job-0", "node-0", "node-1", "model 2", "p1", ""]);
    let texts = prop::collection::vec(text.prop_map(Arc::<str>::from), 1..3);
    let pattern = prop::sample::select(vec!["pod-.*", ".+", "(job|node)-1", "pod", "model [01]|p.*"]);
    let pattern = || pattern.clone().prop_map(|text| Pattern::new(text).unwrap());
    let test = prop_oneof![
        texts.clone().prop_map(TextTest::Is),
        texts.prop_map(TextTest::IsNot),
        pattern().prop_map(TextTest::Matches),
        pattern().prop_map(TextTest::MatchesNot),
    ];
    let matcher = (prop::sample::select(COLUMNS.to_vec()), test);
    let matchers = prop::collection::vec(matcher.prop_map(|(column, test)| Matcher { column, test }), 0..3);
    matchers.prop_map(|matchers| Selector::new(matchers).unwrap())
}

fn seconds() -> impl Strategy<Value = i64> {
    (-3..63_i64).prop_map(|second| BASE_NS + second * SECOND_NS)
}

fn row_questions() -> impl Strategy<Value = RowsQuery> {
    let tables = vec![
        Table::GpuEvents,
        Table::GpuEvents,
        Table::GpuDetails,
        Table::SystemEvents,
        Table::GpuUsage,
        Table::Jobs,
    ];
    let columns =
        ["held_ns", "power_w", "memory_used_mb", "strange", "note", "value", "memory_mb", "nobody_has_this"];
    let metrics = prop::option::of(prop::sample::subsequence(columns.to_vec(), 0..=columns.len()));
    let range = (prop::option::of(seconds()), prop::option::of(0..65_i64));
    let page = (0..70_usize, 0..40_usize, any::<[bool; 2]>());
    (prop::sample::select(tables), gpus(), selectors(), range, metrics, page).prop_map(
        |(
            table,
            gpus,
            selector,
            (start_ns, length),
            metrics,
            (limit, offset, [newest_first, with_total]),
        )| {
            RowsQuery {
                gpus,
                selector,
                start_ns,
                end_ns: length.map(|length| start_ns.unwrap_or(BASE_NS) + length * SECOND_NS),
                metrics: metrics.map(|names| names.into_iter().map(str::to_owned).collect()),
                offset,
                newest_first,
                with_total,
                ..RowsQuery::of(table, limit)
            }
        },
    )
}

fn use_questions() -> impl Strategy<Value = UseQuery> {
    let step = prop::sample::select(vec![7_i64, 10, 20, 60, 3_600]);
    let told_apart = prop::option::of(prop::sample::subsequence(HOLDER_COLUMNS.to_vec(), 0..=3));
    (gpus(), seconds(), 0..63_i64, prop::option::weighted(0.8, step), told_apart).prop_map(
        |(gpus, start_ns, length, step, told_apart)| UseQuery {
            gpus,
            start_ns,
            end_ns: start_ns + length * SECOND_NS,
            step_ns: step.map(|step| step * SECOND_NS),
            told_apart: told_apart.map_or(ToldApart::ALL, ToldApart::by),
            detail: UseDetail::Sums,
        },
    )
}

fn bucket_questions() -> impl Strategy<Value = BucketQuery> {
    let columns = COLUMNS.into_iter().map(GroupColumn::Identity).chain([GroupColumn::Gpu]);
    let group_by = prop::sample::subsequence(columns.collect::<Vec<_>>(), 0..=3);
    let aggregates = prop::sample::subsequence(AGGREGATES.to_vec(), 1..=AGGREGATES.len());
    // Few aggregates have ways of their own through a back end.
    let aggregates = prop_oneof![aggregates, prop::sample::subsequence(AGGREGATES[..3].to_vec(), 1..=3)];
    let metrics = vec!["power_w", "memory_used_mb", "gpu_clock_mhz", "energy_mj"];
    let metrics = prop::sample::subsequence(metrics, 1..=4);
    let step = prop_oneof![1..130_i64, prop::sample::select(vec![20_i64, 40, 60, 120])];
    let phase = prop_oneof![3 => Just(0), 1 => 1..40_i64];
    (gpus(), selectors(), seconds(), 0..63_i64, (step, phase), (group_by, aggregates, metrics)).prop_map(
        |(gpus, selector, start_ns, length, (step, phase), (group_by, aggregates, metrics))| BucketQuery {
            table: Table::GpuEvents,
            gpus,
            selector,
            metrics: metrics.into_iter().map(MetricId::of).collect(),
            start_ns,
            end_ns: start_ns + length * SECOND_NS,
            step_ns: step * SECOND_NS / 2,
            phase_ns: phase * SECOND_NS / 2,
            aggregates,
            group_by,
        },
    )
}
