//! Printing messages as they arrive.
//!
//! A tail is a group of its own that ends soon after it: other groups still get every message, and a killed
//! tail holds nothing for long. Nor does it hold up the queue: if its output is read too slowly, messages are
//! missed and counted. If no other group takes from the topic, the messages that a tail acknowledges are
//! dropped, so there it needs a flag.
#![expect(clippy::indexing_slicing, reason = "a key that JSON lacks reads as null")]

use std::io::Write;
use std::num::NonZeroU32;
use std::time::Duration;

use clap::{Args, ValueEnum};
use gpuvitals_core::{causes, clock};
use gpuvitals_queue::link::{Away, Client, Scheme, check_topic};
use gpuvitals_queue::{Consumer, ConsumerOptions, DeliveryId, ReceiveError, Start};
use tokio::sync::{mpsc, watch};

use super::admin::Admin;
use super::answer::runtime;
use super::messages;
use super::place::{Place, TAIL_PREFIX};
use crate::failure::{Exit, Failure};
use crate::service::Signals;

/// How long the group of a tail outlives it.
const GROUP_TTL: Duration = Duration::from_secs(10);
/// How long the queue waits for an acknowledgement: a tail whose process is stopped for a while creates no
/// dead letters.
const ACK_TIMEOUT: Duration = Duration::from_mins(10);
/// Longest wait for the reader of the output.
const PATIENCE: Duration = Duration::from_secs(5);
/// Frames that wait to be printed.
const FRAMES_WAITING: usize = 64;
/// Messages on their way to a tail: enough to print without pauses, few enough to hold for a slow reader.
const CREDITS: NonZeroU32 = NonZeroU32::MIN.saturating_add(999);

/// `gpuvitals queue tail`
#[derive(Debug, Args)]
pub(super) struct Tail {
    /// Topic
    topic: String,
    /// Where to begin: with the oldest held message, or with the next one
    #[arg(long, value_enum, default_value_t = TailStart::Newest)]
    from: TailStart,
    /// End after this many messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Also if no group takes from the topic yet: printed messages are then gone from the queue
    #[arg(long)]
    take: bool,
}

/// The beginning of a tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TailStart {
    /// With the oldest message that is held.
    Oldest,
    /// With the next message that is published.
    Newest,
}

impl TailStart {
    fn start(self) -> Start {
        match self {
            Self::Oldest => Start::Oldest,
            Self::Newest => Start::Newest,
        }
    }
}

/// Prints until a signal, or until it has printed enough.
///
/// # Errors
/// If the queue refuses, or no other group takes from the topic.
pub(super) fn run(flags: &Tail, place: &Place) -> Result<(), Failure> {
    let named = |e| Failure::new(Exit::Usage, format!("topic {:?}: {e}", flags.topic));
    check_topic(&flags.topic).map_err(named)?;
    look_first(flags, place)?;
    let (runtime, signals) = runtime()?;
    runtime.block_on(print(flags, place, signals))
}

/// Checks whether the topic exists, and whether another group takes from it.
fn look_first(flags: &Tail, place: &Place) -> Result<(), Failure> {
    let (topic, url) = (&flags.topic, &place.url);
    let stats = Admin::new(place).and_then(|admin| admin.stats());
    // With `--take`, a queue that does not answer is waited for.
    let stats = if flags.take { stats.unwrap_or_default() } else { stats? };
    let groups = stats["topics"][topic]["groups"].as_object();
    // A stream of NATS keeps acknowledged messages.
    let keeps = url.scheme == Scheme::Nats;
    if groups.is_some_and(|groups| keeps || groups.keys().any(|group| !group.starts_with(TAIL_PREFIX))) {
        return Ok(());
    }
    let is_unknown = stats["topics"].as_object().is_some_and(|topics| !topics.contains_key(topic));
    if is_unknown && flags.take {
        complain(&format!(
            "topic {topic} at {url} does not exist yet; it is created, and messages are printed as they come"
        ));
    } else if is_unknown {
        let text = format!(
            "topic {topic} at {url} does not exist; gpuvitals queue topics lists the topics, --take creates it and waits"
        );
        return Err(Failure::new(Exit::Data, text));
    }
    if flags.take {
        return Ok(());
    }
    let text = format!(
        "{topic} at {url}: no group takes from it yet; printed messages may then be missing for later groups: --take takes them"
    );
    Err(Failure::new(Exit::Usage, text))
}

