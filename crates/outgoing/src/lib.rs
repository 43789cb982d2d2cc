//! What a service says of itself, sent to receivers that are no part of gpuvitals.

mod remote_write;

pub use remote_write::{FamilyParts, ReadFamilies, RemoteWrite, RemoteWriteSettings};
