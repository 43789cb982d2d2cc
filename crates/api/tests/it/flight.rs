//! Incidents of whole jobs: a node tells, all nodes are asked, and what they send is read.

use gpuvitals_core::batch::Value as Number;
use gpuvitals_core::time::{self, SECOND_NS};
use gpuvitals_core::wire::pack;
use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::analysis::{H100, judging};
use crate::client::{Answer, Events, request, soon};
use crate::world::{Row, World, gpu, now_ns, rows};

const REQUESTS: &str = "/api/v1/flight/requests";
const INCIDENTS: &str = "/api/v1/flight/incidents";

/// A GPU that a job holds.
fn held(uuid: &str, node: &str, job: &str) -> Identity {
    let texts =
        [(IdentityColumn::Cluster, "a"), (IdentityColumn::Namespace, "research"), (IdentityColumn::Job, job)];
    let free = gpu(uuid, node, 0, H100);
    texts.into_iter().fold(free, |gpu, (column, text)| gpu.with(column, text).unwrap())
}

/// Two nodes of job `a/research/train-7`, one of another job, and a GPU of `n1` whose rows lack the job.
async fn fleet() -> World {
    let busy: &[(&str, f64)] = &[("power_w", 400.0)];
    let world = World::empty(|_, _| ()).await;
    let fleet: [Row<'_>; 5] = [
        (held("GPU-1", "n1", "train-7"), 50, busy),
        (held("GPU-2", "n2", "train-7"), 50, busy),
        (held("GPU-3", "n3", "train-8"), 50, busy),
        (gpu("GPU-4", "n1", 1, H100).with(IdentityColumn::Cluster, "a").unwrap(), 50, busy),
        // It had the job an hour ago.
        (held("GPU-5", "n5", "train-7"), 3_600, busy),
    ];
    world.append(rows(&fleet)).await;
    world
}

async fn post(world: &World, body: &str) -> Answer {
    let headers = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
    request(world.address, "POST", REQUESTS, &format!("{headers}\r\n{body}")).await
}

/// What a node tells of a GPU, forty seconds ago.
fn told(node: &str, incident: &str, gpu: &str) -> Value {
    let trigger = json!({
        "kind": "lost", "gpu": gpu, "code": null, "detail": "it reports nothing any more", "rule": null,
        "at_ns": now_ns() - 40 * SECOND_NS
    });
    json!({"node": node, "incident": incident, "trigger": trigger})
}

/// The id that a node gets for what it tells.
async fn tell(world: &World, told: Value) -> Value {
    let answer = post(world, &told.to_string()).await;
    assert_eq!(answer.status, 200, "{told}: {}", answer.text());
    answer.json()["id"].clone()
}

/// Sends rows in chunks, as of a body whose length nobody knows before.
async fn send(world: &World, path: &str, bytes: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    let head = format!("{head}content-type: application/octet-stream\r\ntransfer-encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    for chunk in bytes.chunks(60_000) {
        stream.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).await.unwrap();
        stream.write_all(chunk).await.unwrap();
        stream.write_all(b"\r\n").await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    all_of(stream).await
}

/// What is at a path, by HTTP/1.0, so that the body comes as it is.
async fn plain(world: &World, path: &str) -> Answer {
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let head = format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    all_of(stream).await
}

async fn all_of(mut stream: TcpStream) -> Answer {
    let mut all = Vec::new();
    soon("an answer", stream.read_to_end(&mut all)).await.unwrap();
    Answer::of(&all)
}

/// A piece with rows of a GPU of `n1`, one of each second before now.
fn piece(uuid: &str, seconds: std::ops::Range<i64>) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let who = builder.intern(&gpu(uuid, "n1", 0, H100));
    for second in seconds {
        let row = builder.row_at(now_ns() - second * SECOND_NS, -second * SECOND_NS, who);
        builder.set(row, MetricId::of("power_w"), Number::Float(400.0)).unwrap();
    }
    let mut packed = Vec::new();
    pack(&builder.finish(Origin::default(), 1).unwrap(), &mut packed).unwrap();
    let mut piece = u32::try_from(packed.len()).unwrap().to_le_bytes().to_vec();
    piece.extend(packed);
    piece
}

