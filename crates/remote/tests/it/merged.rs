//! Several histories as one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gpuvitals_core::history::{
    Aggregate, BucketQuery, Change, FleetBounds, GroupColumn, History, Part, QueryError, RowsQuery,
};
use gpuvitals_core::ports::{Answer, Sink, SinkError};
use gpuvitals_core::{Batch, Health, MetricId, Status, Table, figures::Family};
use gpuvitals_listener::client::Credentials;
use gpuvitals_remote::{Merged, NamedHistory, Remote};
use gpuvitals_rig::rounds::rounds;
use gpuvitals_rig::waiting::soon;
use gpuvitals_suite::{
    BASE_NS, Case, TestRow, Write, answer, batch, cases, check_later_stays, write_in_any_order,
};
use proptest::prelude::*;
use tokio::sync::mpsc::channel;

use crate::remote::Endless;
use crate::world::{Kept, dial};

fn merged(members: Vec<(&str, Arc<dyn History>)>) -> Merged {
    let members = members.into_iter().map(|(name, history)| NamedHistory { name: name.into(), history });
    Merged::new(members.collect(), Duration::from_secs(30))
}

fn two() -> (Kept, Kept, Merged) {
    let (a, b) = (Kept::new(), Kept::new());
    let both = merged(vec![("a", Arc::new(a.store.clone())), ("b", Arc::new(b.store.clone()))]);
    (a, b, both)
}

/// Which of two stores get a row.
type Split = fn(usize, &Batch) -> [bool; 2];

/// Two stores, each of which gets some of the rows.
#[derive(Debug)]
struct Shared([gpuvitals_store::Store; 2], Split);

impl Sink for Shared {
    fn accept(&self, batches: Vec<Batch>) -> Answer<'_, Result<(), SinkError>> {
        Box::pin(async move {
            for batch in batches {
                for (number, store) in self.0.iter().enumerate() {
                    let keep: Vec<bool> = (0..batch.rows())
                        .filter_map(|row| (self.1)(row, &batch).get(number).copied())
                        .collect();
                    if let Some(batch) = batch.filter(&keep) {
                        Sink::accept(store, vec![batch]).await?;
                    }
                }
            }
            Ok(())
        })
    }

    fn close(&self) -> Answer<'_, Result<(), SinkError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn health(&self) -> Health {
        Health::healthy(0)
    }

    fn families(&self) -> Vec<Family> {
        Vec::new()
    }
}

/// Each GPU's rows are in one of them.
fn by_gpu(row: usize, batch: &Batch) -> [bool; 2] {
    let is_first = batch.identity(row).index.is_some_and(|index| index % 2 == 0);
    [is_first, !is_first]
}

/// Rows of each second are in one of them; those of the GPUs of which nothing is to be judged are in the first.
fn by_time(row: usize, batch: &Batch) -> [bool; 2] {
    let is_even = batch.timestamps().get(row).is_some_and(|time| time / 1_000_000_000 % 2 == 0);
    let is_first = is_even || batch.identity(row).index >= Some(5);
    [is_first, !is_first]
}

/// Both have all rows.
fn twice(_row: usize, _batch: &Batch) -> [bool; 2] {
    [true, true]
}

/// Checks a case over two stores with their parts. Returns what the answers lack.
async fn check(case: &Case, split: Split) -> Vec<String> {
    let (a, b, both) = two();
    let shared = Shared([a.store.clone(), b.store.clone()], split);
    let settle = async || {
        a.store.flush().await.unwrap();
        b.store.flush().await.unwrap();
    };
    let model = case.write(&shared, settle).await;
    case.ask_but_lacks(&both, &model).await
}

#[test]
fn of_two_rows_of_one_key_in_two_stores_the_later_version_stays() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (a, b, both) = two();
        let settle = async || {
            a.store.flush().await.unwrap();
            b.store.flush().await.unwrap();
        };
        write_in_any_order(&[&a.store, &b.store], settle).await;
        check_later_stays(&both).await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: rounds(24), ..ProptestConfig::default() })]
    #[test]
    fn two_halves_of_a_fleet_answer_as_all_histories_do(case in cases()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        assert_eq!(runtime.block_on(check(&case, by_gpu)), Vec::<String>::new());
    }

    #[test]
    fn two_halves_of_each_gpus_rows_answer_as_all_histories_do(case in cases()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        // Rows at uneven distances are added up over both, which is said; nothing else is missing. usage.rs has cases in which it must be.
        let lacks = runtime.block_on(check(&case, by_time));
        assert!(lacks.iter().all(|what| what.starts_with("the use of ")), "{lacks:?}");
    }

    #[test]
    fn two_that_have_all_rows_have_the_use_of_one(case in cases()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let case = Case { rows: Vec::new(), pages: Vec::new(), buckets: Vec::new(), ..case };
        assert_eq!(runtime.block_on(check(&case, twice)), Vec::<String>::new());
    }
}

