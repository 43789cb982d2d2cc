//! Series as Prometheus text 0.0.4, for roles that have few.

use std::fmt::{Display, Write as _};

use gpuvitals_exposition::{Family, Kind};

/// Appends a family of one series: `gpuvitals_` and the name, its type (`counter`, `gauge`), one sentence, its value.
pub(crate) fn one(text: &mut String, name: &str, kind: &str, help: &str, value: impl Display) {
    head(text, name, kind, help);
    // Writing to a string does not fail.
    let _written = writeln!(text, "gpuvitals_{name} {value}");
}

/// Appends the head of a family.
pub(crate) fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _written = writeln!(text, "# HELP gpuvitals_{name} {help}\n# TYPE gpuvitals_{name} {kind}");
}

/// Appends a counter with a series for each reason, which needs no escaping.
pub(crate) fn by_reason<'a>(
    text: &mut String,
    name: &str,
    help: &str,
    counts: impl IntoIterator<Item = (&'a str, u64)>,
) {
    head(text, name, "counter", help);
    for (reason, count) in counts {
        let _written = writeln!(text, "gpuvitals_{name}{{reason=\"{reason}\"}} {count}");
    }
}

/// Families whose labels need no escaping.
pub(crate) fn of(families: &[Family]) -> String {
    let mut text = String::with_capacity(families.len() * 128);
    for Family { name, help, kind, samples } in families {
        let kind = if *kind == Kind::Counter { "counter" } else { "gauge" };
        // Writing to a string does not fail.
        let _written = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let labels: Vec<_> = labels.iter().map(|(label, text)| format!("{label}=\"{text}\"")).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let _written = writeln!(text, "{name}{labels} {value}");
        }
    }
    text
}
