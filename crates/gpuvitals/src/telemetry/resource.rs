//! Who sends: the resource that goes with all spans and metrics.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};

use super::settings::Otlp;

/// Variables that a pod gets from the downward API, and their attributes.
const PLACE: [(&str, &str); 4] = [
    ("POD_NAME", "k8s.pod.name"),
    ("POD_NAMESPACE", "k8s.namespace.name"),
    ("POD_UID", "k8s.pod.uid"),
    ("NODE_NAME", "k8s.node.name"),
];

/// The resource of a service on a host. What the user names holds over what is found.
pub(super) fn of(settings: &Otlp, service: &str, host: &str) -> Resource {
    let text = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    // Nothing that stays when the process starts anew, so that its counters are told from those before.
    let instance = RandomIdGenerator::default().new_trace_id().to_string();
    // A later one holds over an earlier one.
    let mut attributes = BTreeMap::from([
        text("service.name", &format!("gpuvitals-{service}")),
        text("service.version", env!("CARGO_PKG_VERSION")),
        text("service.instance.id", &instance),
        text("host.name", host),
    ]);
    let told = PLACE.into_iter().filter_map(|(variable, key)| Some((key, std::env::var(variable).ok()?)));
    attributes.extend(told.filter(|(_, value)| !value.is_empty()).map(|(key, value)| text(key, &value)));
    // They were checked.
    attributes.extend(self::attributes(&settings.resource_attributes).unwrap_or_default());
    if !settings.service_name.is_empty() {
        attributes.extend([text("service.name", &settings.service_name)]);
    }
    let attributes = attributes.into_iter().map(|(key, value)| attribute(&key, value)).collect();
    Resource { attributes, ..Resource::default() }
}

/// `key=value,key=value`, both percent-encoded.
///
/// # Errors
/// The first entry that is none.
pub(super) fn attributes(text: &str) -> Result<Vec<(String, String)>, String> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    entries
        .map(|entry| {
            let (key, value) = entry.split_once('=').ok_or_else(|| entry.to_owned())?;
            let key = key.trim();
            if key.is_empty() {
                return Err(entry.to_owned());
            }
            Ok((decoded(key), decoded(value.trim())))
        })
        .collect()
}

/// Percent-encoding taken off; what is none stays.
pub(super) fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let hex = behind.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        // A sign would be read as part of a number.
        let hex = hex.filter(|hex| *first == b'%' && hex.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { behind.get(2..).unwrap_or_default() } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// An attribute that is text.
pub(super) fn attribute(key: &str, value: impl Into<String>) -> KeyValue {
    let value = AnyValue { value: Some(Value::StringValue(value.into())) };
    KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_pairs_and_percent_encoding_is_taken_off() {
        let pairs = attributes("team=gpu, deployment.environment=a%2Cb%zz,a%3Db=5%+1%").unwrap();
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(pairs, [("team", "gpu"), ("deployment.environment", "a,b%zz"), ("a=b", "5%+1%")]);
        assert_eq!(attributes("team").unwrap_err(), "team");
        assert_eq!(attributes("=x").unwrap_err(), "=x");
    }
}
