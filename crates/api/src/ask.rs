//! Questions that are answered from the store. Equal questions share an answer.

use std::cell::Cell;
use std::fmt::Debug;

use gpuvitals_store::Store;

use crate::condition::StateRules;
use crate::config::ApiConfig;
use crate::error::ApiError;

/// A question, parsed. Two are equal if they are written the same by `Debug`.
pub(crate) trait Ask: Debug + Send + Sync + 'static {
    /// Whether the answer is made from what is stored.
    fn is_of_store(&self) -> bool {
        true
    }

    /// When the time alone changes the answer, nanoseconds UTC since 1970; `i64::MAX` for never.
    fn until_ns(&self, _view: &View<'_>) -> i64 {
        i64::MAX
    }

    /// The answer as JSON. Reads files; not for the threads that serve.
    ///
    /// # Errors
    /// When the question has no answer.
    fn answer(&self, view: &View<'_>) -> Result<Vec<u8>, ApiError>;
}

/// The data that an answer is computed from.
#[derive(Debug)]
pub(crate) struct View<'a> {
    /// The rows.
    pub(crate) store: &'a Store,
    /// Limits and rules.
    pub(crate) config: &'a ApiConfig,
    /// Now, nanoseconds UTC since 1970.
    pub(crate) now_ns: i64,
    /// Whether a file could not be read for the answer: it may be readable soon.
    pub(crate) is_partial: Cell<bool>,
}

impl View<'_> {
    /// Notes the parts that an answer lacks.
    pub(crate) fn lacks(&self, partial: &[String]) {
        self.is_partial.set(!partial.is_empty());
    }

    /// How GPUs look now.
    pub(crate) fn rules(&self) -> StateRules {
        let stale_after_ns = i64::try_from(self.config.stale_after.as_nanos()).unwrap_or(i64::MAX);
        StateRules { now_ns: self.now_ns, stale_after_ns }
    }
}
