//! Certificates and tokens.

use std::os::unix::fs::PermissionsExt;

use gpuvitals_queue::link::{Access, Client, Token};
use gpuvitals_queue::{Consumer, ConsumerOptions, ContentType, Frame, Producer, PublishError, ReceiveError};

use crate::authority::{Authority, Pair};
use crate::process::{Broker, agent, answer, message, outcome, secret};
use crate::program::{PATIENCE, Process, gpuvitals};

const RIGHT: &str = "a-token-that-opens";
const WRONG: &str = "a-token-that-does-not";
const READER: &str = "a-token-that-reads";
const READABLE: &str = "everyone on this machine can read the private key";

#[tokio::test]
async fn without_the_right_token_both_ports_refuse() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    secret(&file, &format!("# who\n{RIGHT}\nsubscribe {READER}\n"));
    let broker = Broker::start(&["--token-file", file.to_str().unwrap()]);

    let post = |token: Option<&str>| {
        let mut request = agent().post(format!("{}/publish/t", broker.http));
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        answer(request.header("content-type", "application/json").send(message(0, 1)).unwrap()).0
    };
    assert_eq!([post(None), post(Some(WRONG)), post(Some(READER))], [401, 401, 403]);
    assert!(post(Some(RIGHT)) < 300);
    assert_eq!(
        [broker.get("/stats").0, broker.get("/topics/t/dead").0, broker.get("/health").0],
        [401, 401, 200]
    );

    let access = |token: &str| Access { token: Some(Token::new(token)), ..Access::default() };
    for url in [&broker.grpc, &broker.http] {
        let client = |token: &str| Client::new(url.parse().unwrap(), access(token));
        let publish = async |token: &str| {
            let producer = client(token).producer("t").unwrap();
            producer.publish(Frame::new(ContentType::Json, 1, message(0, 1))).await
        };
        for token in [WRONG, READER] {
            let refused = publish(token).await.unwrap_err();
            assert!(matches!(refused, PublishError::Denied { .. }), "{refused}");
            assert!(!refused.to_string().contains(token), "{refused}");
        }
        publish(RIGHT).await.unwrap();
        let receive = async |token: &str| {
            let options = ConsumerOptions::default();
            let mut reader = client(token).consumer("t", "g", &options).await.unwrap();
            let received = tokio::time::timeout(PATIENCE, reader.receive()).await.expect("nothing came");
            reader.leave().await;
            received.map(drop)
        };
        let refused = receive(WRONG).await.unwrap_err();
        assert!(matches!(refused, ReceiveError::Denied { .. }), "{refused}");
        receive(READER).await.unwrap();
    }
    for token in [RIGHT, WRONG, READER] {
        assert!(!broker.log().contains(token), "a secret is in the log");
    }
}

/// Credentials that nobody has: what each command says of them, and how it ends.
#[test]
fn who_may_not_enter_is_told_which_setting_lets_them_in() {
    let folder = tempfile::tempdir().unwrap();
    let named = |name: &str, text: &str| {
        let path = folder.path().join(name);
        secret(&path, text);
        path.to_str().unwrap().to_owned()
    };
    let (tokens, wrong, reader) = (
        named("tokens", &format!("{RIGHT}\nsubscribe {READER}\n")),
        named("wrong", WRONG),
        named("reader", READER),
    );
    let broker = Broker::start(&["--token-file", &tokens]);
    let csv = folder.path().join("rows.csv");
    std::fs::write(&csv, "timestamp,gpu_id,temperature\n2026-01-01T00:00:00Z,gpu_0,50\n").unwrap();
    let data = folder.path().join("data");
    let stream = ["stream", "--once", "--metrics-port", "0", "--csv", csv.to_str().unwrap()];
    let collect = ["collect", "--api-port", "0", "--data-dir", data.to_str().unwrap()];

    let check = |command: &[&str], url: &str, token: Option<&str>| {
        let mut process = gpuvitals();
        process.args(command).env("GPUVITALS_MESSAGE_QUEUE_ADDRESS", url);
        process.envs(token.map(|path| ("GPUVITALS_MESSAGE_QUEUE_TOKEN_FILE", path)));
        let output = process.output().unwrap();
        let (code, told, errors) = outcome(&output);
        assert_eq!(code, Some(77), "{command:?} {url} {token:?}: {errors}{told}");
        let place = token.map_or("names no file", |path| path);
        assert!(errors.contains("message_queue.token_file") && errors.contains(place), "{errors}");
        assert!(![RIGHT, WRONG, READER].iter().any(|secret| errors.contains(secret)), "{errors}");
    };
    for token in [None, Some(wrong.as_str())] {
        check(&stream, &broker.grpc, token);
        check(&stream, &broker.http, token);
        check(&collect, &broker.grpc, token);
    }
    check(&stream, &broker.http, Some(&reader));

    // The agent keeps what it samples until somebody has put it right, and says what is wrong.
    let mut agent = gpuvitals();
    agent.env("GPUVITALS_MESSAGE_QUEUE_TOKEN_FILE", &wrong);
    agent.env("GPUVITALS_AGENT_PUBLISH_INTERVAL", "100ms").args(["agent", "--port", "0", "--sysfs"]);
    agent.arg(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/amd/sysfs/vega56"));
    agent.args(["--driver", "amd-sysfs", "--queue", &broker.grpc]);
    let agent = Process::start(&mut agent);
    let line = agent.says("the queue takes nothing");
    assert!(line.contains("message_queue.token_file is") && line.contains(&wrong), "{line}");
    std::fs::write(&wrong, RIGHT).unwrap();
    agent.says("the token was read anew");
    agent.says("the queue takes frames again");
    assert_eq!(agent.terminated().0, Some(0));
}

#[test]
fn tokens_are_read_anew_at_sighup_and_wrong_ones_are_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    secret(&file, RIGHT);
    let broker = Broker::start(&["--token-file", file.to_str().unwrap()]);
    let answers = || {
        [RIGHT, READER].map(|token| {
            let request = agent().get(format!("{}/stats", broker.http));
            answer(request.header("authorization", format!("Bearer {token}")).call().unwrap()).0
        })
    };
    assert_eq!(answers(), [200, 401]);
    std::fs::write(&file, READER).unwrap();
    broker.process.signal("HUP");
    broker.process.says("the tokens were read anew");
    assert_eq!(answers(), [401, 200]);
    std::fs::write(&file, "publish,everything a-secret").unwrap();
    broker.process.signal("HUP");
    assert!(broker.process.says("the tokens were not read anew").contains("line 1: rights are"));
    assert_eq!(answers(), [401, 200]);
    assert_eq!(broker.terminate(), Some(0));
}

