//! What a client of another make may send.

use futures_util::{StreamExt as _, stream};
use gpuvitals_queue::protocol::v1;
use gpuvitals_queue::protocol::v1::subscribe_request::What as Ask;
use gpuvitals_queue::{ContentType, DeadFacts, Frame, Millis};
use prost::Message as _;
use tonic::{Code, Status};

use super::away::json;
use super::rig::{Rig, TOPIC, in_time};

fn request(topic: &str, frame: Option<v1::Frame>) -> v1::PublishRequest {
    v1::PublishRequest { topic: topic.to_owned(), frame }
}

#[tokio::test]
async fn one_call_publishes_one_frame() {
    let rig = Rig::new();
    let mut client = rig.raw().await;
    let receipt = client.publish(request(TOPIC, Some(json("{}")))).await.unwrap().into_inner();
    assert_eq!((receipt.offset, receipt.durability()), (Some(0), v1::Durability::Memory));
    assert_eq!(rig.held(), 1);
    rig.stop().await;
}

#[tokio::test]
async fn a_call_that_fails_says_which_field_and_when_to_come_again() {
    let rig = Rig::with(|config| config.max_messages = 1, |_| {});
    let mut client = rig.raw().await;
    client.publish(request(TOPIC, Some(json("{}")))).await.unwrap();
    let many = || v1::Frame { count: 9, ..json("[]") };
    let stamped = |id: &str| v1::Frame {
        producer: Some(v1::Producer { id: id.to_owned(), sequence: 0 }),
        ..json("{}")
    };
    let cases = [
        (
            request("a/b", Some(json("{}"))),
            Code::InvalidArgument,
            "cannot publish to a topic of this name: character '/' at byte 1",
        ),
        (
            request("", Some(json("{}"))),
            Code::InvalidArgument,
            "cannot publish to a topic of this name: name is empty",
        ),
        (request(TOPIC, None), Code::InvalidArgument, "frame is missing"),
        (request(TOPIC, Some(many())), Code::OutOfRange, "frame of 9 messages"),
        (request(TOPIC, Some(stamped(""))), Code::InvalidArgument, "producer id has 0 bytes"),
        (
            request(TOPIC, Some(json("{}"))),
            Code::ResourceExhausted,
            "topic gpu-telemetry is full: more comes than is collected. Start or add collectors",
        ),
    ];
    for (request, code, message) in cases {
        let status = client.publish(request).await.unwrap_err();
        assert!(status.code() == code && status.message().contains(message), "{status}");
        let retry = status.metadata().get("retry-after-ms").map(|ms| ms.to_str().unwrap().to_owned());
        assert_eq!(retry, (code == Code::ResourceExhausted).then(|| "250".to_owned()));
    }
    rig.stop().await;
}

#[tokio::test]
async fn a_refused_frame_does_not_end_its_stream() {
    let rig = Rig::new();
    let mut client = rig.raw().await;
    let bad = v1::Frame { content_type: 0, ..json("{}") };
    // The second names no topic: it is that of the first.
    let requests = [
        request(TOPIC, Some(json("{}"))),
        request("", Some(bad)),
        request("not a topic", Some(json("{}"))),
        request("other", Some(json("{}"))),
        request("", Some(json("{}"))),
    ];
    let response = client.publish_stream(stream::iter(requests)).await.unwrap();
    assert_eq!(response.metadata().get("max-frame-bytes").unwrap(), "4194304");
    let mut answers = response.into_inner();
    let mut said = Vec::new();
    while let Some(answer) = in_time(answers.message()).await.unwrap() {
        said.push(match answer.outcome.unwrap() {
            v1::publish_reply::Outcome::Receipt(receipt) => format!("{:?}", receipt.offset.unwrap()),
            v1::publish_reply::Outcome::Refusal(refusal) => refusal.message,
        });
    }
    assert_eq!(said.len(), 5, "{said:?}");
    assert_eq!((&*said[0], &*said[3], &*said[4]), ("0", "0", "1"));
    assert_eq!(said[1], "frame.content_type is missing");
    assert!(said[2].starts_with("cannot publish to a topic of this name: character ' '"), "{}", said[2]);
    assert_eq!(rig.queue.topic_stats("other").unwrap().messages, 2);
    rig.stop().await;
}

