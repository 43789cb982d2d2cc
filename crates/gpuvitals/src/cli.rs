//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint};

use crate::config::{Override, SourceKind, Times, overrides, word};
use crate::sampling::MachineFlags;
use crate::telemetry::TelemetryFlags;

/// What are my GPUs doing?
///
/// Reads AMD and NVIDIA GPUs and the host at up to 1,000 Hz, shows, records and exposes what it reads, keeps history, and
/// answers questions about it.
#[derive(Debug, Parser)]
#[command(
    name = "gpuvitals",
    version,
    max_term_width = 100,
    after_help = "Start here:\n  \
        gpuvitals doctor                       what was found, what is missing, and what gives it\n  \
        gpuvitals top                          the GPUs of this machine, live\n  \
        gpuvitals record -- COMMAND            a recording at 100 Hz while a command runs\n  \
        gpuvitals agent                        metrics for Prometheus on port 9400\n  \
        gpuvitals up                           history, API and dashboard; --source simulated needs no GPU\n\n\
        A duration is 500ms, 30s, 5m, 1h or 7d, a size 64KiB, 256MiB or 2GiB; without a unit it is seconds, or bytes.\n\
        BOOL is true or false, also after =; a flag without it means true. The same holds in file and environment.\n\n\
        Exit codes: 0 done, 64 usage, 65 bad data, 69 unavailable, 70 bug, 74 I/O, 77 permission, 78 configuration."
)]
pub(crate) struct Cli {
    /// Configuration file (YAML); see `gpuvitals config default`
    #[arg(long, global = true, env = "GPUVITALS_CONFIG", value_name = "FILE", help_heading = "Everywhere")]
    pub config: Option<PathBuf>,
    /// Log level: error, warn, info, debug or trace, or by module (info,gpuvitals_sources=debug) [default: info]
    #[arg(long, global = true, value_name = "LEVEL", help_heading = "Everywhere")]
    pub log_level: Option<String>,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The arguments of this process.
///
/// # Errors
/// When they are none, or ask for help or version.
pub(crate) fn parse() -> Result<Cli, clap::Error> {
    let matches = dressed(Cli::command()).try_get_matches()?;
    Cli::from_arg_matches(&matches)
}

/// The command line for completions: of a value that is no file none is completed as one.
pub(crate) fn to_complete() -> clap::Command {
    let levels = ["error", "warn", "info", "debug", "trace", "off"];
    offering(Cli::command()).mut_arg("log_level", |level| level.value_parser(levels))
}

/// Adds to the help of each duration how one without a unit is read.
fn dressed(command: clap::Command) -> clap::Command {
    let add = |arg: Arg| match arg.get_help().map(ToString::to_string) {
        Some(help) if names_value(&arg, &["DURATION"]) => {
            let (words, default) = help.split_once(" [").unwrap_or((&help, ""));
            let default = if default.is_empty() { String::new() } else { format!(" [{default}") };
            arg.help(format!("{words} (without a unit: seconds){default}"))
        }
        _ => arg,
    };
    command.mut_args(add).mut_subcommands(dressed)
}

fn offering(command: clap::Command) -> clap::Command {
    let hint = |arg: Arg| {
        let is_plain = arg.get_action().takes_values() && arg.get_value_hint() == ValueHint::Unknown;
        let hint = if names_value(&arg, &["FILE"]) { ValueHint::FilePath } else { ValueHint::Other };
        if is_plain { arg.value_hint(hint) } else { arg }
    };
    command.mut_args(hint).mut_subcommands(offering)
}

fn names_value(arg: &Arg, names: &[&str]) -> bool {
    arg.get_value_names().unwrap_or_default().iter().any(|name| names.contains(&name.as_str()))
}

/// Commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run everything in one process: source, queue, store, API and dashboard
    Up(Up),
    /// Replay a CSV file into a queue
    Stream(crate::stream::StreamFlags),
    /// Store what a queue delivers; several of them share the work
    Collect(crate::collect::CollectFlags),
    /// Print rows of the GPUs (and host) of this machine as they are sampled
    Sample(crate::sample::Sample),
    /// Show the GPUs of this machine live: bars, histories, processes
    Top(crate::top::Top),
    /// Record GPUs and host at full rate into Parquet files, for some time or while a command runs
    Record(crate::record::Record),
    /// Complete a recording whose process was killed
    Repair(crate::record::Repair),
    /// Set a mark in the recording that this program is part of
    Mark(crate::record::Mark),
    /// Say what was found, what is missing and what gives it; exits with 0 if sampling will work
    Doctor(crate::doctor::Doctor),
    /// Run on a node: sample its GPUs and the host, and serve the metrics to Prometheus
    Agent(crate::agent::AgentFlags),
    /// Run the queue as a service of its own: publish and subscribe by gRPC and HTTP, in memory or on disk
    Broker(crate::broker::BrokerFlags),
    /// Look into a queue: statistics, topics, messages as they come, dead letters
    Queue(crate::queue::QueueCommand),
    /// Repair the history that `up` and `collect` keep
    Store(crate::store::StoreCommand),
    /// Make, list and revoke the tokens that services ask for
    Token(crate::token::TokenCommand),
    /// Show, lock and give back the clocks of GPUs
    Clocks(crate::clocks::Clocks),
    /// Ask a running gpuvitals about GPUs and their history
    Query(Query),
    /// Print the catalogue of metrics: columns, units, Prometheus and DCGM names
    Metrics {
        /// How it is printed
        #[arg(long, value_enum, default_value_t = CatalogueFormat::Table)]
        format: CatalogueFormat,
        /// Short for --format json
        #[arg(long)]
        json: bool,
        /// Only metrics whose column, group or help has this text
        filter: Option<String>,
    },
    /// Write a recording of a simulated fleet as CSV (every row is labelled simulated)
    Simulate(Simulate),
    /// Check or show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a completion script for your shell
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
}

