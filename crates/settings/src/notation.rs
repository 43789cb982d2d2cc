//! A notation says how a value is written.

use clap::builder::PossibleValue;
use serde_json::Value;

/// How a setting is written.
#[derive(Debug, Clone, Copy)]
pub enum Notation {
    /// A text or a number.
    Plain,
    /// A length of time, such as `500ms`.
    Duration,
    /// True or false; as a flag without a value, true.
    Switch,
    /// One of these.
    Words(fn() -> Vec<PossibleValue>),
    /// Some of these, or any if there are none, separated by commas.
    List(fn() -> Vec<PossibleValue>),
    /// Texts that may have commas in them: as a flag given several times, in the environment one.
    Texts,
    /// A URL, which is not repeated if it is wrong: it may hold a secret.
    Url,
    /// A text that is not shown.
    Secret,
    /// A list of objects, of which these fields are not shown. In the environment it is JSON.
    Objects(&'static [&'static str]),
}

impl Notation {
    /// A value as it may be shown; `***` stands for what may not.
    pub fn shown(self, value: Value) -> Value {
        let hidden = || Value::from("***");
        match (self, value) {
            // Of objects in a wrong place nothing is known.
            (Self::Secret, _) | (Self::Objects(_), Value::Object(_)) => hidden(),
            (Self::Objects(_), Value::String(text)) if !text.trim().is_empty() => {
                serde_json::from_str(&text).map_or_else(|_| hidden(), |list| self.shown(list))
            }
            (Self::Objects(secrets), Value::Array(mut entries)) => {
                let fields = entries.iter_mut().filter_map(Value::as_object_mut).flatten();
                for (_, value) in fields.filter(|(field, _)| secrets.contains(&field.as_str())) {
                    *value = hidden();
                }
                Value::Array(entries)
            }
            (_, value) => value,
        }
    }

    /// The names of the values, if they have names.
    pub fn words(self) -> Vec<String> {
        match self {
            Self::Words(words) | Self::List(words) => {
                words().iter().map(|word| word.get_name().to_owned()).collect()
            }
            _ => Vec::new(),
        }
    }
}
