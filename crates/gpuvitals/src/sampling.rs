//! Sampling: the flags over its settings, the devices, and why it is refused.

use gpuvitals_core::MetricId;
use gpuvitals_core::catalogue::Tier;
use gpuvitals_inputs::simulated;
use gpuvitals_settings::Override;
use gpuvitals_sources::registry::{Discovery, Verdict};
use gpuvitals_sources::sampler::{RATE_MAX_HZ, SamplerConfig, SamplerError};
use gpuvitals_sources::settings::{NoDirectory, Sampling};

use crate::failure::{Exit, Failure};
use crate::quantity;

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

/// The devices of the machine, or simulated ones if these are asked for.
///
/// # Errors
/// When a directory that was asked for is not there.
pub(crate) fn discover(sampling: &Sampling) -> Result<Discovery, NoDirectory> {
    sampling.discover(simulated::probe::find)
}

/// How long a value counts as one of now: three times its interval, nanoseconds.
pub(crate) fn lasts_ns(metric: MetricId, sampler: &SamplerConfig) -> i64 {
    // A row of values that did not change is left out until slow values are due.
    let often = match metric.metric().tier {
        Tier::Fast | Tier::Slow => sampler.slow,
        Tier::Rare => sampler.rare,
    };
    i64::try_from(3 * often.max(sampler.interval).as_nanos()).unwrap_or(i64::MAX)
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
        SamplerError::Thread(_) => Failure::caused(Exit::Io, "cannot start sampling", error),
    }
}

/// The owners of the GPUs cannot be asked for.
pub(crate) fn unasked(error: std::io::Error) -> Failure {
    Failure::io("cannot ask for the owners of the GPUs", error)
}
