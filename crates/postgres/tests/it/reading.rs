//! Questions.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::history::{
    Aggregate, BucketQuery, GroupColumn, History, Matcher, QueryError, RowsQuery, Selector, TextTest,
};
use gpuvitals_core::ports::Sink;
use gpuvitals_core::{IdentityColumn, MetricId, Table};
use gpuvitals_postgres::Database;

use crate::server::Server;
use crate::{CLOCK, POWER, TableRow, batch, gpu, open, power};

#[tokio::test]
async fn rows_are_asked_for_by_gpu_time_column_and_page() {
    let server = Server::shared();
    let settings = server.database().await;
    let postgres = open(&settings).await;
    let (one, two) = (gpu("GPU-a", ""), gpu("GPU-B", ""));
    let rows: Vec<TableRow<'_>> = (0..6)
        .flat_map(|time_ns| [(&one, time_ns, &[(POWER, 1.0), (CLOCK, 2.0)][..]), (&two, time_ns, &[])])
        .collect();
    postgres.accept(vec![batch(&rows)]).await.unwrap();
    let all = RowsQuery { with_total: true, ..RowsQuery::of(Table::GpuEvents, 3) };
    let check = async |query: RowsQuery, expected: &[(i64, &str)], total: usize| {
        let rows = postgres.rows(query).await.unwrap().answer;
        let found: Vec<(i64, String)> = rows
            .batch
            .iter()
            .flat_map(|batch| {
                let names = (0..batch.rows()).map(|row| batch.identity(row).uuid().unwrap().to_owned());
                batch.timestamps().iter().copied().zip(names)
            })
            .collect();
        let expected: Vec<(i64, String)> =
            expected.iter().map(|(time, name)| (*time, (*name).to_owned())).collect();
        assert_eq!((found, rows.total), (expected, Some(total)));
    };
    check(all.clone(), &[(0, "GPU-B"), (0, "GPU-a"), (1, "GPU-B")], 12).await;
    check(RowsQuery { newest_first: true, ..all.clone() }, &[(5, "GPU-B"), (5, "GPU-a"), (4, "GPU-B")], 12)
        .await;
    let of_one = RowsQuery { gpus: vec![Arc::from("GPU-a"), Arc::from("GPU-z")], offset: 1, ..all.clone() };
    check(RowsQuery { start_ns: Some(2), end_ns: Some(4), ..of_one }, &[(3, "GPU-a"), (4, "GPU-a")], 3).await;
    check(RowsQuery { gpus: vec![Arc::from("GPU-z")], ..all.clone() }, &[], 0).await;
    // A text that the server does not take is no row's.
    let texts = vec![Arc::from("\0"), Arc::from("GPU-a")];
    let uuid = Matcher { column: IdentityColumn::Uuid, test: TextTest::IsNot(texts) };
    let selector = Selector::new(vec![uuid]).unwrap();
    check(RowsQuery { selector, start_ns: Some(5), ..all.clone() }, &[(5, "GPU-B")], 1).await;
    let clock = RowsQuery { metrics: Some(vec!["gpu_clock_mhz".to_owned()]), ..all };
    let batch = postgres.rows(clock).await.unwrap().answer.batch.unwrap();
    assert!(batch.metric(CLOCK).is_some() && batch.metric(POWER).is_none());
}

/// Makes rows of this many GPUs in the database, at the times 0 to `rows`. The last row alone has a power, and the one in the
/// middle a temperature.
async fn make_rows(server: &Server, settings: &Database, gpus: i32, rows: i32) {
    // The tables and the partition.
    open(settings).await.accept(vec![batch(&[(&gpu("GPU-other", ""), 0, &[])])]).await.unwrap();
    let middle = rows / 2;
    let sql = format!(
        "INSERT INTO gpuvitals_identities (uuid, job) SELECT 'GPU-' || gpu, 'job-' || gpu % 7 FROM generate_series(1, {gpus}) gpu;
         INSERT INTO gpuvitals_subjects (name) SELECT 'GPU-' || gpu FROM generate_series(1, {gpus}) gpu;
         INSERT INTO gpu_events (subject_id, timestamp_ns, identity_id, gpu_clock_mhz, temperature_c, power_w, extras)
         SELECT s.id, time, i.id, time, CASE time WHEN {middle} THEN 50 END, CASE time WHEN {rows} THEN s.id END,
             CASE time WHEN 1 THEN jsonb_build_object('old', s.id) WHEN 2 THEN '{{\"new\": 0.5}}' END
         FROM gpuvitals_subjects s JOIN gpuvitals_identities i ON i.uuid = s.name, generate_series(0, {rows}) time
         WHERE i.job IS NOT NULL ORDER BY s.id"
    );
    server.sql(&settings.dbname, &sql).await;
}

