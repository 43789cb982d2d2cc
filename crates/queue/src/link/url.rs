//! The URL of a queue.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use gpuvitals_listener::{Authority, AuthorityError};

use crate::nats::{NatsSettings, SettingError};

/// The kind of queue, and its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// The queue of this process.
    InProcess,
    /// gRPC on the port for HTTP.
    Http,
    /// gRPC on a port of its own.
    Grpc,
    /// NATS JetStream, by its own protocol.
    Nats,
}

/// The URL of a queue: `inproc:`, `grpc://host:port`, `http://host:port`, `nats://host:port`; with TLS
/// `grpcs`, `https`, `tls` (NATS). `host:port` alone means gRPC. After a `?` a NATS URL has settings for
/// created streams, [`NatsSettings::from_query`]; they are not printed again. It carries no secret: user and
/// password in it are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueUrl {
    /// The kind of queue.
    pub scheme: Scheme,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// Host and port; in this process without a name, and 0.
    pub authority: Authority,
    /// NATS: settings of created streams and consumers.
    pub nats: Arc<NatsSettings>,
}

/// A text that is not a queue's URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// No known scheme.
    #[error(
        "{0:?} is no queue's URL: it is host:port, or begins with inproc:, grpc://, grpcs://, http://, https://, nats:// or \
         tls://"
    )]
    Scheme(String),
    /// A user or password in it; the text is not repeated.
    #[error("the URL has a user in it; credentials belong in a file of mode 0600, not in a URL")]
    Credentials,
    /// Another text than a host and perhaps a port.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// A path, query or fragment; the error does not repeat the latter two.
    #[error("{0:?} follows host and port; a queue's URL ends there")]
    Rest(String),
    /// A parameter that is unknown, or has a value it does not take.
    #[error(transparent)]
    Setting(#[from] SettingError),
}

impl QueueUrl {
    /// The URL `inproc:` of the queue in this process.
    pub fn in_process() -> Self {
        let authority = Authority { host: String::new(), port: 0 };
        Self { scheme: Scheme::InProcess, tls: false, authority, nats: Arc::default() }
    }
}

impl FromStr for QueueUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        if text == "inproc:" {
            return Ok(Self::in_process());
        }
        let schemes = [
            ("grpc://", Scheme::Grpc, false, 9090),
            ("grpcs://", Scheme::Grpc, true, 9090),
            ("http://", Scheme::Http, false, 9090),
            ("https://", Scheme::Http, true, 9090),
            ("nats://", Scheme::Nats, false, 4222),
            ("tls://", Scheme::Nats, true, 4222),
        ];
        let found = schemes.iter().find_map(|scheme| text.strip_prefix(scheme.0).map(|rest| (*scheme, rest)));
        let is_bare = !text.contains(['@', '/']) && text.contains(':');
        let bare = is_bare.then_some((("", Scheme::Grpc, false, 9090), text));
        let Some(((_, scheme, tls, default_port), rest)) = found.or(bare) else {
            return Err(if text.contains('@') {
                UrlError::Credentials
            } else {
                UrlError::Scheme(without_query(text))
            });
        };
        if rest.contains('@') {
            return Err(UrlError::Credentials);
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (path, nats) = match path.split_once('?') {
            Some((path, query)) if scheme == Scheme::Nats => (path, NatsSettings::from_query(query)?),
            _ => (path, NatsSettings::default()),
        };
        if !matches!(path, "" | "/") {
            return Err(UrlError::Rest(without_query(path)));
        }
        let authority = Authority::parse(authority, default_port)?;
        Ok(Self { scheme, tls, authority, nats: Arc::new(nats) })
    }
}

/// The part of a text that may be repeated: after a `?` or `#` there may be a secret.
fn without_query(text: &str) -> String {
    let end = text.find(['?', '#']).map_or(text.len(), |at| at + 1);
    text.get(..end).unwrap_or(text).to_owned()
}

impl fmt::Display for QueueUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match (self.scheme, self.tls) {
            (Scheme::InProcess, _) => return f.write_str("inproc:"),
            (Scheme::Http, false) => "http",
            (Scheme::Http, true) => "https",
            (Scheme::Grpc, false) => "grpc",
            (Scheme::Grpc, true) => "grpcs",
            (Scheme::Nats, false) => "nats",
            (Scheme::Nats, true) => "tls",
        };
        write!(f, "{scheme}://{}", self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::{AuthorityError, QueueUrl, UrlError};

    #[test]
    fn urls_are_read_and_written() {
        for (text, whole) in [
            ("inproc:", "inproc:"),
            ("http://localhost:9090", "http://localhost:9090"),
            ("http://broker/", "http://broker:9090"),
            ("grpc://10.0.0.1", "grpc://10.0.0.1:9090"),
            ("grpcs://[::1]:1", "grpcs://[::1]:1"),
            ("nats://nats.example.org", "nats://nats.example.org:4222"),
            ("tls://nats:4", "tls://nats:4"),
            ("nats://nats?", "nats://nats:4222"),
            ("localhost:50051", "grpc://localhost:50051"),
            ("[::1]:9090", "grpc://[::1]:9090"),
        ] {
            let url: QueueUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), whole);
            assert_eq!(whole.parse(), Ok(url));
        }
    }

    #[test]
    fn that_of_nats_says_what_streams_are_made_with() {
        for text in ["nats://nats?replicas=3&max_retries=7", "tls://nats:1/?replicas=3&max_retries=7"] {
            let url: QueueUrl = text.parse().unwrap();
            assert_eq!(
                (url.authority.host.as_str(), url.nats.replicas, url.nats.max_retries),
                ("nats", Some(3), 7)
            );
        }
        let wrong = "nats://nats?replicas=4".parse::<QueueUrl>().unwrap_err();
        assert_eq!(wrong.to_string(), "replicas takes 1, 3 or 5");
    }

    #[test]
    fn what_is_no_queue_is_refused_without_repeating_a_secret() {
        let refused = |text: &str| text.parse::<QueueUrl>().unwrap_err();
        for text in ["http://user:secret@host", "nats://secret@host", "amqp://user:secret@host"] {
            assert_eq!(refused(text), UrlError::Credentials, "{text}");
        }
        assert_eq!(refused("kafka://x"), UrlError::Scheme("kafka://x".into()));
        assert_eq!(refused("localhost"), UrlError::Scheme("localhost".into()));
        for text in ["localhost:queue", ":1", "[x]:1", "[::1]1", "h:0", "h:99999"] {
            let refused = refused(&format!("http://{text}"));
            assert_eq!(refused, UrlError::Authority(AuthorityError(text.to_owned())));
        }
        assert_eq!(refused("http://h:1/publish"), UrlError::Rest("/publish".into()));
        assert_eq!(refused("http://h:1/publish?token=s3cret"), UrlError::Rest("/publish?".into()));
        assert_eq!(refused("nats://h#s3cret"), UrlError::Rest("#".into()));
        assert_eq!(refused("amqp://h?s3cret"), UrlError::Scheme("amqp://h?".into()));
    }
}
