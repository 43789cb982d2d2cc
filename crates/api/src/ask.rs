//! Questions that are answered from the history. Equal questions share an answer.

use std::fmt::Debug;
use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use gpuvitals_core::clusters::ClusterView;
use gpuvitals_core::history::History;
use gpuvitals_flight::JobIncidents;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;

use crate::compress::Encoding;
use crate::condition::StateRules;
use crate::config::{JobPrices, Limits};
use crate::error::ApiError;
use crate::format::{self, Format, TablePage};
use crate::rack::RackPattern;
use crate::tag;
use crate::watch::{FleetWatch, Judgement};

pub(crate) use crate::answers::{health_events, joined};

/// Shortest answer in bytes that is worth compressing.
const COMPRESSED_FROM: usize = 1_024;
/// Header that says what of an answer could not be read.
pub(crate) const PARTIAL: HeaderName = HeaderName::from_static("x-partial");
/// Header that says where the next page begins, of answers that are tables.
pub(crate) const NEXT: HeaderName = HeaderName::from_static("x-next");
/// Longest text of it in characters.
const PARTIAL_LEN_MAX: usize = 1_024;

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
    /// What is asked for rows and latest states.
    pub(crate) history: Arc<dyn History>,
    /// The clusters whose nodes are read from outside.
    pub(crate) clusters: Vec<Arc<ClusterView>>,
    /// Limits of questions.
    pub(crate) limits: Limits,
    /// How GPUs look now, or as of the instant that is asked.
    pub(crate) rules: StateRules,
    /// Where the racks stand in the names of hosts.
    pub(crate) racks: Option<RackPattern>,
    /// What the use of GPUs costs.
    pub(crate) prices: JobPrices,
    /// Keys of the labels of jobs that are shown.
    pub(crate) job_labels: Arc<[Arc<str>]>,
    /// How the answer is sent, if it is long enough to be compressed.
    pub(crate) encoding: Encoding,
    /// Place among the questions that are answered at the same time.
    pub(crate) permit: OwnedSemaphorePermit,
    /// The watch over the fleet.
    pub(crate) watch: Arc<FleetWatch>,
    /// The incidents of jobs, if they are kept.
    pub(crate) jobs: Option<Arc<JobIncidents>>,
}

/// What the headers of an answer say of its body.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    /// What it is.
    pub(crate) format: Format,
    /// How it is compressed.
    pub(crate) encoding: Encoding,
    /// Its entity tag: that of the same bytes is the same.
    pub(crate) tag: HeaderValue,
    /// What could not be read.
    pub(crate) partial: Option<HeaderValue>,
    /// Where the next page begins, of answers that are tables.
    pub(crate) next: Option<HeaderValue>,
}

/// An answer, compressed or not.
#[derive(Debug)]
pub(crate) struct Rendered {
    /// What is sent as the body.
    pub(crate) body: Bytes,
    /// What it is.
    pub(crate) head: Head,
    /// When the time alone changes the answer, nanoseconds UTC since 1970; `i64::MAX` for never.
    pub(crate) until_ns: i64,
}

impl View {
    /// Now, or the instant as of which is asked, nanoseconds UTC since 1970.
    pub(crate) fn now_ns(&self) -> i64 {
        self.rules.fresh.now_ns
    }

    /// A judgement of the fleet; none while there is none, and making one takes long.
    pub(crate) async fn judgement(&self) -> Option<Arc<Judgement>> {
        self.watch.judged_soon(self.history.as_ref(), self.rules.fresh, 2 * self.limits.judge_every).await
    }

    /// Until when an answer by a judgement serves, nanoseconds UTC since 1970.
    pub(crate) fn judged_until(&self, judgement: Option<&Judgement>) -> i64 {
        let every_ns = i64::try_from(self.limits.judge_every.as_nanos()).unwrap_or(i64::MAX);
        judgement.map_or(self.now_ns(), |judgement| judgement.at_ns.saturating_add(every_ns))
    }

    /// Renders on a thread for blocking work. `missing` is what the answer lacks. An answer that lacks something is not
    /// kept for later, because what is missing may be readable soon.
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
            let Body { text, format, next, until_ns } = work(&self, &missing)?;
            let until_ns = if missing.is_empty() { until_ns } else { self.now_ns() };
            let encoding = if text.len() >= COMPRESSED_FROM { self.encoding } else { Encoding::Plain };
            let body = encoding.pack(text).map_err(ApiError::Compress)?;
            drop(self.permit);
            let head = Head { format, encoding, tag: tag::of(&body), partial: partial(&missing), next };
            Ok(Rendered { body: Bytes::from(body), head, until_ns })
        });
        job.await.unwrap_or(Err(ApiError::Crashed))
    }
}

/// An answer, before it is compressed.
#[derive(Debug)]
pub(crate) struct Body {
    text: Vec<u8>,
    format: Format,
    next: Option<HeaderValue>,
    until_ns: i64,
}

impl Body {
    /// An answer that the time alone does not change before this instant.
    ///
    /// # Errors
    /// When it cannot be written as JSON, which would be a defect.
    pub(crate) fn until(until_ns: i64, answer: &impl Serialize) -> Result<Self, ApiError> {
        Ok(Self::written(until_ns, serde_json::to_vec(answer)?))
    }

    /// JSON that the time alone does not change before this instant.
    pub(crate) fn written(until_ns: i64, json: Vec<u8>) -> Self {
        Self { text: json, format: Format::Json, next: None, until_ns }
    }

    /// A table. JSON is none.
    ///
    /// # Errors
    /// When it cannot be written, which would be a defect.
    pub(crate) fn table(until_ns: i64, format: Format, page: &TablePage<'_>) -> Result<Self, ApiError> {
        let text = if format == Format::Csv { format::csv(page) } else { format::arrow(page)? };
        let next = page.next.as_ref().and_then(|next| HeaderValue::from_str(&next.value).ok());
        Ok(Self { text, format, next, until_ns })
    }
}

/// What an answer lacks, as far as a header takes it; what is no printable ASCII becomes `?`.
pub(crate) fn partial(missing: &[String]) -> Option<HeaderValue> {
    let printable = |c: char| if c == ' ' || c.is_ascii_graphic() { c } else { '?' };
    let text: String = missing.join("; ").chars().take(PARTIAL_LEN_MAX).map(printable).collect();
    (!missing.is_empty()).then(|| HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("yes")))
}

/// The response with the header that says what it lacks.
pub(crate) fn with_partial(mut response: Response, partial: Option<HeaderValue>) -> Response {
    response.headers_mut().extend(partial.map(|partial| (PARTIAL, partial)));
    response
}
