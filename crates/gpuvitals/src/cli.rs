//! The command line.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::parser::ValueSource;
use clap::{
    Arg, ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum,
    ValueHint,
};
use gpuvitals_core::Table;
use gpuvitals_settings::{Notation, Override, Setting};

use crate::config;

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
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// Flags that say which machine is read, and how.
const MACHINE: &[&str] =
    &["sampling.drivers", "sampling.sysfs", "sampling.procfs", "sampling.dev", "sampling.node"];

/// The settings that a command has flags for: one, or all of a section that have a flag.
const FLAGS: [(&str, &[&str]); 11] = [
    (
        "up",
        &["source", "files", "sampling.cluster", "store.dir", "collector.sinks", "api", "listener", "otlp"],
    ),
    ("record", &["sampling.cluster"]),
    (
        "agent",
        &[
            "agent",
            "listener",
            "sampling.cluster",
            "sampling.rate",
            "sampling.system_rate",
            "message_queue.address",
            "message_queue.topic",
            "otlp",
            "remote_write",
        ],
    ),
    ("broker", &["broker", "listener", "otlp"]),
    (
        "collect",
        &[
            "collector",
            "store.dir",
            "listener",
            "message_queue.address",
            "message_queue.topic",
            "otlp",
            "remote_write",
        ],
    ),
    ("serve", &["api", "gateway", "listener", "message_queue.address", "otlp"]),
    ("stream", &["stream", "files", "listener", "message_queue.address", "message_queue.topic", "otlp"]),
    (
        "queue",
        &[
            "message_queue.address",
            "message_queue.token_file",
            "message_queue.ca",
            "message_queue.client_cert",
            "message_queue.client_key",
        ],
    ),
    ("store", &["store.dir"]),
    ("inspect", &["files"]),
    ("token", &["listener.token_file"]),
];
/// Commands that read the machine.
const READERS: [&str; 7] = ["up", "agent", "sample", "top", "record", "doctor", "clocks"];

/// The arguments of this process, and the settings among them.
///
/// # Errors
/// When they are none, or ask for help or version.
pub(crate) fn parse() -> Result<(Cli, Vec<Override>), clap::Error> {
    let matches = command().try_get_matches()?;
    let mut given = Vec::new();
    let mut level = Some(&matches);
    while let Some(matches) = level {
        given.extend(config::settings().filter_map(|setting| given_in(matches, setting)));
        level = matches.subcommand().map(|(_, below)| below);
    }
    if given.iter().any(|it| it.setting == "source.replay") {
        given.push(Override { setting: "source.kind", value: "replay".into(), flag: "--replay" });
    }
    Ok((Cli::from_arg_matches(&matches)?, given))
}

fn given_in(matches: &ArgMatches, setting: &'static Setting) -> Option<Override> {
    let flag = setting.flag_name()?;
    let is_here = matches.try_contains_id(setting.path).unwrap_or_default();
    if !is_here || matches.value_source(setting.path) != Some(ValueSource::CommandLine) {
        return None;
    }
    let texts = matches.get_raw(setting.path)?.map(|text| text.to_string_lossy());
    if matches!(setting.notation, Notation::Texts) {
        let value = texts.map(std::borrow::Cow::into_owned).collect::<Vec<String>>().into();
        return Some(Override { setting: setting.path, value, flag });
    }
    // A list takes texts with commas between.
    let value = texts.collect::<Vec<_>>().join(",");
    Some(Override { setting: setting.path, value: value.into(), flag })
}

/// The command line with the flags of the settings.
pub(crate) fn command() -> clap::Command {
    let mut command = dressed(Cli::command());
    if let Some(level) = config::settings().find(|setting| setting.path == "log.level") {
        command = command.args(flag_of(level).map(|arg| arg.help_heading("Everywhere")));
    }
    // A build without the services has fewer commands.
    let with_flags = |command: clap::Command, name, flags: Vec<Arg>| match command.find_subcommand(name) {
        Some(_) => command.mut_subcommand(name, |it| it.args(flags)),
        None => command,
    };
    for (name, settings) in FLAGS {
        let is_of = |setting: &&Setting| {
            let section = setting.path.split('.').next().unwrap_or_default();
            settings.iter().any(|it| [section, setting.path].contains(it))
        };
        let flags = config::settings().filter(is_of).filter_map(flag_of).collect();
        command = with_flags(command, name, flags);
    }
    let of_files = || config::settings().filter(|it| it.path.starts_with("files.")).filter_map(flag_of);
    if let Some(store) = command.find_subcommand_mut("store") {
        *store = store.clone().mut_subcommand("import", |import| import.args(of_files()));
    }
    for name in READERS {
        let flags = config::settings().filter(|setting| MACHINE.contains(&setting.path)).filter_map(flag_of);
        command = with_flags(command, name, flags.map(|arg| arg.help_heading("Machine")).collect());
    }
    command
}

