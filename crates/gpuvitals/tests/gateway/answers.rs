//! Requirement C4.1, of a gateway in one process and of one over pieces.

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::port::Port;
use gpuvitals_rig::program::{Finished as _, Process};
use serde_json::{Value, json};

use crate::site::{Gateway, SECONDS, recording, start};

/// Fields of a GPU in a list.
const GPU: [&str; 10] = [
    "id",
    "name",
    "model",
    "vendor",
    "hostname",
    "index",
    "memory_mb",
    "driver_version",
    "state",
    "last_seen",
];

fn has(object: &Value, fields: &[&str]) {
    for field in fields {
        assert!(object.get(field).is_some(), "{field} is missing: {object}");
    }
}

/// What the requirement says of every answer.
pub(crate) fn check(gateway: &Gateway) {
    let health = gateway.get("/health");
    assert_eq!(health["service"], "telemetry-api-gateway");
    has(&health, &["status", "timestamp", "version"]);
    for part in ["collector", "queue"] {
        has(&health[part], &["status", "reason", "since"]);
        has(&health[format!("{part}s")][0], &["name", "status", "reason", "since"]);
    }

    let gpus = gateway.get("/api/v1/gpus?limit=3&offset=0");
    assert_eq!((&gpus["total"], gpus["gpus"].as_array().unwrap().len()), (&json!(4), 3));
    assert_eq!(gpus["pagination"], json!({"limit": 3, "offset": 0, "has_next": true}));
    has(&gpus["gpus"][0], &GPU);
    let id = gpus["gpus"][0]["id"].as_str().unwrap();

    let telemetry = format!("/api/v1/gpus/{id}/telemetry");
    let all = gateway.get(&format!("{telemetry}?limit=1000"));
    assert_eq!(all["total"], SECONDS, "every row of the GPU, and each once");
    let entry = &all["data"][0];
    has(entry, &["gpu_id", "hostname", "metrics", "timestamp"]);
    assert!(entry["metrics"].as_object().unwrap().len() > 40, "rows are whole: {entry}");
    let (start, end) = ("2026-01-01T00:00:10Z", "2026-01-01T00:00:19Z");
    let page = gateway.get(&format!("{telemetry}?start_time={start}&end_time={end}&limit=4&offset=2"));
    assert_eq!(page["total"], 10, "both ends belong to the range");
    assert_eq!(page["pagination"], json!({"limit": 4, "offset": 2, "has_next": true}));
    let several = gateway.get("/api/v1/telemetry?limit=1000");
    assert_eq!(several["total"], 4 * SECONDS);

    let hosts = gateway.get("/api/v1/hosts");
    assert_eq!(hosts["total"], 2);
    let host = hosts["hosts"][0]["hostname"].as_str().unwrap();
    assert_eq!(gateway.get(&format!("/api/v1/hosts/{host}/gpus"))["total"], 2);

    let stats = gateway.get("/stats");
    has(&stats["topics"]["gpu-telemetry"], &["messages", "subscribers", "throughput_msg_per_sec"]);
    has(&stats, &["total_processed", "uptime_seconds", "collectors"]);
    has(&stats["gateway"], &["cache_hit_rate", "requests", "uptime_seconds"]);
    assert_eq!(gateway.ask("/docs").status, 200);
    assert!(gateway.get("/openapi.json")["paths"].as_object().unwrap().len() > 12);

    for (path, status, code) in [
        ("/api/v1/gpus?limit=x", 400, "bad_parameter"),
        ("/api/v1/gpus?limits=1", 400, "bad_parameter"),
        ("/api/v1/gpus/GPU-none", 404, "unknown_gpu"),
        ("/api/v1/hosts/nowhere/gpus", 404, "unknown_host"),
        ("/api/v1/nothing", 404, "not_found"),
    ] {
        let said = gateway.ask(path);
        has(&said.json, &["error", "message", "code"]);
        assert_eq!((said.status, &said.json["code"]), (status, &json!(code)), "{path}: {}", said.json);
    }
}

