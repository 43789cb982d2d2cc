//! Which rows a question is about, by their identity.

use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use crate::IdentityColumn;

/// Longest text of all patterns of a question together, in bytes.
const PATTERNS_LEN_MAX: usize = 16 << 10;
/// Most memory that all patterns of a question take together, compiled, in bytes.
pub const PATTERNS_SIZE_MAX: usize = 2 << 20;
/// The least that a compiled pattern counts for. It counts for this, doubled until it fits: the crate `regex` does not say how large a
/// pattern has become.
const PATTERN_SIZE_MIN: usize = 8 << 10;

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
    /// The column whose text is tested.
    pub column: IdentityColumn,
    /// What the text must be.
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

    /// The tests that a row must pass, every one.
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
    /// The texts of all patterns are too long.
    #[error("the regular expressions of a question may have {PATTERNS_LEN_MAX} bytes together")]
    TooLong,
    /// All patterns are too large together.
    #[error(
        "the regular expressions of a question may take {PATTERNS_SIZE_MAX} bytes together when compiled; repeat or list less"
    )]
    TooLarge,
    /// No regular expression.
    #[error("this is no regular expression")]
    Invalid(#[source] regex::Error),
}

/// The room that the patterns of one question share. Compiling takes time and memory by the size of what comes out, which a short text
/// can make large; so what all of them may come to is bounded at once. Compile on a thread for blocking work.
#[derive(Debug)]
pub struct PatternRoom {
    len_left: usize,
    size_left: usize,
}

impl Default for PatternRoom {
    fn default() -> Self {
        Self { len_left: PATTERNS_LEN_MAX, size_left: PATTERNS_SIZE_MAX }
    }
}

impl PatternRoom {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// If the text is no regular expression, or there is no room for it beside those before.
    pub fn pattern(&mut self, text: &str) -> Result<Pattern, PatternError> {
        let left = self.len_left.checked_sub(text.len());
        self.len_left = left.ok_or(PatternError::TooLong)?;
        let mut size = PATTERN_SIZE_MIN;
        let regex = loop {
            if size > self.size_left {
                return Err(PatternError::TooLarge);
            }
            match compiled(text, size) {
                Err(regex::Error::CompiledTooBig(_)) => size = size.saturating_mul(2),
                compiled => break compiled.map_err(PatternError::Invalid)?,
            }
        };
        self.size_left -= size;
        Ok(Pattern { text: Arc::from(text), regex })
    }
}

/// A regular expression for a whole text, of so many bytes at most.
fn compiled(text: &str, size: usize) -> Result<Regex, regex::Error> {
    let compile = |text: &str| RegexBuilder::new(text).size_limit(size).build();
    // Alone first: `a)(?:b` would be one between the anchors.
    compile(text)?;
    compile(&format!("^(?s:{text})$"))
}

impl Pattern {
    /// Compiles the only pattern of a question.
    ///
    /// # Errors
    /// As [`PatternRoom::pattern`].
    pub fn new(text: &str) -> Result<Self, PatternError> {
        PatternRoom::default().pattern(text)
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
        assert!(matches!(Pattern::new("((a{100}){100}){100}"), Err(PatternError::TooLarge)));
        assert!(matches!(Pattern::new(&"a".repeat(PATTERNS_LEN_MAX + 1)), Err(PatternError::TooLong)));
    }

    #[test]
    fn patterns_of_a_question_share_one_bound() {
        let mut room = PatternRoom::default();
        let usual = ["node-.*", r"\w+-\d{1,3}", "a|b|c", "NVIDIA.*H100.*"];
        for text in usual.iter().cycle().take(MATCHERS_MAX) {
            room.pattern(text).unwrap();
        }
        // Short ones that grow, and many whose texts are long.
        let mut room = PatternRoom::default();
        let large = (0..MATCHERS_MAX).find_map(|_| room.pattern(".{0,300}").err());
        assert_eq!(large, Some(PatternError::TooLarge));
        let mut room = PatternRoom::default();
        let long = (0..MATCHERS_MAX).find_map(|_| room.pattern(&"a".repeat(800)).err());
        assert_eq!(long, Some(PatternError::TooLong));
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
