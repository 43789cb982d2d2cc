//! PostgreSQL as a sink and a history, on a real server.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "what fails here fails its test")]

mod bounds;
mod disk;
mod reading;
mod rights;
mod server;
mod suite;
mod tls;

use std::time::Duration;

use gpuvitals_core::batch::Value;
use gpuvitals_core::figures::render;
use gpuvitals_core::history::{FleetBounds, History, QueryError, RowsQuery};
use gpuvitals_core::ports::{Sink, SinkError};
use gpuvitals_core::{
    Batch, BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Status, Table, causes,
};
use gpuvitals_postgres::{Database, Postgres, PostgresError};
use gpuvitals_rig::waiting::retried;
use server::Server;

const DAY_NS: i64 = 86_400_000_000_000;
const POWER: MetricId = MetricId::of("power_w");
const CLOCK: MetricId = MetricId::of("gpu_clock_mhz");

fn gpu(name: &str, job: &str) -> Identity {
    let identity = Identity::default().with(IdentityColumn::Uuid, name);
    identity.and_then(|identity| identity.with(IdentityColumn::Job, job)).unwrap()
}

/// A row of `gpu_events`: whose, when, and some values.
type TableRow<'a> = (&'a Identity, i64, &'a [(MetricId, f64)]);

fn batch(rows: &[TableRow<'_>]) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    for (identity, time_ns, values) in rows {
        let identity = builder.intern(identity);
        let row = builder.row(*time_ns, identity);
        for (metric, value) in *values {
            builder.set(row, *metric, Value::Float(*value)).unwrap();
        }
    }
    builder.finish(Origin::default(), 0).unwrap()
}

/// A row of GPU-0 with this power.
fn power(time_ns: i64, watts: f64) -> Batch {
    batch(&[(&gpu("GPU-0", ""), time_ns, &[(POWER, watts)])])
}

/// Opens it without a bound on age.
pub(crate) async fn open(settings: &Database) -> Postgres {
    Postgres::open(settings.clone(), None, FleetBounds::default()).await.unwrap()
}

/// Opens it with a bound on age.
async fn open_keeping(settings: &Database, keep: Duration) -> Postgres {
    Postgres::open(settings.clone(), Some(keep), FleetBounds::default()).await.unwrap()
}

/// Times and powers of the rows that there are.
async fn powers(postgres: &Postgres) -> Vec<(i64, Option<f64>)> {
    let rows = postgres.rows(RowsQuery::of(Table::GpuEvents, 10_000)).await.unwrap().answer;
    let Some(batch) = rows.batch else { return Vec::new() };
    let power = batch.metric(POWER);
    let value = |row| power.and_then(|column| column.value(row)).map(Value::as_f64);
    batch.timestamps().iter().enumerate().map(|(row, time_ns)| (*time_ns, value(row))).collect()
}

async fn refusal(postgres: &Postgres, batch: Batch) -> SinkError {
    postgres.accept(vec![batch]).await.unwrap_err()
}

