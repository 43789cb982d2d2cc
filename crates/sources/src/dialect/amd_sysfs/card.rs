//! The AMD GPUs of a machine, and their identities. Names and addresses only: no sensor is touched, so a
//! sleeping GPU keeps sleeping.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpuvitals_core::{Identity, IdentityColumn};

use super::parse::{self, Uevent};
use super::topology::{KfdNode, read_topology};
use crate::machine::{Machine, PinnedFile};
use crate::probe::Driver;

/// PCI vendor id.
const VENDOR: u32 = 0x1002;
/// Marketing names, for machines without libdrm's list.
const NAMES: &str = include_str!("amdgpu.ids");
/// Cards looked at.
const CARDS_MAX: usize = 256;

/// An AMD GPU with a kernel driver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Card {
    /// DRM name, `card0`, or the PCI address if it has no DRM node. Changes between boots.
    pub name: String,
    /// Place among the AMD GPUs, in the order of DRM cards.
    pub index: i32,
    /// Its device folder, with `gpu_metrics`, `hwmon`, `pp_dpm_*`.
    pub device: PathBuf,
    /// PCI address, `0000:0c:00.0`; none of a device that is not on that bus.
    pub pci: Option<String>,
    /// PCI device id.
    pub device_id: Option<u32>,
    /// Kernel driver: `amdgpu`, or `radeon` on cards from before 2012.
    pub driver: Option<String>,
    /// Version of amdgpu if it differs from the kernel's own, else the kernel's release.
    pub driver_version: Option<String>,
    /// Unique id of the chip, 16 hexadecimal digits; none on APUs and old cards, and none if two cards have
    /// the same.
    pub unique_id: Option<String>,
    /// Marketing name, else the device id in words.
    pub model: String,
    /// Version of the video BIOS.
    pub vbios: Option<String>,
    /// Its nodes of the compute driver: one, in partition mode one a partition.
    pub kfd: Vec<KfdNode>,
    /// PCI addresses of the GPUs that xGMI links lead to, in their order.
    pub linked: Vec<Arc<str>>,
}

impl Card {
    /// The identity of a row read by `source`; of a partition, or of the whole GPU.
    pub fn identity(&self, machine: &Machine, source: Driver, partition: Option<&str>) -> Identity {
        let mut identity = Identity::default();
        identity.index = Some(self.index);
        let texts = [
            (IdentityColumn::Node, Some(&*machine.node)),
            (IdentityColumn::Vendor, Some("amd")),
            (IdentityColumn::Source, Some(source.as_str())),
            (IdentityColumn::Model, Some(self.model.as_str())),
            (IdentityColumn::Pci, self.pci.as_deref()),
            (IdentityColumn::Uuid, self.unique_id.as_deref()),
            (IdentityColumn::Driver, self.driver_version.as_deref()),
            (IdentityColumn::Vbios, self.vbios.as_deref()),
            (IdentityColumn::Partition, partition),
        ];
        for (column, text) in texts {
            // A text that cannot be one is left out: a row is worth more than a label.
            let _refused = text.map(|text| identity.set(column, text));
        }
        if identity.resolve().is_err() {
            // A node's name that leaves no place for the address beside it.
            let _set = identity.set(IdentityColumn::Uuid, self.pci.as_deref().unwrap_or(&self.name));
        }
        identity
    }

    /// The name of its partitions without their number: its mode, `cpx`.
    pub fn partition_word(&self) -> String {
        let mode = read_text(&self.device.join("current_compute_partition"));
        let mode = mode.map(|mode| mode.to_ascii_lowercase());
        let mode = mode.filter(|mode| mode.bytes().all(|b| b.is_ascii_alphanumeric()) && mode.len() <= 8);
        mode.unwrap_or_else(|| "xcp".to_owned())
    }

    fn gfx_version(&self) -> Option<u32> {
        self.kfd.first()?.gfx_version
    }

    /// Whether it is an MI100 or later, by its instruction set, else by its device id.
    pub(super) fn is_instinct(&self) -> bool {
        let by_set = self.gfx_version().map(|version| matches!(version, 90_008 | 90_010 | 90_400..100_000));
        by_set.unwrap_or_else(|| {
            self.device_id.is_some_and(
                |id| matches!(id, 0x7388..=0x738f | 0x7400..=0x741f | 0x74a0..=0x74bf | 0x75a0..=0x75bf),
            )
        })
    }

    /// Whether the kernel sleeps for up to seconds when it is asked for the power: Bonaire, Hawaii, Tonga, Fiji.
    pub(super) fn is_power_slow(&self) -> bool {
        self.device_id.is_some_and(
            |id| matches!(id, 0x6640..=0x665f | 0x67a0..=0x67bf | 0x6920..=0x693f | 0x7300..=0x730f),
        )
    }

