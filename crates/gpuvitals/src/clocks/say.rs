//! A message names the GPU that it is about.

use std::io::{self, Write as _};

use gpuvitals_clocks::ClockError;
use gpuvitals_core::{Identity, IdentityColumn};

use crate::failure::{Exit, Failure};

/// A GPU for people: index and address.
pub(super) fn name(identity: &Identity) -> String {
    let index = identity.index.map_or(String::new(), |index| format!("{index} "));
    let text = identity.get(IdentityColumn::Pci).or(identity.uuid()).unwrap_or_default();
    format!("GPU {index}({text})")
}

pub(super) fn failure(identity: &Identity, error: ClockError) -> Failure {
    Failure::caused(exit_of(&error), name(identity), error)
}

fn exit_of(error: &ClockError) -> Exit {
    match error {
        ClockError::Denied { .. } => Exit::Permission,
        ClockError::Wrong(_) => Exit::Usage,
        ClockError::NotSupported { .. } | ClockError::NoEffect { .. } | ClockError::Gone(_) => {
            Exit::Unavailable
        }
        ClockError::Refused { source, .. } | ClockError::Unreadable { source, .. } => Exit::of(source),
        ClockError::HalfMade { failed, .. } => exit_of(failed),
    }
}

/// Says something on standard error.
pub(super) fn tell(text: &str) {
    // Standard error may be closed; the clocks matter more.
    let _unsaid = writeln!(io::stderr(), "gpuvitals: {text}");
}
