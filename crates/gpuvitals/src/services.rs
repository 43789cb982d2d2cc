//! Which service or tool a command is, of those that a build without the feature `services` lacks.

use gpuvitals_settings::Override;
use gpuvitals_store::StoreConfig;

use crate::cli::ServiceCommand;
use crate::config::{Config, Layers};
use crate::failure::Failure;
use crate::running::Launch;
use crate::service::{Hangup, Service};
use crate::{broker, collect, queue, running, serve, sinks, store, stream, up};

/// Runs it, with the settings of a tool or the layers of a service, below more flags.
///
/// # Errors
/// As it fails, and when the settings are wrong.
pub(crate) fn run(
    command: ServiceCommand,
    tool: impl FnOnce(Vec<Override>) -> Result<Config, Failure>,
    layers: impl FnOnce(Vec<Override>) -> Result<Layers, Failure>,
) -> Result<(), Failure> {
    match command {
        ServiceCommand::Up(flags) => running::serve(Launch::of("up"), || layers(flags.overrides()), up::run),
        ServiceCommand::Stream => {
            let launch = Launch { threads: Some(stream::THREADS), ..Launch::of("stream") };
            running::serve(launch, || layers(vec![]), streaming)
        }
        ServiceCommand::Collect(flags) => {
            running::serve(Launch::of("collect"), || layers(flags.overrides()), collect::run)
        }
        ServiceCommand::Serve => running::serve(Launch::of("serve"), || layers(vec![]), serve::run),
        ServiceCommand::Broker => {
            let launch = Launch { hangup: Hangup::Reloads, ..Launch::of("broker") };
            running::serve(launch, || layers(vec![]), broker::run)
        }
        ServiceCommand::Queue(command) => queue::run(&command, tool(vec![])?.queue_elsewhere()),
        ServiceCommand::Store(command) => {
            let config = tool(vec![])?;
            // What a person asks for deletes nothing for its age or room.
            let keeping = StoreConfig {
                keep: None,
                keep_rollups: [None; 4],
                max_bytes: None,
                ..sinks::store_config(&config.store, &config.collector)
            };
            let opened = || sinks::open_store(keeping);
            store::run(&command, (&config.store, &config.files), opened)
        }
    }
}

fn streaming(config: &Config, service: Service) -> Result<(), Failure> {
    let (settings, queue, listener) = (&config.stream, &config.queue_elsewhere(), &config.listener);
    let (files, grace) = (&config.files, config.shutdown.grace);
    stream::run(stream::Parts { settings, files, queue, listener, grace }, service)
}