async fn print(flags: &Tail, place: &Place, mut signals: Signals) -> Result<(), Failure> {
    let Place { url, access, .. } = place;
    let group = format!("{TAIL_PREFIX}{}-{:x}", std::process::id(), clock::now_ns());
    let options = ConsumerOptions {
        start: flags.from.start(),
        group_ttl: Some(GROUP_TTL),
        max_in_flight: CREDITS,
        ack_timeout: Some(ACK_TIMEOUT),
        ..ConsumerOptions::default()
    };
    let client = Client::new(url.clone(), access.clone());
    let mut consumer =
        client.consumer(flags.topic.as_str(), group.as_str(), &options).await.map_err(|e| {
            Failure::new(Exit::Config, format!("cannot subscribe to {}: {}", flags.topic, causes(&e)))
        })?;
    tokio::spawn(tell_when_away(url.to_string(), consumer.away()));
    let (lines, to_print) = mpsc::channel(FRAMES_WAITING);
    let mut printer = tokio::task::spawn_blocking(move || write(to_print));
    let mut output = TailOutput { lines, left: flags.count.unwrap_or(u64::MAX), missed: 0 };
    let outcome = loop {
        let deliveries = tokio::select! {
            _ = signals.next() => break Ok(()),
            _ = &mut printer => return Ok(()), // nobody reads any more
            received = consumer.receive() => match received {
                Ok(deliveries) => deliveries,
                Err(error) => break Err(ended(place, &error)),
            },
        };
        for delivery in &deliveries {
            match messages::of(&delivery.frame) {
                Ok(messages) => output.print(messages).await,
                Err(why) => {
                    let offset = delivery.id.offset;
                    complain(&format!("the messages at offset {offset} cannot be shown: {why}"));
                }
            }
        }
        let ids: Vec<DeliveryId> = deliveries.iter().map(|delivery| delivery.id).collect();
        // Unacknowledged messages come again, and are printed again.
        if let Err(error) = consumer.ack(&ids).await {
            complain(&causes(&error));
        }
        if output.left == 0 {
            break Ok(());
        }
    };
    consumer.leave().await;
    tell_missed(&mut output.missed);
    drop(output);
    if !printer.is_finished() {
        let _printed = printer.await;
    }
    outcome
}

/// Reports when the queue cannot be reached, once each time, and when it is back.
async fn tell_when_away(url: String, mut away: watch::Receiver<Away>) {
    let mut was_away = false;
    while away.changed().await.is_ok() {
        let why = away.borrow_and_update().clone();
        match &why {
            Some(why) if !was_away => {
                complain(&format!("the queue at {url} is not reached: {why}; trying until it is"));
            }
            None if was_away => complain(&format!("the queue at {url} is reached")),
            _ => {}
        }
        was_away = why.is_some();
    }
}

fn ended(place: &Place, error: &ReceiveError) -> Failure {
    let text = format!("{}: {}", place.url, causes(error));
    match error {
        ReceiveError::Denied { .. } => place.denied(&text),
        _ => Failure::new(Exit::Unavailable, text),
    }
}

/// The queue of lines for the printer.
struct TailOutput {
    lines: mpsc::Sender<Vec<String>>,
    /// Messages still to be printed.
    left: u64,
    /// Messages that were not printed, since the printer was too slow.
    missed: u64,
}

impl TailOutput {
    /// Hands over lines; waits for a slow reader, but not for long, and then not again until there is room.
    async fn print(&mut self, mut messages: Vec<String>) {
        messages.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = u64::try_from(messages.len()).unwrap_or(u64::MAX);
        let patience = if self.missed > 0 { Duration::ZERO } else { PATIENCE };
        match tokio::time::timeout(patience, self.lines.reserve()).await {
            Ok(Ok(place)) => {
                place.send(messages);
                self.left -= count;
                tell_missed(&mut self.missed);
            }
            Ok(Err(_)) | Err(_) => self.missed += count,
        }
    }
}

fn tell_missed(missed: &mut u64) {
    let missed = std::mem::take(missed);
    if missed > 0 {
        complain(&format!("{missed} messages were not printed: the output is read too slowly"));
    }
}

fn complain(text: &str) {
    // If this cannot be printed, nobody is left to report to.
    let _unprinted = writeln!(std::io::stderr(), "gpuvitals: {text}");
}

/// Prints until there is nothing more, or no reader.
fn write(mut lines: mpsc::Receiver<Vec<String>>) {
    let mut out = std::io::stdout().lock();
    while let Some(lines) = lines.blocking_recv() {
        let written = lines.iter().try_for_each(|line| writeln!(out, "{line}")).and_then(|()| out.flush());
        if written.is_err() {
            return;
        }
    }
}
