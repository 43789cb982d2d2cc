//! The producer that publishes by HTTP, against a real server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuvitals_queue::link::{
    Access, AnyProducer, HttpProducer, QueueUrl, Stamps, Token, producer, publish_until,
};
use gpuvitals_queue::server::{ServerConfig, TlsFiles, Tokens, tls_config};
use gpuvitals_queue::{
    ContentType, DeadFacts, Durability, Encoding, Frame, Millis, Producer as _, PublishError, QueueConfig,
    Receipt,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::world::{World, array, message};

fn url(scheme: &str, at: std::net::SocketAddr) -> QueueUrl {
    format!("{scheme}://localhost:{}", at.port()).parse().unwrap()
}

fn to(world: &World) -> HttpProducer {
    HttpProducer::new(&url("http", world.at), &Access::default(), "t").unwrap()
}

fn json(count: u32) -> Frame {
    Frame::new(ContentType::Json, count, if count == 1 { message(0) } else { array(count) })
}

#[tokio::test]
async fn frames_arrive_as_they_were_sent() {
    let world = World::new().await;
    let AnyProducer::Http(producer) = producer(&url("http", world.at), &Access::default(), "t").unwrap()
    else {
        panic!("http is published by HTTP");
    };
    let dead = DeadFacts {
        topic: "u".into(),
        group: "g".into(),
        offset: 9,
        attempts: 4,
        reason: "grün\nund \"blau\"".into(),
        published_at: Millis(77),
    };
    let packed = zstd::bulk::compress(array(300).as_bytes(), 3).unwrap();
    let sent = [
        Frame { dead: Some(Box::new(dead)), ..json(1) }.stamped("p", 5),
        json(300),
        Frame::new(ContentType::Json, 300, packed).encoded(Encoding::Zstd),
    ];
    for (offset, frame) in (0..).zip(&sent) {
        let receipt = producer.publish(frame.clone()).await.unwrap();
        let expected = Receipt { offset: Some(offset), durability: Durability::Memory, duplicate: false };
        assert_eq!(receipt, expected);
    }
    let frames = world.frames("t").await;
    let held: Vec<_> = frames.iter().map(|(delivery, _)| &delivery.frame).collect();
    assert_eq!(*held[0].as_ref(), sent[0]);
    assert_eq!((held[1].count, held[2].count), (300, 300));
    let [one, other] = [held[1], held[2]].map(|frame| frame.producer.clone().unwrap());
    assert_eq!((one.id.len(), one.id == other.id, other.sequence), (32, true, 1));
    assert_eq!(frames[1].1, frames[2].1);
}

#[tokio::test]
async fn a_frame_that_is_sent_again_is_not_stored_again() {
    let world = World::new().await;
    let (producer, frame) = (to(&world), Stamps::new().stamp(json(10)));
    let first = producer.publish(frame.clone()).await.unwrap();
    assert_eq!((first.offset, first.duplicate), (Some(0), false));
    for _ in 0..2 {
        let again = producer.publish(frame.clone()).await.unwrap();
        assert_eq!((again.offset, again.duplicate), (None, true));
    }
    // Another producer that has the frame from a spool.
    assert!(to(&world).publish(frame).await.unwrap().duplicate);
    assert_eq!(world.queue.topic_stats("t").unwrap().messages, 10);
}

#[tokio::test]
async fn many_publishes_at_once_are_all_stored_once() {
    let world = World::new().await;
    let producer = to(&world);
    let publishes =
        (0..500).map(|number| producer.publish(Frame::new(ContentType::Json, 1, message(number))));
    for outcome in futures_util::future::join_all(publishes).await {
        assert!(!outcome.unwrap().duplicate);
    }
    let mut numbers: Vec<u64> = world
        .frames("t")
        .await
        .iter()
        .map(|(_, messages)| messages[0]["fields"]["number"].as_u64().unwrap())
        .collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..500));
}

