//! Health, statistics, documents, and the common parts of all answers.

use std::time::Duration;

use gpuvitals_api::Peer;
use gpuvitals_core::{Health, Status};
use gpuvitals_listener::WebOrigin;
use gpuvitals_settings::Typed as _;
use serde_json::{Value, json};

use crate::analysis::judging;
use crate::client::request;
use crate::clusters;
use crate::world::{World, fleet, gpu, now_ns, rows};

#[tokio::test]
async fn health_is_the_worst_of_the_parts() {
    let world = World::new().await;
    let well = json!({"status": "healthy", "reason": "", "since": "2026-11-20T16:00:00Z"});
    let report = world.ok("/health").await;
    assert_eq!(report["status"], "healthy");
    assert_eq!(report["service"], "telemetry-api-gateway");
    assert_eq!(report["timestamp"], "2026-11-20T16:00:00Z");
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&report["collector"], &report["queue"]), (&well, &well));
    assert_eq!(report["store"]["status"], "healthy");

    world.parts.queue.lock().unwrap().observe(
        Status::Degraded,
        "the queue is full",
        now_ns() + 1_000_000_000,
    );
    let ready = world.get("/readyz").await;
    assert_eq!((ready.status, ready.text()), (200, "ok; the queue is full\n"));
    let report = world.ok("/health").await;
    assert_eq!(report["status"], "degraded");
    assert_eq!(
        report["queue"],
        json!({"status": "degraded", "reason": "the queue is full", "since": "2026-11-20T16:00:01Z"})
    );

    world.parts.collector.lock().unwrap().observe(Status::Unhealthy, "no disk", now_ns());
    let answer = world.get("/health").await;
    assert_eq!((answer.status, &answer.json()["status"]), (503, &json!("unhealthy")));
    let ready = world.get("/readyz").await;
    assert_eq!((ready.status, ready.text()), (503, "no disk\n"));
    assert_eq!(world.get("/healthz").await.text(), "ok\n");
    assert_eq!(answer.json()["queue"]["status"], "degraded");
}

#[tokio::test]
async fn of_several_collectors_the_worst_is_shown_and_each_is_listed() {
    let world = World::new().await;
    let report = world.ok("/health").await;
    let well = json!({
        "name": "c:8080", "status": "healthy", "reason": "", "since": "2026-11-20T16:00:00Z", "reached": true
    });
    assert_eq!(report["collectors"], json!([well]));
    assert_eq!(report["queues"][0]["name"], "q:9090");
    let health = Health {
        status: Status::Degraded,
        reason: "no answer".to_owned(),
        since_ns: now_ns() + 1_000_000_000,
    };
    world.parts.add_collector(Peer { name: "d:8080".to_owned(), health, stats: Value::Null });
    let report = world.ok("/health").await;
    assert_eq!(
        report["collector"],
        json!({"status": "degraded", "reason": "d:8080: no answer", "since": "2026-11-20T16:00:01Z"})
    );
    assert_eq!((report["status"].as_str(), &report["collectors"][0]), (Some("degraded"), &well));
    assert_eq!(report["collectors"][1]["reason"], "no answer");
    assert_eq!(report["collectors"][1]["reached"], false);
    let stats = world.ok("/stats").await;
    assert_eq!(stats["collectors"], json!({"c:8080": {"total_processed": 7}, "d:8080": null}));
}

#[tokio::test]
async fn only_connections_that_are_there_are_counted() {
    let world = World::new().await;
    assert_eq!(world.ok("/stats").await["gateway"]["connections"], 1);
}

#[tokio::test]
async fn statistics_are_the_queues_with_more_beside_them() {
    let world = World::new().await;
    world.ok("/api/v1/gpus").await;
    world.ok("/api/v1/gpus").await;
    let stats = world.ok("/stats").await;
    assert_eq!(stats["topics"]["gpu-telemetry"]["messages"], 3);
    assert_eq!((&stats["total_processed"], &stats["uptime_seconds"]), (&json!(4711), &json!(60.5)));
    assert_eq!(stats["dead_letters"], 2);
    assert_eq!(stats["gateway"]["cache_hit_rate"], 0.5);
    assert_eq!(stats["gateway"]["requests"], 2);
    assert!(stats["gateway"]["uptime_seconds"].as_f64().unwrap() >= 0.0);
    assert_eq!(stats["store"]["tail_rows"], 7);
    assert_eq!(stats["source"], json!({"kind": "simulated", "rows": 9}));
}

