//! Rollups: the same answers from fewer rows, also when the rows are gone.

use std::path::Path;
use std::time::Duration;

use gpuvitals_core::history::{Aggregate, BucketQuery, GroupColumn, Selector};
use gpuvitals_core::{MetricId, Table};
use gpuvitals_store::{Store, StoreConfig};

use crate::support::{HOUR, Row, SECOND, batch, buckets_of, grid, quiet, row, text, wait_for};

const MINUTE: i64 = 60 * SECOND;
const ALL: [Aggregate; 6] =
    [Aggregate::Min, Aggregate::Max, Aggregate::Mean, Aggregate::P99, Aggregate::Last, Aggregate::Count];

/// Two GPUs, every second of two hours, in 2 to 4 files an hour.
fn rows() -> Vec<Vec<Row>> {
    (0..6).map(|part| grid(2, HOUR, part * 1_200..(part + 1) * 1_200)).collect()
}

/// Merges by the hour at once, and no days.
fn merging(dir: &Path) -> StoreConfig {
    StoreConfig { merge: true, merge_after: Duration::ZERO, day_bytes: 0, rollup_rows: 32, ..quiet(dir) }
}

async fn filled(config: StoreConfig, rows: &[Vec<Row>]) -> Store {
    let (store, _) = Store::open(config).unwrap();
    for rows in rows {
        store.append(vec![batch(rows)]).await.unwrap();
        store.flush().await.unwrap();
    }
    store
}

/// Two GPUs' rows of two hours, merged.
async fn rolled(dir: &Path) -> Store {
    let store = filled(merging(dir), &rows()).await;
    wait_for(&store, |store| (store.stats().flushed.files, store.stats().merged.files) == (0, 2)).await;
    store
}

fn ask(start: i64, end: i64, step_ns: i64, aggregates: &[Aggregate]) -> BucketQuery {
    BucketQuery {
        table: Table::GpuEvents,
        gpus: Vec::new(),
        selector: Selector::default(),
        metrics: ["power_w", "temperature_c"].map(MetricId::of).to_vec(),
        start_ns: HOUR + start * SECOND,
        end_ns: HOUR + end * SECOND,
        step_ns,
        phase_ns: 0,
        aggregates: aggregates.to_vec(),
        group_by: vec![GroupColumn::Gpu],
    }
}

/// A name and values.
type Line = (String, Vec<Option<f64>>);

/// The lines of an answer, and the width of the steps that it was made of in seconds.
fn lines(store: &Store, query: &BucketQuery) -> (Vec<Line>, i64) {
    let found = buckets_of(store, query.clone());
    assert_eq!(found.missing, Vec::<String>::new());
    let series = found.answer.series(&query.aggregates);
    let named = series.into_iter().map(|line| {
        (format!("{} {:?} {}", line.metric.metric().column, line.aggregate, text(&line.group)), line.values)
    });
    (named.collect(), found.answer.rollup_ns() / SECOND)
}

#[tokio::test]
async fn answers_of_rollups_are_those_of_rows() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = rolled(one.path()).await;
    let plain = filled(quiet(other.path()), &rows()).await;
    for (step, grain) in
        [(MINUTE, 60), (5 * MINUTE, 60), (60 * MINUTE, 3_600), (30 * SECOND, 0), (7 * SECOND, 0)]
    {
        for (start, end) in [(0, 7_199), (-90, 7_300), (3, 7_195)] {
            let query = ask(start, end, step, &ALL);
            let (found, of) = lines(&store, &query);
            let (wanted, of_rows) = lines(&plain, &query);
            assert_eq!(of_rows, 0);
            // Within an hour that is cut, minutes are read.
            let is_cut = step == 60 * MINUTE && start == 3;
            assert_eq!(of, if is_cut { 60 } else { grain }, "{start} {step}");
            assert_same(&found, &wanted, step);
        }
    }
}

/// Two answers have the same lines, but for the last digits of means.
fn assert_same(found: &[Line], wanted: &[Line], step: i64) {
    let names = |lines: &[Line]| lines.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(found), names(wanted));
    for ((name, found), (_, wanted)) in found.iter().zip(wanted) {
        let close = |(found, wanted): (&Option<f64>, &Option<f64>)| match (found, wanted) {
            (Some(found), Some(wanted)) => (found - wanted).abs() <= wanted.abs() * 1e-9,
            (found, wanted) => found == wanted,
        };
        assert!(found.iter().zip(wanted).all(close), "{name} by {step}: {found:?}, not {wanted:?}");
    }
}

