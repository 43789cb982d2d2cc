//! Places of the fields in a table. The tables become an index by field at compile time, so that a lookup is
//! one load.

use super::slot::{Slot, SlotRow, Slots};
use super::{Version, XCP_MAX, apu, discrete};

/// Rows of a table, at one place or for each partition.
struct LayoutPart {
    rows: &'static [SlotRow],
    at: u16,
    /// Bytes from one partition to the next; 0: the rows are there once.
    stride: u16,
}

const fn once(rows: &'static [SlotRow]) -> LayoutPart {
    LayoutPart { rows, at: 0, stride: 0 }
}

const fn per_xcp(rows: &'static [SlotRow], at: u16, stride: u16) -> LayoutPart {
    LayoutPart { rows, at, stride }
}

/// A version and the places of its fields.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) version: Version,
    pub(super) slots: Slots,
}

/// The layout of a version: the parts within its size, as a version may be the beginning of the next.
#[expect(clippy::indexing_slicing, reason = "runs while compiling only")]
const fn layout(format: u8, content: u8, size: u16, parts: &[LayoutPart]) -> Layout {
    let mut slots = Slots::EMPTY;
    let mut part = 0;
    while part < parts.len() {
        let LayoutPart { rows, at, stride } = parts[part];
        let mut row = 0;
        while row < rows.len() {
            let (field, offset, kind, count) = rows[row];
            if at + offset < size {
                let last = at as usize + (XCP_MAX - 1) * stride as usize + offset as usize;
                let end = last + count as usize * kind.width() as usize;
                assert!(end <= size as usize, "a field ends behind the table");
                slots.set(field, Slot { offset: at + offset, count, stride, kind });
            }
            row += 1;
        }
        part += 1;
    }
    Layout { version: Version { format, content, size }, slots }
}

/// Every table of fixed layout.
pub(super) static LAYOUTS: [Layout; 16] = [
    layout(1, 0, 80, &[once(discrete::V1_0)]),
    layout(1, 1, 96, &[once(discrete::V1_3)]),
    layout(1, 2, 104, &[once(discrete::V1_3)]),
    layout(1, 3, 120, &[once(discrete::V1_3)]),
    layout(1, 4, 288, &[once(discrete::V1_4)]),
    layout(1, 5, 360, &[once(discrete::V1_5)]),
    layout(1, 6, 384, &[once(discrete::V1_6_EARLY)]),
    layout(1, 6, 1664, &[once(discrete::V1_6), per_xcp(discrete::XCP_1_6, 312, 168)]),
    layout(
        1,
        7,
        2208,
        &[once(discrete::V1_7), per_xcp(discrete::XCP_1_7, 344, 232), once(discrete::V1_7_END)],
    ),
    layout(
        1,
        8,
        3872,
        &[once(discrete::V1_7), per_xcp(discrete::XCP_1_8, 344, 440), once(discrete::V1_8_END)],
    ),
    layout(2, 0, 120, &[once(apu::V2_0)]),
    layout(2, 1, 120, &[once(apu::V2_4)]),
    layout(2, 2, 128, &[once(apu::V2_4)]),
    layout(2, 3, 152, &[once(apu::V2_4)]),
    layout(2, 4, 168, &[once(apu::V2_4)]),
    layout(3, 0, 264, &[once(apu::V3_0)]),
];