#[tokio::test]
async fn rows_of_one_key_become_one_in_one_batch_and_over_several() {
    let server = Server::shared();
    let settings = server.database().await;
    let postgres = open(&settings).await;
    let (early, late) = (gpu("GPU-0", "a"), gpu("GPU-0", "b").with(IdentityColumn::Pod, "p").unwrap());
    let nobody = gpu("GPU-0", "");
    let first = batch(&[
        (&early, 5, &[(POWER, 1.0), (CLOCK, 100.0)]),
        (&late, 5, &[(POWER, 2.0)]),
        (&nobody, 5, &[]),
        (&gpu("GPU-1", ""), 5, &[]),
    ]);
    // Within a batch the power is 1 and 2; a repeat contradicts nothing new, though what it overwrites is counted again.
    for overwritten in [1, 2] {
        postgres.accept(vec![first.clone()]).await.unwrap();
        assert_eq!(postgres.stats().own["rows_overwritten"], overwritten);
    }
    // Another identity, and one value more, in another transaction.
    postgres.accept(vec![batch(&[(&gpu("GPU-0", "c"), 5, &[(POWER, 3.0)])])]).await.unwrap();
    assert_eq!(postgres.stats().own["rows_overwritten"], 3);
    // What fills a gap, is the same, or differs less than a digit of a 32-bit float contradicts nothing.
    let same = [(POWER, 3.000_000_1), (MetricId::of("temperature_c"), 50.0)];
    postgres.accept(vec![batch(&[(&gpu("GPU-0", "c"), 5, &same)])]).await.unwrap();
    assert_eq!(postgres.stats().own["rows_overwritten"], 3);
    let rows = postgres.rows(RowsQuery { with_total: true, ..RowsQuery::of(Table::GpuEvents, 10) });
    let rows = rows.await.unwrap().answer;
    assert_eq!(rows.total, Some(2));
    let batch = rows.batch.unwrap();
    assert_eq!(batch.metric(POWER).unwrap().value(0), Some(Value::Float32(3.0)));
    assert_eq!(batch.metric(CLOCK).unwrap().value(0), Some(Value::Int(100)));
    let merged = gpu("GPU-0", "c").with(IdentityColumn::Pod, "p").unwrap();
    assert_eq!((batch.identity(0), batch.identity(1)), (merged, gpu("GPU-1", "")));
    assert_eq!(batch.metric(POWER).unwrap().value(1), None);
}

#[tokio::test]
async fn many_rows_are_written_in_pieces() {
    let server = Server::shared();
    let postgres = open(&server.database().await).await;
    let gpu = gpu("GPU-0", "");
    let rows: Vec<TableRow<'_>> = (0..9_000).map(|time_ns| (&gpu, time_ns, &[(POWER, 1.0)][..])).collect();
    // Copied, then merged.
    for _ in 0..2 {
        postgres.accept(vec![batch(&rows)]).await.unwrap();
        assert_eq!(
            powers(&postgres).await,
            (0..9_000).map(|time_ns| (time_ns, Some(1.0))).collect::<Vec<_>>()
        );
    }
}

#[tokio::test]
async fn an_identity_that_gets_no_number_takes_none_of_another() {
    let server = Server::shared();
    let settings = server.database().await;
    let postgres = open(&settings).await;
    let gpus = ["GPU-0", "GPU-1", "GPU-2"].map(|name| gpu(name, ""));
    let rows: Vec<TableRow<'_>> = gpus.iter().map(|gpu| (gpu, 1, &[][..])).collect();
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
                  CREATE TRIGGER refuse BEFORE INSERT ON gpuvitals_identities FOR EACH ROW
                  WHEN (NEW.uuid = 'GPU-1') EXECUTE FUNCTION refuse()";
    server.sql(&settings.dbname, refuse).await;
    assert!(matches!(refusal(&postgres, batch(&rows)).await, SinkError::Busy(_)));
    server.sql(&settings.dbname, "DROP TRIGGER refuse ON gpuvitals_identities").await;
    postgres.accept(vec![batch(&rows)]).await.unwrap();
    let found = postgres.rows(RowsQuery::of(Table::GpuEvents, 10)).await.unwrap().answer.batch.unwrap();
    assert_eq!([0, 1, 2].map(|row| found.identity(row)), gpus);
}

