//! Secrets come from files, so that none stands in a setting, a URL or a log.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::failure::{Exit, Failure};

/// Rights on the file that nobody but its owner may have; its group may read, since Kubernetes gives secrets that way.
const OTHERS: u32 = 0o037;

/// Rights that let everyone on the machine read.
const EVERYONE: u32 = 0o004;

/// The text of a file that others cannot read; `setting` is what names it, for the message.
///
/// # Errors
/// When it cannot be read, or its rights let others read it.
pub(crate) fn read(path: &Path, setting: &str) -> Result<String, Failure> {
    check(path, setting)?;
    std::fs::read_to_string(path).map_err(|e| wrong(path, setting, &e.to_string()))
}

/// Refuses a file that others can read, where somebody else reads the secret in it.
///
/// # Errors
/// When it is not there, or its rights let others read it.
pub(crate) fn check(path: &Path, setting: &str) -> Result<(), Failure> {
    let wrong = |text: &str| wrong(path, setting, text);
    let mode = std::fs::metadata(path).map_err(|e| wrong(&e.to_string()))?.permissions().mode();
    if mode & OTHERS != 0 {
        return Err(wrong(&format!(
            "its mode is {:04o}, others could read the secret; chmod 600 it",
            mode & 0o7777
        )));
    }
    Ok(())
}

/// Says that everyone can read a private key. Where files are mounted their rights are often not the user's choice, so
/// it is used all the same.
pub(crate) fn warn_of_key(path: &Path) {
    if std::fs::metadata(path).is_ok_and(|key| key.permissions().mode() & EVERYONE != 0) {
        tracing::warn!(file = %path.display(), "everyone on this machine can read the private key");
    }
}

fn wrong(path: &Path, setting: &str, text: &str) -> Failure {
    Failure::new(Exit::Config, format!("configuration: {setting}: {}: {text}", path.display()))
}
