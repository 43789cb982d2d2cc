//! What streams and consumers are made with.

use std::ops::RangeInclusive;
use std::time::Duration;

use gpuvitals_core::quantity;

use crate::config::{QueueConfig, WhenFull};
use crate::link::Backoff;

/// What a topic's stream holds at most, and its dead letters, where nobody says it.
pub(super) const MAX_BYTES: u64 = 1 << 30;
pub(super) const MAX_DEAD_BYTES: u64 = 64 << 20;

/// For how long a repeated publish is recognised where nobody says it.
pub(super) const DUPLICATE_WINDOW: Duration = Duration::from_mins(2);

/// Bytes that a stream can be given.
const BYTES: RangeInclusive<u64> = 1 << 20..=1 << 50;
/// Windows of duplicates: below it a repeat is likely to be stored twice, above it the server's memory grows.
const WINDOWS: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_hours(24);
/// Waits before a redelivery.
const WAITS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_hours(1);
/// Most deliveries after the first: the server's own limit lies far beyond.
const RETRIES_MAX: u32 = 10_000;
/// Longest name of a parameter that an error repeats: a longer one may be anything.
const NAME_LEN_MAX: usize = 24;

/// What streams and consumers are made with. What is `None` is left as it is in a stream that exists; what is not, is
/// changed in a stream of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsSettings {
    /// Servers that keep a copy of every message: 1, 3 or 5. Otherwise 3 where the server is one of a cluster, and 1
    /// where it is not.
    pub replicas: Option<usize>,
    /// Most bytes a topic holds, otherwise 1 GiB. JetStream reserves them when the stream is made.
    pub max_bytes: Option<u64>,
    /// What happens at the bound; otherwise publishers are refused.
    pub when_full: Option<WhenFull>,
    /// For how long a repeated publish is recognised, otherwise 2 minutes.
    pub duplicate_window: Option<Duration>,
    /// Most bytes kept as dead letters of a topic, otherwise 64 MiB; beyond it the oldest go.
    pub max_dead_bytes: Option<u64>,
    /// How long a consumer has to acknowledge, unless it asks for another time.
    pub ack_timeout: Duration,
    /// How often a message is delivered again after its first delivery; then it is a dead letter.
    pub max_retries: u32,
    /// The waits before redeliveries.
    pub backoff: Backoff,
}

impl Default for NatsSettings {
    fn default() -> Self {
        let queue = QueueConfig::default();
        Self {
            replicas: None,
            max_bytes: None,
            when_full: None,
            duplicate_window: None,
            max_dead_bytes: None,
            ack_timeout: queue.ack_timeout,
            max_retries: queue.max_retries,
            backoff: Backoff { base: queue.backoff_base, cap: queue.backoff_cap },
        }
    }
}

/// A parameter of a URL that cannot be. What it was given is not repeated: it may be a secret in the wrong place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// There is no such parameter.
    #[error(
        "{0} is no parameter of NATS; replicas, max_bytes, when_full, duplicate_window, max_dead_bytes, max_retries, \
         backoff_base and backoff_cap are"
    )]
    Unknown(String),
    /// It has a value that cannot be.
    #[error("{name} takes {wanted}")]
    Value {
        /// Which parameter.
        name: &'static str,
        /// What it takes.
        wanted: &'static str,
    },
    /// It is given more than once.
    #[error("{0} is given twice")]
    Twice(String),
}

