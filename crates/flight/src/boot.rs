//! Which boot of the host the rows of a ring are of: after a crash of the node they are read in another one.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use gpuvitals_log::{Fresh, open_file};

use crate::error::FlightError;

/// Name of the file with it, beside the ring.
const NAME: &str = "boot";
/// Letters of what a kernel calls a boot.
const LEN_MAX: usize = 36;

/// What the kernel calls this boot; empty if it does not say.
pub fn boot_id() -> String {
    plain(&fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default())
}

/// The boot in which the last agent of a directory ran; none: it is not known.
pub(crate) fn noted(directory: &Path) -> Option<String> {
    let mut text = String::new();
    let file = open_file(&path(directory)).ok()?;
    file.take(LEN_MAX as u64).read_to_string(&mut text).ok()?;
    Some(plain(&text)).filter(|boot| !boot.is_empty())
}

/// Notes the boot in which the agent of a directory runs.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn note(directory: &Path, boot: &str) -> Result<(), FlightError> {
    let path = path(directory);
    let fresh = Fresh::create(&path).map_err(FlightError::io("create", &path))?;
    fresh.file().write_all(boot.as_bytes()).map_err(FlightError::io("write", &path))?;
    fresh.put().map_err(FlightError::io("write", &path))?;
    Ok(())
}

fn path(directory: &Path) -> PathBuf {
    directory.join(NAME)
}

fn plain(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_hexdigit() || *c == '-').take(LEN_MAX).collect()
}
