//! Why a query has no answer.

use gpuvitals_core::history::QueryError;

/// A query without an answer.
#[derive(Debug, thiserror::Error)]
pub enum PromError {
    /// The text is no PromQL, or its types do not fit.
    #[error("{0}")]
    Syntax(String),
    /// PromQL that is not supported here.
    #[error("{0} is not supported")]
    Unsupported(String),
    /// A series of this name, which a scrape shows and a history does not.
    #[error("{0} is made by an exporter; a history does not keep it")]
    NotKept(String),
    /// The query is too long, too deep or too large.
    #[error("{0}")]
    TooMuch(String),
    /// Its evaluation failed: series that cannot be matched.
    #[error("{0}")]
    Execution(String),
    /// The history refused.
    #[error(transparent)]
    History(#[from] QueryError),
}
