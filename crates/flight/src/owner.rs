//! Who a directory belongs to, and work in it as that user.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;

use rustix::process::geteuid;
use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::error::FlightError;

/// Why root does nothing in a directory.
const SEVERAL: &str = "directories on the way there belong to several users; run it as the user of the agent";

/// Does something in a directory, which is there. Root does it as the user whose directory it is, on a thread of its own: names in the
/// directory are links to wherever that user wants, and lead to nothing that is not his.
///
/// # Errors
/// Those of the work; if root cannot become that user, or it is not clear who it is.
pub(crate) fn as_owner<T: Send + 'static>(
    directory: &Path,
    work: impl FnOnce() -> Result<T, FlightError> + Send + 'static,
) -> Result<T, FlightError> {
    if !geteuid().is_root() {
        return work();
    }
    let Some(owner) = owner(directory).map_err(FlightError::io("use", directory))? else { return work() };
    let unlike = FlightError::io("become the owner of", directory);
    let worker = thread::Builder::new().name("owner".to_owned());
    let worker = worker.spawn(move || {
        become_user(owner).map_err(unlike)?;
        work()
    });
    worker.map_err(FlightError::Thread)?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The user beside root whose a directory is, or one above it: who has that puts another in its place. None: all of them are root's.
fn owner(directory: &Path) -> io::Result<Option<(Uid, Gid)>> {
    let (given, real) = (std::path::absolute(directory)?, fs::canonicalize(directory)?);
    let mut owner: Option<(Uid, Gid)> = None;
    for path in real.ancestors().chain(given.ancestors()) {
        let facts = fs::metadata(path)?;
        let (user, group) = (Uid::from_raw(facts.uid()), Gid::from_raw(facts.gid()));
        if !user.is_root() && owner.is_some_and(|(other, _)| other != user) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, SEVERAL));
        }
        if !user.is_root() {
            owner = owner.or(Some((user, group)));
        }
    }
    Ok(owner)
}

/// Makes this thread, and those that it starts, that user's for good.
fn become_user((user, group): (Uid, Gid)) -> io::Result<()> {
    set_thread_groups(&[])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    Ok(())
}
