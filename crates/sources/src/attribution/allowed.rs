//! The GPUs whose device files the cgroup of a job allows: a job has them also where no hook tells of it and its environment cannot be read.
//!
//! In version 1 of cgroups the kernel lists in `devices.list` what a cgroup may open, a line each: `c 195:0 rwm`. It does so only where all
//! else is denied. Slurm denies a job the GPUs that it has not, one by one, and of a cgroup in which single devices are denied the kernel
//! says `a *:* rwm`: all of them. So the list names the GPUs of a job only where something above Slurm allows no device that it does not
//! name, as a container does in which slurmd runs. In version 2 a program of the kernel decides, and what it allows cannot be read.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::kubelet::Devices;
use super::slurm::{SlurmStep, number_of, read};
use super::{GpuName, Owner};
use crate::machine::Machine;

/// Major number of NVIDIA's devices, and the first minor one that is no GPU: 254 sets modes, 255 controls all.
const NVIDIA: (u32, u32) = (195, 254);
/// Major number of DRM's devices, and the first minor one of a render node.
const DRM: (u32, u32) = (226, 128);

/// The GPUs that jobs may open, the newest job first. They count as what a process claims does, after the batch system's hooks.
pub(super) fn owners(machine: &Machine, steps: &[SlurmStep]) -> Vec<(GpuName, Owner)> {
    let root = machine.sysfs.join("fs/cgroup/devices");
    let devices = Devices::new(machine);
    let jobs = steps.iter().filter_map(|step| Some((&step.job, step.devices.as_deref()?)));
    let jobs: BTreeMap<_, _> = jobs.collect();
    let mut owners = Vec::new();
    for (job, path) in jobs {
        let Some(list) = read(&root.join(path).join("devices.list")) else { continue };
        let owner = Owner { job: Some(Arc::clone(job)), is_claimed: true, ..Owner::default() };
        let list = String::from_utf8_lossy(&list);
        let gpus = list.lines().filter_map(device).filter_map(|device| gpu(&devices, device));
        owners.extend(gpus.map(|gpu| (gpu, owner.clone())));
    }
    owners.sort_by_key(|(_, owner)| Reverse(number_of(owner)));
    owners
}

/// Major and minor number of the device in a line, if one may read or write it. One of all devices of a driver names none.
fn device(line: &str) -> Option<(u32, u32)> {
    let (numbers, access) = line.strip_prefix("c ")?.split_once(' ')?;
    let (major, minor) = numbers.split_once(':')?;
    let may_use = access.contains(['r', 'w']);
    Some((major.parse().ok()?, minor.parse().ok()?)).filter(|_| may_use)
}

/// The GPU of a device file.
fn gpu(devices: &Devices<'_>, (major, minor): (u32, u32)) -> Option<GpuName> {
    if major == NVIDIA.0 {
        return (minor < NVIDIA.1).then(|| devices.by_minor(minor));
    }
    let is_render = major == DRM.0 && minor >= DRM.1;
    devices.by_node(&format!("renderD{minor}")).filter(|_| is_render)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_a_device_that_may_be_used() {
        for (line, named) in [
            ("c 195:0 rwm", Some((195, 0))),
            ("c 226:128 rw", Some((226, 128))),
            ("c 195:1 m", None),
            ("c 195:* rwm", None),
            ("a *:* rwm", None),
            ("b 8:0 rwm", None),
            ("c 195", None),
            ("", None),
        ] {
            assert_eq!(device(line), named, "{line}");
        }
    }

    #[test]
    fn a_job_has_the_gpus_that_its_cgroup_allows_where_that_is_listed() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let of_job = |job: &str| format!("docker/1f/slurm_vm/uid_0/job_{job}");
        let listed = |job: &str, list: &str| {
            write(&format!("sys/fs/cgroup/devices/{}/devices.list", of_job(job)), list);
        };
        // As the kernel wrote it of a cgroup below one that denies all, and below one that does not.
        listed("7", "c 1:3 rwm\nc 195:255 rwm\nc 195:254 rw\nc 195:1 rwm\nc 226:0 rwm\n");
        listed("8", "a *:* rwm\n");
        listed("12", "c 195:0 rwm\n");
        write("proc/driver/nvidia/gpus/0000:0c:00.0/information", "Device Minor: \t 1\n");
        let machine = Machine {
            sysfs: root.path().join("sys"),
            procfs: root.path().join("proc"),
            ..Machine::local("n1")
        };
        let step = |job: &str, devices: Option<String>| SlurmStep {
            job: job.into(),
            step: "batch".into(),
            gpus: None,
            devices: devices.map(Into::into),
        };
        let steps = ["7", "8", "12", "9"].map(|job| step(job, Some(of_job(job))));
        let job = |gpu: GpuName, job: &str| {
            (gpu, Owner { job: Some(job.into()), is_claimed: true, ..Owner::default() })
        };
        let first = job(GpuName::Index("nvidia", 0), "12");
        assert_eq!(owners(&machine, &steps), [first, job(GpuName::Pci("0000:0c:00.0".into()), "7")]);
        assert_eq!(owners(&machine, &[step("7", None)]), [], "version 2 has no list");
    }
}
