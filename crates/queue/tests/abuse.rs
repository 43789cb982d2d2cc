//! What a careless or hostile client may do: it is told, it is bounded, and others are served.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::http;
use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt, stream};
use gpuvitals_listener::{AcceptError, ListenerLimits};
use gpuvitals_queue::link::{Credentials, GrpcConsumer, GrpcProducer, QueueUrl};
use gpuvitals_queue::protocol::v1::queue_client::QueueClient;
use gpuvitals_queue::protocol::v1::subscribe_request::What as Ask;
use gpuvitals_queue::protocol::v1::{self, PublishRequest};
use gpuvitals_queue::server::{self, HttpLimits, ServerConfig};
use gpuvitals_queue::{
    Consumer, ConsumerOptions, ContentType, Frame, Producer, PublishError, Queue, QueueClock, QueueConfig,
};
use gpuvitals_rig::waiting::retried;
use http_body_util::{BodyExt, StreamBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::body::Body;
use tonic::transport::{Channel, Endpoint};
use tower::{Service, ServiceExt};

const TOPIC: &str = "gpu-telemetry";

/// One test at a time: some measure the memory of this process.
static ALONE: Mutex<()> = Mutex::const_new(());

struct Rig {
    alone: MutexGuard<'static, ()>,
    queue: Queue,
    grpc: SocketAddr,
    stop: CancellationToken,
    served: JoinHandle<Result<(), AcceptError>>,
}

impl Rig {
    async fn new(queue: QueueConfig, config: ServerConfig) -> Self {
        let alone = ALONE.lock().await;
        let queue = Queue::in_process(queue, QueueClock::system());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let grpc = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let limits = ListenerLimits { drain: Duration::from_millis(200), ..config.limits };
        let config = ServerConfig { limits, ..config };
        let served = tokio::spawn(server::serve(listener, queue.clone(), config, stop.clone()));
        Self { alone, queue, grpc, stop, served }
    }

    async fn plain() -> Self {
        Self::new(QueueConfig::default(), ServerConfig::default()).await
    }

    fn url(&self) -> QueueUrl {
        format!("grpc://{}", self.grpc).parse().unwrap()
    }

    async fn client(&self) -> QueueClient<Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.grpc)).unwrap();
        QueueClient::new(endpoint.connect().await.unwrap())
    }

    /// A well-behaved pair gets its frame through.
    async fn serves_others(&self) {
        let (access, options) = (Credentials::default(), ConsumerOptions::default());
        let producer = GrpcProducer::new(&self.url(), &access, "others").unwrap();
        let mut consumer = GrpcConsumer::new(&self.url(), &access, "others", "g", &options).unwrap();
        let frame = Frame::new(ContentType::Json, 1, "{}");
        let receipt = in_time(producer.publish(frame)).await.unwrap();
        let id = in_time(consumer.receive()).await.unwrap().first().unwrap().id;
        assert_eq!(Some(id.offset), receipt.offset);
        assert_eq!(in_time(consumer.ack(&[id])).await, Ok(1));
        in_time(consumer.leave()).await;
    }

    async fn stop(self) {
        self.stop.cancel();
        in_time(self.served).await.unwrap().unwrap();
        drop(self.alone);
    }
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), work).await.expect("takes too long")
}

fn request(len: usize) -> PublishRequest {
    let frame = v1::Frame {
        content_type: v1::ContentType::Batch.into(),
        count: 1,
        payload: vec![7; len].into(),
        ..v1::Frame::default()
    };
    PublishRequest { topic: TOPIC.to_owned(), frame: Some(frame) }
}

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

