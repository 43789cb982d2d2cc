//! The one table of what the kernel's lines look like. `fixtures/kernel/lines.txt` has real ones, each with where it was published.

use super::line::{KernelKind, KernelLine, address_at, address_of};
use super::record::KernelRecord;

/// A kind of line.
struct LinePattern {
    kind: KernelKind,
    /// How it begins: by one of these. After `@` comes a PCI address: a line may begin with the name of a program, and end with that of a
    /// file, but neither has room for both.
    begins: &'static [&'static str],
    /// What stands in it, in any place.
    has: &'static [&'static str],
    /// What does not stand in it.
    lacks: &'static [&'static str],
    is_grave: bool,
}

const AMD: &[&str] = &["amdgpu @", "amdgpu: ", "[drm:amdgpu"];
/// Drivers of GPUs, as they speak of their device on the bus.
const DRIVERS: &[&str] = &["nvidia @", "amdgpu @"];
/// These, and drivers of bridges.
const BUS: &[&str] = &["pcieport @", "pciehp @", "pci @", "nvidia @", "amdgpu @"];
const MACHINE: &[&str] = &["mce: [Hardware Error]", "[Hardware Error]", "{", "EDAC "];
const KILLED: &[&str] = &["Out of memory: Kill", "Memory cgroup out of memory: Kill", "oom-kill:constraint="];

/// The first that fits counts.
const PATTERNS: &[LinePattern] = &[
    grave(KernelKind::Xid, &["NVRM: Xid ("], &[]),
    grave(
        KernelKind::Lost,
        &["NVRM: GPU @", "NVRM: GPU at @", "NVRM: The NVIDIA GPU @"],
        &["fallen off the bus"],
    ),
    grave(KernelKind::Lost, AMD, &["device lost from bus"]),
    // The kernel cannot wake it, as nothing answers on the bus.
    grave(KernelKind::Lost, DRIVERS, &["change power state", "inaccessible"]),
    grave(KernelKind::Ras, AMD, &["uncorrectable hardware error("]),
    // Without "new" it is a count since the driver's start, which is written again whenever somebody reads it.
    grave(KernelKind::Ras, AMD, &["new uncorrectable hardware errors detected"]),
    LinePattern {
        lacks: &["no uncorrectable", "no correctable"],
        ..mild(KernelKind::Ras, AMD, &["correctable hardware errors detected"])
    },
    mild(KernelKind::Ras, AMD, &["deferred hardware errors detected"]),
    mild(KernelKind::Ras, AMD, &["[Hardware Error]"]),
    grave(KernelKind::Timeout, AMD, &["ring ", " timeout"]),
    grave(KernelKind::Reset, AMD, &["GPU reset begin"]),
    grave(KernelKind::Reset, AMD, &["reset", "failed"]),
    grave(KernelKind::Reset, AMD, &["GPU reset end with ret = -"]),
    mild(KernelKind::Reset, AMD, &["reset"]),
    grave(KernelKind::Aer, BUS, &["PCIe Bus Error: severity=Uncorrect"]),
    grave(KernelKind::Aer, BUS, &["DPC: containment event"]),
    mild(KernelKind::Aer, BUS, &["PCIe Bus Error: "]),
    mild(KernelKind::Aer, BUS, &["AER: "]),
    grave(KernelKind::Link, BUS, &["lot(", "Link Down"]),
    grave(KernelKind::Link, BUS, &["lot(", "Card not present"]),
    mild(KernelKind::Link, BUS, &["lot(", "Link Up"]),
    mild(KernelKind::Link, BUS, &["available PCIe bandwidth, limited by"]),
    grave(KernelKind::MachineCheck, MACHINE, &["[Hardware Error]", "severity: fatal"]),
    mild(KernelKind::MachineCheck, MACHINE, &["[Hardware Error]"]),
    mild(KernelKind::MachineCheck, MACHINE, &["EDAC ", " memory "]),
    mild(KernelKind::OutOfMemory, KILLED, &[]),
    mild(KernelKind::OutOfMemory, &["Killed process "], &["total-vm:"]),
];

const fn mild(
    kind: KernelKind,
    begins: &'static [&'static str],
    has: &'static [&'static str],
) -> LinePattern {
    LinePattern { kind, begins, has, lacks: &[], is_grave: false }
}

const fn grave(
    kind: KernelKind,
    begins: &'static [&'static str],
    has: &'static [&'static str],
) -> LinePattern {
    LinePattern { is_grave: true, ..mild(kind, begins, has) }
}

impl LinePattern {
    fn fits(&self, text: &str) -> bool {
        let is_begin = |begin: &&str| match begin.strip_suffix('@') {
            Some(_) => address_after(begin, text).is_some(),
            None => text.starts_with(*begin),
        };
        self.begins.iter().any(is_begin)
            && self.has.iter().all(|part| text.contains(part))
            && !self.lacks.iter().any(|part| text.contains(part))
    }

    /// The device that the line names where the pattern has its address.
    fn device(&self, text: &str) -> Option<String> {
        self.begins.iter().find_map(|begin| address_after(begin, text))
    }
}

