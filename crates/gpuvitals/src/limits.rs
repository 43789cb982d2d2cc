//! Limits that the system sets a process.

/// Connections and files together may be more than the usual 1,024; the hard limit is the administrator's.
/// Returns the limit in force, if there is one.
pub(crate) fn raise_open_files() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
    {
        tracing::warn!(%error, current = limit.current, "the limit of open files stays as it is");
        return limit.current;
    }
    limit.maximum
}