#[tokio::test]
async fn a_frame_that_is_too_large_is_refused_and_its_stream_goes_on() {
    let config = ServerConfig { max_frame_bytes: 100_000, ..ServerConfig::default() };
    let rig = Rig::new(QueueConfig::default(), config).await;
    let mut client = rig.client().await;
    let requests = stream::iter([request(100_001), request(100_000)]);
    let answers = client.publish_stream(requests).await.unwrap().into_inner();
    let outcomes: Vec<_> = in_time(answers.map(|answer| answer.unwrap().outcome.unwrap()).collect()).await;
    let [v1::publish_reply::Outcome::Refusal(refusal), v1::publish_reply::Outcome::Receipt(_)] =
        &outcomes[..]
    else {
        panic!("{outcomes:?}")
    };
    let message = "frame of 1 messages and 100001 bytes is larger than what the queue takes";
    assert_eq!((&*refusal.message, refusal.retry_after_ms), (message, 0));
    assert_eq!(refusal.code, Code::OutOfRange as u32);
    // Our own producer knows before it sends.
    let producer = GrpcProducer::new(&rig.url(), &Credentials::default(), TOPIC).unwrap();
    let refused = in_time(producer.publish(Frame::new(ContentType::Batch, 1, vec![7; 100_001]))).await;
    assert_eq!(refused, Err(PublishError::TooLarge { messages: 1, bytes: 100_001 }));
    // What is beyond any frame is not even read.
    let status = client.publish(request(1_000_000)).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    rig.serves_others().await;
    rig.stop().await;
}

#[tokio::test]
async fn half_a_frame_is_no_frame() {
    let rig = Rig::plain().await;
    // A preface, settings, headers of a publish stream, and data that says 1,000 bytes and brings 3.
    let mut stream = TcpStream::connect(rig.grpc).await.unwrap();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    let path = "/gpuvitals.queue.v1.Queue/PublishStream";
    let mut block = vec![0x83, 0x86, 0x41, 1, b'q', 0x44, u8::try_from(path.len()).unwrap()];
    block.extend(path.as_bytes());
    block.extend([0x5f, 16]);
    block.extend(b"application/grpc");
    bytes.extend([0, 0, u8::try_from(block.len()).unwrap(), 1, 4, 0, 0, 0, 1]);
    bytes.extend(&block);
    bytes.extend([0, 0, 8, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3, 232, 10, 1, b't']);
    stream.write_all(&bytes).await.unwrap();
    let mut answer = [0; 9];
    in_time(stream.read_exact(&mut answer)).await.unwrap();
    drop(stream);
    rig.serves_others().await;
    assert_eq!(rig.queue.topics(), ["others".into()], "nothing was taken");
    rig.stop().await;
}

/// A stream on which so much of a message of 1,000,000 bytes comes, and then nothing until it ends.
async fn half_of_a_message(
    channel: &mut Channel,
    len: usize,
    end: &CancellationToken,
) -> http::Response<Body> {
    let mut bytes = vec![0];
    bytes.extend(1_000_000_u32.to_be_bytes());
    bytes.resize(5 + len, 0);
    let half = stream::iter([Ok::<_, Infallible>(hyper::body::Frame::data(Bytes::from(bytes)))]);
    let request = http::Request::post("http://q/gpuvitals.queue.v1.Queue/PublishStream")
        .header("content-type", "application/grpc")
        .body(Body::new(StreamBody::new(
            half.chain(stream::pending()).take_until(end.clone().cancelled_owned()),
        )));
    channel.ready().await.unwrap().call(request.unwrap()).await.unwrap()
}

/// The status that ends a stream.
async fn status_of(response: http::Response<Body>) -> (Code, String) {
    let trailers = response.into_body().collect().await.unwrap().trailers().cloned().unwrap();
    let status = tonic::Status::from_header_map(&trailers).unwrap();
    (status.code(), status.message().to_owned())
}

