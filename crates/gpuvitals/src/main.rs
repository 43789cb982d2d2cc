//! gpuvitals: what are my GPUs doing? One binary, many roles.

mod agent;
mod child;
mod choices;
mod cli;
mod client;
mod clocks;
mod compare;
mod config;
mod disk;
mod doctor;
mod export;
mod failure;
mod files;
mod findings;
mod flight;
mod heap;
mod incident_files;
mod inspect;
mod jobs;
mod listening;
mod logging;
mod node_labels;
mod outgoing;
mod percent;
mod quantity;
mod query;
mod record;
mod replacing;
mod report;
mod running;
mod sample;
mod sampling;
mod service;
mod simulate;
mod table;
mod terminal;
mod token;
mod top;

// Services beside a node's agent: a build without the feature has none of these, of their crates and of their settings.
#[cfg(feature = "services")]
mod broker;
#[cfg(feature = "services")]
mod clusters;
#[cfg(feature = "services")]
mod collect;
#[cfg(feature = "services")]
mod fleet_figures;
#[cfg(feature = "services")]
mod flight_jobs;
#[cfg(feature = "services")]
mod gateway;
#[cfg(feature = "services")]
mod limits;
#[cfg(feature = "services")]
mod pipe;
#[cfg(feature = "services")]
mod queue;
#[cfg(feature = "services")]
mod queue_api;
#[cfg(feature = "services")]
mod serve;
#[cfg(feature = "services")]
mod services;
#[cfg(feature = "services")]
mod sinks;
#[cfg(feature = "services")]
mod source;
#[cfg(feature = "services")]
mod store;
#[cfg(feature = "services")]
mod stream;
#[cfg(feature = "services")]
mod up;
#[cfg(feature = "services")]
mod watched;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use gpuvitals_core::catalogue;
use gpuvitals_outgoing::otlp;
use gpuvitals_settings::{Override, Variable};

use cli::{CatalogueFormat, Cli, Command, ConfigCommand};
use config::Layers;
use failure::{Exit, Failure};
use running::{Launch, environment};
use service::Hangup;
use terminal::print;

fn main() -> ExitCode {
    let (cli, given) = match cli::parse() {
        Ok(parsed) => parsed,
        Err(error) => {
            let code = if error.use_stderr() { Exit::Usage as u8 } else { 0 };
            // If not even this can be printed, nobody is left to report to.
            let _unprinted = error.print();
            if let Some(choices) = choices::choices(&error) {
                let _unprinted = writeln!(std::io::stderr(), "{choices}");
            }
            return ExitCode::from(code);
        }
    };
    match run(cli, &given) {
        Ok(code) => code,
        Err(failure) => {
            let _unprinted = writeln!(std::io::stderr(), "gpuvitals: {failure}");
            ExitCode::from(failure.code())
        }
    }
}

fn run(cli: Cli, given: &[Override]) -> Result<ExitCode, Failure> {
    let load = |environment: &mut dyn Iterator<Item = Variable>, more: Vec<Override>| {
        Layers::load(cli.config.as_deref(), environment, given.iter().cloned().chain(more).collect())
    };
    let tool = |more| load(&mut environment(), more)?.check();
    // Only services send telemetry; variables set for others do not concern a tool.
    let service_layers = |more| load(&mut otlp::environment(environment()), more);
    let done = match cli.command {
        #[cfg(feature = "services")]
        Command::Services(command) => services::run(command, tool, service_layers),
        Command::Sample(flags) => sample::run(&flags, &tool(flags.overrides()?)?.sampling),
        Command::Top(flags) => top::run(&flags, &tool(flags.overrides()?)?.sampling),
        Command::Record(flags) => {
            let config = tool(flags.overrides())?;
            return record::run(&flags, &config.sampling, &config.attribution);
        }
        Command::Repair(flags) => record::repair(&flags),
        Command::Mark(flags) => record::mark(&flags),
        Command::Report(flags) => report::run(&flags),
        Command::Export(flags) => export::run(&flags),
        Command::Compare(flags) => return compare::run(&flags),
        Command::Doctor(flags) => doctor::run(&flags, &tool(vec![])?),
        Command::Agent => {
            let variables = || otlp::environment(config::with_shared(environment()));
            let layers = || load(&mut variables(), vec![]);
            let (threads, hangup) = (Some(agent::THREADS), Hangup::Reloads);
            let launch = Launch { threads, hangup, ..Launch::of("agent") };
            running::serve(launch, layers, |config, service| {
                agent::run(config.clone(), service, &|| layers()?.check())
            })
        }
        Command::Flight(command) => flight::run(&command, &tool(vec![])?),
        Command::Token(command) => token::run(&command, &tool(vec![])?.listener),
        Command::Clocks(flags) => return clocks::run(&flags, &tool(vec![])?.sampling),
        Command::Query(query) => query::run(&query),
        Command::Findings(flags) => findings::run(&flags),
        Command::Explain(flags) => findings::explain(&flags),
        Command::Jobs(flags) => jobs::run(&flags),
        Command::Inspect(flags) => inspect::run(&flags, &tool(vec![])?.files),
        Command::Simulate(simulate) => simulate::run(&simulate),
        Command::Metrics { format, json, filter } => {
            let format = if json { CatalogueFormat::Json } else { format };
            metrics(format, filter.as_deref()).and_then(|text| print(&text))
        }
        Command::Config(command) => configuration(&command, || service_layers(Vec::new())),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut cli::to_complete(), "gpuvitals", &mut script);
            print(&String::from_utf8_lossy(&script))
        }
        Command::Man { folder } => manual(folder.as_deref()),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Prints the configuration, or says what is wrong with it.
fn configuration(
    command: &ConfigCommand,
    layers: impl FnOnce() -> Result<Layers, Failure>,
) -> Result<(), Failure> {
    if matches!(command, ConfigCommand::Default) {
        return print(&config::defaults());
    }
    let layers = layers()?;
    layers.check()?;
    if matches!(command, ConfigCommand::Show) {
        return print(&layers.render());
    }
    for (name, near) in &layers.strangers {
        let hint = near.as_ref().map_or(String::new(), |near| format!("; did you mean {near}?"));
        print(&format!("environment variable {name} names no setting{hint}\n"))?;
    }
    for name in &layers.service_links {
        print(&format!("environment variable {name} is the address of a service and is ignored\n"))?;
    }
    print("configuration is valid\n")
}

fn metrics(format: CatalogueFormat, filter: Option<&str>) -> Result<String, Failure> {
    let refuse = |text: String| Err(Failure::new(Exit::Usage, text));
    match (format, filter) {
        (CatalogueFormat::Table, filter) => {
            let table = catalogue::table(filter.unwrap_or_default());
            // A heading without rows: nothing was found.
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

/// Prints the manual page, or writes those of all commands into a folder.
fn manual(folder: Option<&Path>) -> Result<(), Failure> {
    if let Some(folder) = folder {
        return clap_mangen::generate_to(cli::to_describe(), folder)
            .map_err(|e| Failure::io(format!("cannot write manual pages to {}", folder.display()), e));
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(cli::to_describe())
        .render(&mut page)
        .map_err(|e| Failure::io("cannot write the manual page", e))?;
    print(&String::from_utf8_lossy(&page))
}
