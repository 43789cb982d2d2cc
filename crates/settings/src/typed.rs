//! Types of settings, and how each is read.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::quantity;
use serde_json::Value;

use crate::Notation;

/// A type of setting.
pub trait Typed: Sized {
    /// How it is written.
    const NOTATION: Notation = Notation::Plain;

    /// Reads a value of the file, or a text of the environment or of a flag.
    ///
    /// # Errors
    /// Why it is not of this type.
    fn read(value: &Value) -> Result<Self, String>;
}

/// A value of a type that is in a range, ends included.
///
/// # Errors
/// When it is not of that type, or out of the range.
pub fn within<T: Typed + PartialOrd>(
    value: &Value,
    least: &Value,
    most: Option<&Value>,
) -> Result<T, String> {
    let it = T::read(value)?;
    let is_below = T::read(least)? > it;
    let is_above = most.map(T::read).transpose()?.is_some_and(|most| it > most);
    let (value, least) = (plain(value), plain(least));
    match most {
        _ if !is_below && !is_above => Ok(it),
        Some(most) => Err(format!("{value} is out of range: {least} to {}", plain(most))),
        None => Err(format!("{value} is too low: {least} is the least")),
    }
}

fn plain(value: &Value) -> String {
    text(value).unwrap_or_else(|_| value.to_string())
}

/// Whether the host of a URL, an address of IPv6 with or without its brackets, is this machine: a secret may go there in the
/// clear.
pub fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// A value on one line.
///
/// # Errors
/// If the value is a list or a map.
pub fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        Value::Array(_) | Value::Object(_) => Err(format!("{value} is no single value")),
    }
}

macro_rules! numbers {
    ($($type:ty: $what:literal),+) => {
        $(impl Typed for $type {
            fn read(value: &Value) -> Result<Self, String> {
                let text = text(value)?;
                text.parse().map_err(|_| format!("{text:?} is no {}", $what))
            }
        })+
    };
}

numbers!(
    u16: "whole number from 0 to 65535",
    u32: "whole number from 0 to 4294967295",
    u64: "whole number",
    usize: "whole number",
    NonZeroU32: "whole number above 0",
    IpAddr: "IP address; a port has a setting of its own"
);

impl Typed for f64 {
    fn read(value: &Value) -> Result<Self, String> {
        let text = text(value)?;
        let number = text.parse().ok().filter(|number: &Self| number.is_finite());
        number.ok_or_else(|| format!("{text:?} is no number"))
    }
}

impl Typed for bool {
    const NOTATION: Notation = Notation::Switch;

    fn read(value: &Value) -> Result<Self, String> {
        let text = text(value)?;
        match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            _ => Err(format!("{text:?} is neither true nor false")),
        }
    }
}

impl Typed for String {
    fn read(value: &Value) -> Result<Self, String> {
        text(value)
    }
}

impl Typed for Arc<str> {
    fn read(value: &Value) -> Result<Self, String> {
        text(value).map(Self::from)
    }
}

impl Typed for PathBuf {
    fn read(value: &Value) -> Result<Self, String> {
        text(value).map(Self::from)
    }
}

/// An empty text is none.
impl<T: Typed> Typed for Option<T> {
    const NOTATION: Notation = T::NOTATION;

    fn read(value: &Value) -> Result<Self, String> {
        if text(value).is_ok_and(|text| text.is_empty()) { Ok(None) } else { T::read(value).map(Some) }
    }
}

impl<T: Typed> Typed for Vec<T> {
    const NOTATION: Notation = Notation::List(match T::NOTATION {
        Notation::Words(words) => words,
        _ => Vec::new,
    });

    fn read(value: &Value) -> Result<Self, String> {
        if let Value::Array(items) = value {
            return items.iter().map(T::read).collect();
        }
        let text = text(value)?;
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        items.map(|item| T::read(&item.into())).collect()
    }
}

/// Some texts, which may have commas in them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts(pub Vec<String>);

impl Typed for Texts {
    const NOTATION: Notation = Notation::Texts;

    fn read(value: &Value) -> Result<Self, String> {
        let items = match value {
            Value::Array(items) => items.iter().map(text).collect::<Result<Vec<_>, _>>()?,
            one => vec![text(one)?],
        };
        Ok(Self(items.into_iter().filter(|item| !item.is_empty()).collect()))
    }
}

impl Typed for Duration {
    const NOTATION: Notation = Notation::Duration;

    fn read(value: &Value) -> Result<Self, String> {
        quantity::duration(&text(value)?).map_err(|error| error.to_string())
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub struct Bytes(pub u64);

impl Bytes {
    /// As many as there can be in memory.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl Typed for Bytes {
    fn read(value: &Value) -> Result<Self, String> {
        quantity::bytes(&text(value)?).map(Self).map_err(|error| error.to_string())
    }
}

/// A text that is not shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl Secret {
    /// The text, for the peer that asks for it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "***" })
    }
}

impl Typed for Secret {
    const NOTATION: Notation = Notation::Secret;

    fn read(value: &Value) -> Result<Self, String> {
        // The value stays out of the message.
        text(value).map(Self).map_err(|_| "it is no text".to_owned())
    }
}

/// On, off, or automatic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// If there is a reason to.
    Auto,
    /// Always, with a reason or without.
    On,
    /// Never, whatever speaks for it.
    Off,
}

impl Typed for Switch {
    const NOTATION: Notation = Notation::Switch;

    fn read(value: &Value) -> Result<Self, String> {
        match text(value)?.as_str() {
            "auto" => Ok(Self::Auto),
            text => match bool::read(value) {
                Ok(true) => Ok(Self::On),
                Ok(false) => Ok(Self::Off),
                Err(_) => Err(format!("{text:?} is none of auto, true, false")),
            },
        }
    }
}
