//! The host by files of procfs: `stat`, `meminfo`, `vmstat`, `loadavg`, `uptime`.
//!
//! Counts are the kernel's, since boot. Shares of CPU time come from two readings of `/proc/stat`, whose
//! clock ticks a hundred times a second for each CPU: over less than 80 ms (or a hundred ticks of all CPUs
//! together) a share would be noise. So the row that completes such a stretch has the share, and rows between
//! have none. On request each CPU has its own row, as often as it has a share.

mod cores;
mod parse;
mod shares;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpuvitals_core::catalogue::Table;
use gpuvitals_core::{AbsenceReason, Identity, IdentityColumn, MetricId};

use crate::discovery::Discovery;
use crate::finding::{Finding, Verdict};
use crate::machine::{Machine, PinnedFile};
use crate::probe::{Driver, Due, Probe, ProbeError, Reading, Row};

use cores::Cores;
use shares::{CpuShares, busy_pct, percent};

pub use parse::{
    CpuTimes, HostMemory, PageFaults, Stat, parse_cores, parse_load, parse_memory, parse_stat,
    parse_uptime_ns, parse_vmstat,
};

const CPU: MetricId = MetricId::of("cpu_pct");
const CPU_USER: MetricId = MetricId::of("cpu_user_pct");
const CPU_SYSTEM: MetricId = MetricId::of("cpu_system_pct");
const CPU_IOWAIT: MetricId = MetricId::of("cpu_iowait_pct");
const CPU_COUNT: MetricId = MetricId::of("cpu_count");
const CTX_SWITCHES: MetricId = MetricId::of("ctx_switches");
const IRQS: MetricId = MetricId::of("irqs");
const SOFT_IRQS: MetricId = MetricId::of("soft_irqs");
const FORKS: MetricId = MetricId::of("forks");
const PROCS_RUNNING: MetricId = MetricId::of("procs_running");
const PROCS_BLOCKED: MetricId = MetricId::of("procs_blocked");
const MEMORY_USED: MetricId = MetricId::of("memory_mb");
const MEMORY_TOTAL: MetricId = MetricId::of("host_memory_total_mb");
const MEMORY_AVAILABLE: MetricId = MetricId::of("host_memory_available_mb");
const SWAP_USED: MetricId = MetricId::of("swap_used_mb");
const PAGE_FAULTS: MetricId = MetricId::of("page_faults");
const MAJOR_PAGE_FAULTS: MetricId = MetricId::of("major_page_faults");
const LOADS: [MetricId; 3] = [MetricId::of("load1"), MetricId::of("load5"), MetricId::of("load15")];
const UPTIME: MetricId = MetricId::of("uptime_ns");

const STAT: &[MetricId] = &[
    CPU,
    CPU_USER,
    CPU_SYSTEM,
    CPU_IOWAIT,
    CPU_COUNT,
    CTX_SWITCHES,
    IRQS,
    SOFT_IRQS,
    FORKS,
    PROCS_RUNNING,
    PROCS_BLOCKED,
];
const MEMINFO: &[MetricId] = &[MEMORY_USED, MEMORY_TOTAL, MEMORY_AVAILABLE, SWAP_USED];
const VMSTAT: &[MetricId] = &[PAGE_FAULTS, MAJOR_PAGE_FAULTS];

/// Finds the host.
pub fn find(machine: &Machine) -> Discovery {
    let mut found = Discovery::default();
    let subject = "procfs";
    let identity = Identity::default()
        .with(IdentityColumn::Node, &machine.node)
        .and_then(|host| host.with(IdentityColumn::Source, Driver::Procfs.as_str()));
    match identity {
        Ok(_) if !machine.procfs.join("stat").exists() => {
            let text = format!("{} has no stat file", machine.procfs.display());
            let finding = Finding::new(Verdict::Broken, subject, text);
            found.findings.push(finding.remedy("mount procfs there, or name its place with --procfs"));
        }
        Ok(identity) => {
            let text = format!("the host is read from {}", machine.procfs.display());
            found.findings.push(Finding::new(Verdict::Good, subject, text));
            found.probes.push(Box::new(HostProbe::new(&machine.procfs, Arc::new(identity))));
        }
        Err(error) => {
            let finding = Finding::new(Verdict::Broken, subject, error.to_string());
            found.findings.push(finding.remedy("give this host another name with --node"));
        }
    }
    found
}

