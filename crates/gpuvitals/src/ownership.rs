//! Who holds the GPUs: the kubelet and the batch system are asked, and what they say is one list.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpuvitals_core::causes;
use gpuvitals_core::clock::Moment;
use gpuvitals_sources::attribution::kubelet::{Kubelet, SOCKET};
use gpuvitals_sources::attribution::slurm::Slurm;
use gpuvitals_sources::attribution::{GpuName, Owner, Owners};
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::processes::ProcessTable;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::sync::CancellationToken;

use crate::config::{Switch, settings};
use crate::failure::Failure;

/// Between two askings of the kubelet.
const KUBELET_PAUSE: Duration = Duration::from_secs(15);
/// Between two listings of the processes on the GPUs.
const JOBS_PAUSE: Duration = Duration::from_secs(10);
/// Failures in a row after which what was told before no longer counts: a minute at the kubelet.
const FAILURES_MAX: u32 = 4;
/// Silence after which the same holds: an asking that hangs does not fail.
const SILENCE_NS: i64 = 40_000_000_000;

/// Lists of processes that wait for their follower at most; there is one for each vendor.
const TABLES_MAX: usize = 16;

settings! {
    /// Pod, namespace, container and job that hold the GPUs
    pub(crate) struct Attribution = "attribution" {
        /// The kubelet's socket: auto (if its directory exists), off, or a path
        pod_resources: String = "auto";
        /// Look for jobs of Slurm on the GPUs: auto (if it has cgroups), true, false
        slurm: Switch = "auto";
    }
}

/// What each teller said last.
#[derive(Debug)]
pub(crate) struct Ownership {
    owners: Arc<Owners>,
    tellers: Mutex<Vec<Told>>,
}