#[tokio::test]
async fn rollups_of_several_row_groups_may_lack_columns_in_some_of_their_rows() {
    // A row in ten seconds is a row of the finest rollup: 20,160 of them are more than a row group. The last GPUs have a metric more,
    // and the first ones none in a part of the hour.
    let of_gpu = |gpu: i64, at: i64| {
        let mut values = vec![("power_w", (gpu * 7 + at) as f64)];
        if gpu >= 50 || (gpu < 2 && at > 240) {
            values.push(("temperature_c", ((gpu + at) % 90) as f64));
        }
        row(format!("GPU-{gpu:04}"), HOUR + at * 10 * SECOND, &values)
    };
    let of_part = |part: i64| -> Vec<Row> {
        (0..56).flat_map(|gpu| (part * 120..(part + 1) * 120).map(move |at| of_gpu(gpu, at))).collect()
    };
    let parts: Vec<Vec<Row>> = (0..3).map(of_part).collect();
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = filled(quiet(one.path()), &parts).await;
    store.compact().await.unwrap();
    let plain = filled(quiet(other.path()), &parts).await;
    let without_sketches =
        [Aggregate::Min, Aggregate::Max, Aggregate::Mean, Aggregate::Last, Aggregate::Count];
    for (step, aggregates) in [(30 * SECOND, &without_sketches[..]), (5 * MINUTE, &ALL[..])] {
        let query = ask(0, 3_599, step, aggregates);
        let ((found, of), (wanted, of_rows)) = (lines(&store, &query), lines(&plain, &query));
        assert!(of > 0 && of_rows == 0, "{step}: {of}, {of_rows}");
        assert_same(&found, &wanted, step);
    }
}

#[tokio::test]
async fn days_are_read_as_days_and_those_that_are_cut_by_the_row() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Three days from 10 o'clock on, a row in ten minutes: too few for rollups by the hour.
    let rows: Vec<Row> =
        (0..3 * 144).map(|at| row("GPU-0000", HOUR + at * 10 * MINUTE, &[("power_w", at as f64)])).collect();
    let parts: Vec<Vec<Row>> = rows.chunks(200).map(<[Row]>::to_vec).collect();
    let config = StoreConfig { day_bytes: 1 << 20, ..merging(one.path()) };
    let store = filled(config, &parts).await;
    wait_for(&store, |store| (store.stats().flushed.files, store.stats().merged.files) == (0, 4)).await;
    let plain = filled(quiet(other.path()), &parts).await;
    let day = 24 * 60 * MINUTE;
    for (start, end, grain) in [(-10, 61, 86_400), (0, 61, 86_400), (-10, 20, 86_400), (15, 30, 0)] {
        let query = ask(start * 3_600, end * 3_600 + 3_599, day, &ALL);
        let ((found, of), (wanted, _)) = (lines(&store, &query), lines(&plain, &query));
        assert_eq!((found, of), (wanted, grain), "{start} to {end}");
    }
}

/// Ten GPUs, a row a minute of two days, some GPUs a file.
async fn by_gpu(dir: &Path) -> (StoreConfig, Store, Vec<Vec<Row>>) {
    let gpu = |at: i64| format!("GPU-{at:04}");
    let of_hour = |hour: i64| -> Vec<Row> {
        let at = (0..10).flat_map(|of| (0..60).map(move |minute| (of, hour * 60 + minute)));
        at.map(|(of, minute)| row(gpu(of), HOUR + minute * MINUTE, &[("power_w", (of + minute) as f64)]))
            .collect()
    };
    // Of the first day the last two hours.
    let rows: Vec<Vec<Row>> = (12..38).map(of_hour).collect();
    let config =
        StoreConfig { day_bytes: u64::MAX, file_bytes: 1, page_rows: 16, row_group_gpus: 1, ..merging(dir) };
    let store = filled(config.clone(), &rows).await;
    store.compact().await.unwrap();
    wait_for(&store, |store| store.stats().flushed.files == 0 && store.stats().merged.files < 24).await;
    (config, store, rows)
}

