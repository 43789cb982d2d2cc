//! The compute driver's (KFD) view of the GPUs and of the links between them: `class/kfd/kfd/topology/nodes/<n>/properties`
//! and `io_links/<m>/properties` below.

use std::fs;
use std::path::Path;

use super::parse;
use crate::machine::PinnedFile;

/// Nodes looked at: a machine has some ten, with every GPU divided some seventy.
const NODES_MAX: usize = 1024;
/// Links of a node looked at.
const LINKS_MAX: usize = 256;
/// KFD's number for AMD.
const VENDOR: u64 = 0x1002;
/// KFD's number for an xGMI link.
const XGMI: u64 = 11;

/// A GPU of the compute driver: a whole one, or a partition of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KfdNode {
    /// Number of the node; compute libraries count GPUs in this order.
    pub node: u32,
    /// PCI address by `domain` and `location_id`. In partition mode the function (last digit) is the number of the
    /// partition, and the PCI device itself is function 0.
    pub address: String,
    /// Minor number of its render node, from 128 on.
    pub render_minor: Option<u32>,
    /// Instruction set, as major, minor, stepping in decimal pairs: 90402 is gfx942, 90010 is gfx90a; none if the kernel
    /// gives none.
    pub gfx_version: Option<u32>,
    /// Nodes that an xGMI link leads to.
    pub linked: Vec<u32>,
}

impl KfdNode {
    /// Address of the PCI device of which it may be a partition.
    pub fn whole(&self) -> String {
        let bare = self.address.rsplit_once('.').map_or(self.address.as_str(), |(bare, _)| bare);
        format!("{bare}.0")
    }
}

/// Reads the GPUs of the compute driver, in its order. Without the driver the list is empty.
pub fn read_topology(sysfs: &Path) -> Vec<KfdNode> {
    let folders = [sysfs.join("class/kfd/kfd/topology/nodes"), sysfs.join("kfd/topology/nodes")];
    let Some(entries) = folders.iter().find_map(|folder| fs::read_dir(folder).ok()) else {
        return Vec::new();
    };
    let mut nodes: Vec<KfdNode> = entries
        .take(NODES_MAX)
        .flatten()
        .filter_map(|entry| read_node(entry.file_name().to_str()?.parse().ok()?, &entry.path()))
        .collect();
    nodes.sort_by_key(|node| node.node);
    nodes
}

fn read_node(node: u32, folder: &Path) -> Option<KfdNode> {
    let mut file = PinnedFile::open(&folder.join("properties")).ok()?;
    let text = file.read_text().ok()?;
    let value =
        |wanted: &str| parse::properties(text).find(|(key, _)| *key == wanted).map(|(_, value)| value);
    let is_gpu = value("simd_count").is_some_and(|count| count > 0) && value("vendor_id") == Some(VENDOR);
    let location = value("location_id").filter(|_| is_gpu)?;
    // A node without its PCI domain could be any of several cards.
    let domain = value("domain")?;
    let (bus, device, function) = ((location >> 8) & 0xff, (location >> 3) & 0x1f, location & 7);
    let number = |wanted: &str| value(wanted).and_then(|value| u32::try_from(value).ok());
    Some(KfdNode {
        node,
        address: format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"),
        render_minor: number("drm_render_minor").filter(|&minor| minor >= 128),
        gfx_version: number("gfx_target_version").filter(|&version| version > 0),
        linked: read_links(folder),
    })
}

fn read_links(node: &Path) -> Vec<u32> {
    let Ok(links) = fs::read_dir(node.join("io_links")) else { return Vec::new() };
    let end = |link: &Path| {
        let mut file = PinnedFile::open(&link.join("properties")).ok()?;
        let text = file.read_text().ok()?;
        let value =
            |wanted: &str| parse::properties(text).find(|(key, _)| *key == wanted).map(|(_, value)| value);
        (value("type") == Some(XGMI)).then(|| u32::try_from(value("node_to")?).ok())?
    };
    links.take(LINKS_MAX).flatten().filter_map(|link| end(&link.path())).collect()
}
