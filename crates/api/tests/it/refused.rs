//! Refused requests, and their messages.

use serde_json::json;

use crate::client::request;
use crate::world::World;

/// Path, status, code, parts of the message.
const REFUSED: &[(&str, u16, &str, &[&str])] = &[
    ("/api/v1/gpus?limit=many", 400, "bad_parameter", &["limit", "\"many\"", "1 to 10000"]),
    ("/api/v1/gpus?limit=0", 400, "bad_parameter", &["limit", "1 to 10000"]),
    ("/api/v1/gpus?limit=10001", 400, "bad_parameter", &["limit", "1 to 10000"]),
    ("/api/v1/gpus?limit=-1", 400, "bad_parameter", &["limit"]),
    ("/api/v1/gpus?offset=-1", 400, "bad_parameter", &["offset"]),
    ("/api/v1/gpus?offset=9007199254740992", 400, "bad_parameter", &["offset", "0 to 9007199254740991"]),
    ("/api/v1/hosts?offset=18446744073709551615", 400, "bad_parameter", &["offset"]),
    ("/api/v1/gpus?limit=", 400, "bad_parameter", &["limit", "1 to 10000"]),
    ("/api/v1/gpus?limit=%2B5", 400, "bad_parameter", &["limit", "1 to 10000"]),
    ("/api/v1/hosts?offset=", 400, "bad_parameter", &["offset"]),
    ("/api/v1/telemetry?reverse=", 400, "bad_parameter", &["reverse", "true or false"]),
    ("/api/v1/telemetry?reverse=1", 400, "bad_parameter", &["reverse", "true or false"]),
    ("/api/v1/stream?metrics=nosuch", 400, "bad_parameter", &["nosuch", "a metric of GPUs"]),
    ("/api/v1/stream?metrics=room_c,powr_w", 400, "bad_parameter", &["did you mean power_w?"]),
    ("/api/v1/telemetry?metrics=nosuch", 400, "bad_parameter", &["nosuch", "a metric of GPUs"]),
    ("/api/v1/gpus?state=happy", 400, "bad_parameter", &["state", "happy", "unhealthy"]),
    ("/api/v1/gpus?sort=height", 400, "bad_parameter", &["sort", "height", "last_seen", "metric"]),
    ("/api/v1/gpus?include=all", 400, "bad_parameter", &["include", "metrics"]),
    ("/api/v1/gpus?colour=red", 400, "bad_parameter", &["colour", "limit", "search"]),
    ("/api/v1/gpus?limit=1&limit=2", 400, "bad_parameter", &["limit", "duplicate"]),
    ("/api/v1/gpus/GPU-a?x=1", 400, "bad_parameter", &["x"]),
    ("/api/v1/gpus/GPU-z", 404, "unknown_gpu", &["GPU-z", "/api/v1/gpus"]),
    ("/api/v1/gpus/..%2F..%2Fetc%2Fpasswd", 404, "unknown_gpu", &["etc/passwd"]),
    ("/api/v1/gpus/%FF", 400, "bad_parameter", &["UTF-8"]),
    ("/api/v1/gpus/GPU-z/telemetry", 404, "unknown_gpu", &["GPU-z"]),
    ("/api/v1/gpus/GPU-a/telemetry?start_time=yesterday", 400, "bad_parameter", &["start_time", "RFC 3339"]),
    ("/api/v1/gpus/GPU-a/telemetry?start_time=%C2%A0", 400, "bad_parameter", &["start_time", "RFC 3339"]),
    ("/api/v1/gpus/GPU-a/telemetry?start_time=%20", 400, "bad_parameter", &["start_time", "RFC 3339"]),
    ("/api/v1/gpus?state=%09idle", 400, "bad_parameter", &["state"]),
    ("/api/v1/gpus/GPU-a/telemetry?start_time=20&end_time=10", 400, "bad_parameter", &["end"]),
    ("/api/v1/gpus/GPU-a/telemetry?reverse=perhaps", 400, "bad_parameter", &["reverse", "true or false"]),
    ("/api/v1/gpus/GPU-a/telemetry?metrics=node", 400, "bad_parameter", &["metrics", "node"]),
    ("/api/v1/gpus/GPU-a/telemetry?gpus=GPU-b", 400, "bad_parameter", &["gpus"]),
    ("/api/v1/telemetry?gpus=GPU-a,GPU-z", 404, "unknown_gpu", &["GPU-z"]),
    ("/api/v1/hosts?limit=x", 400, "bad_parameter", &["limit"]),
    ("/api/v1/hosts/nowhere/gpus", 404, "unknown_host", &["nowhere", "/api/v1/hosts"]),
    ("/api/v1/query?metrics=power_w&hosts=sim-node-01,nowhere", 404, "unknown_host", &["\"nowhere\""]),
    (
        "/api/v1/query?table=system_events&metrics=cpu_pct&hosts=nowhere",
        404,
        "unknown_host",
        &["\"nowhere\""],
    ),
    ("/api/v1/telemetry?table=system_events&gpus=nowhere", 404, "unknown_host", &["\"nowhere\""]),
    ("/api/v1/analysis/energy?host=sim-node-01,nowhere", 404, "unknown_host", &["\"nowhere\""]),
    ("/api/v1/analysis/energy?gpus=GPU-a,GPU-z", 404, "unknown_gpu", &["GPU-z"]),
    ("/api/v1/analysis/idle?host=nowhere", 404, "unknown_host", &["\"nowhere\""]),
    ("/api/v1/analysis/findings?host=nowhere", 404, "unknown_host", &["\"nowhere\""]),
    ("/api/v1/analysis/changes?host=nowhere", 404, "unknown_host", &["\"nowhere\""]),
    ("/api/v1/analysis/usage?where=node=nowhere", 404, "unknown_host", &["\"nowhere\""]),
    ("/api/v1/gpus?host=sim-node", 404, "unknown_host", &["\"sim-node\"", "/api/v1/hosts"]),
    ("/api/v1/gpus?host=sim-node-01,nowhere", 404, "unknown_host", &["\"nowhere\""]),
    ("/api/v1/gpus?where=node=nowhere", 404, "unknown_host", &["\"nowhere\""]),
    ("/api/v1/query?metrics=power_w&where=node=nowhere", 404, "unknown_host", &["\"nowhere\""]),
    ("/api/v1/telemetry?where=node=nowhere", 404, "unknown_host", &["\"nowhere\""]),
    ("/api/v1/telemetry?table=gpu_health_events&where=node=nowhere", 404, "unknown_host", &["\"nowhere\""]),
    ("/api/v1/telemetry?table=system_events&where=node=nowhere", 404, "unknown_host", &["\"nowhere\""]),
    ("/api/v1/metrics?x=y", 400, "bad_parameter", &["x"]),
    ("/api/v1/query", 400, "bad_parameter", &["metrics", "missing"]),
    ("/api/v1/query?metrics=,", 400, "bad_parameter", &["metrics", "missing"]),
    ("/api/v1/query?metrics=powr_w", 400, "bad_parameter", &["powr_w", "did you mean power_w?"]),
    ("/api/v1/query?metrics=cpu_pct", 400, "bad_parameter", &["cpu_pct", "GPUs"]),
    ("/api/v1/query?metrics=power_w&step=0s", 400, "bad_parameter", &["step", "1ms"]),
    ("/api/v1/query?metrics=power_w&step=week", 400, "bad_parameter", &["step", "10s"]),
    ("/api/v1/query?metrics=power_w&aggregate=sum", 400, "bad_parameter", &["aggregate", "p99"]),
    ("/api/v1/query?metrics=power_w&group_by=rack", 400, "bad_parameter", &["group_by", "rack", "pod"]),
    ("/api/v1/query?metrics=power_w&group_by=all,pod", 400, "bad_parameter", &["group_by", "alone"]),
    ("/api/v1/query?metrics=power_w&top=0", 400, "bad_parameter", &["top", "1 to 10000"]),
    ("/api/v1/query?metrics=power_w&top=1&bottom=1", 400, "bad_parameter", &["bottom", "not both"]),
    (
        "/api/v1/query?metrics=power_w&where=pod",
        400,
        "bad_parameter",
        &["where", "column=value", "namespace"],
    ),
    ("/api/v1/query?metrics=power_w&where=rack=7", 400, "bad_parameter", &["where", "rack=7", "namespace"]),
    ("/api/v1/query?metrics=power_w&where=pod!", 400, "bad_parameter", &["where", "column!=value"]),
    (
        "/api/v1/query?metrics=power_w&where=pod=~(",
        400,
        "bad_parameter",
        &["where", "regular expression", "unclosed"],
    ),
    ("/api/v1/telemetry?where=job=~(", 400, "bad_parameter", &["where", "regular expression"]),
    ("/api/v1/telemetry?after=7", 400, "bad_parameter", &["after", "next"]),
    ("/api/v1/gpus/GPU-a/telemetry?after=7_zz", 400, "bad_parameter", &["after", "next"]),
    ("/api/v1/query?metrics=power_w&start=20&end=10", 400, "bad_parameter", &["end"]),
    ("/api/v1/query?metrics=power_w&gpus=GPU-z", 404, "unknown_gpu", &["GPU-z"]),
    ("/api/v1/query?metrics=power_w&step=1ms", 400, "too_large", &["11000", "larger step"]),
    ("/api/v1/stream?gpus=GPU-a&speed=9", 400, "bad_parameter", &["speed"]),
    ("/api/v1/nothing", 404, "not_found", &["/api/v1/nothing", "/docs"]),
    ("/api", 404, "not_found", &["/api"]),
    ("/docs/secret", 404, "not_found", &["/docs/secret"]),
    ("/nope", 404, "not_found", &["/nope", "/docs"]),
];

