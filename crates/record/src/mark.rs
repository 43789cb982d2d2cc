//! What a program says in a mark, and its form as bytes: that of a datagram and that of the journal.
//!
//! ```text
//! bytes = text                                                                      what else it says is not known
//!       | {"text": …, "phase": …, "step": …, "value_name": …, "value": …}            JSON; each field may be missing
//! ```
//!
//! The object of a datagram may have `monotonic_ns`, too: when the mark was set, if it is sent later.

use gpuvitals_core::clock::Moment;
use serde::{Deserialize, Serialize};

/// Longest text of a mark, in bytes; longer ones are cut.
pub const MARK_LEN_MAX: usize = 1_024;
/// Longest name of a phase or a value, in bytes.
const NAME_LEN_MAX: usize = 128;
/// Longest time between a mark and its datagram.
const LATE_MAX_NS: i64 = 60_000_000_000;
/// Name of a value that came without one.
const UNNAMED: &str = "value";

/// What a program says in a mark: something happens now, a phase or a step begins, a value is known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MarkContent {
    /// What happens. Empty: it is made of the rest.
    pub text: String,
    /// The phase that begins: `load`, `warm-up`, `checkpoint`; an empty one ends the phase before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Number of the step that begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
    /// What the value is: `tokens`, `loss`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_name: Option<String>,
    /// A value of this moment, or of the step that ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
}

impl From<&str> for MarkContent {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }
}

impl From<String> for MarkContent {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl MarkContent {
    /// Of a datagram, or of a payload of the journal. None: it says nothing.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_end_matches(['\0', '\n', '\r']);
        let told = || serde_json::from_str::<Self>(text).ok().filter(|told| *told != Self::default());
        // What only looks like JSON is a text.
        let told = if text.starts_with('{') { told() } else { None };
        let kept = told.unwrap_or_else(|| text.into()).kept();
        (!kept.text.is_empty()).then_some(kept)
    }

    /// As bytes from which [`of_bytes`](Self::of_bytes) makes the same again, if it was [`kept`](Self::kept).
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let is_plain = *self == Self::from(self.text.as_str()) && !self.text.starts_with('{');
        if is_plain {
            return self.text.clone().into_bytes();
        }
        // Texts and finite numbers: nothing in it can fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// As a recording keeps it: what is too long is cut, a value that is no number is left out, and there is always a text.
    pub(crate) fn kept(mut self) -> Self {
        cut(&mut self.text, MARK_LEN_MAX);
        self.value = self.value.filter(|value| value.is_finite());
        if self.value.is_none() {
            self.value_name = None;
        } else if self.value_name.as_deref().is_none_or(str::is_empty) {
            self.value_name = Some(UNNAMED.to_owned());
        }
        [&mut self.phase, &mut self.value_name]
            .into_iter()
            .flatten()
            .for_each(|name| cut(name, NAME_LEN_MAX));
        if self.text.is_empty() {
            self.text = self.words();
        }
        self
    }

    /// What it says beside its text.
    fn words(&self) -> String {
        let phase = self.phase.as_deref().map(|phase| match phase {
            "" => "end of the phase".to_owned(),
            phase => phase.to_owned(),
        });
        let step = self.step.map(|step| format!("step {step}"));
        let value = self.value_name.as_deref().zip(self.value).map(|(name, value)| format!("{name} {value}"));
        [phase, step, value].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// When the mark of a datagram was set: as it says, because senders may put it off, or now. A time that cannot be is none.
pub(crate) fn set_at(datagram: &[u8], now: Moment) -> Moment {
    #[derive(Deserialize)]
    struct Told {
        monotonic_ns: i64,
    }
    let told = serde_json::from_slice::<Told>(datagram).ok();
    let late_ns = told.map_or(0, |told| now.mono_ns.saturating_sub(told.monotonic_ns));
    if !(0..=LATE_MAX_NS).contains(&late_ns) {
        return now;
    }
    Moment { wall_ns: now.wall_ns - late_ns, mono_ns: now.mono_ns - late_ns }
}

fn cut(text: &mut String, most: usize) {
    text.truncate(text.floor_char_boundary(most));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_is_a_text_or_names_what_it_says() {
        let check = |bytes: &str, wanted: MarkContent| {
            let found = MarkContent::of_bytes(bytes.as_bytes()).unwrap();
            assert_eq!(found, wanted, "{bytes}");
            assert_eq!(MarkContent::of_bytes(&found.to_bytes()), Some(found), "{bytes}");
        };
        check("epoch 1\n", "epoch 1".into());
        check("{not JSON", "{not JSON".into());
        check(r#"{"colour": "red"}"#, r#"{"colour": "red"}"#.into());
        check(r#"{"step": "three"}"#, r#"{"step": "three"}"#.into());
        let step = MarkContent { text: "step 3".to_owned(), step: Some(3), ..MarkContent::default() };
        check(r#"{"step": 3, "colour": "red"}"#, step);
        let value = MarkContent {
            text: "tokens 8192".to_owned(),
            value_name: Some("tokens".to_owned()),
            value: Some(8192.0),
            ..MarkContent::default()
        };
        check(r#"{"value_name": "tokens", "value": 8192}"#, value);
        let phase =
            MarkContent { text: "x".to_owned(), phase: Some("load".to_owned()), ..MarkContent::default() };
        check(r#"{"text": "x", "phase": "load", "value_name": "of nothing"}"#, phase);
        assert_eq!(MarkContent::of_bytes(b"\n"), None);
        assert_eq!(MarkContent::of_bytes(b""), None);
    }

    #[test]
    fn what_is_too_long_is_cut_between_letters() {
        let long =
            MarkContent { phase: Some("ü".repeat(200)), ..MarkContent::from("ü".repeat(MARK_LEN_MAX)) }
                .kept();
        assert_eq!(
            (long.text.len(), long.phase.as_deref().map(str::len)),
            (MARK_LEN_MAX, Some(NAME_LEN_MAX))
        );
        let wild = MarkContent { value: Some(f64::NAN), ..MarkContent::from("loss") }.kept();
        assert_eq!(wild, MarkContent::from("loss"));
    }

    #[test]
    fn a_datagram_may_say_when_its_mark_was_set() {
        let now = Moment { wall_ns: 900_000_000_000, mono_ns: 100_000_000_000 };
        let at = |monotonic_ns: i64| {
            set_at(format!(r#"{{"step": 3, "monotonic_ns": {monotonic_ns}}}"#).as_bytes(), now)
        };
        assert_eq!(at(99_000_000_000), Moment { wall_ns: 899_000_000_000, mono_ns: 99_000_000_000 });
        for impossible in [100_000_000_001, 39_999_999_999, i64::MIN] {
            assert_eq!(at(impossible), now, "{impossible}");
        }
        for silent in ["step 3", r#"{"step": 3}"#, "7", ""] {
            assert_eq!(set_at(silent.as_bytes(), now), now, "{silent}");
        }
    }
}
