//! A handler ends with a response or an error.

use axum::response::Response;

use crate::error::ApiError;

/// Methods of a path that is read.
pub(super) const READING: &str = "GET, HEAD";

/// What a handler ends with.
pub(super) type Answered = Result<Response, ApiError>;
