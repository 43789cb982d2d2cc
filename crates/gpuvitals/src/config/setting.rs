//! A setting is one field: its documentation, its default, its range and its flag are there and nowhere else.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValue;
use gpuvitals_core::quantity;
use gpuvitals_queue::link::QueueUrl;
use serde_json::Value;

/// Declares a section: a struct that is read from the layers of the configuration, and the table of its settings.
///
/// A field is `name: Type = default`, then optionally its range (`from 1 to 256`), its flag (`flag "--port
/// PORT"`) and a variable that other programs use for the same (`also "EXPORTER_PORT"`). Its documentation is
/// the help of the flag and the comment in `configs/config.yaml`.
macro_rules! settings {
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
    (@optional) => { None };
    (@optional $it:literal) => { Some($it) };
    (@read $value:ident, $type:ty) => { <$type as $crate::config::Typed>::read($value) };
    (@read $value:ident, $type:ty, $least:literal) => {
        $crate::config::within::<$type>($value, &serde_json::json!($least), None)
    };
    (@read $value:ident, $type:ty, $least:literal $most:literal) => {
        $crate::config::within::<$type>($value, &serde_json::json!($least), Some(&serde_json::json!($most)))
    };
    (
        $(#[doc = $about:literal])+
        $vis:vis struct $name:ident = $section:literal {
            $(
                $(#[doc = $doc:literal])+
                $field_vis:vis $field:ident $(($key:literal))?: $type:ty = $default:tt
                $(, from $least:literal $(to $most:literal)?)?
                $(, flag $flag:literal)?
                $(, also $also:literal)?;
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq)]
        $vis struct $name {
            $($(#[doc = $doc])+ $field_vis $field: $type,)+
        }

        impl $crate::config::Section for $name {
            const TABLE: $crate::config::Table = $crate::config::Table {
                name: $section,
                about: concat!($($about),+),
                settings: &[$($crate::config::Setting {
                    path: concat!($section, ".", settings!(@key $field $($key)?)),
                    help: concat!($($doc),+),
                    default: || serde_json::json!($default),
                    form: <$type as $crate::config::Typed>::FORM,
                    check: |value| settings!(@read value, $type $(, $least $($most)?)?).map(drop),
                    flag: settings!(@optional $($flag)?),
                    also: settings!(@optional $($also)?),
                }),+],
            };

            fn read(values: &$crate::config::Values) -> Result<Self, $crate::config::Refusal> {
                Ok(Self {
                    $($field: values.read(
                        concat!($section, ".", settings!(@key $field $($key)?)),
                        |value| settings!(@read value, $type $(, $least $($most)?)?),
                    )?,)+
                })
            }
        }
    };
}
pub(crate) use settings;

/// Makes enums with named values usable as settings.
macro_rules! words {
    ($($type:ty),+) => {
        $(impl $crate::config::Typed for $type {
            const FORM: $crate::config::Form = $crate::config::Form::Words(|| {
                let values = <Self as clap::ValueEnum>::value_variants().iter();
                values.filter_map(clap::ValueEnum::to_possible_value).collect()
            });

            fn read(value: &serde_json::Value) -> Result<Self, String> {
                let is_off = *value == serde_json::Value::Bool(false); // YAML takes `off` for it
                let text = if is_off { "off".to_owned() } else { $crate::config::text(value)? };
                <Self as clap::ValueEnum>::from_str(&text, false)
                    .map_err(|_| format!("{text:?} is none of {}", Self::FORM.words().join(", ")))
            }
        })+
    };
}
pub(crate) use words;

/// A section: a struct of settings that one part of the program owns.
pub(crate) trait Section: Sized {
    /// Its settings.
    const TABLE: Table;

    /// Reads each of them.
    ///
    /// # Errors
    /// When a value is not of its type, or out of range.
    fn read(values: &super::Values) -> Result<Self, Refusal>;
}

/// The settings of a section.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table {
    /// Its key.
    pub name: &'static str,
    /// Its purpose.
    pub about: &'static str,
    /// In the order of the struct.
    pub settings: &'static [Setting],
}

/// The description of a setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// `section.key`.
    pub path: &'static str,
    /// The documentation of the field.
    pub help: &'static str,
    /// The default.
    pub default: fn() -> Value,
    /// How it is written.
    pub form: Form,
    /// The reason why a value is impossible.
    pub check: fn(&Value) -> Result<(), String>,
    /// Its flag and the name of the value: `--port PORT`.
    pub flag: Option<&'static str>,
    /// The environment variable that other programs use for the same.
    pub also: Option<&'static str>,
}

/// How a setting is written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    /// A text or a number.
    Plain,
    /// A time.
    Duration,
    /// True or false; as a flag without a value, true.
    Switch,
    /// One of these.
    Words(fn() -> Vec<PossibleValue>),
    /// Some of these, or any if there are none, separated by commas.
    List(fn() -> Vec<PossibleValue>),
    /// A URL, which is not repeated if it is wrong: it may hold a secret.
    Url,
    /// A text that is not shown.
    Secret,
}

impl Form {
    /// The names of the values, if they have names.
    pub(crate) fn words(self) -> Vec<String> {
        match self {
            Self::Words(words) | Self::List(words) => {
                words().iter().map(|word| word.get_name().to_owned()).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Setting {
    /// The name in its section.
    pub(crate) fn key(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(_, key)| key)
    }

    /// The environment variable.
    pub(crate) fn variable(&self) -> String {
        format!("GPUVITALS_{}", self.path.replace('.', "_").to_uppercase())
    }

    /// The name of the flag: `--port`.
    pub(crate) fn flag_name(&self) -> Option<&'static str> {
        self.flag.and_then(|flag| flag.split(' ').next())
    }

    /// The help of the flag, which ends with the default.
    pub(crate) fn flag_help(&self) -> String {
        let mut help = self.help.trim().to_owned();
        if matches!(self.form, Form::Duration) {
            help.push_str(" (without a unit: seconds)");
        }
        if let Some(also) = self.also.filter(|_| self.path.starts_with("agent.")) {
            help = format!("{help} [env: {also}]");
        }
        let default = match (self.default)() {
            Value::String(text) => text,
            Value::Array(_) => String::new(),
            other => other.to_string().trim_end_matches(".0").to_owned(),
        };
        if default.is_empty() { help } else { format!("{help} [default: {default}]") }
    }

    /// The comment in the file.
    pub(crate) fn comment(&self) -> String {
        let words = self.form.words().join(", ");
        let words = if words.is_empty() { words } else { format!(" ({words})") };
        let also = self.also.map_or(String::new(), |also| format!("; `agent` takes {also}, too"));
        format!("{}{words}{also}", self.help.trim())
    }
}

/// Sections as a file, each setting with its value and a comment.
pub(crate) fn render(sections: &[Table], of: impl Fn(&Setting) -> (Value, String)) -> String {
    let mut file = String::new();
    for section in sections {
        let about = commented(&format!("{}:", section.name), section.about.trim());
        let lines = section.settings.iter().map(|setting| {
            let (value, comment) = of(setting);
            commented(&format!("  {}: {}", setting.key(), scalar(&value)), &comment)
        });
        let gap = if file.is_empty() { "" } else { "\n" };
        let _always = write!(file, "{gap}{about}{}", lines.collect::<String>());
    }
    file
}

/// A line with a comment beside it, which continues below.
fn commented(line: &str, comment: &str) -> String {
    const COLUMN: usize = 28;
    const WIDTH: usize = 95;
    let mut lines = vec![String::new()];
    for word in comment.split_whitespace() {
        match lines.last_mut() {
            Some(last) if last.len() + word.len() < WIDTH => {
                let gap = if last.is_empty() { "" } else { " " };
                let _always = write!(last, "{gap}{word}");
            }
            _ => lines.push(word.to_owned()),
        }
    }
    let begin = |at: usize| if at == 0 { line } else { "" };
    let beside = |(at, words): (usize, String)| format!("{:COLUMN$} # {words}\n", begin(at));
    if comment.is_empty() { format!("{line}\n") } else { lines.into_iter().enumerate().map(beside).collect() }
}

/// A value in YAML: a text without quotes if it is the same text without.
fn scalar(value: &Value) -> String {
    let is_plain = |text: &str| {
        let read = serde_saphyr::from_str::<Value>(text).ok();
        !text.is_empty() && read.is_some_and(|value| self::text(&value).is_ok_and(|it| it == text))
    };
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A setting that cannot be as it is.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// Its path.
    pub setting: &'static str,
    /// Why.
    pub why: String,
}

impl Refusal {
    /// A setting that cannot be as it is.
    pub(crate) fn new(setting: &'static str, why: impl Into<String>) -> Self {
        Self { setting, why: why.into() }
    }

    /// Refuses one of two settings that is set without the other.
    pub(crate) fn unless_both<T>(
        one: (&'static str, &Option<T>),
        other: (&'static str, &Option<T>),
    ) -> Result<(), Self> {
        Self::unless_with(one, other)?;
        Self::unless_with(other, one)
    }

    /// Refuses a setting that needs another.
    pub(crate) fn unless_with<T>(
        it: (&'static str, &Option<T>),
        other: (&'static str, &Option<T>),
    ) -> Result<(), Self> {
        if it.1.is_none() || other.1.is_some() {
            return Ok(());
        }
        Err(Self::new(it.0, format!("it needs {}, which is not set", other.0)))
    }
}

/// A type of setting.
pub(crate) trait Typed: Sized {
    /// How it is written.
    const FORM: Form = Form::Plain;

    /// Reads a value of the file, or a text of the environment or of a flag.
    ///
    /// # Errors
    /// Why it is not of this type.
    fn read(value: &Value) -> Result<Self, String>;
}

/// A value of a type that is in a range, ends included.
pub(crate) fn within<T: Typed + PartialOrd>(
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

/// A value on one line.
///
/// # Errors
/// If the value is a list or a map.
pub(crate) fn text(value: &Value) -> Result<String, String> {
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
    IpAddr: "IP address"
);

impl Typed for f64 {
    fn read(value: &Value) -> Result<Self, String> {
        let text = text(value)?;
        let number = text.parse().ok().filter(|number: &Self| number.is_finite());
        number.ok_or_else(|| format!("{text:?} is no number"))
    }
}

impl Typed for bool {
    const FORM: Form = Form::Switch;

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

impl Typed for PathBuf {
    fn read(value: &Value) -> Result<Self, String> {
        text(value).map(Self::from)
    }
}

/// An empty text is none.
impl<T: Typed> Typed for Option<T> {
    const FORM: Form = T::FORM;

    fn read(value: &Value) -> Result<Self, String> {
        if text(value).is_ok_and(|text| text.is_empty()) { Ok(None) } else { T::read(value).map(Some) }
    }
}

impl<T: Typed> Typed for Vec<T> {
    const FORM: Form = Form::List(match T::FORM {
        Form::Words(words) => words,
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

impl Typed for Duration {
    const FORM: Form = Form::Duration;

    fn read(value: &Value) -> Result<Self, String> {
        quantity::duration(&text(value)?).map_err(|error| error.to_string())
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) struct Bytes(pub u64);

impl Bytes {
    /// As many as there can be in memory.
    pub(crate) fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl Typed for Bytes {
    fn read(value: &Value) -> Result<Self, String> {
        quantity::bytes(&text(value)?).map(Self).map_err(|error| error.to_string())
    }
}

impl Typed for QueueUrl {
    const FORM: Form = Form::Url;

    fn read(value: &Value) -> Result<Self, String> {
        let text = text(value)?;
        if text.is_empty() {
            return Ok(Self::in_process());
        }
        text.parse().map_err(|error: gpuvitals_queue::link::UrlError| error.to_string())
    }
}

/// A text that is not shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "***" })
    }
}

impl Typed for Secret {
    const FORM: Form = Form::Secret;

    fn read(value: &Value) -> Result<Self, String> {
        // The value stays out of the message.
        text(value).map(Self).map_err(|_| "it is no text".to_owned())
    }
}

/// On, off, or automatic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switch {
    /// If there is a reason to.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

impl Typed for Switch {
    const FORM: Form = Form::Switch;

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
