//! What topics and groups are called in NATS.

use std::sync::Arc;

use crate::name::{self, NameError};

/// Streams and subjects of ours begin so.
const FAMILY: &str = "gpuvitals";

/// A topic and what it is called in NATS. NATS gives `.` a meaning of its own, so `+`, which no topic has, stands for
/// it: `rack.7` is stream `gpuvitals-rack+7` with subject `gpuvitals.rack+7`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Topic {
    pub(super) name: Arc<str>,
    /// The stream that is made for it.
    pub(super) stream: String,
    /// Where its frames are published.
    pub(super) subject: String,
}

impl Topic {
    pub(super) fn new(topic: &str) -> Result<Self, NameError> {
        name::check_topic(topic)?;
        Ok(Self::called(topic))
    }

    /// Where the dead letters of this topic are.
    pub(super) fn dead(&self) -> Self {
        Self::called(&format!("{}{}", self.name, name::DEAD_SUFFIX))
    }

    fn called(topic: &str) -> Self {
        let token = token(topic);
        Self { name: topic.into(), stream: format!("{FAMILY}-{token}"), subject: format!("{FAMILY}.{token}") }
    }
}

/// What a group's durable consumer is called.
pub(super) fn consumer(group: &str) -> Result<String, NameError> {
    name::check_group(group)?;
    Ok(token(group))
}

/// The group of a durable consumer.
pub(super) fn group(consumer: &str) -> String {
    consumer.replace('+', ".")
}

/// The topic of a stream of ours.
pub(super) fn topic_of(stream: &str) -> Option<String> {
    Some(stream.strip_prefix(FAMILY)?.strip_prefix('-')?.replace('+', "."))
}

fn token(name: &str) -> String {
    name.replace('.', "+")
}

/// Whether a message published on `subject` goes to a stream that takes `pattern`.
pub(super) fn takes(pattern: &str, subject: &str) -> bool {
    let (mut patterns, mut tokens) = (pattern.split('.'), subject.split('.'));
    loop {
        match (patterns.next(), tokens.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some(pattern), Some(token)) if pattern == "*" || pattern == token => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Topic, consumer, group, takes, topic_of};

    #[test]
    fn every_name_of_a_topic_is_one_token_of_its_own() {
        for (topic, token) in
            [("gpu-telemetry", "gpu-telemetry"), ("rack.7", "rack+7"), ("a..", "a++"), ("a_B", "a_B")]
        {
            let named = Topic::new(topic).unwrap();
            assert_eq!(named.stream, format!("gpuvitals-{token}"));
            assert_eq!(named.subject, format!("gpuvitals.{token}"));
        }
        assert_eq!(topic_of("gpuvitals-rack+7").as_deref(), Some("rack.7"));
        assert_eq!(topic_of("orders"), None);
        assert_eq!(Topic::new("a.b").unwrap().dead().stream, "gpuvitals-a+b+dead");
        assert!(Topic::new("a.dead").is_err(), "nobody's topic is another's dead letters");
        assert!(Topic::new("a+b").is_err());
        assert_eq!(group(&consumer("eu.collector").unwrap()), "eu.collector");
    }

    #[test]
    fn subjects_match_as_in_nats() {
        let table = [
            ("gpuvitals.a", true),
            ("gpuvitals.*", true),
            ("gpuvitals.>", true),
            (">", true),
            ("*.a", true),
            ("gpuvitals", false),
            ("gpuvitals.b", false),
            ("gpuvitals.a.>", false),
            ("gpuvitals.a.*", false),
        ];
        for (pattern, expected) in table {
            assert_eq!(takes(pattern, "gpuvitals.a"), expected, "{pattern}");
        }
    }
}