#[tokio::test]
async fn a_day_is_in_files_that_are_apart_by_gpu() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (config, store, mut rows) = by_gpu(one.path()).await;
    assert!(store.stats().merged.files > 4, "{:?}", store.stats());
    let by_hour = ask(12 * 3_600, 38 * 3_600 - 1, 60 * MINUTE, &ALL);
    let plain = filled(quiet(other.path()), &rows).await;
    assert_eq!(lines(&store, &by_hour), (lines(&plain, &by_hour).0, 3_600));

    let late = vec![row("GPU-0003", HOUR + 20 * 60 * MINUTE + 1, &[("power_w", 3_900.0)])];
    for store in [&store, &plain] {
        store.append(vec![batch(&late)]).await.unwrap();
        store.flush().await.unwrap();
    }
    rows.push(late);
    // The hour with the late row is read by the row, or is a rollup of its own beside that of the day.
    let wanted = (lines(&plain, &by_hour).0, 3_600);
    assert_eq!(lines(&store, &by_hour), wanted);
    store.compact().await.unwrap();
    assert_eq!(lines(&store, &by_hour), wanted);
    store.close().await.unwrap();
    drop(store);

    let day = one.path().join("1h/gpu_events/2026-11-21");
    let files: Vec<_> = std::fs::read_dir(&day).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(files.len() > 2, "{files:?}");
    std::fs::write(&files[1], b"damaged").unwrap();
    let (store, found) = Store::open(StoreConfig { merge: false, ..config }).unwrap();
    assert_eq!(found.damage, Vec::<String>::new());
    assert_eq!(lines(&store, &by_hour).0, wanted.0, "with the rows of the GPUs of a damaged file");
}

#[tokio::test]
async fn of_too_many_bytes_a_day_goes_with_all_of_its_gpus() {
    let dir = tempfile::tempdir().unwrap();
    let (config, store, _) = by_gpu(dir.path()).await;
    let raw = store.stats().merged.bytes;
    store.close().await.unwrap();
    drop(store);
    let config = StoreConfig { max_bytes: Some(raw - 1), keep_rollups: [Some(Duration::ZERO); 4], ..config };
    let (store, _) = Store::open(config).unwrap();
    wait_for(&store, |store| store.stats().rows_too_many > 0 && store.stats().rollups.rows == 0).await;
    assert_eq!(store.stats().rows_too_many, 10 * 60 * 2);
    let query = BucketQuery {
        metrics: vec![MetricId::of("power_w")],
        ..ask(0, 38 * 3_600, 60 * MINUTE, &[Aggregate::Count])
    };
    let (found, _) = lines(&store, &query);
    let rows: Vec<f64> = found.iter().map(|(_, counts)| counts.iter().copied().flatten().sum()).collect();
    assert_eq!(rows, [24.0 * 60.0; 10]);
}

#[tokio::test]
async fn rows_that_come_late_count() {
    let dir = tempfile::tempdir().unwrap();
    let store = rolled(dir.path()).await;
    let query = ask(0, 7_199, MINUTE, &[Aggregate::Max, Aggregate::Count]);
    let (before, _) = lines(&store, &query);
    let late = row("GPU-0000", HOUR + 90 * SECOND + 1, &[("power_w", 900.0)]);
    store.append(vec![batch(&[late])]).await.unwrap();
    let changed = |found: &[Line]| {
        let name = "power_w Max GPU-0000";
        let line = |lines: &[Line]| {
            lines.iter().find(|(own, _)| own == name).map(|(_, values)| values.clone()).unwrap()
        };
        let different = line(&before).into_iter().zip(line(found)).enumerate().filter(|(_, (a, b))| a != b);
        different.map(|(minute, (_, value))| (minute, value)).collect::<Vec<_>>()
    };
    let (found, grain) = lines(&store, &query);
    assert_eq!((changed(&found), grain), (vec![(1, Some(900.0))], 60), "in memory");
    store.flush().await.unwrap();
    assert_eq!(changed(&lines(&store, &query).0), [(1, Some(900.0))], "in a file");
    store.close().await.unwrap();
    drop(store);
    let (store, found) = Store::open(merging(dir.path())).unwrap();
    assert_eq!(found.damage, Vec::<String>::new());
    assert_eq!(changed(&lines(&store, &query).0), [(1, Some(900.0))], "opened again");
}

#[tokio::test]
async fn when_the_rows_are_gone_percentiles_come_from_a_rollup_that_has_them() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { rollup_rows: 5, ..merging(dir.path()) };
    let store = filled(config.clone(), &rows()).await;
    wait_for(&store, |store| (store.stats().flushed.files, store.stats().merged.files) == (0, 2)).await;
    let (before, _) = lines(&store, &ask(0, 7_199, MINUTE, &[Aggregate::P99]));
    store.close().await.unwrap();
    drop(store);
    let keep = Some(Duration::from_mins(30));
    let (store, _) = Store::open(StoreConfig { keep, ..config }).unwrap();
    store.append(vec![batch(&[row("GPU-0000", HOUR + 9_000 * SECOND, &[("power_w", 1.0)])])]).await.unwrap();
    store.flush().await.unwrap();
    wait_for(&store, |store| store.stats().merged.files == 0).await;
    // Ten seconds are finer, and have no frequencies.
    let (found, grain) = lines(&store, &ask(0, 7_199, 10 * SECOND, &[Aggregate::P99]));
    let known = |lines: &[Line]| -> Vec<f64> { lines[0].1.iter().copied().flatten().collect() };
    assert_eq!((known(&found), grain), (known(&before), 60));
}

