//! Processes on AMD GPUs, from two tables of the kernel: the open device files of every process (`fdinfo`: graphics,
//! video, memory) and the compute driver's own (KFD: memory of ROCm and HIP).
//!
//! The engine times leave out work that a process gives the GPU through KFD, so a compute process has no
//! share; where KFD says how many compute units its waves fill at the moment (`cu_occupancy`), it has that. Its memory may be in both tables; the larger figure counts, never the sum. A client whose file was
//! duplicated or inherited belongs to the lowest process id that has it.
//!
//! Files of other users' processes are seen only with `CAP_SYS_PTRACE`, and process ids of KFD are the host's: both
//! need the host's procfs in a container.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::Path;
use std::sync::Arc;

use gpuvitals_core::Identity;
use gpuvitals_core::clock::Moment;
use gpuvitals_core::number::float;

use super::fdinfo::{DrmClient, Engine, parse_fdinfo};
use super::listing::numbers;
use super::{GpuProcess, ProcessGap, ProcessKind, ProcessList, ProcessTable, kfd};
use crate::dialect::amd_sysfs::{Card, cards};
use crate::discovery::Discovery;
use crate::finding::{Finding, Verdict};
use crate::machine::{Machine, PinnedFile};
use crate::probe::{Driver, Probe, ProbeError};

/// Process ids listed.
const PIDS_MAX: usize = 1 << 17;
/// Processes looked at in one reading beside those known to use a GPU: on a larger machine a new one may show some
/// readings later, and a reading costs no more.
const PIDS_PER_READING: usize = 1024;
/// File descriptors looked at in one process.
const FDS_MAX: usize = 4096;

/// The table of the processes on AMD GPUs, if a probe reads some, with the findings about its limits.
pub fn find(machine: &Machine, probes: &[Box<dyn Probe>]) -> Discovery {
    // The processes of this machine are not on the GPUs of a captured tree.
    if machine.has_foreign_procfs() || !probes.iter().any(|probe| probe.driver().vendor() == "amd") {
        return Discovery::default();
    }
    let mut found = Discovery::default();
    if std::fs::read_dir(machine.procfs.join("1/fd")).is_err() {
        let text = "processes of other users show only if they compute, and only their device memory";
        let finding = Finding::new(Verdict::Partial, "amd processes", text);
        found.findings.push(finding.remedy("run as root, or with CAP_SYS_PTRACE and the host's /proc"));
    }
    found.processes.push(Box::new(AmdProcesses::new(machine)));
    found
}

/// Lists the processes on AMD GPUs.
#[derive(Debug)]
pub struct AmdProcesses {
    machine: Machine,
    /// The GPUs and their partitions, as they are at this reading.
    places: Vec<GpuPlace>,
    /// Processes that used a GPU at the previous reading.
    known: BTreeSet<u32>,
    /// Where the scan of all others continues.
    next_pid: u32,
    /// Engine times of the reading before, by GPU and client, and when it was.
    before: HashMap<(Arc<Identity>, u64), BTreeMap<String, Engine>>,
    before_ns: i64,
}

/// A GPU or a partition of one.
#[derive(Debug)]
struct GpuPlace {
    /// PCI address of the GPU.
    pci: String,
    /// Number of the partition; none for the whole GPU.
    partition: Option<String>,
    /// Identity of its rows.
    identity: Arc<Identity>,
}

/// A process's use of a GPU.
#[derive(Default)]
struct ProcessUse {
    /// Device memory in the table of KFD.
    kfd_bytes: Option<u64>,
    /// Compute units that its waves fill at the moment; none where the kernel does not say it.
    compute_units: Option<i64>,
    /// Device memory of its clients.
    drm_bytes: u64,
    /// Whether the kernel gives no memory for one of them.
    is_memory_partial: bool,
    /// Engines used since the client was opened.
    engines: BTreeSet<String>,
    /// Share of each engine since the reading before, %; none while no client of the process was there before.
    shares: Option<BTreeMap<String, f32>>,
}

impl AmdProcesses {
    /// Of the GPUs that the machine has at each reading. Nothing is read yet.
    pub fn new(machine: &Machine) -> Self {
        Self {
            machine: machine.clone(),
            places: Vec::new(),
            known: BTreeSet::new(),
            next_pid: 0,
            before: HashMap::new(),
            before_ns: 0,
        }
    }

