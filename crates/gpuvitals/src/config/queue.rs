//! Sections `message_queue`, how the queue is reached, and `broker`, the queue itself.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use gpuvitals_queue::link::{Access, AnyProducer, Client, QueueUrl, Scheme, Token, check_topic};
use serde::{Deserialize, Deserializer};

use super::Switch;
use crate::failure::{Exit, Failure};
use crate::quantity::{deserialize_bytes, deserialize_duration, deserialize_word};

/// Largest `broker.frame_bytes_max`: half a segment of the log.
const FRAME_BYTES_MOST: u64 = 32 << 20;

/// Where messages are kept, where no other directory is named.
const DIRECTORY: &str = "/data/mq";

/// How the queue is reached.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessageQueue {
    /// Which queue.
    #[serde(deserialize_with = "deserialize_url")]
    pub address: QueueUrl,
    /// Topic of GPU rows.
    pub topic: String,
    /// Authorities that sign the queue's certificate, PEM; empty: those of the system.
    ca: PathBuf,
    /// Certificate chain of the client, PEM; empty: none.
    client_cert: PathBuf,
    /// Its private key, PEM.
    client_key: PathBuf,
    /// File that holds the token; empty: none.
    token_file: PathBuf,
    /// NATS: file with JWT and key of its user; empty: none.
    credentials_file: PathBuf,
}

impl MessageQueue {
    /// Refuses what cannot be.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        check_topic(&self.topic)
            .map_err(|e| Failure::new(Exit::Config, format!("configuration: message_queue.topic: {e}")))?;
        together("message_queue", ("client_cert", &self.client_cert), ("client_key", &self.client_key))
    }

    /// What to do where the queue denies access.
    pub(crate) fn way_in(&self) -> String {
        let named = [
            ("credentials_file", &self.credentials_file),
            ("token_file", &self.token_file),
            ("client_cert", &self.client_cert),
        ];
        match named.into_iter().find_map(|(key, path)| Some((key, set(path)?))) {
            Some((key, path)) => format!(
                "message_queue.{key} is {}; the queue must know what is in it, and give it the right",
                path.display()
            ),
            None => "message_queue.token_file (GPUVITALS_MESSAGE_QUEUE_TOKEN_FILE) names no file; put the token into one of \
                     mode 0600 and name that; message_queue.client_cert names a certificate"
                .to_owned(),
        }
    }

    /// The token as its file has it now.
    ///
    /// # Errors
    /// When the file cannot be read, or others can read it.
    pub(crate) fn token(&self) -> Result<Option<Token>, Failure> {
        set(&self.token_file).map(|path| token(path, "message_queue.token_file")).transpose()
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
    /// When the topic's name is refused, or what access needs cannot be read.
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
        let credentials = set(&self.credentials_file);
        if let Some(path) = credentials {
            crate::secret::check(path, "message_queue.credentials_file")?;
        }
        if let Some(key) = set(&self.client_key) {
            gpuvitals_listener::secret::warn_of_key(key);
        }
        Ok(Access {
            ca: set(&self.ca).map(Path::to_path_buf),
            identity: set(&self.client_cert).map(|cert| (cert.to_path_buf(), self.client_key.clone())),
            token,
            credentials: credentials.map(Path::to_path_buf),
        })
    }
}

/// What a full topic does with the next frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum WhenFull {
    /// Refuse it; nothing that is held is lost
    Refuse,
    /// Let the oldest go, counted
    DropOldest,
}

/// When a publish is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Durability {
    /// Once it is in memory: lost with the process
    Memory,
    /// Once it is written: lost with the machine's power
    Written,
    /// Once it is on disk
    Synced,
}

/// What holds for one topic in place of what holds for all.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TopicTerms {
    /// When a publish is answered.
    #[serde(default)]
    pub durability: Option<Durability>,
}

/// The queue itself: `gpuvitals broker`, and the one inside `up`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Broker {
    /// Address to listen on.
    pub listen: IpAddr,
    /// Port of HTTP and gRPC; 0 takes a free one and prints it.
    pub port: u16,
    /// Whether messages outlive the process: where a directory is named, unless told otherwise.
    #[serde(deserialize_with = "deserialize_word")]
    persistence: Switch,
    /// Where they are kept then; empty: [`DIRECTORY`].
    persistence_path: PathBuf,
    /// When a publish is answered; none: as safe as can be.
    #[serde(deserialize_with = "deserialize_durability")]
    durability: Option<Durability>,
    /// What other terms hold for some topics, by name.
    pub topics: BTreeMap<String, TopicTerms>,
    /// Time to acknowledge, unless a consumer asks for another.
    #[serde(deserialize_with = "deserialize_duration")]
    pub ack_timeout: Duration,
    /// Deliveries after the first.
    pub max_retries: u32,
    /// Messages a topic holds at most.
    pub messages_max: u64,
    /// Bytes a topic holds at most.
    #[serde(deserialize_with = "deserialize_bytes")]
    pub bytes_max: u64,
    /// What happens at either bound.
    pub when_full: WhenFull,
    /// With persistence: bytes of frames kept in memory besides the disk.
    #[serde(deserialize_with = "deserialize_bytes")]
    pub memory_max: u64,
    /// Largest frame, bytes.
    #[serde(deserialize_with = "deserialize_bytes")]
    pub frame_bytes_max: u64,
    /// Connections at a time.
    pub connections_max: usize,
    /// Certificate chain, PEM; empty: no TLS.
    tls_cert: PathBuf,
    /// Its private key, PEM.
    tls_key: PathBuf,
    /// Whose certificates a client must show, PEM; empty: none.
    tls_client_ca: PathBuf,
    /// File of the tokens of clients; empty: they need none.
    token_file: PathBuf,
}

