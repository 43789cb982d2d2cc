//! Selectors, groups, rates and pages, against the same store's own rows, looked at one by one.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "what fails here fails its test"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::batch::Value;
use gpuvitals_core::history::{
    Aggregate, BucketQuery, GroupColumn, History, Matcher, Pattern, Rows, RowsQuery, Selector, TextTest,
};
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table};
use gpuvitals_store::{Store, StoreConfig};
use proptest::prelude::*;

/// 2026-11-20 09:59:40: rows fall on both sides of an hour.
const BASE_NS: i64 = 1_795_168_780_000_000_000;
const SECOND_NS: i64 = 1_000_000_000;
const AGGREGATES: [Aggregate; 6] = [
    Aggregate::Last,
    Aggregate::Count,
    Aggregate::P50,
    Aggregate::Rate,
    Aggregate::Increase,
    Aggregate::Delta,
];
const COLUMNS: [IdentityColumn; 3] = [IdentityColumn::Pod, IdentityColumn::Job, IdentityColumn::Node];

/// GPU, second, pod, job, energy in joules.
type Sample = (u8, i64, Option<u8>, Option<u8>, Option<u16>);

fn batch(samples: &[Sample]) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    for (gpu, second, pod, job, energy) in samples {
        let mut identity = Identity::default();
        identity.set(IdentityColumn::Uuid, &format!("GPU-{gpu}")).unwrap();
        identity.set(IdentityColumn::Node, &format!("node-{}", gpu % 2)).unwrap();
        for (column, text) in [(IdentityColumn::Pod, pod), (IdentityColumn::Job, job)] {
            if let Some(text) = text {
                identity.set(column, &format!("{}-{text}", column.name())).unwrap();
            }
        }
        let identity = builder.intern(&identity);
        let row = builder.row(BASE_NS + second * SECOND_NS, identity);
        if let Some(energy) = energy {
            builder.set(row, MetricId::of("energy_j"), Value::Float(f64::from(*energy) / 4.0)).unwrap();
        }
    }
    builder.finish(Origin::default(), 0).unwrap()
}

fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let pod = || prop::option::of(0..2_u8);
    let sample = (0..4_u8, 0..60_i64, pod(), pod(), prop::option::weighted(0.8, 0..400_u16));
    prop::collection::vec(sample, 1..80)
}

fn matchers() -> impl Strategy<Value = Vec<Matcher>> {
    let text = prop::sample::select(vec!["pod-0", "pod-1", "job-0", "node-0", "node-1", ""]);
    let texts = prop::collection::vec(text.prop_map(Arc::<str>::from), 1..3);
    let pattern = prop::sample::select(vec!["pod-.*", ".+", "(job|node)-1", "pod"]);
    let pattern = || pattern.clone().prop_map(|text| Pattern::new(text).unwrap());
    let test = prop_oneof![
        texts.clone().prop_map(TextTest::Is),
        texts.prop_map(TextTest::IsNot),
        pattern().prop_map(TextTest::Matches),
        pattern().prop_map(TextTest::MatchesNot),
    ];
    let matcher = (prop::sample::select(COLUMNS.to_vec()), test);
    prop::collection::vec(matcher.prop_map(|(column, test)| Matcher { column, test }), 0..3)
}

fn questions() -> impl Strategy<Value = BucketQuery> {
    let columns = COLUMNS.into_iter().map(GroupColumn::Identity).chain([GroupColumn::Gpu]);
    let group_by = prop::sample::subsequence(columns.collect::<Vec<_>>(), 0..=3);
    let aggregates = prop::sample::subsequence(AGGREGATES.to_vec(), 1..=6);
    let step = prop_oneof![1..130_i64, prop::sample::select(vec![20_i64, 40, 60, 120])];
    (matchers(), group_by, aggregates, -3..63_i64, 0..63_i64, step).prop_map(
        |(matchers, group_by, aggregates, start, length, step)| BucketQuery {
            table: Table::GpuEvents,
            gpus: Vec::new(),
            selector: Selector::new(matchers).unwrap(),
            metrics: vec![MetricId::of("energy_j")],
            start_ns: BASE_NS + start * SECOND_NS,
            end_ns: BASE_NS + (start + length) * SECOND_NS,
            step_ns: step * SECOND_NS / 2,
            aggregates,
            group_by,
        },
    )
}

type Group = Vec<Option<String>>;

/// A merged row.
struct Row {
    gpu: String,
    time_ns: i64,
    identity: Identity,
    energy: Option<f64>,
}