#[tokio::test]
async fn a_stream_without_a_join_or_with_one_that_cannot_be_is_refused() {
    let rig = Rig::new();
    let join = |topic: &str, group: &str, max_in_flight| {
        let (topic, group) = (topic.to_owned(), group.to_owned());
        Ask::Join(v1::Join { topic, group, max_in_flight, ..v1::Join::default() })
    };
    let no_id = v1::Nack { refusals: vec![v1::Refuse::default()] };
    let cases = [
        (vec![Some(Ask::Leave(v1::Leave {}))], "the first request is a Join"),
        (vec![None], "the first request is a Join"),
        (vec![Some(join("t", "g", 0))], "join.max_in_flight is 0, at least 1 is needed"),
        (vec![Some(join("t t", "g", 1))], "cannot subscribe to a topic of this name: character ' '"),
        (vec![Some(join("t", "", 1))], "cannot subscribe as a group of this name: name is empty"),
        (vec![Some(join("t", "g", 1)), Some(join("t", "g", 1))], "a second Join on one stream"),
        (vec![Some(join("t", "g", 1)), None], "what is missing"),
        (vec![Some(join("t", "g", 1)), Some(Ask::Nack(no_id))], "id is missing"),
    ];
    for (asked, message) in cases {
        let status = subscribe_until_the_end(&rig, asked).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().starts_with(message), "{status}");
    }
    rig.stop().await;
}

async fn subscribe_until_the_end(rig: &Rig, asked: Vec<Option<Ask>>) -> Result<(), Status> {
    let requests = asked.into_iter().map(|what| v1::SubscribeRequest { request: 0, what });
    let mut answers = rig.raw().await.subscribe(stream::iter(requests)).await?.into_inner();
    while in_time(answers.message()).await?.is_some() {}
    Ok(())
}

#[tokio::test]
async fn what_comes_at_once_is_bounded_with_all_that_goes_with_it() {
    const COUNT: u32 = 4_000;
    let rig = Rig::new();
    for number in 0..COUNT {
        let mut frame = Frame::new(ContentType::Json, 1, "{}").stamped("p".repeat(100), number.into());
        frame.dead = Some(Box::new(DeadFacts {
            topic: TOPIC.into(),
            group: "g".into(),
            offset: 1,
            attempts: 1,
            reason: "r".repeat(500).into(),
            published_at: Millis(1),
        }));
        rig.queue.publish(TOPIC, frame).await.unwrap();
    }
    let (topic, group) = (TOPIC.to_owned(), "g".to_owned());
    let join = v1::Join { topic, group, max_in_flight: COUNT, max_batch: COUNT, ..v1::Join::default() };
    let ask = v1::SubscribeRequest { request: 0, what: Some(Ask::Join(join)) };
    let requests = stream::iter([ask]).chain(stream::pending());
    let mut client = rig.raw().await;
    let mut answers = client.subscribe(requests).await.unwrap().into_inner();
    let mut came = 0;
    while came < COUNT as usize {
        let reply = in_time(answers.message()).await.unwrap().unwrap();
        if let Some(v1::subscribe_reply::What::Deliveries(deliveries)) = reply.what {
            assert!(deliveries.encoded_len() < (1 << 20) + (64 << 10), "{}", deliveries.encoded_len());
            came += deliveries.deliveries.len();
        }
    }
    drop((answers, client));
    rig.stop().await;
}

#[tokio::test]
async fn a_request_with_a_number_is_answered_and_one_without_only_if_it_is_wrong() {
    let rig = Rig::new();
    let mut client = rig.raw().await;
    let (requests, mut outgoing) = tokio::sync::mpsc::channel(8);
    let body = stream::poll_fn(move |context| outgoing.poll_recv(context));
    let ask = |request, what| v1::SubscribeRequest { request, what: Some(what) };
    let (topic, group) = (TOPIC.to_owned(), "g".to_owned());
    let join = v1::Join { topic, group, max_in_flight: 9, ..v1::Join::default() };
    requests.send(ask(0, Ask::Join(join))).await.unwrap();
    let response = client.subscribe(body).await.unwrap();
    assert_eq!(response.metadata().get("max-frame-bytes").unwrap(), "4194304");
    let mut answers = response.into_inner();
    let unknown = v1::DeliveryId { offset: 77, token: 1 };
    let ack = |ids: Vec<_>| Ask::Ack(v1::Ack { ids });
    for (request, what) in [
        (0, ack(vec![])),
        (5, ack(vec![])),
        (0, ack(vec![unknown])),
        (6, Ask::Extend(v1::Extend { ids: vec![], by_ms: 1 })),
        (0, Ask::Leave(v1::Leave {})),
    ] {
        requests.send(ask(request, what)).await.unwrap();
    }
    let mut said = Vec::new();
    while let Some(reply) = in_time(answers.message()).await.unwrap() {
        if let Some(v1::subscribe_reply::What::Settled(settled)) = reply.what {
            said.push((settled.request, settled.problem.map(|problem| (problem.kind(), problem.id))));
        }
    }
    let problem = Some((v1::ProblemKind::Unknown, Some(unknown)));
    assert_eq!(said, [(5, None), (0, problem), (6, None)]);
    rig.stop().await;
}
