//! One connection to NATS, and requests to JetStream on it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::RequestErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{Client, ClientError, ConnectErrorKind, ConnectOptions, Event, HeaderMap, ServerError};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, watch};

use super::error::NatsError;
use super::names::Topic;
use crate::link::{Away, Credentials, QueueUrl};

/// Time limits of a connection and of an answer of JetStream.
const CONNECTS_WITHIN: Duration = Duration::from_secs(3);
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Between two pings; after two unanswered ones the connection counts as lost.
const PING_EVERY: Duration = Duration::from_secs(5);

/// Attempts to reconnect, about a minute. Then the next request connects anew and reads a file of credentials again.
const RECONNECTS_MAX: usize = 30;

/// A server, the credentials for it, and the connection.
#[derive(Debug)]
pub(super) struct Endpoint {
    url: QueueUrl,
    access: Credentials,
    session: Mutex<Option<Session>>,
    away: watch::Sender<Away>,
}

/// Events of a connection.
#[derive(Debug, Default)]
struct Events {
    /// The connection is lost, and the client makes it again.
    is_lost: bool,
    /// The client has given up.
    is_closed: bool,
    /// Number of permission violations, and the text of the last one.
    denials: u64,
    denied: Arc<str>,
}

/// A connection. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) jetstream: Context,
    url: QueueUrl,
    events: watch::Receiver<Events>,
}

impl Endpoint {
    pub(super) fn new(url: &QueueUrl, access: &Credentials) -> Self {
        let (url, access) = (url.clone(), access.clone());
        Self { url, access, session: Mutex::new(None), away: watch::Sender::default() }
    }

    /// The reason why NATS is not reached, if so.
    pub(super) fn away(&self) -> &watch::Sender<Away> {
        &self.away
    }

    /// The connection. The client itself reconnects, also to the other servers of a cluster, so a new one is made
    /// only when it has given up.
    pub(super) async fn session(&self) -> Result<Session, NatsError> {
        let mut session = self.session.lock().await;
        if let Some(session) = session.as_ref().filter(|session| !session.is_closed()) {
            return Ok(session.clone());
        }
        Ok(session.insert(self.connect().await?).clone())
    }

    async fn connect(&self) -> Result<Session, NatsError> {
        let (sender, events) = watch::channel(Events::default());
        let away = self.away.clone();
        let options = self.options().await?.event_callback(move |event| {
            match &event {
                Event::Connected => drop(away.send_replace(None)),
                Event::Disconnected => drop(away.send_replace(Some("the connection was lost".into()))),
                _ => {}
            }
            sender.send_modify(|events| events.take(event));
            std::future::ready(())
        });
        let client = options.connect(self.url.to_string()).await.map_err(|error| {
            let reason: Arc<str> = error.to_string().into();
            match error.kind() {
                ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                    NatsError::Credentials { url: self.url.clone(), reason }
                }
                _ => NatsError::unavailable(format_args!("{}: {reason}", self.url)),
            }
        })?;
        if !client.is_server_compatible(2, 9, 0) {
            let version = client.server_info().version;
            let reason = format_args!("it runs nats-server {version}; 2.9 or newer is needed");
            return Err(NatsError::unusable(&self.url.to_string(), reason));
        }
        let mut jetstream = jetstream::new(client.clone());
        jetstream.set_timeout(ANSWERS_WITHIN);
        Ok(Session { client, jetstream, url: self.url.clone(), events })
    }

    /// The options of a connection.
    async fn options(&self) -> Result<ConnectOptions, NatsError> {
        let mut options = ConnectOptions::new()
            .name("gpuvitals")
            .connection_timeout(CONNECTS_WITHIN)
            .request_timeout(Some(ANSWERS_WITHIN))
            .ping_interval(PING_EVERY)
            .max_reconnects(RECONNECTS_MAX)
            .require_tls(self.url.tls);
        if let Some(ca) = &self.access.ca {
            options = options.add_root_certificates(ca.clone());
        }
        if let Some((chain, key)) = &self.access.identity {
            options = options.add_client_certificate(chain.clone(), key.clone());
        }
        if let Some(token) = &self.access.token {
            options = options.token(token.expose().to_owned());
        }
        if let Some(path) = &self.access.credentials {
            let read = options.credentials_file(path).await;
            options =
                read.map_err(|error| NatsError::unusable(&format!("credentials {}", path.display()), error))?;
        }
        Ok(options)
    }
}

