//! The readings of a GPU, tier by tier, and the ones it does not support.

use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::Tier;
use gpuvitals_core::number::float;
use gpuvitals_core::{AbsenceReason, MetricId};

use super::ecc::Blocks;
use super::fields::{FieldGroup, Links};
use super::gpm::Gpm;
use super::known::PowerUsage;
use super::ledger::{Gate, Ledger};
use super::raw::{ContextEntry, Contexts, Raw};
use super::several::Several;
use super::singles::Singles;
use super::tick::{DeviceReading, GpuTick};
use crate::dialect::{NVIDIA_HELD_DOWN, NVIDIA_REASONS};
use crate::probe::{ProbeError, Row};

const UTILIZATION: MetricId = MetricId::of("utilization_pct");
const MEMORY_UTILIZATION: MetricId = MetricId::of("memory_utilization_pct");
const POWER: MetricId = MetricId::of("power_w");
const POWER_AVERAGE: MetricId = MetricId::of("power_average_w");
const MEMORY_USED: MetricId = MetricId::of("memory_used_mb");
const MEMORY_USED_SHARE: MetricId = MetricId::of("memory_used_pct");
const MEMORY_TOTAL: MetricId = MetricId::of("memory_total_mb");
const MEMORY_FREE: MetricId = MetricId::of("memory_free_mb");
const MEMORY_RESERVED: MetricId = MetricId::of("memory_reserved_mb");
const BAR1: [MetricId; 3] =
    [MetricId::of("bar1_total_mb"), MetricId::of("bar1_used_mb"), MetricId::of("bar1_free_mb")];
const REASONS: MetricId = MetricId::of("throttle_reasons");
const THROTTLED: MetricId = MetricId::of("throttled");
const PROCESSES: MetricId = MetricId::of("process_count");
/// What the call of the clock event reasons gives.
const REASONS_ALL: [MetricId; 8] = {
    let [(_, a), (_, b), (_, c), (_, d), (_, e), (_, f)] = NVIDIA_REASONS;
    [REASONS, THROTTLED, a, b, c, d, e, f]
};

/// Counters, and the rates derived from them if GPM provides none.
const RATES: [(MetricId, MetricId); 4] = [
    (MetricId::of("pcie_tx_bytes"), MetricId::of("pcie_tx_bytes_per_s")),
    (MetricId::of("pcie_rx_bytes"), MetricId::of("pcie_rx_bytes_per_s")),
    (MetricId::of("interconnect_tx_bytes"), MetricId::of("interconnect_tx_bytes_per_s")),
    (MetricId::of("interconnect_rx_bytes"), MetricId::of("interconnect_rx_bytes_per_s")),
];

/// The calls on a GPU with what is known about each; made anew when the GPU is opened anew.
pub(super) struct Board {
    pub(super) ledger: Ledger,
    pub(super) mig: Gate,
    pub(super) xids: Gate,
    fast: FieldGroup,
    slow: FieldGroup,
    rare: FieldGroup,
    links: Links,
    blocks: Blocks,
    singles: Singles,
    gpm: Gpm,
    parts: Parts,
    power_usage: PowerUsage,
    utilization: Gate,
    power: Gate,
    reasons: Gate,
    bar1: Gate,
    several: Several,
    /// Time and value of the counters of [`RATES`] at the reading before.
    counted: [Option<(i64, i64)>; RATES.len()],
}

impl Board {
    /// Every call is open; `driver` is the version of the driver.
    pub(super) fn new(driver: &str, power_usage: PowerUsage) -> Self {
        Self {
            ledger: Ledger::default(),
            mig: Gate::Open,
            xids: Gate::Open,
            fast: FieldGroup::new(Tier::Fast, driver),
            slow: FieldGroup::new(Tier::Slow, driver),
            rare: FieldGroup::new(Tier::Rare, driver),
            links: Links::default(),
            blocks: Blocks::new(),
            singles: Singles::new(),
            gpm: Gpm::default(),
            parts: Parts::default(),
            power_usage,
            utilization: Gate::Open,
            power: Gate::Open,
            reasons: Gate::Open,
            bar1: Gate::Open,
            several: Several::default(),
            counted: [None; RATES.len()],
        }
    }

    /// Reads what is due; the fast tier first.
    pub(super) fn read(&mut self, tick: GpuTick, row: &mut Row) -> Result<(), ProbeError> {
        let due = tick.due;
        self.ledger.begin();
        let device = &mut DeviceReading { tick, ledger: &mut self.ledger, row };
        self.fast.read(device)?;
        // Not if the field fails once: this call means another power on some parts.
        if !self.fast.has(POWER) {
            read_power(&mut self.power, self.power_usage, device)?;
        }
        read_utilization(&mut self.utilization, device)?;
        read_reasons(&mut self.reasons, device)?;
        self.parts.read_memory(device)?;
        if due.slow {
            self.slow.read(device)?;
        }
        if due.rare {
            self.rare.read(device)?;
        }
        self.singles.read(device)?;
        if due.rare {
            self.links.read([&self.slow, &self.rare], device)?;
            self.blocks.read(device)?;
            self.several.read(device)?;
        }
        if due.slow {
            self.gpm.read(device)?;
            read_bar1(&mut self.bar1, device)?;
            self.parts.read_contexts(device)?;
            derive_rates(&mut self.counted, device);
        }
        Ok(())
    }
}