/// `gpuvitals config …`
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check file and environment; say what is wrong
    Check,
    /// Print the settings that are in force
    Show,
    /// Print the commented defaults, to start a file from
    Default,
}

/// How `metrics` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CatalogueFormat {
    /// Aligned text
    Table,
    /// All facts
    Json,
    /// As in docs/metrics.md
    Markdown,
}

/// `gpuvitals up`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gpuvitals up                                      the GPUs of this machine
  gpuvitals up --source simulated                   a fleet that needs no GPU
  gpuvitals up --csv rows.csv --times now --loop    a recording, as if live

Dashboard and API are then at http://127.0.0.1:8081, the queue at http://127.0.0.1:9090.")]
pub(crate) struct Up {
    /// Replay this CSV file (long DCGM form or wide; .gz understood; - is standard input)
    #[arg(long, value_name = "FILE", conflicts_with = "source")]
    pub csv: Option<String>,
    /// Where rows come from [default: auto, the GPUs of this machine if it has any]
    #[arg(long, value_enum)]
    pub source: Option<SourceKind>,
    /// Times of replayed rows: as recorded, or shifted so that the first is now [default: recorded]
    #[arg(long, value_enum)]
    pub times: Option<Times>,
    /// With --times now: how many times faster than recorded
    #[arg(long, value_name = "FACTOR")]
    pub speed: Option<f64>,
    /// Replay recorded times at this many rows a second [default: as fast as they are stored]
    #[arg(long, value_name = "ROWS/S")]
    pub rate: Option<f64>,
    /// Begin again at the end of the file [default: false]
    #[arg(long = "loop", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pub looped: Option<bool>,
    /// Size of the simulated fleet [default: 64]
    #[arg(long, value_name = "N")]
    pub gpus: Option<u32>,
    /// Hosts of the simulated fleet [default: 8]
    #[arg(long, value_name = "N")]
    pub hosts: Option<u32>,
    /// Seed of the simulated fleet: same seed, same data [default: 1]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Time between two samples of a simulated GPU: 1s, 100ms [default: 1s]
    #[arg(long, value_name = "DURATION")]
    pub interval: Option<String>,
    /// Where history is kept [default: data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Address to listen on [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<IpAddr>,
    /// Port of API and dashboard; 0 takes a free one [default: 8081]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    #[command(flatten)]
    machine: MachineFlags,
    #[command(flatten)]
    telemetry: TelemetryFlags,
}

impl Up {
    /// The settings these flags change.
    pub(crate) fn overrides(&self) -> Vec<Override> {
        let mut set: Vec<Override> = self.machine.overrides();
        set.extend(self.telemetry.overrides());
        if let Some(file) = &self.csv {
            set.push(("source.kind", "csv".into()));
            set.push(("source.csv", file.as_str().into()));
        }
        set.extend(overrides([
            ("source.kind", &word(self.source)),
            ("source.times", &word(self.times)),
            ("source.speed", &self.speed),
            ("source.rate", &self.rate),
            ("source.loop", &self.looped),
            ("source.gpus", &self.gpus),
            ("source.hosts", &self.hosts),
            ("source.seed", &self.seed),
            ("source.interval", &self.interval),
            ("store.dir", &self.data_dir),
            ("api.listen", &self.listen),
            ("api.port", &self.port),
        ]));
        set
    }
}

