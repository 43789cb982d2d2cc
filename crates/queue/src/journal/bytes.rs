//! Numbers and names as bytes. Numbers are LEB128 (seven bits a byte, the lowest first) unless said otherwise.

use std::sync::Arc;
use std::time::Duration;

use crate::frame::Millis;

/// A record that its checksum says is whole, and that this program does not understand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    /// It ends too early, or holds what no version writes.
    #[error("record is malformed")]
    Content,
    /// Another version of the program wrote it.
    #[error("record of version {0} is not known here")]
    Version(u8),
}

pub(super) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(low_bits(number) | 0x80);
        number >>= 7;
    }
    out.push(low_bits(number));
}

fn low_bits(number: u64) -> u8 {
    u8::try_from(number & 0x7f).unwrap_or(0)
}

pub(super) fn put_len(out: &mut Vec<u8>, len: usize) {
    put_number(out, u64::try_from(len).unwrap_or(u64::MAX));
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_len(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

/// A text of which the beginning may be bytes in lower-case hexadecimal digits: their number, they, the rest.
pub(super) fn put_hex(out: &mut Vec<u8>, text: &str) {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let byte = |pair: &[u8; 2]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    let (pairs, _) = text.as_bytes().as_chunks::<2>();
    let bytes: Vec<u8> = pairs.iter().map_while(byte).collect();
    put_len(out, bytes.len());
    out.extend_from_slice(&bytes);
    put_text(out, text.get(2 * bytes.len()..).unwrap_or_default());
}

/// 0 for none, else one more than the milliseconds.
pub(super) fn put_ttl(out: &mut Vec<u8>, ttl: Option<Duration>) {
    let millis = |ttl: Duration| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
    put_number(out, ttl.map_or(0, millis));
}

/// Reads from the front. Nothing is taken at its word before the bytes are there.
#[derive(Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes that are not read yet.
    pub(super) fn len_left(&self) -> usize {
        self.0.len()
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Malformed::Content)?;
        self.0 = rest;
        Ok(head)
    }

    pub(super) fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed::Content)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        self.fixed::<1>().map(|[byte]| byte)
    }

    pub(super) fn version(&mut self, known: u8) -> Result<(), Malformed> {
        let version = self.byte()?;
        if version == known { Ok(()) } else { Err(Malformed::Version(version)) }
    }

    pub(super) fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed::Content)
    }

    pub(super) fn number_u32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| Malformed::Content)
    }

    pub(super) fn millis(&mut self) -> Result<Millis, Malformed> {
        self.number().map(Millis)
    }

    pub(super) fn len(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.number()?).map_err(|_| Malformed::Content)
    }

    pub(super) fn text(&mut self) -> Result<Arc<str>, Malformed> {
        let len = self.len()?;
        self.text_of(len).map(Arc::from)
    }

    pub(super) fn text_of(&mut self, len: usize) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.take(len)?).map_err(|_| Malformed::Content)
    }

    /// What [`put_hex`] wrote.
    pub(super) fn hex(&mut self) -> Result<Arc<str>, Malformed> {
        const DIGITS: [char; 16] =
            ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
        let digit = |number: u8| DIGITS.get(usize::from(number)).copied();
        let len = self.len()?;
        let mut text: String =
            self.take(len)?.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).flatten().collect();
        let rest_len = self.len()?;
        text.push_str(self.text_of(rest_len)?);
        Ok(text.into())
    }

    pub(super) fn ttl(&mut self) -> Result<Option<Duration>, Malformed> {
        Ok(self.number()?.checked_sub(1).map(Duration::from_millis))
    }
}
