//! Section `agent` of the configuration, the flags over it, and the environment variables that exporters share.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use gpuvitals_core::catalogue::Series;
use gpuvitals_exposition::{Compat, ExpositionConfig};
use serde::Deserialize;

use super::spool::LIMIT_MIN;
use crate::config::{Override, Variable, overrides, word};
use crate::failure::{Exit, Failure};
use crate::quantity::{deserialize_bytes, deserialize_duration, deserialize_word};
use crate::sampling::MachineFlags;
use crate::telemetry::TelemetryFlags;

/// Paths that cannot be that of the metrics, since something else is there.
const OWN_PATHS: [&str; 3] = ["/", "/healthz", "/readyz"];
/// Shortest and longest window.
const INTERVAL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_hours(1));
/// Shortest and longest publishing interval.
const PUBLISH_INTERVAL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_mins(5));

/// Section `agent`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Agent {
    /// Address to listen on.
    pub listen: IpAddr,
    /// Port; 0 takes a free one and prints it.
    pub port: u16,
    /// Path of the metrics.
    pub metrics_path: String,
    /// Length of a window.
    #[serde(deserialize_with = "deserialize_duration")]
    pub interval: Duration,
    /// Which series.
    metrics: SetName,
    /// Which DCGM series beside ours.
    #[serde(deserialize_with = "deserialize_word")]
    compat: CompatName,
    /// Certificate chain, PEM; empty: no TLS.
    tls_cert: PathBuf,
    /// Its private key, PEM.
    tls_key: PathBuf,
    /// Whose certificates a client must show, PEM; empty: none.
    tls_client_ca: PathBuf,
    /// File of `user:password` lines; empty: no login.
    basic_auth_file: PathBuf,
    /// Whether to refuse to start where no GPU is found.
    pub require_gpus: bool,
    /// Longest time of a row on its way to the queue, where one is named.
    #[serde(deserialize_with = "deserialize_duration")]
    pub publish_interval: Duration,
    /// Where rows are kept while the queue is away; empty: in memory.
    spool_dir: PathBuf,
    /// Bytes that are kept there at most.
    #[serde(deserialize_with = "deserialize_bytes")]
    pub spool_max: u64,
}

/// Which series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SetName {
    /// The vital signs alone
    Basic,
    /// At most 100 series a GPU
    Standard,
    /// Everything that is read
    All,
}

/// Which series of other exporters are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CompatName {
    /// None
    Off,
    /// Those of dcgm-exporter
    Dcgm,
    /// Those of dcgm-exporter before its names were changed
    DcgmLegacy,
    /// Both
    Both,
}

/// The files that TLS takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TlsFiles<'a> {
    /// Certificate chain.
    pub cert: &'a Path,
    /// Private key.
    pub key: &'a Path,
    /// Whose certificates a client must show.
    pub client_ca: Option<&'a Path>,
}

impl Agent {
    /// Refuses what cannot be.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let refuse = |text: String| Err(Failure::new(Exit::Config, format!("configuration: agent.{text}")));
        let path = self.metrics_path.as_str();
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"/-_.~".contains(&b);
        if !path.starts_with('/') || !path.bytes().all(is_plain) || OWN_PATHS.contains(&path) {
            return refuse(format!("metrics_path is {path:?}; a path such as /metrics is needed"));
        }
        let (shortest, longest) = INTERVAL;
        if !(shortest..=longest).contains(&self.interval) {
            return refuse(format!("interval is {:?}; 1s to 1h is possible", self.interval));
        }
        let (shortest, longest) = PUBLISH_INTERVAL;
        if !(shortest..=longest).contains(&self.publish_interval) {
            return refuse(format!(
                "publish_interval is {:?}; 100ms to 5m is possible",
                self.publish_interval
            ));
        }
        if is_set(&self.spool_dir) && self.spool_max < LIMIT_MIN {
            return refuse(format!("spool_max is {} bytes; 8MiB is the least on disk", self.spool_max));
        }
        if is_set(&self.tls_cert) != is_set(&self.tls_key) {
            return refuse("tls_cert and tls_key belong together: one of them is missing".to_owned());
        }
        if is_set(&self.tls_client_ca) && !is_set(&self.tls_cert) {
            return refuse(
                "tls_client_ca needs tls_cert and tls_key: without TLS nobody shows a certificate".to_owned(),
            );
        }
        Ok(())
    }

    /// What the exposition is made of.
    pub(crate) fn exposition(&self) -> ExpositionConfig {
        ExpositionConfig {
            set: match self.metrics {
                SetName::Basic => Series::Basic,
                SetName::Standard => Series::Standard,
                SetName::All => Series::All,
            },
            compat: match self.compat {
                CompatName::Off => Compat::Off,
                CompatName::Dcgm => Compat::Dcgm,
                CompatName::DcgmLegacy => Compat::DcgmLegacy,
                CompatName::Both => Compat::Both,
            },
            window: self.interval,
        }
    }

    /// Whether both expose the same.
    pub(crate) fn exposes_as(&self, other: &Self) -> bool {
        (self.interval, self.metrics, self.compat) == (other.interval, other.metrics, other.compat)
    }

    /// Where rows are kept while the queue is away; none: in memory.
    pub(crate) fn spool_dir(&self) -> Option<&Path> {
        Some(self.spool_dir.as_path()).filter(|path| is_set(path))
    }

    /// Whether both publish in the same way.
    pub(crate) fn publishes_as(&self, other: &Self) -> bool {
        (self.publish_interval, &self.spool_dir, self.spool_max)
            == (other.publish_interval, &other.spool_dir, other.spool_max)
    }

    /// The files of TLS, where it is on.
    pub(crate) fn tls(&self) -> Option<TlsFiles<'_>> {
        is_set(&self.tls_cert).then(|| TlsFiles {
            cert: &self.tls_cert,
            key: &self.tls_key,
            client_ca: Some(self.tls_client_ca.as_path()).filter(|path| is_set(path)),
        })
    }

    /// The file of users and passwords, where there is one.
    pub(crate) fn basic_auth(&self) -> Option<&Path> {
        Some(self.basic_auth_file.as_path()).filter(|path| is_set(path))
    }
}

