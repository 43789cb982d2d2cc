//! Names of topics and groups in NATS.

use std::sync::Arc;

use crate::name::{self, DEAD_SUFFIX, NameError};

/// Prefix of our streams and subjects.
const PREFIX: &str = "gpuvitals";

/// A topic and its names in NATS. NATS gives `.` a meaning of its own; `+`, which no topic contains, stands for it:
/// `rack.7` is stream `gpuvitals-rack+7` with subject `gpuvitals.rack+7`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Topic {
    pub(super) name: Arc<str>,
    /// The stream that is created for it.
    pub(super) stream: String,
    /// The subject of its frames.
    pub(super) subject: String,
}

impl Topic {
    /// The topic `name`, which may be one of dead letters.
    pub(super) fn new(name: &str) -> Result<Self, NameError> {
        name::check_topic(name.strip_suffix(DEAD_SUFFIX).unwrap_or(name))?;
        Ok(Self::named(name))
    }

    /// The topic of this topic's dead letters.
    pub(super) fn dead(&self) -> Self {
        Self::named(&format!("{}{DEAD_SUFFIX}", self.name))
    }

    /// Whether this is a topic of dead letters.
    pub(super) fn is_dead(&self) -> bool {
        self.name.ends_with(DEAD_SUFFIX)
    }

    fn named(name: &str) -> Self {
        let token = token(name);
        Self { name: name.into(), stream: format!("{PREFIX}-{token}"), subject: format!("{PREFIX}.{token}") }
    }
}

/// The name of a group's durable consumer.
pub(super) fn consumer(group: &str) -> Result<String, NameError> {
    name::check_group(group)?;
    Ok(token(group))
}

/// The group of a durable consumer.
pub(super) fn group(consumer: &str) -> String {
    consumer.replace('+', ".")
}

/// The topic of one of our streams.
pub(super) fn topic_of(stream: &str) -> Option<String> {
    Some(stream.strip_prefix(PREFIX)?.strip_prefix('-')?.replace('+', "."))
}

/// Whether a consumer's filter takes `subject`: `*` stands for any token, and `>` at the end for all that follow.
pub(super) fn takes(filter: &str, subject: &str) -> bool {
    let mut parts = subject.split('.');
    for token in filter.split('.') {
        match parts.next() {
            Some(_) if token == ">" => return true,
            Some(part) if token == "*" || token == part => {}
            _ => return false,
        }
    }
    parts.next().is_none()
}

fn token(name: &str) -> String {
    name.replace('.', "+")
}

#[cfg(test)]
mod tests {
    use super::{Topic, consumer, group, takes, topic_of};

    #[test]
    fn every_name_is_one_token_of_its_own() {
        for (topic, token) in [
            ("gpu-telemetry", "gpu-telemetry"),
            ("rack.7", "rack+7"),
            ("a..", "a++"),
            ("a_B", "a_B"),
            ("a.b.dead", "a+b+dead"),
        ] {
            let named = Topic::new(topic).unwrap();
            assert_eq!(named.stream, format!("gpuvitals-{token}"));
            assert_eq!(named.subject, format!("gpuvitals.{token}"));
        }
        assert_eq!(topic_of("gpuvitals-rack+7").as_deref(), Some("rack.7"));
        assert_eq!(topic_of("orders"), None);
        let dead = Topic::new("a.b").unwrap().dead();
        assert_eq!((dead.stream.as_str(), dead.is_dead()), ("gpuvitals-a+b+dead", true));
        assert!(Topic::new("a.dead.dead").is_err(), "dead letters have no dead letters");
        assert!(Topic::new("a+b").is_err());
        assert_eq!(group(&consumer("eu.collector").unwrap()), "eu.collector");
    }

    #[test]
    fn a_filter_takes_its_subjects() {
        for filter in ["gpuvitals.t", "gpuvitals.*", "*.t", "gpuvitals.>", ">"] {
            assert!(takes(filter, "gpuvitals.t"), "{filter}");
        }
        for filter in ["gpuvitals.u", "gpuvitals", "gpuvitals.t.*", "gpuvitals.t.>", "*"] {
            assert!(!takes(filter, "gpuvitals.t"), "{filter}");
        }
    }
}
