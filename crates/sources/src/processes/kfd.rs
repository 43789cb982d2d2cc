//! Processes of the compute driver: `class/kfd/kfd/proc/<pid>/`.

use std::io;
use std::path::Path;

use super::listing::numbers;
use crate::dialect::amd_sysfs::{KfdNode, read_topology};
use crate::machine::PinnedFile;

/// Processes looked at.
const PIDS_MAX: usize = 4096;

/// A GPU, or a partition of one, with the number that the files of a process carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KfdGpu {
    /// `gpu_id` of its node.
    pub(super) id: u64,
    pub(super) node: KfdNode,
}

/// The GPUs of the compute driver.
pub(super) fn gpus(sysfs: &Path) -> Vec<KfdGpu> {
    let nodes = read_topology(sysfs).into_iter();
    nodes
        .filter_map(|node| {
            let path = sysfs.join(format!("class/kfd/kfd/topology/nodes/{}/gpu_id", node.node));
            Some(KfdGpu { id: number(&path).ok()?, node })
        })
        .collect()
}

/// Device memory of each compute process on each GPU, bytes. A process has a file for every GPU; 0 means that it does not
/// use that GPU. A process that ends meanwhile is left out.
///
/// # Errors
/// When the list or a file of a process that runs cannot be read. Without GPUs of the compute driver nothing is read.
pub(super) fn memory(sysfs: &Path, gpus: &[KfdGpu]) -> io::Result<Vec<(u32, u64, u64)>> {
    let folder = sysfs.join("class/kfd/kfd/proc");
    let mut held = Vec::new();
    if gpus.is_empty() {
        return Ok(held);
    }
    for pid in numbers(&folder, PIDS_MAX)? {
        for gpu in gpus {
            match number(&folder.join(format!("{pid}/vram_{}", gpu.id))) {
                Ok(bytes) if bytes > 0 => held.push((pid, gpu.id, bytes)),
                Ok(_) => {}
                Err(_) if !folder.join(pid.to_string()).exists() => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(held)
}

/// Compute units that the waves of a process fill on a GPU at the moment; none where the kernel does not say it: before 5.10, and for GPUs
/// before Vega.
pub(super) fn compute_units(sysfs: &Path, pid: u32, gpu_id: u64) -> Option<i64> {
    let path = sysfs.join(format!("class/kfd/kfd/proc/{pid}/stats_{gpu_id}/cu_occupancy"));
    number(&path).ok().and_then(|units| i64::try_from(units).ok())
}

fn number(path: &Path) -> io::Result<u64> {
    PinnedFile::open(path)?.read_text()?.parse().map_err(io::Error::other)
}
