//! Section `message_queue`: how the queue is reached.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use gpuvitals_queue::link::{Access, AnyProducer, Client, QueueUrl, Scheme, Token, check_topic};

use super::{Refusal, settings};
use crate::failure::{Exit, Failure};

settings! {
    /// How the queue is reached
    pub(crate) struct MessageQueue = "message_queue" {
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
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        check_topic(&self.topic).map_err(|e| Refusal::new("message_queue.topic", e.to_string()))?;
        Refusal::unless_both(
            ("message_queue.client_cert", &self.client_cert),
            ("message_queue.client_key", &self.client_key),
        )
    }

    /// The remedy if the queue denies access.
    pub(crate) fn way_in(&self) -> String {
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
                     mode 0600 and name that; message_queue.client_cert names a certificate"
                .to_owned(),
        }
    }

    /// The token as in its file now.
    ///
    /// # Errors
    /// If the file cannot be read, or others can read it.
    pub(crate) fn token(&self) -> Result<Option<Token>, Failure> {
        self.token_file.as_deref().map(|path| token(path, "message_queue.token_file")).transpose()
    }

    /// The client of the queue.
    ///
    /// # Errors
    /// When the file of the token or of the credentials cannot be read, or others can read it.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        Ok(Client::new(self.address.clone(), self.access()?))
    }

    /// A producer of the topic.
    ///
    /// # Errors
    /// If the topic's name is refused, or a credential cannot be read.
    pub(crate) fn producer(&self, client: &Client) -> Result<AnyProducer, Failure> {
        client
            .producer(self.topic.as_str())
            .map_err(|error| Failure::caused(Exit::Config, "configuration: message_queue", error))
    }

    /// What a client brings, read from its files.
    ///
    /// # Errors
    /// When the file of the token or of the credentials cannot be read, or others can read it.
    pub(crate) fn access(&self) -> Result<Access, Failure> {
        let token = self.token()?;
        let url = &self.address;
        if token.is_some() && !url.tls && url.scheme != Scheme::InProcess && !is_loopback(&url.host) {
            tracing::warn!(queue = %url, "the token goes over the network in the clear; https, grpcs and tls do not show it");
        }
        if let Some(path) = &self.credentials_file {
            crate::secret::check(path, "message_queue.credentials_file")?;
        }
        if let Some(key) = &self.client_key {
            gpuvitals_listener::secret::warn_of_key(key);
        }
        Ok(Access {
            ca: self.ca.clone(),
            identity: self.client_cert.clone().zip(self.client_key.clone()),
            token,
            credentials: self.credentials_file.clone(),
        })
    }
}

/// A token that a file holds; `setting` names the file.
///
/// # Errors
/// When the file cannot be read, others can read it, or it holds no token.
pub(crate) fn token(path: &Path, setting: &str) -> Result<Token, Failure> {
    let token = Token::new(&crate::secret::read(path, setting)?);
    let is_plain = |b: u8| b.is_ascii_graphic();
    if token.expose().is_empty() || !token.expose().bytes().all(is_plain) {
        let text =
            format!("configuration: {setting}: {}: a token is one word of ASCII characters", path.display());
        return Err(Failure::new(Exit::Config, text));
    }
    Ok(token)
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
