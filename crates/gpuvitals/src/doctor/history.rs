//! What keeping and serving a history needs: a place to store, a free port.

use std::net::TcpListener;
use std::path::Path;

use gpuvitals_sources::registry::{Finding, Verdict};

use crate::config::Config;

/// Below this much free space a store that writes all day is worth a word.
const FREE_BYTES_MIN: u64 = 2 << 30;

/// Looks at both.
pub(super) fn look(config: &Config) -> [Finding; 2] {
    [store(&config.store.dir), port(config)]
}

fn store(dir: &Path) -> Finding {
    let subject = format!("store {}", dir.display());
    let there = dir.ancestors().find(|path| path.as_os_str().is_empty() || path.exists());
    let there = there.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if rustix::fs::access(there, rustix::fs::Access::WRITE_OK).is_err() {
        return Finding::new(Verdict::Partial, subject, format!("{} cannot be written", there.display()))
            .remedy("choose another directory with --data-dir, or give this user the right to write it");
    }
    let Some(free) = gpuvitals_store::free_bytes(there) else {
        return Finding::new(Verdict::Note, subject, "its free space is not known");
    };
    let text = format!("can be written, {} GiB are free", free >> 30);
    if free < FREE_BYTES_MIN {
        Finding::new(Verdict::Partial, subject, text).remedy("free some space, or choose another --data-dir")
    } else {
        Finding::new(Verdict::Good, subject, text)
    }
}

fn port(config: &Config) -> Finding {
    let (address, port) = (config.api.listen, config.api.port);
    match TcpListener::bind((address, port)) {
        Ok(_) => {
            Finding::new(Verdict::Good, "port", format!("{address}:{port} is free for API and dashboard"))
        }
        Err(error) => Finding::new(Verdict::Note, "port", format!("{address}:{port} cannot be had: {error}"))
            .remedy("another gpuvitals may run; --port takes another one"),
    }
}
