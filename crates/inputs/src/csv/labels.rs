//! Prometheus labels as text: `DCGM_FI_DRIVER_VERSION="535.129.03",Hostname="n1",…`, with or without braces.

use std::borrow::Cow;
use std::ops::Range;

use gpuvitals_core::IdentityColumn;
use gpuvitals_core::foreign::{Meaning, meaning};
use memchr::memmem;

/// Finds the label that names the metric.
pub(super) fn name_finder() -> memmem::Finder<'static> {
    memmem::Finder::new(NAME_LABEL)
}

/// The label that names the metric.
const NAME_LABEL: &str = "__name__";

/// Name and value of each label, in order, or `None` when the text is no list of labels.
pub(super) fn parse(text: &str) -> Option<Vec<(&str, Cow<'_, str>)>> {
    let text = text.trim();
    let mut rest = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text).trim_start();
    let mut labels = Vec::new();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=')?;
        let name = name.trim();
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "_:.".contains(c)) {
            return None;
        }
        let (value, after) = quoted(after.trim_start().strip_prefix('"')?)?;
        labels.push((name, value));
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(after) => after.trim_start(),
            None if after.is_empty() => after,
            None => return None,
        };
    }
    Some(labels)
}

/// A name with labels behind it, if they name a GPU: the name, and the labels in braces. The name may be one of them, or
/// missing.
pub(super) fn braced(name: &str) -> Option<(&str, &str)> {
    let name = name.trim();
    let at = name.find('{').filter(|_| name.ends_with('}'))?;
    let (metric, labels) = name.split_at_checked(at)?;
    let metric = Some(metric.trim()).filter(|metric| !metric.is_empty());
    gpu(labels).map(|_| (metric.or_else(|| named(labels)).unwrap_or_default(), labels))
}

/// The metric that labels name.
fn named(labels: &str) -> Option<&str> {
    parse(labels)?.into_iter().find_map(|(name, value)| match value {
        Cow::Borrowed(value) => Some(value).filter(|_| name == NAME_LABEL),
        Cow::Owned(_) => None,
    })
}

/// The name of a metric without the labels behind it.
pub(super) fn without(name: &str) -> &str {
    braced(name).map_or(name, |(metric, _)| metric)
}

/// The GPU that labels name.
pub(super) fn gpu(labels: &str) -> Option<String> {
    let labels = parse(labels)?;
    let of = |wanted: fn(&Meaning) -> bool| {
        let found = labels.iter().find(|(name, _)| wanted(&meaning(name)));
        found.map(|(_, value)| value.clone().into_owned())
    };
    let is_id =
        |meaning: &Meaning| matches!(meaning, Meaning::Identity(IdentityColumn::Uuid | IdentityColumn::Pci));
    of(|meaning| *meaning == Meaning::Gpu).or_else(|| of(is_id))
}

/// The value up to its closing quote, and the rest.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let end = text.find(['"', '\\'])?;
    if text.get(end..)?.starts_with('"') {
        return Some((Cow::Borrowed(text.get(..end)?), text.get(end + 1..)?));
    }
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((Cow::Owned(value), text.get(at + 1..)?)),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            c => value.push(c),
        }
    }
    None
}

/// The position of the label that names the metric; the other labels are the same in all rows of a GPU.
/// `None` if uncertain.
pub(super) fn name_span(finder: &memmem::Finder<'_>, labels: &[u8]) -> Option<Range<usize>> {
    let start = finder.find(labels)?;
    if !(start == 0 || matches!(labels.get(start - 1), Some(b',' | b'{'))) {
        return None;
    }
    let after = labels.get(start..)?.strip_prefix(NAME_LABEL.as_bytes())?;
    let value = after.strip_prefix(b"=\"")?;
    let len = value.iter().position(|b| !(b.is_ascii_alphanumeric() || *b == b'_' || *b == b':'))?;
    let rest = value.get(len..)?.strip_prefix(b"\"")?;
    (rest.is_empty() || rest.starts_with(b",")).then(|| start..labels.len() - rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn labels_with_and_without_braces_and_escapes() {
        let check = |text: &str, expected: Option<&[(&str, &str)]>| {
            let labels = parse(text);
            let pairs: Option<Vec<(&str, &str)>> =
                labels.as_ref().map(|l| l.iter().map(|(n, v)| (*n, v.as_ref())).collect());
            assert_eq!(pairs.as_deref(), expected, "{text}");
        };
        check(r#"A="1",b="x,y""#, Some(&[("A", "1"), ("b", "x,y")]));
        check(r#"{ A="1", b="q\"q\\" , }"#, Some(&[("A", "1"), ("b", "q\"q\\")]));
        check("", Some(&[]));
        check(r#"A="1"#, None);
        check("A=1", None);
        check(r#"A="1"b="2""#, None);
    }

    #[test]
    fn the_metric_name_is_found_only_where_it_is_certain() {
        let check = |labels: &str, found: Option<&str>| {
            let span = name_span(&name_finder(), labels.as_bytes());
            assert_eq!(span.map(|span| &labels[span]), found, "{labels}");
        };
        check(r#"a="1",__name__="X_Y",b="2""#, Some(r#"__name__="X_Y""#));
        check(r#"a='1',__name__="X""#, Some(r#"__name__="X""#));
        check(r#"a="x__name__="X""#, None);
        check(r#"a="x",__name__=\"X\""#, None);
        check("a=1", None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "[a_=\",\\\\{} é]{0,40}") {
            let _ = parse(&text);
            let _ = name_span(&name_finder(), text.as_bytes());
        }
    }
}