#[tokio::test]
async fn every_table_and_every_kind_of_column_comes_back_as_it_was() {
    let server = Server::shared();
    let settings = server.database().await;
    let postgres = open(&settings).await;
    let mut identity = gpu("GPU-0", "j");
    identity.index = Some(3);
    let mut details = BatchBuilder::new(Table::GpuDetails);
    let mut processes = BatchBuilder::new(Table::GpuProcesses);
    let mut events = BatchBuilder::new(Table::GpuEvents);
    for (place, link) in ["10", "2", "ä"].into_iter().enumerate() {
        let id = details.intern(&identity);
        let row = details.row(7, id);
        details.set_extra_text(row, "metric", "nvlink_rx_bytes").unwrap();
        details.set_extra_text(row, "instance", link).unwrap();
        details.set_extra(row, "value", 0.1 + f64::from(u8::try_from(place).unwrap())).unwrap();
    }
    let id = processes.intern(&identity);
    let row = processes.row(7, id);
    processes.set_extra(row, "pid", Value::Int(42)).unwrap();
    processes.set_extra(row, "fb_memory_mb", Value::Int(1 << 40)).unwrap();
    processes.set_extra_text(row, "command", "python3 \"x\" \\N").unwrap();
    let id = events.intern(&identity);
    let row = events.row(i64::MAX - 1, id);
    events.set_extra(row, "foreign", 0.1).unwrap();
    events.set_extra_text(row, "words", "\"{}' é").unwrap();
    let written =
        [details, processes, events].map(|mut builder| builder.finish(Origin::default(), 0).unwrap());
    postgres.accept(written.to_vec()).await.unwrap();
    for batch in written {
        let rows = postgres.rows(RowsQuery::of(batch.table(), 10)).await.unwrap().answer.batch.unwrap();
        assert_eq!(rows.timestamps(), batch.timestamps());
        assert_eq!(rows.identity(0), identity);
        let mut known: Vec<_> = batch.extras().collect();
        known.sort_by_key(|(name, _)| *name);
        let mut found: Vec<_> = rows.extras().collect();
        found.sort_by_key(|(name, _)| *name);
        assert_eq!(found, known);
    }
    let fleet = open(&settings).await.fleet().await.unwrap().answer;
    assert_eq!(fleet.gpus, postgres.fleet().await.unwrap().answer.gpus);
    assert_eq!(fleet.get("GPU-0").unwrap().extras.len(), 2);
}

#[tokio::test]
async fn tables_are_made_once_by_many_at_a_time_and_columns_that_are_missing_are_added() {
    let server = Server::shared();
    let settings = server.database().await;
    let opened = futures_util::future::join_all(
        (0..4).map(|_| Postgres::open(settings.clone(), None, FleetBounds::default())),
    )
    .await;
    assert!(opened.iter().all(Result::is_ok), "{opened:?}");
    let writing =
        opened.iter().flatten().map(|postgres| postgres.accept(vec![power(1, 1.0), power(DAY_NS * 3, 2.0)]));
    let written = futures_util::future::join_all(writing).await;
    assert!(written.iter().all(|written| matches!(written, Ok(()) | Err(SinkError::Busy(_)))), "{written:?}");
    let database = settings.dbname.as_str();
    // A table of an older catalogue: one column less, another narrower.
    let older = "ALTER TABLE gpu_events DROP COLUMN temperature_c; ALTER TABLE gpu_events ALTER memory_used_mb TYPE int4";
    server.sql(database, older).await;
    let postgres = open(&settings).await;
    let column = "SELECT udt_name FROM information_schema.columns WHERE table_name = 'gpu_events' AND \
                  column_name IN ('memory_used_mb', 'temperature_c') ORDER BY column_name";
    let types: Vec<_> = server.sql(database, column).await.concat();
    assert_eq!(types, ["int8", "float4"].map(|name| Some(name.to_owned())));
    assert_eq!(powers(&postgres).await, [(1, Some(1.0)), (DAY_NS * 3, Some(2.0))]);
    server.sql(database, "ALTER TABLE gpu_events ALTER gpu_clock_mhz TYPE int8").await;
    let error = Postgres::open(settings.clone(), None, FleetBounds::default()).await.unwrap_err();
    assert!(
        matches!(error, PostgresError::Column { .. }) && error.to_string().contains("gpu_clock_mhz"),
        "{error}"
    );
    server.sql(database, "UPDATE gpuvitals_schema SET version = 2").await;
    let error = Postgres::open(settings, None, FleetBounds::default()).await.unwrap_err();
    assert!(error.to_string().contains("layout 2"), "{error}");
}

