//! How GPUs and host of a machine are read: the settings, the flags over them, and what they find.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use gpuvitals_core::Origin;
use gpuvitals_core::clock;
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::Driver;
use gpuvitals_sources::registry::{self, Found, Verdict};
use gpuvitals_sources::sampler::{RATE_MAX_HZ, SamplerConfig, SamplerError};
use serde::Deserialize;
use serde_json::Value;

use crate::config::{Override, overrides};
use crate::failure::{Exit, Failure};
use crate::quantity::{self, deserialize_duration};

/// Slowest rate: once an hour.
const RATE_MIN_HZ: f64 = 1.0 / 3600.0;

/// Section `sampling`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sampling {
    /// Ways to read; empty: the cheapest that works.
    pub drivers: Vec<Driver>,
    /// Samples of a GPU a second.
    pub rate: f64,
    /// Samples of the host a second.
    pub system_rate: f64,
    /// Whether each CPU of the host is read by itself, too.
    pub per_core: bool,
    /// Between two readings of the slow tier.
    #[serde(deserialize_with = "deserialize_duration")]
    slow_interval: Duration,
    /// Between two readings of the rare tier.
    #[serde(deserialize_with = "deserialize_duration")]
    rare_interval: Duration,
    /// `/sys`.
    sysfs: PathBuf,
    /// `/proc`.
    procfs: PathBuf,
    /// `/dev`.
    dev: PathBuf,
    /// Name of the host.
    node: String,
}

/// Reads the spelling of a driver; the help lists them.
fn drivers() -> impl TypedValueParser<Value = Driver> {
    let choice = |driver: Driver| PossibleValue::new(driver.as_str()).help(driver.about());
    PossibleValuesParser::new(Driver::ALL.map(choice))
        .try_map(|name| Driver::ALL.into_iter().find(|driver| driver.as_str() == name).ok_or("no driver"))
}

/// Flags that say which machine is read, and how.
#[derive(Debug, Clone, Args)]
pub(crate) struct MachineFlags {
    /// Read GPUs this way only; may be given several times [default: the cheapest that works]
    #[arg(
        long = "driver",
        value_parser = drivers(),
        value_name = "DRIVER",
        value_delimiter = ',',
        help_heading = "Machine"
    )]
    pub drivers: Vec<Driver>,
    /// Directory in place of /sys: a captured tree
    #[arg(long, value_name = "DIR", help_heading = "Machine")]
    pub sysfs: Option<PathBuf>,
    /// Directory in place of /proc
    #[arg(long, value_name = "DIR", help_heading = "Machine")]
    pub procfs: Option<PathBuf>,
    /// Directory in place of /dev
    #[arg(long, value_name = "DIR", help_heading = "Machine")]
    pub dev: Option<PathBuf>,
    /// Name of this host in every row [default: NODE_NAME, or the host name]
    #[arg(long, value_name = "NAME", help_heading = "Machine")]
    pub node: Option<String>,
}

/// The rate, in Hz, of a flag that is the time between two samples.
///
/// # Errors
/// When it is no time, or less than the least.
pub(crate) fn rate_of(flag: &str, text: &str) -> Result<f64, Failure> {
    let seconds = quantity::flag(flag, text)?.as_secs_f64();
    if seconds * RATE_MAX_HZ < 1.0 {
        let text = format!("{flag}: {text} is too short: {RATE_MAX_HZ} samples a second are the most");
        return Err(Failure::new(Exit::Usage, text));
    }
    Ok(1.0 / seconds)
}

impl MachineFlags {
    /// The settings these flags change.
    pub(crate) fn overrides(&self) -> Vec<Override> {
        let drivers: Vec<Value> = self.drivers.iter().map(|driver| driver.as_str().into()).collect();
        overrides([
            ("sampling.drivers", &(!drivers.is_empty()).then_some(Value::Array(drivers))),
            ("sampling.sysfs", &self.sysfs),
            ("sampling.procfs", &self.procfs),
            ("sampling.dev", &self.dev),
            ("sampling.node", &self.node),
        ])
    }
}

