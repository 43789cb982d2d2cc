//! What the compute driver tells of its processes: `class/kfd/kfd/proc/<pid>/`.

use std::path::Path;

use super::listing::numbers;
use crate::dialect::amd_sysfs::{KfdNode, read_topology};
use crate::machine::PinnedFile;

/// Processes looked at.
const PIDS_MAX: usize = 4096;

/// A GPU, or a partition of one, with the number that the files of a process carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gpu {
    /// `gpu_id` of its node.
    pub(super) id: u64,
    pub(super) node: KfdNode,
}

/// The GPUs of the compute driver.
pub(super) fn gpus(sysfs: &Path) -> Vec<Gpu> {
    let nodes = read_topology(sysfs).into_iter();
    nodes
        .filter_map(|node| {
            let path = sysfs.join(format!("class/kfd/kfd/topology/nodes/{}/gpu_id", node.node));
            Some(Gpu { id: number(&path)?, node })
        })
        .collect()
}

/// Device memory of each compute process on each GPU, bytes. A process has a file for every GPU there is; 0 means that it
/// does not use it. Who ends meanwhile is not there.
pub(super) fn memory(sysfs: &Path, gpus: &[Gpu]) -> Vec<(u32, u64, u64)> {
    let folder = sysfs.join("class/kfd/kfd/proc");
    let mut held = Vec::new();
    for pid in numbers(&folder, PIDS_MAX).unwrap_or_default() {
        for gpu in gpus {
            let vram = number(&folder.join(format!("{pid}/vram_{}", gpu.id)));
            held.extend(vram.filter(|bytes| *bytes > 0).map(|bytes| (pid, gpu.id, bytes)));
        }
    }
    held
}

fn number(path: &Path) -> Option<u64> {
    PinnedFile::open(path).ok()?.read_text().ok()?.parse().ok()
}
