//! A queue or collector elsewhere, asked every second for its health and statistics.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gpuvitals_api::Peer;
use gpuvitals_core::{Health, Status, causes, clock};
use gpuvitals_listener::client::{Dial, GetError};
use gpuvitals_queue::link::{MessageQueue, Scheme};
use gpuvitals_queue::nats::{NatsAdmin, NatsError, NatsStats};
use serde_json::{Value, json};
use tokio::sync::watch::{self, Receiver, Sender};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tonic::transport::Channel;
use ureq::http::StatusCode;

use crate::failure::{Exit, Failure};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longest wait for an answer: with [`LOOK_EVERY`] a service that hangs is noticed within 3 s.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// How a service is asked.
#[derive(Debug)]
pub(crate) enum AskedService {
    /// By `GET /health` and `GET /stats`.
    Service(Box<Dial>, Channel),
    /// NATS JetStream, by its own protocol.
    Nats(Box<NatsAdmin>, PublishedFrames),
}

/// How many frames each topic had seen at the last look, and when that was.
#[derive(Debug)]
pub(crate) struct PublishedFrames {
    at: Instant,
    frames: BTreeMap<String, u64>,
}

impl PublishedFrames {
    /// The statistics of NATS under the names that a broker gives them.
    fn stats(&mut self, topics: &BTreeMap<String, NatsStats>) -> Value {
        let now = clock::instant();
        let seconds = now.duration_since(self.at).as_secs_f64();
        let published = topics.iter().map(|(topic, stats)| (topic.clone(), stats.published)).collect();
        let before = std::mem::replace(&mut self.frames, published);
        self.at = now;
        let shown = topics.iter().map(|(topic, stats)| {
            let new = before.get(topic).map_or(0, |before| stats.published.saturating_sub(*before));
            let rate = f64::from(u32::try_from(new).unwrap_or(u32::MAX)) / seconds.max(f64::EPSILON);
            let mut shown = json!(stats);
            if let Some(fields) = shown.as_object_mut() {
                fields.insert("throughput_msg_per_sec".to_owned(), json!(rate));
            }
            (topic.clone(), shown)
        });
        let made_s = topics.values().map(|stats| stats.made_s).min();
        let uptime = made_s.map_or(0, |made_s| (clock::now_ns() / 1_000_000_000 - made_s).max(0));
        json!({
            "topics": shown.collect::<serde_json::Map<_, _>>(),
            "total_processed": topics.values().map(|stats| stats.acked).sum::<u64>(),
            "uptime_seconds": uptime,
        })
    }
}

/// Why a look has found nothing.
#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error(transparent)]
    Get(#[from] GetError),
    #[error(transparent)]
    Nats(#[from] NatsError),
    #[error("it answers {status}: {message}")]
    Refused { status: StatusCode, message: String },
    #[error("{path} is not answered in JSON; is it a gpuvitals?")]
    Stranger { path: &'static str },
}

impl AskedService {
    /// A service by its port.
    pub(crate) fn service(dial: Dial) -> Self {
        let channel = dial.endpoint().connect_lazy();
        Self::Service(Box::new(dial), channel)
    }

    /// A queue as its settings say.
    ///
    /// # Errors
    /// When a credential cannot be read or used.
    fn queue(settings: &MessageQueue) -> Result<Self, Failure> {
        let (url, access) = (&settings.address, settings.access()?);
        if url.scheme == Scheme::Nats {
            let none = PublishedFrames { at: clock::instant(), frames: BTreeMap::new() };
            return Ok(Self::Nats(Box::new(NatsAdmin::new(url, &access)), none));
        }
        let dial = Dial::new(&url.authority.to_string(), url.tls, &access);
        Ok(Self::service(dial.map_err(|e| Failure::caused(Exit::Config, "configuration: message_queue", e))?))
    }

    /// Its status with the reason, and its statistics.
    async fn look(&mut self) -> Result<(Status, String, Value), LookError> {
        match self {
            Self::Service(dial, channel) => {
                let (health, stats) = futures_util::try_join!(
                    json_at(dial, channel, "/health"),
                    json_at(dial, channel, "/stats")
                )?;
                let status = match health.get("status").and_then(Value::as_str) {
                    Some("healthy") => Status::Healthy,
                    Some("degraded") => Status::Degraded,
                    Some("unhealthy") => Status::Unhealthy,
                    _ => return Err(LookError::Stranger { path: "/health" }),
                };
                let reason = health.get("reason").and_then(Value::as_str).unwrap_or_default();
                Ok((status, reason.to_owned(), stats))
            }
            Self::Nats(nats, published) => {
                Ok((Status::Healthy, String::new(), published.stats(&nats.all_stats().await?)))
            }
        }
    }
}

async fn json_at(dial: &Dial, channel: &Channel, path: &'static str) -> Result<Value, LookError> {
    let (status, body) = dial.get(channel.clone(), path).await?;
    let answer: Value = serde_json::from_slice(&body).map_err(|_| LookError::Stranger { path })?;
    // An unhealthy service answers 503, with its health.
    if status.is_success() || path == "/health" && status == StatusCode::SERVICE_UNAVAILABLE {
        return Ok(answer);
    }
    let message = answer.get("message").and_then(Value::as_str).unwrap_or("no reason given").to_owned();
    Err(LookError::Refused { status, message })
}

/// A service that is looked at until this is dropped.
#[derive(Debug)]
pub(crate) struct Watched {
    seen: Receiver<Peer>,
    task: JoinHandle<()>,
}

impl Watched {
    /// Begins to look.
    pub(crate) fn new(name: String, asked: AskedService) -> Self {
        let health = Health {
            status: Status::Degraded,
            reason: "no answer yet".to_owned(),
            since_ns: clock::now_ns(),
        };
        let (told, seen) = watch::channel(Peer { name, health, stats: Value::Null });
        let task = tokio::spawn(look_for_ever(asked, told));
        Self { seen, task }
    }

    /// Begins to look at a queue.
    ///
    /// # Errors
    /// When a credential cannot be read or used.
    pub(crate) fn queue(settings: &MessageQueue) -> Result<Self, Failure> {
        Ok(Self::new(settings.address.to_string(), AskedService::queue(settings)?))
    }

    pub(crate) fn name(&self) -> String {
        self.peer().name
    }

    /// As it was seen last.
    pub(crate) fn peer(&self) -> Peer {
        self.seen.borrow().clone()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn look_for_ever(mut asked: AskedService, told: Sender<Peer>) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let look = tokio::time::timeout(ANSWER_WITHIN, asked.look()).await;
        let (status, reason, stats) = match look {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => (Status::Degraded, causes(&error), Value::Null),
            Err(_) => {
                (Status::Degraded, format!("no answer within {} s", ANSWER_WITHIN.as_secs()), Value::Null)
            }
        };
        told.send_modify(|seen| {
            if seen.health.status != status {
                let peer = &seen.name;
                if status == Status::Healthy {
                    tracing::info!(peer, "a service elsewhere is well");
                } else {
                    tracing::warn!(peer, reason, "a service elsewhere is not well, or not reached");
                }
            }
            seen.health.observe(status, reason, clock::now_ns());
            seen.stats = stats;
        });
    }
}
