//! GPM: performance counters from Hopper on, as shares and rates between two samples.

use gpuvitals_core::{AbsenceReason, MetricId};

use super::code::{Code, Meaning};
use super::ledger::{Gate, Ledger};
use super::raw::{GpmRequest, GpmSample, Raw};
use super::tick::{DeviceReading, GpuTick};
use crate::probe::{ProbeError, Row};

/// Two samples closer together give nothing sensible.
const APART_NS: i64 = 100_000_000;
/// From percent to ratio.
const PERCENT: f64 = 0.01;
/// From MiB/s to bytes/s.
const MEBI: f64 = 1_048_576.0;

/// GPM's id, the column and the factor to its unit.
const METRICS: &[(u32, MetricId, f64)] = &[
    (1, MetricId::of("graphics_engine_active_ratio"), PERCENT),
    (2, MetricId::of("sm_active_ratio"), PERCENT),
    (3, MetricId::of("sm_occupancy_ratio"), PERCENT),
    (4, MetricId::of("int_active_ratio"), PERCENT),
    (5, MetricId::of("tensor_active_ratio"), PERCENT),
    (6, MetricId::of("tensor_dfma_active_ratio"), PERCENT),
    (7, MetricId::of("tensor_hmma_active_ratio"), PERCENT),
    (9, MetricId::of("tensor_imma_active_ratio"), PERCENT),
    (10, MetricId::of("dram_active_ratio"), PERCENT),
    (11, MetricId::of("fp64_active_ratio"), PERCENT),
    (12, MetricId::of("fp32_active_ratio"), PERCENT),
    (13, MetricId::of("fp16_active_ratio"), PERCENT),
    (20, MetricId::of("pcie_tx_bytes_per_s"), MEBI),
    (21, MetricId::of("pcie_rx_bytes_per_s"), MEBI),
    (60, MetricId::of("interconnect_rx_bytes_per_s"), MEBI),
    (61, MetricId::of("interconnect_tx_bytes_per_s"), MEBI),
    (100, MetricId::of("c2c_tx_bytes_per_s"), MEBI),
    (101, MetricId::of("c2c_rx_bytes_per_s"), MEBI),
];

/// The counters of a GPU, or of one GPU instance of it.
#[derive(Default)]
pub(super) struct Gpm {
    /// GPU instance; none for the whole GPU.
    instance: Option<u32>,
    gate: Gate,
    samples: Option<Samples>,
}

struct Samples {
    before: GpmSample,
    now: GpmSample,
    /// When `before` was taken, monotonic; none while it is empty.
    before_ns: Option<i64>,
    request: GpmRequest,
}

impl Gpm {
    pub(super) fn of_instance(instance: u32) -> Self {
        Self { instance: Some(instance), ..Self::default() }
    }

    /// Takes a sample and reports the change since the one before.
    pub(super) fn read(&mut self, device: &mut DeviceReading<'_>) -> Result<(), ProbeError> {
        if self.gate == Gate::Shut {
            return Ok(());
        }
        let DeviceReading { tick, ledger, row } = device;
        let answer = self.sample(*tick).and_then(|()| self.between(tick.raw, tick.now_ns));
        match answer {
            Ok(true) => self.tell(ledger, row)?,
            Ok(false) => {}
            Err(code) => {
                // In the order of the table; reported once, for good, if the part has no such counters.
                for (_, metric, _) in METRICS {
                    if let Meaning::Never(reason) = code.meaning() {
                        ledger.never(&[*metric], reason);
                    }
                }
                ledger.refused(&mut self.gate, &[], code)?;
            }
        }
        Ok(())
    }

    fn sample(&mut self, GpuTick { raw, gpu, now_ns, .. }: GpuTick) -> Result<(), Code> {
        let samples = if let Some(samples) = &mut self.samples {
            samples
        } else {
            if !raw.gpm_is_supported(gpu)? {
                return Err(Code::NOT_SUPPORTED);
            }
            self.samples.insert(Samples {
                before: raw.gpm_sample()?,
                now: raw.gpm_sample()?,
                before_ns: None,
                request: GpmRequest::new(METRICS.iter().map(|(id, ..)| *id)),
            })
        };
        if samples.before_ns.is_some_and(|before_ns| now_ns - before_ns < APART_NS) {
            return Ok(());
        }
        raw.gpm_take(gpu, self.instance, &mut samples.now)
    }

    /// Whether there is something to report.
    fn between(&mut self, raw: &Raw, now_ns: i64) -> Result<bool, Code> {
        let Some(samples) = &mut self.samples else { return Ok(false) };
        let is_apart = match samples.before_ns {
            Some(before_ns) if now_ns - before_ns < APART_NS => return Ok(false),
            Some(_) => {
                raw.gpm_between(&samples.before, &samples.now, &mut samples.request)?;
                true
            }
            None => false,
        };
        std::mem::swap(&mut samples.before, &mut samples.now);
        samples.before_ns = Some(now_ns);
        Ok(is_apart)
    }

    fn tell(&self, ledger: &mut Ledger, row: &mut Row) -> Result<(), ProbeError> {
        let Some(samples) = &self.samples else { return Ok(()) };
        for ((_, answer), (_, metric, factor)) in samples.request.answers().zip(METRICS) {
            match answer {
                Ok(value) => {
                    ledger.has(*metric);
                    row.double(*metric, value * factor);
                }
                Err(code) => match code.meaning() {
                    Meaning::Never(reason) => ledger.never(&[*metric], reason),
                    Meaning::Stale => ledger.never(&[*metric], AbsenceReason::NotSupported),
                    Meaning::Device(error) => return Err(error),
                    Meaning::NotNow(_) | Meaning::Unknown => {
                        ledger.not_now(&[*metric], AbsenceReason::Invalid);
                    }
                },
            }
        }
        Ok(())
    }
}
