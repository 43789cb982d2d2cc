//! Two collectors that write into one PostgreSQL, and a gateway that asks it.

use std::sync::Arc;

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::port::Port;
use gpuvitals_rig::postgres::PostgresServer;
use gpuvitals_rig::program::Finished as _;
use serde_json::Value;

use crate::answers::check;
use crate::site::{Gateway, SECONDS, Said, recording, start_with};

/// The counts of collectors at these ports that have shared all rows: a database's collector counts neither files nor lines.
fn check_stats(ports: &[&str]) {
    let mut processed = 0;
    for port in ports {
        let text = ureq::get(format!("http://127.0.0.1:{port}/stats")).call().unwrap();
        let text = text.into_body().read_to_string().unwrap();
        let stats: Value = serde_json::from_str(&text).unwrap();
        let fields = ["total_processed", "active_gpus", "file_entries", "cache_entries", "uptime_seconds"];
        assert!(fields.iter().all(|field| stats[*field].is_u64()), "{stats}");
        assert_eq!(stats.as_object().unwrap().len(), fields.len(), "{stats}");
        let [total, gpus, in_files, in_memory, _] = fields.map(|field| stats[field].as_u64().unwrap());
        assert_eq!((in_files, in_memory), (total, gpus), "{stats}");
        // A fast one takes all rows before the other asks.
        assert!(gpus <= 4, "{stats}");
        processed += total;
    }
    assert!(processed >= 4 * SECONDS, "{processed}");
}

#[test]
fn ranges_come_from_the_database_and_the_newest_rows_from_the_collectors() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let file = recording(folder.path());
    let server = PostgresServer::shared();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let database = runtime.block_on(server.database());
    let host = server.host();
    let settings = [
        ("GPUVITALS_DATABASE_HOST", host.as_str()),
        ("GPUVITALS_DATABASE_USER", "gpu"),
        ("GPUVITALS_DATABASE_DBNAME", database.as_str()),
    ];
    let (queue, one, other) = (Port::new(), Port::new(), Port::new());
    let broker = start_with(&["broker", "--port", &queue, "--persistence-path", &at("mq")], &[]);
    broker.says("queue: http");
    let collect = |api: &str| {
        let collector = start_with(&["collect", "--api-port", api, "--broker-port", &queue], &settings);
        collector.says("collector API");
        collector
    };
    let (a, b) = (collect(&one), collect(&other));
    let names = format!("http://127.0.0.1:{one},http://127.0.0.1:{other}");
    let url = format!("http://127.0.0.1:{queue}");
    let serve = ["serve", "--port", "0", "--collectors", &names, "--mq-url", &url];
    let gateway = Gateway::of(start_with(&serve, &settings));
    gateway.until("/health", "both collectors", |said| said.json["status"] == "healthy");
    let streamer =
        ["stream", "--csv", &file, "--once", "--rate", "2000", "--batch-size", "8", "--mq-url", &url];
    assert_eq!(start_with(&streamer, &[]).ended().0, Some(0));
    gateway.until("/api/v1/telemetry?limit=1", "all rows", |said| said.json["total"] == 4 * SECONDS);
    gateway.until("/health", "health", |said| said.json["status"] == "healthy");
    check(&gateway);
    check_stats(&[&one, &other]);

    // A collector that is away takes no rows of the past with it, and no GPU.
    a.kill();
    gateway.until("/health", "a killed collector", |said| said.json["collector"]["status"] == "degraded");
    assert_eq!(gateway.ask("/api/v1/telemetry?limit=1").json["total"], 4 * SECONDS);
    let lacks = |words: &str, said: &Said| said.partial.as_ref().is_some_and(|it| it.contains(words));
    let gpus = gateway.until("/api/v1/gpus", "a collector is away", |said| lacks("gave them last", said));
    assert_eq!(gpus.json["total"], 4);
    b.kill();
    gateway.until("/health", "no collector", |said| {
        let collectors = said.json["collectors"].as_array().unwrap();
        collectors.len() == 2
            && collectors.iter().all(|one| one["status"] == "degraded" && one["reached"] == false)
    });
    assert_eq!(gateway.get("/health")["queues"][0]["reached"], true);
    let gpus = gateway.until("/api/v1/gpus", "no collector", |said| lacks(&other, said));
    assert_eq!(gpus.json["total"], 4);
    // A gateway that starts now has the latest state from the database.
    let late = Gateway::of(start_with(&serve, &settings));
    let gpus = late.until("/api/v1/gpus", "a database alone", |said| lacks("the newest rows", said));
    assert_eq!(gpus.json["total"], 4);
    // And without the database there are no ranges.
    server.kill();
    let said = gateway.until("/api/v1/telemetry?limit=2", "no database", |said| said.status != 200);
    assert_eq!((said.status, said.json["code"].as_str()), (503, Some("unavailable")), "{}", said.json);
    gateway.until("/health", "no database", |said| {
        said.json["store"]["reason"].as_str().unwrap().contains("PostgreSQL")
    });
    for process in [gateway.process, late.process, broker] {
        let (code, said) = process.terminated();
        assert_eq!(code, Some(0), "{said}");
    }
    assert_eq!(Arc::strong_count(&server), 1);
}

#[test]
fn a_user_without_the_right_to_make_tables_is_told_what_gives_it_and_needs_no_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = PostgresServer::start("listen_addresses = ''\nfsync = off");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sql = |statement: &str| runtime.block_on(server.sql("postgres", statement));
    sql("CREATE ROLE gv LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    let remedy = "GRANT CREATE ON SCHEMA public TO gv";
    let told = format!("as its owner: {remedy}; docs/postgres.md has all rights");
    let host = server.host();
    let settings = [
        ("GPUVITALS_DATABASE_HOST", host.as_str()),
        ("GPUVITALS_DATABASE_USER", "gv"),
        ("GPUVITALS_DATABASE_DBNAME", "postgres"),
    ];
    let doctor = || {
        let output = gpuvitals!().envs(settings).args(["doctor", "--json"]).finished().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap().clone();
        let of_database = |finding: &Value| finding["subject"].as_str().unwrap().starts_with("database ");
        findings.into_iter().find(of_database).unwrap()
    };
    let found = doctor();
    assert_eq!(
        (found["verdict"].as_str(), found["remedy"].as_str()),
        (Some("broken"), Some(&*told)),
        "{found}"
    );
    assert!(found["text"].as_str().unwrap().ends_with("permission denied for schema public"), "{found}");

    let data = folder.path().to_str().unwrap();
    let up = ["up", "--source", "simulated", "--gpus", "4", "--port", "0", "--data-dir", data];
    let gateway = Gateway::of(start_with(&up, &settings));
    for path in ["/api/v1/gpus", "/api/v1/telemetry"] {
        let said = gateway.ask(path);
        assert_eq!((said.status, said.json["code"].as_str()), (503, Some("unavailable")), "{}", said.json);
        let message = said.json["message"].as_str().unwrap();
        assert!(message.contains("permission denied") && message.contains(&told), "{message}");
    }
    let health = gateway.ask("/health").json;
    assert_eq!(health["status"], "degraded", "{health}");
    assert!(health["store"]["reason"].as_str().unwrap().contains(&told), "{health}");

    sql(remedy);
    gateway.until("/api/v1/gpus", "rows without a restart", |said| said.json["total"] == 4);
    gateway.until("/health", "health", |said| said.json["status"] == "healthy");
    assert_eq!(doctor()["verdict"], "good");
    assert_eq!(gateway.process.terminated().0, Some(0));
}
