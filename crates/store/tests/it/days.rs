//! Rows of `gpu_usage` by the day: sums over days are those of the rows by the hour.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gpuvitals_core::batch::Value;
use gpuvitals_core::history::{History, RowsQuery, TakeRows, all_holdings};
use gpuvitals_core::time::{DAY_NS, HOUR_NS, MINUTE_NS};
use gpuvitals_core::usage::{HoldingGroup, HoldingSums, HoldingsQuery, NOBODY, UNOBSERVED};
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table};
use gpuvitals_store::{Store, StoreConfig, StoreView};

use crate::support::{HOUR, quiet, wait_for};

/// The first hour of the first whole day.
const DAY: i64 = HOUR - HOUR % DAY_NS + DAY_NS;
const GPUS: i64 = 5;

/// What holders used of some GPUs in some hours from [`HOUR`] on: jobs of some hours, two pods on one GPU, nobody, and time without rows.
/// Each row is as of so many minutes of its hour.
fn used(hours: Range<i64>, minutes: i64) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuUsage);
    for (hour, gpu) in hours.flat_map(|hour| (0..GPUS).map(move |gpu| (hour, gpu))) {
        let job = format!("job:{}", 10 * gpu + (hour + 3 * gpu) / 7);
        let holders = match gpu {
            0 => vec![("pod:a/x/main".to_owned(), "equal"), ("pod:b/y/main".to_owned(), "equal")],
            1 if hour % 2 == 0 => vec![(job, "exclusive"), (NOBODY.to_owned(), "exclusive")],
            2 if hour % 5 == 0 => vec![(job, "exclusive"), (UNOBSERVED.to_owned(), "exclusive")],
            _ => vec![(job, "exclusive")],
        };
        let part_ns = minutes * MINUTE_NS / holders.len() as i64;
        for (number, (holder, share)) in (1..).zip(&holders) {
            let mut identity = Identity::default();
            for (column, text) in [
                (IdentityColumn::Uuid, format!("GPU-{gpu}")),
                (IdentityColumn::Node, format!("node-{}", gpu / 2)),
                (IdentityColumn::Model, "H100".to_owned()),
                (IdentityColumn::Job, holder.strip_prefix("job:").unwrap_or_default().to_owned()),
            ] {
                identity.set(column, &text).unwrap();
            }
            let identity = builder.intern(&identity);
            let row = builder.row(HOUR + hour * HOUR_NS, identity);
            for (column, text) in [("holder", holder.as_str()), ("share", share)] {
                builder.set_extra_text(row, column, text).unwrap();
            }
            let as_of_ns = HOUR + hour * HOUR_NS + minutes * MINUTE_NS;
            for (column, number) in [
                // The agent began anew in between.
                ("run", 1 + hour / 30),
                ("as_of_ns", as_of_ns),
                ("held_ns", part_ns),
                ("known_ns", part_ns),
                ("busy_ns", part_ns / (2 + gpu)),
                ("used_mj", 7_001 * number * minutes + hour),
                ("memory_max_mb", 100 * gpu + hour % 11),
            ] {
                builder.set_extra(row, column, Value::Int(number)).unwrap();
            }
            if hour % 3 > 0 {
                builder.set_extra(row, "power_max_w", 300.0 + (hour % 13) as f64).unwrap();
            }
        }
    }
    builder.finish(Origin::default(), 0).unwrap()
}

/// A store in which these arrive one after the other, each in a file of its own.
async fn filled(dir: &Path, batches: &[Batch]) -> Store {
    let (store, _) = Store::open(quiet(dir)).unwrap();
    for batch in batches {
        store.append(vec![batch.clone()]).await.unwrap();
        store.flush().await.unwrap();
    }
    store
}

/// Three and a half days, in parts that end within days.
fn half_weeks() -> Vec<Batch> {
    [0..20, 20..41, 41..63, 63..84].map(|hours| used(hours, 60)).to_vec()
}

