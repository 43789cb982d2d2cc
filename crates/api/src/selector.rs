//! The parameter `where`: which rows, by their identity.

use std::sync::Arc;

use gpuvitals_core::history::{MATCHERS_MAX, Matcher, Pattern, PatternError, Selector, TextTest};
use gpuvitals_core::{IdentityColumn, causes};

use crate::error::ApiError;
use crate::parameter::given;

/// Operators, the longer ones first.
const OPERATORS: [&str; 4] = ["=~", "!~", "!=", "="];

/// Tests between semicolons.
///
/// # Errors
/// If one is none, or there are too many.
pub(crate) fn selector(text: Option<&String>) -> Result<Selector, ApiError> {
    let Some(text) = given(text) else { return Ok(Selector::default()) };
    let tests = text.split(';').map(|test| test.trim_matches(' ')).filter(|test| !test.is_empty());
    let matchers: Vec<Matcher> = tests.map(matcher).collect::<Result<_, _>>()?;
    Selector::new(matchers)
        .map_err(|_| ApiError::parameter("where", text, format!("at most {MATCHERS_MAX} tests")))
}

fn matcher(text: &str) -> Result<Matcher, ApiError> {
    let refused = || {
        let columns = IdentityColumn::ALL.map(IdentityColumn::name).join(", ");
        let allowed = "tests between semicolons: column=value,value, column!=value,value, column=~pattern or \
                       column!~pattern; columns are";
        ApiError::parameter("where", text, format!("{allowed} {columns}"))
    };
    let at = text.find(['=', '!']).ok_or_else(refused)?;
    let (column, rest) = text.split_at_checked(at).ok_or_else(refused)?;
    let column = IdentityColumn::by_name(column.trim_matches(' ')).ok_or_else(refused)?;
    let split = OPERATORS.iter().find_map(|operator| Some((*operator, rest.strip_prefix(operator)?)));
    let (operator, value) = split.ok_or_else(refused)?;
    let texts = || value.split(',').map(|text| Arc::from(text.trim_matches(' '))).collect();
    let pattern = || {
        Pattern::new(value.trim_matches(' ')).map_err(|error| {
            let why = match &error {
                PatternError::TooLong { .. } => error.to_string(),
                PatternError::Invalid(_) => causes(&error),
            };
            ApiError::parameter("where", text, format!("a regular expression of the crate regex: {why}"))
        })
    };
    let test = match operator {
        "=" => TextTest::Is(texts()),
        "!=" => TextTest::IsNot(texts()),
        "=~" => TextTest::Matches(pattern()?),
        _ => TextTest::MatchesNot(pattern()?),
    };
    Ok(Matcher { column, test })
}
