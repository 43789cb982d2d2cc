//! What a role that stores opens: its store.

use std::sync::Arc;

use gpuvitals_collect::CollectorSettings;
use gpuvitals_core::causes;
use gpuvitals_core::history::History;
use gpuvitals_core::ports::Sink;
use gpuvitals_store::{Store, StoreConfig, StoreError};

use crate::failure::Failure;
use crate::store::{self, exit};

/// The end that takes rows, and the end that is asked for them.
pub(crate) type Ends = (Arc<dyn Sink>, Arc<dyn History>);

/// How the store is opened if nobody queries the newest rows of a GPU alone.
pub(crate) fn store_config(settings: &store::Store, collector: &CollectorSettings) -> StoreConfig {
    StoreConfig {
        flush_age: settings.flush_age,
        flush_rows: settings.flush_rows,
        flush_bytes: settings.flush_bytes.as_usize(),
        checkpoint: collector.checkpoint,
        ..StoreConfig::new(&settings.dir)
    }
}

/// Opens the store: as the sink of the rows, and as their history.
///
/// # Errors
/// When the directory is in use, or cannot be read or written.
pub(crate) fn open_store(config: StoreConfig) -> Result<Ends, Failure> {
    let dir = config.dir.clone();
    let (store, recovered) = Store::open(config).map_err(|error| {
        let dir = dir.display();
        let hint = match &error {
            StoreError::NoManifest { .. } => format!(
                "; nothing was changed: `gpuvitals store repair --data-dir {dir}` rebuilds the manifest from the files"
            ),
            _ => String::new(),
        };
        Failure::new(exit(&error), format!("cannot open the data directory {dir}: {}{hint}", causes(&error)))
    })?;
    tracing::info!(
        dir = %dir.display(), gpus = recovered.gpus, files = recovered.files, file_rows = recovered.file_rows,
        log_rows = recovered.log_rows, torn_bytes = recovered.torn_bytes, "store is open"
    );
    if recovered.torn_bytes > 0 {
        tracing::warn!(
            bytes = recovered.torn_bytes,
            "the store's log ends in bytes that are no whole record: a write that was cut short, or damage to acknowledged \
             rows; nothing tells which"
        );
    }
    for damage in &recovered.damage {
        tracing::error!(damage, "something stored is damaged; the rest is served");
    }
    if recovered.in_quarantine > 0 {
        tracing::warn!(
            count = recovered.in_quarantine,
            "table files lie in quarantine/ and are not queried; `gpuvitals store repair` lists the whole ones again"
        );
    }
    if !recovered.unlisted.is_empty() {
        tracing::warn!(
            count = recovered.unlisted.len(),
            first = %recovered.unlisted.first().map(|path| path.display().to_string()).unwrap_or_default(),
            "files that the manifest does not list are in quarantine/ now, such as a crash leaves; if the store was \
             restored from a backup, stop it and run `gpuvitals store repair`"
        );
    }
    let store = Arc::new(store);
    Ok((Arc::clone(&store) as _, store))
}
