//! Headers of a publish by HTTP, as the queue reads them.

use axum::http::HeaderName;

/// The producer that a request comes from.
pub(crate) const PRODUCER: HeaderName = HeaderName::from_static("x-gpuvitals-producer");
/// Which of its requests it is.
pub(crate) const SEQUENCE: HeaderName = HeaderName::from_static("x-gpuvitals-sequence");
/// `content-type` of one message, or an array.
pub(crate) const JSON: &str = "application/json";
/// `content-type` of rows in binary form.
pub(crate) const BATCH: &str = "application/vnd.gpuvitals.batch";