/// Reads the host. Its files are opened with the first reading and stay open.
#[derive(Debug)]
struct HostProbe {
    identity: Arc<Identity>,
    stat: HostFile,
    meminfo: HostFile,
    vmstat: HostFile,
    loadavg: HostFile,
    uptime: HostFile,
    shares: CpuShares,
    /// None unless they were asked for.
    cores: Option<Cores>,
}

impl HostProbe {
    fn new(procfs: &Path, identity: Arc<Identity>) -> Self {
        let file = |name: &str| HostFile::new(procfs.join(name));
        Self {
            identity,
            stat: file("stat"),
            meminfo: file("meminfo"),
            vmstat: file("vmstat"),
            loadavg: file("loadavg"),
            uptime: file("uptime"),
            shares: CpuShares::default(),
            cores: None,
        }
    }
}

impl Probe for HostProbe {
    fn table(&self) -> Table {
        Table::SystemEvents
    }

    fn driver(&self) -> Driver {
        Driver::Procfs
    }

    fn targets(&self) -> Vec<Arc<Identity>> {
        vec![Arc::clone(&self.identity)]
    }

    fn read_instances(&mut self) {
        self.cores.get_or_insert_default();
    }

    fn fill(&mut self, due: Due, reading: &mut Reading) -> Result<(), ProbeError> {
        let row = reading.row(&self.identity);
        let mut face = Face { row, due };
        let stat = self.stat.read(due);
        if let Some(cores) = &mut self.cores {
            cores.read(stat.unwrap_or_default());
        }
        match stat {
            Ok(text) => face.stat(&parse_stat(text), &mut self.shares),
            Err(reason) => face.missing(STAT, reason),
        }
        match self.meminfo.read(due) {
            Ok(text) => face.memory(parse_memory(text)),
            Err(reason) => face.missing(MEMINFO, reason),
        }
        match self.vmstat.read(due) {
            Ok(text) => {
                let faults = parse_vmstat(text);
                face.int(PAGE_FAULTS, faults.all);
                face.int(MAJOR_PAGE_FAULTS, faults.major);
            }
            Err(reason) => face.missing(VMSTAT, reason),
        }
        if due.slow {
            match self.loadavg.read(due) {
                Ok(text) => face.loads(parse_load(text)),
                Err(reason) => face.missing(&LOADS, reason),
            }
            match self.uptime.read(due) {
                Ok(text) => face.int(UPTIME, parse_uptime_ns(text)),
                Err(reason) => face.missing(&[UPTIME], reason),
            }
        }
        if let Some(cores) = &self.cores {
            cores.give(face.row);
        }
        let files = [&self.stat, &self.meminfo, &self.vmstat];
        if let [Err(reason), Err(_), Err(_)] = files.map(|file| file.state.as_ref().map(|_| ())) {
            let text = format!("{} cannot be read", self.stat.path.display());
            return Err(match reason {
                AbsenceReason::Denied => ProbeError::Denied(text),
                AbsenceReason::NotSupported => ProbeError::Gone(text),
                _ => ProbeError::Failed(text),
            });
        }
        Ok(())
    }
}

/// A file of procfs, or why it cannot be had.
#[derive(Debug)]
struct HostFile {
    path: PathBuf,
    state: Result<PinnedFile, AbsenceReason>,
    is_asked: bool,
}

impl HostFile {
    fn new(path: PathBuf) -> Self {
        Self { path, state: Err(AbsenceReason::NotSupported), is_asked: false }
    }

