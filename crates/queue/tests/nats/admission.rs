//! Who is let in, and what is said to those who are not.

use std::fs;
use std::time::Duration;

use gpuvitals_queue::link::{BearerToken, Credentials};
use gpuvitals_queue::{
    Consumer, ConsumerOptions, FrameDurability, NackKind, Producer, PublishError, ReceiveError,
};
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

use crate::Nats;
use crate::behaviour::{MAX_RETRIES, Place, credits, frame, nack, receive_one};
use crate::server::Server;

const SOON: Duration = Duration::from_secs(10);

/// What a producer and a consumer at `place` are refused with.
async fn refusals(place: &Nats) -> (String, String) {
    let published = timeout(SOON, place.producer("t").publish(frame(1))).await.expect("in time");
    let Err(error @ (PublishError::Denied { .. } | PublishError::Refused { .. })) = published else {
        panic!("{published:?}")
    };
    (error.to_string(), refusal_to_receive(place, "g").await)
}

async fn refusal_to_receive(place: &Nats, group: &str) -> String {
    let mut consumer = place.member("t", group, &ConsumerOptions::default());
    let received = timeout(SOON, consumer.receive()).await.expect("in time");
    let Err(error @ (ReceiveError::Denied { .. } | ReceiveError::Refused { .. })) = received else {
        panic!("{received:?}")
    };
    error.to_string()
}

#[tokio::test]
async fn a_token_opens_and_its_absence_is_told() {
    let server = Server::start_with("authorization { token: \"s3cret\" }\n").await;
    let mut place = Nats::at(server.url());
    let (published, received) = refusals(&place).await;
    for error in [published, received] {
        assert!(
            error.starts_with("queue denied access") && error.contains("refused the credentials"),
            "{error}"
        );
    }
    place.access.token = BearerToken::new("wr0ng");
    let (published, _) = refusals(&place).await;
    assert!(!published.contains("wr0ng"), "{published}");
    place.access.token = BearerToken::new("s3cret\n");
    place.producer("t").publish(frame(1)).await.unwrap();
    receive_one(&mut place.consumer("t", "g", &credits(1)).await).await;
}

#[tokio::test]
async fn a_server_without_jetstream_says_what_to_enable() {
    let server = Server::start_with("# no jetstream\n").await;
    let start = Instant::now();
    let (published, received) = refusals(&Nats::at(server.url())).await;
    for text in [published, received] {
        assert!(text.contains("has no JetStream for this account: start nats-server with -js"), "{text}");
    }
    assert!(start.elapsed() < Duration::from_secs(4), "at once: {:?}", start.elapsed());
}

#[tokio::test]
async fn a_server_without_room_says_which_limit() {
    let folder = TempDir::new().unwrap();
    let jetstream =
        format!("jetstream {{ store_dir: \"{}\", max_file_store: 1MB }}\n", folder.path().display());
    let server = Server::start_with(&jetstream).await;
    let (published, _) = refusals(&Nats::at(server.url())).await;
    assert!(published.contains("stream gpuvitals-t (67108864 bytes, 1 replicas)"), "{published}");
    assert!(published.contains("raise the limit of the server (jetstream max_file_store)"), "{published}");
}

#[tokio::test]
async fn who_may_only_use_streams_uses_those_that_exist() {
    let folder = TempDir::new().unwrap();
    // Who connects without a name is `limited`. The list of permissions is the one of docs/nats.md.
    let config = format!(
        r#"jetstream {{ store_dir: "{}" }}
        no_auth_user: limited
        accounts {{ A {{ jetstream: enabled, users: [
          {{ user: admin, password: admin }}
          {{ user: limited, password: limited, permissions: {{
            publish: ["gpuvitals.t", "gpuvitals.t+dead", "$JS.API.CONSUMER.INFO.gpuvitals-t.g",
              "$JS.API.CONSUMER.MSG.NEXT.gpuvitals-t.g", "$JS.ACK.gpuvitals-t.g.>"]
            subscribe: ["_INBOX.>"]
          }} }}
        ] }} }}
        "#,
        folder.path().display()
    );
    let server = Server::start_with(&config).await;
    let place = Nats::at(server.url());
    let start = Instant::now();
    let received = refusal_to_receive(&place, "g").await;
    assert!(received.contains("Permissions Violation for Publish to \"$JS.API."), "{received}");
    assert!(received.contains("docs/nats.md"), "{received}");
    assert!(start.elapsed() < Duration::from_secs(4), "at once: {:?}", start.elapsed());

    let options = async_nats::ConnectOptions::with_user_and_password("admin".into(), "admin".into());
    let admin = async_nats::jetstream::new(options.connect(server.url().to_string()).await.unwrap());
    for token in ["t", "t+dead"] {
        let config = async_nats::jetstream::stream::Config {
            name: format!("gpuvitals-{token}"),
            subjects: vec![format!("gpuvitals.{token}")],
            ..Default::default()
        };
        admin.create_stream(config).await.unwrap();
    }
    let group = async_nats::jetstream::consumer::pull::Config {
        durable_name: Some("g".into()),
        ..Default::default()
    };
    admin.get_stream("gpuvitals-t").await.unwrap().create_consumer(group).await.unwrap();
    place.producer("t").publish(frame(4)).await.unwrap();
    let mut consumer = place.member("t", "g", &credits(10));
    let delivery = receive_one(&mut consumer).await;
    assert_eq!(consumer.nack(&[nack(delivery.id, NackKind::Reject)]).await, Ok(4));
    consumer.leave().await;
    let mut dead = admin.get_stream("gpuvitals-t+dead").await.unwrap();
    assert_eq!(dead.info().await.unwrap().state.messages, 1);
}

