//! Both ends keep the limits of the protocol and its definition.

/// The definition of the protocol, for those who ask the service what it is.
pub(crate) const DEFINITION: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/history.binpb"));
/// Most rows of a page that is sent, and most rows up to the end of a page of several histories: each of them sends that many.
pub(crate) const PAGE_END_MAX: usize = 200_000;
/// Largest message, in bytes.
pub(crate) const MESSAGE_BYTES: usize = 64 << 20;