/// The power call of drivers without field values. Its meaning depends on the part; if it is an average,
/// that is also its most instantaneous reading.
fn read_power(gate: &mut Gate, usage: PowerUsage, device: &mut DeviceReading<'_>) -> Result<(), ProbeError> {
    let Some(milliwatts) = device.ask(gate, &[POWER], Raw::power_mw)? else {
        return Ok(());
    };
    let watts = f64::from(milliwatts) / 1000.0;
    device.ledger.has(POWER);
    device.row.double(POWER, watts);
    if usage == PowerUsage::Average && device.row.get(POWER_AVERAGE).is_none() {
        device.ledger.has(POWER_AVERAGE);
        device.row.double(POWER_AVERAGE, watts);
    }
    Ok(())
}

fn read_utilization(gate: &mut Gate, device: &mut DeviceReading<'_>) -> Result<(), ProbeError> {
    let answer = device.ask(gate, &[UTILIZATION, MEMORY_UTILIZATION], Raw::utilization_pct)?;
    if let Some((gpu_pct, memory_pct)) = answer {
        device.row.int(UTILIZATION, gpu_pct);
        device.row.int(MEMORY_UTILIZATION, memory_pct);
    }
    Ok(())
}

fn read_reasons(gate: &mut Gate, device: &mut DeviceReading<'_>) -> Result<(), ProbeError> {
    if let Some(reasons) = device.ask(gate, &REASONS_ALL, Raw::clock_reasons)? {
        let is_slow = device.tick.due.slow;
        device.row.int(REASONS, i64::try_from(reasons).unwrap_or(-1));
        device.row.int(THROTTLED, i64::from(reasons & NVIDIA_HELD_DOWN != 0));
        for (bit, metric) in NVIDIA_REASONS.iter().filter(|_| is_slow) {
            device.row.int(*metric, i64::from(reasons & bit != 0));
        }
    }
    Ok(())
}

fn read_bar1(gate: &mut Gate, device: &mut DeviceReading<'_>) -> Result<(), ProbeError> {
    if let Some(bytes) = device.ask(gate, &BAR1, Raw::bar1)? {
        for (metric, bytes) in BAR1.iter().zip(bytes) {
            if device.tick.due.has(metric.metric().tier) {
                device.row.int(*metric, mebibytes(bytes));
            }
        }
    }
    Ok(())
}

/// Derives the rates of [`RATES`] from the time and value of each counter at the reading before.
fn derive_rates(counted: &mut [Option<(i64, i64)>], device: &mut DeviceReading<'_>) {
    let now_ns = device.tick.now_ns;
    for ((counter, rate), counted) in RATES.iter().zip(counted) {
        let Some(Value::Int(count)) = device.row.get(*counter) else { continue };
        let before = counted.replace((now_ns, count));
        if device.row.get(*rate).is_some() {
            continue;
        }
        device.ledger.has(*rate);
        // The counters wrap and restart with the driver: after a fall there is no rate.
        if let Some((before_ns, before)) = before
            && now_ns > before_ns
            && count >= before
        {
            device.row.double(*rate, float(count - before) * 1e9 / float(now_ns - before_ns));
        }
    }
}

/// The common parts of a GPU and a MIG instance.
#[derive(Default)]
pub(super) struct Parts {
    memory: Gate,
    contexts: [Gate; 3],
    list: Vec<ContextEntry>,
    pids: Vec<u32>,
}

impl Parts {
    pub(super) fn read_memory(&mut self, device: &mut DeviceReading<'_>) -> Result<(), ProbeError> {
        let metrics = [MEMORY_USED, MEMORY_USED_SHARE, MEMORY_TOTAL, MEMORY_FREE, MEMORY_RESERVED];
        let Some(memory) = device.ask(&mut self.memory, &metrics, Raw::memory)? else {
            return Ok(());
        };
        let DeviceReading { tick, ledger, row } = device;
        row.int(MEMORY_USED, mebibytes(memory.used));
        if row.get(MEMORY_USED).is_some() && memory.total > 0 && memory.used <= memory.total {
            row.double(MEMORY_USED_SHARE, share_pct(memory.used, memory.total));
        } else {
            row.absent(MEMORY_USED_SHARE, AbsenceReason::Invalid);
        }
        if tick.due.slow {
            row.int(MEMORY_TOTAL, mebibytes(memory.total));
            row.int(MEMORY_FREE, mebibytes(memory.free));
            match memory.reserved {
                Some(reserved) => row.int(MEMORY_RESERVED, mebibytes(reserved)),
                None => ledger.never(&[MEMORY_RESERVED], AbsenceReason::NotSupported),
            }
        }
        Ok(())
    }

    /// Counts the processes that have a context of any kind, each once.
    pub(super) fn read_contexts(&mut self, device: &mut DeviceReading<'_>) -> Result<(), ProbeError> {
        self.pids.clear();
        let kinds = [Contexts::Compute, Contexts::Graphics, Contexts::Mps];
        for (kind, gate) in kinds.into_iter().zip(&mut self.contexts) {
            // Without compute processes there is no count; the other kinds only add to it.
            let metrics: &[MetricId] = if kind == Contexts::Compute { &[PROCESSES] } else { &[] };
            let list = &mut self.list;
            match device.ask(gate, metrics, |raw, gpu| raw.contexts(gpu, kind, list))? {
                Some(()) => self.pids.extend(self.list.iter().map(|entry| entry.pid)),
                None if kind == Contexts::Compute => return Ok(()),
                None => {}
            }
        }
        self.pids.sort_unstable();
        self.pids.dedup();
        device.row.int(PROCESSES, i64::try_from(self.pids.len()).unwrap_or(i64::MAX));
        Ok(())
    }
}

fn mebibytes(bytes: u64) -> i64 {
    i64::try_from(bytes >> 20).unwrap_or(i64::MAX)
}

fn share_pct(part: u64, whole: u64) -> f64 {
    float(part) * 100.0 / float(whole)
}
