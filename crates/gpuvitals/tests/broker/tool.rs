//! `gpuvitals queue`.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Stdio;

use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::by_column;
use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, Origin, Table, wire};
use gpuvitals_queue::{Consumer, ContentType, Frame, Nack, NackKind};
use gpuvitals_rig::authority::{CertificateAuthority, Pair};
use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::{Finished as _, Process};
use gpuvitals_rig::waiting;

use crate::process::{Broker, message, outcome, receive};

/// Two rows of a GPU in the binary form.
fn batch() -> Frame {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let gpu = builder.intern(&Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap());
    for second in 1..3 {
        let row = builder.row(1_767_225_600_000_000_000 + second * 1_000_000_000, gpu);
        builder.set(row, by_column("power_w").unwrap(), Value::Int(100 * second)).unwrap();
    }
    let batch = builder.finish(Origin::default(), 1).unwrap();
    Frame::new(ContentType::Batch, 2, wire::encode(&batch).unwrap())
}

const SECOND_ROW: &str = r#"{"fields":{"power_w":200.0,"uuid":"GPU-1"},"timestamp":"2026-01-01T00:00:02Z"}"#;

fn told(broker: &Broker, arguments: &[&str]) -> String {
    let output = broker.queue(arguments);
    let (code, told, errors) = outcome(&output);
    assert_eq!(code, Some(0), "{arguments:?}: {errors}");
    told.to_owned()
}

/// Words of each line.
fn words(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect()).collect()
}

#[tokio::test]
async fn statistics_and_topics_are_tables_or_json() {
    let broker = Broker::start(&[]);
    assert!(told(&broker, &["stats"]).starts_with("no topic yet\n"));
    let mut reader = broker.consumer("b.topic", "readers");
    broker.publish("b.topic", batch()).await;
    broker.publish("a-topic", batch()).await;
    let _held = receive(&mut reader).await;
    assert_eq!(told(&broker, &["topics"]), "a-topic\nb.topic\n");
    let table = told(&broker, &["stats"]);
    let lines = words(&table);
    assert_eq!(lines[0][..4], ["TOPIC", "MESSAGES", "FRAMES", "BYTES"]);
    assert_eq!((lines[1][0], lines[1][1], lines[2][0], lines[2][1]), ("a-topic", "2", "b.topic", "2"));
    assert_eq!(lines[4][..4], ["TOPIC", "GROUP", "MEMBERS", "LAG"]);
    assert_eq!(lines[5], ["b.topic", "readers", "1", "2", "2", "0", "0", "0"]);
    assert!(!told(&broker, &["stats", "b.topic"]).contains("a-topic"));
    let json: serde_json::Value = serde_json::from_str(&told(&broker, &["stats", "--json"])).unwrap();
    assert_eq!(json["topics"]["b.topic"]["groups"]["readers"]["in_flight"], 2);
    let unknown = broker.queue(&["stats", "none"]);
    let (code, _, errors) = outcome(&unknown);
    assert!(code == Some(65) && errors.contains("gpuvitals queue topics"), "{errors}");
}

/// A server that answers each of so many requests with this JSON.
fn answering(body: &'static str, requests: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for connection in listener.incoming().take(requests) {
            let mut connection = connection.unwrap();
            let mut lines = BufReader::new(connection.try_clone().unwrap()).lines().map_while(Result::ok);
            let _head = lines.by_ref().take_while(|line| !line.is_empty()).count();
            let head =
                format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
            connection.write_all((head + body).as_bytes()).unwrap();
        }
    });
    url
}

