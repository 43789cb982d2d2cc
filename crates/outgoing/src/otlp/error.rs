//! Why nothing can be sent by OTLP.

use std::error::Error;
use std::io;

use gpuvitals_listener::client::CredentialError;

/// Headers beside those of the file, as OpenTelemetry has them: `name=value,name=value`, percent-encoded.
pub(super) const HEADERS_VARIABLE: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// A setting that cannot be used, or a system that gives no thread.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtlpError {
    /// The file of headers cannot be used.
    #[error(transparent)]
    File(#[from] CredentialError),
    /// The variable with headers has something else in it.
    #[error("{HEADERS_VARIABLE}: {0}")]
    Variable(String),
    /// A setting does not serve.
    #[error("{what}")]
    Setting {
        /// Its name, and the file that it names.
        what: String,
        /// What is wrong, as the library or the system says it.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The system gives no runtime, or no thread.
    #[error("cannot start {what}")]
    Thread {
        /// The thread or runtime, in words.
        what: &'static str,
        /// What is wrong, as the library or the system says it.
        source: io::Error,
    },
}

impl OtlpError {
    /// Of a setting, and of the file that it names.
    pub(super) fn of<E: Into<Box<dyn Error + Send + Sync>>>(
        what: impl Into<String>,
    ) -> impl FnOnce(E) -> Self {
        move |error| Self::Setting { what: what.into(), source: error.into() }
    }
}
