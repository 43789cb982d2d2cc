//! One connection to NATS, and what is asked of JetStream on it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{
    Client, ClientError, ConnectErrorKind, ConnectOptions, Event, RequestErrorKind, ServerError,
};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Mutex, watch};

use super::error::NatsError;
use crate::link::{Access, QueueUrl};

/// How long a connection, and how long an answer of JetStream is waited for.
const CONNECTS_WITHIN: Duration = Duration::from_secs(3);
pub(super) const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Between two signs of life that the server is asked for; it is gone when two of them stay away.
const PINGS_EVERY: Duration = Duration::from_secs(5);

/// Tries to reconnect before a connection is given up and made anew by whoever needs one: about a minute.
const RECONNECTS_MAX: usize = 30;

/// Where NATS is, as whom one connects, and the connection.
#[derive(Debug)]
pub(super) struct Endpoint {
    url: QueueUrl,
    access: Access,
    session: Mutex<Option<Session>>,
}

/// What the connection said besides answers.
#[derive(Clone, Debug, Default)]
struct Notices {
    /// It was given up.
    over: bool,
    /// It was lost, and is being made again.
    lost: bool,
    /// How often something was denied, and the last time's text.
    denials: u64,
    denied: Option<Arc<str>>,
}

/// A connection. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) jetstream: Context,
    pub(super) url: QueueUrl,
    notices: watch::Receiver<Notices>,
}

/// An answer of JetStream that says "there is none".
pub(super) enum Found<T> {
    It(T),
    Nothing,
}

impl Endpoint {
    pub(super) fn new(url: &QueueUrl, access: &Access) -> Self {
        Self { url: url.clone(), access: access.clone(), session: Mutex::new(None) }
    }

    /// The connection. It is made anew only when it was given up: it knows the other servers of a cluster, while the
    /// one that the URL names may be gone.
    pub(super) async fn session(&self) -> Result<Session, NatsError> {
        let mut session = self.session.lock().await;
        if let Some(session) = session.as_ref().filter(|session| !session.is_over()) {
            return Ok(session.clone());
        }
        Ok(session.insert(self.connect().await?).clone())
    }

    async fn connect(&self) -> Result<Session, NatsError> {
        let (notify, notices) = watch::channel(Notices::default());
        let options = self.options().await?.event_callback(move |event| {
            notify.send_modify(|notices| notices.take(event));
            std::future::ready(())
        });
        let client = options.connect(self.url.to_string()).await.map_err(|error| {
            let reason: Arc<str> = error.to_string().into();
            match error.kind() {
                ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                    NatsError::Credentials { url: self.url.clone(), reason }
                }
                _ => NatsError::Unavailable(format!("{}: {reason}", self.url).into()),
            }
        })?;
        if !client.is_server_compatible(2, 9, 0) {
            let version = client.server_info().version.into();
            return Err(NatsError::OldServer { url: self.url.clone(), version });
        }
        let mut jetstream = jetstream::new(client.clone());
        jetstream.set_timeout(ANSWERS_WITHIN);
        Ok(Session { client, jetstream, url: self.url.clone(), notices })
    }

    /// What the connection is made with; a file of credentials is read anew each time.
    async fn options(&self) -> Result<ConnectOptions, NatsError> {
        let mut options = ConnectOptions::new()
            .name("gpuvitals")
            .connection_timeout(CONNECTS_WITHIN)
            .request_timeout(Some(ANSWERS_WITHIN))
            .ping_interval(PINGS_EVERY)
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
            options = read
                .map_err(|error| NatsError::CredentialsFile(format!("{}: {error}", path.display()).into()))?;
        }
        Ok(options)
    }
}

impl Notices {
    fn take(&mut self, event: Event) {
        match event {
            Event::Closed | Event::ClientError(ClientError::MaxReconnects) => self.over = true,
            Event::Disconnected => self.lost = true,
            Event::Connected => self.lost = false,
            Event::ServerError(ServerError::Other(text)) if text.starts_with("Permissions Violation") => {
                self.denials += 1;
                self.denied = Some(text.into());
            }
            _ => {}
        }
    }

    /// Whether the last denial concerns `subject`: publishing on it, or listening for answers.
    fn denies(&self, subject: &str) -> Option<Arc<str>> {
        let concerns = |text: &&Arc<str>| {
            text.contains(&format!("\"{subject}\""))
                || text.starts_with("Permissions Violation for Subscription to \"_INBOX")
        };
        self.denied.as_ref().filter(concerns).cloned()
    }
}

impl Session {
    /// Whether it was given up: a new one is needed.
    pub(super) fn is_over(&self) -> bool {
        self.notices.borrow().over
    }

