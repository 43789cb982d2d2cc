//! What is compared of runs, and gates on it.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// Change that does not matter in a metric without a gate, as a share.
const TOLERANCE: f64 = 0.01;
/// The same in energy: a sensor and the room's temperature add to the noise.
const TOLERANCE_OF_ENERGY: f64 = 0.02;
/// Most that a gate can allow, as a share.
const LIMIT_MAX: f64 = 10.0;

/// A figure of a run that is compared with that of others. Its name is that of `--gate` and of the JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunMetric {
    /// Mean duration of a step, after the warm-up.
    StepS,
    /// Energy of all GPUs that a step takes.
    StepEnergyJ,
    /// Tokens that a second of the steps takes, by marks.
    TokensPerS,
    /// Energy of all GPUs that a token takes.
    JoulesPerToken,
    /// Duration of the recording.
    DurationS,
    /// Energy of all GPUs over the recording.
    EnergyJ,
    /// Most memory of a GPU in use.
    MemoryUsedMaxMb,
    /// Mean clock of the GPUs under load.
    GpuClockMhz,
    /// Mean clock of their memory under load.
    MemClockMhz,
    /// Mean power of a GPU.
    PowerW,
    /// Mean temperature of a GPU.
    TemperatureC,
    /// Mean utilisation of a GPU.
    UtilizationPct,
    /// Mean utilisation of the host's CPUs.
    CpuPct,
}

/// Which way a metric gets better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Better {
    /// It gets better by falling.
    Less,
    /// It gets better by rising.
    More,
    /// Neither way: it explains others.
    Neither,
}

impl RunMetric {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 13] = [
        Self::StepS,
        Self::StepEnergyJ,
        Self::TokensPerS,
        Self::JoulesPerToken,
        Self::DurationS,
        Self::EnergyJ,
        Self::MemoryUsedMaxMb,
        Self::GpuClockMhz,
        Self::MemClockMhz,
        Self::PowerW,
        Self::TemperatureC,
        Self::UtilizationPct,
        Self::CpuPct,
    ];

    /// Its name in JSON and in the rule of a gate.
    pub fn name(self) -> &'static str {
        match self {
            Self::StepS => "step_s",
            Self::StepEnergyJ => "step_energy_j",
            Self::TokensPerS => "tokens_per_s",
            Self::JoulesPerToken => "joules_per_token",
            Self::DurationS => "duration_s",
            Self::EnergyJ => "energy_j",
            Self::MemoryUsedMaxMb => "memory_used_max_mb",
            Self::GpuClockMhz => "gpu_clock_mhz",
            Self::MemClockMhz => "mem_clock_mhz",
            Self::PowerW => "power_w",
            Self::TemperatureC => "temperature_c",
            Self::UtilizationPct => "utilization_pct",
            Self::CpuPct => "cpu_pct",
        }
    }

    pub(super) fn better(self) -> Better {
        match self {
            Self::StepS
            | Self::StepEnergyJ
            | Self::JoulesPerToken
            | Self::DurationS
            | Self::EnergyJ
            | Self::MemoryUsedMaxMb => Better::Less,
            Self::TokensPerS | Self::GpuClockMhz | Self::MemClockMhz => Better::More,
            Self::PowerW | Self::TemperatureC | Self::UtilizationPct | Self::CpuPct => Better::Neither,
        }
    }

    pub(super) fn tolerance(self) -> f64 {
        match self {
            Self::StepEnergyJ | Self::JoulesPerToken | Self::EnergyJ => TOLERANCE_OF_ENERGY,
            _ => TOLERANCE,
        }
    }

    /// Why a recording may lack it.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            Self::StepS | Self::StepEnergyJ => {
                "neither marks such as `gpuvitals mark --step 1`, five at least, nor signals that repeat tell steps; duration_s needs none"
            }
            Self::TokensPerS | Self::JoulesPerToken => {
                "each step needs a mark such as `gpuvitals mark --step 1 --value tokens=8192`"
            }
            _ => "no row of a GPU has it in one of the recordings, or it was 0",
        }
    }
}

impl fmt::Display for RunMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The most that a metric may change for the worse: `step_s:+2%`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MetricGate {
    /// What may not change.
    pub metric: RunMetric,
    /// By how much, as a share: above 0 it may not rise, below 0 it may not fall.
    pub limit: f64,
}

/// A text that is no gate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// Not of the form `METRIC:+2%`.
    #[error("{0:?} is no gate: it needs the form METRIC:+2% or METRIC:-2%")]
    Form(String),
    /// No such metric.
    #[error("{0:?} names no metric; there are {names}", names = RunMetric::ALL.map(RunMetric::name).join(", "))]
    Metric(String),
    /// The limit is 0 or beyond all bounds.
    #[error("the limit of {0:?} must be above 0 % and at most 1000 %")]
    Limit(String),
}

impl MetricGate {
    /// The gate of a metric without another: the change that matters, in the direction that is worse.
    pub(super) fn usual(metric: RunMetric) -> Self {
        let worse = if metric.better() == Better::More { -1.0 } else { 1.0 };
        Self { metric, limit: worse * metric.tolerance() }
    }
}

impl FromStr for MetricGate {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Self, GateError> {
        let form = || GateError::Form(text.to_owned());
        let (name, limit) = text.trim().split_once(':').ok_or_else(form)?;
        let metric = RunMetric::ALL.into_iter().find(|metric| metric.name() == name.trim());
        let metric = metric.ok_or_else(|| GateError::Metric(name.trim().to_owned()))?;
        let limit = limit.trim();
        let percent =
            limit.strip_suffix('%').filter(|number| number.starts_with(['+', '-'])).ok_or_else(form)?;
        let limit = percent.trim_end().parse::<f64>().map_err(|_| form())? / 100.0;
        if limit == 0.0 || !limit.is_finite() || limit.abs() > LIMIT_MAX {
            return Err(GateError::Limit(text.to_owned()));
        }
        Ok(Self { metric, limit })
    }
}

impl fmt::Display for MetricGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // To a thousandth of a percent: 2.0000000000000004 % is 2 %.
        write!(f, "{}:{:+}%", self.metric, (1e5 * self.limit).round() / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_a_metric_with_a_signed_share() {
        let check = |text: &str, metric, limit| {
            assert_eq!(text.parse::<MetricGate>(), Ok(MetricGate { metric, limit }), "{text}");
        };
        check("step_s:+2%", RunMetric::StepS, 0.02);
        check(" gpu_clock_mhz: -0.5 % ", RunMetric::GpuClockMhz, -0.005);
        for wrong in
            ["step_s", "step_s:2%", "step_s:+2", "step:+2%", "step_s:+0%", "step_s:+NaN%", "step_s:+1e9%"]
        {
            assert!(wrong.parse::<MetricGate>().is_err(), "{wrong}");
        }
        assert_eq!("energy_j:+3%".parse::<MetricGate>().unwrap().to_string(), "energy_j:+3%");
    }

    #[test]
    fn the_names_of_gates_are_those_of_the_json() {
        for metric in RunMetric::ALL {
            assert_eq!(serde_json::to_value(metric).unwrap(), metric.name());
        }
    }
}
