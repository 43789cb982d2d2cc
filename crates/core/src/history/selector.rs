//! Which rows a question is about, by their identity.

use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use crate::IdentityColumn;

/// Longest text of a pattern in bytes.
pub const PATTERN_LEN_MAX: usize = 1_000;
/// Most memory that a compiled pattern takes, in bytes.
const PATTERN_SIZE_MAX: usize = 1 << 20;

/// Most tests of a selector.
pub const MATCHERS_MAX: usize = 32;

/// Tests that a row's identity must all pass. Without a test every row is selected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector(Vec<Matcher>);

/// More tests than a selector may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} tests of identity columns are more than {MATCHERS_MAX}")]
pub struct TooManyMatchers(pub usize);

/// A test of one identity column. A row without a value has the empty text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matcher {
    /// The column.
    pub column: IdentityColumn,
    /// The test.
    pub test: TextTest,
}

/// A test of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextTest {
    /// It is one of these.
    Is(Vec<Arc<str>>),
    /// It is none of these.
    IsNot(Vec<Arc<str>>),
    /// The pattern matches it.
    Matches(Pattern),
    /// The pattern does not match it.
    MatchesNot(Pattern),
}

impl Selector {
    /// Of these tests.
    ///
    /// # Errors
    /// If there are more than [`MATCHERS_MAX`].
    pub fn new(matchers: Vec<Matcher>) -> Result<Self, TooManyMatchers> {
        if matchers.len() > MATCHERS_MAX { Err(TooManyMatchers(matchers.len())) } else { Ok(Self(matchers)) }
    }

    /// The tests.
    pub fn matchers(&self) -> &[Matcher] {
        &self.0
    }

    /// Whether every row is selected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a row with these texts is selected.
    pub fn selects<'a>(&self, text: impl Fn(IdentityColumn) -> Option<&'a str>) -> bool {
        self.0.iter().all(|matcher| matcher.test.holds(text(matcher.column)))
    }
}

impl TextTest {
    /// Whether the text passes; no text is the empty text.
    pub fn holds(&self, text: Option<&str>) -> bool {
        let text = text.unwrap_or_default();
        match self {
            Self::Is(texts) => texts.iter().any(|one| one.as_ref() == text),
            Self::IsNot(texts) => texts.iter().all(|one| one.as_ref() != text),
            Self::Matches(pattern) => pattern.regex.is_match(text),
            Self::MatchesNot(pattern) => !pattern.regex.is_match(text),
        }
    }
}

/// A regular expression (the syntax of the crate `regex`) for a whole text: both ends are anchored.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: Arc<str>,
    regex: Regex,
}

/// A text that is no pattern.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PatternError {
    /// Longer than [`PATTERN_LEN_MAX`].
    #[error("the regular expression is {len} bytes long, more than {PATTERN_LEN_MAX}")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// Wrong, or too large when compiled.
    #[error("not a regular expression")]
    Invalid(#[source] regex::Error),
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// If the text is too long, no regular expression, or one that takes too much memory.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        if text.len() > PATTERN_LEN_MAX {
            return Err(PatternError::TooLong { len: text.len() });
        }
        // Alone first: `a)(?:b` would be one between the anchors.
        let compile = |text: &str| RegexBuilder::new(text).size_limit(PATTERN_SIZE_MAX).build();
        compile(text).map_err(PatternError::Invalid)?;
        let regex = compile(&format!("^(?s:{text})$")).map_err(PatternError::Invalid)?;
        Ok(Self { text: Arc::from(text), regex })
    }

    /// The text it was made of.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_texts() {
        let check = |pattern: &str, text: Option<&str>, matches: bool| {
            let pattern = Pattern::new(pattern).unwrap();
            assert_eq!(TextTest::Matches(pattern.clone()).holds(text), matches, "{pattern:?} {text:?}");
            assert_eq!(TextTest::MatchesNot(pattern).holds(text), !matches, "{text:?}");
        };
        check("node-.*", Some("node-1"), true);
        check("node", Some("node-1"), false);
        check("a|b", Some("ab"), false);
        check(r"\w+\d", Some("gpu7"), true);
        check(".*", None, true);
        check(".+", None, false);
    }

    #[test]
    fn wrong_and_huge_patterns_are_refused() {
        assert!(matches!(Pattern::new("a)(?:b"), Err(PatternError::Invalid(_))));
        assert!(matches!(Pattern::new("("), Err(PatternError::Invalid(_))));
        assert!(matches!(Pattern::new("((a{100}){100}){100}"), Err(PatternError::Invalid(_))));
        assert!(matches!(Pattern::new(&"a".repeat(1_001)), Err(PatternError::TooLong { len: 1_001 })));
    }

    #[test]
    fn all_tests_must_hold_and_null_is_the_empty_text() {
        let is = |column, texts: &[&str]| Matcher {
            column,
            test: TextTest::Is(texts.iter().copied().map(Arc::from).collect()),
        };
        let text = |column| (column == IdentityColumn::Pod).then_some("train-1");
        let selects = |matchers: Vec<Matcher>| Selector::new(matchers).unwrap().selects(text);
        assert!(selects(vec![]));
        assert!(selects(vec![is(IdentityColumn::Pod, &["x", "train-1"]), is(IdentityColumn::Job, &[""])]));
        assert!(!selects(vec![is(IdentityColumn::Pod, &["train-1"]), is(IdentityColumn::Job, &["7"])]));
        let is_not = TextTest::IsNot(vec![Arc::from("train-1")]);
        assert!(!selects(vec![Matcher { column: IdentityColumn::Pod, test: is_not.clone() }]));
        assert!(selects(vec![Matcher { column: IdentityColumn::Job, test: is_not }]));
    }
}
