//! A queue cannot be connected to, or is away.

use std::sync::Arc;

use gpuvitals_listener::client::DialError;

use super::url::QueueUrl;
use crate::broker::SubscribeError;
use crate::name::NameError;

/// A URL for which no producer or consumer can be created. Whether a remote queue is reachable is not
/// checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL is `inproc:`, and the client has no queue in this process.
    #[error("{url} is the queue of this process, which has none")]
    NoQueue {
        /// The URL that was given.
        url: QueueUrl,
    },
    /// The queue in this process does not accept the consumer.
    #[error("cannot subscribe")]
    Subscribe(#[source] SubscribeError),
    /// An invalid topic or group.
    #[error("cannot use the name of the {what}")]
    Name {
        /// `topic` or `group`.
        what: &'static str,
        /// What is wrong with the name.
        #[source]
        source: NameError,
    },
    /// The queue cannot be dialled.
    #[error(transparent)]
    Dial(#[from] DialError),
}

/// The last connection error; none while the queue is reached, or before the first try.
pub type Away = Option<Arc<str>>;