/// What an answer says, sums without their last digits: rows are added up in any order.
async fn held(store: &Store, query: &HoldingsQuery) -> (Vec<String>, Vec<String>) {
    let found = all_holdings(store, query, None).await.unwrap();
    let answer = found.answer.finish();
    // No sum lies halfway between two that are written.
    let written = |number: f64| format!("{:.2}", number + 0.001_2);
    let sums = |sums: &HoldingSums| {
        let HoldingSums { held_s, shared_s, interpolated_s, .. } = *sums;
        let known = [sums.busy_s, sums.wasted_s, sums.joules, sums.power_max_w, sums.memory_max_mb];
        let known = known.map(|known| known.map_or("none".to_owned(), written));
        format!("{} {} {} {known:?}", written(held_s), written(shared_s), written(interpolated_s))
    };
    let groups = answer.groups.iter().map(|one| {
        let names = (&one.group, &one.holder, &one.names, &one.nodes);
        format!("{names:?} {:?} {} {}", one.gpus, one.is_last, sums(&one.sums))
    });
    let gpus = answer.gpus.iter().map(|(gpu, of_gpu)| format!("{gpu} {}", sums(of_gpu)));
    let rest = [sums(&answer.nobody), sums(&answer.unobserved)];
    let mut lines: Vec<String> = groups.chain(gpus).collect();
    lines.sort_unstable();
    lines.extend(rest);
    (lines, found.missing)
}

/// How many rows are read for the sums of a range.
async fn rows_read(store: &Store, (start_ns, end_ns): (i64, i64)) -> usize {
    let read = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&read);
    let take: TakeRows = Arc::new(move |batch: &Batch| {
        counted.fetch_add(batch.rows(), Ordering::Relaxed);
        Ok(())
    });
    let rows = RowsQuery {
        start_ns: Some(start_ns),
        end_ns: Some(end_ns),
        days_within: Some((start_ns, end_ns)),
        ..RowsQuery::of(Table::GpuUsage, 0)
    };
    store.sweep(rows, take).await.unwrap();
    read.load(Ordering::Relaxed)
}

const WHOLE: (i64, i64) = (HOUR, HOUR + 84 * HOUR_NS);

/// Questions whose ranges begin and end on days, within them and within hours.
fn questions() -> Vec<HoldingsQuery> {
    let ranges = [
        WHOLE,
        (DAY, DAY + DAY_NS - 1),
        (DAY, DAY + DAY_NS),
        (DAY + HOUR_NS / 3, DAY + 2 * DAY_NS + HOUR_NS / 2),
        (DAY - HOUR_NS / 3, DAY + DAY_NS - HOUR_NS / 2),
        (DAY + 5 * HOUR_NS, DAY + 9 * HOUR_NS),
    ];
    let groups = [
        HoldingGroup::Holder,
        HoldingGroup::Gpu,
        HoldingGroup::Day,
        HoldingGroup::Identity(IdentityColumn::Node),
    ];
    let mut questions = Vec::new();
    for (start_ns, end_ns) in ranges {
        let all =
            HoldingsQuery { gpus: Vec::new(), start_ns, end_ns, by: HoldingGroup::Holder, holder: None };
        questions.extend(groups.map(|by| HoldingsQuery { by, ..all.clone() }));
        questions.push(HoldingsQuery { gpus: vec!["GPU-1".into(), "GPU-3".into()], ..all.clone() });
        questions.push(HoldingsQuery { holder: Some("job:34".into()), ..all });
    }
    questions
}

async fn assert_same(store: &Store, plain: &Store) {
    for query in questions() {
        let (found, wanted) = (held(store, &query).await, held(plain, &query).await);
        assert_eq!(found, wanted, "{query:?}");
        assert!(found.0.len() > 2, "{query:?}");
    }
}

#[tokio::test]
async fn days_are_read_as_days_and_give_the_sums_of_their_hours() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, plain) = (filled(one.path(), &half_weeks()).await, filled(other.path(), &half_weeks()).await);
    store.compact().await.unwrap();
    assert_same(&store, &plain).await;
    let (found, all) = (rows_read(&store, WHOLE).await, rows_read(&plain, WHOLE).await);
    // Two whole days, and 36 hours before and after them.
    assert!(found * 4 < all * 3, "{found} of {all} rows");
    // A range that has no whole day reads rows.
    let hours = (DAY + HOUR_NS, DAY + DAY_NS + HOUR_NS);
    assert_eq!(rows_read(&store, hours).await, rows_read(&plain, hours).await);
}