#[test]
fn an_answer_that_lacks_what_was_done_is_no_success_and_no_question_is_asked_on_it() {
    for (body, arguments, words) in [
        ("{}", &["redrive", "t"][..], "missing field `letters`"),
        (r#"{"letters": 1}"#, &["redrive", "t"], "missing field `without_room`"),
        ("[]", &["purge", "t", "--yes"], "does not say what it did"),
        (r#"{"letters": "all"}"#, &["purge", "t", "--yes"], "does not say what it did"),
        (r#"{"messages": 3}"#, &["purge", "t"], "has no number dead_letters; nothing was done"),
        (r#"{"groups": {"g": {}}}"#, &["remove-group", "t", "g"], "has no number lag; nothing was done"),
    ] {
        let url = answering(body, 1);
        let output = gpuvitals!().arg("queue").args(arguments).args(["--mq-url", &url]).finished().unwrap();
        let (code, told, errors) = outcome(&output);
        assert_eq!((code, told), (Some(65), ""), "{arguments:?}: {errors}");
        assert!(errors.contains(words), "{arguments:?}: {errors}");
    }
}

#[test]
fn a_queue_that_is_not_there_is_named_with_what_to_do() {
    let check = |url: &str, wanted: i32, words: &str| {
        let output = gpuvitals!().args(["queue", "stats", "--mq-url", url]).finished().unwrap();
        let (code, _, errors) = outcome(&output);
        assert_eq!(code, Some(wanted), "{errors}");
        assert!(errors.contains(words), "{errors}");
    };
    check("http://127.0.0.1:1", 69, "gpuvitals broker");
    check("grpc://127.0.0.1:1", 69, "gpuvitals broker");
    let broker = Broker::start(&[]);
    check(&broker.http.replace("http:", "https:"), 69, "http:// reaches it");
    let folder = tempfile::tempdir().unwrap();
    let Pair { cert, key } = CertificateAuthority::new().sign("127.0.0.1", folder.path());
    let [cert, key] = [&cert, &key].map(|path| path.to_str().unwrap());
    let encrypted = Broker::start(&["--tls-cert", cert, "--tls-key", key]);
    check(&encrypted.http, 69, "--ca names the file of the authority");
    check("nats://127.0.0.1:1", 69, "nats://127.0.0.1:1");
    check("http://user:word@host", 64, "credentials belong in a file");
}

#[test]
fn another_service_than_a_queue_is_not_taken_for_one() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [vec!["up", "--port", "0", "--source", "none"], vec!["collect", "--api-port", "0"]] {
        let mut command = gpuvitals!();
        command
            .args(&arguments)
            .arg("--data-dir")
            .arg(folder.path().join(arguments[0]))
            .current_dir(folder.path());
        command.env("GPUVITALS_BROKER_PORT", "0");
        let service = Process::start(&mut command);
        let url = service.said("an address", |lines| {
            let line = lines.iter().find(|line| line.contains("API: http://"))?;
            Some(
                line.split("API: ").nth(1)?.split('/').take(3).collect::<Vec<_>>().join("/").replace('"', ""),
            )
        });
        for what in [vec!["stats"], vec!["stats", "t"], vec!["topics"], vec!["dead", "t"]] {
            let output = gpuvitals!().arg("queue").args(&what).args(["--mq-url", &url]).finished().unwrap();
            let (code, told, errors) = outcome(&output);
            assert_eq!((code, told), (Some(64), ""), "{what:?} of {arguments:?}: {errors}");
            assert!(
                errors.contains("another service") && errors.contains("127.0.0.1:9090"),
                "{what:?}: {errors}"
            );
        }
    }
}

#[test]
fn a_tail_that_waits_for_its_queue_says_so() {
    let mut tail = gpuvitals!();
    tail.args(["queue", "tail", "t", "--take", "--mq-url", "grpc://127.0.0.1:1"]).stderr(Stdio::piped());
    let tail = Process::start(&mut tail);
    tail.says("the queue at grpc://127.0.0.1:1 is not reached");
    assert_eq!(tail.terminated().0, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tail_prints_what_comes_and_takes_nothing_from_others() {
    let broker = Broker::start(&[]);
    let unknown = broker.queue(&["tail", "nope"]);
    let (code, _, errors) = outcome(&unknown);
    assert!(code == Some(65) && errors.contains("topic nope at"), "{errors}");
    broker.publish("alone", batch()).await;
    let alone = broker.queue(&["tail", "alone"]);
    let (code, _, errors) = outcome(&alone);
    assert_eq!(code, Some(64));
    assert!(errors.contains("--take"), "{errors}");

    let mut reader = broker.consumer("t", "store");
    broker.publish("t", batch()).await;
    let first = receive(&mut reader).await;
    let mut tail = gpuvitals!()
        .args(["queue", "tail", "t", "--from", "oldest", "--count", "3", "--mq-url", &broker.http])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let (first_line, second_line, mut lines) = waiting::within("both rows", move || {
        (lines.next().unwrap().unwrap(), lines.next().unwrap().unwrap(), lines)
    });
    assert!(first_line.contains(r#""power_w":100.0"#), "{first_line}");
    assert_eq!(second_line, SECOND_ROW);
    assert!(broker.post("t", &format!("[{},{}]", message(7, 1), message(8, 1))).0 < 300);
    let (json, more) = waiting::within("the third row, and the end", move || {
        (lines.next().unwrap().unwrap(), lines.next().map(Result::unwrap))
    });
    assert!(json.contains(r#""gpu_id":7"#), "{json}");
    assert_eq!(more, None, "three were asked for");
    assert_eq!(gpuvitals_rig::waiting::ended(&mut tail).code(), Some(0));

    let second = receive(&mut reader).await;
    let ids = [first[0].id, second[0].id];
    assert_eq!(reader.ack(&ids).await.unwrap(), 4, "the other group has all");
    let groups = || broker.get("/stats/t").1["groups"].as_object().unwrap().len();
    waiting::until("the end of the tail's group", groups, |groups| *groups == 1);
}

#[tokio::test]
async fn dead_letters_are_listed_shown_given_back_and_thrown_away() {
    let broker = Broker::start(&[]);
    assert_eq!(told(&broker, &["dead"]), "no dead letters\n");
    let mut reader = broker.consumer("t", "store");
    broker.publish("t", batch()).await;
    let reject = async |reader: &mut gpuvitals_queue::link::AnyConsumer| {
        let delivered = receive(reader).await;
        let nack = Nack { id: delivered[0].id, kind: NackKind::Reject, reason: "no such GPU".into() };
        reader.nack(&[nack]).await.unwrap();
    };
    reject(&mut reader).await;

    let table = told(&broker, &["dead"]);
    let lines = words(&table);
    assert_eq!(lines[0], ["TOPIC", "ID", "GROUP", "OFFSET", "MESSAGES", "TRIES", "DIED", "REASON"]);
    assert_eq!((lines[1][0], lines[1][2], lines[1][4], lines[1][5]), ("t", "store", "2", "1"));
    assert!(table.ends_with("rejected by consumer: no such GPU\n"), "{table}");
    let id = lines[1][1];
    let shown = told(&broker, &["dead", "t", "--show", id]);
    assert!(shown.lines().count() == 2 && shown.ends_with(&format!("{SECOND_ROW}\n")), "{shown}");
    assert_eq!(outcome(&broker.queue(&["dead", "t", "--show", "999"])).0, Some(65));

    let none = |command: &[&str]| {
        let output = broker.queue(command);
        let (code, _, errors) = outcome(&output);
        assert!(code == Some(65) && errors.contains("t has no dead letter 999"), "{errors}");
    };
    none(&["redrive", "t", "--id", "999"]);
    none(&["purge", "t", "--id", "999", "--yes"]);
    let both = format!("{id},999");
    let given = told(&broker, &["redrive", "t", "--id", &both]);
    assert_eq!(given, "1 letter given back\n1 of those that were named are not there\n");
    assert_eq!(told(&broker, &["dead", "t"]), "no dead letters\n");
    reject(&mut reader).await;
    let unasked = broker.queue(&["purge", "t"]);
    let (code, _, errors) = outcome(&unasked);
    assert_eq!(code, Some(64));
    assert!(errors.contains("all dead letters of t (2 messages)") && errors.contains("--yes"), "{errors}");
    let parsed = |text: &str| -> serde_json::Value { serde_json::from_str(text).unwrap() };
    let given = parsed(&told(&broker, &["replay", "t", "--json"]));
    assert_eq!(given, serde_json::json!({"letters": 1, "without_room": 0, "unreadable": 0, "left": 0}));
    reject(&mut reader).await;
    assert_eq!(parsed(&told(&broker, &["purge", "t", "--yes", "--json"])), serde_json::json!({"letters": 1}));
    assert_eq!(told(&broker, &["dead", "t", "--json"]), "[]\n");
}

#[tokio::test]
async fn a_group_that_nobody_reads_for_is_ended() {
    let broker = Broker::start(&[]);
    let mut reader = broker.consumer("t", "old");
    broker.publish("t", batch()).await;
    let _held = receive(&mut reader).await;
    reader.leave().await;
    let output = broker.queue(&["remove-group", "t", "none", "--yes"]);
    let (code, _, errors) = outcome(&output);
    assert!(code == Some(65) && errors.contains("t has no group none"), "{errors}");
    let output = broker.queue(&["remove-group", "t", "old"]);
    let (code, _, errors) = outcome(&output);
    assert!(
        code == Some(64) && errors.contains("end group old of t") && errors.contains("--yes"),
        "{errors}"
    );
    assert!(errors.contains("2 messages"), "{errors}");
    assert_eq!(told(&broker, &["remove-group", "t", "old", "--yes"]), "group old of t is gone\n");
    assert!(broker.get("/stats/t").1["groups"].as_object().unwrap().is_empty());
}

#[tokio::test]
async fn a_collector_whose_group_is_removed_says_which_and_ends() {
    let broker = Broker::start(&[]);
    broker.publish("t", batch()).await;
    let folder = tempfile::tempdir().unwrap();
    let mut command = gpuvitals!();
    command.current_dir(folder.path()).stderr(Stdio::piped());
    let collect = ["collect", "--api-port", "0", "--data-dir", "data", "--topic", "t", "--group", "g"];
    let collector = Process::start(command.args(collect).args(["--mq-url", &broker.http]));
    let acked = || broker.get("/stats/t").1["groups"]["g"]["lag"].clone();
    waiting::until("an empty group", acked, |lag| *lag == 0);
    assert_eq!(told(&broker, &["remove-group", "t", "g", "--yes"]), "group g of t is gone\n");
    let (code, log) = collector.ended();
    assert_eq!(code, Some(69), "{log}");
    let why = "group g of topic t was removed from the queue; the next start creates it anew";
    assert!(log.contains(why), "{log}");
}
