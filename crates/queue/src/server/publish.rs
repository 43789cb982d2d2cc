//! `POST /publish/{topic}`.

use std::sync::Arc;
use std::task::Poll;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::poll;
use gpuvitals_listener::body::{Share, discard, receive};
use gpuvitals_listener::{echo, trace};
use serde::Serialize;
use tokio::time::{Instant, timeout_at};
use tracing::field::Empty;
use tracing::{Instrument, Span};
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::{IntoParams, ToSchema};

use super::admin::{Named, TopicName};
use super::body::{Coding, unpack};
use super::headers::{BATCH, JSON, PRODUCER, SEQUENCE};
use super::intake::{self, DocumentError, Form, Framing, Intake, Piece};
use super::metrics::Protocol;
use super::refusal::{ErrorBody, Progress, Refusal};
use super::served::Served;
use crate::broker::{FrameDurability, PublishError, Receipt};
use crate::frame::ProducerStamp;
use crate::name::{self, PRODUCER_LEN_MAX};

/// A longer body is read on a thread where it keeps nobody waiting.
const INLINE_MAX: usize = 64 << 10;

/// What became of a publish that was taken.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Published {
    #[serde(flatten)]
    progress: Progress,
    /// How safe the messages are now.
    durability: FrameDurability,
    /// Places of the new frames in the topic; frames that had been taken before have none.
    offsets: Vec<u64>,
    /// All of it had been taken before, and nothing was stored again.
    duplicate: bool,
}

/// One message, or an array of them.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes a body in the document")]
enum Messages {
    One(Message),
    Several(Vec<Message>),
}

/// A row of `gpu_events` as JSON.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "timestamp": "2026-01-01T00:00:00Z", "fields": {"gpu_id": "gpu_0", "temperature": 61, "power_draw": 402.25}
}))]
struct Message {
    #[schema(schema_with = timestamp)]
    timestamp: (),
    /// Identity (`uuid`, `gpu_id`, `hostname`, …) and metrics under any spelling the catalogue knows.
    #[schema(value_type = Object)]
    fields: (),
}

fn timestamp() -> ObjectBuilder {
    let words = "RFC 3339, or a number since 1970 in seconds, milliseconds, microseconds or nanoseconds.";
    ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::String, Type::Number]))
        .description(Some(words))
}

/// One message a line.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a body in the document")]
struct Lines(String);

/// A batch in its binary form (docs/wire-format.md).
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "describes a body in the document")]
struct BatchBody(String);

/// What the headers say of a body, as the document has it.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "`heading` reads them")]
struct PublishHeaders {
    /// How the body is packed.
    #[param(rename = "content-encoding", inline, nullable = false)]
    packed: Option<Coding>,
    /// Names one life of one producer. One that starts anew takes another name.
    #[param(rename = "x-gpuvitals-producer", min_length = 1, max_length = 128, nullable = false)]
    producer: Option<String>,
    /// Grows by one with every request of this producer; a repeat carries the same number. At most 128 of one producer may be under way.
    #[param(rename = "x-gpuvitals-sequence", format = "uint64", nullable = false)]
    sequence: Option<u64>,
}

/// What the headers say of a body.
#[derive(Debug)]
struct Heading {
    form: BodyForm,
    coding: Coding,
    stamp: Option<ProducerStamp>,
}

#[derive(Clone, Copy, Debug)]
enum BodyForm {
    Messages(Form),
    Batch,
}

