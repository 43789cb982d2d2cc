//! Byte planes: value bytes transposed, so that bytes of equal meaning are adjacent.

/// Appends the planes of `values`, each `W` bytes little-endian.
pub(super) fn split<const W: usize>(values: impl ExactSizeIterator<Item = [u8; W]>, out: &mut Vec<u8>) {
    let rows = values.len();
    let start = out.len();
    out.resize(start + rows * W, 0);
    let Some(area) = out.get_mut(start..) else { return };
    for (row, value) in values.enumerate() {
        for (plane, byte) in value.into_iter().enumerate() {
            if let Some(slot) = area.get_mut(plane * rows + row) {
                *slot = byte;
            }
        }
    }
}

/// The values in the planes of `area`; all are there if it is `rows * W` bytes.
pub(super) fn join<const W: usize>(area: &[u8], rows: usize) -> impl Iterator<Item = Option<[u8; W]>> {
    (0..rows).map(move |row| {
        let mut value = [0_u8; W];
        for (plane, byte) in value.iter_mut().enumerate() {
            *byte = *area.get(plane * rows + row)?;
        }
        Some(value)
    })
}

/// Maps small differences of either sign to small unsigned numbers.
pub(super) fn zigzag64(value: i64) -> u64 {
    (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned()
}

/// The reverse of [`zigzag64`].
pub(super) fn unzigzag64(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

/// Maps small differences of either sign to small unsigned numbers.
pub(super) fn zigzag32(value: i32) -> u32 {
    (value.cast_unsigned() << 1) ^ (value >> 31).cast_unsigned()
}

/// The reverse of [`zigzag32`].
pub(super) fn unzigzag32(value: u32) -> i32 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}
