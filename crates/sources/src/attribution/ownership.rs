//! Asks the kubelet and the batch system for the owners of the GPUs, and merges their answers into one list.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};

use gpuvitals_core::causes;
use gpuvitals_core::clock::Moment;
use tokio::sync::oneshot;

use super::allowed;
use super::kubelet::{Holders, Kubelet};
use super::process_owners::ProcessOwners;
use super::slurm::{self, Slurm, SlurmStep};
use super::{GpuName, Owner, Owners};
use crate::attribution::unresolved::Unresolved;
use crate::machine::Machine;
use crate::processes::ProcessTable;

/// Pause between two requests to the kubelet.
const KUBELET_PAUSE: Duration = Duration::from_secs(15);
/// Pause between two listings of the processes on the GPUs.
const JOBS_PAUSE: Duration = Duration::from_secs(10);
/// At the first of so many of them the environment of jobs' processes is read: it stays, and there may be thousands.
const CLAIMS_EVERY: usize = 3;
/// Failures in a row after which the last answer no longer counts: a minute at the kubelet.
const FAILURES_MAX: u32 = 4;
/// Silence after which the last answer no longer counts either: a request that hangs does not fail.
const SILENCE_NS: i64 = 40_000_000_000;
/// Process tables that wait for their thread at most; there is one for each vendor.
const TABLES_MAX: usize = 16;

/// Allocations without a GPU that are remembered, so that each counts once; a node has some hundred devices at most.
const UNRESOLVED_MAX: usize = 4096;

/// Allocations without a GPU so far.
#[derive(Debug, Default)]
struct Strangers {
    counts: [u64; Unresolved::ALL.len()],
    known: HashSet<(Unresolved, String)>,
}

impl Strangers {
    /// Counts those that are new; of each cause the first is in the log.
    fn note(&mut self, found: Vec<(Unresolved, String)>) {
        for (cause, device) in found {
            if self.known.len() >= UNRESOLVED_MAX || self.known.contains(&(cause, device.clone())) {
                continue;
            }
            let Some(count) = self.counts.get_mut(cause as usize) else { continue };
            if *count == 0 {
                tracing::warn!(
                    device,
                    cause = cause.as_str(),
                    "a pod holds a device that is no GPU known here: it is not attributed; more of this cause are only counted"
                );
            }
            *count += 1;
            self.known.insert((cause, device));
        }
    }
}

/// What to ask for owners.
#[derive(Debug, Default)]
pub struct OwnerSources {
    /// The kubelet's socket.
    pub kubelet: Option<PathBuf>,
    /// How jobs are found.
    pub slurm: Option<Slurm>,
    /// Whether users are named where nobody gives GPUs out.
    pub users: bool,
}

/// The last answer of each source of owners.
#[derive(Debug, Default)]
pub struct Ownership {
    owners: Arc<Owners>,
    answers: Mutex<Vec<OwnerAnswer>>,
    /// The GPUs that a batch system has given to jobs.
    allotted: Mutex<Vec<(GpuName, Owner)>>,
    /// The steps of jobs that had processes when these were last looked at.
    steps: Mutex<Arc<[SlurmStep]>>,
    strangers: Mutex<Strangers>,
}

/// Asks until it is dropped.
#[derive(Debug, Default)]
pub struct Asking {
    kubelet: Option<oneshot::Sender<()>>,
    tables: Option<SyncSender<Box<dyn ProcessTable>>>,
}

impl Asking {
    /// Takes the process tables of devices that come later; none if nobody wants them.
    pub fn tables(&self) -> Option<SyncSender<Box<dyn ProcessTable>>> {
        self.tables.clone()
    }
}

const KUBELET: &str = "kubelet";
const SLURM: &str = "slurm";

#[derive(Debug)]
struct OwnerAnswer {
    /// Number of the request, unique in this process.
    id: usize,
    source: &'static str,
    owners: Vec<(GpuName, Owner)>,
    failures: u32,
    /// None until the first answer.
    is_up: Option<bool>,
    /// Time of the last answer or failure, monotonic.
    heard_ns: i64,
}

