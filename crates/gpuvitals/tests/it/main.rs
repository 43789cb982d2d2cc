//! Commands that run to their end: the real program on captured machines, with imitations of a vendor's tool and library.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod clocks;
mod command_line;
mod inspect;
mod node;
mod nvidia_library;
mod record;
mod vendor_tool;