#[tokio::test]
async fn all_nodes_of_a_job_are_asked_and_what_they_send_is_read() {
    let world = fleet().await;
    let mut streams = Vec::new();
    for node in ["a/n1", "a/n2", "a/n3", "a/n5"] {
        streams.push(Events::open(world.address, &format!("{REQUESTS}?node={node}")).await);
    }
    // The rows of the lost GPU lack the job.
    let id = tell(&world, told("a/n1", "own-1", "GPU-4")).await;
    let id = id.as_str().unwrap();
    assert_eq!(tell(&world, told("a/n2", "own-2", "GPU-2")).await, id, "of the same minute");
    let expected = json!({
        "id": id, "part": "window", "trigger": told("a/n1", "", "GPU-4")["trigger"], "by": "a/n1",
        "asked": {"from_ns": now_ns() - 100 * SECOND_NS, "to_ns": now_ns() - 10 * SECOND_NS},
        "sent_ns": now_ns()
    });
    for stream in &mut streams[..2] {
        assert_eq!(stream.event().await, Some(("request".to_owned(), expected.clone())));
        assert_eq!(stream.id.as_deref(), Some(format!("{id}/window").as_str()));
    }
    let of_n1 = format!("{INCIDENTS}/{id}/nodes/a%2Fn1");
    assert_eq!(world.get(&of_n1).await.json()["code"], "unknown_incident", "nothing was sent yet");
    let sent = [piece("GPU-1", 10..101), piece("GPU-4", 41..101)].concat();
    // The node is five seconds ahead, the way took two there and none back, and the node held it for four.
    let times = [0, 7, 11].map(|second| (now_ns() - 6 * SECOND_NS + second * SECOND_NS).to_string());
    let unreadable = format!("{of_n1}?times={},soon", times[0]);
    let unreadable = request(world.address, "POST", &unreadable, "").await;
    assert_eq!((unreadable.status, unreadable.json()["code"].as_str()), (400, Some("bad_parameter")));
    let answer = send(&world, &format!("{of_n1}?times={}", times.join(",")), &sent).await;
    assert_eq!((answer.status, answer.json()), (200, json!({"is_new": true})));
    let again = send(&world, &format!("{of_n1}?part=window&cut=true"), &piece("GPU-1", 50..51)).await;
    assert_eq!((again.status, again.json()), (200, json!({"is_new": false})));
    let read = plain(&world, &of_n1).await;
    assert_eq!(read.header("content-type"), Some("application/octet-stream"));
    assert_eq!(read.body, sent);

    let list = world.ok(INCIDENTS).await;
    assert_eq!(list["incidents"][0], world.ok(&format!("{INCIDENTS}/{id}")).await);
    let [incident] = &list["incidents"].as_array().unwrap()[..] else { panic!("{list}") };
    assert_eq!((&incident["job"], &incident["told"]), (&json!("a/research/train-7"), &json!(2)));
    let nodes: Vec<_> = incident["nodes"].as_array().unwrap().iter().map(|node| &node["node"]).collect();
    assert_eq!(nodes, ["a/n1", "a/n2"], "not that of another job, and not one of long ago");
    let window = &incident["nodes"][0]["window"];
    assert_eq!((&window["rows"], &window["is_cut"]), (&json!(151), &json!(false)));
    let clock = json!({"offset_ns": 6 * SECOND_NS, "error_ns": SECOND_NS + 1 + 60_000});
    assert_eq!((&incident["nodes"][0]["clock"], &incident["nodes"][1]["clock"]), (&clock, &Value::Null));
    assert_eq!(incident["offset"], "known of 1 of 2 nodes");
    assert_eq!((&incident["first"]["gpu"], &incident["first"]["node"]), (&json!("GPU-4"), &json!("a/n1")));

    // Who comes back gets what stands and nothing else; who stayed gets each once, in order.
    let rest = post(&world, &json!({"rest": id}).to_string()).await;
    assert_eq!((rest.status, rest.json()), (200, json!({"id": id})));
    world.set_time(now_ns() + 61 * SECOND_NS);
    let mut back =
        Events::resume(world.address, &format!("{REQUESTS}?node=a/n1"), &format!("{id}/window")).await;
    let (_, data) = back.event().await.unwrap();
    assert_eq!((&data["part"], &data["id"]), (&json!("rest"), &json!(id)));
    world.shutdown.cancel();
    assert_eq!(back.event().await, None, "the gateway stops");
}