    /// The processes at an instant of the monotonic clock.
    ///
    /// # Errors
    /// When processes cannot be listed.
    pub fn read_at(&mut self, mono_ns: i64) -> Result<ProcessList, ProbeError> {
        let failed = |error| ProbeError::Failed(format!("{}: {error}", self.machine.procfs.display()));
        let pids = numbers(&self.machine.procfs, PIDS_MAX).map_err(failed)?;
        self.places = cards(&self.machine).iter().flat_map(|card| places(card, &self.machine)).collect();
        let kfd_gpus = kfd::gpus(&self.machine.sysfs);
        let mut uses: BTreeMap<(u32, usize), ProcessUse> = BTreeMap::new();
        let mut gaps = Vec::new();
        let held = kfd::memory(&self.machine.sysfs, &kfd_gpus).unwrap_or_else(|error| {
            let error = if error.kind() == io::ErrorKind::PermissionDenied {
                ProbeError::Denied(error.to_string())
            } else {
                ProbeError::Failed(error.to_string())
            };
            gaps.push(ProcessGap { gpu: None, part: "compute processes (kfd/proc)", error });
            Vec::new()
        });
        for (pid, gpu_id, bytes) in held {
            let gpu =
                kfd_gpus.iter().find(|gpu| gpu.id == gpu_id).and_then(|gpu| self.gpu_of(&gpu.node.address));
            if let Some(gpu) = gpu {
                let held = uses.entry((pid, gpu)).or_default();
                held.kfd_bytes = Some(held.kfd_bytes.unwrap_or(0).saturating_add(bytes));
                let units = kfd::compute_units(&self.machine.sysfs, pid, gpu_id);
                held.compute_units = units.map(|units| held.compute_units.unwrap_or(0).saturating_add(units));
            }
        }
        let mut seen = HashMap::new();
        for pid in self.candidates(&pids, &uses) {
            for (minor, client) in clients(&self.machine.procfs.join(pid.to_string())) {
                let of_minor = kfd_gpus.iter().find(|gpu| gpu.node.render_minor == minor && minor.is_some());
                let address = of_minor.map(|gpu| gpu.node.address.as_str()).or(client.pci.as_deref());
                let Some(gpu) = address.and_then(|address| self.gpu_of(address)) else { continue };
                let Some(place) = self.places.get(gpu) else { continue };
                let whose = (Arc::clone(&place.identity), client.id);
                if seen.contains_key(&whose) {
                    continue;
                }
                let shares = self.shares(&whose, &client, mono_ns);
                uses.entry((pid, gpu)).or_default().add(&client, shares.as_ref());
                seen.insert(whose, client.engines);
            }
        }
        self.before = seen;
        self.before_ns = mono_ns;
        self.known = uses.keys().map(|(pid, _)| *pid).collect();
        let processes = uses.iter().filter_map(|((pid, gpu), used)| self.process(*pid, *gpu, used)).collect();
        Ok(ProcessList { processes, gaps })
    }

    /// The processes to read: all that are known to use a GPU, and the next of all others.
    fn candidates(&mut self, pids: &[u32], uses: &BTreeMap<(u32, usize), ProcessUse>) -> BTreeSet<u32> {
        let start = pids.partition_point(|pid| *pid < self.next_pid);
        let (head, tail) = pids.split_at(start);
        let others: Vec<u32> = tail.iter().chain(head).copied().take(PIDS_PER_READING).collect();
        self.next_pid = others.last().map_or(0, |pid| pid.saturating_add(1));
        let known = self.known.iter().copied().chain(uses.keys().map(|(pid, _)| *pid));
        known.chain(others).collect()
    }

    /// The GPU at an address. In partition mode the last digit is the number of the partition, and the device itself is
    /// function 0.
    fn gpu_of(&self, address: &str) -> Option<usize> {
        let (bare, function) = address.rsplit_once('.')?;
        let of = |pci: &str, partition: Option<&str>| {
            self.places.iter().position(|place| place.pci == pci && place.partition.as_deref() == partition)
        };
        let whole = format!("{bare}.0");
        of(&whole, Some(function)).or_else(|| of(address, None)).or_else(|| of(&whole, None))
    }

    /// Share of each engine since the previous reading; none for a new client, or one whose count went back.
    fn shares(
        &self,
        whose: &(Arc<Identity>, u64),
        client: &DrmClient,
        mono_ns: i64,
    ) -> Option<BTreeMap<String, f32>> {
        let before = self.before.get(whose)?;
        let wall_ns = mono_ns.checked_sub(self.before_ns).filter(|ns| *ns > 0)?;
        let mut shares = BTreeMap::new();
        for (name, engine) in &client.engines {
            let busy_before = before.get(name).map_or(0, |engine| engine.busy_ns);
            let busy_ns = engine.busy_ns.checked_sub(busy_before)?;
            shares.insert(name.clone(), share(busy_ns, wall_ns, engine.capacity));
        }
        Some(shares)
    }

