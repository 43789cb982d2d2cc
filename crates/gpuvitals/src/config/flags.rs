//! Flags as settings.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::Value;

use super::Override;

/// A flag as the value of a setting.
pub(crate) trait Flag {
    /// The value; none where the flag was not given.
    fn given(&self) -> Option<Value>;
}

/// The settings that flags change: path of a setting, and flag.
pub(crate) fn overrides<const N: usize>(flags: [(&'static str, &dyn Flag); N]) -> Vec<Override> {
    flags.into_iter().filter_map(|(path, flag)| Some((path, flag.given()?))).collect()
}

/// A flag that takes a word of a list.
pub(crate) fn word<E: ValueEnum>(flag: Option<E>) -> Option<Value> {
    Some(flag?.to_possible_value()?.get_name().into())
}

macro_rules! numbers {
    ($($type:ty),*) => {
        $(impl Flag for Option<$type> {
            fn given(&self) -> Option<Value> {
                self.map(Value::from)
            }
        })*
    };
}

numbers!(bool, u16, u32, u64, usize, f64);

impl Flag for Option<Value> {
    fn given(&self) -> Option<Value> {
        self.clone()
    }
}

impl Flag for Option<String> {
    fn given(&self) -> Option<Value> {
        self.as_deref().map(Value::from)
    }
}

impl Flag for Option<PathBuf> {
    fn given(&self) -> Option<Value> {
        self.as_ref().map(|path| Value::from(path.to_string_lossy()))
    }
}

impl Flag for Option<IpAddr> {
    fn given(&self) -> Option<Value> {
        self.map(|address| Value::from(address.to_string()))
    }
}
