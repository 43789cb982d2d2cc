//! The processes on the GPUs with their users, listed on a thread of its own.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gpuvitals_sources::processes::{ProcessGap, ProcessList, ProcessTable, Users};
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
