//! Secrets come from files, so that none stands in a setting, a URL or a log.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Rights that nobody but the owner may have on a file with a secret. Its group may read it: Kubernetes mounts secrets
/// that way.
const OTHERS: u32 = 0o037;
/// Rights that let everyone on the machine read.
const EVERYONE: u32 = 0o004;

/// Why a file with a secret is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// It cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// Others can read it.
    #[error("its mode is {:04o}, others could read the secret; chmod 600 it", .0 & 0o7777)]
    Mode(u32),
}

/// The text of a file that others cannot read.
///
/// # Errors
/// When it cannot be read, or its rights let others read it.
pub fn read(path: &Path) -> Result<String, SecretError> {
    check(path)?;
    Ok(std::fs::read_to_string(path)?)
}

/// Refuses a file that others can read, for a secret that another library reads.
///
/// # Errors
/// When it is not there, or its rights let others read it.
pub fn check(path: &Path) -> Result<(), SecretError> {
    let mode = std::fs::metadata(path)?.permissions().mode();
    if mode & OTHERS != 0 { Err(SecretError::Mode(mode)) } else { Ok(()) }
}

/// Warns of a private key that everyone can read. It is used all the same: the rights of mounted files are often not
/// the user's choice.
pub fn warn_of_key(path: &Path) {
    if std::fs::metadata(path).is_ok_and(|key| key.permissions().mode() & EVERYONE != 0) {
        tracing::warn!(file = %path.display(), "everyone on this machine can read the private key");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_may_do_anything_and_the_group_may_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, is_used) in [
            (0o600, true),
            (0o400, true),
            (0o440, true),
            (0o640, true),
            (0o620, false),
            (0o660, false),
            (0o604, false),
            (0o644, false),
        ] {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(file.path()).is_ok(), is_used, "{mode:o}");
        }
    }
}
