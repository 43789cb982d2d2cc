//! A strict reader of both text formats: scrapers may refuse what it refuses.

use std::collections::{BTreeMap, HashSet};

use gpuvitals_core::figures::Format;

/// A series with its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// Every sample of the text.
///
/// # Panics
/// When the text breaks a rule of the format.
pub(crate) fn read(format: Format, text: &[u8]) -> Vec<Sample> {
    let text = std::str::from_utf8(text).expect("the text is UTF-8");
    assert!(text.is_empty() || text.ends_with('\n'), "the last line ends");
    let mut samples = Vec::new();
    let (mut families, mut series) = (HashSet::new(), HashSet::new());
    let mut family: Option<(String, String)> = None;
    let mut described: Option<String> = None;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "# EOF" {
            assert_eq!(format, Format::OpenMetrics);
            assert!(lines.peek().is_none(), "nothing comes after the end");
            return samples;
        }
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a name and a help");
            assert!(!help.is_empty() && is_name(name), "{line}");
            assert!(families.insert(name.to_owned()), "{name} is there twice");
            described = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a kind");
            assert_eq!(described.as_deref(), Some(name), "TYPE comes after its HELP");
            let known: &[&str] = match format {
                Format::Prometheus => &["gauge", "counter"],
                Format::OpenMetrics => &["gauge", "counter", "info", "unknown"],
            };
            assert!(known.contains(&kind), "{line}");
            assert!(!name.ends_with("_total") || (format, kind) == (Format::Prometheus, "counter"), "{line}");
            family = Some((name.to_owned(), kind.to_owned()));
        } else if let Some(rest) = line.strip_prefix("# UNIT ") {
            assert_eq!(format, Format::OpenMetrics);
            let (name, unit) = rest.split_once(' ').expect("a name and a unit");
            assert_eq!(family.as_ref().map(|(name, _)| name.as_str()), Some(name));
            assert!(name.ends_with(&format!("_{unit}")), "{line}");
        } else {
            let sample = sample(line);
            let (name, kind) = family.as_ref().expect("a family before its series");
            let suffix = match (format, kind.as_str()) {
                (Format::OpenMetrics, "counter") => "_total",
                (Format::OpenMetrics, "info") => "_info",
                _ => "",
            };
            assert_eq!(sample.name, format!("{name}{suffix}"), "{line}");
            assert!(kind != "counter" || sample.value >= 0.0, "{line}");
            assert!(kind != "info" || sample.value == 1.0, "{line}");
            assert!(series.insert((sample.name.clone(), sample.labels.clone())), "{line} is there twice");
            samples.push(sample);
        }
    }
    assert_eq!(format, Format::Prometheus, "OpenMetrics ends in EOF");
    samples
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("{line}"));
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
            assert!(is_name(label), "{line}");
            let (text, after) = quoted(after, line);
            assert!(labels.insert(label.to_owned(), text).is_none(), "{label} twice: {line}");
            match after.split_at_checked(1) {
                Some((",", next)) => rest = next,
                Some(("}", next)) => {
                    rest = next;
                    break;
                }
                _ => panic!("{line}"),
            }
        }
    }
    let number = rest.strip_prefix(' ').unwrap_or_else(|| panic!("{line}"));
    assert!(
        !number.contains(['e', 'E', ' ', 'n', 'N', 'i', 'I', '+']),
        "no exponent, no time, no NaN: {line}"
    );
    Sample { name: name.to_owned(), labels, value: number.parse().unwrap_or_else(|_| panic!("{line}")) }
}

/// Text up to the closing quote, unescaped, and the rest.
fn quoted<'a>(text: &'a str, line: &str) -> (String, &'a str) {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (out, &text[at + 1..]),
            '\\' => match chars.next() {
                Some((_, 'n')) => out.push('\n'),
                Some((_, escaped @ ('\\' | '"'))) => out.push(escaped),
                _ => panic!("unknown escape: {line}"),
            },
            c => out.push(c),
        }
    }
    panic!("no closing quote: {line}")
}
