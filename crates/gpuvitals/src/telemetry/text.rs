//! Prometheus text 0.0.4, as our own services write it, read back into families.

use std::borrow::Cow;

/// What a family is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A family with its series, in the order of the text.
#[derive(Debug)]
pub(super) struct Family<'a> {
    pub(super) name: &'a str,
    pub(super) kind: Kind,
    pub(super) help: Cow<'a, str>,
    pub(super) samples: Vec<Sample<'a>>,
}

/// One line.
#[derive(Debug)]
pub(super) struct Sample<'a> {
    /// The family's, or with `_bucket`, `_sum` or `_count` behind it.
    pub(super) name: &'a str,
    pub(super) labels: Vec<(&'a str, Cow<'a, str>)>,
    pub(super) value: f64,
}

/// The families of a text. A line that is none of ours is left out.
pub(super) fn families(text: &str) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    let mut help = ("", "");
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').unwrap_or((rest, ""));
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, ""));
            let kind = match kind {
                "counter" => Kind::Counter,
                "histogram" => Kind::Histogram,
                _ => Kind::Gauge,
            };
            let help = if help.0 == name { unescaped(help.1) } else { Cow::Borrowed("") };
            families.push(Family { name, kind, help, samples: Vec::new() });
        } else if let Some(family) = families.last_mut()
            && let Some(sample) = sample(line)
            && sample.name.starts_with(family.name)
        {
            family.samples.push(sample);
        }
    }
    families
}

/// `name{label="text",…} value`.
fn sample(line: &str) -> Option<Sample<'_>> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at_checked(end)?;
    let mut labels = Vec::new();
    let mut rest = rest;
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            rest = rest.trim_start_matches(',');
            if let Some(behind) = rest.strip_prefix('}') {
                rest = behind;
                break;
            }
            let (label, behind) = rest.split_once("=\"")?;
            let close = closing_quote(behind)?;
            labels.push((label, unescaped(behind.get(..close)?)));
            rest = behind.get(close + 1..)?;
        }
    }
    let value = match rest.trim() {
        "+Inf" => f64::INFINITY,
        text => text.parse().ok()?,
    };
    Some(Sample { name, labels, value })
}

/// Where the quote is that no backslash stands before.
fn closing_quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let closes = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        closes
    })
}

fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(one) = chars.next() {
        match if one == '\\' { chars.next() } else { None } {
            Some('n') => out.push('\n'),
            Some(escaped) => out.push(escaped),
            None => out.push(one),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_labels_and_values_are_read_back() {
        let text = "# HELP a_total Things, \\\\ and \\n lines.\n# TYPE a_total counter\n\
                    a_total{job=\"x \\\"{y}\\\" \\\\ z\",k=\"\"} 7\na_total 0.5\n\
                    # HELP b B.\n# TYPE b gauge\nb 1\nnonsense\n";
        let read = families(text);
        let names: Vec<_> = read.iter().map(|f| (f.name, f.kind, f.samples.len())).collect();
        assert_eq!(names, [("a_total", Kind::Counter, 2), ("b", Kind::Gauge, 1)]);
        let first = &read[0].samples[0];
        assert_eq!(read[0].help, "Things, \\ and \n lines.");
        assert_eq!(first.labels, [("job", Cow::Borrowed("x \"{y}\" \\ z")), ("k", Cow::Borrowed(""))]);
        assert!((first.value - 7.0).abs() < f64::EPSILON);
        assert!(read[0].samples[1].labels.is_empty());
    }
}
