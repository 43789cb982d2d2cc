//! A service runs until it is told to end, with its settings checked and its logging started.

use std::time::Duration;

use gpuvitals_outgoing::otlp;
use gpuvitals_settings::Variable;

use crate::config::{Config, Layers};
use crate::failure::Failure;
use crate::logging::Announcer;
use crate::service::{self, Hangup, Service};
use crate::{heap, logging, outgoing};

/// How long tasks may take to end once their role has: what is left is a name lookup at most.
const TASKS_PATIENCE: Duration = Duration::from_secs(1);

/// How a service starts, before its settings are known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch {
    /// Its name on the command line and in logs.
    pub name: &'static str,
    /// Threads of its runtime; none: one for each core.
    pub threads: Option<usize>,
    pub hangup: Hangup,
}

impl Launch {
    /// With a thread for each core, and an end at SIGHUP.
    pub(crate) fn of(name: &'static str) -> Self {
        Self { name, threads: None, hangup: Hangup::Ends }
    }
}

/// Runs a service until it is told to end. Signals are handled from the first moment, however long it takes to open what it
/// serves.
pub(crate) fn serve(
    launch: Launch,
    layers: impl FnOnce() -> Result<Layers, Failure>,
    role: impl FnOnce(&Config, Service) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let started = service::runtime(launch.threads, launch.hangup);
    let (runtime, signals) = started.map_err(|e| Failure::io("cannot start the runtime", e))?;
    let (config, announcer) = settled(&layers()?, launch.name)?;
    runtime.spawn(heap::give_back());
    let outcome = role(&config, Service { announcer, runtime: runtime.handle().clone(), signals });
    runtime.shutdown_timeout(TASKS_PATIENCE);
    outgoing::finish_otlp();
    outcome
}

/// Checked settings, with logging started.
fn settled(layers: &Layers, service: &'static str) -> Result<(Config, Announcer), Failure> {
    let config = layers.check()?;
    let tracer = outgoing::start_otlp(&config.otlp, service, &config.sampling.node())?;
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
    for name in otlp::unread(environment()) {
        tracing::warn!(
            name,
            "environment variable is not read; otlp.endpoint (OTEL_EXPORTER_OTLP_ENDPOINT) is for traces and metrics, and nothing is compressed"
        );
    }
    Ok((config, announcer))
}

/// Variables that are text; others name no setting of ours.
pub(crate) fn environment() -> impl Iterator<Item = Variable> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?).into()))
}