impl NatsSettings {
    /// Settings as a URL's query gives them, `replicas=3&max_bytes=8GiB`; the others are the defaults.
    ///
    /// # Errors
    ///
    /// A parameter is unknown, given twice, or has a value that cannot be.
    pub fn from_query(query: &str) -> Result<Self, SettingError> {
        let mut settings = Self::default();
        let mut seen = Vec::new();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            settings.set(name, value)?;
            if seen.contains(&name) {
                return Err(SettingError::Twice(name.to_owned()));
            }
            seen.push(name);
        }
        if settings.backoff.base > settings.backoff.cap {
            let wanted = "no less than backoff_base";
            return Err(SettingError::Value { name: "backoff_cap", wanted });
        }
        Ok(settings)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        const SIZE: &str = "a size from 1MiB to 1024TiB, such as 8GiB";
        const WAIT: &str = "a time from 1ms to 1h, such as 500ms";
        let bytes = |name| one_of(name, quantity::bytes(value), &BYTES, SIZE);
        let wait = |name| one_of(name, quantity::duration(value), &WAITS, WAIT);
        match name {
            "replicas" => {
                let replicas = value.parse().ok().filter(|replicas| matches!(replicas, 1 | 3 | 5));
                let wrong = SettingError::Value { name: "replicas", wanted: "1, 3 or 5" };
                self.replicas = Some(replicas.ok_or(wrong)?);
            }
            "max_bytes" => self.max_bytes = Some(bytes("max_bytes")?),
            "max_dead_bytes" => self.max_dead_bytes = Some(bytes("max_dead_bytes")?),
            "when_full" => {
                self.when_full = Some(match value {
                    "refuse" => WhenFull::Refuse,
                    "drop_oldest" => WhenFull::DropOldest,
                    _ => {
                        let wanted = "refuse or drop_oldest";
                        return Err(SettingError::Value { name: "when_full", wanted });
                    }
                });
            }
            "duplicate_window" => {
                let wanted = "a time from 10s to 24h, such as 2m";
                let window = one_of("duplicate_window", quantity::duration(value), &WINDOWS, wanted)?;
                self.duplicate_window = Some(window);
            }
            "max_retries" => {
                let wanted = "a number from 0 to 10000";
                self.max_retries = one_of("max_retries", value.parse(), &(0..=RETRIES_MAX), wanted)?;
            }
            "backoff_base" => self.backoff.base = wait("backoff_base")?,
            "backoff_cap" => self.backoff.cap = wait("backoff_cap")?,
            _ => return Err(SettingError::Unknown(repeatable(name))),
        }
        Ok(())
    }
}

fn one_of<T: PartialOrd, E>(
    name: &'static str,
    read: Result<T, E>,
    range: &RangeInclusive<T>,
    wanted: &'static str,
) -> Result<T, SettingError> {
    read.ok().filter(|value| range.contains(value)).ok_or(SettingError::Value { name, wanted })
}

/// A name as an error may repeat it.
fn repeatable(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_lowercase() || c == '_';
    if (1..=NAME_LEN_MAX).contains(&name.len()) && name.chars().all(is_plain) {
        name.to_owned()
    } else {
        "what stands there".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_sets_what_it_names() {
        assert_eq!(NatsSettings::from_query(""), Ok(NatsSettings::default()));
        let query = "replicas=3&max_bytes=8GiB&when_full=drop_oldest&duplicate_window=5m&max_dead_bytes=128MiB\
                     &max_retries=0&backoff_base=1s&backoff_cap=1m";
        let expected = NatsSettings {
            replicas: Some(3),
            max_bytes: Some(8 << 30),
            when_full: Some(WhenFull::DropOldest),
            duplicate_window: Some(Duration::from_mins(5)),
            max_dead_bytes: Some(128 << 20),
            max_retries: 0,
            backoff: Backoff { base: Duration::from_secs(1), cap: Duration::from_mins(1) },
            ..NatsSettings::default()
        };
        assert_eq!(NatsSettings::from_query(query), Ok(expected));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name_without_its_value() {
        for (query, named) in [
            ("replicas=2", "replicas takes 1, 3 or 5"),
            ("replicas=s3cret", "replicas takes"),
            ("max_bytes=1KiB", "max_bytes takes"),
            ("max_bytes=s3cret", "max_bytes takes"),
            ("max_dead_bytes", "max_dead_bytes takes"),
            ("max_retries=-1", "max_retries takes"),
            ("when_full=s3cret", "when_full takes"),
            ("duplicate_window=1s", "duplicate_window takes"),
            ("backoff_base=2h", "backoff_base takes"),
            ("backoff_base=1m", "backoff_cap takes no less"),
            ("token=s3cret", "token is no parameter"),
            ("S3cret-and_long", "what stands there is no parameter"),
            ("replicas=1&replicas=3", "replicas is given twice"),
        ] {
            let error = NatsSettings::from_query(query).unwrap_err().to_string();
            assert!(error.contains(named) && !error.to_lowercase().contains("s3cret"), "{query}: {error}");
        }
    }
}
