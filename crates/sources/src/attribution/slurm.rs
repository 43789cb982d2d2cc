//! Batch jobs that hold GPUs, found through their processes.
//!
//! Slurm puts every process of a job into a cgroup named after it: `…/slurm/uid_1000/job_4711/step_0`
//! (version 1, also `slurm_NODE`), `…/slurmstepd.scope/job_4711/step_0` (version 2, also
//! `NODE_slurmstepd.scope`). If it does not manage cgroups, the process's environment has `SLURM_JOB_ID`, for
//! readers with the right (the same user, or `CAP_SYS_PTRACE`). Anybody can write that there, so it is a claim, which Slurm's hooks
//! overrule. The GPUs of a job that does nothing with them are those that the hooks name ([`gpus`]), else those that Slurm wrote into the
//! environment of its processes: a claim, too.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::{GpuName, Owner};
use crate::machine::Machine;
use crate::processes::GpuProcess;

/// Most bytes read of a process's environment or cgroup; the kernel's own bound of an environment is 2 MiB.
const FILE_LEN_MAX: u64 = 256 << 10;
/// Longest job number; Slurm's are 32 bits.
const JOB_LEN_MAX: usize = 20;
/// Most GPUs in a list of Slurm's; a node has some dozen.
const GPUS_MAX: usize = 128;
/// Most cgroups of a folder that are read; a system has some hundred services.
const FOLDERS_MAX: usize = 10_000;
/// The cgroup in which users may make cgroups of any name.
const USERS: &str = "user.slice";
/// Most processes of a machine that are looked at.
const PROCESSES_MAX: usize = 50_000;
/// Processes of a step whose environment is read, until one names GPUs: a step may have thousands, all with the same.
const TRIES_MAX: u32 = 8;
const JOB: &[u8] = b"SLURM_JOB_ID=";
/// GPUs of a job on the node of its batch script; steps on other nodes inherit it.
const JOB_GPUS: &[u8] = b"SLURM_JOB_GPUS=";
/// GPUs of a step on its node.
const STEP_GPUS: &[u8] = b"SLURM_STEP_GPUS=";
const NAMED_GPUS: &[u8] = b"CUDA_VISIBLE_DEVICES=";
/// Steps of the node on which the job began.
const FIRST_STEPS: [&str; 2] = ["batch", "interactive"];

/// A step of a job with processes on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmStep {
    /// Number of the job.
    pub job: Arc<str>,
    /// What Slurm calls the step: its number, `batch`, `interactive`, or `extern`.
    pub step: Arc<str>,
    /// The GPUs that it may use here, as Slurm wrote them into the environment of its processes; none: it names none, or cannot be read.
    pub gpus: Option<Arc<str>>,
    /// The job's cgroup of devices, below the root of these; none: the machine has version 2 of cgroups, or Slurm limits no devices.
    pub devices: Option<Arc<str>>,
}

impl SlurmStep {
    /// Whether programs of a user run in it, and not only what Slurm itself starts in each job.
    pub fn is_of_user(&self) -> bool {
        job_number(&self.step).is_some() || FIRST_STEPS.contains(&&*self.step)
    }
}

/// Finds the jobs of processes in a procfs.
#[derive(Debug, Clone)]
pub struct Slurm {
    machine: Machine,
}

impl Slurm {
    /// On this machine.
    pub fn new(machine: &Machine) -> Self {
        Self { machine: machine.clone() }
    }

    /// The machine on which jobs are looked for.
    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Whether Slurm has jobs' cgroups on this machine: cheap, and true from its start on.
    pub fn runs_on(machine: &Machine) -> bool {
        let cgroups = machine.sysfs.join("fs/cgroup");
        let has_slurm = |folder: &Path| {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            entries.take(FOLDERS_MAX).any(|entry| entry.file_name().to_str().is_some_and(is_slurm))
        };
        // Version 2 has it in the system's slice, version 1 below each controller.
        ["system.slice", "cpuset", "devices", "freezer", "memory"]
            .iter()
            .any(|dir| has_slurm(&cgroups.join(dir)))
    }

