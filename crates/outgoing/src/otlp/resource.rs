//! The resource that all spans and metrics name as their origin.

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};

use super::settings::OtlpSettings;

pub(super) use super::attributes::attributes;

/// Instrumentation scope of the spans and metrics.
pub(super) const SCOPE: &str = "gpuvitals";
/// Variables that a pod gets from the downward API, and their attributes.
const PLACE: [(&str, &str); 4] = [
    ("POD_NAME", "k8s.pod.name"),
    ("POD_NAMESPACE", "k8s.namespace.name"),
    ("POD_UID", "k8s.pod.uid"),
    ("NODE_NAME", "k8s.node.name"),
];

/// The resource of a service on a host. The user's attributes win over detected ones.
pub(super) fn of(settings: &OtlpSettings, service: &str, host: &str) -> Resource {
    // A new one at every start, to distinguish the counters of a process from those of the one before.
    let instance = RandomIdGenerator::default().new_trace_id().to_string();
    let of_pod = PLACE.into_iter().filter_map(|(variable, key)| Some((key, std::env::var(variable).ok()?)));
    // They were checked.
    let of_user = attributes(&settings.resource_attributes).unwrap_or_default();
    // Of one key the later attribute holds.
    let resource = Resource::builder_empty()
        .with_attributes([
            KeyValue::new("service.name", format!("gpuvitals-{service}")),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", instance),
            KeyValue::new("host.name", host.to_owned()),
        ])
        .with_attributes(
            of_pod.filter(|(_, value)| !value.is_empty()).map(|(key, value)| KeyValue::new(key, value)),
        )
        .with_attributes(of_user.into_iter().map(|(key, value)| KeyValue::new(key, value)));
    let named = Some(settings.service_name.clone()).filter(|name| !name.is_empty());
    resource.with_attributes(named.map(|name| KeyValue::new("service.name", name))).build()
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