#[tokio::test]
async fn an_answer_that_a_cut_connection_ends_is_asked_for_again_and_taken_once() {
    let world = fleet().await;
    let id = tell(&world, told("a/n1", "own-1", "GPU-1")).await;
    let id = id.as_str().unwrap();
    let (asks, path) = (format!("{REQUESTS}?node=a/n1"), format!("{INCIDENTS}/{id}/nodes/a%2Fn1"));
    let whole = piece("GPU-1", 10..101);
    for _ in 0..2 {
        // Each stream begins with what stands.
        let mut stream = Events::open(world.address, &asks).await;
        let (kind, data) = stream.event().await.unwrap();
        assert_eq!((kind.as_str(), &data["id"], &data["part"]), ("request", &json!(id), &json!("window")));
        drop(stream);
        let mut cut_off = TcpStream::connect(world.address).await.unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n");
        let head =
            format!("{head}content-type: application/octet-stream\r\ntransfer-encoding: chunked\r\n\r\n");
        cut_off.write_all(head.as_bytes()).await.unwrap();
        // The head of a chunk, and half of it.
        cut_off.write_all(format!("{:x}\r\n", whole.len()).as_bytes()).await.unwrap();
        cut_off.write_all(&whole[..whole.len() / 2]).await.unwrap();
        drop(cut_off);
    }
    let mut stream = Events::open(world.address, &asks).await;
    assert_eq!(stream.event().await.unwrap().1["id"], json!(id));
    // The gateway has it, and the node does not hear that: it sends it again.
    for is_new in [true, false] {
        let answer = send(&world, &path, &whole).await;
        assert_eq!((answer.status, answer.json()), (200, json!({"is_new": is_new})));
    }
    let incident = world.ok(&format!("{INCIDENTS}/{id}")).await;
    assert_eq!(incident["nodes"][0]["window"]["rows"], 91);
    assert_eq!(plain(&world, &path).await.body, whole, "each row once");
}

