//! A broker, two collectors and a gateway, one of which is frozen, killed or cut off in turn.

use std::time::Duration;

use gpuvitals_rig::port::Port;
use serde_json::Value;
use tokio::time::Instant;

use crate::site::{Gateway, SECONDS, Said, recording, start};
use crate::wire::Wire;

/// From the beginning of the trouble until everybody is told: five seconds, and as much again for a machine with other work.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);
const LIST: &str = "/api/v1/gpus";
const ROWS: &str = "/api/v1/telemetry?limit=1";

fn is_well(said: &Said) -> bool {
    said.json["status"] == "healthy"
}

/// What `/health` and answers say of a collector that is away, and how soon.
fn check_away(gateway: &Gateway, port: &str, how: &str, make: impl FnOnce()) {
    let name = format!("127.0.0.1:{port}");
    let is_named = |said: &Said| said.partial.as_ref().is_some_and(|words| words.contains(&name));
    let began = Instant::now();
    make();
    let told = gateway.until("/health", how, |said| said.json["collector"]["status"] == "degraded");
    let list = gateway.until(LIST, how, is_named);
    let rows = gateway.until(ROWS, how, is_named);
    let took = began.elapsed();
    assert!(took < NOTICED_WITHIN, "{how}: after {took:?}: {told:?} {list:?} {rows:?}");
    assert!(told.json["collector"]["reason"].as_str().unwrap().contains(&name), "{told:?}");
    let of = |said: &Said| -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let each = said.json["collectors"].as_array().unwrap().iter();
        each.map(|one| (text(&one["name"]), text(&one["status"]))).collect()
    };
    assert!(of(&told).contains(&(name.clone(), "degraded".to_owned())), "{told:?}");
    assert!(of(&told).iter().any(|(_, status)| status == "healthy"), "the other is well: {told:?}");
    assert_eq!((list.status, rows.status), (200, 200));
    // A collector that is known to be away delays no answer.
    let began = Instant::now();
    assert!(is_named(&gateway.ask("/api/v1/telemetry?limit=2")));
    assert!(began.elapsed() < Duration::from_secs(2), "{how}: {:?}", began.elapsed());
    eprintln!("{how}: told after {took:.1?}: {}", told.json["collector"]["reason"]);
}

fn whole_again(gateway: &Gateway, what: &str) {
    gateway.until("/health", what, is_well);
    gateway.until(ROWS, what, |said| said.json["total"] == 4 * SECONDS && said.partial.is_none());
}

#[test]
fn a_piece_that_is_frozen_killed_or_cut_off_is_named_soon_and_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (queue, one, other) = (Port::new(), Port::new(), Port::new());
    let open_queue = || {
        let broker = start(&["broker", "--port", &queue, "--persistence-path", &at("mq")]);
        broker.says("queue: http");
        broker
    };
    let broker = open_queue();
    let collect = |api: &str, data: &str| {
        let collector =
            start(&["collect", "--api-port", api, "--broker-port", &queue, "--data-dir", &at(data)]);
        collector.says("collector API");
        collector
    };
    let (a, b) = (collect(&one, "a"), collect(&other, "b"));
    let wire = Wire::to(&other);
    let url = format!("http://127.0.0.1:{queue}");
    let names = format!("http://127.0.0.1:{one},http://127.0.0.1:{}", wire.port);
    let gateway = Gateway::of(start(&["serve", "--port", "0", "--collectors", &names, "--mq-url", &url]));
    let file = recording(folder.path());
    let streamer =
        ["stream", "--csv", &file, "--once", "--rate", "2000", "--batch-size", "8", "--mq-url", &url];
    assert_eq!(start(&streamer).ended().0, Some(0));
    whole_again(&gateway, "all rows");

    check_away(&gateway, &one, "a frozen collector", || a.signal("STOP"));
    a.signal("CONT");
    whole_again(&gateway, "the collector that goes on");

    check_away(&gateway, &one, "a killed collector", || a.kill());
    let a = collect(&one, "a");
    whole_again(&gateway, "the collector that was started again");

    check_away(&gateway, &wire.port.to_string(), "a collector that is cut off", || wire.cut());
    wire.mend();
    whole_again(&gateway, "the collector that is reached again");

    // Rows stay whole while the queue is away.
    let queue_is_away = |how: &str, make: &dyn Fn()| {
        let began = Instant::now();
        make();
        let told = gateway.until("/health", how, |said| said.json["queue"]["status"] == "degraded");
        assert!(began.elapsed() < NOTICED_WITHIN, "{how}: {told:?}");
        let named = gateway.until("/health", how, |said| said.json["collector"]["status"] == "degraded");
        assert!(named.json["collector"]["reason"].as_str().unwrap().contains("127.0.0.1"), "{named:?}");
        assert_eq!(gateway.get(ROWS)["total"], 4 * SECONDS);
        assert_eq!(gateway.ask("/stats").json["topics"], Value::Null);
        eprintln!("{how}: {}; {}", told.json["queue"]["reason"], named.json["collector"]["reason"]);
    };
    queue_is_away("a frozen queue", &|| broker.signal("STOP"));
    broker.signal("CONT");
    whole_again(&gateway, "the queue that goes on");
    broker.kill();
    queue_is_away("a killed queue", &|| ());
    let broker = open_queue();
    whole_again(&gateway, "the queue that was started again");
    for process in [gateway.process, a, b, broker] {
        let (code, said) = process.terminated();
        assert_eq!(code, Some(0), "{said}");
    }
}