#[tokio::test]
async fn days_have_partitions_that_are_made_ahead_made_again_and_dropped_by_age() {
    let server = Server::shared();
    let settings = server.database().await;
    let postgres = open_keeping(&settings, Duration::from_hours(48)).await;
    let partitions = async || {
        let sql = "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
                   WHERE i.inhparent = 'gpu_events'::regclass ORDER BY 1";
        let names = server.sql(&settings.dbname, sql).await.concat();
        names
            .into_iter()
            .map(|name| name.unwrap().replace("gpu_events_197001", ""))
            .collect::<Vec<_>>()
            .join(" ")
    };
    for day in [0, 1, 4] {
        postgres.accept(vec![power(day * DAY_NS + 5, 1.0)]).await.unwrap();
    }
    // The first ended more than two days before the day of the newest row.
    assert_eq!(partitions().await, "03 05 06");
    server.sql(&settings.dbname, "DROP TABLE gpu_events_19700105").await;
    assert!(matches!(refusal(&postgres, power(4 * DAY_NS + 6, 2.0)).await, SinkError::Busy(_)));
    postgres.accept(vec![power(4 * DAY_NS + 6, 2.0)]).await.unwrap();
    assert_eq!(powers(&postgres).await, [(4 * DAY_NS + 6, Some(2.0))]);
}

#[tokio::test]
async fn rows_older_than_what_is_kept_are_taken_and_left_out_and_newer_rows_with_them_are_written() {
    let server = Server::shared();
    let settings = server.database().await;
    let postgres = open_keeping(&settings, Duration::from_hours(48)).await;
    postgres.accept(vec![power(4 * DAY_NS, 1.0)]).await.unwrap();
    postgres.accept(vec![power(5, 2.0)]).await.unwrap();
    postgres.accept(vec![power(6, 2.0), power(4 * DAY_NS + 1, 3.0), power(2 * DAY_NS, 4.0)]).await.unwrap();
    let kept = [(2 * DAY_NS, Some(4.0)), (4 * DAY_NS, Some(1.0)), (4 * DAY_NS + 1, Some(3.0))];
    assert_eq!(powers(&postgres).await, kept);
    let figures = String::from_utf8(render(&postgres.families())).unwrap();
    assert!(figures.contains("gpuvitals_postgres_rows_too_old_total 2"), "{figures}");
    // Another process knows a day that this one drops.
    let other = open_keeping(&settings, Duration::from_hours(48)).await;
    other.accept(vec![power(2 * DAY_NS + 1, 5.0)]).await.unwrap();
    postgres.accept(vec![power(6 * DAY_NS, 6.0)]).await.unwrap();
    let mut tries = 0;
    while let Err(error) = other.accept(vec![power(2 * DAY_NS + 2, 7.0)]).await {
        assert!(matches!(error, SinkError::Busy(_)) && tries == 0, "{error}");
        tries += 1;
    }
    let fleet = other.fleet().await.unwrap().answer;
    assert_eq!(fleet.get("GPU-0").unwrap().last_seen_ns, 6 * DAY_NS);
    let kept = [(4 * DAY_NS, Some(1.0)), (4 * DAY_NS + 1, Some(3.0)), (6 * DAY_NS, Some(6.0))];
    assert_eq!(powers(&other).await, kept);
}