#[tokio::test]
async fn a_recording_of_the_same_name_on_another_host_is_not_asked() {
    let world = World::empty(|_, _| ()).await;
    let busy: &[(&str, f64)] = &[("power_w", 400.0)];
    let run = "run:telemetry";
    let fleet: [Row<'_>; 2] = [(held("GPU-1", "n1", run), 50, busy), (held("GPU-2", "n2", run), 50, busy)];
    world.append(rows(&fleet)).await;
    let id = tell(&world, told("a/n1", "own", "GPU-1")).await;
    let incident = world.ok(&format!("{INCIDENTS}/{}", id.as_str().unwrap())).await;
    let nodes: Vec<_> = incident["nodes"].as_array().unwrap().iter().map(|node| &node["node"]).collect();
    assert_eq!(nodes, ["a/n1"]);
}

#[tokio::test]
async fn what_nobody_knows_or_may_send_is_refused() {
    let world = fleet().await;
    assert_eq!(tell(&world, told("a/n9", "own", "GPU-9")).await, Value::Null, "no job is known there");
    assert_eq!(tell(&world, told("a/n5", "own", "GPU-5")).await, Value::Null, "it left long ago");
    assert_eq!(world.ok(INCIDENTS).await, json!({"incidents": []}));
    let id = tell(&world, told("a/n3", "own", "GPU-3")).await;
    let id = id.as_str().unwrap();
    let mut ahead = told("a/n3", "own-2", "GPU-3");
    ahead["trigger"]["at_ns"] = json!(now_ns() + 3_600 * SECOND_NS);
    for (body, status, code) in [
        (json!({}), 400, "bad_body"),
        (json!({"node": "n3"}), 400, "bad_body"),
        (json!({"rest": id, "node": "n3"}), 400, "bad_body"),
        (json!({"rest": id, "more": 1}), 400, "bad_body"),
        (told("../n3", "own", "GPU-3"), 400, "bad_body"),
        (told("a/n3", "../../own", "GPU-3"), 400, "bad_body"),
        (told("a/n3", "own", "GPU\u{1b}[31m"), 400, "bad_body"),
        (ahead, 400, "bad_body"),
        (json!({"rest": "20261120T160000Z-lost"}), 404, "unknown_incident"),
        (json!({"rest": "../.."}), 404, "unknown_incident"),
    ] {
        let answer = post(&world, &body.to_string()).await;
        let said = answer.json();
        assert_eq!((answer.status, said["code"].as_str()), (status, Some(code)), "{body}: {said}");
    }
    for (path, status, code) in [
        (REQUESTS.to_owned(), 400, "bad_parameter"),
        (format!("{REQUESTS}?node=..%2Fn3"), 400, "bad_parameter"),
        (format!("{REQUESTS}?node=.n3"), 400, "bad_parameter"),
        (format!("{INCIDENTS}?x=1"), 400, "bad_parameter"),
        (format!("{INCIDENTS}/..%2F.."), 404, "unknown_incident"),
        (format!("{INCIDENTS}/{id}/nodes/..%2Fincident"), 404, "unknown_incident"),
        (format!("{INCIDENTS}/{id}/nodes/a%2Fn3?part=all"), 400, "bad_parameter"),
        (format!("{INCIDENTS}/{id}/nodes/a%2Fn1"), 404, "unknown_incident"),
    ] {
        let answer = world.get(&path).await;
        let said = answer.json();
        assert_eq!((answer.status, said["code"].as_str()), (status, Some(code)), "{path}: {said}");
    }
    let good = piece("GPU-3", 50..60);
    let many = good.repeat((1 << 20) / good.len() + 1);
    for (path, bytes, status, code) in [
        (format!("{INCIDENTS}/{id}/nodes/a%2Fn1"), &good, 404, "unknown_incident"),
        (format!("{INCIDENTS}/{id}/nodes/a%2Fn3?part=rest"), &good, 404, "unknown_incident"),
        (format!("{INCIDENTS}/{id}/nodes/a%2Fn3"), &b"noise".to_vec(), 400, "bad_body"),
        (format!("{INCIDENTS}/{id}/nodes/a%2Fn3"), &piece("GPU-3", 0..60), 400, "bad_body"),
        (format!("{INCIDENTS}/{id}/nodes/a%2Fn3"), &many, 413, "body_too_large"),
    ] {
        let answer = send(&world, &path, bytes).await;
        let said = answer.json();
        assert_eq!((answer.status, said["code"].as_str()), (status, Some(code)), "{path}: {said}");
    }
    let path = format!("{INCIDENTS}/{id}/nodes/a%2Fn3");
    let announced = format!("content-length: {}\r\n", 100 << 10);
    let refused = request(world.address, "POST", &path, &announced).await;
    assert_eq!((refused.status, refused.json()["code"].as_str()), (413, Some("body_too_large")));
    let perhaps = request(world.address, "POST", &format!("{path}?cut=perhaps"), "").await;
    assert_eq!((perhaps.status, perhaps.json()["code"].as_str()), (400, Some("bad_parameter")));
    for (method, path) in [("PUT", path.as_str()), ("DELETE", REQUESTS), ("POST", INCIDENTS)] {
        assert_eq!(request(world.address, method, path, "").await.status, 405, "{method} {path}");
    }
    assert_eq!(world.ok(INCIDENTS).await["incidents"][0]["nodes"][0]["window"], Value::Null);
}

#[tokio::test]
async fn a_finding_names_the_incidents_that_it_caused() {
    let world = judging().await;
    let xid: &[(&str, f64)] = &[("xid_last", 79.0)];
    let fleet: [Row<'_>; 2] =
        [(held("GPU-1", "n1", "train-7"), 40, xid), (held("GPU-2", "n2", "train-7"), 40, xid)];
    world.append(rows(&fleet)).await;
    let id = tell(&world, told("a/n1", "own", "GPU-1")).await;
    let sent = piece("GPU-1", 10..101);
    let path = format!("{INCIDENTS}/{}/nodes/a%2Fn1", id.as_str().unwrap());
    assert_eq!(send(&world, &path, &sent).await.status, 200);
    let of = async |host: &str| {
        let list = world.ok(&format!("/api/v1/analysis/findings?kind=xid&host={host}")).await;
        assert_eq!(list["total"], 1, "{list}");
        list["findings"][0]["incidents"].clone()
    };
    let named = of("n1").await;
    let at = |seconds_ago: i64| time::format(now_ns() - seconds_ago * SECOND_NS);
    let first = json!({
        "gpu": "GPU-1", "hostname": "n1", "at": at(40), "why": "it reports nothing any more", "doubt": null
    });
    assert_eq!(
        named,
        json!([{
            "id": id, "job": "a/research/train-7", "kind": "lost", "detail": "it reports nothing any more",
            "at": at(40), "start": at(100), "end": at(10), "nodes_asked": 2, "nodes_had": 1, "first": first,
            "has_rows": true
        }])
    );
    assert_eq!(of("n2").await, Value::Null, "nobody told of it");
}

#[tokio::test]
async fn all_values_of_a_gpu_are_read_of_what_its_node_has_sent() {
    let world = fleet().await;
    let id = tell(&world, told("a/n1", "own-1", "GPU-1")).await;
    let id = id.as_str().unwrap();
    let sent = [piece("GPU-4", 41..44), piece("GPU-1", 11..101)].concat();
    assert_eq!(send(&world, &format!("{INCIDENTS}/{id}/nodes/a%2Fn1"), &sent).await.status, 200);

    let rows = format!("{INCIDENTS}/{id}/rows");
    let read = world.ok(&format!("{rows}?gpu=GPU-4&metrics=power_w,temperature_c")).await;
    let times: Vec<i64> = [43, 42, 41].map(|ago| (now_ns() - ago * SECOND_NS).div_euclid(1_000_000)).to_vec();
    let (power, nothing) = (json!([400.0, 400.0, 400.0]), json!([null, null, null]));
    assert_eq!(
        read,
        json!({
            "id": id, "gpu": "GPU-4", "node": "a/n1", "part": "window", "times": times,
            "values": {"power_w": power, "temperature_c": nothing}
        }),
        "the oldest first"
    );
    let csv = world.get(&format!("{rows}?gpu=GPU-4&metrics=power_w&format=csv")).await;
    assert_eq!(csv.header("content-type"), Some("text/csv"));
    assert_eq!(csv.text().lines().collect::<Vec<_>>().len(), 4, "{}", csv.text());
    assert_eq!(csv.text().lines().next(), Some("timestamp,power_w"));

    for (query, status, code) in [
        ("metrics=power_w", 400, "bad_parameter"),
        ("gpu=GPU-1", 400, "bad_parameter"),
        ("gpu=GPU-1&metrics=powr_w", 400, "bad_parameter"),
        ("gpu=GPU-1&metrics=power_w&part=all", 400, "bad_parameter"),
        ("gpu=GPU-1&metrics=power_w&format=xml", 400, "bad_parameter"),
        ("gpu=GPU-1&metrics=power_w&more=1", 400, "bad_parameter"),
        ("gpu=GPU-1&metrics=power_w&part=rest", 404, "unknown_incident"),
        ("gpu=GPU-2&metrics=power_w", 404, "unknown_incident"),
    ] {
        let answer = world.get(&format!("{rows}?{query}")).await;
        let said = answer.json();
        assert_eq!((answer.status, said["code"].as_str()), (status, Some(code)), "{query}: {said}");
    }
    let unknown = world.get(&format!("{INCIDENTS}/none/rows?gpu=GPU-1&metrics=power_w")).await;
    assert_eq!((unknown.status, unknown.json()["code"].as_str()), (404, Some("unknown_incident")));
}

#[tokio::test]
async fn a_gpu_names_the_incidents_that_it_has_a_part_in() {
    let world = fleet().await;
    let of = async |gpu: &str| world.ok(&format!("/api/v1/gpus/{gpu}")).await["incidents"].clone();
    assert_eq!(of("GPU-1").await, Value::Null);
    let id = tell(&world, told("a/n1", "own-1", "GPU-4")).await;
    let path = format!("{INCIDENTS}/{}/nodes/a%2Fn1", id.as_str().unwrap());
    assert_eq!(send(&world, &path, &piece("GPU-1", 10..101)).await.status, 200);
    // What was said of a GPU serves until the fleet is judged again.
    world.set_time(now_ns() + 60 * SECOND_NS);
    for (gpu, has_rows) in [("GPU-1", true), ("GPU-4", false)] {
        let named = of(gpu).await;
        assert_eq!((&named[0]["id"], &named[0]["has_rows"]), (&id, &json!(has_rows)), "{gpu}: {named}");
    }
    assert_eq!(of("GPU-3").await, Value::Null, "of another job");
    let before = time::format(now_ns() - 50 * SECOND_NS);
    let then = world.ok(&format!("/api/v1/gpus/GPU-1?at={before}")).await;
    assert_eq!(then["incidents"], Value::Null, "it had not begun");
}
