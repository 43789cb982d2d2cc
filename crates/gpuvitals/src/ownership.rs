//! Who holds the GPUs: the kubelet and the batch system are asked, and what they say is one list.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gpuvitals_core::causes;
use gpuvitals_sources::attribution::kubelet::{Kubelet, SOCKET};
use gpuvitals_sources::attribution::slurm::Slurm;
use gpuvitals_sources::attribution::{GpuName, Owner, Owners};
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::processes::ProcessTable;
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::quantity::deserialize_word;

/// Between two askings of the kubelet.
const KUBELET_PAUSE: Duration = Duration::from_secs(15);
/// Between two listings of the processes on the GPUs.
const JOBS_PAUSE: Duration = Duration::from_secs(10);
/// Failures in a row after which what was told before no longer counts: a minute at the kubelet.
const FAILURES_MAX: u32 = 4;

/// Lists of processes that wait for their follower at most; there is one for each vendor.
const TABLES_MAX: usize = 16;

/// Section `attribution`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Attribution {
    /// The kubelet's socket: `auto`, `off`, or a path.
    #[serde(deserialize_with = "deserialize_word")]
    pod_resources: String,
    /// Whether to look for batch jobs.
    #[serde(deserialize_with = "deserialize_word")]
    slurm: Switch,
}

/// On, off, or where it makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Switch {
    /// Where there is something to find.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// What each teller said last.
#[derive(Debug)]
pub(crate) struct Ownership {
    owners: Arc<Owners>,
    tellers: Mutex<Vec<Told>>,
}

#[derive(Debug)]
struct Told {
    teller: &'static str,
    owners: Vec<(GpuName, Owner)>,
    failures: u32,
    is_up: bool,
}

impl Ownership {
    /// Nobody has said anything.
    pub(crate) fn new() -> Self {
        Self { owners: Owners::new(), tellers: Mutex::default() }
    }

    /// Where samplers look.
    pub(crate) fn owners(&self) -> &Arc<Owners> {
        &self.owners
    }

    /// Who was asked, and whether the last asking was answered.
    pub(crate) fn told(&self) -> Vec<(&'static str, bool)> {
        let tellers = self.tellers.lock().unwrap_or_else(PoisonError::into_inner);
        tellers.iter().map(|told| (told.teller, told.is_up)).collect()
    }

    /// Takes an answer, or a failure to answer; logs only what changes.
    fn tell(&self, teller: &'static str, answer: Result<Vec<(GpuName, Owner)>, String>) {
        let mut tellers = self.tellers.lock().unwrap_or_else(PoisonError::into_inner);
        let at = tellers.iter().position(|told| told.teller == teller).unwrap_or_else(|| {
            tellers.push(Told { teller, owners: Vec::new(), failures: 0, is_up: true });
            tellers.len() - 1
        });
        let Some(told) = tellers.get_mut(at) else { return };
        match answer {
            Ok(owners) => {
                if !told.is_up {
                    tracing::info!(teller, "who holds the GPUs is told again");
                }
                *told = Told { teller, owners, failures: 0, is_up: true };
            }
            Err(error) => {
                if told.is_up {
                    tracing::warn!(teller, error, "who holds the GPUs is not told");
                }
                told.is_up = false;
                told.failures = told.failures.saturating_add(1);
                if told.failures >= FAILURES_MAX {
                    told.owners.clear();
                }
            }
        }
        self.owners.replace(tellers.iter().flat_map(|told| &told.owners).cloned().collect());
    }

    /// Asks all who may know, on threads and tasks of their own, until the token is cancelled and the sender is dropped; by the
    /// sender come the process lists of devices that come later. None where nobody wants them.
    ///
    /// # Errors
    /// When no thread can be had.
    pub(crate) fn follow(
        self: &Arc<Self>,
        settings: &Attribution,
        machine: &Machine,
        processes: Vec<Box<dyn ProcessTable>>,
        runtime: &Handle,
        stop: CancellationToken,
    ) -> Result<Option<SyncSender<Box<dyn ProcessTable>>>, Failure> {
        if let Some(socket) = settings.kubelet_socket(machine) {
            let (ownership, machine) = (Arc::clone(self), machine.clone());
            runtime.spawn(async move { ownership.follow_kubelet(&socket, &machine, &stop).await });
        }
        let Some(slurm) = settings.jobs(machine) else { return Ok(None) };
        let (tables, arriving) = sync_channel(TABLES_MAX);
        for table in processes {
            // There is a place for one of each vendor.
            let _enough = tables.try_send(table);
        }
        let ownership = Arc::clone(self);
        std::thread::Builder::new()
            .name("jobs".to_owned())
            .spawn(move || ownership.follow_jobs(&slurm, &arriving))
            .map_err(|e| Failure::io("cannot start the thread jobs", e))?;
        Ok(Some(tables))
    }

    /// Asks the kubelet until told to stop.
    async fn follow_kubelet(&self, socket: &Path, machine: &Machine, stop: &CancellationToken) {
        let kubelet = match Kubelet::new(socket, machine) {
            Ok(kubelet) => kubelet,
            Err(error) => {
                tracing::error!(error = causes(&error), "attribution.pod_resources");
                return;
            }
        };
        loop {
            self.tell("kubelet", kubelet.owners().await.map_err(|error| causes(&error)));
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(KUBELET_PAUSE) => {}
            }
        }
    }

    /// Lists the processes on the GPUs and looks for their jobs, until whoever sends tables is gone. Blocks: a thread of its
    /// own, which a hung driver may keep.
    fn follow_jobs(&self, slurm: &Slurm, tables: &Receiver<Box<dyn ProcessTable>>) {
        let mut known: Vec<Box<dyn ProcessTable>> = Vec::new();
        loop {
            match tables.recv_timeout(if known.is_empty() { JOBS_PAUSE } else { Duration::ZERO }) {
                Ok(table) => {
                    known.push(table);
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if !known.is_empty() {
                let mut processes = Vec::new();
                let mut failed = None;
                for table in &mut known {
                    match table.read() {
                        Ok(some) => processes.extend(some),
                        Err(error) => failed = Some(causes(&error)),
                    }
                }
                let found = slurm.owners(&processes);
                self.tell("slurm", failed.filter(|_| found.is_empty()).map_or(Ok(found), Err));
            }
            match tables.recv_timeout(JOBS_PAUSE) {
                Ok(table) => known.push(table),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl Attribution {
    /// The kubelet's socket, where it is to be asked: as set, or where its folder is there. A captured tree has none: this
    /// machine's would answer for another.
    fn kubelet_socket(&self, machine: &Machine) -> Option<PathBuf> {
        match self.pod_resources.as_str() {
            "off" | "" => None,
            "auto" => {
                let socket = PathBuf::from(SOCKET);
                let has_folder = socket.parent().is_some_and(Path::is_dir);
                (has_folder && !machine.is_captured()).then_some(socket)
            }
            path => Some(PathBuf::from(path)),
        }
    }

    /// How jobs are found, where they are to be looked for.
    fn jobs(&self, machine: &Machine) -> Option<Slurm> {
        let is_wanted = match self.slurm {
            Switch::On => true,
            Switch::Off => false,
            Switch::Auto => Slurm::runs_on(machine),
        };
        is_wanted.then(|| Slurm::new(&machine.procfs))
    }
}