impl Broker {
    /// Where messages are kept; none: in memory.
    pub(crate) fn directory(&self) -> Option<&Path> {
        let named = set(&self.persistence_path);
        match self.persistence {
            Switch::Auto => named,
            Switch::On => Some(named.unwrap_or(Path::new(DIRECTORY))),
            Switch::Off => None,
        }
    }

    /// When a publish is answered, in topics without terms of their own.
    pub(crate) fn durability(&self) -> Durability {
        let best = if self.directory().is_some() { Durability::Synced } else { Durability::Memory };
        self.durability.unwrap_or(best)
    }

    /// Whether messages of a topic outlive the process.
    pub(crate) fn keeps(&self, topic: &str) -> bool {
        let own = self.topics.get(topic).and_then(|terms| terms.durability);
        self.directory().is_some() && own.unwrap_or(self.durability()) != Durability::Memory
    }

    /// What is asked for and not had, since nothing is kept.
    pub(crate) fn in_vain(&self) -> Vec<String> {
        if self.directory().is_some() {
            return Vec::new();
        }
        let path = set(&self.persistence_path).map(|path| {
            format!("broker.persistence_path is {}, but broker.persistence is false", path.display())
        });
        let asked = |durability: Option<Durability>| durability.is_some_and(|it| it != Durability::Memory);
        let own = self.topics.iter().filter(|(_, terms)| asked(terms.durability));
        let own = own.map(|(topic, _)| format!("broker.topics gives {topic} a durability"));
        let all = asked(self.durability).then(|| "broker.durability is set".to_owned());
        path.into_iter().chain(all).chain(own).collect()
    }

    /// What protects its port.
    pub(crate) fn listener(&self) -> gpuvitals_listener::Settings {
        let named = |path: &Path| set(path).map(Path::to_path_buf);
        gpuvitals_listener::Settings {
            tls_cert: named(&self.tls_cert),
            tls_key: named(&self.tls_key),
            tls_client_ca: named(&self.tls_client_ca),
            token_file: named(&self.token_file),
            guard_metrics: true,
            insecure: true,
        }
    }

    /// The file of the tokens, where clients must bring one.
    pub(crate) fn token_file(&self) -> Option<&Path> {
        set(&self.token_file)
    }

    /// Refuses what cannot be.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let refuse = |text: String| Err(Failure::new(Exit::Config, format!("configuration: broker.{text}")));
        self.listener().check().or_else(|error| refuse(error.to_string()))?;
        let above_zero = [
            ("messages_max", self.messages_max > 0),
            ("bytes_max", self.bytes_max > 0),
            ("memory_max", self.memory_max > 0),
            ("frame_bytes_max", self.frame_bytes_max > 0),
            ("connections_max", self.connections_max > 0),
            ("ack_timeout", !self.ack_timeout.is_zero()),
        ];
        if let Some((name, _)) = above_zero.into_iter().find(|(_, is)| !is) {
            return refuse(format!("{name} is 0, it must be above 0"));
        }
        if self.frame_bytes_max > FRAME_BYTES_MOST {
            return refuse(format!("frame_bytes_max is {}; 32MiB is the most", self.frame_bytes_max));
        }
        Ok(())
    }
}

fn together(section: &str, one: (&str, &Path), other: (&str, &Path)) -> Result<(), Failure> {
    if set(one.1).is_some() == set(other.1).is_some() {
        return Ok(());
    }
    let text =
        format!("configuration: {section}.{} and {} belong together: one of them is missing", one.0, other.0);
    Err(Failure::new(Exit::Config, text))
}

fn set(path: &Path) -> Option<&Path> {
    Some(path).filter(|path| !path.as_os_str().is_empty())
}

fn token(path: &Path, setting: &str) -> Result<Token, Failure> {
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

fn deserialize_durability<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Durability>, D::Error> {
    let word = String::deserialize(deserializer)?;
    if word == "auto" {
        return Ok(None);
    }
    Durability::from_str(&word, false)
        .map(Some)
        .map_err(|_| serde::de::Error::custom(format!("{word:?} is none of auto, memory, written, synced")))
}

fn deserialize_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<QueueUrl, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}
