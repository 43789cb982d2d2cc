//! Which RAS blocks of AMD GPUs had errors beyond correction: what they are, and what to do about them.
//!
//! The blocks are those of the kernel's driver (`ras_block_string` in `amdgpu_ras.c`). AMD publishes no step for a block: the steps are
//! ours, with the commands of its tools `amd-smi` and `rocm-smi`, which list bad pages and links. Counts by block are details, which the latest state of a GPU does not have.

use std::sync::Arc;

use gpuvitals_core::history::{GpuState, RowsQuery};
use gpuvitals_core::time::MINUTE_NS;
use gpuvitals_core::{Batch, MetricId};

use crate::details::{self, NewestDetails};
use crate::freshness::Freshness;

const UNCORRECTED: MetricId = MetricId::of("ras_uncorrected");
/// How often the blocks are asked for.
const EVERY_NS: i64 = MINUTE_NS;
/// Most rows that are read, the newest first.
const ROWS_MAX: usize = 10_000;
/// Most GPUs whose blocks are asked for.
const GPUS_MAX: usize = 64;

/// A block of an AMD GPU that counts errors, and what to do about them.
struct RasBlock {
    name: &'static str,
    words: &'static str,
    /// Our advice: the driver gives none.
    remedy: &'static str,
}

const WRONG: &str = "Results of the job may be wrong: run it again elsewhere. Drain the node and reboot it; if errors come again the board is \
     due for exchange. `dmesg | grep -i ras` has the driver's words.";
const MEMORY: &str = "Results of the job may be wrong: run it again elsewhere. Drain the node and reboot it: the driver takes the bad pages \
     out of use. `rocm-smi --showretiredpages -d INDEX` lists them; if their number grows the board is due for exchange.";
const LINK: &str = "Work over several GPUs may have failed: run it again elsewhere. Drain the node and reboot it; `amd-smi xgmi` and \
     `rocm-smi --shownodesbw` show the links. If errors come again the board or the baseboard is due for exchange.";
const BUS: &str = "Drain the node, reseat the board and its riser, and reboot; `lspci -vv` and `dmesg | grep -i aer` show errors of the bus. If \
     they come again the board is due for exchange.";
const CONTROL: &str = "What runs on the GPU may stop or hang. Drain the node and reboot it; if errors come again the board is due for exchange. \
     `dmesg | grep -i ras` has the driver's words.";

const BLOCKS: &[RasBlock] = &[
    block("umc", "device memory", MEMORY),
    block("gfx", "the compute units and their caches", WRONG),
    block("sdma", "the copy engines", WRONG),
    block("mmhub", "the memory hub", WRONG),
    block("athub", "the address translation", WRONG),
    block("pcie_bif", "the PCIe interface", BUS),
    block("hdp", "the data path to the host", BUS),
    block("xgmi_wafl", "the links to other GPUs", LINK),
    block("df", "the data fabric", WRONG),
    block("smn", "the management network", CONTROL),
    block("sem", "the semaphores", CONTROL),
    block("mp0", "the security processor", WRONG),
    block("mp1", "the power controller", WRONG),
    block("fuse", "the fuses", CONTROL),
    block("mca", "the machine check unit", WRONG),
    block("vcn", "the video engines", WRONG),
    block("jpeg", "the JPEG engines", WRONG),
    block("ih", "the interrupt handler", CONTROL),
    block("mpio", "the I/O processor", BUS),
];

const fn block(name: &'static str, words: &'static str, remedy: &'static str) -> RasBlock {
    RasBlock { name, words, remedy }
}

/// The blocks of GPUs with errors beyond correction, by GPU: name and count.
#[derive(Debug, Default)]
pub struct RasBlocks {
    asked_ns: Option<i64>,
    asked: Vec<Arc<str>>,
    gpus: NewestDetails,
}

impl RasBlocks {
    /// What to ask the history for the blocks of those that have errors; none: nobody has, or they are known.
    pub fn next_query(&mut self, gpus: &[Arc<GpuState>], fresh: Freshness) -> Option<RowsQuery> {
        let has_errors =
            |gpu: &&Arc<GpuState>| fresh.recent(gpu, UNCORRECTED).is_some_and(|errors| errors.as_f64() > 0.0);
        let gpus: Vec<Arc<str>> =
            gpus.iter().filter(has_errors).take(GPUS_MAX).map(|gpu| Arc::clone(&gpu.key)).collect();
        self.gpus.retain(|gpu, _| gpus.contains(gpu));
        let is_new = gpus.iter().any(|gpu| !self.gpus.contains_key(gpu));
        let is_due =
            self.asked_ns.is_none_or(|asked_ns| is_new || fresh.now_ns.saturating_sub(asked_ns) >= EVERY_NS);
        if gpus.is_empty() || !is_due {
            return None;
        }
        self.asked_ns = Some(fresh.now_ns);
        self.asked.clone_from(&gpus);
        Some(details::query(gpus, fresh.now_ns, ROWS_MAX))
    }

    /// Takes the answer: rows of details, the newest first, if there are any.
    pub fn take(&mut self, batch: Option<&Batch>) {
        // Some never have any: they are not asked for with every judgement.
        for gpu in self.asked.drain(..) {
            self.gpus.entry(gpu).or_default();
        }
        self.gpus.extend(batch.map(|batch| details::newest(batch, UNCORRECTED)).unwrap_or_default());
    }

    /// Where the errors of a GPU are, in words, and what to do about the block with most of them.
    pub(super) fn of(&self, gpu: &str) -> Option<(String, Option<&'static str>)> {
        let mut blocks: Vec<(&Arc<str>, f64)> =
            self.gpus.get(gpu)?.iter().map(|(name, count)| (name, *count)).collect();
        blocks.retain(|(_, count)| *count > 0.0);
        blocks.sort_by(|a, b| b.1.total_cmp(&a.1));
        let known = |name: &str| {
            let plain = name.strip_prefix("aca_").unwrap_or(name);
            BLOCKS.iter().find(|block| block.name == plain)
        };
        let words: Vec<String> = blocks
            .iter()
            .map(|(name, _)| {
                known(name).map_or_else(|| name.to_string(), |block| format!("{} ({name})", block.words))
            })
            .collect();
        let remedy = blocks.first().and_then(|(name, _)| known(name)).map(|block| block.remedy);
        (!words.is_empty()).then(|| (words.join(" and "), remedy))
    }
}