    /// The jobs that hold the GPUs of these processes. Of several jobs on one GPU the one whose processes
    /// hold the most memory comes first.
    pub fn owners(&self, processes: &[GpuProcess]) -> Vec<(GpuName, Owner)> {
        let mut jobs: Vec<(Arc<str>, Owner, i64)> = Vec::new();
        for process in processes {
            let (Some(owner), Some(gpu)) = (self.owner(process.pid), process.gpu.key()) else { continue };
            let memory = process.memory_mb.unwrap_or(0);
            match jobs.iter_mut().find(|(known_gpu, known, _)| *known_gpu == gpu && *known == owner) {
                Some((_, _, sum)) => *sum += memory,
                None => jobs.push((gpu, owner, memory)),
            }
        }
        jobs.sort_by(|a, b| (&a.0, -a.2, &a.1.job).cmp(&(&b.0, -b.2, &b.1.job)));
        jobs.into_iter().map(|(gpu, owner, _)| (GpuName::Uuid(gpu), owner)).collect()
    }

    /// The steps of jobs that have processes here, by the cgroups of these.
    pub fn steps(&self) -> Vec<SlurmStep> {
        let entries =
            std::fs::read_dir(&self.machine.procfs).into_iter().flatten().flatten().take(PROCESSES_MAX);
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let mut steps: BTreeMap<(String, String), (SlurmStep, u32)> = BTreeMap::new();
        for pid in pids {
            let Some(cgroup) = self.read(pid, "cgroup") else { continue };
            let cgroup = String::from_utf8_lossy(&cgroup);
            let Some(step) = job_in_cgroup(&cgroup).zip(step_in_cgroup(&cgroup)) else { continue };
            let (step, tries) = steps.entry(step).or_insert_with_key(|(job, step)| {
                let devices = devices_in_cgroup(&cgroup).map(Arc::from);
                (SlurmStep { job: job.as_str().into(), step: step.as_str().into(), gpus: None, devices }, 0)
            });
            if step.gpus.is_some() || *tries >= TRIES_MAX {
                continue;
            }
            *tries += 1;
            let environment = self.read(pid, "environ").unwrap_or_default();
            step.gpus = gpus_in_environment(&environment, &step.step).map(Arc::from);
        }
        steps.into_values().map(|(step, _)| step).collect()
    }

    /// The job into whose cgroup Slurm has put a process; none if it has none, has ended, or cannot be read.
    pub fn job(&self, pid: u32) -> Option<String> {
        job_in_cgroup(&String::from_utf8_lossy(&self.read(pid, "cgroup")?))
    }

    /// The job of a process, by its cgroup or else by what it claims.
    fn owner(&self, pid: u32) -> Option<Owner> {
        let of = |job: String, is_claimed| Owner { job: Some(job.into()), is_claimed, ..Owner::default() };
        let put = self.job(pid).map(|job| of(job, false));
        put.or_else(|| Some(of(job_in_environment(&self.read(pid, "environ")?)?, true)))
    }

    fn read(&self, pid: u32, file: &str) -> Option<Vec<u8>> {
        read(&self.machine.procfs.join(pid.to_string()).join(file))
    }
}

/// The GPUs that jobs have by what Slurm wrote into the environment of their steps, whether a process uses them or not. By number where the
/// node's GPUs are all of this vendor.
pub fn claims(steps: &[SlurmStep], vendors: &[&'static str]) -> Vec<(GpuName, Owner)> {
    let mut claims: Vec<(GpuName, Owner)> = Vec::new();
    for step in steps {
        let owner = Owner { job: Some(Arc::clone(&step.job)), is_claimed: true, ..Owner::default() };
        let named = gpus(step.gpus.as_deref().unwrap_or_default(), vendors);
        claims.extend(named.into_iter().map(|gpu| (gpu, owner.clone())));
    }
    // The newest job counts: one whose processes are left behind has no GPU any more.
    claims.sort_by_key(|(_, owner)| Reverse(number_of(owner)));
    claims
}

/// What is in a file, if it can be read; of a long one the begin.
pub(super) fn read(path: &Path) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path).ok()?.take(FILE_LEN_MAX).read_to_end(&mut content).ok()?;
    Some(content)
}

/// Whether a cgroup of this name is Slurm's own.
fn is_slurm(name: &str) -> bool {
    name.starts_with("slurm") || name.ends_with("slurmstepd.scope")
}

/// The job in `/proc/<pid>/cgroup`: `hierarchy:controllers:path` a line. What a user has named is none.
fn job_in_cgroup(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let path = line.splitn(3, ':').nth(2)?;
        let parts = path.split('/');
        if parts.clone().any(|part| part == USERS) {
            return None;
        }
        let below =
            parts.skip_while(|part| !(part.starts_with("slurm") || part.ends_with("slurmstepd.scope")));
        below.skip(1).find_map(|part| job_number(part.strip_prefix("job_")?))
    })
}