#[tokio::test]
async fn rows_that_two_hold_and_rows_in_halves_are_one() {
    let (a, b, both) = two();
    let half = |second| TestRow { power: Some(8), ..TestRow::of(0, second) };
    let other = |second| TestRow { clock: Some(1_500), memory: Some(7), ..TestRow::of(0, second) };
    let repeat = |second| TestRow { power: Some(16), ..TestRow::of(1, second) };
    let seconds = 0..10;
    let of_a: Vec<TestRow> = seconds.clone().flat_map(|second| [half(second), repeat(second)]).collect();
    let of_b: Vec<TestRow> = seconds.clone().flat_map(|second| [other(second), repeat(second)]).collect();
    Sink::accept(&a.store, vec![batch(&of_a)]).await.unwrap();
    Sink::accept(&b.store, vec![batch(&of_b)]).await.unwrap();
    let whole = seconds.flat_map(|second| [TestRow { power: Some(8), ..other(second) }, repeat(second)]);
    let case = Case {
        writes: vec![Write::Rows(whole.collect())],
        rows: vec![
            RowsQuery { with_total: true, ..RowsQuery::of(Table::GpuEvents, 100) },
            RowsQuery { newest_first: true, offset: 3, ..RowsQuery::of(Table::GpuEvents, 5) },
        ],
        pages: vec![RowsQuery::of(Table::GpuEvents, 3)],
        uses: Vec::new(),
        buckets: vec![BucketQuery {
            aggregates: vec![Aggregate::Min, Aggregate::Max, Aggregate::Last],
            group_by: vec![GroupColumn::Gpu],
            ..BucketQuery::of(
                Table::GpuEvents,
                vec![MetricId::of("power_w"), MetricId::of("gpu_clock_mhz")],
                BASE_NS,
                BASE_NS + 60_000_000_000,
                5_000_000_000,
            )
        }],
    };
    let one = Kept::new();
    let model = case.write(&one.store, async || {}).await;
    case.ask(&both, &model).await;
    // Of a page that is not all, the repeats that were seen do not count.
    let page = RowsQuery { with_total: true, ..RowsQuery::of(Table::GpuEvents, 4) };
    assert_eq!(both.rows(page).await.unwrap().answer.total, Some(36));
}

#[tokio::test]
async fn a_row_that_two_hold_counts_once_everywhere() {
    let (a, b, both) = two();
    let rows = |seconds: std::ops::Range<i64>| {
        let row = |second| TestRow { power: i16::try_from(8 * second).ok(), ..TestRow::of(0, second) };
        batch(&seconds.map(row).collect::<Vec<_>>())
    };
    Sink::accept(&a.store, vec![rows(0..6)]).await.unwrap();
    Sink::accept(&b.store, vec![rows(4..10)]).await.unwrap();
    let aggregates = [
        (Aggregate::Count, 10.0),
        (Aggregate::Mean, 4.5),
        (Aggregate::P50, 4.0),
        (Aggregate::Min, 0.0),
        (Aggregate::Max, 9.0),
        (Aggregate::Last, 9.0),
        (Aggregate::Increase, 9.0),
        (Aggregate::Delta, 9.0),
    ];
    let query = BucketQuery {
        aggregates: aggregates.iter().map(|(aggregate, _)| *aggregate).collect(),
        ..BucketQuery::of(
            Table::GpuEvents,
            vec![MetricId::of("power_w")],
            BASE_NS,
            BASE_NS + 9_000_000_000,
            10_000_000_000,
        )
    };
    let found = both.buckets(query.clone()).await.unwrap().answer;
    for (aggregate, expected) in aggregates {
        let [line] = &*found.series(&[aggregate]) else { panic!("not one line") };
        let [Some(value)] = *line.values else { panic!("{line:?}") };
        let close = if aggregate.needs_sketch() { 0.01 * expected } else { 1e-9 };
        assert!((value - expected).abs() <= close, "{aggregate:?}: {value}, not {expected}");
    }
    let all = RowsQuery { with_total: true, ..RowsQuery::of(Table::GpuEvents, 100) };
    assert_eq!(both.rows(all).await.unwrap().answer.total, Some(10));
}