    /// Its name for people: `card0 (0000:0c:00.0)`.
    pub fn subject(&self) -> String {
        match &self.pci {
            Some(pci) if *pci != self.name => format!("{} ({pci})", self.name),
            _ => self.name.clone(),
        }
    }

    /// Its render nodes, `/dev/dri/renderD128`: one, in partition mode one a partition.
    pub fn render_nodes(&self, machine: &Machine) -> Vec<PathBuf> {
        let mut minors: Vec<u32> = self.kfd.iter().filter_map(|node| node.render_minor).collect();
        for name in names(&self.device.join("drm")) {
            minors.extend(name.strip_prefix("renderD").and_then(|minor| minor.parse::<u32>().ok()));
        }
        minors.sort_unstable();
        minors.dedup();
        minors.into_iter().map(|minor| machine.dev.join(format!("dri/renderD{minor}"))).collect()
    }
}

/// Finds the AMD GPUs: DRM cards in their order, then devices of amdgpu without a DRM card. A capture that has its
/// `card0` at the top, without `class/drm`, is understood as well.
pub fn cards(machine: &Machine) -> Vec<Card> {
    let drm = machine.sysfs.join("class/drm");
    let drm = if drm.is_dir() { drm } else { machine.sysfs.clone() };
    let mut places: Vec<(u32, String)> = names(&drm)
        .into_iter()
        .filter_map(|name| Some((name.strip_prefix("card")?.parse().ok()?, name)))
        .collect();
    places.sort_unstable();
    let shared = SharedFacts::read(machine);
    let mut found: Vec<Card> = places
        .into_iter()
        .filter_map(|(_, name)| shared.card(drm.join(&name).join("device"), name))
        .collect();
    let bound = machine.sysfs.join("bus/pci/drivers/amdgpu");
    for address in names(&bound).into_iter().filter(|name| parse::is_pci_address(name)) {
        if found.iter().all(|card| card.pci.as_deref() != Some(&address)) {
            found.extend(shared.card(bound.join(&address), address));
        }
    }
    found.truncate(CARDS_MAX);
    let twice: Vec<bool> = found
        .iter()
        .map(|card| {
            card.unique_id.is_some()
                && found.iter().filter(|other| other.unique_id == card.unique_id).count() > 1
        })
        .collect();
    let addresses: Vec<Option<String>> = found.iter().map(|card| card.pci.clone()).collect();
    for ((card, index), twice) in found.iter_mut().zip(0..).zip(twice) {
        card.index = index;
        card.unique_id = card.unique_id.take().filter(|_| !twice);
        card.kfd = shared.nodes_of(card.pci.as_deref(), &addresses);
        card.linked = shared.linked_to(&card.kfd, &addresses);
    }
    found
}

/// AMD display and compute devices of the PCI bus that no graphics driver has: address, and which driver has them.
pub(super) fn unbound(machine: &Machine) -> Vec<(String, Option<String>)> {
    let bus = machine.sysfs.join("bus/pci/devices");
    let addresses = names(&bus).into_iter().filter(|name| parse::is_pci_address(name));
    addresses
        .filter_map(|address| {
            let device = bus.join(&address);
            let class = read_text(&device.join("class")).as_deref().and_then(parse::parse_hex)?;
            let is_gpu = matches!(class >> 16, 0x03 | 0x12)
                && read_text(&device.join("vendor")).as_deref().and_then(parse::parse_hex) == Some(VENDOR);
            let driver = link_name(&device.join("driver"));
            (is_gpu
                && !matches!(driver.as_deref(), Some("amdgpu" | "radeon"))
                && !device.join("drm").is_dir())
            .then_some((address, driver))
        })
        .collect()
}

/// Files read once for all cards.
struct SharedFacts {
    driver_version: Option<String>,
    names: Option<String>,
    kfd: Vec<KfdNode>,
}

impl SharedFacts {
    fn read(machine: &Machine) -> Self {
        let release = || {
            let path = machine.procfs.join("sys/kernel/osrelease");
            (!machine.has_foreign_procfs()).then(|| read_text(&path)).flatten()
        };
        // Beside /sys, so that a captured tree is named by its own list.
        let names = machine.sysfs.parent().map(|root| root.join("usr/share/libdrm/amdgpu.ids"));
        Self {
            driver_version: read_text(&machine.sysfs.join("module/amdgpu/version")).or_else(release),
            names: names.and_then(|path| read_text(&path)),
            kfd: read_topology(&machine.sysfs),
        }
    }

