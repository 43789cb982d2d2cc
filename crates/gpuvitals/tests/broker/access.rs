//! Certificates and tokens.

use std::os::unix::fs::PermissionsExt;

use gpuvitals_listener::{TokenScope, Tokens};
use gpuvitals_queue::link::{BearerToken, Client, Credentials};
use gpuvitals_queue::{Consumer, ConsumerOptions, ContentType, Frame, Producer, PublishError, ReceiveError};
use gpuvitals_rig::authority::{CertificateAuthority, Pair};
use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::{Finished as _, Process};
use gpuvitals_rig::waiting::PATIENCE;

use crate::process::{Broker, agent, answer, message, outcome, secret};

const WRONG: &str = "gpv_a-token-that-does-not-open";
const READABLE: &str = "everyone on this machine can read the private key";

/// Adds a token to a file.
fn token(file: &std::path::Path, name: &str, scopes: &[TokenScope]) -> String {
    Tokens::create(file, name, scopes, "2026-01-01T00:00:00Z".to_owned()).unwrap()
}

#[tokio::test]
async fn without_the_right_token_http_and_grpc_refuse() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    let right = &*token(&file, "all", &[TokenScope::Admin]);
    let reader = &*token(&file, "reader", &[TokenScope::Subscribe]);
    let broker = Broker::start(&["--token-file", file.to_str().unwrap()]);

    let post = |token: Option<&str>| {
        let mut request = agent().post(format!("{}/publish/t", broker.http));
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        answer(request.header("content-type", "application/json").send(message(0, 1)).unwrap()).0
    };
    assert_eq!([post(None), post(Some(WRONG)), post(Some(reader))], [401, 401, 403]);
    assert!(post(Some(right)) < 300);
    assert_eq!(
        [broker.get("/stats").0, broker.get("/topics/t/dead").0, broker.get("/health").0],
        [401, 401, 200]
    );

    let access = |token: &str| Credentials { token: BearerToken::new(token), ..Credentials::default() };
    for url in [&broker.grpc, &broker.http] {
        let client = |token: &str| Client::new(url.parse().unwrap(), access(token));
        let publish = async |token: &str| {
            let producer = client(token).producer("t").unwrap();
            producer.publish(Frame::new(ContentType::Json, 1, message(0, 1))).await
        };
        for token in [WRONG, reader] {
            let refused = publish(token).await.unwrap_err();
            assert!(matches!(refused, PublishError::Denied { .. }), "{refused}");
            assert!(!refused.to_string().contains(token), "{refused}");
        }
        publish(right).await.unwrap();
        let receive = async |token: &str| {
            let options = ConsumerOptions::default();
            let mut consumer = client(token).consumer("t", "g", &options).await.unwrap();
            let received = tokio::time::timeout(PATIENCE, consumer.receive()).await.expect("nothing came");
            consumer.leave().await;
            received.map(drop)
        };
        let refused = receive(WRONG).await.unwrap_err();
        assert!(matches!(refused, ReceiveError::Denied { .. }), "{refused}");
        receive(reader).await.unwrap();
    }
    for token in [right, WRONG, reader] {
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
    let tokens = folder.path().join("tokens");
    let right = token(&tokens, "all", &[TokenScope::Admin]);
    let subscriber = token(&tokens, "reader", &[TokenScope::Subscribe]);
    let (wrong, reader) = (named("wrong", WRONG), named("reader", &subscriber));
    let broker = Broker::start(&["--token-file", tokens.to_str().unwrap()]);
    let csv = folder.path().join("rows.csv");
    std::fs::write(&csv, "timestamp,gpu_id,temperature\n2026-01-01T00:00:00Z,gpu_0,50\n").unwrap();
    let data = folder.path().join("data");
    let stream = ["stream", "--once", "--metrics-port", "0", "--csv", csv.to_str().unwrap()];
    let collect = ["collect", "--api-port", "0", "--data-dir", data.to_str().unwrap()];

    let check = |command: &[&str], url: &str, token: Option<&str>| {
        let mut process = gpuvitals!();
        process.args(command).env("GPUVITALS_MESSAGE_QUEUE_ADDRESS", url);
        process.envs(token.map(|path| ("GPUVITALS_MESSAGE_QUEUE_TOKEN_FILE", path)));
        let output = process.finished().unwrap();
        let (code, told, errors) = outcome(&output);
        assert_eq!(code, Some(77), "{command:?} {url} {token:?}: {errors}{told}");
        let place = token.map_or("names no file", |path| path);
        assert!(errors.contains("message_queue.token_file") && errors.contains(place), "{errors}");
        assert!(![&*right, WRONG, &*subscriber].iter().any(|secret| errors.contains(secret)), "{errors}");
    };
    for token in [None, Some(wrong.as_str())] {
        check(&stream, &broker.grpc, token);
        check(&stream, &broker.http, token);
        check(&collect, &broker.grpc, token);
    }
    check(&stream, &broker.http, Some(&reader));

    // The agent keeps what it samples until somebody has put it right, and says what is wrong.
    let mut agent = gpuvitals!();
    agent.env("GPUVITALS_MESSAGE_QUEUE_TOKEN_FILE", &wrong);
    agent.env("GPUVITALS_AGENT_PUBLISH_INTERVAL", "100ms").args(["agent", "--port", "0", "--sysfs"]);
    agent.arg(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/amd/sysfs/vega56"));
    agent.args(["--driver", "amd-sysfs", "--mq-url", &broker.grpc]);
    let agent = Process::start(&mut agent);
    let line = agent.says("the queue takes nothing");
    assert!(line.contains("message_queue.token_file is") && line.contains(&wrong), "{line}");
    std::fs::write(&wrong, &right).unwrap();
    agent.says("the token was read again");
    agent.says("the queue takes frames again");
    assert_eq!(agent.terminated().0, Some(0));
}

#[test]
fn the_tool_makes_and_revokes_tokens_and_the_broker_follows() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    let tool = |arguments: &[&str]| {
        let output =
            gpuvitals!().arg("token").args(arguments).arg("--token-file").arg(&file).finished().unwrap();
        let (code, told, errors) = outcome(&output);
        (code, told.to_owned(), errors.to_owned())
    };
    let (code, first, _) = tool(&["create", "first", "--scope", "read"]);
    assert_eq!(code, Some(0));
    let of_first = std::fs::read_to_string(&file).unwrap();
    let broker = Broker::start(&["--token-file", file.to_str().unwrap()]);
    let status = |token: &str| {
        let request = agent().get(format!("{}/stats", broker.http));
        answer(request.header("authorization", format!("Bearer {}", token.trim())).call().unwrap()).0
    };
    assert_eq!([status(&first), status(WRONG)], [200, 401]);
    let (_, made, _) = tool(&["create", "second", "--scope", "publish,read", "--json"]);
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    assert_eq!(made["scopes"], serde_json::json!(["publish", "read"]));
    assert_eq!(tool(&["revoke", "first"]).0, Some(0));
    let (_, listed, _) = tool(&["list"]);
    assert!(listed.contains("second  publish,read") && !listed.contains("first"), "{listed}");
    let taken = "certificates or tokens have changed, and the new ones are in force";
    broker.process.says(taken);
    assert_eq!([status(&first), status(made["token"].as_str().unwrap())], [401, 200]);

    for (arguments, code, words) in [
        (&["create", "second", "--scope", "read"][..], 65, "there is a token named"),
        (&["create", "a b", "--scope", "read"], 64, "is not a name"),
        (&["create", "third", "--scope", "everything"], 64, "invalid value"),
        (&["revoke", "first"], 65, "there is no token named"),
    ] {
        let (exit, _, errors) = tool(arguments);
        assert!(exit == Some(code) && errors.contains(words), "{arguments:?}: {exit:?} {errors}");
    }
    std::fs::write(&file, "a-secret\n").unwrap();
    assert!(broker.process.says("cannot be used; the old ones stay in force").contains("line 1 is not"));
    assert_eq!(status(made["token"].as_str().unwrap()), 200);
    let allow = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    allow(0o644);
    assert!(broker.process.says("chmod 600").contains("the old ones stay in force"));
    std::fs::write(&file, of_first).unwrap();
    allow(0o600);
    broker.process.said(taken, |log| log.iter().filter(|line| line.contains(taken)).nth(1).map(drop));
    assert_eq!([status(&first), status(made["token"].as_str().unwrap())], [200, 401]);
    let log = broker.log();
    assert!(!log.contains("a-secret") && !log.contains("gpv_"), "a secret is in the log");
    broker.process.signal("HUP");
    assert_eq!(broker.terminate(), Some(0));
}

