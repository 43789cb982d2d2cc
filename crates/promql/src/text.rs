//! What is checked of a query's text before the parser sees it, which is recursive and compiles every regular expression.

use gpuvitals_core::history::{PATTERNS_SIZE_MAX, PatternError, PatternRoom};
use promql_parser::util::{parse_duration, unquote_string};
use regex::{Regex, RegexBuilder};

use crate::error::PromError;

/// Longest text of a query, bytes.
const TEXT_LEN_MAX: usize = 16 << 10;
/// Deepest nesting of a query.
pub(crate) const DEPTH_MAX: usize = 64;
/// Most parentheses, brackets and operators: each may be a level.
const NESTS_MAX: usize = DEPTH_MAX * 4;
/// Most regular expressions of a query.
const PATTERNS_MAX: usize = 64;

/// A duration of several parts as Prometheus has them, `1h30m`, in nanoseconds; none if it is none, or a bare number.
pub fn duration(text: &str) -> Option<i64> {
    let parts = Some(text).filter(|text| text.parse::<f64>().is_err())?;
    i64::try_from(parse_duration(parts).ok()?.as_nanos()).ok()
}

/// Checks a text; its regular expressions take their part of the room.
///
/// # Errors
/// When it is too long, may be nested too deep, or has too many or too large regular expressions.
pub(crate) fn check(text: &str, room: &mut PatternRoom) -> Result<(), PromError> {
    if text.len() > TEXT_LEN_MAX {
        return Err(PromError::TooMuch(format!("a query may have {TEXT_LEN_MAX} bytes at most")));
    }
    let Outline { nests, patterns, replaces } = Outline::of(text);
    if nests > NESTS_MAX {
        return Err(too_deep());
    }
    if patterns.len() + replaces > PATTERNS_MAX {
        return Err(PromError::TooMuch(format!(
            "a query may have {PATTERNS_MAX} regular expressions at most"
        )));
    }
    // The parser itself rejects invalid strings and patterns.
    for pattern in patterns.into_iter().filter_map(|quoted| unquote_string(quoted).ok()) {
        if let Err(error @ (PatternError::TooLong | PatternError::TooLarge)) = room.pattern(&pattern) {
            return Err(PromError::TooMuch(error.to_string()));
        }
    }
    Ok(())
}

/// A regular expression for a whole label, with its groups.
///
/// # Errors
/// When it is none, or there is no room for it.
pub(crate) fn compile(pattern: &str, room: &mut PatternRoom) -> Result<Regex, PromError> {
    room.pattern(pattern).map_err(|error| match error {
        PatternError::TooLong | PatternError::TooLarge => PromError::TooMuch(error.to_string()),
        PatternError::Invalid(_) => {
            PromError::Execution(format!("invalid regular expression in label_replace(): {pattern}"))
        }
    })?;
    let built = RegexBuilder::new(&format!("^(?s:{pattern})$")).size_limit(PATTERNS_SIZE_MAX).build();
    built.map_err(|error| PromError::Syntax(error.to_string()))
}

pub(crate) fn too_deep() -> PromError {
    PromError::TooMuch(format!("the query is nested more than {DEPTH_MAX} deep"))
}

/// What of a text matters here. It reads quotes, comments and braces exactly as the parser does: what hides here must be hidden
/// there.
#[derive(Debug, Default)]
struct Outline<'a> {
    /// Parentheses, brackets and operators outside quotes, comments and selectors.
    nests: usize,
    /// Quoted regular expressions of selectors.
    patterns: Vec<&'a str>,
    /// Calls of `label_replace`, each with another.
    replaces: usize,
}

impl<'a> Outline<'a> {
    fn of(text: &'a str) -> Self {
        let mut shape = Self::default();
        let (mut rest, mut in_braces, mut before) = (text, false, ' ');
        while let Some(first) = rest.chars().next() {
            let length = match first {
                '"' | '\'' | '`' => {
                    let quoted = rest.get(..quoted_len(rest, first)).unwrap_or(rest);
                    if in_braces && before == '~' {
                        shape.patterns.push(quoted);
                    }
                    quoted.len()
                }
                '#' => rest.find(['\r', '\n']).unwrap_or(rest.len()),
                _ if first.is_ascii_alphabetic() || first == '_' => {
                    let is_other = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':');
                    let word = rest.get(..rest.find(is_other).unwrap_or(rest.len())).unwrap_or(rest);
                    let operators = ["and", "or", "unless", "atan2"];
                    let nests = !in_braces && operators.iter().any(|own| word.eq_ignore_ascii_case(own));
                    shape.nests += usize::from(nests);
                    shape.replaces += usize::from(!in_braces && word == "label_replace");
                    word.len()
                }
                _ => {
                    in_braces = (in_braces || first == '{') && first != '}';
                    // `==`, `!=`, `<=` and `>=` are one.
                    let is_second = first == '=' && matches!(before, '=' | '!' | '<' | '>');
                    let nests = "([+-*/%^=!<>".contains(first) && !in_braces && !is_second;
                    shape.nests += usize::from(nests);
                    first.len_utf8()
                }
            };
            if !first.is_whitespace() && first != '#' {
                before = first;
            }
            rest = rest.get(length..).unwrap_or_default();
        }
        shape
    }
}

/// Length of the quoted text that another begins with; to the end if it has no end. A backslash hides what follows, whatever the
/// quotes.
fn quoted_len(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_is_counted_outside_quotes_comments_and_selectors() {
        let nests = |text: &str| Outline::of(text).nests;
        assert_eq!(nests("a{b=\"((--\",c!=\"x\"} # ((("), 0);
        assert_eq!(nests("sum(rate(a[5m])) / 2 >= 1 and b or c"), 7);
        // What hides here must be hidden from the parser, too.
        assert_eq!(nests("# ' \r((("), 3);
        assert_eq!(nests("# ' \n((("), 3);
        assert_eq!(nests("`\\``((("), 3);
        assert_eq!(nests("'\\'' + \"\\\"\" + ((("), 5);
        assert_eq!(nests("a{b=\"}\"} + (\n# }\n("), 3);
    }

    #[test]
    fn regular_expressions_of_selectors_are_found() {
        let patterns = |text: &str| Outline::of(text).patterns.concat();
        assert_eq!(patterns("a{b=~\"x\", c != \"y\", d!~ 'z', e=\"~\"}"), "\"x\"'z'");
        assert_eq!(patterns("a{b=~ # '\n `x`}"), "`x`");
        assert_eq!(Outline::of("label_replace(a{label_replace=\"\"}, '', '', '', '')").replaces, 1);
    }
}