/// Who tells: where the answer comes from, and which of those that are asked there.
type Teller = (&'static str, usize);

const KUBELET: Teller = ("kubelet", 0);
const SLURM: &str = "slurm";

#[derive(Debug)]
struct Told {
    teller: Teller,
    owners: Vec<(GpuName, Owner)>,
    failures: u32,
    /// None until the first answer.
    is_up: Option<bool>,
    /// When it last answered or failed to, monotonic.
    heard_ns: i64,
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

    /// Where was asked, and whether all who were asked there answered the last time.
    pub(crate) fn told(&self) -> Vec<(&'static str, bool)> {
        let mut told: Vec<(&'static str, bool)> = Vec::new();
        for Told { teller: (source, _), is_up, .. } in self.tellers().iter() {
            let Some(is_up) = *is_up else { continue };
            match told.iter_mut().find(|(known, _)| known == source) {
                Some((_, all_up)) => *all_up &= is_up,
                None => told.push((source, is_up)),
            }
        }
        told
    }

    fn tellers(&self) -> MutexGuard<'_, Vec<Told>> {
        self.tellers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Awaits answers of somebody from now on.
    fn expect(&self, teller: Teller, now: Moment) {
        self.tellers().push(Told {
            teller,
            owners: Vec::new(),
            failures: 0,
            is_up: None,
            heard_ns: now.mono_ns,
        });
    }

    /// Awaits no more answers of somebody. What he said stands until another's answer comes.
    fn dismiss(&self, teller: Teller) {
        self.tellers().retain(|told| told.teller != teller);
    }

    /// Takes an answer, or a failure to answer; logs only what changes.
    fn tell(&self, teller: Teller, now: Moment, answer: Result<Vec<(GpuName, Owner)>, String>) {
        let mut tellers = self.tellers();
        let Some(told) = tellers.iter_mut().find(|told| told.teller == teller) else { return };
        told.heard_ns = now.mono_ns;
        match answer {
            Ok(owners) => {
                if told.is_up == Some(false) {
                    tracing::info!(teller = teller.0, "who holds the GPUs is told again");
                }
                (told.owners, told.failures, told.is_up) = (owners, 0, Some(true));
            }
            Err(error) => {
                told.failures = told.failures.saturating_add(1);
                let is_forgotten = told.failures >= FAILURES_MAX;
                told.fail(&error, is_forgotten);
            }
        }
        self.publish(&tellers);
    }

    /// Forgets what those said who have been silent for too long.
    fn forget_silent(&self, now: Moment) {
        let mut tellers = self.tellers();
        for told in tellers.iter_mut().filter(|told| now.mono_ns - told.heard_ns > SILENCE_NS) {
            told.fail("no answer came", true);
        }
        self.publish(&tellers);
    }

    fn publish(&self, tellers: &[Told]) {
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
            .spawn(move || ownership.follow_all(&slurm, &arriving))
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
        self.expect(KUBELET, Moment::now());
        loop {
            let answer = kubelet.owners().await.map_err(|error| causes(&error));
            self.tell(KUBELET, Moment::now(), answer);
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(KUBELET_PAUSE) => {}
            }
        }
    }

    /// Follows each table that comes, on a thread of its own, until whoever sends them is gone. One takes the place of that of
    /// the same vendor before it. A driver that hangs keeps its thread and nothing else; what it said before is forgotten.
    fn follow_all(self: &Arc<Self>, slurm: &Slurm, tables: &Receiver<Box<dyn ProcessTable>>) {
        let mut followers: Vec<(&'static str, Teller, SyncSender<()>)> = Vec::new();
        let mut met = 0;
        loop {
            match tables.recv_timeout(JOBS_PAUSE) {
                Ok(table) => {
                    let vendor = table.vendor();
                    for (_, before, _) in followers.extract_if(.., |(known, ..)| *known == vendor) {
                        self.dismiss(before);
                    }
                    let teller = (SLURM, met);
                    met += 1;
                    let (stop, stopped) = sync_channel(0);
                    let (ownership, slurm) = (Arc::clone(self), slurm.clone());
                    self.expect(teller, Moment::now());
                    let thread = std::thread::Builder::new().name(format!("jobs-{}", teller.1));
                    match thread.spawn(move || ownership.follow_jobs(teller, &slurm, table, &stopped)) {
                        Ok(_) => followers.push((vendor, teller, stop)),
                        Err(error) => {
                            tracing::error!(%error, "the jobs of a vendor's GPUs are not followed");
                        }
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => self.forget_silent(Moment::now()),
            }
        }
    }

    /// Lists the processes on the GPUs and looks for their jobs, until the other end of `stop` is gone.
    fn follow_jobs(
        &self,
        teller: Teller,
        slurm: &Slurm,
        mut table: Box<dyn ProcessTable>,
        stop: &Receiver<()>,
    ) {
        loop {
            let answer = table.read().map(|list| slurm.owners(&list.processes));
            self.tell(teller, Moment::now(), answer.map_err(|error| causes(&error)));
            if stop.recv_timeout(JOBS_PAUSE) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    }
}

/// Who holds the GPUs, asked for beside a command that has no runtime of its own, until this is dropped.
#[derive(Debug)]
pub(crate) struct Following {
    owners: Arc<Owners>,
    /// None where nobody is to be asked.
    asking: Option<Asking>,
}

#[derive(Debug)]
struct Asking {
    runtime: Runtime,
    stop: CancellationToken,
    /// The followers of processes end with it.
    _tables: Option<SyncSender<Box<dyn ProcessTable>>>,
}

impl Following {
    /// Asks all who may know, on threads of their own.
    ///
    /// # Errors
    /// When no thread can be had.
    pub(crate) fn start(
        settings: &Attribution,
        machine: &Machine,
        processes: Vec<Box<dyn ProcessTable>>,
    ) -> Result<Self, Failure> {
        let ownership = Arc::new(Ownership::new());
        let owners = Arc::clone(ownership.owners());
        if settings.kubelet_socket(machine).is_none() && settings.jobs(machine).is_none() {
            return Ok(Self { owners, asking: None });
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|e| Failure::io("cannot start the runtime", e))?;
        let stop = CancellationToken::new();
        let tables = ownership.follow(settings, machine, processes, runtime.handle(), stop.clone())?;
        Ok(Self { owners, asking: Some(Asking { runtime, stop, _tables: tables }) })
    }

    /// Where samplers look.
    pub(crate) fn owners(&self) -> &Arc<Owners> {
        &self.owners
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        if let Some(Asking { runtime, stop, .. }) = self.asking.take() {
            stop.cancel();
            // A kubelet that does not answer is not waited for.
            runtime.shutdown_background();
        }
    }
}

impl Told {
    fn fail(&mut self, error: &str, is_forgotten: bool) {
        if self.is_up != Some(false) {
            tracing::warn!(teller = self.teller.0, error, "who holds the GPUs is not told");
        }
        self.is_up = Some(false);
        if is_forgotten {
            self.owners.clear();
        }
    }
}

impl Attribution {
    /// The kubelet's socket, where it is to be asked: as set, or where its folder is there. A captured tree has none: this
    /// machine's would answer for another.
    fn kubelet_socket(&self, machine: &Machine) -> Option<PathBuf> {
        match self.pod_resources.as_str() {
            "off" | "false" | "" => None,
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

#[cfg(test)]
mod tests {
    use gpuvitals_sources::probe::ProbeError;
    use gpuvitals_sources::processes::ProcessList;

    use super::*;

    /// A table that says when it is read, and hangs then if it is to.
    struct Table(&'static str, SyncSender<()>, Option<Receiver<()>>);

    impl ProcessTable for Table {
        fn vendor(&self) -> &'static str {
            self.0
        }

        fn read(&mut self) -> Result<ProcessList, ProbeError> {
            self.1.send(()).unwrap();
            if let Some(hangs) = &self.2 {
                let _let_go = hangs.recv();
            }
            Ok(ProcessList::default())
        }
    }

    #[test]
    fn a_driver_that_hangs_does_not_keep_the_jobs_of_another_from_being_seen() {
        let ownership = Arc::new(Ownership::new());
        let (_let_go, hangs) = sync_channel(0);
        let ((hung, hung_read), (well, well_read)) = (sync_channel(1), sync_channel(1));
        let (tables, arriving) = sync_channel::<Box<dyn ProcessTable>>(2);
        tables.send(Box::new(Table("nvidia", hung, Some(hangs)))).unwrap();
        let following = std::thread::spawn({
            let ownership = Arc::clone(&ownership);
            move || ownership.follow_all(&Slurm::new(Path::new("/nonexistent")), &arriving)
        });
        hung_read.recv_timeout(Duration::from_mins(1)).unwrap();
        tables.send(Box::new(Table("amd", well, None))).unwrap();
        well_read.recv_timeout(Duration::from_mins(1)).unwrap();
        drop(tables);
        following.join().unwrap();
    }

    #[test]
    fn a_table_that_knows_more_gpus_takes_the_place_of_the_one_before() {
        let ownership = Arc::new(Ownership::new());
        let (tables, arriving) = sync_channel::<Box<dyn ProcessTable>>(3);
        let following = std::thread::spawn({
            let ownership = Arc::clone(&ownership);
            move || ownership.follow_all(&Slurm::new(Path::new("/nonexistent")), &arriving)
        });
        let minute = Duration::from_mins(1);
        let mut reads = Vec::new();
        for vendor in ["nvidia", "amd", "nvidia"] {
            let (told, read) = sync_channel(1);
            tables.send(Box::new(Table(vendor, told, None))).unwrap();
            read.recv_timeout(minute).unwrap();
            reads.push(read);
        }
        assert_eq!(reads[0].recv_timeout(minute), Err(RecvTimeoutError::Disconnected), "it is let go of");
        let tellers: Vec<Teller> = ownership.tellers().iter().map(|told| told.teller).collect();
        assert_eq!(tellers, [(SLURM, 1), (SLURM, 2)]);
        drop(tables);
        following.join().unwrap();
    }

    #[test]
    fn who_falls_silent_is_down_and_what_he_said_is_forgotten() {
        let ownership = Ownership::new();
        let start = Moment::now();
        let at = |seconds: i64| Moment { mono_ns: start.mono_ns + seconds * 1_000_000_000, ..start };
        let holds = |gpu: &str| Ok(vec![(GpuName::Uuid(gpu.into()), Owner::default())]);
        let held = || ownership.tellers().iter().map(|told| told.owners.len()).sum::<usize>();
        ownership.expect((SLURM, 0), at(0));
        ownership.expect((SLURM, 1), at(0));
        assert_eq!(ownership.told(), [], "nobody has answered yet");
        ownership.tell((SLURM, 0), at(1), holds("GPU-1"));
        ownership.tell((SLURM, 1), at(1), holds("GPU-2"));
        ownership.forget_silent(at(30));
        assert_eq!((ownership.told(), held()), (vec![(SLURM, true)], 2));
        ownership.tell((SLURM, 1), at(35), holds("GPU-2"));
        ownership.forget_silent(at(60));
        assert_eq!((ownership.told(), held()), (vec![(SLURM, false)], 1), "one of the two");
        ownership.tell((SLURM, 0), at(61), holds("GPU-1"));
        assert_eq!((ownership.told(), held()), (vec![(SLURM, true)], 2), "it answers after all");
    }
}