#[tokio::test]
async fn a_refusal_names_what_is_wrong_and_what_is_allowed() {
    let world = World::new().await;
    let many = vec!["x"; 65].iter().enumerate().map(|(n, x)| format!("{x}{n}")).collect::<Vec<_>>().join(",");
    let many = format!("/api/v1/query?metrics={many}");
    let too_many: (&str, u16, &str, &[&str]) = (&many, 400, "bad_parameter", &["metrics", "64"]);
    for (path, status, code, words) in REFUSED.iter().chain([&too_many]) {
        let answer = world.get(path).await;
        let body = answer.json();
        assert_eq!(answer.status, *status, "{path}: {body}");
        assert_eq!(answer.header("content-type"), Some("application/json"), "{path}");
        assert_eq!(body["code"], json!(code), "{path}: {body}");
        assert_eq!(body["error"], if *status == 404 { "not found" } else { "bad request" }, "{path}");
        let message = body["message"].as_str().unwrap();
        for word in *words {
            assert!(message.contains(word), "{path}: {message:?} does not say {word:?}");
        }
        assert_eq!(body.as_object().unwrap().len(), 3, "{path}");
    }
}

#[tokio::test]
async fn a_query_that_is_too_large_is_refused_before_it_is_made() {
    let world = World::empty(|api, _| api.limits.values_max = 1_000).await;
    world.append(crate::world::fleet()).await;
    let path = "/api/v1/query?metrics=power_w,utilization_pct&step=10s&aggregate=min,max";
    let body = world.get(path).await.json();
    assert_eq!(body["code"], "too_large");
    let message = body["message"].as_str().unwrap();
    assert!(message.contains("361 steps × 20 series"), "{message}");
    assert!(message.contains("group_by"), "{message}");
    assert_eq!(
        world.get(&format!("{path}&group_by=all&hosts=sim-node-02")).await.json()["code"],
        "too_large"
    );
    world.ok("/api/v1/query?metrics=power_w&step=10s&group_by=all").await;
}

#[tokio::test]
async fn other_methods_are_refused() {
    let world = World::new().await;
    for path in ["/api/v1/gpus", "/health", "/stats", "/docs", "/", "/gpus/GPU-a", "/assets/x.js"] {
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            let answer = request(world.address, method, path, "content-length: 0\r\n").await;
            assert_eq!(answer.status, 405, "{method} {path}");
            assert_eq!(answer.json()["code"], "method_not_allowed", "{method} {path}");
            assert_eq!(answer.header("allow"), Some("GET, HEAD"), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_large_body_is_refused_unread() {
    let world = World::new().await;
    let answer = request(world.address, "POST", "/api/v1/gpus", "content-length: 1000000\r\n").await;
    assert_eq!((answer.status, &answer.json()["code"]), (413, &json!("body_too_large")));
}
