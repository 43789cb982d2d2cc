//! The clusters of the configuration.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::{Identity, IdentityColumn, quantity};
use gpuvitals_settings::is_loopback;
use http::Uri;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer};

/// Labels of the driver's pods: those of the operator's `ClusterPolicy`, then those of its `NVIDIADriver` resources.
const DRIVER_SELECTORS: [&str; 2] =
    ["app=nvidia-driver-daemonset", "app.kubernetes.io/component=nvidia-driver"];
/// Where the GPU operator runs: by NVIDIA's chart, and on OpenShift.
const DRIVER_NAMESPACES: [&str; 2] = ["gpu-operator", "nvidia-gpu-operator"];
/// Execs at once in all clusters together: each keeps a thread for blocking work, of which the runtime has 512.
pub(crate) const PARALLEL_MAX: usize = 256;
/// Nodes of a cluster that are read at once, unless there are so many clusters that each has less: 100 nodes in two turns.
pub(crate) const PARALLEL: usize = 64;
/// Most labels of pods that are kept: as many as a batch job has.
const POD_LABELS_MAX: usize = 16;
/// Shortest time between two readings of a node: an exec is expensive for the API server and the node.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// A cluster that cannot be read as configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The name is empty or has characters that a URL path or a label cannot have.
    #[error("{0:?} cannot be the name of a cluster: letters, digits, '-', '_' and '.'")]
    Name(String),
    /// Two clusters of one name.
    #[error("two clusters have the name {0}")]
    Twice(String),
    /// The URL is no http or https URL, or carries user or query.
    #[error("cluster {cluster}: api_url {url:?} is not of the form https://host:port")]
    Url {
        /// Name of the cluster.
        cluster: String,
        /// As configured, without a user's part.
        url: String,
    },
    /// A token would cross the network in clear text.
    #[error("cluster {0}: a token is not sent over http://; use https://")]
    ClearToken(String),
    /// Two settings that contradict each other.
    #[error("cluster {cluster}: {one} and {other} exclude each other")]
    Both {
        /// Name of the cluster.
        cluster: String,
        /// One of the two settings, by its key.
        one: &'static str,
        /// The one that contradicts it.
        other: &'static str,
    },
    /// A number or duration out of its range.
    #[error("cluster {cluster}: {setting} must be {range}")]
    Range {
        /// Name of the cluster.
        cluster: String,
        /// Key of the setting.
        setting: &'static str,
        /// What it must be, in words.
        range: &'static str,
    },
    /// Too many execs at once, over all clusters.
    #[error("all clusters together may run {PARALLEL_MAX} execs at once, not {0}")]
    Parallel(usize),
}

/// A bearer token. It is in no message and no debug output.
#[derive(Debug, Clone)]
pub struct ClusterToken(pub(crate) SecretString);

impl From<&str> for ClusterToken {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl PartialEq for ClusterToken {
    fn eq(&self, other: &Self) -> bool {
        self.0.expose_secret() == other.0.expose_secret()
    }
}

impl<'de> Deserialize<'de> for ClusterToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A message about a value of another type would repeat it.
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(text) => Ok(Self(text.into())),
            _ => Err(serde::de::Error::custom("the token is no text")),
        }
    }
}

/// A cluster as the file has it. [`Cluster::checked`] makes it usable.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterSettings {
    /// Its name in rows, answers and logs.
    pub name: String,
    /// URL of the API server: `https://10.0.0.1:6443`.
    pub api_url: String,
    /// The bearer token itself; `token_file` keeps it out of this file.
    #[serde(default)]
    pub token: Option<ClusterToken>,
    /// File with the bearer token; read again before each round, since bound tokens live an hour.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// File with the certificates of the CA, PEM. Without a CA those of the system count.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// The certificates themselves, PEM, or base64 of it as in a kubeconfig.
    #[serde(default)]
    pub ca_data: Option<String>,
    /// Name in the server's certificate, if it is not the host of the URL.
    #[serde(default)]
    pub tls_server_name: Option<String>,
    /// Whether any certificate is accepted. Then anybody on the way can read the token.
    #[serde(default)]
    pub skip_tls_verify: bool,
    /// Whether it has GPUs. A cluster without is known by name and never asked.
    #[serde(default = "yes")]
    pub has_gpu: bool,
    /// Namespace of the driver's pods. None: that of NVIDIA's chart, or else that of OpenShift's operator.
    #[serde(default)]
    pub driver_namespace: Option<String>,
    /// Label selectors of the driver's pods; the first that finds any counts.
    #[serde(default = "driver_selectors")]
    pub driver_selectors: Vec<String>,
    /// Namespaces whose pods are listed for their labels; none: of no pod labels are read.
    #[serde(default)]
    pub pod_namespaces: Vec<String>,
    /// The labels of these pods that are kept.
    #[serde(default)]
    pub pod_labels: Vec<String>,
    /// Container with nvidia-smi.
    #[serde(default = "driver_container")]
    pub driver_container: String,
    /// The tool and what comes before its arguments: `["timeout", "-k", "1", "8", "nvidia-smi"]`.
    #[serde(default = "command")]
    pub command: Vec<String>,
    /// Time between two readings of a node.
    #[serde(default = "half_minute", deserialize_with = "duration")]
    pub poll_interval: Duration,
    /// Time between two lists of nodes and pods.
    #[serde(default = "minute", deserialize_with = "duration")]
    pub discovery_interval: Duration,
    /// Longest time of one exec, and of one list.
    #[serde(default = "ten_seconds", deserialize_with = "duration")]
    pub exec_deadline: Duration,
    /// Nodes that are read at once; none: as many as [`Cluster::parallel`] says.
    #[serde(default)]
    pub parallel: Option<usize>,
    /// Most output of one exec, bytes.
    #[serde(default = "mebibyte", deserialize_with = "size")]
    pub output_max: usize,
}

