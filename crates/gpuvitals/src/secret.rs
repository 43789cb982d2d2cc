//! Secrets come from files, so that none stands in a setting, a URL or a log.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::failure::{Exit, Failure};

/// Rights on the file that nobody but its owner may have; its group may read, since Kubernetes gives secrets that way.
const OTHERS: u32 = 0o037;

/// The text of a file that others cannot read; `setting` is what names it, for the message.
///
/// # Errors
/// When it cannot be read, or its rights let others read it.
pub(crate) fn read(path: &Path, setting: &str) -> Result<String, Failure> {
    let wrong = |text: String| {
        Failure::new(Exit::Config, format!("configuration: {setting}: {}: {text}", path.display()))
    };
    let mode = std::fs::metadata(path).map_err(|e| wrong(e.to_string()))?.permissions().mode();
    if mode & OTHERS != 0 {
        return Err(wrong(format!(
            "its mode is {:04o}, others could read the secret; chmod 600 it",
            mode & 0o7777
        )));
    }
    std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))
}
