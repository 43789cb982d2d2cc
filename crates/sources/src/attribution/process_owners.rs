//! Whom the processes of this node work for.
//!
//! Slurm names the job of a process by its cgroup. Of a process in a container the cgroup has the container's id, and the kubelet names a
//! container's log after it: `/var/log/containers/POD_NAMESPACE_CONTAINER-ID.log`. Both are the kernel's and the kubelet's word, which no
//! process can change. Where neither gives GPUs out, the user is who works.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gpuvitals_core::clock::instant;
use gpuvitals_core::usage::ProcessOwner;
use gpuvitals_core::{Identity, IdentityColumn};

use super::granted::granted;
use super::slurm::{Slurm, read};
use crate::machine::{Machine, PinnedFile};
use crate::processes::Users;

/// Digits of a container's id.
const ID_LEN: usize = 64;
/// Names of logs that are read.
const LOGS_MAX: usize = 10_000;
/// They are read again after so long at the earliest: a container that has no log is asked for with each of its processes.
const READ_EVERY: Duration = Duration::from_secs(10);

/// Knows whom a process works for.
#[derive(Debug)]
pub(super) struct ProcessOwners {
    procfs: PathBuf,
    slurm: Option<Slurm>,
    /// The containers of a node of Kubernetes.
    containers: Option<Containers>,
    /// The users of a machine whose GPUs nobody gives out.
    users: Option<Users>,
}

/// The names of the containers of this node, by id: read again when an id is not among them.
#[derive(Debug)]
struct Containers {
    logs: PathBuf,
    known: Mutex<KnownContainers>,
}

#[derive(Debug, Default)]
struct KnownContainers {
    by_id: HashMap<String, Arc<Identity>>,
    read_at: Option<Instant>,
}

impl ProcessOwners {
    /// Of the processes of a machine whose GPUs a kubelet gives out, or Slurm, or nobody: then users are named, if they shall be.
    pub(super) fn of(has_kubelet: bool, slurm: Option<Slurm>, names_users: bool, machine: &Machine) -> Self {
        let logs = machine.procfs.parent().map(|root| root.join("var/log/containers"));
        let logs = logs.filter(|_| has_kubelet);
        let has_users = names_users && !has_kubelet && slurm.is_none() && !machine.has_foreign_procfs();
        Self {
            procfs: machine.procfs.clone(),
            slurm,
            containers: logs.map(|logs| Containers { logs, known: Mutex::default() }),
            // The processes of this machine are not on the GPUs of a captured tree.
            users: has_users.then(|| Users::of(&machine.procfs)),
        }
    }

    /// Whom a process works for; none if that is not known.
    pub(super) fn of_process(&self, pid: u32) -> Option<ProcessOwner> {
        let job = || {
            let job = self.slurm.as_ref()?.job(pid)?;
            Identity::default().with(IdentityColumn::Job, &job).ok().map(Arc::new)
        };
        let user = || self.users.as_ref()?.of_process(pid).map(ProcessOwner::User);
        let holder = self.container(pid, instant()).or_else(job);
        holder.map(ProcessOwner::Holder).or_else(user)
    }

    /// The part of its GPUs that the container of a process was given; none: the process is in none, or its compute is not limited.
    pub(super) fn granted(&self, pid: u32) -> Option<f64> {
        self.containers.as_ref()?;
        granted(&read(&self.procfs.join(pid.to_string()).join("environ"))?)
    }

    /// The outermost container that is known: inside its own a process can make cgroups by any name.
    fn container(&self, pid: u32, now: Instant) -> Option<Arc<Identity>> {
        let containers = self.containers.as_ref()?;
        let mut cgroup = PinnedFile::open(&self.procfs.join(pid.to_string()).join("cgroup")).ok()?;
        container_ids(cgroup.read_text().ok()?).find_map(|id| containers.named(id, now))
    }
}

impl Containers {
    fn named(&self, id: &str, now: Instant) -> Option<Arc<Identity>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = known.read_at.is_none_or(|read_at| now.saturating_duration_since(read_at) >= READ_EVERY);
        if is_due && !known.by_id.contains_key(id) {
            *known = KnownContainers { by_id: listed(&self.logs), read_at: Some(now) };
        }
        known.by_id.get(id).cloned()
    }
}

/// The containers with a log in a folder, by id.
fn listed(logs: &Path) -> HashMap<String, Arc<Identity>> {
    let names = fs::read_dir(logs).into_iter().flatten().flatten().take(LOGS_MAX);
    names.filter_map(|entry| container_of_log(entry.file_name().to_str()?)).collect()
}

/// `POD_NAMESPACE_CONTAINER-ID.log`: none of the names has an underscore.
fn container_of_log(name: &str) -> Option<(String, Arc<Identity>)> {
    let (name, id) = name.strip_suffix(".log")?.rsplit_once('-')?;
    let mut names = name.split('_');
    let (pod, namespace, container) = (names.next()?, names.next()?, names.next()?);
    let identity = Identity::default()
        .with(IdentityColumn::Pod, pod)
        .and_then(|identity| identity.with(IdentityColumn::Namespace, namespace))
        .and_then(|identity| identity.with(IdentityColumn::Container, container));
    Some((id.to_owned(), Arc::new(identity.ok()?)))
}

