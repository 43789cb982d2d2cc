//! The kernel's record of an open file of a GPU: `/proc/<pid>/fdinfo/<fd>`, if it has the keys that all DRM
//! drivers share.
//!
//! Lines `key:<tab>value`. Memory has two generations of keys (`drm-resident-vram`, before 6.11
//! `drm-memory-vram`) with `KiB`, `MiB` or no unit after the number; both may be there, with equal values. An
//! engine that was never used has no line.

use std::collections::BTreeMap;

use crate::dialect::amd_sysfs::is_pci_address;

/// Engines kept of one client; amdgpu has some ten names.
const ENGINES_MAX: usize = 64;

/// A client of the GPU's driver: one opening of a device file, with all its duplicates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrmClient {
    /// PCI address of the GPU; the kernel gives none for partitions after the first.
    pub pci: Option<String>,
    /// Number that no two clients of a GPU have.
    pub id: u64,
    /// Device memory it holds, bytes.
    pub vram_bytes: Option<u64>,
    /// By the kernel's names: `gfx`, `compute`, `dma`, `dec`, `enc`, `enc_1`, `jpeg`.
    pub engines: BTreeMap<String, Engine>,
}

/// A client's use of engines of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Engine {
    /// Time it kept them busy since it was opened, nanoseconds.
    pub busy_ns: u64,
    /// Number of such engines of the GPU.
    pub capacity: u64,
}

impl Default for Engine {
    fn default() -> Self {
        Self { busy_ns: 0, capacity: 1 }
    }
}

/// Reads one record. None if it is not a client of amdgpu, or one without a number.
pub fn parse_fdinfo(text: &str) -> Option<DrmClient> {
    let mut client = DrmClient { pci: None, id: 0, vram_bytes: None, engines: BTreeMap::new() };
    let (mut is_amdgpu, mut has_id) = (false, false);
    let (mut memory, mut total) = (None, None);
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match key.trim() {
            "drm-driver" => is_amdgpu = value == "amdgpu",
            "drm-pdev" if is_pci_address(value) => client.pci = Some(value.to_ascii_lowercase()),
            "drm-client-id" => {
                client.id = value.parse().ok()?;
                has_id = true;
            }
            "drm-resident-vram" => client.vram_bytes = bytes(value),
            "drm-memory-vram" => memory = bytes(value),
            "drm-total-vram" => total = bytes(value),
            key => engine(key, value, &mut client.engines),
        }
    }
    client.vram_bytes = client.vram_bytes.or(memory).or(total);
    (is_amdgpu && has_id).then_some(client)
}

/// `drm-engine-gfx: 39456116802 ns` and `drm-engine-capacity-enc: 2`.
fn engine(key: &str, value: &str, engines: &mut BTreeMap<String, Engine>) {
    let Some(name) = key.strip_prefix("drm-engine-") else { return };
    let (name, is_capacity) = match name.strip_prefix("capacity-") {
        Some(name) => (name, true),
        None => (name, false),
    };
    if name.is_empty() || (engines.len() >= ENGINES_MAX && !engines.contains_key(name)) {
        return;
    }
    if is_capacity {
        if let Some(capacity) = value.parse().ok().filter(|capacity| *capacity > 0) {
            engines.entry(name.to_owned()).or_default().capacity = capacity;
        }
    } else if let Some(busy_ns) = value.strip_suffix("ns").and_then(|number| number.trim_end().parse().ok()) {
        engines.entry(name.to_owned()).or_default().busy_ns = busy_ns;
    }
}

/// `544428 KiB`, `22 MiB`, `0`.
fn bytes(value: &str) -> Option<u64> {
    let mut words = value.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    let shift = match words.next() {
        None => 0,
        Some("KiB" | "kB") => 10,
        Some("MiB") => 20,
        Some("GiB") => 30,
        Some(_) => return None,
    };
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_many_units_and_no_unit() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(bytes(text), expected, "{text:?}");
        check("544428 KiB", Some(544_428 << 10));
        check("22 MiB", Some(22 << 20));
        check("3 GiB", Some(3 << 30));
        check("0", Some(0));
        check("17 pages", None);
        check("", None);
        check("-1 KiB", None);
        check("18446744073709551615 KiB", None);
    }
}
