//! gpuvitals: what are my GPUs doing? One binary, many roles.

mod agent;
mod broker;
mod child;
mod cli;
mod clock;
mod clocks;
mod collect;
mod config;
mod doctor;
mod failure;
mod limits;
mod logging;
mod ownership;
mod pipe;
mod quantity;
mod query;
mod queue;
mod record;
mod sample;
mod sampling;
mod secret;
mod signal;
mod simulate;
mod stream;
mod table;
mod top;
mod up;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use gpuvitals_core::catalogue;

use cli::{CatalogueFormat, Cli, Command, ConfigCommand};
use config::{Config, Layers, Override};
use failure::{Exit, Failure};
use logging::Announcer;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { Exit::Usage as u8 } else { 0 };
            // Nobody is left to tell when not even this can be printed.
            let _unprinted = error.print();
            return ExitCode::from(code);
        }
    };
    match run(cli) {
        Ok(code) => code,
        Err(failure) => {
            let _unprinted = writeln!(std::io::stderr(), "gpuvitals: {failure}");
            ExitCode::from(failure.code())
        }
    }
}

/// What runs until it is told to end.
type Role = fn(&Config, Announcer) -> Result<(), Failure>;

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let log_level = cli.log_level.map(|level| ("log.level", serde_json::Value::from(level)));
    let layers = |flags: Vec<Override>| {
        Layers::load(
            cli.config.as_deref(),
            environment(),
            flags.into_iter().chain(log_level.clone()).collect(),
        )
    };
    let serve = |service, flags, run: Role| {
        let (config, announcer) = settled(&layers(flags)?, service)?;
        run(&config, announcer)
    };
    let done = match cli.command {
        Command::Up(flags) => serve("up", flags.overrides(), up::run),
        Command::Stream(flags) => serve("stream", flags.overrides()?, stream::run),
        Command::Collect(flags) => serve("collect", flags.overrides(), collect::run),
        Command::Sample(flags) => sample::run(&flags, &layers(flags.overrides()?)?.check()?.sampling),
        Command::Top(flags) => top::run(&flags, &layers(flags.overrides()?)?.check()?.sampling),
        Command::Record(flags) => {
            let config = layers(flags.overrides())?.check()?;
            return record::run(&flags, &config.sampling, &config.attribution);
        }
        Command::Repair(flags) => record::repair(&flags),
        Command::Mark(flags) => record::mark(&flags),
        Command::Doctor(flags) => doctor::run(&flags, &layers(flags.overrides())?.check()?),
        Command::Agent(flags) => {
            let flags: Vec<Override> = flags.overrides().into_iter().chain(log_level.clone()).collect();
            let layers =
                || Layers::load(cli.config.as_deref(), agent::environment(environment()), flags.clone());
            let (config, announcer) = settled(&layers()?, "agent")?;
            agent::run(config, announcer, &|| layers()?.check())
        }
        Command::Broker(flags) => serve("broker", flags.overrides(), broker::run),
        Command::Queue(command) => queue::run(&command, &layers(command.overrides())?.check()?),
        Command::Clocks(flags) => {
            return clocks::run(&flags, &layers(flags.overrides())?.check()?.sampling);
        }
        Command::Query(query) => query::run(&query),
        Command::Simulate(simulate) => simulate::run(&simulate),
        Command::Metrics { format, json, filter } => {
            let format = if json { CatalogueFormat::Json } else { format };
            metrics(format, filter.as_deref()).and_then(|text| print(&text))
        }
        Command::Config(ConfigCommand::Default) => print(config::DEFAULTS),
        Command::Config(ConfigCommand::Show) => {
            let layers = layers(Vec::new())?;
            layers.check()?;
            print(&layers.render())
        }
        Command::Config(ConfigCommand::Check) => {
            let layers = layers(Vec::new())?;
            layers.check()?;
            for (name, near) in &layers.strangers {
                let hint = near.as_ref().map_or(String::new(), |near| format!("; did you mean {near}?"));
                print(&format!("environment variable {name} names no setting{hint}\n"))?;
            }
            for name in &layers.service_links {
                print(&format!("environment variable {name} is the address of a service and is ignored\n"))?;
            }
            print("configuration is valid\n")
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "gpuvitals", &mut script);
            print(&String::from_utf8_lossy(&script))
        }
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Variables that are text; others name no setting of ours.
fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Checked settings, with logging started.
fn settled(layers: &Layers, service: &'static str) -> Result<(Config, Announcer), Failure> {
    let config = layers.check()?;
    let announcer = logging::start(&config.log, service)?;
    for (name, near) in &layers.strangers {
        tracing::warn!(
            name,
            nearest = near.as_deref(),
            "environment variable names no setting and is ignored"
        );
    }
    for name in &layers.service_links {
        tracing::warn!(
            name,
            "environment variable is the address of a Kubernetes service and is ignored; enableServiceLinks: false keeps it out"
        );
    }
    Ok((config, announcer))
}

fn metrics(format: CatalogueFormat, filter: Option<&str>) -> Result<String, Failure> {
    let refuse = |text: String| Err(Failure::new(Exit::Usage, text));
    match (format, filter) {
        (CatalogueFormat::Table, filter) => {
            let table = catalogue::table(filter.unwrap_or_default());
            // A heading stands alone where nothing was found.
            match filter.filter(|_| table.lines().count() < 2) {
                Some(filter) => refuse(format!("no metric has {filter:?} in its column, group or help")),
                None => Ok(table),
            }
        }
        (_, Some(_)) => refuse("a text to look for goes with --format table alone".to_owned()),
        (CatalogueFormat::Json, None) => Ok(format!("{:#}\n", catalogue::json())),
        (CatalogueFormat::Markdown, None) => Ok(catalogue::markdown()),
    }
}

/// Prints an answer; a reader that went away is no failure.
fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::io("cannot write to standard output", error))
        }
        _ => Ok(()),
    }
}