/// A cluster whose settings are possible.
#[derive(Debug, Clone)]
pub struct Cluster {
    pub(crate) settings: ClusterSettings,
    pub(crate) url: Uri,
    node_labels: Arc<[String]>,
    /// Whether it has GPUs.
    pub has_gpu: bool,
    /// Nodes that are read at once: as set, else 64, or what is left of 256 for each cluster that sets nothing.
    pub parallel: usize,
}

impl Cluster {
    pub(crate) fn check(
        settings: ClusterSettings,
        share: usize,
        node_labels: Arc<[String]>,
    ) -> Result<Self, ConfigError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let is_name = !settings.name.is_empty()
            && settings.name.chars().all(is_plain)
            && Identity::default().with(IdentityColumn::Cluster, &settings.name).is_ok();
        if !is_name {
            return Err(ConfigError::Name(settings.name));
        }
        let cluster = settings.name.clone();
        let Some(url) = url_of(&settings.api_url) else {
            let url = settings.api_url.rsplit('@').next().unwrap_or_default().to_owned();
            return Err(ConfigError::Url { cluster, url });
        };
        let has_token = settings.token.is_some() || settings.token_file.is_some();
        if has_token && url.scheme_str() == Some("http") && !is_loopback(url.host().unwrap_or_default()) {
            return Err(ConfigError::ClearToken(cluster));
        }
        let pairs = [
            ("token", settings.token.is_some(), "token_file", settings.token_file.is_some()),
            ("ca_file", settings.ca_file.is_some(), "ca_data", settings.ca_data.is_some()),
            ("skip_tls_verify", settings.skip_tls_verify, "ca_file", settings.ca_file.is_some()),
            ("skip_tls_verify", settings.skip_tls_verify, "ca_data", settings.ca_data.is_some()),
        ];
        if let Some((one, _, other, _)) = pairs.into_iter().find(|(_, one, _, other)| *one && *other) {
            return Err(ConfigError::Both { cluster, one, other });
        }
        let parallel = settings.parallel.unwrap_or(share);
        let ranges = [
            (settings.poll_interval >= POLL_INTERVAL_MIN, "poll_interval", "100ms at least"),
            (settings.discovery_interval >= POLL_INTERVAL_MIN, "discovery_interval", "100ms at least"),
            (settings.exec_deadline >= POLL_INTERVAL_MIN, "exec_deadline", "100ms at least"),
            ((1..=PARALLEL_MAX).contains(&parallel), "parallel", "1 to 256"),
            ((1 << 10..=16 << 20).contains(&settings.output_max), "output_max", "1KiB to 16MiB"),
            (!settings.driver_selectors.is_empty(), "driver_selectors", "one selector at least"),
            (
                settings.pod_labels.is_empty() == settings.pod_namespaces.is_empty(),
                "pod_labels",
                "set where pod_namespaces is, and there alone",
            ),
            (settings.pod_labels.len() <= POD_LABELS_MAX, "pod_labels", "16 at most"),
            (settings.command.iter().all(|word| !word.is_empty()), "command", "words"),
            (!settings.command.is_empty(), "command", "one word at least"),
        ];
        if let Some((_, setting, range)) = ranges.into_iter().find(|(is_fine, ..)| !is_fine) {
            return Err(ConfigError::Range { cluster, setting, range });
        }
        Ok(Self { url, node_labels, has_gpu: settings.has_gpu, parallel, settings })
    }

    /// Its name in rows, answers and logs.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Whether a label of a node is kept.
    pub(crate) fn keeps_label(&self, name: &str) -> bool {
        self.node_labels.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(begin) => name.starts_with(begin),
            None => name == pattern,
        })
    }
}

/// An http or https URL with a host, without user and query.
fn url_of(text: &str) -> Option<Uri> {
    let url: Uri = text.trim_end_matches('/').parse().ok()?;
    let is_web = matches!(url.scheme_str(), Some("http" | "https"));
    let has_user = url.authority()?.as_str().contains('@');
    (is_web && !has_user && url.host().is_some_and(|host| !host.is_empty()) && url.query().is_none())
        .then_some(url)
}

fn yes() -> bool {
    true
}

impl ClusterSettings {
    /// The namespaces in which the driver's pods are looked for; the first that has some counts.
    pub(crate) fn driver_namespaces(&self) -> Vec<&str> {
        self.driver_namespace.as_deref().map_or_else(|| DRIVER_NAMESPACES.to_vec(), |one| vec![one])
    }
}

fn driver_selectors() -> Vec<String> {
    DRIVER_SELECTORS.map(str::to_owned).to_vec()
}

fn driver_container() -> String {
    "nvidia-driver-ctr".to_owned()
}

fn command() -> Vec<String> {
    vec!["nvidia-smi".to_owned()]
}

fn half_minute() -> Duration {
    Duration::from_secs(30)
}

fn minute() -> Duration {
    Duration::from_mins(1)
}

fn ten_seconds() -> Duration {
    Duration::from_secs(10)
}

fn mebibyte() -> usize {
    1 << 20
}

/// A duration or size as people write it, or a bare number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Quantity {
    Number(u64),
    Text(String),
}

impl Quantity {
    fn text(self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    quantity::duration(&Quantity::deserialize(deserializer)?.text()).map_err(serde::de::Error::custom)
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let bytes =
        quantity::bytes(&Quantity::deserialize(deserializer)?.text()).map_err(serde::de::Error::custom)?;
    usize::try_from(bytes).map_err(serde::de::Error::custom)
}