#[tokio::test]
async fn when_the_rows_are_gone_what_is_put_together_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store = rolled(dir.path()).await;
    let by_minute = ask(0, 7_199, MINUTE, &ALL);
    let (before, _) = lines(&store, &by_minute);
    store.close().await.unwrap();
    drop(store);
    let keep = Some(Duration::from_mins(30));
    let (store, _) = Store::open(StoreConfig { keep, ..merging(dir.path()) }).unwrap();
    // A newer row makes the two hours old.
    store.append(vec![batch(&[row("GPU-0000", HOUR + 9_000 * SECOND, &[("power_w", 1.0)])])]).await.unwrap();
    store.flush().await.unwrap();
    wait_for(&store, |store| store.stats().rows_too_old == 14_400).await;
    assert_eq!(lines(&store, &by_minute), (before.clone(), 60));
    // Finer than what is left: values stand at the beginning of their minutes.
    let (found, grain) = lines(&store, &ask(0, 7_199, 10 * SECOND, &[Aggregate::Max]));
    let values: Vec<f64> = found[0].1.iter().copied().flatten().collect();
    let maxima = before.iter().find(|(name, _)| *name == found[0].0).unwrap();
    assert_eq!((values, grain), (maxima.1.iter().copied().flatten().collect(), 60));
}

#[tokio::test]
async fn a_damaged_rollup_is_set_aside_and_rows_are_read_instead() {
    let dir = tempfile::tempdir().unwrap();
    let store = rolled(dir.path()).await;
    let query = ask(0, 7_199, MINUTE, &ALL);
    let (whole, _) = lines(&store, &query);
    store.close().await.unwrap();
    drop(store);
    let day = dir.path().join("1m/gpu_events/2026-11-20");
    let file = std::fs::read_dir(&day).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 0x40;
    std::fs::write(&file, bytes).unwrap();
    let (store, found) = Store::open(merging(dir.path())).unwrap();
    assert_eq!(found.damage, Vec::<String>::new());
    let first = lines(&store, &query).0;
    wait_for(&store, |store| store.stats().quarantined == 1).await;
    let close = |a: &Option<f64>, b: &Option<f64>| (a.unwrap() - b.unwrap()).abs() < 1e-6;
    for found in [first, lines(&store, &query).0] {
        assert_eq!(found.len(), whole.len());
        for ((name, found), (_, wanted)) in found.iter().zip(&whole) {
            assert!(found.iter().zip(wanted).all(|(a, b)| close(a, b)), "{name}");
        }
    }
}

#[tokio::test]
async fn rows_that_the_log_gives_back_count_once_beside_the_rollup_of_their_lost_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = rolled(dir.path()).await;
    let query = ask(0, 7_199, MINUTE, &ALL);
    let (whole, by_s) = lines(&store, &query);
    assert_eq!(by_s, 60);
    store.close().await.unwrap();
    drop(store);
    // The log was never long enough to be cut: it has all rows of both hours.
    for file in std::fs::read_dir(dir.path().join("raw/gpu_events/2026-11-20")).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    for opening in 0..3 {
        let (store, found) = Store::open(merging(dir.path())).unwrap();
        assert_eq!((found.damage, found.unlisted), (Vec::new(), Vec::new()), "{opening}");
        assert!(lines(&store, &query).0 == whole, "{opening}: as they come back");
        store.flush().await.unwrap();
        wait_for(&store, |store| (store.stats().flushed.files, store.stats().merged.files) == (0, 2)).await;
        assert!(lines(&store, &query) == (whole.clone(), 60), "{opening}: merged again");
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_rollup_that_would_be_as_large_as_its_rows_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let sparse: Vec<Row> =
        (0..60).map(|minute| row("GPU-0", HOUR + minute * MINUTE, &[("power_w", 1.0)])).collect();
    let store = filled(merging(dir.path()), &[sparse]).await;
    wait_for(&store, |store| store.stats().merged.files == 1).await;
    let folders = ["10s", "1m", "1h"].map(|grain| {
        std::fs::read_dir(dir.path().join(grain).join("gpu_events"))
            .map_or(0, |days| days.map(|day| std::fs::read_dir(day.unwrap().path()).unwrap().count()).sum())
    });
    assert_eq!(folders, [0, 0, 1]);
}
