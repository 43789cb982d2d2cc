//! The command line.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::parser::ValueSource;
use clap::{
    Arg, ArgAction, ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint,
};
use gpuvitals_settings::{Notation, Override, Setting};

use crate::compare::CompareFlags;
use crate::config;
use crate::findings::{ExplainFlags, FindingsFlags};
use crate::jobs::JobsFlags;
use crate::query::flags::Query;
use crate::simulate::Simulate;

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

/// Flags of who may reach a service, and of who it is: they stand last. `token` is about one of them.
const ACCESS: [&str; 8] =
    ["tls-cert", "tls-key", "tls-client-ca", "token-file", "insecure", "ca", "client-cert", "client-key"];

/// The settings that a command has flags for, in the order of its help: one, or all of a section that have a flag.
const FLAGS: [(&str, &[&str]); 12] = [
    (
        "up",
        &[
            "source",
            "files",
            "api",
            "store.dir",
            "flight.dir",
            "collector.sinks",
            "sampling.cluster",
            "listener",
            "otlp",
        ],
    ),
    ("record", &["sampling.cluster"]),
    (
        "agent",
        &[
            "agent",
            "flight",
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
    ("serve", &["gateway", "api", "flight.dir", "listener", "message_queue.address", "otlp"]),
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
    ("flight", &["flight.dir"]),
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
        let of = |wanted: &'static str| {
            let is_of = move |setting: &&Setting| {
                let section = setting.path.split('.').next().unwrap_or_default();
                [section, setting.path].contains(&wanted)
            };
            config::settings().filter(is_of)
        };
        let flags = settings.iter().copied().flat_map(of).filter_map(flag_of).collect();
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
        .mut_subcommands(|command| if command.get_name() == "token" { command } else { access_last(command) })
}

/// The flags of access under a heading of their own.
fn access_last(command: clap::Command) -> clap::Command {
    let is_access = |arg: &&Arg| arg.get_long().is_some_and(|name| ACCESS.contains(&name));
    let ids: Vec<clap::Id> =
        command.get_arguments().filter(is_access).map(|arg| arg.get_id().clone()).collect();
    let under = |command: clap::Command, id| command.mut_arg(id, |arg| arg.help_heading("TLS and tokens"));
    ids.into_iter().fold(command, under).mut_subcommands(access_last)
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
    /// Write the report of a run from its recording: a page in one file, Markdown, or JSON
    Report(Box<crate::report::ReportFlags>),
    /// Write a recording for other programs: as a trace of Perfetto, or as CSV
    Export(crate::export::ExportFlags),
    /// Compare recordings of runs: what changed, how sure that is, and why; exits with 1 if a gate failed
    #[command(after_help = crate::compare::EXAMPLES)]
    Compare(CompareFlags),
    /// Show what was found, what is missing and the remedy; exits with 0 if sampling will work
    Doctor(crate::doctor::Doctor),
    /// Run on a node: sample its GPUs and the host, and serve the metrics to Prometheus
    #[command(after_help = crate::agent::EXAMPLES)]
    Agent,
    /// The flight recorder: what this node, or the nodes of a job, kept of their last minutes around what happened
    Flight(crate::flight::FlightCommand),
    /// Make, list and revoke the tokens that services ask for
    Token(crate::token::TokenCommand),
    /// Show, lock and give back the clocks of GPUs
    Clocks(crate::clocks::Clocks),
    /// Ask a running gpuvitals about GPUs and their history
    Query(Box<Query>),
    /// What is wrong with the fleet now, the worst first: since when, why, whom it concerns, what to do
    Findings(Box<FindingsFlags>),
    /// Why a GPU was slow: what held it up, the heaviest first
    Explain(ExplainFlags),
    /// What each job and pod used of its GPUs: hours held, busy and wasted, energy
    Jobs(Box<JobsFlags>),
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
