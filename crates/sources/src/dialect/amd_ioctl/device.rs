//! A device is asked by queries of the kernel's interface.

use std::{fmt, io};

/// The possible queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Query {
    /// Constants of the part.
    DevInfo,
    /// Heaps, total and used.
    Memory,
    /// One sensor, 32 bits.
    Sensor(u32),
}

impl Query {
    /// As the kernel numbers it: query, and which sensor.
    pub(super) fn numbers(self) -> (u32, u32) {
        match self {
            Self::DevInfo => (0x16, 0),
            Self::Memory => (0x19, 0),
            Self::Sensor(number) => (0x1d, number),
        }
    }
}

/// A render node that answers.
pub(super) trait Device: fmt::Debug + Send {
    /// Writes the name of its kernel driver, and returns its length.
    fn driver_name(&self, name: &mut [u8]) -> io::Result<usize>;
    /// Writes the answer, as far as it fits.
    fn info(&self, query: Query, answer: &mut [u8]) -> io::Result<()>;
}
