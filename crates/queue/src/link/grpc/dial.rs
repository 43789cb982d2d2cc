//! Connecting to a queue.

use std::error::Error;
use std::sync::Arc;

use gpuvitals_listener::client::{self, first_cause};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::link::{ConnectError, Credentials, QueueUrl};
use crate::protocol::v1::queue_client::QueueClient;

/// Largest message from a queue, in bytes.
const MESSAGE_BYTES: usize = 64 << 20;

/// Address of a queue, and the client's credentials.
#[derive(Clone, Debug)]
pub(super) struct Dial(client::Dial);

/// A lost or failed connection.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    /// The error, with the queue's address.
    pub(super) reason: Arc<str>,
    /// The prospect of a retry.
    pub(super) outlook: Outlook,
}

/// The prospect of a retry after a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outlook {
    /// Another attempt may succeed.
    Passing,
    /// The client is denied access.
    Denied,
    /// A retry does not help.
    Lasting,
    /// The group was removed.
    Removed,
}

impl Dial {
    pub(super) fn new(url: &QueueUrl, access: &Credentials) -> Result<Self, ConnectError> {
        Ok(Self(client::Dial::new(&url.authority.to_string(), url.tls, access)?))
    }

    /// Opens a connection.
    pub(super) async fn connect(&self) -> Result<QueueClient<Channel>, Lost> {
        let channel = self.0.endpoint().connect().await.map_err(|error| self.unreachable(&error))?;
        Ok(QueueClient::new(channel).max_decoding_message_size(MESSAGE_BYTES))
    }

    /// A request with the client's token.
    pub(super) fn request<T>(&self, body: T) -> Request<T> {
        self.0.request(body)
    }

    /// An error of the connection, in the words of its first cause: the layers above add nothing.
    pub(super) fn unreachable(&self, error: &(dyn Error + 'static)) -> Lost {
        let cause = first_cause(error).to_string();
        // The TLS library's types are not visible here.
        let hint = if cause.contains("UnknownIssuer") {
            "; message_queue.ca names the file of the authority that signed its certificate"
        } else {
            ""
        };
        self.lost(&format!("no connection: {cause}{hint}"))
    }

    pub(super) fn lost(&self, what: &str) -> Lost {
        Lost { reason: format!("{}: {what}", self.0.authority()).into(), outlook: Outlook::Passing }
    }

    /// The meaning of a call's end.
    pub(super) fn ended(&self, status: &Status) -> Lost {
        use Code::{
            FailedPrecondition, InvalidArgument, NotFound, PermissionDenied, Unauthenticated, Unimplemented,
        };
        let code = status.code();
        let lost = match status.source() {
            // The queue did not send this: the connection ended.
            Some(error) => self.unreachable(error),
            None => self.lost(&format!("{code}: {}", status.message())),
        };
        let outlook = match code {
            PermissionDenied | Unauthenticated => Outlook::Denied,
            FailedPrecondition | InvalidArgument | Unimplemented => Outlook::Lasting,
            NotFound => Outlook::Removed,
            _ => Outlook::Passing,
        };
        Lost { outlook, ..lost }
    }
}
