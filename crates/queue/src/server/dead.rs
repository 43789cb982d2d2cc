//! Dead letters: to list, to give back, to throw away.

use std::io::Read as _;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gpuvitals_listener::body::receive;
use gpuvitals_listener::parameter;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::{IntoParams, ToSchema};

use super::admin::{Named, TopicName, spelled};
use super::body::unzstd;
use super::refusal::{ErrorBody, Refusal};
use super::served::Served;
use crate::broker::{AdminError, DeadLetter, DeadSelection, Replayed};
use crate::frame::{ContentType, Encoding, Frame};
use crate::service::Queue;

/// Letters in a list unless asked otherwise, and at most.
const PAGE: usize = 50;
const PAGE_MAX: usize = 500;
/// Letters that are asked for at once: those of a durable queue come from disk with their frames.
const STEP: usize = 16;
/// Bytes of messages after which a list ends, whatever was asked.
const LIST_BYTES: usize = 4 << 20;
/// Bytes of messages of one letter that are shown; the rest is counted.
const LETTER_BYTES: usize = 256 << 10;
/// A frame whose messages unpack to more is shown as the bytes it is.
const UNPACKED_MAX: u64 = 16 << 20;
/// Most ids in one request, and so longest body.
const IDS_MAX: usize = 10_000;
const BODY_MAX: usize = 24 * IDS_MAX;
/// How long a replay works before it answers with what is left.
const REPLAY_TIME: Duration = Duration::from_secs(20);

/// Which letters of a topic.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Page {
    /// Id of the first letter; letters before it are passed over.
    #[param(value_type = Option<u64>, format = "uint64", default = 0)]
    from: Option<String>,
    #[param(schema_with = page)]
    limit: Option<String>,
    /// Whether messages and payloads are wanted; without them a letter has `payload_bytes`.
    #[param(value_type = Option<bool>, default = true)]
    content: Option<String>,
}

fn page() -> ObjectBuilder {
    let words = "Most letters. A list also ends after 4 MiB of messages.";
    let limit = ObjectBuilder::new().schema_type(Type::Integer).default(Some(PAGE.into()));
    limit.minimum(Some(1)).maximum(Some(PAGE_MAX)).description(Some(words))
}

/// Dead letters, oldest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DeadLetters)]
pub(crate) struct Letters {
    dead: Vec<Letter>,
    /// `from` of the next page, which may be empty; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    next: Option<u64>,
}

/// A frame that a group gave up on.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DeadLetter)]
struct Letter {
    id: u64,
    /// The group that gave up on it.
    group: String,
    /// Place of its frame in the topic.
    offset: u64,
    /// The last failure.
    reason: String,
    attempts: u32,
    #[schema(format = DateTime)]
    published_at: String,
    #[schema(format = DateTime)]
    died_at: String,
    #[schema(inline)]
    content_type: ContentType,
    #[schema(inline)]
    encoding: Encoding,
    /// Messages of the frame.
    messages_count: u32,
    #[serde(flatten)]
    content: Content,
}

/// The messages themselves, as far as they can be shown.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = DeadContent)]
enum Content {
    /// JSON that could be read.
    Messages {
        /// The messages, up to 256 KiB.
        #[schema(value_type = Vec<serde_json::Value>)]
        messages: Vec<Box<RawValue>>,
        /// How many more there are.
        messages_left_out: u64,
    },
    /// No JSON, up to 256 KiB.
    Payload {
        /// The payload of the whole frame.
        payload_base64: String,
    },
    /// A payload that is longer, or was not asked for.
    Size {
        /// How long the payload is.
        payload_bytes: usize,
    },
}

