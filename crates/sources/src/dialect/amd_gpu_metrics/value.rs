//! Numbers in the table's bytes.

use super::slot::{Slot, SlotKind};

/// The elements of a field; an element is `None` if the driver did not fill it.
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    rest: &'a [u8],
    kind: SlotKind,
}

impl<'a> Elements<'a> {
    /// Of a field that is not there.
    pub(super) const NONE: Self = Self { rest: &[], kind: SlotKind::U8 };

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
