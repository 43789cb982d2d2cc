//! Section `message_queue` of the configuration: how the queue is reached.

use std::path::PathBuf;

use gpuvitals_listener::{Authority, secret};
use gpuvitals_settings::{Notation, Refusal, Typed, Value, is_loopback, settings, text};

use super::{BearerToken, Client, CredentialError, Credentials, QueueUrl, Scheme, UrlError, check_topic};

settings! {
    /// How the queue is reached
    pub struct MessageQueue = "message_queue", check Self::check {
        /// URL of the queue: grpc://, http:// or nats://HOST:PORT, with TLS grpcs, https, tls; HOST:PORT speaks gRPC. Empty: `up`
        /// has one of its own, `agent` publishes to none, other commands take http://127.0.0.1:9090
        pub address: QueueUrl = "", flag "--mq-url URL";
        /// Topic of the rows
        pub topic: String = "gpu-telemetry", flag "--topic NAME";
        /// Authorities (PEM) that sign the queue's certificate; empty: those of the system
        ca: Option<PathBuf> = "", flag "--ca FILE";
        /// Certificate chain (PEM) of this client, if the queue asks for one
        client_cert: Option<PathBuf> = "", flag "--client-cert FILE";
        /// Its private key (PEM)
        client_key: Option<PathBuf> = "", flag "--client-key FILE";
        /// File with the token that the queue asks for, mode 0600
        token_file: Option<PathBuf> = "", flag "--token-file FILE";
        /// NATS: file with the user's JWT and key (.creds), mode 0600
        credentials_file: Option<PathBuf> = "";
    }
}

impl MessageQueue {
    /// Refuses impossible settings.
    fn check(&self) -> Result<(), Refusal> {
        check_topic(&self.topic).map_err(|e| Refusal::new("message_queue.topic", e.to_string()))?;
        Refusal::unless_both(
            ("message_queue.client_cert", &self.client_cert),
            ("message_queue.client_key", &self.client_key),
        )
    }

    /// These settings for a command without a queue of its own: without an address it takes that of this machine.
    #[must_use]
    pub fn elsewhere(&self, tls: bool, port: u16) -> Self {
        let mut queue = self.clone();
        if queue.address.scheme == Scheme::InProcess {
            let authority = Authority { host: "127.0.0.1".to_owned(), port };
            queue.address = QueueUrl { scheme: Scheme::Http, tls, authority, ..queue.address };
        }
        queue
    }

    /// The remedy if the queue denies access.
    pub fn way_in(&self) -> String {
        let named = [
            ("credentials_file", &self.credentials_file),
            ("token_file", &self.token_file),
            ("client_cert", &self.client_cert),
        ];
        match named.into_iter().find_map(|(key, path)| Some((key, path.as_deref()?))) {
            Some((key, path)) => format!(
                "message_queue.{key} is {}; the queue must know what is in it, and give it the right",
                path.display()
            ),
            None => "message_queue.token_file (GPUVITALS_MESSAGE_QUEUE_TOKEN_FILE) names no file; put the token into one of \
                     mode 0600 and name that, or a certificate in message_queue.client_cert"
                .to_owned(),
        }
    }

    /// The token as in its file now.
    ///
    /// # Errors
    /// If the file cannot be read, or others can read it.
    pub fn token(&self) -> Result<Option<BearerToken>, CredentialError> {
        self.token_file.as_deref().map(|path| BearerToken::read(path, "message_queue.token_file")).transpose()
    }

    /// The client of the queue.
    ///
    /// # Errors
    /// When the file of the token or of the credentials cannot be read, or others can read it.
    pub fn client(&self) -> Result<Client, CredentialError> {
        Ok(Client::new(self.address.clone(), self.access()?))
    }

    /// What a client brings, read from its files.
    ///
    /// # Errors
    /// When the file of the token or of the credentials cannot be read, or others can read it.
    pub fn access(&self) -> Result<Credentials, CredentialError> {
        let token = self.token()?;
        let url = &self.address;
        if token.is_some() && !url.tls && url.scheme != Scheme::InProcess && !is_loopback(&url.authority.host)
        {
            tracing::warn!(queue = %url, "the token goes over the network in the clear; https, grpcs and tls do not show it");
        }
        if let Some(path) = &self.credentials_file {
            let refused = CredentialError::of("message_queue.credentials_file", path);
            secret::check(path).map_err(refused)?;
        }
        if let Some(key) = &self.client_key {
            secret::warn_of_key(key);
        }
        Ok(Credentials {
            ca: self.ca.clone(),
            identity: self.client_cert.clone().zip(self.client_key.clone()),
            token,
            credentials: self.credentials_file.clone(),
        })
    }
}

impl Typed for QueueUrl {
    const NOTATION: Notation = Notation::Url;

    fn read(value: &Value) -> Result<Self, String> {
        let text = text(value)?;
        if text.is_empty() {
            return Ok(Self::in_process());
        }
        text.parse().map_err(|error: UrlError| error.to_string())
    }
}