/// The flag of a setting.
fn flag_of(setting: &'static Setting) -> Option<Arg> {
    let (name, value) = setting.flag?.split_once(' ')?;
    let read = move |text: &str| (setting.check)(&text.into()).map(|()| text.to_owned());
    let arg = Arg::new(setting.path)
        .long(name.trim_start_matches('-'))
        .value_name(value)
        .help(setting.flag_help())
        .global(true);
    // Files of rows were CSV at first, and mostly are.
    let arg = if name == "--replay" { arg.visible_alias("csv") } else { arg };
    let arg = if setting.path == "source.replay" { arg.conflicts_with("source.kind") } else { arg };
    Some(match setting.notation {
        Notation::Plain | Notation::Duration | Notation::Secret => arg.value_parser(read),
        Notation::Url | Notation::Objects(_) => arg,
        Notation::Texts if name == "--replay" => arg.num_args(1..).action(ArgAction::Append),
        Notation::Texts => arg.value_parser(read).action(ArgAction::Append),
        Notation::Switch => arg.value_parser(read).num_args(0..=1).default_missing_value("true"),
        Notation::Words(words) => arg.value_parser(PossibleValuesParser::new(words())),
        Notation::List(words) => {
            let arg = arg.value_delimiter(',').action(ArgAction::Append);
            let words = words();
            if words.is_empty() {
                arg.value_parser(read)
            } else {
                arg.value_parser(PossibleValuesParser::new(words))
            }
        }
    })
}

/// The command line for manual pages: none for the commands that print help.
pub(crate) fn to_describe() -> clap::Command {
    fn without_help(command: clap::Command) -> clap::Command {
        command.disable_help_subcommand(true).mut_subcommands(without_help)
    }
    without_help(command())
}

/// The command line for completions: of a value that is no file none is completed as one.
pub(crate) fn to_complete() -> clap::Command {
    let levels = ["error", "warn", "info", "debug", "trace", "off"];
    offering(command()).mut_arg("log.level", |level| level.value_parser(levels))
}

/// Adds to the help of each duration how one without a unit is read.
fn dressed(command: clap::Command) -> clap::Command {
    let add = |arg: Arg| match arg.get_help().map(ToString::to_string) {
        Some(help) if names_value(&arg, "DURATION") => {
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
        let hint = if names_value(&arg, "FILE") { ValueHint::FilePath } else { ValueHint::Other };
        if is_plain { arg.value_hint(hint) } else { arg }
    };
    command.mut_args(hint).mut_subcommands(offering)
}

fn names_value(arg: &Arg, name: &str) -> bool {
    arg.get_value_names().unwrap_or_default().iter().any(|it| it.as_str() == name)
}

/// Commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Services, and tools for them
    #[cfg(feature = "services")]
    #[command(flatten)]
    Services(ServiceCommand),
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
    /// Show what was found, what is missing and the remedy; exits with 0 if sampling will work
    Doctor(crate::doctor::Doctor),
    /// Run on a node: sample its GPUs and the host, and serve the metrics to Prometheus
    #[command(after_help = crate::agent::EXAMPLES)]
    Agent,
    /// Make, list and revoke the tokens that services ask for
    Token(crate::token::TokenCommand),
    /// Show, lock and give back the clocks of GPUs
    Clocks(crate::clocks::Clocks),
    /// Ask a running gpuvitals about GPUs and their history
    Query(Box<Query>),
    /// What is wrong with the fleet now, the worst first: since when, why, whom it concerns, what to do
    Findings(FindingsFlags),
    /// Why a GPU was slow: what held it up, the heaviest first
    Explain(ExplainFlags),
    /// Say what gpuvitals makes of files of rows: what each column became, GPUs, hosts, times; nothing is stored
    #[command(after_help = crate::inspect::EXAMPLES)]
    Inspect(crate::inspect::Inspect),
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
    /// Print the manual page of this program, or write the pages of all commands into a folder
    Man {
        /// Folder, which is there [default: print gpuvitals.1; `gpuvitals man | man -l -` shows it]
        folder: Option<PathBuf>,
    },
}

