//! Settings, declared where they are used: a part of the program owns a section, a struct declared with [`settings!`]. A
//! field of it is one setting, and its documentation, its default, its range and its flag are there and nowhere else.
//!
//! The program reads all sections from its layers (defaults, file, environment, flags) and writes help and
//! `docs/config.yaml` from their [`SectionTable`]s. Who uses a part as a library reads its section with [`Section::of`].

mod notation;
mod typed;

pub use clap::ValueEnum;
pub use clap::builder::PossibleValue;
pub use serde_json::Value;

#[doc(hidden)]
pub use serde_json::json;

pub use notation::Notation;
pub use typed::{Bytes, Secret, Switch, Texts, Typed, is_loopback, text, within};

/// Declares a section: a struct that is read from the layers of the configuration, and the table of its settings.
///
/// A field is `name: Type = default`, then optionally its range (`from 1 to 256`), its flag (`flag "--port
/// PORT"`) and a variable that other programs use for the same (`also "EXPORTER_PORT"`). Its documentation is
/// the help of the flag and the comment in `docs/config.yaml`. A section whose settings can contradict each
/// other names its method that refuses them (`check Self::check`).
#[macro_export]
macro_rules! settings {
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
    (@optional) => { None };
    (@optional $it:literal) => { Some($it) };
    (@read $value:ident, $type:ty) => { <$type as $crate::Typed>::read($value) };
    (@read $value:ident, $type:ty, $least:literal) => {
        $crate::within::<$type>($value, &$crate::json!($least), None)
    };
    (@read $value:ident, $type:ty, $least:literal $most:literal) => {
        $crate::within::<$type>($value, &$crate::json!($least), Some(&$crate::json!($most)))
    };
    (
        $(#[doc = $about:literal])+
        $vis:vis struct $name:ident = $section:literal $(, check $check:path)? {
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

        impl $crate::Section for $name {
            const TABLE: $crate::SectionTable = $crate::SectionTable {
                name: $section,
                about: concat!($($about),+),
                settings: &[$($crate::Setting {
                    path: concat!($section, ".", $crate::settings!(@key $field $($key)?)),
                    help: concat!($($doc),+),
                    default: || $crate::json!($default),
                    notation: <$type as $crate::Typed>::NOTATION,
                    check: |value| $crate::settings!(@read value, $type $(, $least $($most)?)?).map(drop),
                    flag: $crate::settings!(@optional $($flag)?),
                    also: $crate::settings!(@optional $($also)?),
                }),+],
            };

            fn read(value_of: &dyn Fn(&'static str) -> $crate::Value) -> Result<Self, $crate::Refusal> {
                let section = Self {
                    $($field: {
                        let setting = concat!($section, ".", $crate::settings!(@key $field $($key)?));
                        let value = &value_of(setting);
                        $crate::settings!(@read value, $type $(, $least $($most)?)?)
                            .map_err(|why| $crate::Refusal::new(setting, why))?
                    },)+
                };
                $($check(&section)?;)?
                Ok(section)
            }
        }
    };
}

/// Makes enums with named values usable as settings.
#[macro_export]
macro_rules! words {
    ($($type:ty),+) => {
        $(impl $crate::Typed for $type {
            const NOTATION: $crate::Notation = $crate::Notation::Words(|| {
                let values = <Self as $crate::ValueEnum>::value_variants().iter();
                values.filter_map($crate::ValueEnum::to_possible_value).collect()
            });

            fn read(value: &$crate::Value) -> Result<Self, String> {
                let is_off = *value == $crate::Value::Bool(false); // YAML takes `off` for it
                let text = if is_off { "off".to_owned() } else { $crate::text(value)? };
                <Self as $crate::ValueEnum>::from_str(&text, false)
                    .map_err(|_| format!("{text:?} is none of {}", Self::NOTATION.words().join(", ")))
            }
        })+
    };
}

/// A section: a struct of settings that one part of the program owns.
pub trait Section: Sized {
    /// Its settings, with what each is for.
    const TABLE: SectionTable;

    /// Reads each setting from its value, and checks them.
    ///
    /// # Errors
    /// When a value is not of its type or out of range, or contradicts another.
    fn read(value_of: &dyn Fn(&'static str) -> Value) -> Result<Self, Refusal>;

    /// The defaults with these values in place of some, by path.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn of(given: &[(&str, Value)]) -> Result<Self, Refusal> {
        Self::read(&|path| {
            let default = || Self::TABLE.settings.iter().find(|setting| setting.path == path);
            let given = given.iter().rev().find(|(named, _)| *named == path).map(|(_, value)| value.clone());
            given.or_else(|| default().map(|setting| (setting.default)())).unwrap_or_default()
        })
    }
}

/// The settings of a section.
#[derive(Debug, Clone, Copy)]
pub struct SectionTable {
    /// Its key in the file of settings.
    pub name: &'static str,
    /// What it is for, as the commented defaults say it.
    pub about: &'static str,
    /// In the order of the struct.
    pub settings: &'static [Setting],
}

/// The description of a setting.
#[derive(Debug)]
pub struct Setting {
    /// Where it stands in the file: `section.key`.
    pub path: &'static str,
    /// The documentation of the field.
    pub help: &'static str,
    /// Gives the value that it has when nobody sets it.
    pub default: fn() -> Value,
    /// How it is written.
    pub notation: Notation,
    /// The reason why a value is impossible.
    pub check: fn(&Value) -> Result<(), String>,
    /// Its flag and the name of the value: `--port PORT`.
    pub flag: Option<&'static str>,
    /// The environment variable that other programs use for the same.
    pub also: Option<&'static str>,
}

impl Setting {
    /// The name in its section.
    pub fn key(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(_, key)| key)
    }

    /// The environment variable.
    pub fn variable(&self) -> String {
        format!("GPUVITALS_{}", self.path.replace('.', "_").to_uppercase())
    }

    /// The name of the flag: `--port`.
    pub fn flag_name(&self) -> Option<&'static str> {
        self.flag.and_then(|flag| flag.split(' ').next())
    }

    /// The help of the flag, which ends with the default.
    pub fn flag_help(&self) -> String {
        let mut help = self.help.trim().to_owned();
        if matches!(self.notation, Notation::Duration) {
            help.push_str(" (without a unit: seconds)");
        }
        if let Some(also) = self.also.filter(|_| self.path.starts_with("agent.")) {
            help = format!("{help} [env: {also}]");
        }
        let default = match (self.default)() {
            Value::String(text) => text,
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
            other => other.to_string().trim_end_matches(".0").to_owned(),
        };
        if default.is_empty() { help } else { format!("{help} [default: {default}]") }
    }

    /// The comment in the file.
    pub fn comment(&self) -> String {
        let words = self.notation.words().join(", ");
        let words = if words.is_empty() { words } else { format!(" ({words})") };
        let also = self.also.map_or(String::new(), |also| format!("; `agent` takes {also}, too"));
        format!("{}{words}{also}", self.help.trim())
    }
}

/// A setting from the command line.
#[derive(Debug, Clone)]
pub struct Override {
    /// Path of the setting: `store.dir`.
    pub setting: &'static str,
    /// What the flag gives.
    pub value: Value,
    /// The flag: `--data-dir`.
    pub flag: &'static str,
}

/// An environment variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name, or ours of the same meaning.
    pub name: String,
    /// Its name in the environment.
    pub given: String,
    /// Its text, not parsed yet.
    pub value: String,
}

impl From<(String, String)> for Variable {
    fn from((name, value): (String, String)) -> Self {
        Self { given: name.clone(), name, value }
    }
}

/// A setting that cannot be as it is.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Path of the setting at fault, `section.key`.
    pub setting: &'static str,
    /// Why it is refused, to be read behind the name of the setting.
    pub why: String,
}

impl Refusal {
    /// A setting that cannot be as it is.
    pub fn new(setting: &'static str, why: impl Into<String>) -> Self {
        Self { setting, why: why.into() }
    }

    /// Refuses one of two settings that is set without the other.
    ///
    /// # Errors
    /// When just one of them is set.
    pub fn unless_both<T>(
        one: (&'static str, &Option<T>),
        other: (&'static str, &Option<T>),
    ) -> Result<(), Self> {
        Self::unless_with(one, other)?;
        Self::unless_with(other, one)
    }

    /// Refuses a setting that needs another.
    ///
    /// # Errors
    /// When it is set and the other is not.
    pub fn unless_with<T>(
        it: (&'static str, &Option<T>),
        other: (&'static str, &Option<T>),
    ) -> Result<(), Self> {
        if it.1.is_none() || other.1.is_some() {
            return Ok(());
        }
        Err(Self::new(it.0, format!("it needs {}, which is not set", other.0)))
    }
}
