//! The present owners of the node's GPUs, shared by attribution and sampler.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use gpuvitals_core::usage::{ProcessOwner, Sharing, holder_name};
use gpuvitals_core::{Identity, IdentityColumn};

use super::owner::{GpuName, Owner, is_named};
use super::process_owners::ProcessOwners;
use crate::driver::Driver;

/// GPUs that are remembered, to tell which names none has.
const MET_MAX: usize = 4096;

/// Listed processes, and whom each works for.
type ListedOwners = HashMap<u32, Option<ProcessOwner>>;

/// The owners as of the last request. A sampler checks only the generation until it changes.
#[derive(Debug, Default)]
pub struct Owners {
    /// The cluster of the node, if it is known.
    cluster: Option<Arc<str>>,
    generation: AtomicU64,
    known: Mutex<Arc<Vec<(GpuName, Owner)>>>,
    /// The GPUs that were attributed so far, by key.
    met: Mutex<HashMap<Arc<str>, Arc<Identity>>>,
    /// Whom processes work for, once it can be asked.
    of_processes: OnceLock<ProcessOwners>,
    /// The processes of each driver's last listing, and whom they work for.
    listed: Mutex<BTreeMap<Driver, ListedOwners>>,
    /// The parts of GPUs that containers were given, by holder: kept as long as it has one, also without a process.
    granted: Mutex<HashMap<Arc<str>, f64>>,
}

impl Owners {
    /// Nobody holds anything until the first answer.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// No owners yet, on a node of this cluster.
    pub fn in_cluster(cluster: Option<Arc<str>>) -> Arc<Self> {
        Arc::new(Self { cluster, ..Self::default() })
    }

    /// The cluster of the node, if it is known.
    pub fn cluster(&self) -> Option<&str> {
        self.cluster.as_deref()
    }

    /// Changes whenever the owners do.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Replaces all owners. The same owners again change nothing.
    pub fn replace(&self, owners: Vec<(GpuName, Owner)>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if **known != owners {
            self.grants().retain(|holder, _| owners.iter().any(|(_, owner)| named(owner) == *holder));
            *known = Arc::new(owners);
            self.generation.fetch_add(1, Ordering::Release);
        }
    }

    /// Knows from now on whom processes work for; the first word counts.
    pub(super) fn tell_processes_apart(&self, of_processes: ProcessOwners) {
        let _known = self.of_processes.set(of_processes);
        // Some may be listed already.
        let drivers: Vec<Driver> = self.listed().keys().copied().collect();
        for driver in drivers {
            self.find_owners(driver);
        }
    }

    /// Takes a listing of the processes on a driver's GPUs. Whom they work for is found out here, by files, so that who asks later reads
    /// none.
    pub(crate) fn list_processes(&self, driver: Driver, pids: impl Iterator<Item = u32>) {
        let mut listed = self.listed();
        let before = listed.remove(&driver).unwrap_or_default();
        let owner = |pid: u32| (pid, before.get(&pid).cloned().flatten());
        listed.insert(driver, pids.map(owner).collect());
        drop(listed);
        self.find_owners(driver);
    }

    /// Finds out whom the listed processes work for, once that can be asked.
    fn find_owners(&self, driver: Driver) {
        let Some(of_processes) = self.of_processes.get() else { return };
        let pids: Vec<u32> =
            self.listed().get(&driver).into_iter().flat_map(HashMap::keys).copied().collect();
        // Not under the lock: files may be slow.
        let found: ListedOwners = pids.into_iter().map(|pid| (pid, of_processes.of_process(pid))).collect();
        self.find_grants(of_processes, &found);
        self.listed().insert(driver, found);
    }

    /// Finds out what containers were given that have a part of a GPU, by their listed processes. Of several the largest counts: a process
    /// that sets a smaller one for its children has no smaller part. No other process's environment is read.
    fn find_grants(&self, of_processes: &ProcessOwners, found: &ListedOwners) {
        let with_parts: HashSet<Arc<str>> =
            self.known().iter().filter(|(_, owner)| owner.is_part).map(|(_, owner)| named(owner)).collect();
        if with_parts.is_empty() {
            return;
        }
        let mut granted: HashMap<Arc<str>, f64> = HashMap::new();
        for (pid, owner) in found {
            let Some(ProcessOwner::Holder(holder)) = owner else { continue };
            let holder = holder_name(holder);
            if !with_parts.contains(&holder) {
                continue;
            }
            if let Some(part) = of_processes.granted(*pid) {
                let most = granted.entry(holder).or_insert(part);
                *most = most.max(part);
            }
        }
        self.grants().extend(granted);
    }