fn rows_of(rows: &Rows) -> Vec<Row> {
    let Some(batch) = &rows.batch else { return Vec::new() };
    let (_, energy) = batch.metrics().find(|(id, _)| *id == MetricId::of("energy_j")).unzip();
    let row = |row: usize| Row {
        gpu: batch.identity(row).key().unwrap().to_string(),
        time_ns: batch.timestamps()[row],
        identity: batch.identity(row),
        energy: energy.as_ref().and_then(|column| column.value(row)).map(Value::as_f64),
    };
    (0..batch.rows()).map(row).collect()
}

/// By aggregate, group and start of the step.
type Expected = BTreeMap<(Aggregate, Group, i64), f64>;

fn expected(rows: &[Row], query: &BucketQuery) -> Expected {
    let mut steps: BTreeMap<(Group, String, i64), Vec<(i64, f64)>> = BTreeMap::new();
    for row in rows {
        let text = |column: &GroupColumn| match column {
            GroupColumn::Gpu => Some(row.gpu.clone()),
            GroupColumn::Identity(column) => row.identity.get(*column).map(str::to_owned),
        };
        if (query.start_ns..=query.end_ns).contains(&row.time_ns)
            && query.selector.selects(|column| row.identity.get(column))
            && let Some(energy) = row.energy
        {
            let step = row.time_ns.div_euclid(query.step_ns) * query.step_ns;
            let group = query.group_by.iter().map(text).collect();
            steps.entry((group, row.gpu.clone(), step)).or_default().push((row.time_ns, energy));
        }
    }
    let mut found = Expected::new();
    let mut all: BTreeMap<(Group, i64), Vec<(i64, f64)>> = BTreeMap::new();
    let mut before: BTreeMap<(Group, String), f64> = BTreeMap::new();
    for ((group, gpu, step), values) in steps {
        let base = before.insert((group.clone(), gpu), values[values.len() - 1].1);
        let mut last = base.unwrap_or(values[0].1);
        let delta = values[values.len() - 1].1 - last;
        let mut increase = 0.0;
        for (_, value) in &values {
            increase += if *value < last { *value } else { value - last };
            last = *value;
        }
        for (aggregate, moved) in [
            (Aggregate::Delta, delta),
            (Aggregate::Increase, increase),
            (Aggregate::Rate, increase / (query.step_ns as f64 / 1e9)),
        ] {
            *found.entry((aggregate, group.clone(), step)).or_default() += moved;
        }
        all.entry((group, step)).or_default().extend(values);
    }
    for ((group, step), mut values) in all {
        values.sort_by(|a, b| a.partial_cmp(b).unwrap());
        let last = values[values.len() - 1].1;
        values.sort_by(|a, b| a.1.total_cmp(&b.1));
        let median = values[values.len().div_ceil(2) - 1].1;
        for (aggregate, value) in
            [(Aggregate::Last, last), (Aggregate::Count, values.len() as f64), (Aggregate::P50, median)]
        {
            found.insert((aggregate, group.clone(), step), value);
        }
    }
    found.retain(|(aggregate, ..), _| query.aggregates.contains(aggregate));
    found
}

struct Bench {
    runtime: tokio::runtime::Runtime,
    store: Store,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new(appends: &[(Vec<Sample>, bool)], rolled: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = StoreConfig {
            row_group_gpus: 2,
            row_group_rows: 32,
            page_rows: 4,
            merge_files: 2,
            rollup_rows: 1,
            merge: rolled,
            merge_after: Duration::ZERO,
            day_bytes: 0,
            ..StoreConfig::new(dir.path())
        };
        let (store, _) = Store::open(config).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let bench = Self { runtime, store, _dir: dir };
        if rolled {
            // Both hours have a merged file with rollups, before the rest comes.
            for second in [0, 1] {
                bench
                    .append(&[(5, second, None, None, Some(1)), (5, 30 + second, None, None, Some(2))], true);
            }
            for (samples, _) in appends {
                bench.append(samples, true);
            }
            while bench.store.stats().flushed.files > 0 {
                bench.runtime.block_on(tokio::task::yield_now());
            }
        }
        for (samples, flush) in appends.iter().filter(|_| !rolled) {
            bench.append(samples, *flush);
        }
        bench
    }

    fn append(&self, samples: &[Sample], flush: bool) {
        self.runtime.block_on(self.store.append(vec![batch(samples)])).unwrap();
        if flush {
            self.runtime.block_on(self.store.flush()).unwrap();
        }
    }

    fn rows(&self, query: &RowsQuery) -> Rows {
        self.runtime.block_on(self.store.rows(query.clone())).unwrap().answer
    }