#[tokio::test]
async fn halves_of_long_messages_share_a_bound() {
    let http = HttpLimits { bodies_bytes: 1 << 20, ..HttpLimits::default() };
    let rig = Rig::new(QueueConfig::default(), ServerConfig { http, ..ServerConfig::default() }).await;
    let mut channel = Endpoint::from_shared(format!("http://{}", rig.grpc)).unwrap().connect().await.unwrap();
    let (mut streams, end) = (FuturesUnordered::new(), CancellationToken::new());
    for _ in 0..4 {
        streams.push(status_of(half_of_a_message(&mut channel, 300_000, &end).await));
    }
    let (code, message) = in_time(streams.next()).await.unwrap();
    assert_eq!((code, &*message), (Code::Unavailable, "too much is being received at once; come again"));
    // Three are within the bound, and small messages always are.
    rig.serves_others().await;
    assert!(streams.next().now_or_never().is_none());
    end.cancel();
    assert_eq!(in_time(streams.count()).await, 3);
    // What they took is free again.
    let producer = GrpcProducer::new(&rig.url(), &Credentials::default(), TOPIC).unwrap();
    in_time(producer.publish(Frame::new(ContentType::Batch, 1, vec![7; 900_000]))).await.unwrap();
    rig.stop().await;
}

#[tokio::test]
async fn the_rest_of_a_long_message_has_to_come_in_time() {
    let http = HttpLimits { request_time: Duration::from_millis(200), ..HttpLimits::default() };
    let rig = Rig::new(QueueConfig::default(), ServerConfig { http, ..ServerConfig::default() }).await;
    let mut channel = Endpoint::from_shared(format!("http://{}", rig.grpc)).unwrap().connect().await.unwrap();
    let end = CancellationToken::new();
    let (code, message) = in_time(status_of(half_of_a_message(&mut channel, 300_000, &end).await)).await;
    let expected = "half of a message came, and the rest not within 0.2 s";
    assert_eq!((code, &*message), (Code::DeadlineExceeded, expected));
    rig.stop().await;
}

