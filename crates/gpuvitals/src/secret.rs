//! Files with secrets, and how a wrong one is reported.

use std::path::Path;

use gpuvitals_listener::secret::{self, SecretError};

use crate::failure::{Exit, Failure};

/// The text of a file that others cannot read; `setting` names it in the message.
///
/// # Errors
/// When it cannot be read, or its rights let others read it.
pub(crate) fn read(path: &Path, setting: &str) -> Result<String, Failure> {
    secret::read(path).map_err(|error| wrong(path, setting, error))
}

/// Refuses a file that others can read, for a secret that another library reads.
///
/// # Errors
/// When it is not there, or its rights let others read it.
pub(crate) fn check(path: &Path, setting: &str) -> Result<(), Failure> {
    secret::check(path).map_err(|error| wrong(path, setting, error))
}

fn wrong(path: &Path, setting: &str, error: SecretError) -> Failure {
    Failure::caused(Exit::Config, format!("configuration: {setting}: {}", path.display()), error)
}