    /// Whether there is a connection now. What is sent without one waits in the client, unseen.
    pub(super) fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Whether it was lost, as far as it was told.
    pub(super) fn is_lost(&self) -> bool {
        self.notices.borrow().lost
    }

    /// Waits until it is lost, or not any more, whichever it `was` not.
    pub(super) fn turned(&self, was: bool) -> impl Future<Output = ()> + Send + use<> {
        let mut notices = self.notices.clone();
        async move {
            if notices.wait_for(|notices| notices.lost != was).await.is_err() {
                // It sends no more notices: it is over.
            }
        }
    }

    /// How often the connection was made so far. It is counted before anything is sent on it; the notices come later.
    pub(super) fn connections(&self) -> u64 {
        self.client.statistics().connects.load(Ordering::SeqCst)
    }

    /// Waits until the connection was made more often than `so_far`, or was given up.
    pub(super) async fn made_again(&self, so_far: u64) {
        let mut notices = self.notices.clone();
        // A connection that sends no more notices is over.
        if notices.wait_for(|notices| notices.over || self.connections() > so_far).await.is_err() {}
    }

    /// Waits for an answer, or until the server says that `subject` is not permitted: then there will be none.
    pub(super) async fn unless_denied<T>(
        &self,
        subject: &str,
        answer: impl Future<Output = Result<T, NatsError>>,
    ) -> Result<T, NatsError> {
        let mut notices = self.notices.clone();
        let before = notices.borrow().denials;
        let denial = async {
            match notices.wait_for(|now| now.denials > before && now.denies(subject).is_some()).await {
                Ok(now) => now.denies(subject),
                Err(_) => None,
            }
        };
        tokio::select! {
            biased;
            answer = answer => answer,
            Some(text) = denial => Err(NatsError::Denied(text)),
        }
    }

    /// Asks JetStream. `what` is asked for, as a person would say it.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        what: &str,
        subject: &str,
        body: &Value,
    ) -> Result<T, NatsError> {
        match self.find(what, subject, body).await? {
            Found::It(answer) => Ok(answer),
            Found::Nothing => {
                Err(NatsError::Refused { what: what.into(), reason: "there is no such thing".into() })
            }
        }
    }

    /// Asks JetStream for something that may not exist.
    pub(super) async fn find<T: DeserializeOwned>(
        &self,
        what: &str,
        subject: &str,
        body: &Value,
    ) -> Result<Found<T>, NatsError> {
        // Some requests are refused with any body at all.
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let subject = format!("$JS.API.{subject}");
        let answer = async {
            self.client.request(subject.clone(), body).await.map_err(|error| match error.kind() {
                RequestErrorKind::NoResponders if !self.client.server_info().jetstream => {
                    NatsError::NotEnabled { url: self.url.clone() }
                }
                _ => NatsError::Unavailable(format!("{what}: {error}").into()),
            })
        };
        let connections = self.connections();
        let answer = tokio::select! {
            answer = self.unless_denied(&subject, answer) => answer?,
            // What was under way on the one before is not answered.
            () = self.made_again(connections) => {
                return Err(NatsError::Unavailable(format!("{what}: the connection was lost meanwhile").into()));
            }
        };
        let understood = serde_json::from_slice(&answer.payload);
        match understood
            .map_err(|error| NatsError::Unavailable(format!("{what}: odd answer: {error}").into()))?
        {
            Response::Ok(answer) => Ok(Found::It(answer)),
            Response::Err { error } => match error.error_code() {
                ErrorCode::STREAM_NOT_FOUND | ErrorCode::CONSUMER_NOT_FOUND | ErrorCode::NO_MESSAGE_FOUND => {
                    Ok(Found::Nothing)
                }
                _ => Err(NatsError::answered(&self.url, what, &error)),
            },
        }
    }

    /// Asks JetStream for all of `what`: `streams` or `consumers`. `None` if not all of them are heard of.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        what: &str,
        subject: &str,
    ) -> Result<Option<Vec<T>>, NatsError> {
        let mut all = Vec::new();
        loop {
            let page: Value = self.ask(what, subject, &json!({ "offset": all.len() })).await?;
            let listed = page.get(what).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            for one in listed {
                let one = T::deserialize(one);
                all.push(
                    one.map_err(|error| NatsError::unavailable(format!("{what}: odd answer: {error}")))?,
                );
            }
            let total =
                page.get("total").and_then(Value::as_u64).and_then(|total| usize::try_from(total).ok());
            let is_short =
                page.get("missing").and_then(Value::as_array).is_some_and(|missing| !missing.is_empty());
            if is_short || (listed.is_empty() && Some(all.len()) != total) {
                return Ok(None);
            }
            if Some(all.len()) == total {
                return Ok(Some(all));
            }
        }
    }
}
