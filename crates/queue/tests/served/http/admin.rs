//! What the queue says about itself.

use std::process::{Command, Stdio};

use axum::http::Method;
use gpuvitals_core::time;
use gpuvitals_listener::{Access, Listener, PortKind, TokenScope, Tokens, WebOrigin};
use gpuvitals_queue::server::{HttpLimits, ServerConfig, scope};
use gpuvitals_queue::{Consumer as _, ConsumerOptions, QueueConfig};
use gpuvitals_rig::waiting;
use gpuvitals_settings::{Section, Typed as _};
use serde_json::{Value, json};

use super::client::{JSON, LINES, ask, get, post};
use super::world::{World, array, message, messages};

fn keys(of: &Value) -> Vec<&str> {
    of.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test]
async fn health_stats_and_topics_have_the_shape_that_others_rely_on() {
    let world = World::new();
    assert_eq!(get(world.at, "/topics").await.json(), json!({"topics": []}));
    post(world.at, "/publish/gpu-telemetry", &[LINES], messages(30, "\n").as_bytes()).await;
    let mut consumer =
        world.queue.subscribe("gpu-telemetry", "collector", &ConsumerOptions::default()).await.unwrap();
    let delivery = consumer.receive().await.unwrap().remove(0);
    consumer.ack(&[delivery.id]).await.unwrap();
    post(world.at, "/publish/gpu-telemetry", &[JSON], array(2).as_bytes()).await;

    let health = get(world.at, "/health").await;
    assert_eq!((health.status, &health.json()["status"]), (200, &json!("healthy")));
    let timestamp = health.json()["timestamp"].as_str().unwrap().to_owned();
    assert!(timestamp.ends_with('Z') && time::parse(&timestamp).unwrap() > 1_700_000_000_000_000_000);
    assert_eq!(keys(&health.json()), ["status", "timestamp"]);

    let stats = get(world.at, "/stats").await.json();
    assert_eq!(keys(&stats), ["topics", "total_processed", "uptime_seconds"]);
    assert_eq!(stats["total_processed"], 30);
    assert!(stats["uptime_seconds"].is_u64());
    let topic = &stats["topics"]["gpu-telemetry"];
    assert_eq!((&topic["messages"], &topic["subscribers"]), (&json!(2), &json!(1)));
    assert!(topic["throughput_msg_per_sec"].is_f64());
    assert_eq!(topic["groups"]["collector"]["lag"], 2);
    assert!(topic["groups"]["collector"]["oldest_unacked_seconds"].is_u64());

    let one = get(world.at, "/stats/gpu-telemetry").await.json();
    assert_eq!(keys(&one), keys(topic));
    assert_eq!(get(world.at, "/topics").await.json(), json!({"topics": ["gpu-telemetry"]}));
    let groups = get(world.at, "/topics/gpu-telemetry/groups").await.json();
    assert_eq!(groups["groups"]["collector"]["members"], 1);
}

#[tokio::test]
async fn a_queue_that_takes_nothing_is_not_healthy() {
    let world = World::new();
    world.queue.shutdown().await;
    let answer = get(world.at, "/health").await;
    assert_eq!((answer.status, &answer.json()["status"]), (503, &json!("unhealthy")));
    assert!(!answer.json()["reason"].as_str().unwrap().is_empty());
}

#[tokio::test]
async fn a_group_can_be_ended() {
    let world = World::new();
    world.queue.subscribe("t", "g", &ConsumerOptions::default()).await.unwrap().leave().await;
    assert_eq!(ask(world.at, "DELETE", "/topics/t/groups/g", &[], &[]).await.status, 204);
    ask(world.at, "DELETE", "/topics/t/groups/g", &[], &[]).await.refused(404, "unknown_group");
    ask(world.at, "DELETE", "/topics/x/groups/g", &[], &[]).await.refused(404, "unknown_topic");
}

#[tokio::test]
async fn what_is_not_there_says_where_to_look() {
    let world = World::new();
    for path in ["/stats/x", "/topics/x/groups", "/topics/x/dead"] {
        assert!(get(world.at, path).await.refused(404, "unknown_topic").contains("GET /topics"));
    }
    assert!(get(world.at, "/x?token=secret").await.refused(404, "not_found").contains("\"/x\""));
    assert!(get(world.at, "/publish/t").await.refused(405, "method_not_allowed").contains("GET"));
    let index = get(world.at, "/").await.json();
    assert_eq!(index["paths"].as_array().unwrap().len(), 13);
    assert_eq!(get(world.at, "/").await.header("x-content-type-options"), Some("nosniff"));
}

