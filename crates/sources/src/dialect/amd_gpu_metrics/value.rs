//! Numbers in the table's bytes.

use super::layout::Slot;

/// Type of a number. The codes are those of a self-describing table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    U8,
    S8,
    U16,
    S16,
    U32,
    S32,
    U64,
    S64,
}

impl Kind {
    const BY_CODE: [Self; 8] =
        [Self::U8, Self::S8, Self::U16, Self::S16, Self::U32, Self::S32, Self::U64, Self::S64];

    /// The type of a code of a self-describing table.
    pub(super) fn by_code(code: usize) -> Option<Self> {
        Self::BY_CODE.get(code).copied()
    }

    /// Bytes.
    pub(super) const fn width(self) -> u16 {
        match self {
            Self::U8 | Self::S8 => 1,
            Self::U16 | Self::S16 => 2,
            Self::U32 | Self::S32 => 4,
            Self::U64 | Self::S64 => 8,
        }
    }

    /// The number, unless it is all ones, the driver's mark for a missing value; -1 in a signed field.
    fn value(self, bytes: &[u8]) -> Option<i64> {
        let value = match self {
            Self::U8 | Self::S8 => i64::from(i8::from_le_bytes(*bytes.first_chunk()?)),
            Self::U16 | Self::S16 => i64::from(i16::from_le_bytes(*bytes.first_chunk()?)),
            Self::U32 | Self::S32 => i64::from(i32::from_le_bytes(*bytes.first_chunk()?)),
            Self::U64 | Self::S64 => i64::from_le_bytes(*bytes.first_chunk()?),
        };
        match self {
            _ if value == -1 => None,
            Self::U8 => Some(value & 0xff),
            Self::U16 => Some(value & 0xffff),
            Self::U32 => Some(value & 0xffff_ffff),
            Self::U64 if value < 0 => None,
            _ => Some(value),
        }
    }
}

/// The elements of a field; an element is `None` if the driver did not fill it.
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    rest: &'a [u8],
    kind: Kind,
}

impl<'a> Elements<'a> {
    /// Of a field that is not there.
    pub(super) const NONE: Self = Self { rest: &[], kind: Kind::U8 };

    /// At an offset, with the slot's count and type.
    pub(super) fn of(bytes: &'a [u8], offset: usize, slot: Slot) -> Self {
        let len = usize::from(slot.count) * usize::from(slot.kind.width());
        match bytes.get(offset..offset + len) {
            Some(rest) => Self { rest, kind: slot.kind },
            None => Self::NONE,
        }
    }
}

impl Iterator for Elements<'_> {
    type Item = Option<i64>;

    fn next(&mut self) -> Option<Self::Item> {
        let (element, rest) = self.rest.split_at_checked(usize::from(self.kind.width()))?;
        self.rest = rest;
        Some(self.kind.value(element))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.rest.len() / usize::from(self.kind.width());
        (len, Some(len))
    }
}

impl ExactSizeIterator for Elements<'_> {}