#[test]
fn what_has_nothing_to_read_anew_ends_in_order_at_sighup() {
    let folder = tempfile::tempdir().unwrap();
    let mut collect = gpuvitals!();
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
    let authority = CertificateAuthority::new();
    let Pair { cert, key } = authority.sign("127.0.0.1", folder.path());
    let ca = authority.file(folder.path().join("ca.pem"));
    let Pair { cert: own, key: own_key } = authority.sign("a-client", folder.path());
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let tokens = folder.path().join("tokens");
    let right = token(&tokens, "all", &[TokenScope::Admin]);
    let token = folder.path().join("token");
    secret(&token, &right);
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let broker = Broker::start(&[
        "--tls-cert",
        &text(&cert),
        "--tls-key",
        &text(&key),
        "--tls-client-ca",
        &text(&ca),
        "--token-file",
        &text(&tokens),
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
        assert!(!errors.contains(&right), "{errors}");
    };
    check(&whole, Some(0), "no topic yet");
    let mixed = ["--ca", &text(&ca), "--client-cert", &text(&own), "--client-key", &text(&key)];
    check(&mixed, Some(78), "cannot use");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let open = Broker::start(&["--tls-cert", &text(&cert), "--tls-key", &text(&key)]);
    assert!(open.log().contains(READABLE));
    check(&whole[..6], Some(77), "--token-file");
    check(&whole[..2], Some(77), "message_queue.client_cert");
    check(&[], Some(69), "--ca names the file of the authority");

    let csv = folder.path().join("rows.csv");
    std::fs::write(&csv, "timestamp,gpu_id,temperature\n2026-01-01T00:00:00Z,gpu_0,50\n").unwrap();
    for (token, code) in [(text(&token), 0), (String::new(), 77)] {
        let mut stream = gpuvitals!();
        stream.args(["stream", "--once", "--metrics-port", "0", "--mq-url", &broker.http]);
        stream.args(["--csv", &text(&csv)]);
        stream.env("GPUVITALS_MESSAGE_QUEUE_CA", text(&ca));
        stream.env("GPUVITALS_MESSAGE_QUEUE_CLIENT_CERT", text(&own));
        stream.env("GPUVITALS_MESSAGE_QUEUE_CLIENT_KEY", text(&own_key));
        stream.env("GPUVITALS_MESSAGE_QUEUE_TOKEN_FILE", token);
        let output = stream.finished().unwrap();
        assert_eq!(outcome(&output).0, Some(code), "{output:?}");
    }
}

#[test]
fn files_of_secrets_are_for_their_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    token(&file, "all", &[TokenScope::Admin]);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let start = |file: &std::path::Path| {
        let output =
            gpuvitals!().args(["broker", "--port", "0", "--token-file"]).arg(file).finished().unwrap();
        let (code, _, errors) = outcome(&output);
        assert_eq!(code, Some(78), "{errors}");
        errors.to_owned()
    };
    assert!(start(&file).contains("chmod 600"));
    let bad = folder.path().join("bad");
    secret(&bad, "a-secret\n");
    let errors = start(&bad);
    assert!(errors.contains("line 1 is not") && !errors.contains("a-secret"), "{errors}");
    assert!(start(&folder.path().join("none")).contains("token_file"));

    let ask = |credentials: &std::path::Path| {
        let output = gpuvitals!()
            .args(["queue", "stats", "--mq-url", "nats://127.0.0.1:1"])
            .env("GPUVITALS_MESSAGE_QUEUE_CREDENTIALS_FILE", credentials)
            .finished()
            .unwrap();
        let (code, _, errors) = outcome(&output);
        (code, errors.to_owned())
    };
    let (code, errors) = ask(&file);
    assert!(code == Some(78) && errors.contains("chmod 600"), "{errors}");
    assert!(errors.contains("message_queue.credentials_file"), "{errors}");
    assert!(!ask(&bad).1.contains("chmod 600"));
}

