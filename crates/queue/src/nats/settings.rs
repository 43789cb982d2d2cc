//! Settings of streams and redelivery.

use std::ops::RangeInclusive;
use std::time::Duration;

use gpuvitals_core::quantity;

use crate::config::QueueConfig;

/// Bytes of a stream.
const BYTES: RangeInclusive<u64> = 1 << 20..=1 << 50;
/// Ages. The shortest one leaves a consumer time to restart.
const AGES: RangeInclusive<Duration> = Duration::from_mins(1)..=Duration::from_hours(24 * 366);
/// Most deliveries after the first.
const RETRIES_MAX: u32 = 10_000;
/// Longest parameter name that an error repeats: a longer one may be anything.
const NAME_LEN_MAX: usize = 24;

/// Settings of a topic's stream, used when it is created, and of its redelivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsSettings {
    /// Servers that keep a copy of every message: 1, 3 or 5. `None`: 3 in a cluster, else 1.
    pub replicas: Option<usize>,
    /// Most bytes a topic holds. JetStream reserves them when the stream is created.
    pub max_bytes: u64,
    /// How long a topic holds a message, acknowledged or not.
    pub max_age: Duration,
    /// Delivery attempts after the first; then the message is a dead letter.
    pub max_retries: u32,
}

impl Default for NatsSettings {
    fn default() -> Self {
        Self {
            replicas: None,
            max_bytes: 1 << 30,
            max_age: Duration::from_hours(1),
            max_retries: QueueConfig::default().max_retries,
        }
    }
}

/// A bad parameter in a URL. Its value is not repeated: it may be a secret in the wrong place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// A parameter that NATS does not take.
    #[error("{0} is no parameter of NATS; replicas, max_bytes, max_age and max_retries are")]
    Unknown(String),
    /// A value out of bounds.
    #[error("{name} takes {wanted}")]
    Value {
        /// Name of the parameter.
        name: &'static str,
        /// Which values it takes, in words.
        wanted: &'static str,
    },
    /// A parameter given more than once.
    #[error("{0} is given twice")]
    Twice(String),
}

impl NatsSettings {
    /// Settings of a URL's query, `replicas=3&max_bytes=8GiB`; the others are the defaults.
    ///
    /// # Errors
    ///
    /// A parameter is unknown, given twice, or has a value out of bounds.
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
        Ok(settings)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        match name {
            "replicas" => {
                let replicas = value.parse().ok().filter(|replicas| matches!(replicas, 1 | 3 | 5));
                let wrong = SettingError::Value { name: "replicas", wanted: "1, 3 or 5" };
                self.replicas = Some(replicas.ok_or(wrong)?);
            }
            "max_bytes" => {
                let wanted = "a size from 1MiB to 1024TiB, such as 8GiB";
                self.max_bytes = within("max_bytes", quantity::bytes(value), &BYTES, wanted)?;
            }
            "max_age" => {
                let wanted = "a time from 1m to 8784h, such as 6h";
                self.max_age = within("max_age", quantity::duration(value), &AGES, wanted)?;
            }
            "max_retries" => {
                let wanted = "a number from 0 to 10000";
                self.max_retries = within("max_retries", value.parse(), &(0..=RETRIES_MAX), wanted)?;
            }
            _ => return Err(SettingError::Unknown(repeatable(name))),
        }
        Ok(())
    }
}

fn within<T: PartialOrd, E>(
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
        "this".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_sets_what_it_names() {
        assert_eq!(NatsSettings::from_query(""), Ok(NatsSettings::default()));
        let query = "replicas=3&max_bytes=8GiB&max_age=6h&max_retries=0";
        let expected = NatsSettings {
            replicas: Some(3),
            max_bytes: 8 << 30,
            max_age: Duration::from_hours(6),
            max_retries: 0,
        };
        assert_eq!(NatsSettings::from_query(query), Ok(expected));
    }

    #[test]
    fn a_bad_parameter_is_refused_by_name_without_its_value() {
        for (query, named) in [
            ("replicas=2", "replicas takes 1, 3 or 5"),
            ("replicas=s3cret", "replicas takes"),
            ("max_bytes=1KiB", "max_bytes takes"),
            ("max_bytes=s3cret", "max_bytes takes"),
            ("max_age=1s", "max_age takes"),
            ("max_age", "max_age takes"),
            ("max_retries=-1", "max_retries takes"),
            ("token=s3cret", "token is no parameter"),
            ("S3cret-and_long", "this is no parameter"),
            ("replicas=1&replicas=3", "replicas is given twice"),
        ] {
            let error = NatsSettings::from_query(query).unwrap_err().to_string();
            assert!(error.contains(named) && !error.to_lowercase().contains("s3cret"), "{query}: {error}");
        }
    }
}