    fn check(&self, query: &BucketQuery) {
        let all = rows_of(&self.rows(&RowsQuery::of(Table::GpuEvents, 10_000)));
        let mut expected = expected(&all, query);
        let found = self.runtime.block_on(self.store.buckets(query.clone())).unwrap().answer;
        for line in found.series(&query.aggregates) {
            let group: Group = line.group.iter().map(|text| text.as_deref().map(str::to_owned)).collect();
            for (step, value) in line.values.iter().enumerate() {
                let place = (line.aggregate, group.clone(), found.steps().time(step));
                match (value, expected.remove(&place)) {
                    (None, None) => {}
                    (Some(found), Some(expected)) => {
                        let error = if line.aggregate == Aggregate::P50 { 0.01 } else { 1e-9 };
                        let close = (found - expected).abs() <= expected.abs() * error + 1e-9;
                        assert!(close, "{place:?}: {found}, not {expected}: {query:?}");
                    }
                    different => panic!("{place:?}: {different:?} of {query:?}"),
                }
            }
        }
        assert!(expected.is_empty(), "no {expected:?} of {query:?}");
    }

    /// Walks over all pages of the rows selected.
    fn check_pages(&self, matchers: &[Matcher], limit: usize, newest_first: bool) {
        let mut all = rows_of(&self.rows(&RowsQuery::of(Table::GpuEvents, 10_000)));
        let selector = Selector::new(matchers.to_vec()).unwrap();
        all.retain(|row| selector.selects(|column| row.identity.get(column)));
        all.sort_by_key(|row| (if newest_first { -row.time_ns } else { row.time_ns }, row.gpu.clone()));
        let expected: Vec<(i64, String)> = all.into_iter().map(|row| (row.time_ns, row.gpu)).collect();
        for with_total in [false, true] {
            let mut query = RowsQuery {
                selector: selector.clone(),
                newest_first,
                with_total,
                ..RowsQuery::of(Table::GpuEvents, limit)
            };
            let mut found = Vec::new();
            loop {
                let page = self.rows(&query);
                assert_eq!(page.total, with_total.then_some(expected.len()), "{query:?}");
                let rows = rows_of(&page);
                found.extend(rows.iter().map(|row| (row.time_ns, row.gpu.clone())));
                query.after = page.end();
                if rows.len() < limit {
                    break;
                }
            }
            assert_eq!(found, expected, "{query:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn answers_are_those_of_the_rows_one_by_one(
        appends in prop::collection::vec((samples(), any::<bool>()), 1..6),
        rolled in any::<bool>(),
        questions in prop::collection::vec(questions(), 8),
        pages in prop::collection::vec((matchers(), 1..30_usize, any::<bool>()), 3),
    ) {
        let bench = Bench::new(&appends, rolled);
        for question in &questions {
            bench.check(question);
        }
        for (matchers, limit, newest_first) in &pages {
            bench.check_pages(matchers, *limit, *newest_first);
        }
    }
}

#[test]
fn a_step_of_a_rollup_is_split_where_the_pod_changes() {
    let samples: Vec<Sample> = (20..60)
        .map(|second| {
            // A job of three pods in turns, and a counter that falls in the middle of one.
            let energy = u16::try_from(if second < 43 { second * 4 } else { (second - 43) * 8 }).unwrap();
            (0, second, Some(u8::try_from(second / 7 % 3).unwrap()), None, Some(energy))
        })
        .collect();
    let bench = Bench::new(&[(samples, true)], true);
    let pod = GroupColumn::Identity(IdentityColumn::Pod);
    for (group_by, test) in [
        (vec![], TextTest::IsNot(Vec::new())),
        (vec![pod], TextTest::IsNot(Vec::new())),
        (vec![], TextTest::Is(vec![Arc::from("pod-1")])),
        (vec![GroupColumn::Gpu, pod], TextTest::Matches(Pattern::new("pod-[02]").unwrap())),
    ] {
        let query = BucketQuery {
            table: Table::GpuEvents,
            gpus: Vec::new(),
            selector: Selector::new(vec![Matcher { column: IdentityColumn::Pod, test }]).unwrap(),
            metrics: vec![MetricId::of("energy_j")],
            start_ns: BASE_NS + 20 * SECOND_NS,
            end_ns: BASE_NS + 59 * SECOND_NS + 999_999_999,
            step_ns: 20 * SECOND_NS,
            aggregates: vec![Aggregate::Rate, Aggregate::Increase, Aggregate::Delta, Aggregate::Count],
            group_by,
        };
        bench.check(&query);
        let found = bench.runtime.block_on(bench.store.buckets(query)).unwrap().answer;
        assert_eq!(found.rollup_ns(), 10 * SECOND_NS);
    }
}