impl Sampling {
    /// Refuses what cannot be.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        for (name, rate) in [("rate", self.rate), ("system_rate", self.system_rate)] {
            if !(RATE_MIN_HZ..=RATE_MAX_HZ).contains(&rate) {
                return Err(Failure::new(
                    Exit::Config,
                    format!(
                        "configuration: sampling.{name} is {rate}; between once an hour and {RATE_MAX_HZ} a second is possible"
                    ),
                ));
            }
        }
        for (name, interval) in [("slow_interval", self.slow_interval), ("rare_interval", self.rare_interval)]
        {
            if interval < Duration::from_millis(100) {
                return Err(Failure::new(
                    Exit::Config,
                    format!(
                        "configuration: sampling.{name} is {interval:?}; these readings are dear, 100ms is the least"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// The machine to read.
    ///
    /// # Errors
    /// When a directory that was asked for is not there.
    pub(crate) fn machine(&self) -> Result<Machine, Failure> {
        for (name, path) in [("sysfs", &self.sysfs), ("procfs", &self.procfs)] {
            if !path.is_dir() {
                return Err(Failure::new(
                    Exit::Config,
                    format!("configuration: sampling.{name}: {} is no directory", path.display()),
                ));
            }
        }
        Ok(Machine {
            sysfs: self.sysfs.clone(),
            procfs: self.procfs.clone(),
            dev: self.dev.clone(),
            node: self.node().into(),
        })
    }

    /// Name of the host: as set, or what Kubernetes says, or what the kernel does.
    pub(crate) fn node(&self) -> String {
        let given = Some(self.node.clone()).filter(|name| !name.is_empty());
        let node_name = || std::env::var("NODE_NAME").ok().filter(|name| !name.is_empty());
        let host = || {
            let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            Some(name.trim().to_owned()).filter(|name| !name.is_empty())
        };
        given.or_else(node_name).or_else(host).unwrap_or_else(|| "localhost".to_owned())
    }

    /// The devices of the machine, ready to be read as set.
    ///
    /// # Errors
    /// As [`Sampling::machine`].
    pub(crate) fn discover(&self) -> Result<Found, Failure> {
        let mut found = registry::discover(&self.machine()?, &self.drivers);
        for probe in found.probes.iter_mut().filter(|_| self.per_core) {
            probe.read_instances();
        }
        Ok(found)
    }

    /// The sampler's settings.
    pub(crate) fn sampler(&self) -> SamplerConfig {
        SamplerConfig {
            interval: Duration::from_secs_f64(1.0 / self.rate),
            system_interval: Duration::from_secs_f64(1.0 / self.system_rate),
            slow: self.slow_interval,
            rare: self.rare_interval,
            exact: !self.drivers.is_empty(),
            origin: Origin { node: self.node().into(), started_ns: clock::now_ns() },
            ..SamplerConfig::default()
        }
    }
}

/// No device: what was looked at, and what to do.
pub(crate) fn nothing_to_sample(found: &Found) -> Failure {
    let missing = found.findings.iter().filter(|finding| finding.verdict != Verdict::Good).map(|finding| {
        let remedy = finding.remedy.as_ref().map_or(String::new(), |remedy| format!(" ({remedy})"));
        format!("\n  {}: {}{remedy}", finding.subject, finding.text)
    });
    let text: String = std::iter::once("no GPU was found".to_owned()).chain(missing).collect();
    let is_denied = found.findings.iter().any(|finding| finding.is_denied);
    Failure::new(if is_denied { Exit::Permission } else { Exit::Unavailable }, text)
}

/// Sampling was refused before it began.
pub(crate) fn refused(error: SamplerError) -> Failure {
    match error {
        SamplerError::TooFast { .. } => {
            Failure::new(Exit::Config, format!("{error}; ask for a lower rate, or another --driver"))
        }
        SamplerError::Thread(_) => Failure::caused(Exit::Io, "sampling", error),
    }
}