    fn card(&self, device: PathBuf, name: String) -> Option<Card> {
        let uevent = read_text(&device.join("uevent")).unwrap_or_default();
        let Uevent { driver, pci_id, .. } = parse::parse_uevent(&uevent);
        let hex = |file: &str| read_text(&device.join(file)).as_deref().and_then(parse::parse_hex);
        let vendor = hex("vendor").or(pci_id.map(|(vendor, _)| vendor));
        // A capture may lack both; its hardware monitor names the driver.
        let by_monitor = || read_text(&hwmon(&device)?.join("name")).filter(|name| name == "amdgpu");
        if vendor.map_or_else(|| by_monitor().is_none(), |vendor| vendor != VENDOR) {
            return None;
        }
        let device_id = hex("device").or(pci_id.map(|(_, device)| device));
        let marketing = || {
            let (device, revision) = (device_id?, hex("revision")?);
            // The machine's list may be newer than ours.
            let mut lists = self.names.as_deref().into_iter().chain([NAMES]);
            lists.find_map(|list| parse::parse_marketing_name(list, device, revision)).map(str::to_owned)
        };
        let words = || device_id.map_or_else(|| "AMD GPU".to_owned(), |id| format!("AMD GPU 0x{id:04x}"));
        Some(Card {
            index: 0,
            pci: address(&device),
            device_id,
            driver: driver.map(str::to_owned).or_else(|| link_name(&device.join("driver"))),
            driver_version: self.driver_version.clone(),
            unique_id: read_text(&device.join("unique_id")).filter(|id| is_unique_id(id)),
            model: read_text(&device.join("product_name")).or_else(marketing).unwrap_or_else(words),
            vbios: read_text(&device.join("vbios_version")),
            kfd: Vec::new(),
            linked: Vec::new(),
            name,
            device,
        })
    }

    /// The nodes of a card.
    fn nodes_of(&self, pci: Option<&str>, cards: &[Option<String>]) -> Vec<KfdNode> {
        let Some(pci) = pci else { return Vec::new() };
        self.kfd.iter().filter(|node| device_of(node, cards) == pci).cloned().collect()
    }

    /// Addresses of the other devices that links of a card's nodes lead to.
    fn linked_to(&self, its: &[KfdNode], cards: &[Option<String>]) -> Vec<Arc<str>> {
        let is_end = |node: &&KfdNode| {
            its.iter().any(|from| from.linked.contains(&node.node))
                && !its.iter().any(|own| own.node == node.node)
        };
        let mut ends: Vec<Arc<str>> =
            self.kfd.iter().filter(is_end).map(|node| device_of(node, cards).into()).collect();
        ends.sort_unstable();
        ends.dedup();
        ends
    }
}

/// Address of the device that a node is, or is a partition of. A node whose exact address a card has is that card's (also a
/// virtual function); otherwise its function is a partition's number.
fn device_of(node: &KfdNode, cards: &[Option<String>]) -> String {
    let is_card = cards.iter().any(|card| card.as_deref() == Some(&node.address));
    if is_card { node.address.clone() } else { node.whole() }
}

fn is_unique_id(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit()) && text.bytes().any(|b| b != b'0')
}

/// PCI address of the device in this folder, from the kernel, else from the folder's real path.
pub fn address(device: &Path) -> Option<String> {
    let uevent = read_text(&device.join("uevent")).unwrap_or_default();
    parse::parse_uevent(&uevent).slot.map(str::to_lowercase).or_else(|| address_of(device))
}

fn address_of(device: &Path) -> Option<String> {
    let real = device.canonicalize().ok()?;
    let name = real.file_name().and_then(OsStr::to_str).filter(|name| parse::is_pci_address(name))?;
    Some(name.to_owned())
}

fn link_name(link: &Path) -> Option<String> {
    fs::read_link(link).ok()?.file_name().and_then(OsStr::to_str).map(str::to_owned)
}

/// The folder of a device's own hardware monitor.
pub(super) fn hwmon(device: &Path) -> Option<PathBuf> {
    let folder = device.join("hwmon");
    names(&folder).into_iter().find(|name| name.starts_with("hwmon")).map(|name| folder.join(name))
}

/// Names in a folder, sorted; none if it is missing.
pub(super) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> =
        entries.take(4096).flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

/// A small text, without blanks around it; none if it is missing, empty or unreadable.
pub(super) fn read_text(path: &Path) -> Option<String> {
    let read = || -> io::Result<String> { Ok(PinnedFile::open(path)?.read_text()?.to_owned()) };
    read().ok().filter(|text| !text.is_empty())
}