/// The ids of containers in `/proc/<pid>/cgroup`, the outermost of a line first: `…/cri-containerd-ID.scope` with systemd, `…/podUID/ID`
/// without.
fn container_ids(cgroup: &str) -> impl Iterator<Item = &str> {
    cgroup.lines().flat_map(|line| line.split('/')).filter_map(container_id)
}

fn container_id(part: &str) -> Option<&str> {
    let bare = part.strip_suffix(".scope").unwrap_or(part);
    let id = bare.get(bare.len().checked_sub(ID_LEN)?..)?;
    id.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with a process file system and the logs of containers.
    struct MadeUp(tempfile::TempDir);

    impl MadeUp {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn owners(&self, kubelet: bool, slurm: bool) -> ProcessOwners {
            self.owners_with(kubelet, slurm, true)
        }

        fn owners_with(&self, kubelet: bool, slurm: bool, users: bool) -> ProcessOwners {
            let procfs = self.0.path().join("proc");
            let machine = Machine { procfs, ..Machine::local("n1") };
            ProcessOwners::of(kubelet, slurm.then(|| Slurm::new(&machine)), users, &machine)
        }
    }

    fn told(owner: Option<ProcessOwner>) -> String {
        match owner {
            None => "nobody".to_owned(),
            Some(ProcessOwner::User(name)) => name,
            Some(ProcessOwner::Holder(identity)) => {
                let columns = [
                    IdentityColumn::Namespace,
                    IdentityColumn::Pod,
                    IdentityColumn::Container,
                    IdentityColumn::Job,
                ];
                columns.map(|column| identity.get(column).unwrap_or_default()).join("/")
            }
        }
    }

    #[test]
    fn a_process_in_a_container_is_its_pods_however_the_cgroups_are_named() {
        let machine = MadeUp::new();
        let [one, two] = ["a1".repeat(32), "b2".repeat(32)];
        machine.write(&format!("var/log/containers/train-0_ml_cuda-main-{one}.log"), "");
        machine.write(
            "proc/7/cgroup",
            &format!("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{one}.scope\n"),
        );
        machine
            .write("proc/8/cgroup", &format!("4:memory:/kubepods/besteffort/pod2/{two}\n1:name=systemd:/\n"));
        machine.write("proc/9/cgroup", "0::/user.slice/user-1000.slice/session-3.scope\n");
        let owners = machine.owners(true, false);
        assert_eq!(told(owners.of_process(7)), "ml/train-0/cuda-main/");
        assert_eq!([8, 9, 10].map(|pid| told(owners.of_process(pid))), ["nobody"; 3]);
        // A container that started later is found when it is asked for some seconds later.
        machine.write(&format!("var/log/containers/serve-1_web_c-{two}.log"), "");
        let later = instant() + READ_EVERY;
        assert_eq!(told(owners.container(8, later).map(ProcessOwner::Holder)), "web/serve-1/c/");
        // A process is its container's, whatever cgroup it makes inside that.
        machine.write("proc/11/cgroup", &format!("0::/kubepods/pod1/{one}/{two}\n"));
        assert_eq!(told(owners.of_process(11)), "ml/train-0/cuda-main/");
    }

    #[test]
    fn the_logs_are_not_read_again_for_each_process_of_a_container_without_one() {
        let machine = MadeUp::new();
        let id = "c3".repeat(32);
        machine.write("proc/7/cgroup", &format!("0::/kubepods/pod1/{id}\n"));
        let owners = machine.owners(true, false);
        let start = instant();
        let told_at = |now| told(owners.container(7, now).map(ProcessOwner::Holder));
        assert_eq!(told_at(start), "nobody");
        machine.write(&format!("var/log/containers/train-0_ml_main-{id}.log"), "");
        assert_eq!(told_at(start + READ_EVERY / 2), "nobody");
        assert_eq!(told_at(start + READ_EVERY), "ml/train-0/main/");
    }

    #[test]
    fn a_user_is_named_only_where_nobody_gives_gpus_out_and_he_shall_be() {
        let machine = MadeUp::new();
        machine.write("etc/passwd", "kim:x:1000:1000::/home/kim:/bin/sh\n");
        machine.write("proc/7/status", "Uid:\t1000\t1000\t1000\t1000\n");
        machine.write("proc/8/cgroup", "0::/system.slice/slurmstepd.scope/job_4711/step_0\n");
        let [free, kubelet, slurm] = [(false, false), (true, false), (false, true)]
            .map(|(kubelet, slurm)| machine.owners(kubelet, slurm));
        assert_eq!(told(free.of_process(7)), "kim");
        assert_eq!(told(machine.owners_with(false, false, false).of_process(7)), "nobody");
        assert_eq!([&kubelet, &slurm].map(|owners| told(owners.of_process(7))), ["nobody"; 2]);
        assert_eq!(told(slurm.of_process(8)), "///4711");
        machine.write("proc/9/cgroup", "0::/user.slice/user-1000.slice/user@1000.service/slurm/job_5\n");
        machine.write("proc/9/environ", "SLURM_JOB_ID=999\0");
        assert_eq!(told(slurm.of_process(9)), "nobody", "a process cannot work for whom it likes");
    }
}