#[test]
fn every_path_needs_the_scope_that_fits_it() {
    for (method, path, needed) in [
        (Method::DELETE, "/health", TokenScope::Admin),
        (Method::GET, "/", TokenScope::Read),
        (Method::GET, "/metrics", TokenScope::Read),
        (Method::HEAD, "/stats/t", TokenScope::Read),
        (Method::GET, "/topics/t/dead", TokenScope::Subscribe),
        (Method::GET, "/topics/t/groups", TokenScope::Read),
        (Method::GET, "/topics", TokenScope::Read),
        (Method::POST, "/publish/t", TokenScope::Publish),
        (Method::POST, "/gpuvitals.queue.v1.Queue/Publish", TokenScope::Publish),
        (Method::POST, "/gpuvitals.queue.v1.Queue/PublishStream", TokenScope::Publish),
        (Method::POST, "/gpuvitals.queue.v1.Queue/Subscribe", TokenScope::Subscribe),
        (Method::POST, "/gpuvitals.queue.v1.Queue/Other", TokenScope::Admin),
        (Method::GET, "/health/x", TokenScope::Read),
        (Method::DELETE, "/topics/t/dead", TokenScope::Admin),
        (Method::POST, "/topics/t/dead/replay", TokenScope::Admin),
        (Method::DELETE, "/topics/t/groups/g", TokenScope::Admin),
        (Method::OPTIONS, "/anything", TokenScope::Admin),
    ] {
        assert_eq!(scope(&method, path), needed, "{method} {path}");
    }
}

#[tokio::test]
async fn where_tokens_are_known_only_health_is_for_everybody() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens");
    let token = |scope: TokenScope| {
        let token = Tokens::create(&file, scope.as_str(), &[scope], "now".to_owned()).unwrap();
        format!("Bearer {token}")
    };
    let (publisher, admin) = (token(TokenScope::Publish), token(TokenScope::Admin));
    let named = ("listener.token_file", file.display().to_string().into());
    let settings = Listener::of(&[named, ("listener.guard_metrics", true.into())]).unwrap();
    let access = Access::load(&settings, PortKind::Service).unwrap();
    let server = ServerConfig { access, ..ServerConfig::default() };
    let world = World::serving(QueueConfig::default(), "127.0.0.1:0".parse().unwrap(), server);
    for path in ["/health", "/healthz", "/readyz"] {
        assert_eq!(get(world.at, path).await.status, 200, "{path}");
    }
    for path in ["/", "/metrics", "/stats", "/topics", "/nothing"] {
        get(world.at, path).await.refused(401, "unauthorized");
    }
    let (p, a) = (("authorization", &*publisher), ("authorization", &*admin));
    post(world.at, "/publish/t", &[JSON], message(0).as_bytes()).await.refused(401, "unauthorized");
    assert_eq!(post(world.at, "/publish/t", &[JSON, p], message(0).as_bytes()).await.status, 200);
    ask(world.at, "DELETE", "/topics/t/dead", &[p], b"").await.refused(403, "forbidden");
    assert_eq!(ask(world.at, "DELETE", "/topics/t/dead", &[a], b"").await.status, 200);
}

fn listening(settings: &[(&str, Value)]) -> ServerConfig {
    let access = Access::load(&Listener::of(settings).unwrap(), PortKind::Service).unwrap();
    ServerConfig { access, ..ServerConfig::default() }
}

#[tokio::test]
async fn a_client_sends_so_many_requests_a_second_and_probes_as_it_likes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens");
    let token = Tokens::create(&file, "all", &[TokenScope::Admin], "now".to_owned()).unwrap();
    let token = format!("Bearer {token}");
    let server = listening(&[
        ("listener.token_file", file.display().to_string().into()),
        ("listener.request_rate", "0.001".into()),
        ("listener.request_burst", 2.into()),
    ]);
    let world = World::serving(QueueConfig::default(), "127.0.0.1:0".parse().unwrap(), server);
    let asked = async |token: &str| ask(world.at, "GET", "/topics", &[("authorization", token)], b"").await;
    // Requests of a token that is not known count for their address, and do not hold up those of one that is.
    for status in [401, 401, 429] {
        assert_eq!(asked("Bearer wrong").await.status, status);
    }
    for _ in 0..2 {
        assert_eq!(asked(&token).await.status, 200);
    }
    let refused = asked(&token).await;
    assert!(refused.refused(429, "too_many_requests").contains("request_rate"));
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((900..=1_000).contains(&wait), "{wait}");
    for _ in 0..5 {
        assert_eq!(get(world.at, "/health").await.status, 200);
    }
    let figures =
        gpuvitals_core::figures::render(&gpuvitals_queue::server::families(&world.queue, &world.meter));
    let figures = String::from_utf8(figures).unwrap();
    assert!(figures.contains("\ngpuvitals_queue_requests_limited_total 2\n"), "{figures}");
}