/// The job in `/proc/<pid>/environ`: `NAME=value`, each ended by a zero byte. Other variables are not read.
fn job_in_environment(bytes: &[u8]) -> Option<String> {
    job_number(variable(bytes, JOB)?)
}

/// The step in the cgroup of a job's process: `0`, `batch`.
fn step_in_cgroup(text: &str) -> Option<String> {
    let mut parts = text.lines().flat_map(|line| line.split('/'));
    parts.find_map(|part| part.trim_end().strip_prefix("step_")).map(str::to_owned)
}

/// The cgroup of devices of the job of a process, in version 1, without the sign at its begin: `slurm/uid_0/job_7`.
fn devices_in_cgroup(text: &str) -> Option<&str> {
    let path = text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let is_of_devices = fields.next()?.split(',').any(|controller| controller == "devices");
        fields.next().filter(|_| is_of_devices)
    })?;
    let path = path.strip_prefix('/').filter(|path| path.split('/').all(|part| part != ".."))?;
    let job = path.find("/job_")? + 1;
    let end = path.get(job..)?.find('/').map_or(path.len(), |len| job + len);
    path.get(..end)
}

/// The list of GPUs that Slurm wrote into the environment of a process of this step.
fn gpus_in_environment<'a>(bytes: &'a [u8], step: &str) -> Option<&'a str> {
    let has_uuid = |list: &&str| list.split(',').any(|gpu| is_uuid(gpu.trim()));
    let of_job = || variable(bytes, JOB_GPUS).filter(|_| FIRST_STEPS.contains(&step));
    variable(bytes, NAMED_GPUS).filter(has_uuid).or_else(|| variable(bytes, STEP_GPUS)).or_else(of_job)
}

/// The value of a variable whose name ends with `=`.
pub(super) fn variable<'a>(bytes: &'a [u8], name: &[u8]) -> Option<&'a str> {
    let value = bytes.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(name))?;
    std::str::from_utf8(value).ok()
}

/// The number of an owner that is a job; Slurm counts up.
pub(super) fn number_of(owner: &Owner) -> Option<u64> {
    owner.job.as_ref()?.parse().ok()
}