#[test]
fn what_has_nothing_to_read_anew_ends_in_order_at_sighup() {
    let folder = tempfile::tempdir().unwrap();
    let mut collect = gpuvitals();
    collect
        .args(["collect", "--api-port", "0", "--mq-url", "grpc://127.0.0.1:1", "--data-dir"])
        .arg(folder.path());
    let collect = Process::start(&mut collect);
    collect.says("the queue is not reached");
    collect.signal("HUP");
    let (code, log) = collect.ended();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("SIGHUP") && log.contains("stopped"), "{log}");
}

#[test]
fn over_tls_the_commands_bring_authority_and_token() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let Pair { cert, key } = authority.sign("127.0.0.1", folder.path());
    let ca = authority.file(folder.path().join("ca.pem"));
    let Pair { cert: own, key: own_key } = authority.sign("a-client", folder.path());
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let token = folder.path().join("token");
    secret(&token, RIGHT);
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let broker = Broker::start(&[
        "--tls-cert",
        &text(&cert),
        "--tls-key",
        &text(&key),
        "--tls-client-ca",
        &text(&ca),
        "--token-file",
        &text(&token),
    ]);
    assert!(broker.http.starts_with("https://") && broker.grpc.starts_with("grpcs://"));
    assert!(!broker.log().contains(READABLE));

    let whole = [
        "--ca",
        &text(&ca),
        "--client-cert",
        &text(&own),
        "--client-key",
        &text(&own_key),
        "--token-file",
        &text(&token),
    ];
    let check = |flags: &[&str], wanted: Option<i32>, words: &str| {
        let output = broker.queue(&[&["stats"], flags].concat());
        let (code, told, errors) = outcome(&output);
        assert_eq!(code, wanted, "{flags:?}: {errors}");
        assert!(format!("{told}{errors}").contains(words), "{flags:?}: {told}{errors}");
        assert!(!errors.contains(RIGHT), "{errors}");
    };
    check(&whole, Some(0), "no topic yet");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let open = Broker::start(&["--tls-cert", &text(&cert), "--tls-key", &text(&key)]);
    assert!(open.log().contains(READABLE));
    check(&whole[..6], Some(77), "--token-file");
    check(&whole[..2], Some(69), "--client-cert");
    check(&[], Some(69), "--ca names the file of the authority");
}

#[test]
fn files_of_secrets_are_for_their_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    std::fs::write(&file, RIGHT).unwrap();
    let start = |file: &std::path::Path| {
        let output = gpuvitals()
            .args(["broker", "--port", "0", "--grpc-port", "0", "--token-file"])
            .arg(file)
            .output()
            .unwrap();
        let (code, _, errors) = outcome(&output);
        assert_eq!(code, Some(78), "{errors}");
        errors.to_owned()
    };
    assert!(start(&file).contains("chmod 600"));
    let bad = folder.path().join("bad");
    secret(&bad, "publish,everything a-secret\n");
    let errors = start(&bad);
    assert!(errors.contains("line 1: rights are") && !errors.contains("a-secret"), "{errors}");
    assert!(start(&folder.path().join("none")).contains("broker.token_file"));

    let ask = |credentials: &std::path::Path| {
        let output = gpuvitals()
            .args(["queue", "stats", "--url", "nats://127.0.0.1:1"])
            .env("GPUVITALS_MESSAGE_QUEUE_CREDENTIALS_FILE", credentials)
            .output()
            .unwrap();
        let (code, _, errors) = outcome(&output);
        (code, errors.to_owned())
    };
    let (code, errors) = ask(&file);
    assert!(code == Some(78) && errors.contains("chmod 600"), "{errors}");
    assert!(errors.contains("message_queue.credentials_file") && !errors.contains(RIGHT), "{errors}");
    assert!(!ask(&bad).1.contains("chmod 600"));
}

#[test]
fn an_open_address_is_warned_of() {
    let broker = Broker::start(&["--listen", "0.0.0.0"]);
    let log = broker.log();
    assert!(log.contains("can publish, read and throw away everything"), "{log}");
    let loopback = Broker::start(&[]);
    assert!(!loopback.log().contains("throw away everything"));
}