#[tokio::test]
async fn streams_of_others_are_used_as_they_are_or_refused_with_a_reason() {
    let server = Server::start().await;
    let place = Nats::at(server.url());
    let others = async_nats::jetstream::new(async_nats::connect(server.url().to_string()).await.unwrap());
    let telemetry = async_nats::jetstream::stream::Config {
        name: "TELEMETRY".into(),
        subjects: vec!["gpuvitals.*".into(), "other".into()],
        storage: async_nats::jetstream::stream::StorageType::Memory,
        ..Default::default()
    };
    others.create_stream(telemetry).await.unwrap();
    others.publish("other", "not ours".into()).await.unwrap().await.unwrap();
    let receipt = place.producer("t").publish(frame(2)).await.unwrap();
    assert_eq!(receipt.durability, FrameDurability::Memory);
    let delivery = receive_one(&mut place.consumer("t", "g", &credits(10)).await).await;
    assert_eq!(delivery.frame.count, 2, "what is on another subject is passed over");
    assert_eq!(place.admin().stats("t").await.unwrap().stream, "TELEMETRY");

    others.delete_stream("TELEMETRY").await.unwrap();
    let unfit = async_nats::jetstream::stream::Config {
        name: "gpuvitals-t".into(),
        subjects: vec!["elsewhere".into()],
        ..Default::default()
    };
    others.create_stream(unfit).await.unwrap();
    let (published, received) = refusals(&place).await;
    for text in [published, received] {
        assert!(text.contains("cannot use stream gpuvitals-t"), "{text}");
        assert!(text.contains("already in use with a different configuration"), "{text}");
    }
}

#[tokio::test]
async fn groups_of_others_that_would_lose_messages_are_refused_with_a_reason() {
    let server = Server::start().await;
    let place = Nats::at(server.url());
    let wide = async_nats::jetstream::stream::Config {
        name: "gpuvitals-t".into(),
        subjects: vec!["gpuvitals.*".into()],
        ..Default::default()
    };
    let stream = server.by_hand().await.create_stream(wide).await.unwrap();
    let enough = i64::from(MAX_RETRIES) + 2;
    for (group, max_deliver, filter) in [
        ("short", enough - 1, ""),
        ("aside", -1, "gpuvitals.other"),
        ("enough", enough, "gpuvitals.t"),
        ("wide", -1, "gpuvitals.*"),
    ] {
        let config = async_nats::jetstream::consumer::pull::Config {
            durable_name: Some(group.into()),
            max_deliver,
            filter_subject: filter.into(),
            ..Default::default()
        };
        stream.create_consumer(config).await.unwrap();
    }
    let short = refusal_to_receive(&place, "short").await;
    assert!(short.contains("cannot use consumer short of stream gpuvitals-t in NATS"), "{short}");
    assert!(short.contains("max_deliver of 3") && short.contains("set it to -1"), "{short}");
    let aside = refusal_to_receive(&place, "aside").await;
    assert!(aside.contains("cannot use consumer aside of stream gpuvitals-t in NATS"), "{aside}");
    assert!(aside.contains("filter gpuvitals.other does not take subject gpuvitals.t:"), "{aside}");
    place.producer("t").publish(frame(4)).await.unwrap();
    for group in ["enough", "wide"] {
        assert_eq!(receive_one(&mut place.member("t", group, &credits(10))).await.frame.count, 4);
    }
}

/// A server's certificate for 127.0.0.1, a client's, and the authority that signed both, as PEM files.
fn certificates(folder: &std::path::Path) {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    fs::write(folder.join("ca.pem"), authority.self_signed(&key).unwrap().pem()).unwrap();
    let authority = Issuer::new(authority, key);
    for (name, host) in [("server", "127.0.0.1"), ("client", "collector")] {
        let key = KeyPair::generate().unwrap();
        let signed =
            CertificateParams::new(vec![host.to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
        fs::write(folder.join(format!("{name}.pem")), signed.pem()).unwrap();
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

#[tokio::test]
async fn both_sides_show_their_certificates() {
    let folder = TempDir::new().unwrap();
    certificates(folder.path());
    let at = |name: &str| folder.path().join(name);
    let tls = format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{}\", verify: true }}\n",
        at("server.pem").display(),
        at("server.key").display(),
        at("ca.pem").display()
    );
    let server = Server::start_with(&tls).await;
    let mut place = Nats::at(format!("tls://127.0.0.1:{}", server.port).parse().unwrap());
    place.access = Credentials { ca: Some(at("ca.pem")), ..Credentials::default() };
    let anonymous = place.producer("t").publish(frame(1)).await;
    assert!(matches!(anonymous, Err(PublishError::Unavailable { .. })), "{anonymous:?}");
    place.access.identity = Some((at("client.pem"), at("client.key")));
    place.producer("t").publish(frame(1)).await.unwrap();
    receive_one(&mut place.consumer("t", "g", &credits(1)).await).await;
    place.access.ca = None;
    let stranger = place.producer("t").publish(frame(1)).await;
    assert!(
        matches!(stranger, Err(PublishError::Unavailable { .. })),
        "an authority of nobody: {stranger:?}"
    );
}
