//! OpenTelemetry's environment variables, under our names.

use gpuvitals_settings::Variable;

/// Theirs and ours.
const VARIABLES: [(&str, &str, ValueForm); 12] = [
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "GPUVITALS_OTLP_ENDPOINT", ValueForm::Same),
    ("OTEL_EXPORTER_OTLP_PROTOCOL", "GPUVITALS_OTLP_PROTOCOL", ValueForm::Same),
    ("OTEL_EXPORTER_OTLP_CERTIFICATE", "GPUVITALS_OTLP_CA", ValueForm::Same),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "GPUVITALS_OTLP_TIMEOUT", ValueForm::Milliseconds),
    ("OTEL_METRIC_EXPORT_INTERVAL", "GPUVITALS_OTLP_INTERVAL", ValueForm::Milliseconds),
    ("OTEL_SERVICE_NAME", "GPUVITALS_OTLP_SERVICE_NAME", ValueForm::Same),
    ("OTEL_RESOURCE_ATTRIBUTES", "GPUVITALS_OTLP_RESOURCE_ATTRIBUTES", ValueForm::Same),
    ("OTEL_TRACES_SAMPLER", "GPUVITALS_OTLP_SAMPLER", ValueForm::Same),
    ("OTEL_TRACES_SAMPLER_ARG", "GPUVITALS_OTLP_SAMPLER_ARG", ValueForm::Same),
    ("OTEL_TRACES_EXPORTER", "GPUVITALS_OTLP_TRACES", ValueForm::Exporter),
    ("OTEL_METRICS_EXPORTER", "GPUVITALS_OTLP_METRICS", ValueForm::Exporter),
    // Last, so that it holds over an endpoint.
    ("OTEL_SDK_DISABLED", "GPUVITALS_OTLP_ENDPOINT", ValueForm::Disabled),
];

/// How a value of theirs becomes one of ours.
#[derive(Clone, Copy)]
enum ValueForm {
    Same,
    /// A number without a unit.
    Milliseconds,
    /// Names of exporters; a signal is exported if `otlp` is among them.
    Exporter,
    /// `true` switches all off.
    Disabled,
}

/// The environment with their variables under our names; if both are set, ours wins. An empty one counts as
/// unset.
pub fn environment(variables: impl Iterator<Item = Variable>) -> impl Iterator<Item = Variable> {
    let variables: Vec<_> = variables.collect();
    let value = |theirs: &str| {
        let found = variables.iter().find(|it| it.name == theirs && !it.value.is_empty())?;
        Some(found.value.clone())
    };
    let translated = VARIABLES.iter().filter_map(|(theirs, ours, form)| {
        let (name, given) = ((*ours).to_owned(), (*theirs).to_owned());
        Some(Variable { name, given, value: form.ours(value(theirs)?)? })
    });
    let translated: Vec<_> = translated.collect();
    translated.into_iter().chain(variables)
}

/// Names of theirs that are set and mean something to others, but nothing here.
pub fn unread(variables: impl Iterator<Item = Variable>) -> impl Iterator<Item = String> {
    let is_unread = |name: &str| {
        // The SDK's exporter of spans reads this one.
        name != "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
            && (["OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_METRICS_"]
                .iter()
                .any(|of| name.starts_with(of))
                || name == "OTEL_EXPORTER_OTLP_COMPRESSION")
    };
    variables.filter_map(move |Variable { name, value, .. }| {
        (is_unread(&name) && !["", "none"].contains(&value.trim())).then_some(name)
    })
}

impl ValueForm {
    fn ours(self, value: String) -> Option<String> {
        match self {
            Self::Milliseconds if value.trim().bytes().all(|digit| digit.is_ascii_digit()) => {
                Some(format!("{}ms", value.trim()))
            }
            // A duration with a unit is unambiguous; an invalid one is refused as written.
            Self::Milliseconds | Self::Same => Some(value),
            Self::Exporter => Some(value.split(',').any(|name| name.trim() == "otlp").to_string()),
            Self::Disabled => value.trim().eq_ignore_ascii_case("true").then(String::new),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn their_variables_become_ours_and_ours_come_last() {
        let theirs = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318"),
            ("GPUVITALS_OTLP_ENDPOINT", "http://b:4318"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "1500"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2s"),
            ("OTEL_TRACES_EXPORTER", "none"),
            ("OTEL_METRICS_EXPORTER", "prometheus, otlp"),
            ("OTEL_SERVICE_NAME", ""),
            ("PATH", "/bin"),
        ];
        let owned = theirs.map(|(name, value)| (name.to_owned(), value.to_owned()).into());
        let ours: Vec<_> = environment(owned.into_iter()).collect();
        let last = |name: &str| ours.iter().rev().find(|it| it.name == name).map(|it| it.value.as_str());
        assert_eq!(last("GPUVITALS_OTLP_ENDPOINT"), Some("http://b:4318"));
        assert_eq!(last("GPUVITALS_OTLP_INTERVAL"), Some("1500ms"));
        assert_eq!(last("GPUVITALS_OTLP_TIMEOUT"), Some("2s"));
        assert_eq!(last("GPUVITALS_OTLP_TRACES"), Some("false"));
        assert_eq!(last("GPUVITALS_OTLP_METRICS"), Some("true"));
        assert_eq!(last("GPUVITALS_OTLP_SERVICE_NAME"), None);
        assert_eq!(last("PATH"), Some("/bin"));
    }

    #[test]
    fn a_signal_that_is_to_go_another_way_does_not_go_this_way() {
        for exporter in ["none", "prometheus", "console,zipkin"] {
            let theirs = [("OTEL_METRICS_EXPORTER".to_owned(), exporter.to_owned()).into()];
            let ours: Vec<_> = environment(theirs.into_iter()).collect();
            assert_eq!((&*ours[0].name, &*ours[0].value), ("GPUVITALS_OTLP_METRICS", "false"), "{exporter}");
        }
    }

    #[test]
    fn the_switch_for_all_takes_the_endpoint_away() {
        let theirs = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318"), ("OTEL_SDK_DISABLED", "TRUE")];
        let owned = theirs.map(|(name, value)| (name.to_owned(), value.to_owned()).into());
        let last = environment(owned.into_iter()).filter(|it| it.name == "GPUVITALS_OTLP_ENDPOINT").last();
        assert_eq!(last.unwrap().value, "");
    }
}