#[tokio::test]
async fn what_the_queue_answers_is_told_as_it_would_be_in_process() {
    let config = QueueConfig { max_messages: 10, max_topics: 1, ..QueueConfig::default() };
    let world = World::with(config, gpuvitals_queue::server::HttpLimits::default()).await;
    let producer = to(&world);
    producer.publish(json(8)).await.unwrap();
    let full = producer.publish(json(5)).await.unwrap_err();
    assert_eq!(full, PublishError::Full { topic: "t".into(), retry_after: Some(Duration::from_secs(1)) });
    let refused = |error: PublishError| match error {
        PublishError::Refused { reason } => reason.to_string(),
        other => panic!("{other}"),
    };
    let large = producer.publish(json(11)).await.unwrap_err();
    assert!(matches!(large, PublishError::TooLarge { messages: 11, .. }), "{large}");
    let text = refused(producer.publish(Frame::new(ContentType::Batch, 1, "no batch")).await.unwrap_err());
    assert!(text.contains("GVB1"), "{text}");
    let mixed = format!("[{},7]", message(0));
    let text = refused(producer.publish(Frame::new(ContentType::Json, 2, mixed)).await.unwrap_err());
    assert!(text.contains("1 messages") && text.contains("others (1) were taken"), "{text}");
    let other = HttpProducer::new(&url("http", world.at), &Access::default(), "u").unwrap();
    assert!(refused(other.publish(json(1)).await.unwrap_err()).contains("topics"));
    assert!(HttpProducer::new(&url("http", world.at), &Access::default(), "a/b").is_err());
    world.queue.shutdown().await;
    assert!(producer.publish(json(1)).await.unwrap_err().is_retryable(), "it may come back");
}

#[tokio::test]
async fn a_queue_that_comes_back_gets_the_frame_once() {
    let world = World::new().await;
    let producer = to(&world);
    producer.publish(json(1)).await.unwrap();
    let (queue, at) = world.stop().await;
    let frame = Stamps::new().stamp(json(5));
    assert!(matches!(producer.publish(frame.clone()).await, Err(PublishError::Unavailable { .. })));
    let (cancel, backoff) = (CancellationToken::new(), gpuvitals_queue::link::Backoff::default());
    let publishing = publish_until(&producer, frame.clone(), &cancel, &backoff);
    let (receipt, world) =
        tokio::join!(publishing, async { World::over(queue, at, ServerConfig::default()).await });
    assert!(!receipt.unwrap().duplicate);
    assert!(producer.publish(frame).await.unwrap().duplicate);
    assert_eq!(world.queue.topic_stats("t").unwrap().messages, 6);
}

#[tokio::test]
async fn an_answer_that_is_no_queue_s_is_an_error_in_words() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let stranger = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"SSH-2.0-OpenSSH\r\n").await.unwrap();
        let mut rest = Vec::new();
        let _ended = stream.read_to_end(&mut rest).await;
    });
    let producer = HttpProducer::new(&url("http", at), &Access::default(), "t").unwrap();
    let error = producer.publish(json(1)).await.unwrap_err();
    assert!(matches!(error, PublishError::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains(&at.port().to_string()), "{error}");
    drop(producer);
    stranger.await.unwrap();
}

/// An authority, and a certificate of localhost that it signed.
fn certificate(folder: &Path) -> (PathBuf, TlsFiles) {
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let server = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let server = server.signed_by(&key, &authority).unwrap();
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let files = TlsFiles {
        certificate: write("server.pem", server.pem()),
        key: write("server.key", key.serialize_pem()),
        client_ca: None,
    };
    (write("ca.pem", authority.pem()), files)
}

#[tokio::test]
async fn over_tls_with_a_token_only_those_who_may_publish() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, files) = certificate(folder.path());
    let tokens = Tokens {
        publish: vec![Token::new("may-publish")],
        subscribe: vec![Token::new("may-subscribe")],
        ..Tokens::default()
    };
    let server = ServerConfig {
        tls: Some(tls_config(&files).unwrap()),
        tokens: Some(tokens),
        ..ServerConfig::default()
    };
    let world = World::serving(QueueConfig::default(), "127.0.0.1:0".parse().unwrap(), server).await;
    let publish = async |ca: Option<&PathBuf>, token: Option<&str>| {
        let access = Access { ca: ca.cloned(), token: token.map(Token::new), ..Access::default() };
        let producer = HttpProducer::new(&url("https", world.at), &access, "t").unwrap();
        assert!(!format!("{producer:?}").contains("may-"));
        producer.publish(json(1)).await
    };
    publish(Some(&ca), Some("may-publish")).await.unwrap();
    for token in [None, Some("may-subscribe"), Some("may-nothing")] {
        let error = publish(Some(&ca), token).await.unwrap_err();
        assert!(matches!(error, PublishError::Denied { .. }), "{error}");
        assert!(error.to_string().contains("token") && !error.to_string().contains("may-"), "{error}");
    }
    let error = publish(None, Some("may-publish")).await.unwrap_err();
    assert!(matches!(error, PublishError::Unavailable { .. }), "{error}");
    assert_eq!(world.queue.topic_stats("t").unwrap().messages, 1);
}
