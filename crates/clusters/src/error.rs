//! Why a cluster, or the tool in one of its pods, gives no answer.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Longest message of a server that is passed on.
const MESSAGE_LEN_MAX: usize = 300;

/// What a caller does about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    /// The token is missing, wrong or expired.
    Unauthorized,
    /// The token's role lacks a right.
    Forbidden,
    /// The object has just gone.
    NotFound,
    /// The server asks for patience.
    Throttled,
    /// No connection, no valid certificate, or no answer in time.
    Unreachable,
    /// Any other failure.
    Failed,
}

/// Why a cluster or pod gives no answer. No variant holds a token.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum ClusterError {
    /// A file that the configuration names cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The kernel's error.
        source: Arc<io::Error>,
    },
    /// The token has characters that no header may have, or the file is empty.
    #[error("the token {}is empty, too long or no token", path.as_ref().map(|path| format!("in {} ", path.display())).unwrap_or_default())]
    Token {
        /// The file it comes from, if any.
        path: Option<PathBuf>,
    },
    /// The CA is no list of certificates in PEM.
    #[error("the CA of the cluster is no PEM with a certificate")]
    Authority,
    /// The server refuses.
    #[error("the API server answers {code}: {message}")]
    Api {
        /// HTTP status of the answer.
        code: u16,
        /// Its own words, shortened.
        message: String,
    },
    /// The request did not reach the server, or the answer did not come back.
    #[error("cannot talk to the API server")]
    Transport(#[source] Arc<kube::Error>),
    /// No answer in time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The list changed under its pages again and again.
    #[error("the list expired while it was read")]
    Expired,
    /// More objects than are read.
    #[error("the list has more than {0} objects")]
    TooMany(usize),
    /// The container has no such tool.
    #[error("the container cannot run it: {0}")]
    NoTool(String),
    /// The node or its runtime refuses to run the tool.
    #[error("the node cannot run it: {0}")]
    NotRun(String),
    /// The connection closed before the tool's end was reported: its output may be cut.
    #[error("the connection closed before the tool ended")]
    NoStatus,
    /// The connection broke.
    #[error("the connection broke")]
    Broken(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// More output than is read.
    #[error("the tool wrote more than {0} bytes")]
    TooLong(usize),
    /// The collector is stopping.
    #[error("reading was stopped")]
    Stopped,
}

impl ClusterError {
    /// From the client's error.
    pub(crate) fn of(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Api { code: status.code, message: shortened(&status.message) },
            kube::Error::UpgradeConnection(kube::client::UpgradeConnectionError::ProtocolSwitch(code)) => {
                Self::Api { code: code.as_u16(), message: "no WebSocket".to_owned() }
            }
            other => Self::Transport(Arc::new(other)),
        }
    }

    /// What to do about it.
    pub(crate) fn class(&self) -> ErrorClass {
        match self {
            Self::Api { code: 401, .. } | Self::Token { .. } => ErrorClass::Unauthorized,
            Self::Api { code: 403, .. } => ErrorClass::Forbidden,
            Self::Api { code: 404, .. } => ErrorClass::NotFound,
            Self::Api { code: 429, .. } => ErrorClass::Throttled,
            Self::Api { code: 500.., .. } | Self::Transport(_) | Self::TimedOut(_) => ErrorClass::Unreachable,
            _ => ErrorClass::Failed,
        }
    }
}

/// A message of a server, on one line, at most this long.
pub(crate) fn shortened(message: &str) -> String {
    let words = message.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().take(MESSAGE_LEN_MAX).collect()
}