/// Services beside a node's agent, and tools for them.
#[cfg(feature = "services")]
#[derive(Debug, Subcommand)]
pub(crate) enum ServiceCommand {
    /// Run everything in one process: source, queue, store, API and dashboard
    #[command(after_help = crate::up::EXAMPLES)]
    Up(crate::up::UpFlags),
    /// Replay recorded rows (CSV or Parquet) into a queue
    #[command(after_help = crate::stream::EXAMPLES)]
    Stream,
    /// Store what a queue delivers; several of them share the work
    #[command(after_help = crate::collect::EXAMPLES)]
    Collect(crate::collect::CollectFlags),
    /// Serve API, gRPC and dashboard over collectors elsewhere, as one history
    #[command(after_help = crate::serve::EXAMPLES)]
    Serve,
    /// Run the queue as a service of its own: publish and subscribe by gRPC and HTTP, in memory or on disk
    #[command(after_help = crate::broker::EXAMPLES)]
    Broker,
    /// Look into a queue: statistics, topics, messages as they come, dead letters
    Queue(crate::queue::QueueCommand),
    /// Show, check and repair the history that `up` and `collect` keep
    Store(crate::store::StoreCommand),
}

/// `gpuvitals config …`
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check file and environment; report errors
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

/// `gpuvitals findings`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gpuvitals findings
  gpuvitals findings --severity critical,warning --steps
  gpuvitals findings --host node-17 --json
  gpuvitals findings --acknowledge xid:GPU-5c1d0a44-9f0e-4d53-8f0a-0d1c6c5a7e21 --note \"Kim: drained, board ordered\"

Docs: docs/findings.md.")]
pub(crate) struct FindingsFlags {
    /// The server.
    #[command(flatten)]
    pub server: Server,
    /// Only these severities: critical, warning, notice
    #[arg(long, value_delimiter = ',', value_parser = ["critical", "warning", "notice"], value_name = "SEVERITY")]
    pub severity: Vec<String>,
    /// Only these kinds, such as xid,straggler
    #[arg(long, value_delimiter = ',', value_name = "KIND")]
    pub kind: Vec<String>,
    /// Only those about these hosts
    #[arg(long, value_delimiter = ',', value_name = "HOST")]
    pub host: Vec<String>,
    /// Only those that concern these namespaces
    #[arg(long, value_delimiter = ',', value_name = "NAMESPACE")]
    pub namespace: Vec<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
    /// With the values that show each finding, what to do, and its id
    #[arg(long)]
    pub steps: bool,
    /// Say that somebody looks after this finding: it stands behind the others until it closes
    #[arg(long, value_name = "ID", conflicts_with_all = ["severity", "kind", "host", "namespace", "limit", "steps"])]
    pub acknowledge: Option<String>,
    /// Who looks after it, and why
    #[arg(long, value_name = "TEXT", requires = "acknowledge")]
    pub note: Option<String>,
    /// Say that nobody looks after this finding any more
    #[arg(long, value_name = "ID", conflicts_with_all = ["severity", "kind", "host", "namespace", "limit", "steps", "acknowledge"])]
    pub release: Option<String>,
}

/// `gpuvitals explain`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gpuvitals explain node-17:gpu3
  gpuvitals explain node-17:gpu3 --last 2h
  gpuvitals explain GPU-5c1d0a44-9f0e-4d53-8f0a-0d1c6c5a7e21 --end 2026-11-20T16:00:00Z")]