/// The GPUs of a list of Slurm's: UUIDs, or numbers on the node, which say nothing where GPUs of several vendors are.
pub fn gpus(list: &str, vendors: &[&'static str]) -> Vec<GpuName> {
    let name = |word: &str| {
        if is_uuid(word) {
            return Some(GpuName::Uuid(word.into()));
        }
        let [vendor] = vendors else { return None };
        Some(GpuName::Index(vendor, word.parse().ok()?))
    };
    list.split(',').map(str::trim).take(GPUS_MAX).filter_map(name).collect()
}

/// Whether a word is the UUID of an NVIDIA GPU or of an instance of one, and no number.
pub fn is_uuid(word: &str) -> bool {
    ["GPU-", "MIG-"].iter().any(|start| word.starts_with(start))
}

/// The number of a job; none if the text is no such number.
pub fn job_number(text: &str) -> Option<String> {
    let is_number = !text.is_empty() && text.len() <= JOB_LEN_MAX && text.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::processes::ProcessKind;
    use gpuvitals_core::{Identity, IdentityColumn};

    fn slurm_of(procfs: &Path) -> Slurm {
        Slurm::new(&Machine { procfs: procfs.to_owned(), ..Machine::local("n1") })
    }

    fn process(gpu: &str, pid: u32, memory_mb: Option<i64>) -> GpuProcess {
        GpuProcess {
            gpu: Arc::new(Identity::default().with(IdentityColumn::Uuid, gpu).unwrap()),
            pid,
            name: "python".into(),
            kind: ProcessKind::Compute,
            memory_mb,
            utilization_pct: None,
            memory_utilization_pct: None,
            encoder_utilization_pct: None,
            decoder_utilization_pct: None,
            compute_units: None,
        }
    }

    #[test]
    fn a_cgroup_of_either_version_names_its_job() {
        for (text, job) in [
            ("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n", Some("4711")),
            ("0::/system.slice/n1_slurmstepd.scope/job_12/step_batch/user\n", Some("12")),
            ("11:devices:/slurm/uid_1000/job_815/step_0/task_3\n1:name=systemd:/x\n", Some("815")),
            ("4:memory:/\n3:cpuset:/slurm_node7/uid_0/job_9/step_extern\n", Some("9")),
            ("0::/user.slice/user-1000.slice/session-3.scope\n", None),
            ("0::/user.slice/user-1000.slice/user@1000.service/slurm/job_5\n", None),
            ("0::/../../user.slice/user-1000.slice/user@1000.service/x_slurmstepd.scope/job_5\n", None),
            ("1:name=systemd:/user.slice/slurm/job_5\n4:memory:/slurm/uid_0/job_9\n", Some("9")),
            ("0::/home/job_7/slurm\n", None),
            ("0::/slurm/uid_1/job_/step_0\n", None),
            ("0::/slurm/uid_1/job_7x/step_0\n", None),
            ("0::/kubepods.slice/pod1/slurmd/job_5\n", Some("5")),
            ("garbage", None),
            ("", None),
        ] {
            assert_eq!(job_in_cgroup(text).as_deref(), job, "{text:?}");
        }
    }

    #[test]
    fn a_cgroup_of_version_1_names_that_of_the_devices_of_its_job() {
        // As a process of Slurm 22.05 had it.
        let seen = "6:freezer:/slurm_vm/uid_65534/job_11/step_batch\n\
                    5:devices:/slurm_vm/uid_65534/job_11/step_batch/task_0\n0::/\n";
        for (text, path) in [
            (seen, Some("slurm_vm/uid_65534/job_11")),
            ("3:cpu,devices:/docker/1f/slurm/uid_0/job_7\n", Some("docker/1f/slurm/uid_0/job_7")),
            ("5:devices:/../slurm/uid_0/job_7/step_0\n", None),
            ("5:devices:/system.slice/ssh.service\n", None),
            ("0::/system.slice/slurmstepd.scope/job_7/step_0\n", None),
            ("", None),
        ] {
            assert_eq!(devices_in_cgroup(text), path, "{text:?}");
        }
    }

    #[test]
    fn an_environment_names_its_job_and_nothing_that_only_looks_so() {
        for (bytes, job) in [
            (&b"PATH=/bin\0SLURM_JOB_ID=4711\0HOME=/\0"[..], Some("4711")),
            (b"SLURM_JOB_ID=4711", Some("4711")),
            (b"OLD_SLURM_JOB_ID=1\0X=SLURM_JOB_ID=2\0", None),
            (b"SLURM_JOB_ID=\0", None),
            (b"SLURM_JOB_ID=\xff\xfe\0", None),
            (b"SLURM_JOB_ID=123456789012345678901234567890\0", None),
            (b"", None),
        ] {
            assert_eq!(job_in_environment(bytes).as_deref(), job, "{bytes:?}");
        }
    }

    #[test]
    fn a_list_names_gpus_by_uuid_or_by_number_if_it_is_clear_whose() {
        let nvidia = |index| GpuName::Index("nvidia", index);
        let uuid = |name: &str| GpuName::Uuid(name.into());
        for (list, vendors, named) in [
            ("0,3", &["nvidia"][..], vec![nvidia(0), nvidia(3)]),
            ("2", &["amd"], vec![GpuName::Index("amd", 2)]),
            ("0,1", &["amd", "nvidia"], vec![]),
            ("0", &[], vec![]),
            ("GPU-1, MIG-2", &["amd", "nvidia"], vec![uuid("GPU-1"), uuid("MIG-2")]),
            ("NoDevFiles", &["nvidia"], vec![]),
            ("", &["nvidia"], vec![]),
        ] {
            assert_eq!(gpus(list, vendors), named, "{list:?} {vendors:?}");
        }
    }

    #[test]
    fn slurm_is_seen_by_its_cgroups() {
        for (folder, runs) in [
            ("fs/cgroup/system.slice/n1_slurmstepd.scope", true),
            ("fs/cgroup/system.slice/slurmstepd.scope", true),
            ("fs/cgroup/cpuset/slurm", true),
            ("fs/cgroup/system.slice/ssh.service", false),
            ("fs", false),
        ] {
            let sysfs = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(sysfs.path().join(folder)).unwrap();
            let machine = Machine { sysfs: sysfs.path().to_owned(), ..Machine::local("n1") };
            assert_eq!(Slurm::runs_on(&machine), runs, "{folder}");
        }
    }

    #[test]
    fn the_job_that_holds_most_of_a_gpu_comes_first() {
        let procfs = tempfile::tempdir().unwrap();
        let write = |pid: u32, file: &str, text: &str| {
            let dir = procfs.path().join(pid.to_string());
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join(file), text).unwrap();
        };
        write(10, "cgroup", "0::/system.slice/slurmstepd.scope/job_1/step_0\n");
        write(11, "cgroup", "0::/user.slice\n");
        write(11, "environ", "SLURM_JOB_ID=2\0");
        write(12, "environ", "SLURM_JOB_ID=2\0");
        write(13, "cgroup", "0::/user.slice\n");
        let slurm = slurm_of(procfs.path());
        let owners = slurm.owners(&[
            process("GPU-a", 10, Some(500)),
            process("GPU-a", 11, Some(300)),
            process("GPU-a", 12, Some(300)),
            process("GPU-b", 10, None),
            process("GPU-b", 13, Some(9000)),
            process("GPU-c", 99, Some(1)),
        ]);
        let job = |gpu: &str, job: &str, is_claimed| {
            (GpuName::Uuid(gpu.into()), Owner { job: Some(job.into()), is_claimed, ..Owner::default() })
        };
        assert_eq!(owners, [job("GPU-a", "2", true), job("GPU-a", "1", false), job("GPU-b", "1", false)]);
        assert_eq!([10, 11, 12].map(|pid| slurm.job(pid)), [Some("1".to_owned()), None, None]);
    }

    #[test]
    fn a_job_has_the_gpus_in_the_environment_of_its_processes_also_without_using_them() {
        let procfs = tempfile::tempdir().unwrap();
        let write = |pid: u32, step: &str, environment: &str| {
            let dir = procfs.path().join(pid.to_string());
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("cgroup"), format!("0::/system.slice/{step}\n")).unwrap();
            std::fs::write(dir.join("environ"), environment).unwrap();
        };
        let batch = "slurmstepd.scope/job_7/step_batch/user/task_0";
        write(10, batch, "SLURM_JOB_ID=7\0SLURM_JOB_GPUS=0,1\0CUDA_VISIBLE_DEVICES=0,1\0");
        write(11, batch, "SLURM_JOB_GPUS=0,1\0");
        // A step on another node than its script's inherits the script's numbers.
        write(12, "slurmstepd.scope/job_8/step_0/user", "SLURM_JOB_GPUS=5\0SLURM_STEP_GPUS=2\0");
        write(13, "slurmstepd.scope/job_9/step_0/user", "SLURM_JOB_GPUS=3\0");
        write(14, "slurmstepd.scope/job_10/step_batch", "SLURM_JOB_GPUS=0\0CUDA_VISIBLE_DEVICES=MIG-1\0");
        write(15, "ssh.service", "SLURM_JOB_GPUS=4\0");
        let claims = |vendors: &[&'static str]| {
            let claims = super::claims(&slurm_of(procfs.path()).steps(), vendors);
            assert!(claims.iter().all(|(_, owner)| owner.is_claimed));
            let named = claims.into_iter().map(|(gpu, owner)| (gpu, owner.job.unwrap().to_string()));
            named.collect::<Vec<_>>()
        };
        let of = |gpu: GpuName, job: &str| (gpu, job.to_owned());
        let number = |index| GpuName::Index("nvidia", index);
        let instance = of(GpuName::Uuid("MIG-1".into()), "10");
        let numbered = [of(number(2), "8"), of(number(0), "7"), of(number(1), "7")];
        assert_eq!(claims(&["nvidia"]), [&[instance.clone()][..], &numbered].concat());
        assert_eq!(claims(&["amd", "nvidia"]), [instance], "numbers say nothing");

        write(16, "slurmstepd.scope/job_7/step_extern", "SLURM_JOB_ID=7\0");
        write(17, "slurmstepd.scope/job_7/step_whole", "");
        let steps = slurm_of(procfs.path()).steps();
        let of_job: Vec<(&str, Option<&str>, bool)> = steps
            .iter()
            .filter(|step| &*step.job == "7")
            .map(|step| (&*step.step, step.gpus.as_deref(), step.is_of_user()))
            .collect();
        assert_eq!(of_job, [("batch", Some("0,1"), true), ("extern", None, false), ("whole", None, false)]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_invent_a_job(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let found = [job_in_cgroup(&String::from_utf8_lossy(&bytes)), job_in_environment(&bytes)];
            for job in found.into_iter().flatten() {
                prop_assert!(job.bytes().all(|b| b.is_ascii_digit()) && job.len() <= JOB_LEN_MAX);
            }
        }
    }
}