impl Events {
    fn take(&mut self, event: Event) {
        match event {
            Event::Disconnected => self.is_lost = true,
            Event::Connected => self.is_lost = false,
            Event::Closed | Event::ClientError(ClientError::MaxReconnects) => self.is_closed = true,
            Event::ServerError(ServerError::Other(text)) if text.starts_with("Permissions Violation") => {
                self.denials += 1;
                self.denied = text.into();
            }
            _ => {}
        }
    }
}

impl Session {
    /// Whether the client has given up: a new session is needed.
    pub(super) fn is_closed(&self) -> bool {
        self.events.borrow().is_closed
    }

    /// How often the client has connected. A message sent afterwards goes over that connection or a later one.
    pub(super) fn connections(&self) -> u64 {
        self.client.statistics().connects.load(Ordering::SeqCst)
    }

    /// Waits until the client is connected, or has given up.
    pub(super) async fn connected(&self) {
        let mut events = self.events.clone();
        drop(events.wait_for(|events| events.is_closed || !events.is_lost).await);
    }

    /// Waits until the client has connected more often than `before`, or has given up.
    pub(super) async fn reconnected(&self, before: u64) {
        let mut events = self.events.clone();
        // Without a sender of events the client has ended.
        drop(events.wait_for(|events| events.is_closed || self.connections() > before).await);
    }

    /// Waits for `answer`. The server answers nothing if a permission is missing, but reports a violation.
    pub(super) async fn permitted<T>(
        &self,
        answer: impl Future<Output = Result<T, NatsError>>,
    ) -> Result<T, NatsError> {
        let mut events = self.events.clone();
        let before = events.borrow().denials;
        tokio::select! {
            biased;
            answer = answer => answer,
            denied = events.wait_for(|events| events.denials > before) => Err(match denied {
                Ok(events) => NatsError::Denied(Arc::clone(&events.denied)),
                Err(_) => NatsError::unavailable("the connection is closed"),
            }),
        }
    }

    /// Sends a request to JetStream; `what` names its object for people. `None`: it does not exist.
    pub(super) async fn request<T: DeserializeOwned>(
        &self,
        what: &str,
        subject: String,
        body: &impl Serialize,
    ) -> Result<Option<T>, NatsError> {
        let answer = async {
            self.jetstream.request(subject, body).await.map_err(|error| match error.kind() {
                RequestErrorKind::NoResponders if !self.client.server_info().jetstream => {
                    NatsError::no_jetstream(&self.url)
                }
                _ => NatsError::unavailable(format_args!("{what}: {error}")),
            })
        };
        match self.permitted(answer).await? {
            Response::Ok(answer) => Ok(Some(answer)),
            Response::Err { error } => match error.error_code() {
                ErrorCode::STREAM_NOT_FOUND | ErrorCode::CONSUMER_NOT_FOUND | ErrorCode::NO_MESSAGE_FOUND => {
                    Ok(None)
                }
                _ => Err(NatsError::answered(&self.url, what, &error)),
            },
        }
    }

    /// Publishes a message to a topic and waits until JetStream has stored it.
    pub(super) async fn publish(
        &self,
        topic: &Topic,
        id: &str,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<PublishAck, NatsError> {
        // Without a connection the client would send it later, perhaps after the caller has given up.
        if self.client.connection_state() != State::Connected {
            return Err(NatsError::unavailable("the connection was lost"));
        }
        let message = PublishMessage::build().headers(headers).payload(payload).message_id(id);
        let stored = async {
            let sent = self.jetstream.send_publish(topic.subject.clone(), message).await;
            let stored = match sent {
                Ok(stored) => stored.await,
                Err(error) => Err(error),
            };
            stored.map_err(|error| NatsError::of_publish(&self.url, &topic.name, &error))
        };
        self.permitted(stored).await
    }
}