/// Dead letters, oldest first.
#[utoipa::path(
    get, path = "/topics/{topic}/dead", tag = "dead letters", operation_id = "dead_letters", params(TopicName, Page),
    responses(
        (status = 200, description = "Letters.", body = Letters),
        (status = 400, description = "A parameter is not allowed.", body = ErrorBody),
        (status = 404, description = "No such topic.", body = ErrorBody),
        (status = 503, description = "Too busy; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn list(
    State(served): State<Served>,
    topic: Named<TopicName>,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Json<Letters>, Refusal> {
    let (Path(TopicName { topic }), Query(page)) = (topic?, page?);
    let from = match page.from.as_deref() {
        None | Some("") => 0,
        Some(text) => {
            text.parse().map_err(|_| Refusal::parameter("from", text, "the id of a dead letter"))?
        }
    };
    let limit = match page.limit.as_deref() {
        None | Some("") => PAGE,
        Some(text) => parameter::whole("limit", text, 1..=PAGE_MAX)?,
    };
    let is_wanted = match page.content.as_deref() {
        None | Some("") => true,
        Some(text) => parameter::flag("content", text)?,
    };
    let content: Contents = if is_wanted { content } else { size };
    // Before anything is read: what is read may be long.
    let reader = served.reader().await?;
    let found = gather(served.queue(), &topic, from, limit).await?;
    let work = move || {
        let _reader = reader;
        shown(found, limit, content)
    };
    tokio::task::spawn_blocking(work).await.map(Json).map_err(|_| Refusal::Crashed)
}

/// Letters from an id on.
#[derive(Debug)]
struct FoundLetters {
    letters: Vec<DeadLetter>,
    /// Where to go on behind them, unless they are the last.
    next: Option<u64>,
}

/// One letter more than `limit`, or as many as have not too many bytes.
async fn gather(queue: &Queue, topic: &str, from: u64, limit: usize) -> Result<FoundLetters, AdminError> {
    let mut found = FoundLetters { letters: Vec::new(), next: Some(from) };
    let mut bytes = 0;
    while let Some(next) = found.next.filter(|_| found.letters.len() <= limit && bytes < LIST_BYTES) {
        let some = queue.dead_letters(topic, next, STEP).await?;
        bytes += some.iter().map(|letter| letter.frame.payload.len()).sum::<usize>();
        found.next = some.get(STEP - 1).map(|last| last.id.saturating_add(1));
        found.letters.extend(some);
    }
    Ok(found)
}

/// What is shown of the messages of a frame, and how many bytes they have there.
type Contents = fn(&Frame) -> (Content, usize);

fn shown(found: FoundLetters, limit: usize, content: Contents) -> Letters {
    let (mut dead, mut bytes) = (Vec::new(), 0);
    for letter in found.letters {
        if dead.len() >= limit || bytes >= LIST_BYTES {
            return Letters { dead, next: Some(letter.id) };
        }
        let (letter, len) = show(&letter, content);
        bytes += len;
        dead.push(letter);
    }
    Letters { dead, next: found.next }
}

/// A letter as it is shown, and how many bytes its messages have there.
fn show(letter: &DeadLetter, content: Contents) -> (Letter, usize) {
    let frame = &letter.frame;
    let (content, bytes) = content(frame);
    let facts = &letter.facts;
    let shown = Letter {
        id: letter.id,
        group: facts.group.to_string(),
        offset: facts.offset,
        reason: facts.reason.to_string(),
        attempts: facts.attempts,
        published_at: spelled(facts.published_at),
        died_at: spelled(letter.died_at),
        content_type: frame.content_type,
        encoding: frame.encoding,
        messages_count: frame.count,
        content,
    };
    (shown, bytes)
}

fn size(frame: &Frame) -> (Content, usize) {
    (Content::Size { payload_bytes: frame.payload.len() }, 0)
}

fn content(frame: &Frame) -> (Content, usize) {
    let json = (frame.content_type == ContentType::Json).then(|| messages(frame)).flatten();
    if let Some(all) = json {
        let (mut messages, mut bytes) = (Vec::new(), 0);
        let count = all.len();
        for message in all {
            bytes += message.get().len();
            if bytes > LETTER_BYTES {
                break;
            }
            messages.push(message);
        }
        let left_out = u64::try_from(count - messages.len()).unwrap_or(u64::MAX);
        return (Content::Messages { messages, messages_left_out: left_out }, bytes.min(LETTER_BYTES));
    }
    let len = frame.payload.len();
    if len > LETTER_BYTES {
        return (Content::Size { payload_bytes: len }, 0);
    }
    (Content::Payload { payload_base64: STANDARD.encode(&frame.payload) }, len)
}

/// The messages of a frame of JSON, if it can be read.
fn messages(frame: &Frame) -> Option<Vec<Box<RawValue>>> {
    let mut unpacked = Vec::new();
    let document: &[u8] = match frame.encoding {
        Encoding::Identity => &frame.payload,
        Encoding::Zstd => {
            let unpacking = unzstd(frame.payload.as_ref()).ok()?;
            unpacking.take(UNPACKED_MAX + 1).read_to_end(&mut unpacked).ok()?;
            &unpacked
        }
    };
    if u64::try_from(document.len()).is_ok_and(|len| len > UNPACKED_MAX) {
        return None;
    }
    let document = document.trim_ascii();
    if document.first() == Some(&b'[') {
        serde_json::from_slice(document).ok()
    } else {
        Some(vec![serde_json::from_slice(document).ok()?])
    }
}

/// `ids` or `oldest`, one of them; at most 10,000 letters.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
#[schema(as = Replay)]
struct ReplayRequest {
    #[schema(max_items = 10000)]
    ids: Option<Vec<u64>>,
    oldest: Option<usize>,
    /// Not faster than this; without it, at once.
    #[schema(exclusive_minimum = 0)]
    messages_per_second: Option<f64>,
}

/// What a replay did.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = Replayed)]
pub(crate) struct ReplayAnswer {
    /// Letters that were put back.
    letters: usize,
    /// Letters left because the topic is full.
    without_room: usize,
    /// Letters left because their messages are gone.
    unreadable: usize,
    /// Letters that were not tried within 20 s: ask again.
    left: usize,
}

impl ReplayAnswer {
    fn add(&mut self, replayed: Replayed) {
        self.letters += replayed.letters;
        self.without_room += replayed.without_room;
        self.unreadable += replayed.unreadable;
    }
}

/// Publishes dead letters to their topic again, for all of its groups, and removes them.
#[utoipa::path(
    post, path = "/topics/{topic}/dead/replay", tag = "dead letters", operation_id = "replay_dead", params(TopicName),
    request_body = ReplayRequest,
    responses(
        (status = 200, description = "What was put back. A replay ends after 20 s; `left` says what is to do.", body = ReplayAnswer),
        (status = 400, description = "The body is not as described.", body = ErrorBody),
        (status = 404, description = "No such topic.", body = ErrorBody),
        (status = 408, description = "The body took too long.", body = ErrorBody),
        (status = 413, description = "The body is too long.", body = ErrorBody),
        (status = 500, description = "The queue cannot store.", body = ErrorBody),
        (status = 503, description = "Too busy, or the queue ends; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn replay(
    State(served): State<Served>,
    topic: Named<TopicName>,
    mut body: Body,
) -> Result<Json<ReplayAnswer>, Refusal> {
    let Path(TopicName { topic }) = topic?;
    let mut share = served.bodies().share();
    let time = served.limits().request_time;
    let received = tokio::time::timeout(time, receive(&mut body, BODY_MAX, &mut share)).await;
    let received = received.map_err(|_| Refusal::BodySlow(time.as_secs()))??;
    let asked: ReplayRequest = serde_json::from_slice(&received).map_err(|error| {
        let allowed = format!("{{\"ids\": [...]}} or {{\"oldest\": N}} as JSON ({error})");
        Refusal::parameter("body", &String::from_utf8_lossy(&received), allowed)
    })?;
    let selection = selection(asked.ids, asked.oldest)?;
    let rate = asked.messages_per_second;
    if let Some(rate) = rate.filter(|rate| !rate.is_finite() || *rate <= 0.0) {
        return Err(Refusal::parameter("messages_per_second", &rate.to_string(), "a number above 0"));
    }
    let letters = served.queue().select_dead(&topic, &selection)?;
    replay_within(served.queue(), &topic, &letters, rate).await.map(Json)
}

fn selection(ids: Option<Vec<u64>>, oldest: Option<usize>) -> Result<DeadSelection, Refusal> {
    match (ids, oldest) {
        (Some(ids), None) if ids.len() > IDS_MAX => {
            Err(Refusal::parameter("ids", &ids.len().to_string(), format!("at most {IDS_MAX} of them")))
        }
        // The document's format is int64: no letter has a larger number.
        (Some(ids), None) => match ids.iter().find(|id| i64::try_from(**id).is_err()) {
            Some(id) => {
                Err(Refusal::parameter("ids", &id.to_string(), format!("numbers up to {}", i64::MAX)))
            }
            None => Ok(DeadSelection::Ids(ids)),
        },
        (None, Some(oldest)) => Ok(DeadSelection::Oldest(oldest)),
        _ => Err(Refusal::Selection),
    }
}

/// Puts letters back, at a rate each when those before it have had their time, for as long as a replay may work.
async fn replay_within(
    queue: &Queue,
    topic: &str,
    letters: &[(u64, u32)],
    rate: Option<f64>,
) -> Result<ReplayAnswer, Refusal> {
    let mut answer = ReplayAnswer { left: letters.len(), ..ReplayAnswer::default() };
    let until = Instant::now() + REPLAY_TIME;
    let mut next = Instant::now();
    for some in letters.chunks(if rate.is_some() { 1 } else { STEP }) {
        if next > until {
            break;
        }
        sleep_until(next).await;
        let ids: Vec<u64> = some.iter().map(|(id, _)| *id).collect();
        let replayed = queue.replay_dead(topic, &ids).await;
        answer.add(replayed.map_err(|error| Refusal::Publish { error })?);
        answer.left -= ids.len();
        let time = rate.map(|rate| {
            let messages: f64 = some.iter().map(|(_, messages)| f64::from(*messages)).sum();
            Duration::try_from_secs_f64(messages / rate).unwrap_or(REPLAY_TIME).min(2 * REPLAY_TIME)
        });
        next = time.map_or_else(Instant::now, |time| next + time);
    }
    Ok(answer)
}

/// Which letters go; all without it.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// These ids with commas between them.
    #[param(pattern = "^ *[0-9]{1,19} *(?:, *[0-9]{1,19} *)*$", example = "1,2,3")]
    ids: Option<String>,
    /// So many of the oldest.
    #[param(value_type = Option<usize>)]
    oldest: Option<String>,
}

/// What a purge did.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Purged {
    /// Letters that were thrown away.
    letters: usize,
}

/// Throws dead letters away: those named, or all of the topic.
#[utoipa::path(
    delete, path = "/topics/{topic}/dead", tag = "dead letters", operation_id = "purge_dead", params(TopicName, Which),
    responses(
        (status = 200, description = "How many went.", body = Purged),
        (status = 400, description = "A parameter is not allowed.", body = ErrorBody),
        (status = 404, description = "No such topic.", body = ErrorBody),
    )
)]
pub(crate) async fn purge(
    State(served): State<Served>,
    topic: Named<TopicName>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Purged>, Refusal> {
    let (Path(TopicName { topic }), Query(which)) = (topic?, which?);
    let ids = which.ids.map(|text| {
        let ids: Result<Vec<u64>, _> = text.split(',').map(|id| id.trim().parse()).collect();
        ids.map_err(|_| Refusal::parameter("ids", &text, "ids of dead letters with commas between them"))
    });
    let oldest = which.oldest.map(|text| {
        text.parse().map_err(|_| Refusal::parameter("oldest", &text, "a whole number from 0 on"))
    });
    let selection = match (ids.transpose()?, oldest.transpose()?) {
        (None, None) => DeadSelection::Oldest(usize::MAX),
        (ids, oldest) => selection(ids, oldest)?,
    };
    Ok(Json(Purged { letters: served.queue().purge_dead(&topic, &selection)? }))
}