fn is_set(path: &Path) -> bool {
    !path.as_os_str().is_empty()
}

/// `gpuvitals agent`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gpuvitals agent                                           http://127.0.0.1:9400/metrics
  gpuvitals agent --listen 0.0.0.0 --rate 10                for others to scrape, 10 samples a second
  gpuvitals agent --compat dcgm                             with the series of dcgm-exporter
  gpuvitals agent --mq-url grpc://queue:9090 --spool-dir /var/lib/gpuvitals/spool

Docs: docs/agent.md; docs/exporter-metrics.md, what each series means.")]
pub(crate) struct AgentFlags {
    #[command(flatten)]
    machine: MachineFlags,
    /// Samples of a GPU a second, up to 1000 [default: 1]
    #[arg(long, value_name = "HZ")]
    rate: Option<f64>,
    /// Samples of the host a second [default: 1]
    #[arg(long, value_name = "HZ")]
    system_rate: Option<f64>,
    /// Address to listen on [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<IpAddr>,
    /// Port; 0 takes a free one [env: EXPORTER_PORT] [default: 9400]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Path of the metrics [env: METRICS_PATH] [default: /metrics]
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Length of the windows that minimum, maximum and mean are over [env: COLLECTION_INTERVAL] [default: 30s]
    #[arg(long, value_name = "DURATION")]
    interval: Option<String>,
    /// Which series [default: standard]
    #[arg(long, value_enum, value_name = "SET")]
    metrics: Option<SetName>,
    /// Which series of dcgm-exporter to add, for NVIDIA and AMD alike [default: off]
    #[arg(long, value_enum, value_name = "NAMES")]
    compat: Option<CompatName>,
    /// Serve TLS with this certificate chain (PEM)
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Only serve clients with a certificate of one of these authorities (PEM)
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
    /// Only serve who logs in with one of the user:password lines of this file
    #[arg(long, value_name = "FILE")]
    basic_auth_file: Option<PathBuf>,
    /// End with code 69 where no GPU is found, instead of serving the host alone [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    require_gpus: Option<bool>,
    /// Publish the rows of the GPUs to this queue too: grpc://, http:// or nats://HOST:PORT, or HOST:PORT [default: none]
    #[arg(long, visible_alias = "queue", value_name = "URL")]
    mq_url: Option<String>,
    /// Topic to publish to [default: gpu-telemetry]
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,
    /// Directory for the rows that come while the queue is away [default: they are kept in memory]
    #[arg(long, value_name = "DIR")]
    spool_dir: Option<PathBuf>,
    #[command(flatten)]
    telemetry: TelemetryFlags,
}

