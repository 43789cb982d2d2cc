//! Configuration: flags over environment over file over the defaults in `configs/config.yaml`, which is built in.
//!
//! The defaults are the list of what can be set: a key that is not in them is refused with the nearest one that
//! is, and the name of a key's environment variable is its path in capitals.

mod flags;
mod layers;
mod queue;

use std::path::PathBuf;
use std::time::Duration;

use gpuvitals_queue::link::{QueueUrl, Scheme};
use serde::Deserialize;
use tracing::level_filters::LevelFilter;

pub(crate) use flags::{overrides, word};
pub(crate) use layers::{Layers, Override, Variable};
pub(crate) use queue::{Broker, Durability, MessageQueue, WhenFull};

use crate::failure::{Exit, Failure};
use crate::quantity::{deserialize_bytes, deserialize_duration};

/// The commented defaults.
pub(crate) const DEFAULTS: &str = include_str!("../../../../configs/config.yaml");

/// All settings, checked.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Logs.
    pub log: Log,
    /// Where rows come from.
    pub source: Source,
    /// How GPUs and host are read.
    pub sampling: crate::sampling::Sampling,
    /// Who holds the GPUs.
    pub attribution: crate::ownership::Attribution,
    /// The metrics of a node.
    pub agent: crate::agent::Agent,
    /// How the queue is reached.
    pub message_queue: MessageQueue,
    /// The queue itself.
    pub broker: Broker,
    /// From queue to store.
    pub collector: crate::collect::Collector,
    /// From a file to the queue.
    pub stream: crate::stream::Stream,
    /// History.
    pub store: Store,
    /// REST and dashboard.
    pub api: Api,
    /// Traces and metrics to OpenTelemetry.
    pub otlp: crate::telemetry::Otlp,
    /// The end.
    pub shutdown: Shutdown,
}

/// Logs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Log {
    /// Level, or levels by module.
    pub level: String,
    /// Human or JSON.
    pub format: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// Human on a terminal, JSON otherwise.
    Auto,
    /// For people.
    Human,
    /// For machines.
    Json,
}

/// On, off, or where it makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Switch {
    /// Where there is reason to.
    Auto,
    /// Always.
    #[serde(alias = "true")]
    On,
    /// Never.
    #[serde(alias = "false")]
    Off,
}

/// Kind of source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SourceKind {
    /// The GPUs of this machine if it has any; else what is stored is served.
    Auto,
    /// The GPUs of this machine.
    Machine,
    /// No source: only what is stored is served.
    None,
    /// Replay of a CSV file.
    Csv,
    /// A simulated fleet; every row says so.
    Simulated,
}

/// Which times replayed rows carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Times {
    /// Those of the file.
    Recorded,
    /// Shifted, so that the first row is now.
    Now,
}

/// Where rows come from.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    /// Kind.
    pub kind: SourceKind,
    /// File to replay.
    pub csv: String,
    /// Times of replayed rows.
    pub times: Times,
    /// Speed-up of shifted replays.
    pub speed: f64,
    /// Rows a second; 0: unthrottled, or as recorded.
    pub rate: f64,
    /// Begin again at the end.
    #[serde(rename = "loop")]
    pub looped: bool,
    /// Simulated GPUs.
    pub gpus: u32,
    /// Simulated hosts.
    pub hosts: u32,
    /// Seed of the simulation.
    pub seed: u64,
    /// Simulated sampling interval.
    #[serde(deserialize_with = "deserialize_duration")]
    pub interval: Duration,
}

/// History.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Store {
    /// Directory.
    pub dir: PathBuf,
    /// Longest time of a row in memory before it lies in a file.
    #[serde(deserialize_with = "deserialize_duration")]
    pub flush_age: Duration,
    /// Most rows in memory.
    pub flush_rows: usize,
    /// Most bytes of rows in memory.
    #[serde(deserialize_with = "deserialize_bytes")]
    pub flush_bytes: u64,
}