    fn known(&self) -> Arc<Vec<(GpuName, Owner)>> {
        Arc::clone(&self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn grants(&self) -> MutexGuard<'_, HashMap<Arc<str>, f64>> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listed(&self) -> MutexGuard<'_, BTreeMap<Driver, ListedOwners>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names that no GPU has which was attributed so far; none as long as there was no GPU.
    pub(super) fn unmatched<'a>(
        &self,
        names: impl Iterator<Item = &'a GpuName>,
    ) -> impl Iterator<Item = &'a GpuName> {
        let met: Vec<Arc<Identity>> =
            self.met.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        names.filter(move |name| !met.is_empty() && !met.iter().any(|gpu| is_named(gpu, name)))
    }

    /// Whether all GPUs that were attributed so far are of this vendor.
    pub(super) fn are_all_of(&self, vendor: &str) -> bool {
        let met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        met.values().all(|gpu| gpu.get(IdentityColumn::Vendor) == Some(vendor))
    }

    /// The identity with its cluster and its present owners; unchanged if it has none. Several records of one GPU
    /// complement each other; if two contradict each other (time slicing) the first counts.
    pub fn attribute(&self, identity: &Arc<Identity>) -> Arc<Identity> {
        self.meet(identity);
        let known = self.known();
        let mut attributed: Option<Identity> = None;
        if let Some(cluster) = &self.cluster
            && identity.get(IdentityColumn::Cluster).is_none()
        {
            // The name was checked when it was set.
            let _refused = attributed
                .get_or_insert_with(|| Identity::clone(identity))
                .set(IdentityColumn::Cluster, cluster);
        }
        for (_, owner) in known.iter().filter(|(name, _)| is_named(identity, name)) {
            let into = attributed.get_or_insert_with(|| Identity::clone(identity));
            for (column, text) in owner.texts() {
                if let Some(text) = text
                    && into.get(column).is_none()
                {
                    // An invalid name is left out: the orchestrator checks its names, and a metric is worth
                    // more than a label.
                    let _refused = into.set(column, text);
                }
            }
        }
        attributed.map_or_else(|| Arc::clone(identity), Arc::new)
    }

    fn meet(&self, identity: &Arc<Identity>) {
        let Some(key) = identity.key() else { return };
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        if met.len() < MET_MAX && !met.contains_key(&key) {
            met.insert(key, Arc::clone(identity));
        }
    }
}

impl Sharing for Owners {
    fn sharers(&self, identity: &Arc<Identity>) -> Vec<Arc<Identity>> {
        let known = self.known();
        let mut pods = known.iter().filter(|(name, owner)| owner.pod.is_some() && is_named(identity, name));
        let (Some(first), Some(second)) = (pods.next(), pods.next()) else { return Vec::new() };
        let of = |(_, owner): &(GpuName, Owner)| {
            let mut held = Identity::clone(identity);
            for (column, text) in owner.texts() {
                let _refused = held.set(column, text.as_deref().unwrap_or_default());
            }
            Arc::new(held)
        };
        [first, second].into_iter().chain(pods).map(of).collect()
    }

    fn granted(&self, identity: &Identity) -> Option<f64> {
        let known = self.known();
        let mut parts =
            known.iter().filter(|(name, owner)| owner.is_part && is_named(identity, name)).peekable();
        // It is asked with every batch, and most machines have no parts.
        parts.peek()?;
        let holder = holder_name(identity);
        parts.find(|(_, owner)| named(owner) == holder)?;
        self.grants().get(&holder).copied()
    }

    fn owner_of(&self, pid: u32) -> Option<ProcessOwner> {
        self.listed().values().find_map(|listed| listed.get(&pid)?.clone())
    }
}