fn address_after(begin: &str, text: &str) -> Option<String> {
    address_at(text.strip_prefix(begin.strip_suffix('@')?)?)
}

/// What a record tells; none if it is not the kernel's own, or about something else.
pub(super) fn line_of(record: KernelRecord, at_ns: i64) -> Option<KernelLine> {
    let KernelRecord { facility: 0, text, device, .. } = record else { return None };
    let pattern = PATTERNS.iter().find(|pattern| pattern.fits(&text))?;
    let (kind, is_grave) = (pattern.kind, pattern.is_grave);
    if kind == KernelKind::Xid {
        let (place, rest) = text.strip_prefix("NVRM: Xid (")?.split_once("): ")?;
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        // Behind the address stand the instances of a GPU in partitions.
        let address = place.strip_prefix("PCI:").unwrap_or(place).split(' ').next()?;
        let device = Some(address_of(address)?);
        let code = Some(digits.parse().ok()?);
        return Some(KernelLine { at_ns, kind, device, code, is_grave, text });
    }
    // The kernel itself adds the address of the driver that speaks, if that says which.
    let device = pattern.device(&text).or_else(|| address_of(device.as_deref()?));
    Some(KernelLine { at_ns, kind, device, code: None, is_grave, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/kernel/lines.txt");

    fn told(text: &str, facility: u32) -> Option<KernelLine> {
        line_of(KernelRecord { facility, sequence: None, text: text.to_owned(), device: None }, 7)
    }

    /// `xid 0000:cb:00 13 grave`, as the fixture says it.
    fn said(line: Option<&KernelLine>) -> String {
        let Some(line) = line else { return "nothing".to_owned() };
        let code = line.code.map(|code| code.to_string());
        let weight = if line.is_grave { "grave" } else { "mild" };
        let parts = [Some(line.kind.name()), line.device.as_deref(), code.as_deref(), Some(weight)];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn published_lines_say_what_they_say() {
        let (mut fitting, mut source) = (std::collections::BTreeSet::new(), "");
        let lines = std::fs::read_to_string(LINES).unwrap();
        for line in lines.lines().filter(|line| !line.is_empty() && !line.starts_with("# ")) {
            if line.starts_with("https://") {
                source = line;
                continue;
            }
            let (wanted, text) = line.split_once(" | ").unwrap();
            let found = told(text, 0);
            assert_eq!(said(found.as_ref()), wanted, "{source}: {text}");
            assert!(!source.is_empty(), "{text}");
            fitting.extend(PATTERNS.iter().position(|pattern| pattern.fits(text)));
        }
        let without: Vec<_> = (0..PATTERNS.len()).filter(|place| !fitting.contains(place)).collect();
        assert!(without.is_empty(), "these patterns have no line: {without:?}");
        let kinds: std::collections::BTreeSet<_> = PATTERNS.iter().map(|pattern| pattern.kind).collect();
        assert_eq!(kinds.into_iter().collect::<Vec<_>>(), KernelKind::ALL);
    }

    #[test]
    fn what_a_program_writes_is_no_line_of_the_kernel() {
        let line = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.";
        assert!(told(line, 0).is_some());
        for facility in [1, 3, 16, 23] {
            assert_eq!(told(line, facility), None);
        }
    }

    #[test]
    fn a_program_of_a_drivers_name_is_no_driver() {
        for text in [
            // A program may be called "NVRM: Xid (PCI:", and the kernel begins a line with its name.
            "NVRM: Xid (PCI:[4563]: segfault at 0 ip 0 sp 0 error 4",
            "NVRM: Xid (PCI:[4563]: segfault at 0 error 4 in (0000:3b:00): 79, [1+2]",
            "amdgpu 0000:08:[4563]: segfault at 0 error 4 in 0000:08:00.0: GPU reset begin",
            "NVRM: GPU 0000:[4563]: segfault in 0000:3b:00.0 fallen off the bus",
            "Out of memory: [4563]: segfault at 0",
            "NVRM: Xid (PCI:0000:3b:00): , no number",
            "NVRM: Xid (PCI:0000:3b:00): 99999999999999999999, a number",
            "NVRM: Xid (here): 79, no address",
            "NVRM: Xid (PCI: 0000:3b:00): 79, an address that is not at the beginning",
            "x NVRM: Xid (PCI:0000:3b:00): 79, not at the beginning",
            "python3[1]: GPU reset begin!",
            "",
        ] {
            assert_eq!(said(told(text, 0).as_ref()), "nothing", "{text}");
        }
    }

    #[test]
    fn a_line_without_an_address_has_that_of_its_driver() {
        let text =
            "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, signaled seq=1, emitted seq=3";
        let device = Some("0000:0B:00.0".to_owned());
        let record = KernelRecord { facility: 0, sequence: None, text: text.to_owned(), device };
        assert_eq!(line_of(record, 0).unwrap().device.as_deref(), Some("0000:0b:00.0"));
    }
}