impl Ownership {
    /// No source has answered.
    pub fn new() -> Self {
        Self::default()
    }

    /// No source has answered, on a node of this cluster.
    pub fn in_cluster(cluster: Option<Arc<str>>) -> Self {
        Self { owners: Owners::in_cluster(cluster), ..Self::default() }
    }

    /// The merged list, for samplers.
    pub fn owners(&self) -> &Arc<Owners> {
        &self.owners
    }

    /// Each source that has answered, and whether its last answer was complete.
    pub fn sources(&self) -> Vec<(&'static str, bool)> {
        let mut sources: Vec<(&'static str, bool)> = Vec::new();
        for answer in self.answers().iter() {
            let Some(is_up) = answer.is_up else { continue };
            match sources.iter_mut().find(|(known, _)| *known == answer.source) {
                Some((_, all_up)) => *all_up &= is_up,
                None => sources.push((answer.source, is_up)),
            }
        }
        sources
    }

    /// The allocations so far that are of no GPU, by cause.
    pub fn unresolved(&self) -> [(&'static str, u64); Unresolved::ALL.len()] {
        let counts = self.strangers.lock().unwrap_or_else(PoisonError::into_inner).counts;
        Unresolved::ALL.map(|cause| (cause.as_str(), counts.get(cause as usize).copied().unwrap_or_default()))
    }

    /// Takes the GPUs that a batch system has given to jobs, in place of all that it had given before. On a GPU where a process is in the
    /// cgroup of a job, that counts; what a process claims of itself does not.
    pub fn allot(&self, allotted: Vec<(GpuName, Owner)>) {
        let answers = self.answers();
        *self.allotted.lock().unwrap_or_else(PoisonError::into_inner) = allotted;
        self.publish(&answers);
    }

    /// Takes the steps of jobs that have processes on this node now.
    pub fn take_steps(&self, steps: Vec<SlurmStep>) {
        *self.steps.lock().unwrap_or_else(PoisonError::into_inner) = steps.into();
    }

    /// The steps of jobs that had processes when these were last looked at; the same list until then.
    pub fn steps(&self) -> Arc<[SlurmStep]> {
        Arc::clone(&self.steps.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts the allocations of an answer that are of no GPU. A GPU that was named in the answer before and has not met its
    /// name since then is none of this node.
    fn note_strangers(&self, id: usize, holders: &mut Holders) {
        let mut found = std::mem::take(&mut holders.unresolved);
        let answers = self.answers();
        let before = answers.iter().find(|answer| answer.id == id).map_or(&[][..], |answer| &answer.owners);
        let old = holders.owners.iter().filter(|owner| before.contains(owner)).map(|(gpu, _)| gpu);
        found.extend(self.owners.unmatched(old).map(|gpu| (Unresolved::NoSuchGpu, format!("{gpu:?}"))));
        drop(answers);
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner).note(found);
    }

    /// Asks these sources on threads of their own.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn ask(
        self: &Arc<Self>,
        sources: OwnerSources,
        machine: &Machine,
        processes: Vec<Box<dyn ProcessTable>>,
    ) -> io::Result<Asking> {
        let mut asking = Asking::default();
        self.owners.tell_processes_apart(ProcessOwners::of(
            sources.kubelet.is_some(),
            sources.slurm.clone(),
            sources.users,
            machine,
        ));
        if let Some(socket) = sources.kubelet {
            let (ownership, machine) = (Arc::clone(self), machine.clone());
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let (stop, stopped) = oneshot::channel();
            thread::Builder::new().name(KUBELET.to_owned()).spawn(move || {
                // A kubelet that does not answer is not waited for.
                runtime.block_on(async {
                    tokio::select! {
                        () = ownership.ask_kubelet(&socket, &machine) => {}
                        _ = stopped => {}
                    }
                });
                runtime.shutdown_background();
            })?;
            asking.kubelet = Some(stop);
        }
        if let Some(slurm) = sources.slurm {
            let (tables, arriving) = sync_channel(TABLES_MAX);
            for table in processes {
                // There is a place for one of each vendor.
                let _enough = tables.try_send(table);
            }
            let ownership = Arc::clone(self);
            thread::Builder::new()
                .name("jobs".to_owned())
                .spawn(move || ownership.ask_for_jobs(&slurm, &arriving))?;
            asking.tables = Some(tables);
        }
        Ok(asking)
    }

    async fn ask_kubelet(&self, socket: &Path, machine: &Machine) {
        let kubelet = match Kubelet::new(socket, machine) {
            Ok(kubelet) => kubelet,
            Err(error) => {
                tracing::error!(error = causes(&error), "attribution.pod_resources");
                return;
            }
        };
        self.expect(0, KUBELET, Moment::now());
        loop {
            let answer = kubelet.owners().await.map_err(|error| causes(&error));
            let answer = answer.map(|mut holders| {
                self.note_strangers(0, &mut holders);
                holders.owners
            });
            self.take(0, Moment::now(), answer, None);
            tokio::time::sleep(KUBELET_PAUSE).await;
        }
    }

    /// Reads each table that comes on a thread of its own, until its sender is gone. A table replaces the one of the same
    /// vendor. A driver that hangs keeps its thread and nothing else; its last answer is forgotten.
    fn ask_for_jobs(self: &Arc<Self>, slurm: &Slurm, tables: &Receiver<Box<dyn ProcessTable>>) {
        let mut threads: Vec<(&'static str, usize, SyncSender<()>)> = Vec::new();
        for id in 1.. {
            let table = loop {
                match tables.recv_timeout(JOBS_PAUSE) {
                    Ok(table) => break table,
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => self.forget_silent(Moment::now()),
                }
            };
            let vendor = table.driver().vendor();
            for (_, before, _) in threads.extract_if(.., |(known, ..)| *known == vendor) {
                // Its owners stand until the answer of the new one.
                self.answers().retain(|answer| answer.id != before);
            }
            let (stop, stopped) = sync_channel(0);
            let (ownership, slurm) = (Arc::clone(self), slurm.clone());
            self.expect(id, SLURM, Moment::now());
            let work = move || ownership.read_jobs(id, &slurm, table, &stopped);
            match thread::Builder::new().name(format!("jobs-{vendor}")).spawn(work) {
                Ok(_) => threads.push((vendor, id, stop)),
                Err(error) => tracing::error!(%error, vendor, "cannot look for jobs on these GPUs"),
            }
        }
    }

    /// Lists the processes on the GPUs and looks for their jobs, until the other end of `stop` is gone.
    fn read_jobs(&self, id: usize, slurm: &Slurm, mut table: Box<dyn ProcessTable>, stop: &Receiver<()>) {
        let own_vendor = [table.driver().vendor()];
        let mut claims = Vec::new();
        for round in 0_usize.. {
            let list = table.read();
            if round.is_multiple_of(CLAIMS_EVERY) {
                let [vendor] = own_vendor;
                let steps = slurm.steps();
                let vendors = if self.owners.are_all_of(vendor) { own_vendor.as_slice() } else { &[] };
                claims = allowed::owners(slurm.machine(), &steps);
                claims.extend(slurm::claims(&steps, vendors));
                self.take_steps(steps);
            }
            let gap = list.as_ref().ok().and_then(|list| list.gaps.first().map(ToString::to_string));
            let owners = list.map(|list| [slurm.owners(&list.processes), claims.clone()].concat());
            let answer = owners.map_err(|error| causes(&error));
            self.take(id, Moment::now(), answer, gap);
            if stop.recv_timeout(JOBS_PAUSE) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    }

    fn answers(&self) -> MutexGuard<'_, Vec<OwnerAnswer>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for answers to a request from now on.
    fn expect(&self, id: usize, source: &'static str, now: Moment) {
        let heard_ns = now.mono_ns;
        let answer = OwnerAnswer { id, source, owners: Vec::new(), failures: 0, is_up: None, heard_ns };
        self.answers().push(answer);
    }

    /// Takes an answer or a failure; logs only changes. An answer with a gap counts as a failure: the owners of before stay
    /// for some rounds, since those of the gap may only be unread.
    fn take(
        &self,
        id: usize,
        now: Moment,
        owners: Result<Vec<(GpuName, Owner)>, String>,
        gap: Option<String>,
    ) {
        let mut answers = self.answers();
        let Some(answer) = answers.iter_mut().find(|answer| answer.id == id) else { return };
        answer.heard_ns = now.mono_ns;
        let (owners, rest) = match (owners, gap) {
            (Ok(owners), Some(gap)) => (Err(gap), owners),
            (owners, _) => (owners, Vec::new()),
        };
        match owners {
            Ok(owners) => {
                if answer.is_up == Some(false) {
                    tracing::info!(source = answer.source, "the owners of the GPUs are known again");
                }
                (answer.owners, answer.failures, answer.is_up) = (owners, 0, Some(true));
            }
            Err(error) => {
                answer.failures = answer.failures.saturating_add(1);
                answer.fail(&error);
                if answer.failures >= FAILURES_MAX || answer.owners.is_empty() {
                    answer.owners = rest;
                }
            }
        }
        self.publish(&answers);
    }

    /// Forgets the answers of sources that have been silent for too long.
    fn forget_silent(&self, now: Moment) {
        let mut answers = self.answers();
        for answer in answers.iter_mut().filter(|answer| now.mono_ns - answer.heard_ns > SILENCE_NS) {
            answer.fail("no answer came");
            answer.owners.clear();
        }
        self.publish(&answers);
    }

    /// Merges the answers: first what the kubelet and the kernel say, then what a batch system has given, then what processes claim.
    fn publish(&self, answers: &[OwnerAnswer]) {
        let asked = |is_claimed| {
            let owners = answers.iter().flat_map(|answer| &answer.owners);
            owners.filter(move |(_, owner)| owner.is_claimed == is_claimed)
        };
        let allotted = self.allotted.lock().unwrap_or_else(PoisonError::into_inner);
        self.owners.replace(asked(false).chain(allotted.iter()).chain(asked(true)).cloned().collect());
    }
}

impl OwnerAnswer {
    fn fail(&mut self, error: &str) {
        if self.is_up != Some(false) {
            tracing::warn!(source = self.source, error, "cannot determine the owners of the GPUs");
        }
        self.is_up = Some(false);
    }
}

#[cfg(test)]
mod tests {
    use crate::attribution::unresolved::Unresolved;
    use gpuvitals_core::{Identity, IdentityColumn};
    use gpuvitals_rig::waiting::until;

    use super::*;
    use crate::probe::{Driver, ProbeError};
    use crate::processes::ProcessList;

    /// A table that says when it is read, and hangs then if it is to.
    struct GatedTable(Driver, SyncSender<()>, Option<Receiver<()>>);

    impl ProcessTable for GatedTable {
        fn driver(&self) -> Driver {
            self.0
        }

        fn another(&self) -> Box<dyn ProcessTable> {
            Box::new(Self(self.0, self.1.clone(), None))
        }

        fn read(&mut self) -> Result<ProcessList, ProbeError> {
            self.1.send(()).unwrap();
            if let Some(hangs) = &self.2 {
                let _let_go = hangs.recv();
            }
            Ok(ProcessList::default())
        }
    }

    fn asking(ownership: &Arc<Ownership>) -> Asking {
        let nowhere = Machine { procfs: PathBuf::from("/nonexistent"), ..Machine::local("n1") };
        let slurm = Some(Slurm::new(&nowhere));
        let sources = OwnerSources { slurm, ..OwnerSources::default() };
        ownership.ask(sources, &Machine::local("n1"), Vec::new()).unwrap()
    }

    #[test]
    fn a_driver_that_hangs_does_not_keep_the_jobs_of_another_from_being_seen() {
        let ownership = Arc::new(Ownership::new());
        let (_let_go, hangs) = sync_channel(0);
        let ((hung, hung_read), (well, well_read)) = (sync_channel(1), sync_channel(1));
        let tables = asking(&ownership).tables().unwrap();
        tables.send(Box::new(GatedTable(Driver::Nvml, hung, Some(hangs)))).unwrap();
        hung_read.recv_timeout(Duration::from_mins(1)).unwrap();
        tables.send(Box::new(GatedTable(Driver::AmdSysfs, well, None))).unwrap();
        well_read.recv_timeout(Duration::from_mins(1)).unwrap();
    }

    #[test]
    fn a_table_that_knows_more_gpus_takes_the_place_of_the_one_before() {
        let ownership = Arc::new(Ownership::new());
        let tables = asking(&ownership).tables().unwrap();
        let minute = Duration::from_mins(1);
        let mut reads = Vec::new();
        for driver in [Driver::Nvml, Driver::AmdSysfs, Driver::Nvml] {
            let (told, read) = sync_channel(1);
            tables.send(Box::new(GatedTable(driver, told, None))).unwrap();
            read.recv_timeout(minute).unwrap();
            reads.push(read);
        }
        assert_eq!(reads[0].recv_timeout(minute), Err(RecvTimeoutError::Disconnected), "it is let go of");
        let ids: Vec<usize> = ownership.answers().iter().map(|answer| answer.id).collect();
        assert_eq!(ids, [2, 3]);
    }

    #[test]
    fn whoever_looks_for_jobs_finds_their_steps_and_whose_the_gpus_are_that_these_name() {
        let folder = tempfile::tempdir().unwrap();
        let process = folder.path().join("7");
        std::fs::create_dir_all(&process).unwrap();
        let cgroup = "0::/system.slice/slurmstepd.scope/job_4711/step_0/user\n";
        std::fs::write(process.join("cgroup"), cgroup).unwrap();
        std::fs::write(process.join("environ"), "SLURM_STEP_GPUS=1\0").unwrap();
        let machine = Machine { procfs: folder.path().to_owned(), ..Machine::local("n1") };
        let sources = OwnerSources { slurm: Some(Slurm::new(&machine)), ..OwnerSources::default() };
        let (told, _read) = sync_channel(1);
        let ownership = Arc::new(Ownership::new());
        let table: Box<dyn ProcessTable> = Box::new(GatedTable(Driver::Nvml, told, None));
        let _asking = ownership.ask(sources, &machine, vec![table]).unwrap();
        let steps = until("the steps", || ownership.steps(), |steps| !steps.is_empty());
        let found: Vec<_> =
            steps.iter().map(|step| (&*step.job, &*step.step, step.gpus.as_deref())).collect();
        assert_eq!(found, [("4711", "0", Some("1"))]);
        let mut gpu = Identity::default().with(IdentityColumn::Vendor, "nvidia").unwrap();
        gpu.index = Some(1);
        let gpu = Arc::new(gpu);
        let job = || ownership.owners().attribute(&gpu).get(IdentityColumn::Job).map(str::to_owned);
        until("the holder", job, |job| job.as_deref() == Some("4711"));
    }

    #[test]
    fn an_allocation_that_is_of_no_gpu_counts_once_by_its_cause() {
        let ownership = Ownership::new();
        ownership.expect(0, KUBELET, Moment::now());
        let gpu = Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap();
        ownership.owners().attribute(&Arc::new(gpu));
        let named = |uuid: &str| (GpuName::Uuid(uuid.into()), Owner::default());
        let round = || {
            let unresolved = vec![(Unresolved::UnknownId, "nvidia.com/gpu 7".to_owned())];
            let mut holders = Holders { owners: vec![named("GPU-1"), named("GPU-2")], unresolved };
            ownership.note_strangers(0, &mut holders);
            ownership.take(0, Moment::now(), Ok(holders.owners), None);
            ownership.unresolved().map(|(_, count)| count)
        };
        assert_eq!(round(), [1, 0, 0], "whether a GPU has the name shows until the next answer");
        assert_eq!(round(), [1, 0, 1]);
        assert_eq!(round(), [1, 0, 1]);
    }

    #[test]
    fn a_gpu_is_a_jobs_from_its_allotment_which_a_cgroup_overrules_and_no_claim() {
        let ownership = Ownership::new();
        let gpu = Arc::new(Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap());
        let of = |job: &str| {
            vec![(GpuName::Uuid("GPU-1".into()), Owner { job: Some(job.into()), ..Owner::default() })]
        };
        let held = || ownership.owners().attribute(&gpu).get(IdentityColumn::Job).map(str::to_owned);
        ownership.allot(of("4711"));
        assert_eq!(held().as_deref(), Some("4711"));
        ownership.expect(1, SLURM, Moment::now());
        ownership.take(1, Moment::now(), Ok(Vec::new()), None);
        assert_eq!(held().as_deref(), Some("4711"), "it holds the GPU without a process");
        let mut both = of("999");
        both[0].1.is_claimed = true;
        ownership.take(1, Moment::now(), Ok(both.clone()), None);
        assert_eq!(held().as_deref(), Some("4711"), "anybody can claim a job");
        both.extend(of("4712"));
        ownership.take(1, Moment::now(), Ok(both.clone()), None);
        assert_eq!(held().as_deref(), Some("4712"), "the kernel says whose process it is");
        both.truncate(1);
        ownership.take(1, Moment::now(), Ok(both), None);
        ownership.allot(Vec::new());
        assert_eq!(held().as_deref(), Some("999"), "nothing better is known");
        ownership.take(1, Moment::now(), Ok(Vec::new()), None);
        assert_eq!(held(), None);
    }

    #[test]
    fn a_source_that_falls_silent_is_down_and_its_answer_is_forgotten() {
        let ownership = Ownership::new();
        let start = Moment::now();
        let at = |seconds: i64| Moment { mono_ns: start.mono_ns + seconds * 1_000_000_000, ..start };
        let holds = |gpu: &str| Ok(vec![(GpuName::Uuid(gpu.into()), Owner::default())]);
        let held = || ownership.answers().iter().map(|answer| answer.owners.len()).sum::<usize>();
        ownership.expect(1, SLURM, at(0));
        ownership.expect(2, SLURM, at(0));
        assert_eq!(ownership.sources(), [], "none has answered yet");
        ownership.take(1, at(1), holds("GPU-1"), None);
        ownership.take(2, at(1), holds("GPU-2"), None);
        ownership.forget_silent(at(30));
        assert_eq!((ownership.sources(), held()), (vec![(SLURM, true)], 2));
        ownership.take(2, at(35), holds("GPU-2"), None);
        ownership.forget_silent(at(60));
        assert_eq!((ownership.sources(), held()), (vec![(SLURM, false)], 1), "one of the two");
        ownership.take(1, at(61), holds("GPU-1"), None);
        assert_eq!((ownership.sources(), held()), (vec![(SLURM, true)], 2), "it answers after all");
        let gap = || Some("a gap".to_owned());
        for round in 1..i64::from(FAILURES_MAX) {
            ownership.take(1, at(61 + round), Ok(Vec::new()), gap());
            assert_eq!((ownership.sources(), held()), (vec![(SLURM, false)], 2), "what is known stays");
        }
        ownership.take(1, at(70), Ok(Vec::new()), gap());
        assert_eq!((ownership.sources(), held()), (vec![(SLURM, false)], 1), "but not for ever");
    }
}