#[tokio::test]
async fn prometheus_reads_the_gateway() {
    let world = World::new().await;
    world.ok("/api/v1/gpus?limit=1").await;
    world.get("/api/v1/gpus/GPU-z").await;
    world.get("/api/v1/nothing").await;
    let answer = world.get("/metrics").await;
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let text = answer.text();
    for line in [
        "gpuvitals_gateway_requests_total{route=\"/api/v1/gpus\",status=\"200\"} 1",
        "gpuvitals_gateway_requests_total{route=\"/api/v1/gpus/{id}\",status=\"404\"} 1",
        "gpuvitals_gateway_requests_total{route=\"other\",status=\"404\"} 1",
        "gpuvitals_gateway_request_duration_seconds_count{route=\"/api/v1/gpus\"} 1",
        "gpuvitals_gateway_cache_misses_total 2",
        "gpuvitals_gateway_streams 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    let names = text.lines().filter(|line| line.starts_with("# TYPE")).count();
    assert_eq!(text.lines().filter(|line| line.starts_with("# HELP")).count(), names);
}

#[tokio::test]
async fn an_answer_is_given_again_until_the_store_changes() {
    let world = World::new().await;
    let ask = async |query: &str| {
        let answer = world.get(&format!("/api/v1/gpus?{query}")).await;
        (answer.header("x-cache").unwrap().to_owned(), answer.json()["total"].as_u64().unwrap())
    };
    assert_eq!(ask("limit=50&sort=id").await, ("miss".to_owned(), 5));
    assert_eq!(ask("limit=50&sort=id").await, ("hit".to_owned(), 5));
    // The same question in other words.
    assert_eq!(ask("sort=id&offset=0&search=&limit=50").await, ("hit".to_owned(), 5));
    assert_eq!(ask("limit=51&sort=id").await, ("miss".to_owned(), 5));
    world
        .append(crate::world::rows(&[(crate::world::gpu("GPU-new", "n", 0, "AMD"), 0, &[("power_w", 1.0)])]))
        .await;
    assert_eq!(ask("limit=50&sort=id").await, ("miss".to_owned(), 6));
}

#[tokio::test]
async fn one_viewer_gets_the_same_answer_again_until_a_gpu_becomes_stale() {
    let stale_after = Duration::from_secs(30);
    // A judgement changes an answer as well, and serves for all of the test.
    let world = World::empty(|api, _| {
        (api.stale_after, api.limits.judge_every) = (stale_after, Duration::from_hours(2));
    })
    .await;
    world.append(fleet()).await;
    let ask = async |path: &str| world.get(path).await.header("x-cache").unwrap().to_owned();
    let gpus = world.ok("/api/v1/gpus?limit=5").await;
    let seen = gpus["gpus"].as_array().unwrap().iter().map(|gpu| gpu["last_seen"].as_str().unwrap());
    let seen_ns = seen.map(|text| gpuvitals_core::time::parse(text).unwrap()).max().unwrap();
    // Values are 0 to 20 s older than the newest one.
    let expected =
        [(0, "miss"), (5, "hit"), (9, "hit"), (11, "miss"), (19, "hit"), (31, "miss"), (3_600, "hit")];
    for (second, expected) in expected {
        world.set_time(seen_ns + second * 1_000_000_000);
        assert_eq!(ask("/api/v1/gpus").await, expected, "after {second} s");
    }
    assert_eq!(world.ok("/api/v1/gpus").await["gpus"][0]["state"], "stale");
    let metrics = "/api/v1/metrics";
    assert_eq!(ask(metrics).await, "miss");
    world.append(fleet()).await;
    assert_eq!(ask(metrics).await, "hit", "the catalogue is not of the store");
}

#[tokio::test]
async fn with_live_data_an_answer_is_given_again_for_a_moment() {
    let world = World::empty(|api, _| api.limits.reuse = Duration::from_mins(1)).await;
    assert_eq!(world.ok("/api/v1/gpus").await["total"], 0);
    world.append(fleet()).await;
    let again = world.get("/api/v1/gpus").await;
    assert_eq!((again.header("x-cache"), again.header("age")), (Some("hit"), Some("0")));
    assert_eq!(again.json()["total"], 0);
    assert_eq!(world.ok("/api/v1/gpus?offset=0&limit=99").await["total"], 5);
}

#[tokio::test]
async fn those_who_ask_the_same_at_once_share_one_answer() {
    let world = World::empty(|api, _| api.limits.reuse = Duration::from_mins(1)).await;
    let asks = (0..20).map(|_| world.get("/api/v1/query?metrics=power_w&step=1s"));
    let answers = futures_util::future::join_all(asks).await;
    let made = answers.iter().filter(|answer| answer.header("x-cache") == Some("miss")).count();
    assert_eq!(made, 1);
}

#[tokio::test]
async fn json_is_compressed_for_those_who_accept_it() {
    let world = World::new().await;
    let path = "/api/v1/gpus?include=metrics";
    let plain = world.get(path).await;
    assert_eq!(
        (plain.header("content-encoding"), plain.header("vary")),
        (None, Some("accept, accept-encoding"))
    );
    let packed = request(world.address, "GET", path, "accept-encoding: br, gzip\r\n").await;
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert!(packed.body.len() < plain.body.len() / 2);
    assert_eq!(packed.unpacked(), plain.body);
    let small =
        request(world.address, "GET", "/api/v1/hosts?limit=1&offset=9", "accept-encoding: gzip\r\n").await;
    assert_eq!(small.header("content-encoding"), None);
    assert_eq!(small.json()["total"], 2);
}

#[tokio::test]
async fn every_answer_protects_its_reader() {
    let world = World::new().await;
    for path in ["/api/v1/gpus", "/api/v1/nothing", "/health", "/docs", "/docs/start.js", "/", "/metrics"] {
        let answer = world.get(path).await;
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"), "{path}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{path}: {policy}");
        assert!(
            !policy.contains("unsafe-eval") && !policy.contains("script-src 'unsafe"),
            "{path}: {policy}"
        );
    }
}

#[tokio::test]
async fn head_is_get_without_a_body() {
    let world = World::new().await;
    for path in ["/api/v1/gpus", "/health", "/openapi.json", "/"] {
        let (get, head) = (world.get(path).await, request(world.address, "HEAD", path, "").await);
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
        assert_eq!(head.header("content-type"), get.header("content-type"), "{path}");
        assert_eq!(head.header("content-length"), get.header("content-length"), "{path}");
    }
}

#[tokio::test]
async fn only_pages_of_configured_origins_may_read_the_api() {
    let friend = "https://dash.example:8443";
    let world = World::empty(|api, _| api.cors = vec![WebOrigin::read(&friend.into()).unwrap()]).await;
    let from = async |origin: &str| {
        let headers = format!("origin: {origin}\r\n");
        let answer = request(world.address, "GET", "/api/v1/gpus", &headers).await;
        answer.header("access-control-allow-origin").map(ToOwned::to_owned)
    };
    assert_eq!(from(friend).await.as_deref(), Some(friend));
    assert_eq!(from("https://evil.example").await, None);
    let asked = format!("origin: {friend}\r\naccess-control-request-method: GET\r\n");
    let preflight = request(world.address, "OPTIONS", "/api/v1/gpus", &asked).await;
    assert_eq!(preflight.status, 200);
    assert_eq!(preflight.header("access-control-allow-methods"), Some("GET,HEAD,POST,DELETE"));
    assert_eq!(preflight.header("access-control-allow-headers"), Some("authorization,content-type"));
    // Nobody's login is sent along.
    assert_eq!(preflight.header("access-control-allow-credentials"), None);
    let closed = World::empty(|_, _| ()).await;
    let answer =
        request(closed.address, "GET", "/api/v1/gpus", "origin: https://dash.example:8443\r\n").await;
    assert_eq!(answer.header("access-control-allow-origin"), None);
}

#[tokio::test]
async fn a_page_of_another_site_changes_nothing() {
    let world = World::new().await;
    let form = "origin: https://evil.example\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: 0\r\n";
    let refused = request(world.address, "POST", "/api/v1/prom/api/v1/query", form).await;
    assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("forbidden")));
    // Behind a proxy that ends TLS; over plain HTTP a name on a loopback port may be anybody's.
    let own = form.replace("https://evil.example", "https://localhost");
    assert_eq!(request(world.address, "POST", "/api/v1/prom/api/v1/query", &own).await.status, 400);
}

