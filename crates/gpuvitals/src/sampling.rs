//! Sampling of a machine's GPUs and host: the settings, the flags over them, and the devices found.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValue;
use gpuvitals_core::Origin;
use gpuvitals_core::clock;
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::Driver;
use gpuvitals_sources::registry::{self, Discovery, Verdict};
use gpuvitals_sources::sampler::{RATE_MAX_HZ, SamplerConfig, SamplerError};
use serde_json::Value;

use crate::config::{Form, Override, Typed, settings, text};
use crate::failure::{Exit, Failure};
use crate::quantity;

settings! {
    /// How GPUs and host are read
    pub(crate) struct Sampling = "sampling" {
        /// Read GPUs this way only; may be given several times. Without it: the cheapest that works
        pub drivers: Vec<Driver> = [], flag "--driver DRIVER";
        /// Samples of a GPU a second, up to 1000
        pub rate: f64 = 1.0, from 0.0003 to 1000, flag "--rate HZ";
        /// Samples of the host a second
        pub system_rate: f64 = 1.0, from 0.0003 to 1000, flag "--system-rate HZ";
        /// Read each CPU of the host by itself, too (up to 4,096)
        pub per_core: bool = false;
        /// Time between two readings of expensive values: fans, links, encoders
        slow_interval: Duration = "1s", from "100ms";
        /// Time between two readings of the most expensive values: ECC, pages, limits
        rare_interval: Duration = "30s", from "100ms";
        /// Directory in place of /sys: a captured tree
        sysfs: PathBuf = "/sys", flag "--sysfs DIR";
        /// Directory in place of /proc
        procfs: PathBuf = "/proc", flag "--procfs DIR";
        /// Directory in place of /dev
        dev: PathBuf = "/dev", flag "--dev DIR";
        /// Name of this host in every row; empty: NODE_NAME, or the host name
        node: String = "", flag "--node NAME";
    }
}

impl Typed for Driver {
    const FORM: Form = Form::Words(|| {
        Self::ALL.map(|driver| PossibleValue::new(driver.as_str()).help(driver.about())).to_vec()
    });

    fn read(value: &Value) -> Result<Self, String> {
        let text = text(value)?;
        Self::ALL
            .into_iter()
            .find(|driver| driver.as_str() == text)
            .ok_or_else(|| format!("{text:?} is none of {}", Self::FORM.words().join(", ")))
    }
}

/// The rates of GPUs and host, from a flag that is the time between two samples.
///
/// # Errors
/// When it is no time, or less than the least.
pub(crate) fn rates_of(flag: &'static str, text: &str) -> Result<Vec<Override>, Failure> {
    let seconds = quantity::flag(flag, text)?.as_secs_f64();
    if seconds * RATE_MAX_HZ < 1.0 {
        let text = format!("{flag}: {text} is too short: {RATE_MAX_HZ} samples a second are the most");
        return Err(Failure::new(Exit::Usage, text));
    }
    let rate = |setting| Override { setting, value: (1.0 / seconds).into(), flag };
    Ok(vec![rate("sampling.rate"), rate("sampling.system_rate")])
}

impl Sampling {
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

    /// Name of the host: as set, from Kubernetes, or from the kernel.
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
    pub(crate) fn discover(&self) -> Result<Discovery, Failure> {
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
pub(crate) fn nothing_to_sample(found: &Discovery) -> Failure {
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