impl AgentFlags {
    /// The settings these flags change.
    pub(crate) fn overrides(&self) -> Vec<Override> {
        let mut set = self.machine.overrides();
        set.extend(self.telemetry.overrides());
        set.extend(overrides([
            ("sampling.rate", &self.rate),
            ("sampling.system_rate", &self.system_rate),
            ("agent.listen", &self.listen),
            ("agent.port", &self.port),
            ("agent.metrics_path", &self.path),
            ("agent.interval", &self.interval),
            ("agent.metrics", &word(self.metrics)),
            ("agent.compat", &word(self.compat)),
            ("agent.tls_cert", &self.tls_cert),
            ("agent.tls_key", &self.tls_key),
            ("agent.tls_client_ca", &self.tls_client_ca),
            ("agent.basic_auth_file", &self.basic_auth_file),
            ("message_queue.address", &self.mq_url),
            ("message_queue.topic", &self.topic),
            ("agent.spool_dir", &self.spool_dir),
            ("agent.require_gpus", &self.require_gpus),
        ]));
        set
    }
}

/// Environment variables that exporters share, and ours of the same meaning.
const SHARED_VARIABLES: [(&str, &str); 4] = [
    ("EXPORTER_PORT", "GPUVITALS_AGENT_PORT"),
    ("METRICS_PATH", "GPUVITALS_AGENT_METRICS_PATH"),
    ("COLLECTION_INTERVAL", "GPUVITALS_AGENT_INTERVAL"),
    ("LOG_LEVEL", "GPUVITALS_LOG_LEVEL"),
];

/// The environment with the shared variables under our names; where both are set, ours holds. An empty one is not set.
pub(crate) fn environment(variables: impl Iterator<Item = Variable>) -> impl Iterator<Item = Variable> {
    let ours =
        |name: &str| SHARED_VARIABLES.iter().find(|(shared, _)| *shared == name).map(|(_, ours)| *ours);
    let (mut shared, own): (Vec<_>, Vec<_>) = variables.partition(|it| ours(&it.name).is_some());
    shared.retain(|it| !it.value.is_empty());
    for variable in &mut shared {
        if let Some(ours) = ours(&variable.name) {
            ours.clone_into(&mut variable.name);
        }
    }
    shared.into_iter().chain(own)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::config::Layers;

    fn agent(variables: &[(&str, &str)], flags: Vec<Override>) -> Result<Agent, String> {
        let variables = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()).into());
        let layers = Layers::load(None, environment(variables), flags);
        layers.and_then(|layers| layers.check()).map(|config| config.agent).map_err(|e| e.to_string())
    }

    #[test]
    fn shared_variables_set_the_agent_and_ours_and_flags_win() {
        let shared = [
            ("EXPORTER_PORT", "1234"),
            ("COLLECTION_INTERVAL", "15"),
            ("METRICS_PATH", "/m"),
            ("LOG_LEVEL", ""),
        ];
        let set = agent(&shared, vec![]).unwrap();
        assert_eq!((set.port, set.interval, &*set.metrics_path), (1234, Duration::from_secs(15), "/m"));
        assert_eq!(
            agent(&[("COLLECTION_INTERVAL", "30s")], vec![]).unwrap().interval,
            Duration::from_secs(30)
        );
        let both = [("GPUVITALS_AGENT_PORT", "2"), ("EXPORTER_PORT", "1")];
        assert_eq!(agent(&both, vec![]).unwrap().port, 2);
        assert_eq!(agent(&both, vec![("agent.port", Value::from(3))]).unwrap().port, 3);
        let linked = [("GPUVITALS_AGENT_PORT", "2"), ("EXPORTER_PORT", "tcp://10.0.0.1:80")];
        assert_eq!(agent(&linked, vec![]).unwrap().port, 2, "a service is called exporter");
        assert_eq!(agent(&linked[1..], vec![]).unwrap().port, 9400);
        assert!(agent(&[("EXPORTER_PORT", "many")], vec![]).unwrap_err().contains("variable EXPORTER_PORT"));
    }

    #[test]
    fn settings_that_cannot_be_are_refused() {
        let check = |path, value: &str, words: &str| {
            let error = agent(&[], vec![(path, Value::from(value))]).unwrap_err();
            assert!(error.contains(words), "{path}: {error}");
        };
        check("agent.metrics_path", "metrics", "metrics_path");
        check("agent.metrics_path", "/healthz", "metrics_path");
        check("agent.metrics_path", "/a b", "metrics_path");
        check("agent.interval", "10ms", "1s to 1h");
        check("agent.tls_cert", "a.pem", "belong together");
        check("agent.tls_client_ca", "a.pem", "tls_client_ca needs");
        check("agent.metrics", "some", "metrics");
        check("agent.publish_interval", "10ms", "100ms to 5m");
        let small =
            vec![("agent.spool_dir", Value::from("/spool")), ("agent.spool_max", Value::from("1MiB"))];
        assert!(agent(&[], small).unwrap_err().contains("8MiB"));
    }
}