#[tokio::test]
async fn a_handler_that_panics_is_an_error_like_any_other() {
    let world = World::new().await;
    *world.parts.breaks.lock().unwrap() = true;
    let answer = world.get("/stats").await;
    assert_eq!((answer.status, &answer.json()["code"]), (500, &json!("internal")));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert!(!answer.text().contains("broken"));
    world.ok("/health").await;
}

#[tokio::test]
async fn the_catalogue_is_the_catalogue() {
    let world = World::new().await;
    let list = world.ok("/api/v1/metrics").await;
    assert_eq!(list["metrics"], gpuvitals_core::catalogue::json());
}

#[tokio::test]
async fn the_documents_are_served() {
    let world = World::new().await;
    let document = world.ok("/openapi.json").await;
    assert_eq!(document["openapi"], "3.1.0");
    let yaml = world.get("/openapi.yaml").await;
    assert_eq!(yaml.header("content-type"), Some("application/yaml"));
    assert_eq!(yaml.text(), gpuvitals_api::document::yaml().unwrap());

    let page = world.get("/docs").await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(world.get("/docs/").await.body, page.body);
    // Everything the page names is there, and nothing is inline or from elsewhere.
    for path in ["/docs/swagger-ui.css", "/docs/swagger-ui-bundle.js", "/docs/start.js"] {
        assert!(page.text().contains(path));
        assert_eq!(world.get(path).await.status, 200, "{path}");
    }
    assert!(!page.text().contains("<script>") && !page.text().contains("://"));
    let bundle = world.get("/docs/swagger-ui-bundle.js").await;
    assert!(bundle.body.len() > 1_000_000 && bundle.text().contains("SwaggerUIBundle"));
    assert!(world.get("/docs/start.js").await.text().contains("/openapi.json"));
}