    /// Its content; a file that was not to be had is asked for again when the rare tier is due.
    fn read(&mut self, due: Due) -> Result<&[u8], AbsenceReason> {
        if self.state.is_err() && (due.rare || !self.is_asked) {
            self.state = PinnedFile::open(&self.path).map_err(|error| reason_of(&error));
        }
        self.is_asked = true;
        match &mut self.state {
            Ok(file) => file.read().map_err(|_| AbsenceReason::Invalid),
            Err(reason) => Err(*reason),
        }
    }
}

fn reason_of(error: &io::Error) -> AbsenceReason {
    match error.kind() {
        io::ErrorKind::NotFound => AbsenceReason::NotSupported,
        io::ErrorKind::PermissionDenied => AbsenceReason::Denied,
        _ => AbsenceReason::Invalid,
    }
}

/// The row of the host under construction.
struct Face<'a> {
    row: &'a mut Row,
    due: Due,
}

impl Face<'_> {
    fn stat(&mut self, stat: &Stat, shares: &mut CpuShares) {
        self.int(CTX_SWITCHES, stat.context_switches);
        self.int(IRQS, stat.interrupts);
        self.int(SOFT_IRQS, stat.soft_interrupts);
        self.int(FORKS, stat.forks);
        self.int(PROCS_RUNNING, stat.running);
        self.int(PROCS_BLOCKED, stat.blocked);
        self.int(CPU_COUNT, (stat.cpus > 0).then_some(stat.cpus));
        let Some(times) = stat.times.filter(|times| times.total() > 0) else {
            return self.missing(&[CPU, CPU_USER, CPU_SYSTEM, CPU_IOWAIT], AbsenceReason::NotSupported);
        };
        if times.iowait.is_none() {
            self.missing(&[CPU_IOWAIT], AbsenceReason::NotSupported);
        }
        let Some(spent) = shares.after(times, stat.cpus) else { return };
        let total = spent.total();
        self.row.float(CPU, busy_pct(spent));
        self.row.float(CPU_USER, percent(spent.user, total));
        self.row.float(CPU_SYSTEM, percent(spent.system, total));
        if let Some(iowait) = spent.iowait {
            self.row.float(CPU_IOWAIT, percent(iowait, total));
        }
    }

    fn memory(&mut self, memory: HostMemory) {
        let mib = |kib: Option<u64>| kib.map(|kib| kib / 1024);
        let less = |all: Option<u64>, part: Option<u64>| all?.checked_sub(part?);
        self.int(MEMORY_USED, mib(less(memory.total_kib, memory.available_kib)));
        self.int(MEMORY_TOTAL, mib(memory.total_kib));
        self.int(MEMORY_AVAILABLE, mib(memory.available_kib));
        self.int(SWAP_USED, mib(less(memory.swap_total_kib, memory.swap_free_kib)));
    }

    fn loads(&mut self, loads: [Option<f32>; 3]) {
        for (metric, load) in LOADS.into_iter().zip(loads) {
            match load {
                Some(load) => self.row.float(metric, load),
                None => self.missing(&[metric], AbsenceReason::Invalid),
            }
        }
    }

    /// Sets a metric whose tier is due; none means that this kernel does not provide it.
    fn int(&mut self, metric: MetricId, value: Option<u64>) {
        if !self.due.has(metric.metric().tier) {
            return;
        }
        match value.map(i64::try_from) {
            Some(Ok(value)) => self.row.int(metric, value),
            Some(Err(_)) => self.row.absent(metric, AbsenceReason::Invalid),
            None => self.missing(&[metric], AbsenceReason::NotSupported),
        }
    }

    fn missing(&mut self, metrics: &[MetricId], reason: AbsenceReason) {
        let is_lasting = matches!(reason, AbsenceReason::NotSupported | AbsenceReason::Denied);
        for &metric in metrics {
            let is_due = if is_lasting { self.due.rare } else { self.due.has(metric.metric().tier) };
            if is_due {
                self.row.absent(metric, reason);
            }
        }
    }
}