#[tokio::test]
async fn a_recording_that_is_replayed_into_a_live_database_stops_nothing() {
    let server = Server::shared();
    let settings = server.database().await;
    let postgres = open_keeping(&settings, Duration::from_hours(72)).await;
    let live = 20_000 * DAY_NS;
    for second in 0..20 {
        // A day of the recording a second: the last ones are young enough.
        let replayed = live + (second - 18) * DAY_NS;
        let batches = [power(replayed, 1.0), power(live + second, 2.0)];
        postgres.accept(batches.to_vec()).await.unwrap();
    }
    let times: Vec<i64> = powers(&postgres).await.into_iter().map(|(time_ns, _)| time_ns).collect();
    let young =
        [-2, -1].map(|day| live + day * DAY_NS).into_iter().chain((0..20).map(|second| live + second));
    assert_eq!(times, young.chain([live + DAY_NS]).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_crashes_and_comes_back_loses_and_doubles_nothing() {
    let server = Server::start("listen_addresses = ''");
    let settings = server.settings("postgres", &[]);
    let postgres = open(&settings).await;
    let (acknowledged, mut written) = tokio::sync::mpsc::channel(1);
    let sink = postgres.clone();
    let writer = tokio::spawn(async move {
        let (mut time_ns, mut failures) = (0, 0_u32);
        loop {
            match sink.accept(vec![power(time_ns, 1.0)]).await {
                Ok(()) if acknowledged.send((time_ns, failures)).await.is_err() => return,
                Ok(()) => time_ns += 1,
                // The same rows again, as a collector does.
                Err(SinkError::Busy(_)) => failures += 1,
                Err(error) => panic!("{error:?}"),
            }
        }
    });
    let mut newest = 0;
    for restart in 0..3 {
        // Rows are acknowledged after each restart, the last of them in the middle of writing.
        for _ in 0..20 {
            let next = tokio::time::timeout(Duration::from_mins(1), written.recv()).await;
            newest = next.expect("rows are acknowledged again").unwrap().0;
        }
        if restart < 2 {
            server.kill();
            assert!(postgres.rows(RowsQuery::of(Table::GpuEvents, 1)).await.is_err());
            server.begin();
        }
    }
    drop(written);
    tokio::time::timeout(Duration::from_mins(1), writer).await.unwrap().unwrap();
    let found: Vec<i64> = powers(&postgres).await.into_iter().map(|(time_ns, _)| time_ns).collect();
    assert!(found.last().is_some_and(|last| *last >= newest), "{newest}: {found:?}");
    assert_eq!(found, (0..).take(found.len()).collect::<Vec<i64>>());
    assert_eq!(Sink::health(&postgres).status, Status::Healthy);
}

#[tokio::test]
async fn a_server_that_is_slow_acknowledges_when_it_has_committed() {
    let server = Server::shared();
    let settings = server.database().await;
    let postgres = open(&settings).await;
    postgres.accept(vec![power(1, 1.0)]).await.unwrap();
    let holder = held(&settings).await;
    let sink = postgres.clone();
    let writing = tokio::spawn(async move { sink.accept(vec![power(2, 2.0)]).await });
    until_waiting(&server, &settings, 1).await;
    assert!(!writing.is_finished());
    holder.batch_execute("COMMIT").await.unwrap();
    writing.await.unwrap().unwrap();
    assert_eq!(powers(&postgres).await, [(1, Some(1.0)), (2, Some(2.0))]);
}

/// A connection of somebody else who holds `gpu_events`, as long maintenance does, until it is dropped.
async fn held(settings: &Database) -> tokio_postgres::Client {
    let mut config = tokio_postgres::Config::new();
    config.host(&settings.host).port(settings.port).user(&settings.user).dbname(&settings.dbname);
    let (holder, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    holder.batch_execute("BEGIN; LOCK TABLE gpu_events IN ACCESS EXCLUSIVE MODE").await.unwrap();
    holder
}

/// Waits until this many statements of ours wait for a lock.
async fn until_waiting(server: &Server, settings: &Database, statements: usize) {
    let waiting = "SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND \
                   wait_event_type = 'Lock' AND application_name = 'gpuvitals'";
    let wanted = [Some(statements.to_string())];
    let look = async || (server.sql(&settings.dbname, waiting).await.concat() == wanted).then_some(());
    retried("statements that wait for a lock", look).await;
}

#[tokio::test]
async fn questions_leave_a_connection_to_the_writer_and_do_not_wait_for_ever() {
    let server = Server::shared();
    let settings = server.database().await;
    let settings = server.settings(&settings.dbname, &[("database.connections", "3")]);
    let postgres = open(&settings).await;
    postgres.accept(vec![power(1, 1.0)]).await.unwrap();
    let holder = held(&settings).await;
    let asking = [(); 2].map(|()| {
        let postgres = postgres.clone();
        tokio::spawn(async move { powers(&postgres).await })
    });
    until_waiting(&server, &settings, 2).await;
    let refused = postgres.rows(RowsQuery::of(Table::GpuEvents, 1));
    let mut host = BatchBuilder::new(Table::SystemEvents);
    let node = host.intern(&Identity::default().with(IdentityColumn::Node, "n").unwrap());
    host.row(1, node);
    let written = postgres.accept(vec![host.finish(Origin::default(), 0).unwrap()]);
    let (refused, written) = tokio::join!(refused, written);
    written.unwrap();
    let refused = refused.unwrap_err();
    assert!(
        matches!(&refused, QueryError::Away { reason } if reason.contains("database.connections")),
        "{refused}"
    );
    assert_eq!(History::health(&postgres).status, Status::Degraded);
    holder.batch_execute("COMMIT").await.unwrap();
    for asked in asking {
        assert_eq!(asked.await.unwrap(), [(1, Some(1.0))]);
    }
    assert_eq!(History::health(&postgres).status, Status::Healthy);
}

/// Drops a question whose statement waits.
async fn cancels_what_is_dropped(server: &Server, settings: &Database) {
    let postgres = open(settings).await;
    postgres.accept(vec![power(1, 1.0)]).await.unwrap();
    let holder = held(&server.settings(&settings.dbname, &[])).await;
    let asked = postgres.clone();
    let asking = tokio::spawn(async move { asked.rows(RowsQuery::of(Table::GpuEvents, 1)).await });
    until_waiting(server, settings, 1).await;
    asking.abort();
    let gone = tokio::time::timeout(Duration::from_secs(5), until_waiting(server, settings, 0)).await;
    gone.expect("a statement that ends");
    // Not because the server found out that the connection is closed, which version 13 does not.
    let log = std::fs::read_to_string(server.path("log")).unwrap();
    assert!(log.contains("canceling statement due to user request"), "{log}");
    holder.batch_execute("COMMIT").await.unwrap();
    assert!(powers(&postgres).await.contains(&(1, Some(1.0))));
}

#[tokio::test]
async fn the_statement_of_a_question_that_is_dropped_is_cancelled() {
    let server = Server::start("listen_addresses = ''\nfsync = off");
    cancels_what_is_dropped(&server, &server.settings("postgres", &[("database.connections", "2")])).await;
}

#[tokio::test]
async fn a_server_that_is_away_or_refuses_the_password_is_named_and_the_password_is_not() {
    let server = Server::start("listen_addresses = ''\npassword_encryption = 'scram-sha-256'");
    server.sql("postgres", "ALTER USER gpu PASSWORD 's3cret'").await;
    std::fs::write(server.path("data/pg_hba.conf"), "local all all scram-sha-256\n").unwrap();
    server.kill();
    let wrong = server.settings("postgres", &[("database.password", "wr0ng")]);
    let postgres = open(&wrong).await;
    let reason = Sink::health(&postgres).reason;
    assert!(
        reason.contains("cannot connect to database postgres of") && reason.contains("as gpu"),
        "{reason}"
    );
    server.begin();
    let error = refusal(&postgres, power(1, 1.0)).await;
    assert!(
        matches!(error, SinkError::Busy(_)) && causes(&error).contains("password authentication failed"),
        "{error}"
    );
    let shown = format!("{} {postgres:?} {:?}", Sink::health(&postgres).reason, postgres.fleet().await);
    assert!(shown.contains("password authentication failed") && !shown.contains("wr0ng"), "{shown}");
    let file = server.path("password");
    std::fs::write(&file, "s3cret\n").unwrap();
    let right = server.settings("postgres", &[("database.password_file", file.to_str().unwrap())]);
    let postgres = open(&right).await;
    postgres.accept(vec![power(1, 1.0)]).await.unwrap();
    assert_eq!(powers(&postgres).await, [(1, Some(1.0))]);
}
