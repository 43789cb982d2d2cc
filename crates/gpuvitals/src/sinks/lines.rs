//! The sink of JSON lines, with its section.

use std::path::Path;
use std::sync::Arc;

use gpuvitals_core::ports::Sink;
use gpuvitals_jsonl::{Jsonl, JsonlConfig, JsonlError};
use gpuvitals_settings::{Bytes, settings};

use crate::failure::{Exit, Failure};

settings! {
    /// JSON lines: a file a GPU in store.dir, where collector.sinks names them
    pub(crate) struct JsonLines = "jsonl" {
        /// A file that has grown to this size gets a number, and a new one begins
        file_bytes: Bytes = "64MiB", from 1;
    }
}

/// Opens it in the data directory.
///
/// # Errors
/// When the directory is in use, or cannot be read or written.
pub(super) fn open(dir: &Path, settings: &JsonLines) -> Result<Arc<dyn Sink>, Failure> {
    let config = JsonlConfig { file_bytes: settings.file_bytes.0, ..JsonlConfig::new(dir) };
    let (jsonl, recovered) = Jsonl::open(&config).map_err(|error| {
        let exit = match &error {
            JsonlError::Locked(_) => Exit::Unavailable,
            JsonlError::Io { source, .. } => Exit::of(source),
            _ => Exit::Io,
        };
        Failure::caused(exit, format!("cannot write JSON lines in {}", dir.display()), error)
    })?;
    tracing::info!(
        dir = %dir.display(), log_rows = recovered.rows, torn_bytes = recovered.torn_bytes, "JSON lines are open"
    );
    for damage in &recovered.damage {
        tracing::error!(damage, "rows in the log of the JSON lines are damaged; the rest is written");
    }
    Ok(Arc::new(jsonl))
}
