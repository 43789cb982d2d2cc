//! Section `remote_write` of the configuration.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;
use gpuvitals_listener::client::{self, BearerToken, CredentialError, Credentials};
use gpuvitals_listener::secret;
use gpuvitals_settings::{Bytes, Refusal, is_loopback, settings, words};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Uri};

settings! {
    /// Metrics to a receiver of Prometheus remote write, from `agent` and `collect`; see docs/remote-write.md
    pub struct RemoteWriteSettings = "remote_write", check Self::check {
        /// Send the metrics there by remote write, such as http://HOST:9090/api/v1/write; https too; empty: nowhere
        pub url: String = "", flag "--remote-write-url URL";
        /// Version; auto: 2.0, and 1.0 for a receiver that does not take it
        pub(crate) protocol: ProtocolVersion = "auto";
        /// Time between two samples of a series
        pub interval: Duration = "30s", from "1ms";
        /// Labels of every series: name=value,name=value; job (gpuvitals) and instance (the node) are added unless they are here
        labels: String = "";
        /// File with the receiver's bearer token, mode 0600
        token_file: Option<PathBuf> = "";
        /// User for basic authentication
        username: String = "";
        /// File with this user's password, mode 0600
        password_file: Option<PathBuf> = "";
        /// File of further headers (lines NAME: VALUE), mode 0600, such as that of a tenant
        headers_file: Option<PathBuf> = "";
        /// Authorities (PEM) that sign the receiver's certificate; empty: those of the system
        ca: Option<PathBuf> = "";
        /// Certificate chain (PEM) of this client, if the receiver asks for one
        client_cert: Option<PathBuf> = "";
        /// Its private key (PEM)
        client_key: Option<PathBuf> = "";
        /// Time for an answer
        pub timeout: Duration = "10s", from "1ms";
        /// Bytes of compressed samples that wait in memory at most while the receiver is away; then the oldest go
        pub(crate) queue_max: Bytes = "16MiB";
        /// Samples that have waited for longer are dropped; receivers refuse old ones
        pub(crate) max_age: Duration = "2h", from "1s";
    }
}

/// Which version of the protocol is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProtocolVersion {
    /// 2.0, and 1.0 for a receiver that does not take it.
    Auto,
    /// `prometheus.WriteRequest`.
    #[value(name = "1.0")]
    One,
    /// `io.prometheus.write.v2.Request`.
    #[value(name = "2.0")]
    Two,
}

words!(ProtocolVersion);

/// Labels that are added unless the settings have them, besides the node's.
const JOB: (&str, &str) = ("job", "gpuvitals");

impl RemoteWriteSettings {
    /// Refuses impossible settings.
    fn check(&self) -> Result<(), Refusal> {
        let refuse = |setting, why: String| Err(Refusal::new(setting, why));
        if self.url.contains('@') {
            // It is not repeated: the part before the @ is a secret.
            let why = "a secret does not stand in a URL; remote_write.username and remote_write.password_file name them";
            return refuse("remote_write.url", why.to_owned());
        }
        if !self.url.is_empty()
            && let Err(why) = check_url(&self.url)
        {
            let why = format!("{:?}: {why}; write http://HOST:9090/api/v1/write, or https://", self.url);
            return refuse("remote_write.url", why);
        }
        if let Err(entry) = labels(&self.labels) {
            let why = format!("{entry:?} is no label; write name=value,name=value");
            return refuse("remote_write.labels", why);
        }
        if self.username.is_empty() != self.password_file.is_none() {
            let why = "remote_write.username and remote_write.password_file must be set together".to_owned();
            return refuse("remote_write.username", why);
        }
        if self.password_file.is_some() && self.token_file.is_some() {
            let why = "set either remote_write.token_file or a password, not both".to_owned();
            return refuse("remote_write.token_file", why);
        }
        Refusal::unless_both(
            ("remote_write.client_cert", &self.client_cert),
            ("remote_write.client_key", &self.client_key),
        )
    }

    /// Whether anything is sent.
    pub fn is_on(&self) -> bool {
        !self.url.is_empty()
    }

    /// The URL without its query, which may hold a key.
    pub(crate) fn shown_url(&self) -> &str {
        self.url.split('?').next().unwrap_or_default()
    }

    /// Whether the receiver is reached by TLS.
    pub fn has_tls(&self) -> bool {
        self.url.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"))
    }

    /// How the receiver's certificate is checked, and the certificate of this client. Tokens and passwords are read with every
    /// request.
    pub fn access(&self) -> Credentials {
        if let Some(key) = &self.client_key {
            secret::warn_of_key(key);
        }
        Credentials {
            ca: self.ca.clone(),
            identity: self.client_cert.clone().zip(self.client_key.clone()),
            ..Credentials::default()
        }
    }