#[tokio::test]
async fn the_latest_values_of_many_gpus_are_read_beside_the_writing() {
    let server = Server::shared();
    let settings = server.database().await;
    make_rows(&server, &settings, 1_500, 40).await;
    let postgres = open(&settings).await;
    // This row is in memory before the older ones of its GPU are.
    let newer = gpu("GPU-700", "job-x");
    postgres.accept(vec![batch(&[(&newer, 41, &[(CLOCK, 7.0)])])]).await.unwrap();
    let fleet = postgres.fleet().await.unwrap().answer;
    assert_eq!(fleet.gpus.len(), 1_501);
    for number in 1..=1_500 {
        let gpu = fleet.get(&format!("GPU-{number}")).unwrap();
        let has_newer = number == 700;
        let (last, clock) = if has_newer { (41, 7) } else { (40, 40) };
        let latest = |column: &str| {
            let found = gpu.latest.iter().find(|(metric, _)| *metric == MetricId::of(column)).unwrap();
            (found.1.value.as_f64(), found.1.timestamp_ns)
        };
        assert_eq!((gpu.first_seen_ns, gpu.last_seen_ns), (0, last));
        assert_eq!(latest("gpu_clock_mhz"), (f64::from(clock), last));
        assert_eq!(latest("temperature_c"), (50.0, 20));
        assert_eq!(latest("power_w").1, 40);
        assert_eq!(gpu.latest.len(), 3);
        let mut extras: Vec<_> = gpu.extras.iter().map(|(name, _, time_ns)| (&**name, *time_ns)).collect();
        extras.sort_unstable();
        assert_eq!(extras, [("new", 2), ("old", 1)]);
        let job = if has_newer { "job-x".to_owned() } else { format!("job-{}", number % 7) };
        assert_eq!(gpu.identity.get(IdentityColumn::Job), Some(job.as_str()));
    }
}

#[tokio::test]
async fn values_by_a_column_of_the_identity_are_read_by_pieces() {
    let server = Server::shared();
    let settings = server.database().await;
    // It remembers none of the identities that another process makes.
    let postgres = open(&settings).await;
    make_rows(&server, &settings, 2_000, 100).await;
    for aggregates in [vec![Aggregate::P99], vec![Aggregate::Count], vec![Aggregate::Increase]] {
        let query = BucketQuery {
            table: Table::GpuEvents,
            gpus: Vec::new(),
            selector: Selector::default(),
            metrics: vec![CLOCK],
            start_ns: 0,
            end_ns: 1_000,
            step_ns: 1_001,
            phase_ns: 0,
            aggregates,
            group_by: vec![GroupColumn::Identity(IdentityColumn::Job)],
        };
        let answered = tokio::time::timeout(Duration::from_secs(20), postgres.buckets(query.clone())).await;
        let series = answered.expect("an answer").unwrap().answer.series(&query.aggregates);
        assert_eq!(series.len(), 7, "{:?}", query.aggregates);
    }
}

#[tokio::test]
async fn a_page_that_is_too_large_is_refused_and_a_total_that_is_too_large_is_not_counted() {
    let server = Server::shared();
    let settings = server.database().await;
    let postgres = open(&settings).await;
    postgres.accept(vec![power(1, 1.0)]).await.unwrap();
    let last = RowsQuery { limit: 1, offset: 15_999_999, ..RowsQuery::of(Table::GpuEvents, 1) };
    assert!(postgres.rows(last.clone()).await.unwrap().answer.batch.is_none());
    for beyond in [RowsQuery { limit: 2, ..last.clone() }, RowsQuery { limit: usize::MAX, ..last }] {
        let refused = postgres.rows(beyond).await.unwrap_err();
        assert!(matches!(refused, QueryError::TooManyRows { max: 16_000_000, .. }), "{refused}");
    }
    make_rows(&server, &settings, 1_000, 999).await;
    let ask = async |end_ns| {
        let query = RowsQuery { with_total: true, end_ns, ..RowsQuery::of(Table::GpuEvents, 1) };
        postgres.rows(query).await.unwrap().answer.total
    };
    assert_eq!((ask(Some(998)).await, ask(None).await), (Some(999_002), None));
}

#[tokio::test]
async fn a_page_whose_total_takes_too_long_to_count_comes_without_it() {
    let server = Server::shared();
    let database = server.database().await.dbname;
    let owner = format!(
        "CREATE ROLE slow LOGIN; GRANT ALL ON DATABASE {database} TO slow; GRANT ALL ON SCHEMA public TO slow"
    );
    server.sql(&database, &owner).await;
    let settings = server.settings(&database, &[("database.user", "slow")]);
    make_rows(&server, &settings, 10, 99).await;
    // To look at a row takes 50 ms, unless one is a superuser.
    let slow =
        "ALTER TABLE gpu_events ENABLE ROW LEVEL SECURITY; ALTER TABLE gpu_events FORCE ROW LEVEL SECURITY;
                CREATE POLICY slow ON gpu_events USING (pg_sleep(0.05) IS NOT NULL)";
    server.sql(&database, slow).await;
    let postgres = open(&settings).await;
    for _ in 0..2 {
        let query = RowsQuery { with_total: true, newest_first: true, ..RowsQuery::of(Table::GpuEvents, 1) };
        let rows = postgres.rows(query).await.unwrap().answer;
        assert_eq!((rows.batch.unwrap().timestamps(), rows.total), (&[99][..], None));
    }
}