#[test]
fn an_open_address_is_refused_unless_it_is_meant() {
    for command in [
        &["broker", "--port", "0"][..],
        &["up", "--port", "0", "--source", "simulated"],
        &["collect", "--api-port", "0"],
    ] {
        let folder = tempfile::tempdir().unwrap();
        let output = gpuvitals!()
            .current_dir(folder.path())
            .args(command)
            .args(["--listen", "0.0.0.0"])
            .finished()
            .unwrap();
        let (code, _, errors) = outcome(&output);
        assert!(code == Some(78) && errors.contains("--insecure"), "{command:?}: {errors}");
        assert!(!errors.contains("listening"), "{command:?}: {errors}");
    }
    let broker = Broker::start(&["--listen", "0.0.0.0", "--insecure"]);
    let log = broker.log();
    assert!(log.contains("insecure: everyone who reaches this address"), "{log}");
    let loopback = Broker::start(&[]);
    assert!(!loopback.log().contains("insecure"));
}

/// A certificate of its own authority for localhost that expires at the beginning of a day, so many days from now, and its key.
fn ending_in(days: i64, folder: &std::path::Path) -> [String; 2] {
    let day =
        gpuvitals_core::time::format(gpuvitals_core::clock::now_ns() + days * gpuvitals_core::time::DAY_NS);
    let part = |range: std::ops::Range<usize>| day[range].parse::<u16>().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let (month, day) = (u8::try_from(part(5..7)).unwrap(), u8::try_from(part(8..10)).unwrap());
    params.not_after = rcgen::date_time_ymd(part(0..4).into(), month, day);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    [("tls.crt", certificate.pem()), ("tls.key", key.serialize_pem())].map(|(name, text)| {
        let file = folder.join(name);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        file.to_str().unwrap().to_owned()
    })
}

