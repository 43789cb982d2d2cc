//! Section `collector` of the configuration.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use clap::ValueEnum;
use gpuvitals_core::history::FleetBounds;
use gpuvitals_core::time::AHEAD_MAX_NS;
use gpuvitals_queue::ConsumerOptions;
use gpuvitals_queue::link::check_group;
use gpuvitals_settings::{Bytes, Refusal, Typed as _, settings, words};

/// Where rows can go. The binary opens them; a further one is a word here and a line there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SinkKind {
    /// The embedded store
    Store,
    /// PostgreSQL, which section database names
    Postgres,
    /// JSON lines, a file a GPU
    Jsonl,
}

words!(SinkKind);

settings! {
    /// From the queue to the store: `gpuvitals collect`, and the collector inside `up`
    pub struct CollectorSettings = "collector", check Self::check {
        /// Rows taken from the queue at a time; a frame with more comes alone
        batch_size: NonZeroU32 = 100;
        /// Rows delivered to a worker and not yet acknowledged
        max_in_flight: NonZeroU32 = 1000;
        /// Seconds after which a frame that was not acknowledged is delivered again
        ack_timeout_seconds: u64 = 30, from 1;
        /// Workers, which share the rows
        pub worker_count: usize = 4, from 1 to 1024, flag "--workers N";
        /// Collectors of one group share the rows, every group gets all of them
        pub group: String = "store", flag "--group NAME";
        /// Newest rows of each GPU that `collect` keeps in memory when they are in files; if there is not room for all, GPUs
        /// asked for longest ago leave first. Without the store `up` keeps them too, nothing older can be queried, and GPUs
        /// share the room equally
        pub max_entries: usize = 1000, from 1, flag "--max-entries ROWS";
        /// Room for these rows of all GPUs
        pub cache_bytes: Bytes = "64MiB";
        /// Most GPUs whose latest state is held; if more report, the longest silent leave first. Their rows stay
        pub gpus_max: usize = 131_072, from 1;
        /// Write the latest values beside the files; with false a start reads all files for them. It continues where it was
        /// either way
        pub checkpoint: bool = true, flag "--checkpoint BOOL";
        /// Where rows go: one name, or several with commas between them. Without store or postgres ranges of time
        /// cannot be queried. With database.host store means postgres, unless both are named
        pub sinks: Vec<SinkKind> = ["store"], flag "--sinks NAMES";
        /// Address of the API of `collect`. Any address but loopback needs listener.token_file
        pub listen: IpAddr = "127.0.0.1", flag "--listen ADDRESS";
        /// Port of the API of `collect` (health, statistics, metrics, rows of a GPU); 0 takes a free one and prints it
        pub api_port: u16 = 8080, flag "--api-port PORT";
    }
}

impl CollectorSettings {
    /// Refuses impossible settings.
    fn check(&self) -> Result<(), Refusal> {
        if self.sinks.is_empty() {
            let allowed = SinkKind::NOTATION.words().join(", ");
            return Err(Refusal::new("collector.sinks", format!("it names no sink; there are {allowed}")));
        }
        check_group(&self.group).map_err(|error| Refusal::new("collector.group", error.to_string()))
    }

    /// What the latest state holds, and which rows count for it.
    pub fn fleet_bounds(&self) -> FleetBounds {
        FleetBounds { gpus_max: self.gpus_max, ahead_max_ns: AHEAD_MAX_NS }
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
}