/// What rows call an owner.
fn named(owner: &Owner) -> Arc<str> {
    let mut identity = Identity::default();
    for (column, text) in owner.texts() {
        let _refused = identity.set(column, text.as_deref().unwrap_or_default());
    }
    holder_name(&identity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn what_a_container_was_given_of_a_gpu_is_in_the_environment_of_its_processes() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let id = "a".repeat(64);
        write(&format!("var/log/containers/train-0_team_main-{id}.log"), "");
        write("proc/7/cgroup", &format!("0::/kubepods.slice/cri-containerd-{id}.scope\n"));
        write("proc/7/environ", "PATH=/bin\0CUDA_DEVICE_SM_LIMIT=30\0");
        let machine = Machine { procfs: folder.path().join("proc"), ..Machine::local("n1") };
        let owners = Owners::new();
        owners.tell_processes_apart(ProcessOwners::of(true, None, false, &machine));
        let pod = |is_part| {
            let [pod, namespace, container] = ["train-0", "team", "main"].map(|name| Some(name.into()));
            let owner = Owner { pod, namespace, container, is_part, ..Owner::default() };
            vec![(GpuName::Uuid("GPU-1".into()), owner)]
        };
        owners.replace(pod(true));
        let gpu = Arc::new(Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap());
        let held = owners.attribute(&gpu);
        let granted = || owners.granted(&held);
        assert_eq!(granted(), None, "no process of it was listed yet");
        owners.list_processes(Driver::Nvml, [7].into_iter());
        assert_eq!(granted(), Some(0.3));
        owners.list_processes(Driver::Nvml, std::iter::empty());
        assert_eq!(granted(), Some(0.3), "it still has it without a process");
        write("proc/8/cgroup", &format!("0::/kubepods.slice/cri-containerd-{id}.scope\n"));
        write("proc/8/environ", "CUDA_DEVICE_SM_LIMIT=1\0");
        owners.list_processes(Driver::Nvml, [8, 7].into_iter());
        assert_eq!(granted(), Some(0.3), "a child with a smaller one has no smaller part");
        owners.replace(pod(false));
        assert_eq!(granted(), None, "a slice of time is no part, whatever its pod sets");
        owners.replace(Vec::new());
        owners.replace(pod(true));
        assert_eq!(granted(), None, "another pod of its name may have another part");
    }

    #[test]
    fn every_pod_that_shares_a_gpu_is_told() {
        let gpu = Arc::new(Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap());
        let owners = Owners::new();
        let pod = |gpu: &str, pod: &str| {
            let owner = Owner { pod: Some(pod.into()), namespace: Some("ns".into()), ..Owner::default() };
            (GpuName::Uuid(gpu.into()), owner)
        };
        let sharers = || -> Vec<String> {
            let sharers = owners.sharers(&gpu);
            sharers.iter().map(|held| held.get(IdentityColumn::Pod).unwrap().to_owned()).collect()
        };
        owners.replace(vec![pod("GPU-1", "a"), pod("GPU-2", "b")]);
        assert!(sharers().is_empty(), "one is its holder");
        owners.replace(vec![pod("GPU-1", "a"), pod("GPU-1", "b"), pod("GPU-2", "c")]);
        assert_eq!(sharers(), ["a", "b"]);
        assert_eq!(owners.attribute(&gpu).get(IdentityColumn::Pod), Some("a"));
    }

    #[test]
    fn whom_processes_work_for_is_found_out_when_they_are_listed_and_not_when_it_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let procfs = folder.path().join("proc");
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("etc/passwd", "kim:x:1000:1000::/home/kim:/bin/sh\n");
        for pid in [7, 8] {
            write(&format!("proc/{pid}/status"), "Uid:\t1000\t1000\t1000\t1000\n");
        }
        let kim = || Some(ProcessOwner::User("kim".to_owned()));
        let owners = Owners::new();
        owners.list_processes(Driver::Nvml, [7].into_iter());
        assert_eq!(owners.owner_of(7), None, "it cannot be asked yet");
        let machine = Machine { procfs: procfs.clone(), ..Machine::local("n1") };
        owners.tell_processes_apart(ProcessOwners::of(false, None, true, &machine));
        assert_eq!([owners.owner_of(7), owners.owner_of(8)], [kim(), None]);
        owners.list_processes(Driver::AmdSysfs, [8].into_iter());
        std::fs::remove_dir_all(&procfs).unwrap();
        assert_eq!([owners.owner_of(7), owners.owner_of(8)], [kim(), kim()], "no file is read any more");
        owners.list_processes(Driver::Nvml, [9].into_iter());
        assert_eq!([owners.owner_of(7), owners.owner_of(8)], [None, kim()], "7 has ended");
    }

    #[test]
    fn a_name_is_that_of_the_whole_gpu_or_of_one_part() {
        let whole = || {
            [GpuName::Uuid("GPU-1".into()), GpuName::Pci("0000:0c:00.0".into()), GpuName::Index("nvidia", 2)]
        };
        let third = |whole| GpuName::Part(Box::new(whole), 3);
        let is_held = |name: GpuName, partition: &str, vendor: &str| {
            let mut gpu = Identity::default()
                .with(IdentityColumn::Uuid, "GPU-1")
                .and_then(|gpu| gpu.with(IdentityColumn::Vendor, vendor))
                .and_then(|gpu| gpu.with(IdentityColumn::Pci, "0000:0c:00.0"))
                .and_then(|gpu| gpu.with(IdentityColumn::Partition, partition))
                .unwrap();
            gpu.index = Some(2);
            let owners = Owners::new();
            owners.replace(vec![(name, Owner { pod: Some("train-0".into()), ..Owner::default() })]);
            owners.attribute(&Arc::new(gpu)).get(IdentityColumn::Pod).is_some()
        };
        for (partition, is_whole, is_third) in [
            ("", true, false),
            ("0", false, false),
            ("cpx0", false, false),
            ("3", false, true),
            ("cpx3", false, true),
            ("3-1", false, true),
            ("cpx13", false, false),
        ] {
            for name in whole() {
                assert_eq!(is_held(name.clone(), partition, "nvidia"), is_whole, "{name:?} {partition}");
                assert_eq!(
                    is_held(third(name.clone()), partition, "nvidia"),
                    is_third,
                    "{name:?} {partition}"
                );
            }
        }
        assert!(is_held(GpuName::Uuid("GPU-1:cpx3".into()), "cpx3", "amd"), "the key of a row is its name");
        assert!(!is_held(GpuName::Uuid("GPU-1:cpx3".into()), "cpx1", "amd"));
        assert!(!is_held(GpuName::Index("nvidia", 2), "", "amd"), "each vendor counts from 0");
        assert!(!is_held(third(GpuName::Pci("0000:0d:00.0".into())), "cpx3", "amd"));
    }

    #[test]
    fn owners_are_found_by_any_name_and_fill_each_other_up() {
        let mut gpu = Identity::default()
            .with(IdentityColumn::Uuid, "GPU-1")
            .and_then(|i| i.with(IdentityColumn::Pci, "0000:0c:00.0"))
            .and_then(|i| i.with(IdentityColumn::Vendor, "nvidia"))
            .unwrap();
        gpu.index = Some(3);
        let gpu = Arc::new(gpu);
        let owners = Owners::new();
        assert!(Arc::ptr_eq(&owners.attribute(&gpu), &gpu));
        let pod = Owner { pod: Some("train-0".into()), namespace: Some("ml".into()), ..Owner::default() };
        let job = Owner { job: Some("4711".into()), pod: Some("other".into()), ..Owner::default() };
        owners.replace(vec![
            (GpuName::Pci("0000:0c:00.0".into()), pod),
            (GpuName::Index("nvidia", 3), job),
            (GpuName::Uuid("GPU-2".into()), Owner::default()),
        ]);
        assert_eq!(owners.generation(), 1);
        let attributed = owners.attribute(&gpu);
        assert_eq!(attributed.get(IdentityColumn::Pod), Some("train-0"));
        assert_eq!(attributed.get(IdentityColumn::Job), Some("4711"));
        owners.replace(Vec::new());
        owners.replace(Vec::new());
        assert_eq!(owners.generation(), 2);
    }

    #[test]
    fn a_cluster_is_filled_in_where_there_is_none() {
        let owners = Owners::in_cluster(Some("east-1".into()));
        for (own, expected) in [("", "east-1"), ("west-2", "west-2")] {
            let gpu = Arc::new(Identity::default().with(IdentityColumn::Cluster, own).unwrap());
            assert_eq!(owners.attribute(&gpu).get(IdentityColumn::Cluster), Some(expected), "{own:?}");
        }
    }
}
