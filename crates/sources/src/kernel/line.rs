//! A line of the kernel that is about GPUs, or about what they need.

use crate::machine::Machine;

/// What a line tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KernelKind {
    /// NVIDIA's driver reports an XID.
    Xid,
    /// A GPU is off the bus.
    Lost,
    /// A GPU is reset, or was.
    Reset,
    /// Work on a GPU did not end in time.
    Timeout,
    /// A block of an AMD GPU counts errors.
    Ras,
    /// An error of PCI Express.
    Aer,
    /// A link of PCI Express went down, came up, or is slower than it could be.
    Link,
    /// The processor or its memory reports an error.
    MachineCheck,
    /// A process was killed because memory was short.
    OutOfMemory,
}

impl KernelKind {
    /// Every kind, for those that count by kind.
    pub const ALL: [Self; 9] = [
        Self::Xid,
        Self::Lost,
        Self::Reset,
        Self::Timeout,
        Self::Ras,
        Self::Aer,
        Self::Link,
        Self::MachineCheck,
        Self::OutOfMemory,
    ];

    /// Its name in logs and labels.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xid => "xid",
            Self::Lost => "lost",
            Self::Reset => "reset",
            Self::Timeout => "timeout",
            Self::Ras => "ras",
            Self::Aer => "aer",
            Self::Link => "link",
            Self::MachineCheck => "machine_check",
            Self::OutOfMemory => "out_of_memory",
        }
    }

    /// Whether it is said of the bridges above a device, too.
    pub fn is_of_path(self) -> bool {
        matches!(self, Self::Aer | Self::Link)
    }
}

/// A line of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelLine {
    /// When it came, nanoseconds UTC since 1970.
    pub at_ns: i64,
    /// What it tells of.
    pub kind: KernelKind,
    /// Address of the PCI device that it is about, `0000:3b:00.0`; NVIDIA's XIDs leave out the function.
    pub device: Option<String>,
    /// The number of an XID.
    pub code: Option<i64>,
    /// Whether it tells of something that just happened and cannot be put right by itself.
    pub is_grave: bool,
    /// The line, without control characters, at most 1 KiB.
    pub text: String,
}

impl KernelLine {
    /// Whether it is about the device at this address.
    pub fn is_about(&self, pci: &str) -> bool {
        let rest = self.device.as_deref().and_then(|device| pci.strip_prefix(device));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

/// The addresses of the bridges between a device and the processor.
pub fn bridges_of(machine: &Machine, pci: &str) -> Vec<String> {
    let Some(pci) = address_of(pci) else { return Vec::new() };
    let link = machine.sysfs.join("bus/pci/devices").join(&pci);
    let Ok(target) = std::fs::read_link(link) else { return Vec::new() };
    let on_the_way = target.iter().filter_map(|part| address_of(part.to_str()?));
    on_the_way.filter(|address| *address != pci).collect()
}

/// The PCI address that a text begins with.
pub(super) fn address_at(text: &str) -> Option<String> {
    text.split(|c: char| !(c.is_ascii_hexdigit() || c == ':' || c == '.')).next().and_then(address_of)
}

/// A PCI address as identities have it: four digits of the domain, small letters; the function may be missing.
pub(super) fn address_of(text: &str) -> Option<String> {
    let text = text.trim_matches([':', '.']);
    let (slot, function) = text.split_once('.').map_or((text, None), |(slot, rest)| (slot, Some(rest)));
    let mut parts = slot.split(':');
    let (domain, bus, device) = (parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_one = parts.next().is_none()
        && [domain, bus, device].into_iter().chain(function).all(is_hex)
        && matches!(domain.len(), 4 | 8)
        && (bus.len(), device.len()) == (2, 2)
        && function.is_none_or(|function| function.len() == 1);
    let domain = domain.strip_prefix("0000").filter(|rest| rest.len() == 4).unwrap_or(domain);
    let function = function.map_or_else(String::new, |function| format!(".{function}"));
    is_one.then(|| format!("{domain}:{bus}:{device}{function}").to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_identities_have_it() {
        for (text, wanted) in [
            ("0000:CB:00", Some("0000:cb:00")),
            ("0000:08:00.0: amdgpu: BACO reset", Some("0000:08:00.0")),
            ("0000:02:05.0:pcie24: slot(6): Link Down event", Some("0000:02:05.0")),
            ("00000000:3B:00.0", Some("0000:3b:00.0")),
            ("00010000:3B:00.0", Some("00010000:3b:00.0")),
            ("GPU 0000:09:00.0", None),
            ("1022:1453", None),
            ("0000:08:[4563]: segfault", None),
            ("0000:zz:00.0", None),
            ("0000:00:00:11", None),
            ("", None),
        ] {
            assert_eq!(address_at(text).as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn a_line_without_a_function_is_about_the_whole_slot() {
        let line = |device: &str| KernelLine {
            at_ns: 0,
            kind: KernelKind::Xid,
            device: Some(device.to_owned()),
            code: None,
            is_grave: true,
            text: String::new(),
        };
        assert!(line("0000:3b:00").is_about("0000:3b:00.0"));
        assert!(line("0000:3b:00.0").is_about("0000:3b:00.0"));
        assert!(!line("0000:3b:00.1").is_about("0000:3b:00.0"));
        assert!(!line("0000:3b:0").is_about("0000:3b:00.0"));
    }

    #[test]
    fn the_bridges_above_a_device_stand_in_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine { sysfs: folder.path().to_owned(), ..Machine::local("n1") };
        let devices = folder.path().join("bus/pci/devices");
        std::fs::create_dir_all(&devices).unwrap();
        let path = "../../../devices/pci0000:00/0000:00:02.0/0000:01:00.0/0000:02:00.0";
        std::os::unix::fs::symlink(path, devices.join("0000:02:00.0")).unwrap();
        assert_eq!(bridges_of(&machine, "0000:02:00.0"), ["0000:00:02.0", "0000:01:00.0"]);
        assert_eq!(bridges_of(&machine, "0000:03:00.0"), [""; 0]);
        assert_eq!(bridges_of(&machine, "../../etc"), [""; 0]);
    }
}