/// Questions whose answers are the same wherever the rows are.
fn questions() -> Vec<String> {
    let range = "start=2026-01-01T00:00:00Z&end=2026-01-01T00:00:59Z";
    let query = |rest: &str| format!("/api/v1/query?{range}&{rest}");
    vec![
        "/api/v1/gpus?include=metrics".to_owned(),
        "/api/v1/telemetry?limit=37&offset=100".to_owned(),
        "/api/v1/telemetry?limit=1000&metrics=power_w,energy_mj".to_owned(),
        "/api/v1/hosts".to_owned(),
        query("metrics=power_w,temperature_c&step=10s&aggregate=min,max,last,count"),
        query("metrics=gpu_clock_mhz&step=60s&aggregate=max&group_by=node"),
        query("metrics=gpu_clock_mhz&step=60s&aggregate=p50,p99,mean&group_by=all"),
        query("metrics=utilization_pct&step=20s&aggregate=max&where=node=~.*0001"),
    ]
}

/// A recording in two files: the rows of its first seconds, and the rest.
fn halves(file: &str) -> [String; 2] {
    let text = std::fs::read_to_string(file).unwrap();
    let (header, rows) = text.split_once('\n').unwrap();
    let rows: Vec<&str> = rows.lines().collect();
    let (early, late) = rows.split_at(rows.len() / 2);
    [("early", early), ("late", late)].map(|(name, rows)| {
        let half = file.replace(".csv", &format!("-{name}.csv"));
        std::fs::write(&half, format!("{header}\n{}\n", rows.join("\n"))).unwrap();
        half
    })
}

#[test]
fn pieces_and_one_process_give_the_same_answers() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let file = recording(folder.path());
    let up = Gateway::of(start(&["up", "--port", "0", "--replay", &file, "--data-dir", &at("up")]));

    let (queue, one, other) = (Port::new(), Port::new(), Port::new());
    let broker = start(&["broker", "--port", &queue, "--persistence-path", &at("mq")]);
    broker.says("queue: http");
    let collect = |api: &str, data: &str| {
        start(&["collect", "--api-port", api, "--broker-port", &queue, "--data-dir", data])
    };
    let url = format!("http://127.0.0.1:{queue}");
    let names = format!("http://127.0.0.1:{one},http://127.0.0.1:{other}");
    let serve = Gateway::of(start(&["serve", "--port", "0", "--collectors", &names, "--mq-url", &url]));
    // Each collector is alone while one half of the seconds is published: each has a share of every GPU.
    let alone = |collector: &Process, port: &str, half: &str| {
        collector.says("collector API");
        let arguments = ["stream", "--csv", half, "--once", "--rate", "2000", "--mq-url", &url];
        assert_eq!(start(&arguments).ended().0, Some(0));
        serve.until("/stats", "the share of a collector", |said| {
            said.json["collectors"][format!("127.0.0.1:{port}")]["total_processed"] == 2 * SECONDS
        });
    };
    let [early, late] = halves(&file);
    let first = collect(&one, &at("a"));
    alone(&first, &one, &early);
    assert_eq!(first.terminated().0, Some(0));
    let second = collect(&other, &at("b"));
    alone(&second, &other, &late);
    let collectors = [collect(&one, &at("a")), second];

    for gateway in [&up, &serve] {
        gateway.until("/api/v1/telemetry?limit=1", "all rows", |said| said.json["total"] == 4 * SECONDS);
        gateway.until("/health", "health", |said| said.json["status"] == "healthy");
        check(gateway);
    }
    serve.until("/stats", "what was published", |said| {
        said.json["topics"]["gpu-telemetry"]["published"] == 4 * SECONDS
    });
    for question in questions() {
        assert_eq!(comparable(up.get(&question)), comparable(serve.get(&question)), "{question}");
    }
    let metrics = serve.ask("/metrics");
    assert_eq!(metrics.status, 200);
    for process in [up.process, serve.process, broker].into_iter().chain(collectors) {
        let (code, said) = process.terminated();
        assert_eq!(code, Some(0), "{said}");
    }
}

/// A GPU that works and then breaks, and another that comes with that row and is hot in it.
const BREAKS: &str = "timestamp,gpu,uuid,model,node,utilization_pct,xid_last,throttle_reasons
2026-01-01T00:00:00Z,0,GPU-a,NVIDIA H100 80GB HBM3,n1,50,,
2026-01-01T00:00:30Z,0,GPU-a,NVIDIA H100 80GB HBM3,n1,50,,
2026-01-01T00:01:00Z,0,GPU-a,NVIDIA H100 80GB HBM3,n1,50,79,
2026-01-01T00:01:00Z,0,GPU-b,NVIDIA H100 80GB HBM3,n2,50,,32
";

