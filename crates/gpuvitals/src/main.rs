//! gpuvitals: what are my GPUs doing? One binary, many roles.

mod agent;
mod broker;
mod child;
mod cli;
mod clocks;
mod collect;
mod config;
mod disk;
mod doctor;
mod failure;
#[cfg(test)]
#[path = "../../sources/tests/faulty/faulty_sysfs.rs"]
mod faulty_sysfs;
mod limits;
mod listening;
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
mod store;
mod stream;
mod table;
mod telemetry;
mod terminal;
mod token;
mod top;
mod up;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use gpuvitals_core::catalogue;

use cli::{CatalogueFormat, Cli, Command, ConfigCommand};
use config::{Config, Layers, Override, Variable};
use failure::{Exit, Failure};
use logging::Announcer;

fn main() -> ExitCode {
    let cli = match cli::parse() {
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
    let common = Common::of(&cli);
    let layers = |flags| common.layers(environment(), flags);
    // Only what serves sends telemetry; variables that others have set are nothing to a tool.
    let service_layers = |flags| common.layers(telemetry::environment(environment()), flags);
    let serve = |service, flags, run: Role| {
        let (config, announcer) = settled(&service_layers(flags)?, service)?;
        let outcome = run(&config, announcer);
        telemetry::finish();
        outcome
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
            let environment = || telemetry::environment(agent::environment(environment()));
            let layers = || common.layers(environment(), flags.overrides());
            let (config, announcer) = settled(&layers()?, "agent")?;
            let outcome = agent::run(config, announcer, &|| layers()?.check());
            telemetry::finish();
            outcome
        }
        Command::Broker(flags) => serve("broker", flags.overrides(), broker::run),
        Command::Queue(command) => queue::run(&command, &layers(command.overrides())?.check()?),
        Command::Store(command) => store::run(&command, &layers(command.overrides())?.check()?),
        Command::Token(command) => token::run(&command, &layers(command.overrides())?.check()?),
        Command::Clocks(flags) => {
            return clocks::run(&flags, &layers(flags.overrides())?.check()?.sampling);
        }
        Command::Query(query) => query::run(&query),
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
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// What the command line has for every command.
struct Common {
    file: Option<PathBuf>,
    flags: Vec<Override>,
}

impl Common {
    fn of(cli: &Cli) -> Self {
        Self { file: cli.config.clone(), flags: config::overrides([("log.level", &cli.log_level)]) }
    }

    fn layers(
        &self,
        environment: impl Iterator<Item = Variable>,
        flags: Vec<Override>,
    ) -> Result<Layers, Failure> {
        let flags = flags.into_iter().chain(self.flags.clone()).collect();
        Layers::load(self.file.as_deref(), environment, flags)
    }
}

/// `gpuvitals config`.
fn configuration(
    command: &ConfigCommand,
    layers: impl FnOnce() -> Result<Layers, Failure>,
) -> Result<(), Failure> {
    if matches!(command, ConfigCommand::Default) {
        return print(config::DEFAULTS);
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

/// Variables that are text; others name no setting of ours.
fn environment() -> impl Iterator<Item = Variable> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?).into()))
}

/// Checked settings, with logging started.
fn settled(layers: &Layers, service: &'static str) -> Result<(Config, Announcer), Failure> {
    let config = layers.check()?;
    let tracer = telemetry::start(&config, service)?;
    let announcer = logging::start(&config.log, service, tracer)?;
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
    for name in telemetry::unread(environment()) {
        tracing::warn!(
            name,
            "environment variable is not read; otlp.endpoint (OTEL_EXPORTER_OTLP_ENDPOINT) is for traces and metrics, and nothing is compressed"
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
