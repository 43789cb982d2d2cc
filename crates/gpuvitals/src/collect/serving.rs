//! What a role that stores and serves opens: its store, its port.

use std::net::IpAddr;

use gpuvitals_core::causes;
use gpuvitals_store::{Store, StoreConfig, StoreError};
use tokio::net::TcpListener;

use crate::failure::{Exit, Failure};
use crate::store::exit;

/// Takes a port.
///
/// # Errors
/// When it is taken or may not be.
pub(crate) async fn listen(address: IpAddr, port: u16, flag: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind((address, port)).await.map_err(|error| {
        let hint = if error.kind() == std::io::ErrorKind::AddrInUse {
            format!("; is another gpuvitals running? {flag} 0 takes a free one")
        } else {
            String::new()
        };
        let exit = match error.kind() {
            std::io::ErrorKind::PermissionDenied => Exit::Permission,
            _ => Exit::Unavailable,
        };
        Failure::caused(exit, format!("cannot listen on {address}:{port}{hint}"), error)
    })
}

/// Opens history.
///
/// # Errors
/// When the directory is in use, or cannot be read or written.
pub(crate) fn open_store(config: StoreConfig) -> Result<Store, Failure> {
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
    Ok(store)
}
