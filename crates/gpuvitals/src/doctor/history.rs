//! What keeping and serving a history needs: a place to store, a database if there is one, a free port.

use std::net::TcpListener;
use std::path::Path;

use gpuvitals_core::causes;
use gpuvitals_core::history::FleetBounds;
use gpuvitals_postgres::{Database, PostgresError};
use gpuvitals_sources::registry::{Finding, Verdict};

use crate::config::Config;
use crate::failure::Failure;
use crate::sinks::open_postgres;

/// Below this much free space a store that writes all day is worth a word.
const FREE_BYTES_MIN: u64 = 2 << 30;

/// What helps where a database does not answer.
const CORRECTED: &str = "start the server, or correct database.host, port, user, password and dbname";

/// Looks at all of it.
pub(super) fn look(config: &Config) -> Vec<Finding> {
    let has_database = !config.database.host.is_empty();
    let mut findings = vec![store(&config.store.dir), port(config)];
    findings.extend(has_database.then(|| database(&config.database)));
    findings
}

/// Connects, and makes the tables if they are not there: only that shows whether the role may.
fn database(settings: &Database) -> Finding {
    let subject = format!("database {} of {}", settings.dbname, settings.host);
    let asked = || -> Result<Result<(), PostgresError>, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::io("cannot start a runtime", error))?;
        runtime
            .block_on(async { Ok(open_postgres(settings, None, FleetBounds::default()).await?.ping().await) })
    };
    let (reason, remedy) = match asked() {
        Ok(Ok(())) => return Finding::new(Verdict::Good, subject, "answers, and has the tables"),
        Ok(Err(PostgresError::Right { reason, remedy, .. })) => (reason, remedy),
        Ok(Err(error)) => (causes(&error), CORRECTED.to_owned()),
        Err(failure) => (failure.to_string(), CORRECTED.to_owned()),
    };
    Finding::new(Verdict::Broken, subject, reason).remedy(remedy)
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