/// REST and dashboard.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Api {
    /// Address to listen on.
    pub listen: std::net::IpAddr,
    /// Port; 0 takes a free one and prints it.
    pub port: u16,
    /// Origins allowed to call from elsewhere.
    pub cors: Vec<String>,
    /// Cached answers.
    pub cache_entries: usize,
    /// Age after which a GPU is stale.
    #[serde(deserialize_with = "deserialize_duration")]
    pub stale_after: Duration,
}

/// The end.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shutdown {
    /// Time to drain.
    #[serde(deserialize_with = "deserialize_duration")]
    pub grace: Duration,
}

/// Whether a replay is to run faster or slower than it was recorded.
pub(crate) fn is_other_speed(speed: f64) -> bool {
    (speed - 1.0).abs() > f64::EPSILON
}

impl Config {
    /// How a role that has no queue of its own reaches one: without an address, that of this machine.
    pub(crate) fn queue_elsewhere(&self) -> MessageQueue {
        let mut queue = self.message_queue.clone();
        if queue.address.scheme == Scheme::InProcess {
            let (scheme, host) = (Scheme::Http, "127.0.0.1".to_owned());
            let (tls, port) = (self.broker.listener().tls_cert.is_some(), self.broker.port);
            queue.address = QueueUrl { scheme, tls, host, port, ..queue.address };
        }
        queue
    }

    /// Refuses settings that contradict each other.
    fn consistent(&self) -> Result<(), Failure> {
        let refuse = |text: String| Err(Failure::new(Exit::Config, format!("configuration: {text}")));
        let source = &self.source;
        if source.kind == SourceKind::Csv && source.csv.is_empty() {
            return refuse("source.kind is csv but source.csv names no file".to_owned());
        }
        if source.kind == SourceKind::Csv && source.times == Times::Now && source.rate > 0.0 {
            return refuse(
                "source.rate is for recorded times; with times: now the speed is source.speed".to_owned(),
            );
        }
        if source.times == Times::Recorded && is_other_speed(source.speed) {
            return refuse(format!(
                "source.speed is {}, and it is for times: now (--times now); recorded times have source.rate",
                source.speed
            ));
        }
        if source.kind == SourceKind::Csv
            && source.looped
            && source.times == Times::Recorded
            && source.rate == 0.0
        {
            return refuse(
                "source.loop with recorded times and no rate would send the same rows without pause; \
                 add --times now to replay as if live, or --rate"
                    .to_owned(),
            );
        }
        let is_word = |part: &&str| !part.contains(['=', '[']) && part.parse::<LevelFilter>().is_err();
        if let Some(word) = self.log.level.split(',').map(str::trim).find(is_word) {
            return refuse(format!(
                "log.level: {word:?} is no level; there is error, warn, info, debug, trace and off, or MODULE=LEVEL"
            ));
        }
        crate::logging::filter(&self.log.level)?;
        self.sampling.check()?;
        self.agent.check()?;
        self.message_queue.check()?;
        self.broker.check()?;
        self.collector.check()?;
        self.stream.check()?;
        self.otlp.check()?;
        let some = |there: bool| f64::from(u8::from(there));
        let above_zero = [
            ("source.speed", source.speed),
            ("source.gpus", source.gpus.into()),
            ("source.hosts", source.hosts.into()),
            ("source.interval", source.interval.as_secs_f64()),
            ("store.flush_rows", some(self.store.flush_rows > 0)),
            ("store.flush_bytes", some(self.store.flush_bytes > 0)),
            ("store.flush_age", self.store.flush_age.as_secs_f64()),
            ("shutdown.grace", self.shutdown.grace.as_secs_f64()),
        ];
        if let Some((name, value)) =
            above_zero.into_iter().find(|(_, value)| !(value.is_finite() && *value > 0.0))
        {
            return refuse(format!("{name} is {value}, it must be above 0"));
        }
        if !(source.rate.is_finite() && source.rate >= 0.0) {
            return refuse(format!("source.rate is {}, it must be 0 or more", source.rate));
        }
        Ok(())
    }
}
