//! Connecting to a queue.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};

use crate::link::{BearerToken, ConnectError, Credentials, QueueUrl};
use crate::protocol::v1::queue_client::QueueClient;

/// Time limit of a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// A silent queue is pinged after this time, and must answer within [`PING_LIMIT`]: a hanging one is noticed
/// within five seconds.
const PING_AFTER: Duration = Duration::from_millis(1_500);
const PING_LIMIT: Duration = Duration::from_secs(2);
/// Bytes that one stream may receive before they are read: some large frames.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// Largest message from a queue, in bytes.
const MESSAGE_BYTES: usize = 64 << 20;

/// Address of a queue, and the client's credentials.
#[derive(Clone, Debug)]
pub(super) struct Dial {
    endpoint: Endpoint,
    bearer: Option<MetadataValue<Ascii>>,
    authority: Arc<str>,
}

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
        let authority = url.authority();
        let tls = |source| ConnectError::Tls { host: url.host.clone(), source };
        let scheme = if url.tls { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{authority}")).map_err(tls)?;
        if url.tls {
            let mut config = ClientTlsConfig::new();
            config = match &access.ca {
                Some(path) => config.ca_certificate(Certificate::from_pem(read(path)?)),
                None => config.with_native_roots(),
            };
            if let Some((chain, key)) = &access.identity {
                config = config.identity(Identity::from_pem(read(chain)?, read(key)?));
            }
            endpoint = endpoint.tls_config(config).map_err(tls)?;
        }
        let endpoint = endpoint
            .connect_timeout(CONNECT_LIMIT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PING_LIMIT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(STREAM_WINDOW_BYTES)
            .max_frame_size(64 << 10);
        let bearer = access.token.as_ref().map(bearer).transpose()?;
        Ok(Self { endpoint, bearer, authority: authority.into() })
    }

    /// A new connection.
    pub(super) async fn connect(&self) -> Result<QueueClient<Channel>, Lost> {
        let channel = self.endpoint.connect().await.map_err(|error| self.unreachable(&error))?;
        Ok(QueueClient::new(channel).max_decoding_message_size(MESSAGE_BYTES))
    }

    /// A request with the client's token.
    pub(super) fn request<T>(&self, body: T) -> Request<T> {
        let mut request = Request::new(body);
        if let Some(bearer) = &self.bearer {
            request.metadata_mut().insert("authorization", bearer.clone());
        }
        request
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
        Lost { reason: format!("{}: {what}", self.authority).into(), outlook: Outlook::Passing }
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

fn first_cause<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    std::iter::successors(Some(error), |error| (*error).source()).last().unwrap_or(error)
}

fn bearer(token: &BearerToken) -> Result<MetadataValue<Ascii>, ConnectError> {
    let text = format!("Bearer {}", token.expose());
    let mut value: MetadataValue<Ascii> = text.parse().map_err(|_| ConnectError::Token)?;
    value.set_sensitive(true);
    Ok(value)
}

fn read(path: &Path) -> Result<Vec<u8>, ConnectError> {
    std::fs::read(path).map_err(|source| ConnectError::Credential { path: path.to_owned(), source })
}
