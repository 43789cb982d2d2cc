//! The racks that hosts stand in.

use gpuvitals_settings::{Typed, Value, text};
use regex::Regex;

/// Finds the rack in a host's name: the first group of a regular expression, or the whole match if it has none.
#[derive(Debug, Clone)]
pub struct RackPattern(Regex);

impl PartialEq for RackPattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Typed for RackPattern {
    fn read(value: &Value) -> Result<Self, String> {
        let text = text(value)?;
        Regex::new(&text).map(Self).map_err(|error| error.to_string())
    }
}

impl RackPattern {
    /// The rack of a host; none if its name has none.
    pub(crate) fn rack_of<'a>(&self, host: &'a str) -> Option<&'a str> {
        let group = usize::from(self.0.captures_len() > 1);
        let rack = self.0.captures(host)?.get(group)?.as_str();
        (!rack.is_empty()).then_some(rack)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rack_is_the_first_group_or_what_matches() {
        let rack = |pattern: &str, host| {
            RackPattern::read(&json!(pattern)).unwrap().rack_of(host).map(str::to_owned)
        };
        assert_eq!(rack("^(r[0-9]+)-", "r12-n03").as_deref(), Some("r12"));
        assert_eq!(rack("rack[0-9]+", "gpu-rack7-u3").as_deref(), Some("rack7"));
        assert_eq!(rack("^(r[0-9]+)-", "login"), None);
        assert_eq!(rack("^(r[0-9]+)?[a-z]+", "login"), None);
        assert!(RackPattern::read(&json!("(")).unwrap_err().contains("unclosed group"));
    }
}
