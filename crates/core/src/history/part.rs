//! An answer or a change of a history is a part of what there is.

use std::sync::Arc;

use super::error::QueryError;
use crate::Batch;
use crate::ports::Answer;

/// An answer, and what is not in it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Part<T> {
    /// Everything that could be read.
    pub answer: T,
    /// What could not be read, in words; empty: the answer is whole.
    pub missing: Vec<String>,
}

impl<T> Part<T> {
    /// An answer that lacks nothing.
    pub fn whole(answer: T) -> Self {
        Self { answer, missing: Vec::new() }
    }
}

/// The outcome of a question.
pub type Answered<'a, T> = Answer<'a, Result<Part<T>, QueryError>>;

/// Rows as they become visible.
pub trait Changes: Send {
    /// The next change; none when the history has ended. Dropping the answer before it is there loses nothing.
    fn next(&mut self) -> Answer<'_, Option<Change>>;
}

/// A change of what is visible.
#[derive(Debug, Clone)]
pub enum Change {
    /// Rows that became visible together.
    Rows(Arc<[Batch]>),
    /// This many changes were lost because the reader was too slow.
    Missed(u64),
}
