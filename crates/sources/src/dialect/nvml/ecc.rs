//! Errors of each memory of a GPU: the rows of details, and the columns of those that GPUs count from Ampere on.

use std::sync::Arc;

use gpuvitals_core::MetricId;

use super::code::{Answer, Code, Meaning};
use super::ledger::Gate;
use super::raw::{Gpu, Raw};
use super::singles::{AGGREGATE, CORRECTED, UNCORRECTED, VOLATILE, count_wide};
use super::tick::{DeviceReading, GpuTick};
use crate::probe::{Instance, ProbeError};

/// NVML's numbers of severity and lifetime, the metric of the sum over all memories, and the columns of the device memory and the
/// SRAM.
type Count = (u32, u32, MetricId, [MetricId; 2]);

const COUNTS: [Count; 4] = [
    (
        CORRECTED,
        VOLATILE,
        MetricId::of("ecc_corrected_volatile"),
        [MetricId::of("ecc_dram_corrected_volatile"), MetricId::of("ecc_sram_corrected_volatile")],
    ),
    (
        UNCORRECTED,
        VOLATILE,
        MetricId::of("ecc_uncorrected_volatile"),
        [MetricId::of("ecc_dram_uncorrected_volatile"), MetricId::of("ecc_sram_uncorrected_volatile")],
    ),
    (
        CORRECTED,
        AGGREGATE,
        MetricId::of("ecc_corrected_aggregate"),
        [MetricId::of("ecc_dram_corrected_aggregate"), MetricId::of("ecc_sram_corrected_aggregate")],
    ),
    (
        UNCORRECTED,
        AGGREGATE,
        MetricId::of("ecc_uncorrected_aggregate"),
        [MetricId::of("ecc_dram_uncorrected_aggregate"), MetricId::of("ecc_sram_uncorrected_aggregate")],
    ),
];

/// The memories by NVML's numbers (`nvmlMemoryLocation_t`), and which of a count's columns holds theirs, if any.
const MEMORIES: [(&str, Option<usize>); 8] = [
    ("l1", None),
    ("l2", None),
    ("dram", Some(0)),
    ("register_file", None),
    ("texture_memory", None),
    ("texture_shm", None),
    ("cbu", None),
    ("sram", Some(1)),
];

/// One count of one memory, with the state of its call.
struct Block {
    /// NVML's numbers of severity, lifetime and memory.
    place: [u32; 3],
    total: MetricId,
    column: Option<MetricId>,
    name: Arc<str>,
    gate: Gate,
}

impl Block {
    fn ask(&self, raw: &Raw, gpu: Gpu) -> Answer<u64> {
        let [severity, lifetime, memory] = self.place;
        raw.ecc_block_errors(gpu, severity, lifetime, memory)
    }

    /// Asks for a memory that the GPU may not know: only an error of the whole device counts.
    fn try_ask(&self, raw: &Raw, gpu: Gpu, gate: &mut Gate) -> Result<Option<u64>, ProbeError> {
        match self.ask(raw, gpu).map_err(|code| (code, code.meaning())) {
            Ok(count) => return Ok(Some(count)),
            Err((_, Meaning::Device(error))) => return Err(error),
            Err((Code::INVALID_ARGUMENT, _) | (_, Meaning::Never(_))) => *gate = Gate::Shut,
            Err(_) => {}
        }
        Ok(None)
    }
}

/// The calls with their state.
pub(super) struct Blocks(Vec<Block>);

impl Blocks {
    pub(super) fn new() -> Self {
        let of_memory = |(memory, (name, at)): (u32, (&str, Option<usize>))| {
            let name: Arc<str> = name.into();
            COUNTS.map(|(severity, lifetime, total, columns)| Block {
                place: [severity, lifetime, memory],
                total,
                column: at.and_then(|at| columns.get(at).copied()),
                name: Arc::clone(&name),
                gate: Gate::Open,
            })
        };
        Self((0..).zip(MEMORIES).flat_map(of_memory).collect())
    }

    /// Reads the count of each memory that the GPU counts.
    pub(super) fn read(&mut self, device: &mut DeviceReading<'_>) -> Result<(), ProbeError> {
        let GpuTick { raw, gpu, .. } = device.tick;
        for block in &mut self.0 {
            let mut gate = block.gate;
            let answer = match block.column {
                Some(column) => device.ask(&mut gate, &[column], |raw, gpu| block.ask(raw, gpu))?,
                None if gate == Gate::Shut => None,
                None => block.try_ask(raw, gpu, &mut gate)?,
            };
            block.gate = gate;
            let Some(count) = answer.map(count_wide) else { continue };
            device.row.detail(block.total, Instance::Name(Arc::clone(&block.name)), count);
            if let Some(column) = block.column {
                device.ledger.has(column);
                device.row.set(column, count);
            }
        }
        Ok(())
    }

    /// Makes all of the calls and drops their answers; an error if none gives a count.
    pub(super) fn ask_all(&self, raw: &Raw, gpu: Gpu) -> Answer<()> {
        let mut outcome = Err(Code::NOT_SUPPORTED);
        for block in &self.0 {
            outcome = outcome.or(block.ask(raw, gpu).map(drop));
        }
        outcome
    }
}