    /// Labels of every series.
    pub(crate) fn external(&self, origin: &str) -> Vec<(String, String)> {
        // They were checked.
        let mut external = labels(&self.labels).unwrap_or_default();
        for (name, value) in [JOB, ("instance", origin)] {
            if !external.iter().any(|(given, _)| given == name) {
                external.push((name.to_owned(), value.to_owned()));
            }
        }
        external
    }

    /// The headers that name the sender, as their files are now.
    ///
    /// # Errors
    /// When a file cannot be read, others can read it, or it does not hold what it should.
    pub(crate) fn headers(&self) -> Result<HeaderMap, CredentialError> {
        const PASSWORD: &str = "remote_write.password_file";
        const TOKEN: &str = "remote_write.token_file";
        let mut headers = match &self.headers_file {
            Some(path) => client::headers(path, "remote_write.headers_file")?,
            None => HeaderMap::new(),
        };
        if let Some(path) = &self.token_file {
            headers.insert(AUTHORIZATION, BearerToken::read(path, TOKEN)?.header());
        } else if let Some(path) = &self.password_file {
            let password = secret::read(path).map_err(CredentialError::of(PASSWORD, path))?;
            let pair = format!("{}:{}", self.username, password.trim_end_matches(['\r', '\n']));
            let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair)))
                .map_err(|_| CredentialError::Token { setting: PASSWORD, path: path.clone() })?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(headers)
    }

    /// Whether secrets would go over a network in the clear.
    pub(crate) fn shows_secrets(&self) -> bool {
        let host = self.url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
        let is_here = host.is_some_and(|host| is_loopback(&host));
        let has_secret =
            [&self.token_file, &self.password_file, &self.headers_file].iter().any(|it| it.is_some());
        has_secret && !self.has_tls() && !is_here
    }
}

/// Scheme, host and path.
fn check_url(text: &str) -> Result<(), &'static str> {
    let uri: Uri = text.parse().map_err(|_| "it is no URL")?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err("it does not begin with http:// or https://");
    }
    if uri.host().unwrap_or_default().is_empty() {
        return Err("it names no host");
    }
    Ok(())
}

/// `name=value,name=value`.
///
/// # Errors
/// The first entry that is no label.
fn labels(text: &str) -> Result<Vec<(String, String)>, String> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    entries
        .map(|entry| {
            let (name, value) = entry.split_once('=').ok_or_else(|| entry.to_owned())?;
            let (name, value) = (name.trim(), value.trim());
            let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            let is_name = name.chars().all(is_letter) && !name.starts_with("__");
            if !is_name || !name.starts_with(|first: char| !first.is_ascii_digit()) {
                return Err(entry.to_owned());
            }
            Ok((name.to_owned(), value.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use gpuvitals_settings::Section as _;

    use super::*;

    #[test]
    fn labels_are_pairs_and_job_and_instance_are_added() {
        let of = |labels: &str| {
            let settings = RemoteWriteSettings::of(&[("remote_write.labels", labels.into())]);
            settings.map(|settings| settings.external("n1")).map_err(|refusal| format!("{refusal:?}"))
        };
        let pairs = |given: &[(&str, &str)]| -> Vec<(String, String)> {
            given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        assert_eq!(of(""), Ok(pairs(&[("job", "gpuvitals"), ("instance", "n1")])));
        assert_eq!(
            of("cluster=a, job=gpu"),
            Ok(pairs(&[("cluster", "a"), ("job", "gpu"), ("instance", "n1")]))
        );
        for wrong in ["cluster", "1a=b", "__name__=x", "a-b=c", "=x"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn settings_that_cannot_be_are_refused_without_their_secrets() {
        for (given, words) in [
            (&[("remote_write.url", "http://user:s3cret@host/")][..], "does not stand in a URL"),
            (&[("remote_write.url", "ftp://host/")], "does not begin with"),
            (&[("remote_write.username", "u")], "must be set together"),
            (&[("remote_write.client_cert", "c")], "remote_write.client_key"),
            (
                &[
                    ("remote_write.username", "u"),
                    ("remote_write.password_file", "p"),
                    ("remote_write.token_file", "t"),
                ],
                "not both",
            ),
        ] {
            let given: Vec<_> = given.iter().map(|(path, value)| (*path, (*value).into())).collect();
            let refusal = format!("{:?}", RemoteWriteSettings::of(&given).unwrap_err());
            assert!(refusal.contains(words) && !refusal.contains("s3cret"), "{refusal}");
        }
    }
}