/// Hands over messages.
///
/// Good messages are taken, bad ones are refused by their place. Long requests are cut into frames of at most 256
/// messages; when the topic fills up in the middle, the answer says how many were taken and where to go on.
///
/// With `x-gpuvitals-producer` and `x-gpuvitals-sequence` the request is one frame, taken whole or not at all, and a
/// repeat of it is recognised and not stored again.
#[utoipa::path(
    post, path = "/publish/{topic}", tag = "messages", operation_id = "publish", params(TopicName, PublishHeaders),
    request_body(
        description = "At most 4 MiB, and 16 MiB once unpacked.",
        content((Messages = "application/json"), (Lines = "application/x-ndjson"), (BatchBody = "application/vnd.gpuvitals.batch")),
    ),
    responses(
        (status = 200, description = "Taken, as durable as the answer says.", body = Published),
        (status = 400, description = "No message is good, or the topic, the producer or the body is not.", body = ErrorBody),
        (status = 408, description = "The body took too long.", body = ErrorBody),
        (status = 409, description = "There are too many topics, or the queue no longer knows whether the request was taken before.", body = ErrorBody),
        (status = 413, description = "The body is too long, or too long for one frame.", body = ErrorBody),
        (status = 415, description = "A type or a packing that is not understood.", body = ErrorBody),
        (status = 429, description = "The topic is full.", body = ErrorBody),
        (status = 500, description = "The queue cannot store.", body = ErrorBody),
        (status = 503, description = "Too busy, or the queue ends; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn publish(
    State(served): State<Served>,
    topic: Named<TopicName>,
    headers: HeaderMap,
    mut body: Body,
) -> Response {
    let began = Instant::now();
    let mut share = served.bodies().share();
    match read(&served, topic, &headers, &mut body, &mut share).await {
        Err(refusal) => {
            drop(share);
            discard(&mut body).await;
            refusal.into_response()
        }
        Ok((topic, intake)) => {
            let answer = hand_over(&served, &topic, intake).await;
            served.meter().published(Protocol::Http, began.elapsed());
            answer
        }
    }
}

async fn read(
    served: &Served,
    topic: Named<TopicName>,
    headers: &HeaderMap,
    body: &mut Body,
    share: &mut Share,
) -> Result<(String, Intake), Refusal> {
    let Path(TopicName { topic }) = topic?;
    name::check_destination(&topic).map_err(Refusal::Topic)?;
    let heading = heading(headers)?;
    let limits = *served.limits();
    let received = tokio::time::timeout(limits.request_time, receive(body, limits.body_bytes, share)).await;
    let received = received.map_err(|_| Refusal::BodySlow(limits.request_time.as_secs()))??;
    let intake = if received.len() <= INLINE_MAX && heading.coding == Coding::Identity {
        take(&received, &heading)?
    } else {
        let reader = served.reader().await?;
        // The budget is held until the work is over, whether or not the client still waits.
        let mut share = std::mem::replace(share, served.bodies().share());
        let work = move || {
            let _reader = reader;
            let document = unpack(received, heading.coding, limits.unpacked_bytes, &mut share)?;
            Ok::<_, Refusal>((take(&document, &heading)?, share))
        };
        let (intake, held) = tokio::task::spawn_blocking(work).await.map_err(|_| Refusal::Crashed)??;
        drop(held);
        intake
    };
    Ok((topic, intake))
}

fn heading(headers: &HeaderMap) -> Result<Heading, Refusal> {
    let text = |name| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
    // Names that are not UTF-8 would become one and the same.
    let exactly = |name| headers.get(name).map(|value| str::from_utf8(value.as_bytes())).transpose();
    let content_type = text(CONTENT_TYPE).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let form = match essence.as_str() {
        JSON => BodyForm::Messages(Form::Json),
        "application/x-ndjson" | "application/ndjson" => BodyForm::Messages(Form::Lines),
        BATCH => BodyForm::Batch,
        _ => return Err(Refusal::Type(echo(&content_type))),
    };
    let coding = Coding::parse(&text(CONTENT_ENCODING).unwrap_or_default())?;
    let producer = exactly(PRODUCER).map_err(|_| Refusal::Producer("x-gpuvitals-producer is not UTF-8"))?;
    let stamp = match (producer, text(SEQUENCE)) {
        (None, None) => None,
        (Some(id), Some(sequence)) => {
            let sequence = sequence.trim().parse().map_err(|_| {
                Refusal::Producer("x-gpuvitals-sequence is no whole number from 0 to 18446744073709551615")
            })?;
            if id.is_empty() || id.len() > PRODUCER_LEN_MAX {
                return Err(Refusal::Producer("x-gpuvitals-producer has 1 to 128 bytes"));
            }
            Some(ProducerStamp { id: id.into(), sequence })
        }
        _ => {
            return Err(Refusal::Producer("x-gpuvitals-producer and x-gpuvitals-sequence come together"));
        }
    };
    Ok(Heading { form, coding, stamp })
}

fn take(document: &Bytes, heading: &Heading) -> Result<Intake, Refusal> {
    let mut intake = match heading.form {
        BodyForm::Messages(form) => {
            // A stamp stands for one frame.
            let framing = if heading.stamp.is_some() { Framing::One } else { Framing::Several };
            intake::messages(document, form, framing)?
        }
        BodyForm::Batch => intake::batch(document)?,
    };
    for piece in &mut intake.pieces {
        piece.frame.producer.clone_from(&heading.stamp);
    }
    Ok(intake)
}

async fn hand_over(served: &Served, topic: &str, intake: Intake) -> Response {
    let Intake { mut pieces, refused, left_out } = intake;
    if pieces.is_empty() {
        let Some(first) = refused.named.first().cloned() else {
            return Refusal::Document(DocumentError::Empty).into_response();
        };
        let refusal = Refusal::NoGoodMessage { refused: refused.count, first };
        return refusal.with(Some(Progress::of(refused, left_out)));
    }
    let mut progress = Progress::of(refused, left_out);
    let messages: u64 = pieces.iter().map(|piece| u64::from(piece.frame.count)).sum();
    let span = publish_span(topic, messages);
    if let Some(trace) = trace::parent(&span).map(Arc::from) {
        for piece in &mut pieces {
            piece.frame.trace = Some(Arc::clone(&trace));
        }
    }
    let publishing = publish_in_order(served, topic, pieces, &mut progress);
    let outcome = publishing.instrument(span).await;
    let receipts = match outcome {
        Ok(receipts) => receipts,
        Err(refusal) => return refusal.with((progress.accepted > 0).then_some(progress)),
    };
    let durability =
        receipts.iter().map(|receipt| receipt.durability).min().unwrap_or(FrameDurability::Memory);
    let duplicate = receipts.iter().all(|receipt| receipt.duplicate);
    let offsets = receipts.iter().filter_map(|receipt| receipt.offset).collect();
    Json(Published { progress, durability, offsets, duplicate }).into_response()
}

/// The span of what a publisher waits for.
pub(super) fn publish_span(topic: &str, messages: u64) -> Span {
    tracing::info_span!(
        "publish",
        otel.name = %format_args!("publish {topic}"),
        otel.status_code = Empty,
        messaging.system = "gpuvitals",
        messaging.operation.name = "publish",
        messaging.destination.name = topic,
        messaging.batch.message_count = messages,
    )
}

/// Hands over frame by frame, and awaits them together. After the first that is refused at once there are no others; on
/// disk, those behind one that could not be stored may have been: then they are not counted, and sent again they are there
/// twice.
async fn publish_in_order(
    served: &Served,
    topic: &str,
    pieces: Vec<Piece>,
    progress: &mut Progress,
) -> Result<Vec<Receipt>, Refusal> {
    let deadline = Instant::now() + served.limits().request_time;
    let mut receipts = Vec::with_capacity(pieces.len());
    let mut under_way = Vec::with_capacity(pieces.len());
    for Piece { frame, next } in pieces {
        let count = u64::from(frame.count);
        let mut publishing = served.queue().publish(topic, frame);
        let known = match poll!(&mut publishing) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        };
        let over = matches!(known, Some(Err(_)));
        under_way.push((publishing, known, count, next));
        if over {
            break;
        }
    }
    for (publishing, known, count, next) in under_way {
        let outcome = match known {
            Some(outcome) => outcome,
            None => timeout_at(deadline, publishing)
                .await
                .map_err(|_| Refusal::Unanswered(served.limits().request_time.as_secs()))?,
        };
        receipts.push(outcome.map_err(|error: PublishError| Refusal::Publish { error })?);
        progress.accepted += count;
        progress.next = Some(next);
    }
    progress.next = None;
    Ok(receipts)
}
