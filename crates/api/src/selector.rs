//! The parameter `where`: which rows, by their identity.

use std::sync::Arc;

use gpuvitals_core::history::{MATCHERS_MAX, Matcher, PatternError, PatternRoom, Selector, TextTest};
use gpuvitals_core::{IdentityColumn, causes};
use tokio_util::task::AbortOnDropHandle;

use crate::asked::Where;
use crate::error::ApiError;
use crate::parameter::given;

/// Operators, the longer ones first.
const OPERATORS: [(&str, Operator); 4] =
    [("=~", Operator::Matches), ("!~", Operator::MatchesNot), ("!=", Operator::IsNot), ("=", Operator::Is)];

/// Tests of identity columns as they were asked for, checked but for their regular expressions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tests(Vec<Test>);

#[derive(Debug, Clone)]
struct Test {
    text: String,
    column: IdentityColumn,
    operator: Operator,
    value: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Is,
    IsNot,
    Matches,
    MatchesNot,
}

impl Tests {
    /// Tests between semicolons.
    ///
    /// # Errors
    /// If one is none, or there are too many.
    pub(crate) fn parse(asked: Option<&Where>) -> Result<Self, ApiError> {
        let Some(text) = given(asked.map(|asked| &asked.0)) else { return Ok(Self::default()) };
        let tests = text.split(';').map(|test| test.trim_matches(' ')).filter(|test| !test.is_empty());
        let tests: Vec<&str> = tests.take(MATCHERS_MAX + 1).collect();
        if tests.len() > MATCHERS_MAX {
            return Err(too_many(text));
        }
        tests.into_iter().map(Test::parse).collect::<Result<_, _>>().map(Self)
    }

    /// Whether every row passes.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As a selector of rows. Its regular expressions are compiled on a thread for blocking work.
    ///
    /// # Errors
    /// If one is none, or all are too large together.
    pub(crate) async fn selector(&self) -> Result<Selector, ApiError> {
        let tests = self.clone();
        if !tests.0.iter().any(Test::has_pattern) {
            return tests.compiled();
        }
        // Nothing is compiled for a question that was given up while it waited for a thread.
        let job = AbortOnDropHandle::new(tokio::task::spawn_blocking(move || tests.compiled()));
        job.await.unwrap_or(Err(ApiError::Crashed))
    }

    fn compiled(self) -> Result<Selector, ApiError> {
        let mut room = PatternRoom::default();
        let matchers: Result<Vec<Matcher>, ApiError> =
            self.0.into_iter().map(|test| test.compiled(&mut room)).collect();
        Selector::new(matchers?).map_err(|error| too_many(&error.to_string()))
    }
}

/// The hosts that tests name.
pub(crate) fn named_hosts(selector: &Selector) -> Vec<Arc<str>> {
    let tests = selector.matchers().iter();
    let named = tests.filter_map(|matcher| match (matcher.column, &matcher.test) {
        (IdentityColumn::Node, TextTest::Is(hosts)) => Some(hosts),
        _ => None,
    });
    // GPUs without a host are asked for by an empty name.
    named.flatten().filter(|host| !host.is_empty()).cloned().collect()
}

fn too_many(text: &str) -> ApiError {
    ApiError::parameter("where", text, format!("at most {MATCHERS_MAX} tests"))
}

impl Test {
    fn parse(text: &str) -> Result<Self, ApiError> {
        let refused = || {
            let columns = IdentityColumn::ALL.map(IdentityColumn::name).join(", ");
            let allowed = "tests between semicolons: column=value,value, column!=value,value, column=~pattern or \
                           column!~pattern; columns are";
            ApiError::parameter("where", text, format!("{allowed} {columns}"))
        };
        let at = text.find(['=', '!']).ok_or_else(refused)?;
        let (column, rest) = text.split_at_checked(at).ok_or_else(refused)?;
        let column = IdentityColumn::by_name(column.trim_matches(' ')).ok_or_else(refused)?;
        let mut operators = OPERATORS.iter();
        let split = operators.find_map(|(words, operator)| Some((*operator, rest.strip_prefix(words)?)));
        let (operator, value) = split.ok_or_else(refused)?;
        Ok(Self { text: text.to_owned(), column, operator, value: value.trim_matches(' ').to_owned() })
    }

    fn has_pattern(&self) -> bool {
        matches!(self.operator, Operator::Matches | Operator::MatchesNot)
    }

    fn compiled(self, room: &mut PatternRoom) -> Result<Matcher, ApiError> {
        let Self { text, column, operator, value } = self;
        let texts = || value.split(',').map(|text| Arc::from(text.trim_matches(' '))).collect();
        let mut pattern = || {
            room.pattern(&value).map_err(|error| {
                let why = match &error {
                    PatternError::TooLong | PatternError::TooLarge => error.to_string(),
                    PatternError::Invalid(_) => causes(&error),
                };
                ApiError::parameter("where", &text, format!("a regular expression of the crate regex: {why}"))
            })
        };
        let test = match operator {
            Operator::Is => TextTest::Is(texts()),
            Operator::IsNot => TextTest::IsNot(texts()),
            Operator::Matches => TextTest::Matches(pattern()?),
            Operator::MatchesNot => TextTest::MatchesNot(pattern()?),
        };
        Ok(Matcher { column, test })
    }
}