#[tokio::test]
async fn a_day_with_later_rows_is_read_by_the_hour_until_they_are_merged() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let early: Vec<Batch> = [0..20, 20..41, 41..63, 63..84].map(|hours| used(hours, 20)).to_vec();
    let (store, plain) = (filled(one.path(), &early).await, filled(other.path(), &early).await);
    store.compact().await.unwrap();
    let by_day = rows_read(&store, WHOLE).await;
    // Later versions of some rows of the second day, of which some lie in memory.
    for store in [&store, &plain] {
        store.append(vec![used(40..43, 60)]).await.unwrap();
        store.flush().await.unwrap();
        store.append(vec![used(44..45, 60)]).await.unwrap();
    }
    assert_same(&store, &plain).await;
    assert!(rows_read(&store, WHOLE).await > by_day, "a whole day is read by the hour");
    store.flush().await.unwrap();
    store.compact().await.unwrap();
    assert_same(&store, &plain).await;
    assert_eq!(rows_read(&store, WHOLE).await, by_day);
}

#[tokio::test]
async fn days_of_several_files_are_read_as_days() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = StoreConfig { file_bytes: 1, row_group_gpus: 1, page_rows: 1, ..quiet(one.path()) };
    let (store, _) = Store::open(config).unwrap();
    for batch in half_weeks() {
        store.append(vec![batch]).await.unwrap();
        store.flush().await.unwrap();
    }
    store.compact().await.unwrap();
    let plain = filled(other.path(), &half_weeks()).await;
    assert_same(&store, &plain).await;
    let files = std::fs::read_dir(one.path().join("raw/gpu_usage/2026-11-22")).unwrap().count();
    assert!(files > 1, "a file for some GPUs each");
    assert!(rows_read(&store, WHOLE).await < rows_read(&plain, WHOLE).await);
}

#[tokio::test]
async fn a_damaged_file_of_late_rows_is_missing_in_every_answer() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path(), &half_weeks()).await;
    store.compact().await.unwrap();
    store.append(vec![used(40..43, 60)]).await.unwrap();
    store.close().await.unwrap();
    let day = std::fs::read_dir(dir.path().join("raw/gpu_usage/2026-11-22")).unwrap();
    let files: Vec<PathBuf> = day.map(|file| file.unwrap().path()).collect();
    let is_late = |file: &&PathBuf| !file.to_string_lossy().contains("day-");
    let late = files.iter().find(is_late).unwrap();
    let mut bytes = std::fs::read(late).unwrap();
    bytes[10] ^= 0x55;
    std::fs::write(late, bytes).unwrap();
    let view = StoreView::open(dir.path()).unwrap();
    let (start_ns, end_ns) = WHOLE;
    let query = HoldingsQuery { gpus: Vec::new(), start_ns, end_ns, by: HoldingGroup::Holder, holder: None };
    for _ in 0..2 {
        let missing = all_holdings(&view, &query, None).await.unwrap().missing;
        assert!(missing.iter().any(|words| words.contains("raw/gpu_usage")), "{missing:?}");
    }
}

#[tokio::test]
async fn a_damaged_day_is_missing_once_and_read_by_the_hour_from_then_on() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, plain) = (filled(one.path(), &half_weeks()).await, filled(other.path(), &half_weeks()).await);
    store.compact().await.unwrap();
    store.close().await.unwrap();
    let days = std::fs::read_dir(one.path().join("1d/gpu_usage")).unwrap();
    let mut days: Vec<PathBuf> = days.map(|day| day.unwrap().path()).collect();
    days.sort_unstable();
    let file = std::fs::read_dir(&days[1]).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[10] ^= 0x55;
    std::fs::write(&file, bytes).unwrap();
    let (store, _) = Store::open(quiet(one.path())).unwrap();
    let (start_ns, end_ns) = WHOLE;
    let query = HoldingsQuery { gpus: Vec::new(), start_ns, end_ns, by: HoldingGroup::Holder, holder: None };
    let (_, missing) = held(&store, &query).await;
    assert!(missing.iter().any(|words| words.contains("1d/gpu_usage")), "{missing:?}");
    wait_for(&store, |_| !file.exists()).await;
    assert_same(&store, &plain).await;
}