#[test]
fn the_command_line_lists_by_the_one_judgement_as_of_an_instant() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("breaks.csv");
    std::fs::write(&file, BREAKS).unwrap();
    let data = folder.path().join("data");
    let files = ["--replay", file.to_str().unwrap(), "--data-dir", data.to_str().unwrap()];
    let up = Gateway::of(start(&[&["up", "--port", "0"][..], &files].concat()));
    up.until("/api/v1/telemetry?limit=1", "all rows", |said| said.json["total"] == 4);
    // The lines of a list that name one of these, as their first words.
    let listed = |question: &[&str], at: &str| {
        let said = gpuvitals!().args(question).args(["--at", at, "--url", &up.url]).finished().unwrap();
        assert!(said.status.success(), "{question:?}: {}", String::from_utf8_lossy(&said.stderr));
        let text = String::from_utf8(said.stdout).unwrap();
        let lines = text.lines().filter(|line| line.starts_with("n1 ") || line.starts_with("n2 "));
        lines.map(|line| line.split_whitespace().take(3).collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    let (before, after) = ("2026-01-01T00:00:30Z", "2026-01-01T00:01:00Z");
    let (gpus, hosts) = (&["query", "gpus"][..], &["query", "hosts"][..]);
    assert_eq!(listed(gpus, before), ["n1 0 active"], "the other one has not come");
    // One hot sample is no finding.
    assert_eq!(listed(gpus, after), ["n1 0 critical", "n2 0 unconfirmed"]);
    assert_eq!(listed(&[gpus, &["--judgement", "critical,lost"]].concat(), after), ["n1 0 critical"]);
    assert_eq!(listed(hosts, before), ["n1 1 active"]);
    assert_eq!(listed(hosts, after), ["n1 1 critical", "n2 1 unconfirmed"]);
    assert_eq!(listed(&[hosts, &["--judgement", "unconfirmed"]].concat(), after), ["n2 1 unconfirmed"]);
    let findings = |at: &str| {
        let asked = ["findings", "--at", at, "--json", "--url", &up.url];
        let said = gpuvitals!().args(asked).finished().unwrap();
        let list: Value = serde_json::from_slice(&said.stdout).unwrap();
        list["findings"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect::<Vec<_>>()
    };
    assert!(findings(before).is_empty());
    assert_eq!(findings(after), ["xid:GPU-a"]);
    let told = |question: &[&str]| {
        let said = gpuvitals!().args(question).args(["--url", &up.url]).finished().unwrap();
        String::from_utf8(said.stdout).unwrap()
    };
    let earlier = told(&["findings", "--at", "2025-12-31T00:00:00Z"]);
    assert!(earlier.ends_with("\nno GPU had reported by then: nothing was judged\n"), "{earlier}");
    // Now there is nothing to see: it says where there is.
    up.until("/health", "the end of the recording", |said| said.json["recording_end"] == after);
    let of_now: [(&[&str], &str); 7] = [
        (gpus, "--at"),
        (hosts, "--at"),
        (&["findings"], "--at"),
        (&["query", "gpu", "n1 / GPU 0"], "--at"),
        (&["query", "range", "utilization_pct"], "--end"),
        (&["explain", "n1 / GPU 0"], "--end"),
        (&["jobs"], "--end"),
    ];
    for (question, flag) in of_now {
        let text = told(question);
        let hint = format!("ended at {after}: {flag} {after} shows it as of then\n");
        assert!(text.ends_with(&hint), "{question:?}: {text}");
    }
    let (code, said) = up.process.terminated();
    assert_eq!(code, Some(0), "{said}");
}

/// An answer without what depends on the moment it was given, and means in the digits that a sum has in any order.
fn comparable(mut answer: Value) -> Value {
    fn rounded(value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(rounded),
            Value::Object(fields) => {
                // Which rollup was read depends on what is merged yet.
                fields.remove("rollup_ms");
                fields.values_mut().for_each(rounded);
            }
            Value::Number(number) if number.is_f64() => {
                *value = format!("{:.9e}", number.as_f64().unwrap()).into();
            }
            _ => {}
        }
    }
    rounded(&mut answer);
    answer
}
