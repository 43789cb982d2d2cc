//! Questions that are answered from the history. Equal questions share an answer.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use gpuvitals_core::history::History;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;

use crate::compress;
use crate::condition::StateRules;
use crate::config::Limits;
use crate::error::ApiError;

/// Shortest answer in bytes that is worth compressing.
const GZIP_FROM: usize = 1_024;

/// A question, parsed. Two are equal if they are written the same by `Debug`.
pub(crate) trait Ask: Debug + Send + Sized + 'static {
    /// Whether the answer is made from what is kept.
    const OF_HISTORY: bool = true;

    /// Asks the history and renders the answer. Dropped when nobody waits for it any more.
    ///
    /// # Errors
    /// When the question has no answer.
    fn answer(self, view: View) -> impl Future<Output = Result<Rendered, ApiError>> + Send;
}

/// What an answer is made from.
#[derive(Debug)]
pub(crate) struct View {
    /// The rows.
    pub(crate) history: Arc<dyn History>,
    /// Limits of questions.
    pub(crate) limits: Limits,
    /// How GPUs look now.
    pub(crate) rules: StateRules,
    /// Whether the client takes gzip.
    pub(crate) gzip: bool,
    /// Place among the questions that are answered at the same time.
    pub(crate) permit: OwnedSemaphorePermit,
}

/// An answer as JSON, compressed or not.
#[derive(Debug)]
pub(crate) struct Rendered {
    /// The text.
    pub(crate) body: Bytes,
    /// Whether it is compressed.
    pub(crate) gzip: bool,
    /// When the time alone changes the answer, nanoseconds UTC since 1970; `i64::MAX` for never.
    pub(crate) until_ns: i64,
}

impl View {
    /// Now, nanoseconds UTC since 1970.
    pub(crate) fn now_ns(&self) -> i64 {
        self.rules.now_ns
    }

    /// Renders on a thread for blocking work. `missing` is what the answer lacks: it may be readable soon, and the answer
    /// serves no longer than now.
    ///
    /// # Errors
    /// Those of `work`, and when that panics.
    pub(crate) async fn render(
        self,
        missing: Vec<String>,
        work: impl FnOnce(&Self, &[String]) -> Result<Body, ApiError> + Send + 'static,
    ) -> Result<Rendered, ApiError> {
        let span = tracing::Span::current();
        let job = tokio::task::spawn_blocking(move || {
            let _inside = span.enter();
            let Body { json, until_ns } = work(&self, &missing)?;
            let until_ns = if missing.is_empty() { until_ns } else { self.now_ns() };
            let gzip = self.gzip && json.len() >= GZIP_FROM;
            let body = if gzip { compress::gzip(&json).map_err(ApiError::Compress)? } else { json };
            drop(self.permit);
            Ok(Rendered { body: Bytes::from(body), gzip, until_ns })
        });
        job.await.unwrap_or(Err(ApiError::Crashed))
    }
}

/// An answer, before it is compressed.
#[derive(Debug)]
pub(crate) struct Body {
    json: Vec<u8>,
    until_ns: i64,
}

impl Body {
    /// An answer that the time alone does not change before this instant.
    ///
    /// # Errors
    /// When it cannot be written as JSON, which would be a defect.
    pub(crate) fn until(until_ns: i64, answer: &impl Serialize) -> Result<Self, ApiError> {
        Ok(Self { json: serde_json::to_vec(answer)?, until_ns })
    }
}
