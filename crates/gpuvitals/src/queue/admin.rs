//! Administration of a queue of any kind.

use gpuvitals_queue::link::Scheme;
use gpuvitals_queue::nats::NatsRedriven;
use serde_json::{Value, json};

use super::answer::Given;
use super::http::Http;
use super::nats::Nats;
use super::place::Place;
use crate::failure::{Exit, Failure};
use crate::percent::escaped;

/// A queue that can be asked.
pub(super) enum Admin {
    /// `gpuvitals broker`, or the queue inside `up`.
    Broker(Box<Http>),
    /// NATS JetStream, by its own protocol.
    Nats(Box<Nats>),
}

impl Admin {
    /// The queue there.
    ///
    /// # Errors
    /// When it is asked in another way, or a file of the access cannot be read.
    pub(super) fn new(place: &Place) -> Result<Self, Failure> {
        let url = &place.url;
        match url.scheme {
            Scheme::Http | Scheme::Grpc | Scheme::InProcess => Ok(Self::Broker(Box::new(Http::new(place)?))),
            Scheme::Nats => Ok(Self::Nats(Box::new(Nats::new(place)?))),
        }
    }

    /// `{"topics": [name, …]}`
    ///
    /// # Errors
    /// When the queue does not answer, or refuses.
    pub(super) fn topics(&self) -> Result<Value, Failure> {
        match self {
            Self::Broker(http) => http.get("/topics"),
            Self::Nats(nats) => Ok(json!({ "topics": nats.ask(nats.admin.topics())? })),
        }
    }

    /// `{"topics": {name: numbers, …}, …}`
    ///
    /// # Errors
    /// When the queue does not answer, or refuses.
    pub(super) fn stats(&self) -> Result<Value, Failure> {
        match self {
            Self::Broker(http) => http.stats(),
            Self::Nats(nats) => Ok(json!({ "topics": nats.ask(nats.admin.all_stats())? })),
        }
    }

    /// Statistics of a topic.
    ///
    /// # Errors
    /// If the topic is missing; if the queue does not answer, or refuses.
    pub(super) fn topic(&self, topic: &str) -> Result<Value, Failure> {
        match self {
            Self::Broker(http) => http.get(&format!("/stats/{}", escaped(topic))),
            Self::Nats(nats) => nats.topic(topic),
        }
    }

    /// Dead letters of a topic with ids from `from` on, at most `limit`: `{"dead": [letter, …], "next": id}`.
    ///
    /// # Errors
    /// If the queue does not answer, or refuses.
    pub(super) fn dead(&self, topic: &str, from: u64, limit: usize) -> Result<Value, Failure> {
        match self {
            Self::Broker(http) => {
                http.get(&format!("/topics/{}/dead?from={from}&limit={limit}", escaped(topic)))
            }
            Self::Nats(nats) => nats.dead(topic, from, limit),
        }
    }

    /// Gives dead letters back, those named or all; a broker no faster than `rate` messages a second.
    ///
    /// # Errors
    /// When the queue does not answer, or refuses.
    pub(super) fn replay(&self, topic: &str, ids: &[u64], rate: Option<f64>) -> Result<Given, Failure> {
        match self {
            Self::Broker(http) => http.replay(topic, ids, rate),
            Self::Nats(nats) if rate.is_none() => {
                let NatsRedriven { letters, without_room } = nats.ask(nats.admin.redrive(topic, ids))?;
                Ok(Given { letters, without_room, ..Given::default() })
            }
            Self::Nats(_) => {
                Err(Failure::new(Exit::Usage, "--rate is not for NATS: letters go back at once there"))
            }
        }
    }

    /// Throws dead letters away, those named or all; gives their number.
    ///
    /// # Errors
    /// When the queue does not answer, or refuses.
    pub(super) fn purge(&self, topic: &str, ids: &[u64]) -> Result<u64, Failure> {
        match self {
            Self::Broker(http) => http.purge(topic, ids),
            Self::Nats(nats) => nats.ask(nats.admin.purge_dead(topic, ids)),
        }
    }

    /// Ends a group of a topic.
    ///
    /// # Errors
    /// If the group is missing; if the queue does not answer, or refuses.
    pub(super) fn remove_group(&self, topic: &str, group: &str) -> Result<(), Failure> {
        match self {
            Self::Broker(http) => http.remove_group(topic, group),
            Self::Nats(nats) => nats.ask(nats.admin.remove_group(topic, group)),
        }
    }
}
