//! How a queue is reached.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};

use crate::link::{Access, ConnectError, QueueUrl, Token};
use crate::protocol::v1::queue_client::QueueClient;

/// How long a connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// After how long a silent queue is asked whether it is there, and how long it may take to say so: one that hangs is
/// noticed within five seconds.
const PING_AFTER: Duration = Duration::from_millis(1_500);
const PING_LIMIT: Duration = Duration::from_secs(2);
/// How much one stream may bring before it is read: some large frames.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// Most bytes of one message from a queue.
const MESSAGE_BYTES: usize = 64 << 20;

/// Where a queue is and who asks.
#[derive(Clone, Debug)]
pub(super) struct Dial {
    endpoint: Endpoint,
    bearer: Option<MetadataValue<Ascii>>,
    authority: Arc<str>,
}

/// Why there is no connection, or no longer.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    /// What happened, with the queue's address.
    pub(super) reason: Arc<str>,
    /// What can come of it.
    pub(super) outlook: Outlook,
}

/// What can come of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outlook {
    /// Another try may succeed.
    Passing,
    /// Whoever asks is not let in.
    Denied,
    /// Trying again changes nothing.
    Lasting,
    /// The group was removed.
    Removed,
}

impl Dial {
    pub(super) fn new(url: &QueueUrl, access: &Access) -> Result<Self, ConnectError> {
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

    /// A call as whoever asks.
    pub(super) fn request<T>(&self, body: T) -> Request<T> {
        let mut request = Request::new(body);
        if let Some(bearer) = &self.bearer {
            request.metadata_mut().insert("authorization", bearer.clone());
        }
        request
    }

    /// An error of the connection, in the words of its first cause: the layers above only repeat that there is none.
    pub(super) fn unreachable(&self, error: &(dyn Error + 'static)) -> Lost {
        let cause = first_cause(error).to_string();
        // No type of the TLS library is known here.
        let hint = if cause.contains("UnknownIssuer") {
            "; message_queue.ca (--ca) names the file of the authority that signed its certificate"
        } else {
            ""
        };
        self.lost(&format!("no connection: {cause}{hint}"))
    }

    pub(super) fn lost(&self, what: &str) -> Lost {
        Lost { reason: format!("{}: {what}", self.authority).into(), outlook: Outlook::Passing }
    }

    /// What the end of a call means.
    pub(super) fn ended(&self, status: &Status) -> Lost {
        use Code::{
            FailedPrecondition, InvalidArgument, NotFound, PermissionDenied, Unauthenticated, Unimplemented,
        };
        let code = status.code();
        let lost = match status.source() {
            // The queue did not say this: the connection ended.
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

fn bearer(token: &Token) -> Result<MetadataValue<Ascii>, ConnectError> {
    let text = format!("Bearer {}", token.expose());
    let mut value: MetadataValue<Ascii> = text.parse().map_err(|_| ConnectError::Token)?;
    value.set_sensitive(true);
    Ok(value)
}

fn read(path: &Path) -> Result<Vec<u8>, ConnectError> {
    std::fs::read(path).map_err(|source| ConnectError::Credential { path: path.to_owned(), source })
}
