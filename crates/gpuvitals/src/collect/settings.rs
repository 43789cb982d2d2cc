//! Section `collector` of the configuration, and the flags over it.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::BoolishValueParser;
use gpuvitals_queue::ConsumerOptions;
use gpuvitals_queue::link::check_group;
use gpuvitals_store::StoreConfig;
use serde::Deserialize;
use serde_json::Value;

use crate::config::{self, Override, overrides};
use crate::failure::{Exit, Failure};
use crate::quantity::deserialize_bytes;
use crate::telemetry::TelemetryFlags;

/// Section `collector`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Collector {
    /// Rows taken at a time.
    batch_size: NonZeroU32,
    /// Rows in flight per worker.
    max_in_flight: NonZeroU32,
    /// After how many seconds an unacknowledged frame is delivered again.
    ack_timeout_seconds: u64,
    /// Workers.
    pub worker_count: usize,
    /// Who shares the work: every group gets all rows.
    pub group: String,
    /// Newest rows of a GPU that stay in memory when they are in files.
    max_entries: usize,
    /// Bytes of these rows, of all GPUs.
    #[serde(deserialize_with = "deserialize_bytes")]
    cache_bytes: u64,
    /// Whether latest values are written beside the files, so that a start need not read them all.
    checkpoint: bool,
    /// Port of the collector's own API; 0 takes a free one and prints it.
    pub api_port: u16,
}

impl Collector {
    /// Refuses what cannot be.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let refuse = |text: &str| Err(Failure::new(Exit::Config, format!("configuration: collector.{text}")));
        let above_zero = [
            ("ack_timeout_seconds", self.ack_timeout_seconds > 0),
            ("worker_count", self.worker_count > 0),
            ("max_entries", self.max_entries > 0),
        ];
        if let Some((name, _)) = above_zero.into_iter().find(|(_, is)| !is) {
            return refuse(&format!("{name} is 0, it must be above 0"));
        }
        check_group(&self.group).or_else(|error| refuse(&format!("group: {error}")))?;
        Ok(())
    }

    /// How long a delivery may take.
    pub(crate) fn ack_timeout(&self) -> Duration {
        Duration::from_secs(self.ack_timeout_seconds)
    }

    /// How a worker wants to be served.
    pub(crate) fn options(&self) -> ConsumerOptions {
        ConsumerOptions {
            max_in_flight: self.max_in_flight,
            max_batch: Some(self.batch_size),
            ack_timeout: Some(self.ack_timeout()),
            ..ConsumerOptions::default()
        }
    }

    /// How the store is opened for a collector that answers for the rows of a GPU.
    pub(crate) fn store(&self, settings: &config::Store) -> StoreConfig {
        StoreConfig {
            recent_rows: self.max_entries,
            recent_bytes: usize::try_from(self.cache_bytes).unwrap_or(usize::MAX),
            ..self.plain_store(settings)
        }
    }

    /// How the store is opened where nobody asks for the newest rows of a GPU alone.
    pub(crate) fn plain_store(&self, settings: &config::Store) -> StoreConfig {
        StoreConfig {
            flush_age: settings.flush_age,
            flush_rows: settings.flush_rows,
            flush_bytes: usize::try_from(settings.flush_bytes).unwrap_or(usize::MAX),
            checkpoint: self.checkpoint,
            ..StoreConfig::new(&settings.dir)
        }
    }
}

/// `gpuvitals collect`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gpuvitals collect                                         from the queue of this machine into ./data
  gpuvitals collect --mq-url grpc://queue:9090 --data-dir /var/lib/gpuvitals
  gpuvitals collect --group audit --data-dir audit          all rows once more, beside the others")]
pub(crate) struct CollectFlags {
    /// Workers, which share the rows [default: 4]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Where history is kept [default: data]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Newest rows of each GPU that stay in memory when they are in files; where there is not room for all, GPUs asked for
    /// longest ago leave first [default: 1000]
    #[arg(long, value_name = "ROWS")]
    max_entries: Option<usize>,
    /// Write the latest values beside the files; with false a start reads all files for them. It continues where it was
    /// either way [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    checkpoint: Option<bool>,
    /// Port of the collector's API (health, stats, metrics, rows); 0 takes a free one [default: 8080]
    #[arg(long, value_name = "PORT")]
    api_port: Option<u16>,
    /// Port of a queue on this machine [default: 9090]
    #[arg(long, value_name = "PORT", conflicts_with = "mq_url")]
    broker_port: Option<u16>,
    /// Queue to collect from: http://, grpc:// or nats://HOST:PORT, or HOST:PORT [default: http://127.0.0.1:9090]
    #[arg(long, value_name = "URL")]
    mq_url: Option<String>,
    /// Topic to collect [default: gpu-telemetry]
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,
    /// Collectors of one group share the rows, every group gets all of them [default: store]
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    #[command(flatten)]
    telemetry: TelemetryFlags,
}

impl CollectFlags {
    /// The settings these flags change.
    pub(crate) fn overrides(&self) -> Vec<Override> {
        // The queue of this machine, whatever the file says.
        let here = self.broker_port.map(|_| "inproc:");
        let mut set = self.telemetry.overrides();
        set.extend(overrides([
            ("collector.worker_count", &self.workers),
            ("store.dir", &self.data_dir),
            ("collector.max_entries", &self.max_entries),
            ("collector.checkpoint", &self.checkpoint),
            ("collector.api_port", &self.api_port),
            ("message_queue.address", &self.mq_url.as_deref().or(here).map(Value::from)),
            ("broker.port", &self.broker_port),
            ("message_queue.topic", &self.topic),
            ("collector.group", &self.group),
        ]));
        set
    }
}
