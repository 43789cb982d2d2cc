//! The processes on the GPUs with their users, listed on a thread of its own.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gpuvitals_sources::processes::{ProcessGap, ProcessList, ProcessTable};
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;

/// Time between two listings of processes: they are expensive, and nobody reads faster.
const PROCESS_INTERVAL: Duration = Duration::from_secs(2);

/// The processes, and who runs them.
#[derive(Debug, Clone, Default)]
pub(super) struct Listed {
    pub(super) list: ProcessList,
    /// The user of a process by its id; a process that has just ended has none.
    pub(super) users: HashMap<u32, String>,
}

/// Lists processes until it is stopped.
pub(super) struct Listing {
    latest: Arc<Mutex<Listed>>,
}

impl Listing {
    /// Of these tables, with the users that the process file system names.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn start(
        mut tables: Vec<Box<dyn ProcessTable>>,
        procfs: &Path,
        stop: CancellationToken,
    ) -> Result<Self, Failure> {
        let latest = Arc::default();
        let listing = Self { latest: Arc::clone(&latest) };
        let users = Users::of(procfs);
        let work = move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() else {
                return;
            };
            while !stop.is_cancelled() {
                let all = listed(&mut tables, &users);
                *latest.lock().unwrap_or_else(PoisonError::into_inner) = all;
                // Ended by the stop or by the time: both go on with the loop.
                let _either = runtime
                    .block_on(async { tokio::time::timeout(PROCESS_INTERVAL, stop.cancelled()).await });
            }
        };
        std::thread::Builder::new()
            .name("processes".to_owned())
            .spawn(work)
            .map_err(|e| Failure::io("cannot start the thread that lists processes", e))?;
        Ok(listing)
    }

    pub(super) fn latest(&self) -> Listed {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn listed(tables: &mut [Box<dyn ProcessTable>], users: &Users) -> Listed {
    let mut all = Listed::default();
    for table in tables {
        match table.read() {
            Ok(list) => {
                all.list.processes.extend(list.processes);
                all.list.gaps.extend(list.gaps);
            }
            Err(error) => all.list.gaps.push(ProcessGap { gpu: None, part: "processes", error }),
        }
    }
    let pids = all.list.processes.iter().map(|process| process.pid);
    all.users = pids.filter_map(|pid| Some((pid, users.of_process(pid)?))).collect();
    all
}

/// The names of the users of a machine.
struct Users {
    procfs: PathBuf,
    names: HashMap<u32, String>,
}

impl Users {
    /// Those in `/etc/passwd` beside the process file system.
    fn of(procfs: &Path) -> Self {
        let list = procfs.parent().map(|root| root.join("etc/passwd"));
        // Names of users and programs may be in any encoding.
        let list = list.and_then(|path| fs::read(path).ok()).unwrap_or_default();
        let names = String::from_utf8_lossy(&list);
        let names = names.lines().filter_map(|line| {
            let mut cells = line.split(':');
            let name = cells.next()?.to_owned();
            Some((cells.nth(1)?.parse().ok()?, name))
        });
        Self { procfs: procfs.to_owned(), names: names.collect() }
    }

    /// The name, or the number of a user without one here, such as one of a directory service.
    fn of_process(&self, pid: u32) -> Option<String> {
        let status = fs::read(self.procfs.join(pid.to_string()).join("status")).ok()?;
        let status = String::from_utf8_lossy(&status);
        let user = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        let user = user.split_whitespace().next()?.parse().ok()?;
        Some(self.names.get(&user).cloned().unwrap_or_else(|| user.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_the_name_of_its_user_or_the_number() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n# odd\nkim:x:1000:1000:Kim:/home/kim:/bin/sh\n");
        write("proc/7/status", "Name:\tpython3\nUid:\t1000\t0\t0\t0\n");
        write("proc/8/status", "Uid:\t4000001\t0\t0\t0\n");
        let users = Users::of(&root.path().join("proc"));
        let named = [7, 8, 9].map(|pid| users.of_process(pid));
        assert_eq!(named, [Some("kim".to_owned()), Some("4000001".to_owned()), None]);
    }
}