#[test]
fn a_certificate_that_has_expired_or_soon_does_is_in_log_health_and_metrics() {
    let folder = tempfile::tempdir().unwrap();
    for (days, level, words) in [(-1, "error", "expired at"), (10, "warn", "expires at"), (60, "", "")] {
        let [cert, key] = ending_in(days, folder.path());
        let data = folder.path().join("data");
        let roles: [(&str, &[&str]); 2] = [
            ("queue: https://", &["broker", "--port", "0"]),
            (
                "dashboard and API: https://",
                &["up", "--source", "none", "--port", "0", "--data-dir", data.to_str().unwrap()],
            ),
        ];
        for (line, arguments) in roles {
            let mut command = gpuvitals!();
            command
                .args(arguments)
                .args(["--tls-cert", &cert, "--tls-key", &key])
                .env("GPUVITALS_BROKER_PORT", "0");
            let process = Process::start(&mut command);
            let said = process.says(line);
            let at = said.split(line).nth(1).unwrap().split(['/', '"', ' ']).next().unwrap().to_owned();
            let get = |path: &str| {
                let got = std::process::Command::new("curl")
                    .args(["-sSk", &format!("https://{at}{path}")])
                    .finished();
                String::from_utf8(got.unwrap().stdout).unwrap()
            };
            let (health, ready, metrics) = (get("/health"), get("/readyz"), get("/metrics"));
            assert!(metrics.contains("_certificate_expires_timestamp_seconds "), "{metrics}");
            if words.is_empty() {
                assert!(!health.contains("tls.crt") && ready.starts_with("ok"), "{health} {ready}");
                continue;
            }
            let logged = process.says(words);
            assert!(logged.contains(&format!("\"level\":\"{level}\"")), "{logged}");
            assert!(health.contains("degraded") && health.contains(words), "{health}");
            assert!(ready.starts_with("ok") && ready.contains(words), "{ready}");
        }
    }
}