#[tokio::test]
async fn pages_of_configured_origins_may_manage_the_queue_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens");
    let token = Tokens::create(&file, "all", &[TokenScope::Admin], "now".to_owned()).unwrap();
    let token = ("authorization", &*format!("Bearer {token}"));
    let origins = vec![WebOrigin::read(&"https://ops.example".into()).unwrap()];
    let server =
        ServerConfig { origins, ..listening(&[("listener.token_file", file.display().to_string().into())]) };
    let world = World::serving(QueueConfig::default(), "127.0.0.1:0".parse().unwrap(), server);
    post(world.at, "/publish/t", &[JSON, token], message(0).as_bytes()).await;
    let (friend, stranger) = (("origin", "https://ops.example"), ("origin", "https://evil.example"));
    // A browser asks first, without the token.
    let asked = [
        friend,
        ("access-control-request-method", "DELETE"),
        ("access-control-request-headers", "authorization"),
    ];
    let preflight = ask(world.at, "OPTIONS", "/topics/t/dead", &asked, b"").await;
    assert_eq!(preflight.status, 200);
    assert_eq!(preflight.header("access-control-allow-origin"), Some("https://ops.example"));
    assert!(preflight.header("access-control-allow-methods").unwrap().contains("DELETE"));
    let purged = ask(world.at, "DELETE", "/topics/t/dead", &[friend, token], b"").await;
    assert_eq!(
        (purged.status, purged.header("access-control-allow-origin")),
        (200, Some("https://ops.example"))
    );
    // The page sees why it is refused.
    let denied = ask(world.at, "DELETE", "/topics/t/dead", &[friend], b"").await;
    denied.refused(401, "unauthorized");
    assert_eq!(denied.header("access-control-allow-origin"), Some("https://ops.example"));
    // Of any other page nothing is changed, even if its browser has the login.
    let refused = ask(world.at, "DELETE", "/topics/t/dead", &[stranger, token], b"").await;
    assert!(refused.refused(403, "forbidden").contains("evil.example"));
    assert_eq!(refused.header("access-control-allow-origin"), None);
    let read = ask(world.at, "GET", "/topics", &[stranger, token], b"").await;
    assert_eq!((read.status, read.header("access-control-allow-origin")), (200, None));
}

#[tokio::test]
async fn the_figures_are_what_happened_and_promtool_has_nothing_to_say() {
    let config = QueueConfig { max_messages: 300, ..QueueConfig::default() };
    let world = World::with(config, HttpLimits::default());
    let mut consumer = world.queue.subscribe("a", "g", &ConsumerOptions::default()).await.unwrap();
    post(world.at, "/publish/a", &[LINES], messages(200, "\n").as_bytes()).await;
    post(world.at, "/publish/a", &[LINES], messages(200, "\n").as_bytes()).await.refused(429, "full");
    let stamp = [JSON, ("x-gpuvitals-producer", "p"), ("x-gpuvitals-sequence", "0")];
    for _ in 0..2 {
        post(world.at, "/publish/b-1.x", &stamp, message(0).as_bytes()).await;
    }
    let deliveries = consumer.receive().await.unwrap();
    let answer = get(world.at, "/metrics").await;
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for line in [
        "gpuvitals_queue_messages{topic=\"a\"} 200",
        "gpuvitals_queue_published_messages_total{topic=\"a\"} 200",
        "gpuvitals_queue_refused_messages_total{topic=\"a\"} 200",
        "gpuvitals_queue_duplicate_messages_total{topic=\"b-1.x\"} 1",
        "gpuvitals_queue_group_lag_messages{topic=\"a\",group=\"g\"} 200",
        "gpuvitals_queue_group_in_flight_messages{topic=\"a\",group=\"g\"} 200",
        "gpuvitals_queue_publish_duration_seconds_count{protocol=\"http\"} 4",
        "gpuvitals_queue_publish_duration_seconds_bucket{protocol=\"http\",le=\"+Inf\"} 4",
        "gpuvitals_queue_topics 2",
        "gpuvitals_queue_connections 1",
        "gpuvitals_queue_requests_total{route=\"/publish/{topic}\",status=\"200\"} 3",
        "gpuvitals_queue_requests_total{route=\"/publish/{topic}\",status=\"429\"} 1",
    ] {
        assert!(answer.text.lines().any(|found| found == line), "{line} is not in {}", answer.text);
    }
    assert_eq!(deliveries.len(), 1);
    assert!(!answer.text.contains("disk_free"), "it is in memory");
    promtool(&answer.text);
}

fn promtool(text: &str) {
    use std::io::Write as _;
    let started = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut tool = started.expect("promtool runs; scripts/need promtool installs it");
    tool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = waiting::outcome(tool);
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}