    fn process(&self, pid: u32, gpu: usize, used: &ProcessUse) -> Option<GpuProcess> {
        let computes = used.kfd_bytes.is_some() || used.engines.contains("compute");
        let draws = used.engines.contains("gfx");
        if used.kfd_bytes.is_none() && used.drm_bytes == 0 && used.engines.is_empty() {
            // It has opened the device and done nothing with it.
            return None;
        }
        let drm_bytes = (!used.is_memory_partial).then_some(used.drm_bytes);
        let bytes = drm_bytes.max(used.kfd_bytes);
        let busiest = |is_one: fn(&str) -> bool| {
            let shares = used.shares.as_ref()?.iter().filter(|(name, _)| is_one(name));
            shares.map(|(_, share)| share.min(100.0)).max_by(f32::total_cmp)
        };
        let utilization_pct = match &used.shares {
            Some(_) if used.kfd_bytes.is_none() => {
                Some(busiest(|name| matches!(name, "gfx" | "compute")).unwrap_or(0.0))
            }
            _ => None,
        };
        Some(GpuProcess {
            gpu: Arc::clone(&self.places.get(gpu)?.identity),
            pid,
            name: name_of(&self.machine.procfs.join(pid.to_string()))?,
            kind: match (computes, draws) {
                (true, true) => ProcessKind::ComputeGraphics,
                (true, false) => ProcessKind::Compute,
                (false, true) => ProcessKind::Graphics,
                (false, false) => ProcessKind::Unknown,
            },
            memory_mb: bytes.and_then(|bytes| i64::try_from(bytes.saturating_add(1 << 19) >> 20).ok()),
            utilization_pct,
            memory_utilization_pct: None,
            encoder_utilization_pct: busiest(|name| name.starts_with("enc")),
            decoder_utilization_pct: busiest(|name| name.starts_with("dec")),
            compute_units: used.compute_units,
        })
    }
}

impl ProcessTable for AmdProcesses {
    fn driver(&self) -> Driver {
        Driver::AmdSysfs
    }

    fn another(&self) -> Box<dyn ProcessTable> {
        Box::new(Self::new(&self.machine))
    }

    fn read(&mut self) -> Result<ProcessList, ProbeError> {
        self.read_at(Moment::now().mono_ns)
    }
}

impl ProcessUse {
    fn add(&mut self, client: &DrmClient, shares: Option<&BTreeMap<String, f32>>) {
        match client.vram_bytes {
            Some(bytes) => self.drm_bytes = self.drm_bytes.saturating_add(bytes),
            None => self.is_memory_partial = true,
        }
        let used = client.engines.iter().filter(|(_, engine)| engine.busy_ns > 0);
        self.engines.extend(used.map(|(name, _)| name.clone()));
        if let Some(shares) = shares {
            let sums = self.shares.get_or_insert_default();
            for (name, share) in shares {
                *sums.entry(name.clone()).or_insert(0.0) += share;
            }
        }
    }
}

/// A GPU and its partitions, by the names that rows give them. One without a PCI address has no processes that are known.
fn places(card: &Card, machine: &Machine) -> Vec<GpuPlace> {
    let Some(pci) = &card.pci else { return Vec::new() };
    let place = |partition: Option<String>| {
        let name = partition.as_ref().map(|number| format!("{}{number}", card.partition_word()));
        let mut identity = card.identity(machine, Driver::AmdSysfs, name.as_deref());
        // The number of the card is not the index that the rows of the GPU have.
        identity.index = None;
        identity.key()?;
        Some(GpuPlace { pci: pci.clone(), partition, identity: Arc::new(identity) })
    };
    let nodes = if card.kfd.len() > 1 { card.kfd.as_slice() } else { &[] };
    let numbers = nodes.iter().filter_map(|node| Some(node.address.rsplit_once('.')?.1.to_owned()));
    std::iter::once(None).chain(numbers.map(Some)).filter_map(place).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "a share in per cent")]
fn share(busy_ns: u64, wall_ns: i64, capacity: u64) -> f32 {
    (float(busy_ns) / float(wall_ns) / float(capacity) * 100.0) as f32
}

/// The clients a process has opened, each file once, with the minor number of its render node.
fn clients(process: &Path) -> Vec<(Option<u32>, DrmClient)> {
    let mut clients = Vec::new();
    for fd in numbers(&process.join("fd"), FDS_MAX).unwrap_or_default() {
        let Ok(link) = std::fs::read_link(process.join(format!("fd/{fd}"))) else { continue };
        let Ok(node) = link.strip_prefix("/dev/dri") else { continue };
        let Ok(mut file) = PinnedFile::open(&process.join(format!("fdinfo/{fd}"))) else { continue };
        let minor = node.to_str().and_then(|name| name.strip_prefix("renderD")?.parse().ok());
        clients.extend(file.read_text().ok().and_then(parse_fdinfo).map(|client| (minor, client)));
    }
    clients
}

/// Name of a program; none when it has ended.
fn name_of(process: &Path) -> Option<Arc<str>> {
    let mut file = PinnedFile::open(&process.join("comm")).ok()?;
    Some(Arc::from(file.read_text().ok()?))
}