#[tokio::test]
async fn what_is_no_grpc_is_told_so() {
    let rig = Rig::plain().await;
    for kind in ["", "content-type: application/json\r\n", "content-type: application/grpc-web\r\n"] {
        let mut stream = TcpStream::connect(rig.grpc).await.unwrap();
        let head =
            "POST /gpuvitals.queue.v1.Queue/Publish HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
        stream.write_all(format!("{head}{kind}content-length: 2\r\n\r\n{{}}").as_bytes()).await.unwrap();
        let mut answer = String::new();
        in_time(stream.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 415 "), "{answer}");
        assert!(
            answer.contains("this path speaks gRPC: POST with content-type application/grpc"),
            "{answer}"
        );
    }
    let long = vec![0xff; 64 << 10];
    for noise in [&b"\x16\x03\x01\x02\x00\x01\x00"[..], b"PRI * HTTP/2.0\r\n\r\nXX", &long] {
        let mut stream = TcpStream::connect(rig.grpc).await.unwrap();
        // The server may be gone before all of it is written.
        stream.write_all(noise).await.ok();
        stream.shutdown().await.ok();
        let mut rest = Vec::new();
        in_time(stream.read_to_end(&mut rest)).await.ok();
    }
    rig.serves_others().await;
    rig.stop().await;
}

#[tokio::test]
async fn a_thousand_silent_connections_cost_little_and_others_are_served() {
    const CONNECTIONS: u64 = 1_000;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let rig = Rig::plain().await;
    rig.serves_others().await;
    let before = resident();
    let mut silent = Vec::new();
    for number in 0..CONNECTIONS {
        let mut stream = in_time(TcpStream::connect(rig.grpc)).await.unwrap();
        // Half of them begin to speak HTTP/2.
        if number % 2 == 0 {
            stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
            let mut header = [0; 9];
            in_time(stream.read_exact(&mut header)).await.unwrap();
        }
        silent.push(stream);
    }
    rig.serves_others().await;
    let each = resident().saturating_sub(before) / CONNECTIONS;
    println!("{each} bytes of memory for each of {CONNECTIONS} silent connections, both ends");
    assert!(each < 64 << 10, "{each} bytes a connection");
    drop(silent);
    rig.stop().await;
}

#[tokio::test]
async fn for_one_connection_too_many_the_longest_idle_one_is_closed() {
    let limits = ListenerLimits { connections: 4, ..ListenerLimits::default() };
    let rig = Rig::new(QueueConfig::default(), ServerConfig { limits, ..ServerConfig::default() }).await;
    let mut idle = Vec::new();
    for _ in 0..8 {
        idle.push(TcpStream::connect(rig.grpc).await.unwrap());
    }
    rig.serves_others().await;
    let mut rest = Vec::new();
    assert_eq!(in_time(idle[0].read_to_end(&mut rest)).await.unwrap_or_default(), 0);
    rig.stop().await;
}

#[tokio::test]
async fn where_all_connections_are_in_use_a_new_one_is_closed_and_room_is_used_again() {
    let limits = ListenerLimits { connections: 1, ..ListenerLimits::default() };
    let rig = Rig::new(QueueConfig::default(), ServerConfig { limits, ..ServerConfig::default() }).await;
    let mut client = rig.client().await;
    let end = CancellationToken::new();
    let requests = stream::pending().take_until(end.clone().cancelled_owned());
    let answers = client.publish_stream(requests).await.unwrap().into_inner();
    let mut new = TcpStream::connect(rig.grpc).await.unwrap();
    let mut rest = Vec::new();
    assert_eq!(in_time(new.read_to_end(&mut rest)).await.unwrap_or_default(), 0);
    end.cancel();
    drop((answers, client));
    // The server learns of it at its own time.
    let publish = async || rig.client().await.publish(request(1)).await.ok();
    retried("room for a connection", publish).await;
    rig.stop().await;
}

#[tokio::test]
async fn a_subscriber_that_never_reads_is_given_what_fits_and_no_more() {
    let config = QueueConfig { max_retries: 0, ..QueueConfig::default() };
    let rig = Rig::new(config, ServerConfig::default()).await;
    let (topic, group) = (TOPIC.to_owned(), "g".to_owned());
    let join =
        v1::Join { topic, group, max_in_flight: u32::MAX, ack_timeout_ms: 600_000, ..v1::Join::default() };
    let join = v1::SubscribeRequest { request: 0, what: Some(Ask::Join(join)) };
    let requests = stream::once(std::future::ready(join)).chain(stream::pending());
    let answers = rig.client().await.subscribe(requests).await.unwrap().into_inner();
    // 200 MB in frames of 100 KB.
    let producer = GrpcProducer::new(&rig.url(), &Credentials::default(), TOPIC).unwrap();
    for _ in 0..2_000 {
        let frame = Frame::new(ContentType::Batch, 1, vec![7; 100 << 10]);
        in_time(producer.publish(frame)).await.unwrap();
    }
    rig.serves_others().await;
    let stats = rig.queue.topic_stats(TOPIC).unwrap();
    let given: u64 = stats.groups.values().map(|group| group.in_flight).sum();
    println!("{given} of 2,000 frames of 100 KiB were given to a subscriber that does not read");
    assert!((1..1_100).contains(&given), "{given} given");
    drop(answers);
    rig.stop().await;
}

#[tokio::test]
async fn a_publisher_that_reads_no_answer_is_held_back() {
    let rig = Rig::plain().await;
    let mut client = rig.client().await;
    let (sent, mut counted) = tokio::sync::watch::channel(0_u64);
    let endless = stream::unfold(sent, |sent| async {
        sent.send_modify(|count| *count += 1);
        // Refused, so that the topic's bound is not what ends it.
        let topic = "not a topic".to_owned();
        Some((PublishRequest { topic, ..request(1) }, sent))
    });
    let answers = client.publish_stream(endless).await.unwrap().into_inner();
    let before = resident();
    // Until nothing moves any more: neither side reads.
    in_time(async {
        while tokio::time::timeout(Duration::from_millis(500), counted.changed()).await.is_ok() {}
    })
    .await;
    let grown = resident().saturating_sub(before) >> 10;
    let count = *counted.borrow();
    println!("held back after {count} frames, {grown} KiB of memory, both ends");
    assert!(count > 128 && grown < 64 << 10, "{count} frames, {grown} KiB");
    rig.serves_others().await;
    drop(answers);
    rig.stop().await;
}
