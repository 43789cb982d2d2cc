//! The binary table `gpu_metrics` of amdgpu: raw fields by name, every version.
//!
//! amdgpu provides one consistent snapshot of a GPU in `device/gpu_metrics`: little-endian, a header of `u16`
//! size, `u8` format and `u8` content revision, then fields at offsets that differ by revision (1.x discrete
//! GPUs, 2.x and 3.x APUs); only v1.9 describes itself. Unknown values are all ones. This module finds a
//! field and whether it was filled; its reader knows the meaning and unit, by [`Version`].
//!
//! A table is refused as a whole if its header does not fit the bytes or the revision is unknown, because
//! fields move between revisions. Layouts are from the kernel's `kgd_pp_interface.h`.

mod apu;
mod described;
mod discrete;
mod field;
mod layout;
mod slot;
mod value;
mod version;

use layout::LAYOUTS;
use slot::Slots;

pub use field::Field;
pub use value::Elements;
pub use version::{TableError, Version, XCP_MAX};

/// A table with a valid header, over the bytes it was read into. Making one allocates nothing.
#[derive(Debug, Clone)]
pub struct GpuMetrics<'a> {
    version: Version,
    bytes: &'a [u8],
    slots: Slots,
}

impl<'a> GpuMetrics<'a> {
    /// Reads the header and finds the layout. Bytes behind the table are left alone.
    ///
    /// # Errors
    /// When the header does not fit the bytes, or the revision is not known with this size.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, TableError> {
        let Some(&[low, high, format, content]) = bytes.first_chunk() else {
            return Err(TableError::NoHeader { len: bytes.len() });
        };
        let version = Version { format, content, size: u16::from_le_bytes([low, high]) };
        if version.size == 0 {
            return Err(TableError::Unfilled(version));
        }
        let Some(bytes) = bytes.get(..usize::from(version.size)) else {
            return Err(TableError::Truncated { version, len: bytes.len() });
        };
        let slots = if (format, content) == (1, 9) {
            described::slots(version, bytes)?
        } else {
            match LAYOUTS.iter().find(|layout| layout.version == version) {
                Some(layout) => layout.slots.clone(),
                None if LAYOUTS
                    .iter()
                    .any(|it| (it.version.format, it.version.content) == (format, content)) =>
                {
                    return Err(TableError::WrongSize(version));
                }
                None => return Err(TableError::Unknown(version)),
            }
        };
        Ok(Self { version, bytes, slots })
    }

    /// Which table it is: with it the unit of a field is known.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The field; the first element of an array. `None`: this version has no such field, or the driver did
    /// not fill it (all ones), or it is above `i64::MAX`, which no counter reaches.
    pub fn get(&self, field: Field) -> Option<i64> {
        self.all(field).next().flatten()
    }

    /// The elements of a field (of the first partition, if it is a partition's), each as in
    /// [`GpuMetrics::get`]. Empty if this version has no such field.
    pub fn all(&self, field: Field) -> Elements<'a> {
        self.xcp(0, field)
    }

    /// The elements of a field of one partition, as [`GpuMetrics::all`]. Tables without partitions, and fields of the
    /// whole package, have partition 0 only.
    pub fn xcp(&self, partition: usize, field: Field) -> Elements<'a> {
        let slot = self.slots.of(field);
        if partition > 0 && (slot.stride == 0 || partition >= XCP_MAX) {
            return Elements::NONE;
        }
        Elements::of(self.bytes, usize::from(slot.offset) + partition * usize::from(slot.stride), slot)
    }
}