/// The handlers accept the documented parameters.
#[tokio::test]
async fn documented_parameters_are_known() {
    let world = judging().await;
    world.append(fleet()).await;
    *world.parts.clusters.lock().unwrap() = vec![clusters::east_with(&["node-07"])];
    let document = world.ok("/openapi.json").await;
    for (path, item) in document["paths"].as_object().unwrap() {
        if path == "/api/v1/stream" {
            continue;
        }
        let examples = [
            ("{id}", "GPU-a"),
            ("{hostname}", "sim-node-01"),
            ("{cluster}", "east"),
            ("{node}", "node-07"),
            ("{name}", "node"),
        ];
        let filled = examples.iter().fold(path.clone(), |path, (name, value)| path.replace(name, value));
        let Some(get) = item.get("get") else { continue };
        let parameters = get["parameters"].as_array().cloned().unwrap_or_default();
        let given: Vec<String> = parameters
            .iter()
            // `bottom` excludes `top`.
            .filter(|parameter| parameter["in"] == "query" && parameter["name"] != "bottom")
            .map(|parameter| {
                let name = parameter["name"].as_str().unwrap();
                let example = match name {
                    "gpus" => json!("GPU-a"),
                    "finding" => json!("xid:GPU-c"),
                    _ => parameter.get("example").cloned().unwrap_or(parameter["schema"]["default"].clone()),
                };
                // Of a list one entry.
                let example = example.get(0).cloned().unwrap_or(example);
                let text =
                    example.as_str().map_or_else(|| example.to_string(), |text| text.replace(' ', "%20"));
                assert!(example != Value::Null, "{path}: {name} has no example");
                format!("{name}={text}")
            })
            .collect();
        let answer = world.get(&format!("{filled}?{}", given.join("&"))).await;
        // No GPU is held here, which is said after the parameters are understood.
        let status = if path == "/api/v1/jobs/{id}" { 404 } else { 200 };
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_stopped_gateway_has_answered_and_accepts_no_more() {
    let world = World::new().await;
    world.ok("/health").await;
    world.shutdown.cancel();
    world.served.await.unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(world.address).await.is_err());
}

#[tokio::test]
async fn a_client_that_hangs_does_not_hold_up_the_end() {
    let world = World::empty(|api, _| api.limits.drain = Duration::from_millis(20)).await;
    let mut hangs = tokio::net::TcpStream::connect(world.address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut hangs, b"GET /health HTT").await.unwrap();
    world.ok("/health").await;
    world.shutdown.cancel();
    world.served.await.unwrap().unwrap();
}

#[tokio::test]
async fn who_has_an_answer_gets_no_second_one() {
    let world = World::new().await;
    let path = "/api/v1/gpus?include=metrics";
    let answer = world.get(path).await;
    let tag = answer.header("etag").unwrap().to_owned();
    for tags in [tag.clone(), format!("\"other\", W/{tag}"), "*".to_owned()] {
        let again = request(world.address, "GET", path, &format!("if-none-match: {tags}\r\n")).await;
        assert_eq!(
            (again.status, again.body.len(), again.header("etag")),
            (304, 0, Some(tag.as_str())),
            "{tags}"
        );
    }
    let packed = format!("if-none-match: {tag}\r\naccept-encoding: zstd\r\n");
    let packed = request(world.address, "GET", path, &packed).await;
    assert_eq!((packed.status, packed.header("content-encoding")), (200, Some("zstd")), "other bytes");
    assert_eq!(zstd::decode_all(packed.body.as_slice()).unwrap(), answer.body);
    world
        .append(rows(&[(gpu("GPU-b", "sim-node-01", 10, "NVIDIA H100 80GB HBM3"), 0, &[("power_w", 99.0)])]))
        .await;
    let changed = request(world.address, "GET", path, &format!("if-none-match: {tag}\r\n")).await;
    assert_eq!(changed.status, 200);
}
