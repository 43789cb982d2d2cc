//! Records of the kernel's log: `PREFIX,SEQUENCE,MICROSECONDS,FLAGS;TEXT`, then lines ` KEY=VALUE`
//! (`Documentation/ABI/testing/dev-kmsg`).

/// Longest text of a line that is kept.
const TEXT_LEN_MAX: usize = 1_024;
/// Low bits of the prefix: the level. The others are the facility.
const LEVEL_BITS: u32 = 3;

/// What somebody has written to the kernel's log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KernelRecord {
    /// 0: the kernel itself. A program cannot have that.
    pub(super) facility: u32,
    /// Its number; none where numbers have no gaps to be found.
    pub(super) sequence: Option<u64>,
    pub(super) text: String,
    /// Address of the PCI device whose driver said it.
    pub(super) device: Option<String>,
}

/// A record as `/dev/kmsg` gives it; none if it is none.
pub(super) fn parse(bytes: &[u8]) -> Option<KernelRecord> {
    let cut = memchr::memchr(b';', bytes)?;
    let (head, rest) = bytes.split_at_checked(cut)?;
    let mut fields = std::str::from_utf8(head).ok()?.split(',');
    let prefix: u32 = fields.next()?.parse().ok()?;
    let sequence = fields.next()?.parse().ok()?;
    let mut lines = rest.get(1..)?.split(|byte| *byte == b'\n');
    let text = clean(&unescaped(lines.next()?));
    let device = lines.find_map(|line| line.strip_prefix(b" DEVICE=+pci:")).map(clean);
    Some(KernelRecord { facility: prefix >> LEVEL_BITS, sequence: Some(sequence), text, device })
}

/// The bytes that `\xNN` stands for: the kernel writes all others than printable ASCII so.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, others)) = rest.split_first() {
        let escaped = rest.strip_prefix(br"\x").and_then(<[u8]>::split_first_chunk::<2>);
        let escaped = escaped.and_then(|(digits, rest)| Some((hexadecimal(*digits)?, rest)));
        let (byte, after) = escaped.unwrap_or((first, others));
        bytes.push(byte);
        rest = after;
    }
    bytes
}

fn hexadecimal(digits: [u8; 2]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()
}

/// A text of one line that is harmless on a terminal, whoever has put what into it.
pub(super) fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.get(..TEXT_LEN_MAX).unwrap_or(bytes));
    let text: String = text.chars().map(|c| if is_hidden(c) { ' ' } else { c }).collect();
    text.trim().to_owned()
}

/// Control characters, and those that turn the direction of a text or have no width.
fn is_hidden(c: char) -> bool {
    let has_no_form =
        matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || has_no_form
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> String {
        parse(bytes).unwrap().text
    }

    #[test]
    fn a_record_has_its_facility_number_text_and_device() {
        let record = parse(
            b"4,1180,5327192,-,caller=T17;amdgpu 0000:03:00.0: amdgpu: GPU reset begin!\n SUBSYSTEM=pci\n DEVICE=+pci:0000:03:00.0\n",
        );
        let record = record.unwrap();
        assert_eq!((record.facility, record.sequence), (0, Some(1_180)));
        assert_eq!(record.text, "amdgpu 0000:03:00.0: amdgpu: GPU reset begin!");
        assert_eq!(record.device.as_deref(), Some("0000:03:00.0"));
        assert_eq!(parse(b"12,3,4,-;forged\n").unwrap().facility, 1);
    }

    #[test]
    fn what_is_no_record_is_none() {
        for bytes in
            [&b""[..], b";", b"x,1,2,-;a", b"4;a", b"4,x;a", b"-4,1,2,-;a", b"4,1,2,-", b"\xff\xfe;\xff"]
        {
            assert_eq!(parse(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_hostile_text_is_one_harmless_line() {
        assert_eq!(text(br"4,1,2,-;a\x0ab\x1b[31mc\xe2\x80\xaed"), "a b [31mc d");
        assert_eq!(text(b"4,1,2,-;raw \x1b\x07\xff\xc3 end"), "raw   \u{fffd}\u{fffd} end");
        assert_eq!(text(br"4,1,2,-;\x5cx41 \xzz \x4"), r"\x41 \xzz \x4");
        let long = [b"4,1,2,-;".to_vec(), vec![b'a'; 8 << 10]].concat();
        assert_eq!(text(&long).len(), TEXT_LEN_MAX);
        let cut = [b"4,1,2,-;".to_vec(), "ä".repeat(4 << 10).into_bytes()].concat();
        assert!(text(&cut).len() <= TEXT_LEN_MAX + 2);
    }
}
