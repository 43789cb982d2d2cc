//! The command names a GPU in its answer, or says why it gives none.

use std::sync::Arc;

use gpuvitals_core::{Identity, IdentityColumn};

use super::query::GpuRow;
use crate::probe::{Driver, ProbeError};

/// The identity of a row; none if it has none. Twins (GPUs with one UUID, as in masked captures) are not
/// named by the UUID.
pub(super) fn identity_of(row: &GpuRow, node: &str, is_twin: bool) -> Option<Arc<Identity>> {
    let mut identity = Identity::default();
    identity.index = row.index;
    let texts = [
        (IdentityColumn::Node, Some(node)),
        (IdentityColumn::Vendor, Some("nvidia")),
        (IdentityColumn::Source, Some(Driver::NvidiaSmi.as_str())),
        (IdentityColumn::Model, row.name.as_deref()),
        (IdentityColumn::Pci, row.pci.as_deref()),
        (IdentityColumn::Uuid, row.uuid.as_deref().filter(|_| !is_twin)),
        (IdentityColumn::Driver, row.driver.as_deref()),
        (IdentityColumn::Vbios, row.vbios.as_deref()),
    ];
    for (column, text) in texts {
        // A text that cannot be one is left out: a row is worth more than a label.
        let _refused = text.map(|text| identity.set(column, text));
    }
    identity.resolve().ok()?;
    Some(Arc::new(identity))
}

/// The tool's message in place of GPUs, as an error.
pub(super) fn said(text: &str) -> ProbeError {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).take(3).collect();
    let short: String = lines.join(" ").chars().take(300).collect();
    let has = |words: &str| short.to_ascii_lowercase().contains(words);
    if has("permission") {
        ProbeError::Denied(short)
    } else if has("version mismatch") {
        ProbeError::Gone(format!("{short} (the driver was updated while loaded: reboot, or reload it)"))
    } else if short.is_empty() {
        ProbeError::Failed("nvidia-smi says nothing".to_owned())
    } else if has("no devices were found") || has("failed") || has("unable to determine") || has("is lost") {
        ProbeError::Gone(short)
    } else {
        ProbeError::Failed(short)
    }
}
