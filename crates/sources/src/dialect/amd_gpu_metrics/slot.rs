//! A slot is the place of a value in a table.

use super::field::Field;

/// A field, its offset in bytes, the type and number of its elements.
pub(super) type SlotRow = (Field, u16, SlotKind, u16);

/// The place of a field.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    pub(super) offset: u16,
    /// Elements; 0 if the table has no such field.
    pub(super) count: u16,
    /// Bytes from one partition's to the next one's; 0 for a field of the whole package.
    pub(super) stride: u16,
    pub(super) kind: SlotKind,
}

/// The slots of all fields.
#[derive(Debug, Clone)]
pub(super) struct Slots([Slot; Field::ALL.len()]);

impl Slots {
    pub(super) const EMPTY: Self =
        Self([Slot { offset: 0, count: 0, stride: 0, kind: SlotKind::U8 }; Field::ALL.len()]);

    /// The place of a field.
    #[expect(clippy::indexing_slicing, reason = "there is a slot for each field")]
    pub(super) fn of(&self, field: Field) -> Slot {
        self.0[field as usize]
    }

    /// Puts a field somewhere.
    #[expect(clippy::indexing_slicing, reason = "there is a slot for each field")]
    pub(super) const fn set(&mut self, field: Field, slot: Slot) {
        self.0[field as usize] = slot;
    }
}

/// Type of a number. The codes are those of a self-describing table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotKind {
    U8,
    S8,
    U16,
    S16,
    U32,
    S32,
    U64,
    S64,
}

impl SlotKind {
    const BY_CODE: [Self; 8] =
        [Self::U8, Self::S8, Self::U16, Self::S16, Self::U32, Self::S32, Self::U64, Self::S64];

    /// The type of a code of a self-describing table.
    pub(super) fn by_code(code: usize) -> Option<Self> {
        Self::BY_CODE.get(code).copied()
    }

    /// Size of a value in bytes.
    pub(super) const fn width(self) -> u16 {
        match self {
            Self::U8 | Self::S8 => 1,
            Self::U16 | Self::S16 => 2,
            Self::U32 | Self::S32 => 4,
            Self::U64 | Self::S64 => 8,
        }
    }

    /// The number, unless it is all ones, the driver's mark for a missing value; -1 in a signed field.
    pub(super) fn value(self, bytes: &[u8]) -> Option<i64> {
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