/// `gpuvitals query`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gpuvitals query gpus --state unhealthy
  gpuvitals query gpus --sort=-power_w --limit 10
  gpuvitals query gpu host-7:gpu3
  gpuvitals query range power_w,utilization_pct --last 6h --step 5m --group-by node
  gpuvitals query health --url http://10.0.0.5:8081")]
pub(crate) struct Query {
    /// Server to ask
    #[arg(
        long,
        env = "GPUVITALS_URL",
        default_value = "http://127.0.0.1:8081",
        value_name = "URL",
        global = true
    )]
    pub url: String,
    /// Print JSON as the server gave it
    #[arg(long, global = true)]
    pub json: bool,
    /// What to ask
    #[command(subcommand)]
    pub what: QueryWhat,
}

/// What `query` can ask.
#[derive(Debug, Subcommand)]
pub(crate) enum QueryWhat {
    /// All GPUs with their state and latest values
    Gpus {
        /// Only GPUs whose id, name, model or host has this text
        search: Option<String>,
        /// Only GPUs of this state
        #[arg(long, value_name = "STATE", value_parser = ["active", "idle", "stale", "unhealthy", "unknown"])]
        state: Option<String>,
        /// Order by a field (hostname, state, last_seen, model …) or a metric, the largest first with - before it: -power_w
        /// [default: by host and index]
        #[arg(long, value_name = "FIELD", allow_hyphen_values = true)]
        sort: Option<String>,
        /// At most this many
        #[arg(long, value_name = "N", default_value_t = 1000)]
        limit: usize,
    },
    /// All hosts
    Hosts,
    /// One GPU: identity and the latest value of every metric
    Gpu {
        /// UUID, PCI address, or host:gpuN
        id: String,
    },
    /// History of one or more metrics
    Range {
        /// Metrics by column name, e.g. power_w,utilization_pct
        #[arg(required = true, value_delimiter = ',')]
        metrics: Vec<String>,
        /// This GPU only: UUID, PCI address, or host:gpuN; may be given several times [default: all]
        #[arg(long, value_name = "GPU", value_delimiter = ',')]
        gpu: Vec<String>,
        /// How far back from the end: 15m, 1h, 7d
        #[arg(long, value_name = "DURATION", default_value = "1h")]
        last: String,
        /// End (RFC 3339) [default: now]
        #[arg(long, value_name = "TIME")]
        end: Option<String>,
        /// Length of a step: 10s, 1m
        #[arg(long, value_name = "DURATION", default_value = "1m")]
        step: String,
        /// Aggregate of each step
        #[arg(long, value_name = "WHAT", default_value = "mean", value_parser = ["mean", "min", "max", "p99", "last", "count"])]
        aggregate: String,
        /// A series for each of these
        #[arg(long, value_name = "WHAT", default_value = "gpu", value_parser = ["gpu", "node", "model", "all"])]
        group_by: String,
        /// At most this many rows; --json has all
        #[arg(long, value_name = "N", default_value_t = 1000)]
        limit: usize,
    },
    /// Health of gateway, collector and queue; exits with 69 unless all are healthy
    Health,
}

/// `gpuvitals simulate`
#[derive(Debug, Args)]
pub(crate) struct Simulate {
    /// Size of the fleet
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub gpus: u32,
    /// Hosts of the fleet
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub hosts: u32,
    /// Seed: same seed, same data
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Length of the recording: 10m, 1h
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub duration: String,
    /// Time between two samples: 1s, 100ms
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    pub interval: String,
    /// Time of the first row (RFC 3339)
    #[arg(long, value_name = "TIME", default_value = "2026-01-01T00:00:00Z")]
    pub start: String,
    /// Form of the file
    #[arg(long, alias = "form", value_enum, default_value_t = CsvForm::Wide)]
    pub format: CsvForm,
}

/// Form of a CSV file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CsvForm {
    /// A row per GPU and instant
    Wide,
    /// A row per metric, as dcgm-exporter series come out of Prometheus
    Dcgm,
}