pub(crate) struct ExplainFlags {
    /// The server.
    #[command(flatten)]
    pub server: Server,
    /// UUID, PCI address, or host:gpuN
    pub gpu: String,
    /// How far back, 1d at most
    #[arg(long, default_value = "10m", value_name = "DURATION")]
    pub last: String,
    /// End of the time [default: now]
    #[arg(long, value_name = "TIME")]
    pub end: Option<String>,
}

/// A running gpuvitals to ask.
#[derive(Debug, Args)]
pub(crate) struct Server {
    /// Server to ask
    #[arg(
        long,
        env = "GPUVITALS_URL",
        default_value = "http://127.0.0.1:8081",
        value_name = "URL",
        global = true
    )]
    pub url: String,
    /// File with the token that the server asks for, mode 0600
    #[arg(long, env = "GPUVITALS_TOKEN_FILE", value_name = "FILE", global = true)]
    pub token_file: Option<PathBuf>,
    /// Authorities that sign the server's certificate (PEM), instead of the system's
    #[arg(long, env = "GPUVITALS_CA", value_name = "FILE", global = true)]
    pub ca: Option<PathBuf>,
    /// Print JSON as the server gave it
    #[arg(long, global = true)]
    pub json: bool,
}

/// `gpuvitals query`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gpuvitals query gpus --state unhealthy
  gpuvitals query gpus --sort=-power_w --limit 10
  gpuvitals query gpu host-7:gpu3
  gpuvitals query range power_w,utilization_pct --last 6h --step 5m --group-by node
  gpuvitals query range energy_mj --aggregate rate --group-by namespace,job --where 'job!=' --top 10
  gpuvitals query range cpu_pct --table system_events
  gpuvitals query rows gpu_health_events --last 1d
  gpuvitals query health --url http://10.0.0.5:8081")]
pub(crate) struct Query {
    /// The server.
    #[command(flatten)]
    pub server: Server,
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
        /// Table of the metrics; system_events has those of hosts
        #[arg(long, value_name = "TABLE", default_value = "gpu_events", value_parser = ["gpu_events", "system_events"])]
        table: String,
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
        /// Aggregates of each step: mean, min, max, p50, p90, p99, last, count, rate, increase, delta
        #[arg(long, value_name = "WHAT", default_value = "mean", value_delimiter = ',')]
        aggregate: Vec<String>,
        /// A series for each value of these columns: gpu, node, model, pod, job …; or all for one [default: gpu, of
        /// system_events node]
        #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
        group_by: Vec<String>,
        /// Only rows whose identity passes this test: job=7, node!=a,b, pod=~train-.*, model!~.*MI300X; may be given several
        /// times
        #[arg(long = "where", value_name = "TEST")]
        tests: Vec<String>,
        /// Only so many series, those with the largest mean
        #[arg(long, value_name = "N", conflicts_with = "bottom")]
        top: Option<usize>,
        /// Only so many series, those with the smallest mean
        #[arg(long, value_name = "N")]
        bottom: Option<usize>,
        /// At most this many rows; --json has all
        #[arg(long, value_name = "N", default_value_t = 1000)]
        limit: usize,
    },
    /// The newest rows of a table as they were stored: samples, events, processes, single links
    Rows {
        /// Table
        #[arg(default_value = "gpu_events", value_parser = PossibleValuesParser::new(Table::ALL.map(Table::name)))]
        table: String,
        /// This GPU only (of system_events: this host); may be given several times [default: all]
        #[arg(long, value_name = "GPU", value_delimiter = ',')]
        gpu: Vec<String>,
        /// These columns only [default: all]
        #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
        metrics: Vec<String>,
        /// Only rows whose identity passes this test: job=7, node!=a,b, pod=~train-.*; may be given several times
        #[arg(long = "where", value_name = "TEST")]
        tests: Vec<String>,
        /// Not older than this: 15m, 1h, 7d [default: any age]
        #[arg(long, value_name = "DURATION")]
        last: Option<String>,
        /// Only what comes behind this place: `next` of the answer before (see --json)
        #[arg(long, value_name = "CURSOR")]
        after: Option<String>,
        /// At most this many
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
    },
    /// Health of gateway, collector, queue and store; exits with 69 unless all are healthy
    Health {
        /// Exit with 69 only if a part is unhealthy: degraded passes, as at /readyz; for the health checks of containers
        #[arg(long)]
        ready: bool,
    },
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
}
