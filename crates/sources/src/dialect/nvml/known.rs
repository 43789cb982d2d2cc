//! What is known of a GPU outlives its loss.

use std::sync::Arc;

use gpuvitals_core::Identity;

use super::code::{Code, Meaning};
use super::raw::{Gpu, Raw};
use crate::probe::ProbeError;

/// A GPU that has a name.
#[derive(Clone)]
pub(crate) struct KnownGpu {
    pub(crate) raw: &'static Raw,
    pub(crate) gpu: Gpu,
    pub(crate) identity: Arc<Identity>,
    pub(super) power_usage: PowerUsage,
}

/// What `GetPowerUsage` gives on a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PowerUsage {
    /// The power at the moment of the call.
    Instant,
    /// The average over the second before.
    Average,
}

/// Why a GPU gives no handle.
pub(super) fn lost(raw: &Raw, code: Code) -> ProbeError {
    if code == Code::UNINITIALIZED {
        // Another user shut the library down; the next reading shows whether this helped.
        let _again = raw.init();
    }
    match code.meaning() {
        Meaning::Device(error) => error,
        // Whatever a lost GPU answers here, it is looked for ever more slowly.
        _ => ProbeError::Gone(code.to_string()),
    }
}