#[tokio::test]
async fn who_shares_too_many_rows_is_named_and_who_shares_none_is_not() {
    let (a, b, both) = two();
    let rows = |gpu: u8, seconds: std::ops::Range<i64>| {
        let row = |second| TestRow { power: Some(8), ..TestRow::of(gpu, second) };
        batch(&seconds.map(row).collect::<Vec<_>>())
    };
    // The tenth GPU is in the second store alone, all others are in both.
    for gpu in 0..10 {
        Sink::accept(&b.store, vec![rows(gpu, 0..17_000)]).await.unwrap();
        if gpu < 9 {
            Sink::accept(&a.store, vec![rows(gpu, 0..17_000)]).await.unwrap();
        }
    }
    let count = |gpus: &[u8], seconds: i64, aggregate| BucketQuery {
        gpus: gpus.iter().map(|gpu| Arc::from(TestRow::of(*gpu, 0).key())).collect(),
        aggregates: vec![aggregate],
        ..BucketQuery::of(
            Table::GpuEvents,
            vec![MetricId::of("power_w")],
            BASE_NS,
            BASE_NS + seconds * 1_000_000_000 - 1,
            100_000_000_000_000_000,
        )
    };
    let ask = async |query: BucketQuery| {
        let Part { answer, missing } = both.buckets(query.clone()).await.unwrap();
        let [line] = &*answer.series(&query.aggregates) else { panic!("not one line") };
        (line.values.iter().flatten().sum::<f64>(), missing)
    };
    let (counted, missing) = ask(count(&[], 20_000, Aggregate::Count)).await;
    assert!((counted - 323_000.0).abs() < 0.5, "{counted}");
    let [words] = &*missing else { panic!("{missing:?}") };
    let named = TestRow::of(0, 0).key();
    assert!(words.contains("counts twice") && words.contains(&*named), "{words}");
    let whole: [(&[u8], i64, Aggregate, f64); 3] = [
        (&[], 1_000, Aggregate::Count, 10_000.0),
        (&[9], 20_000, Aggregate::Count, 17_000.0),
        (&[], 20_000, Aggregate::Max, 1.0),
    ];
    for (gpus, seconds, aggregate, expected) in whole {
        let (counted, missing) = ask(count(gpus, seconds, aggregate)).await;
        assert!((counted - expected).abs() < 0.5, "{gpus:?} {seconds}: {counted}");
        assert!(missing.is_empty(), "{missing:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_one_does_not_say_in_time_is_named_and_the_rest_stands() {
    let (told, _news) = channel(100);
    let kept = Kept::new();
    let both = merged(vec![("a", Arc::new(kept.store.clone())), ("b", Arc::new(Endless(told.clone())))]);
    let silent = merged(vec![("b", Arc::new(Endless(told)))]);
    let missing = vec!["b: no answer within 30 s".to_owned()];
    assert_eq!(both.fleet().await.unwrap().missing, missing);
    let rows = both.rows(RowsQuery { with_total: true, ..RowsQuery::of(Table::GpuEvents, 1) }).await.unwrap();
    assert_eq!((rows.answer.total, rows.missing), (Some(0), missing));
    let error = silent.fleet().await.unwrap_err();
    assert!(matches!(&error, QueryError::Away { reason } if reason.contains("b: no answer")), "{error:?}");
    let backward = RowsQuery { start_ns: Some(2), end_ns: Some(1), ..RowsQuery::of(Table::GpuEvents, 1) };
    assert!(matches!(both.rows(backward).await.unwrap_err(), QueryError::Range { .. }));
}

#[tokio::test]
async fn without_a_member_there_is_no_answer_but_a_reason() {
    let nobody = merged(Vec::new());
    let rows = nobody.rows(RowsQuery::of(Table::GpuEvents, 1)).await.map(drop);
    for error in [nobody.fleet().await.map(drop).unwrap_err(), rows.unwrap_err()] {
        assert!(
            matches!(&error, QueryError::Away { reason } if reason == "no collector is known"),
            "{error:?}"
        );
    }
    assert_eq!(nobody.health().status, Status::Degraded);
}

#[tokio::test]
async fn a_page_far_on_is_refused_before_any_member_is_asked() {
    let (told, mut news) = channel(1);
    let merged = merged(vec![("a", Arc::new(Endless(told)))]);
    for (offset, limit) in [(15_000_000, 10), (199_999, 2), (usize::MAX, usize::MAX)] {
        let far = RowsQuery { offset, ..RowsQuery::of(Table::GpuEvents, limit) };
        let error = merged.rows(far).await.unwrap_err();
        assert!(matches!(error, QueryError::TooManyRows { max: 200_000, .. }), "{error:?}");
        assert!(error.to_string().contains("after instead of an offset"), "{error}");
    }
    assert!(news.try_recv().is_err());
}

#[tokio::test]
async fn a_busy_member_holds_up_no_other_and_hurries_none_that_is_away() {
    let away = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dial = dial(away.local_addr().unwrap(), &Credentials::default());
    let tried = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tried);
    tokio::spawn(async move {
        while away.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (a, b) = (Kept::new(), Kept::new());
    let all = merged(vec![
        ("a", Arc::new(a.store.clone())),
        ("away", Arc::new(Remote::new("away", dial))),
        ("b", Arc::new(b.store.clone())),
    ]);
    let mut changes = all.changes();
    for second in 0..100 {
        Sink::accept(&a.store, vec![batch(&[TestRow::of(0, second)])]).await.unwrap();
    }
    Sink::accept(&b.store, vec![batch(&[TestRow::of(1, 0)])]).await.unwrap();
    let mut of_b = None;
    for at in 0..101 {
        let Some(Change::Rows(rows)) = soon("the rows of a member", changes.next()).await else {
            panic!("no rows")
        };
        if rows.iter().any(|rows| rows.identity(0).index == Some(1)) {
            of_b = Some(at);
        }
    }
    assert!(of_b.is_some_and(|at| at <= 2), "{of_b:?}");
    let until = tokio::time::Instant::now() + Duration::from_millis(500);
    let mut second = 100;
    while tokio::time::Instant::now() < until {
        Sink::accept(&a.store, vec![batch(&[TestRow::of(0, second)])]).await.unwrap();
        let change = soon("the rows of a member", changes.next()).await;
        assert!(matches!(change, Some(Change::Rows(_))));
        second += 1;
    }
    let tried = tried.load(Ordering::Relaxed);
    assert!((1..20).contains(&tried), "{tried} connections in half a second, {second} changes");
}

#[tokio::test]
async fn changes_and_states_of_all_are_those_of_the_whole() {
    let (a, b, both) = two();
    let (version, mut changes) = (both.version(), both.changes());
    let mut seen = Vec::new();
    for (kept, gpu) in [(&a, 0), (&b, 1), (&a, 2)] {
        Sink::accept(&kept.store, vec![batch(&[TestRow::of(gpu, 0)])]).await.unwrap();
        let Some(Change::Rows(rows)) = soon("the rows of a member", changes.next()).await else {
            panic!("no rows")
        };
        seen.extend(rows.iter().map(|rows| rows.identity(0).index));
    }
    assert_eq!(seen, [Some(0), Some(1), Some(2)]);
    assert_ne!(both.version(), version);
    assert_eq!(both.health().status, Status::Healthy);
    let stats = both.stats();
    assert_eq!(stats.rows_in_memory, Some(3));
    assert_eq!(stats.own.as_object().unwrap().keys().collect::<Vec<_>>(), ["a", "b"]);
    let fleet = both.fleet().await.unwrap().answer;
    assert!(Arc::ptr_eq(&fleet, &both.fleet().await.unwrap().answer), "nothing has changed");
    let rows = both.rows(RowsQuery::of(Table::GpuEvents, 10)).await.unwrap().answer;
    assert_eq!(answer(&rows).len(), 3);
}

#[tokio::test]
async fn a_fleet_of_more_gpus_than_it_may_have_says_that_some_are_left_out() {
    let (a, b, both) = two();
    let both = both.with_bounds(FleetBounds { gpus_max: 2, ..FleetBounds::default() });
    let of = |gpu: u8, second: i64| {
        let time_ns = BASE_NS + second * 1_000_000_000;
        batch(&[TestRow { gpu, time_ns, power: Some(8), ..TestRow::default() }])
    };
    Sink::accept(&a.store, vec![of(0, 1), of(1, 3)]).await.unwrap();
    Sink::accept(&b.store, vec![of(2, 2)]).await.unwrap();
    for _again in 0..2 {
        let fleet = both.fleet().await.unwrap();
        assert_eq!(fleet.answer.gpus.len(), 2);
        assert!(fleet.missing[0].starts_with("there are more than 2 GPUs"), "{:?}", fleet.missing);
    }
}
