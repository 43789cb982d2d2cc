//! Rows that may not be stored. They are published as dead letters of their topic; the good rows of their frame are stored.

use std::collections::VecDeque;

use gpuvitals_core::foreign::{Meaning, meaning};
use gpuvitals_core::message::MessageError;
use gpuvitals_core::quantity::counted;
use gpuvitals_core::{Batch, IdentityColumn, causes, time, wire};
use gpuvitals_queue::link::{AnyProducer, Event, Patience, Sender};
use gpuvitals_queue::{ContentType, DeadFacts, Delivery, DeliveryId, Frame, PublishError};
use serde_json::Value;

use crate::CollectorProgress;

/// Frames whose dead letters share one producer id; the offset within such a block is the sequence. Fewer
/// than the sequences that a queue remembers, because frames come in any order.
const BLOCK: u64 = 64;

/// The way of bad rows to the dead letters.
#[derive(Debug)]
pub(super) struct BadRows {
    /// Name of the group in which the collector reads.
    pub group: String,
    /// Publishes to the topic of dead letters.
    pub producer: AnyProducer,
}

impl BadRows {
    /// Publishes dead letters, and retries those that the queue cannot take yet. Returns those that it refuses for good,
    /// with the reason.
    pub(super) async fn publish(
        &self,
        letters: Vec<(DeliveryId, Frame)>,
        progress: &CollectorProgress,
    ) -> Vec<(DeliveryId, PublishError)> {
        let mut letters = VecDeque::from(letters);
        let mut refused = Vec::new();
        let mut sender = Sender::new(&self.producer, self.producer.window(), Patience::Passing);
        loop {
            while sender.has_room()
                && let Some((id, letter)) = letters.pop_front()
            {
                sender.send(id, letter);
            }
            if sender.is_idle() {
                return refused;
            }
            match sender.event().await {
                Event::Taken { .. } => progress.dead_letter(Ok(())),
                Event::Failed(error) => progress.dead_letter(Err(&causes(&error))),
                Event::Refused { tag, error } => refused.push((tag, error)),
            }
        }
    }
}

/// The dead letter for messages of a JSON document that are not rows.
///
/// # Errors
/// If the document cannot be read again, in words.
pub(super) fn messages(
    delivery: &Delivery,
    group: &str,
    document: &[u8],
    refused: &[(usize, MessageError)],
) -> Result<Option<Frame>, String> {
    let Some((first, error)) = refused.first() else { return Ok(None) };
    let all = match serde_json::from_slice(document).map_err(|e| e.to_string())? {
        Value::Array(messages) => messages,
        message => vec![message],
    };
    let bad: Vec<&Value> = refused.iter().filter_map(|(index, _)| all.get(*index)).collect();
    let fields = all.get(*first).and_then(|message| message.get("fields")?.as_object());
    let field = |wanted: Meaning| {
        let mut fields = fields.into_iter().flatten().filter(|(_, value)| !value.is_null());
        let (_, value) = fields.find(|(name, _)| meaning(name) == wanted)?;
        Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    let gpu = field(Meaning::Identity(IdentityColumn::Uuid)).or_else(|| field(Meaning::Gpu));
    let host = field(Meaning::Identity(IdentityColumn::Node));
    let reason = format!(
        "{} of {} messages are no rows; the first{}: {}",
        bad.len(),
        all.len(),
        place(gpu.as_deref(), host.as_deref()),
        causes(error)
    );
    let count = u32::try_from(bad.len()).unwrap_or(u32::MAX);
    let payload = serde_json::to_vec(&bad).map_err(|e| e.to_string())?;
    let frame = Frame::new(ContentType::Json, count, payload);
    Ok(Some(BadPart { part: "messages", reason, frame }.letter(delivery, group)))
}

/// The dead letter for rows whose time is too far ahead.
///
/// # Errors
/// If they cannot be written, in words.
pub(super) fn ahead(delivery: &Delivery, group: &str, rows: &Batch) -> Result<Frame, String> {
    let identity = rows.identity(0);
    let at = rows.timestamps().first().map_or_else(String::new, |at| format!(" at {}", time::format(*at)));
    let reason = format!(
        "{} with a time more than an hour ahead of the collector's clock; the first{}{at}",
        counted(u64::try_from(rows.rows()).unwrap_or(u64::MAX), "row"),
        place(identity.key().as_deref(), identity.get(IdentityColumn::Node)),
    );
    let count = u32::try_from(rows.rows()).unwrap_or(u32::MAX);
    let payload = wire::encode(rows).map_err(|e| causes(&e))?;
    let frame = Frame::new(ContentType::Batch, count, payload);
    Ok(BadPart { part: "ahead", reason, frame }.letter(delivery, group))
}

fn place(gpu: Option<&str>, host: Option<&str>) -> String {
    let gpu = gpu.map_or_else(String::new, |gpu| format!(" of GPU {gpu}"));
    let host = host.map_or_else(String::new, |host| format!(" on host {host}"));
    gpu + &host
}

/// What is bad of a frame.
struct BadPart {
    /// Tells its dead letter from others of the frame.
    part: &'static str,
    reason: String,
    frame: Frame,
}

impl BadPart {
    /// Its dead letter, with a stamp derived from its original frame: a repeat is recognised.
    fn letter(self, delivery: &Delivery, group: &str) -> Frame {
        let Self { part, reason, frame } = self;
        let offset = delivery.id.offset;
        tracing::warn!(offset, reason, "rows go to the dead letters");
        let facts = DeadFacts {
            topic: delivery.topic.clone(),
            group: group.into(),
            offset,
            attempts: delivery.attempt,
            reason: DeadFacts::shortened(&reason),
            published_at: delivery.published_at,
        };
        let id = format!("{group}/{part}/{}", offset / BLOCK);
        Frame { dead: Some(Box::new(facts)), ..frame }.stamped(id, offset % BLOCK)
    }
}
