//! Processes on the GPUs: NVML's lists of contexts and its shares of each process, names from procfs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use gpuvitals_core::{AbsenceReason, Identity};

use super::code::{Answer, Code, Meaning};
use super::mig::{self, MigInstance};
use super::naming::LateIdentity;
use super::raw::{ContextEntry, Contexts, Gpu, ProcessShare, Raw, context_memory};
use crate::machine::Machine;
use crate::probe::{Driver, ProbeError};
use crate::processes::{GpuProcess, NAMELESS, ProcessGap, ProcessKind, ProcessList, ProcessTable};

/// The processes on all GPUs of the library.
pub(super) struct Processes {
    raw: &'static Raw,
    procfs: PathBuf,
    gpus: Vec<Watched>,
    contexts: Vec<ContextEntry>,
    shares: Vec<ProcessShare>,
}

struct Watched {
    name: LateIdentity,
    instances: Vec<MigInstance>,
    /// Time of the newest share that was seen, by the driver's clock.
    since_us: u64,
}

impl Processes {
    pub(super) fn new(raw: &'static Raw, machine: &Machine) -> Self {
        let procfs = machine.procfs.clone();
        Self { raw, procfs, gpus: Vec::new(), contexts: Vec::new(), shares: Vec::new() }
    }

    /// Lists the processes on this GPU too, as soon as it has a name.
    pub(super) fn watch(&mut self, name: LateIdentity) {
        self.gpus.push(Watched { name, instances: Vec::new(), since_us: 0 });
    }

    fn read_gpu(
        &mut self,
        at: usize,
        identity: &Arc<Identity>,
        list: &mut ProcessList,
    ) -> Result<(), ProbeError> {
        let into = &mut list.processes;
        let Some(watched) = self.gpus.get_mut(at) else { return Ok(()) };
        let gpu = self.raw.by_uuid(identity.uuid().unwrap_or_default()).map_err(failed)?;
        let is_divided = self.raw.mig_modes(gpu).is_ok_and(|(mode, _)| mode == 1);
        if is_divided {
            if let Some(found) = mig::find(self.raw, gpu, identity, &watched.instances)? {
                watched.instances = found;
            }
            let places: Vec<(Gpu, Arc<Identity>)> =
                watched.instances.iter().map(|it| (it.gpu, Arc::clone(&it.identity))).collect();
            for (gpu, identity) in places {
                self.read_contexts(gpu, &identity, into).map_err(failed)?;
            }
            return Ok(());
        }
        let first = into.len();
        self.read_contexts(gpu, identity, into).map_err(failed)?;
        if let Err(code) = self.read_shares(at, gpu, into.get_mut(first..).unwrap_or_default()) {
            let error = failed(code);
            list.gaps.push(ProcessGap { gpu: identity.key(), part: "shares of processes", error });
        }
        Ok(())
    }

    fn read_contexts(
        &mut self,
        gpu: Gpu,
        identity: &Arc<Identity>,
        into: &mut Vec<GpuProcess>,
    ) -> Answer<()> {
        let mut by_pid: BTreeMap<u32, GpuProcess> = BTreeMap::new();
        for kind in [Contexts::Compute, Contexts::Graphics, Contexts::Mps] {
            match self.raw.contexts(gpu, kind, &mut self.contexts) {
                Ok(()) => {}
                Err(code) if kind != Contexts::Compute && matches!(code.meaning(), Meaning::Never(_)) => {
                    continue;
                }
                Err(code) => return Err(code),
            }
            for entry in &self.contexts {
                let process = by_pid.entry(entry.pid).or_insert_with(|| GpuProcess {
                    gpu: Arc::clone(identity),
                    pid: entry.pid,
                    name: name(&self.procfs, entry.pid),
                    kind: kind_of(kind),
                    memory_mb: None,
                    utilization_pct: None,
                    memory_utilization_pct: None,
                    encoder_utilization_pct: None,
                    decoder_utilization_pct: None,
                    compute_units: None,
                });
                if process.kind != kind_of(kind) {
                    process.kind = ProcessKind::ComputeGraphics;
                }
                // Both lists name the whole memory of the process.
                let memory_mb = context_memory(entry).and_then(|bytes| i64::try_from(bytes >> 20).ok());
                process.memory_mb = process.memory_mb.max(memory_mb);
            }
        }
        into.extend(by_pid.into_values());
        Ok(())
    }

    /// Adds the shares since the previous listing. A process that used nothing has none, nor has any on a part that does
    /// not count them.
    fn read_shares(&mut self, at: usize, gpu: Gpu, processes: &mut [GpuProcess]) -> Answer<()> {
        let Some(watched) = self.gpus.get_mut(at) else { return Ok(()) };
        match self.raw.process_utilization(gpu, watched.since_us, &mut self.shares) {
            Ok(()) => {}
            Err(code) if code.meaning() == Meaning::Never(AbsenceReason::NotSupported) => return Ok(()),
            Err(code) => return Err(code),
        }
        self.shares.sort_by_key(|share| share.timeStamp);
        for share in &self.shares {
            watched.since_us = watched.since_us.max(share.timeStamp);
            if let Some(process) = processes.iter_mut().find(|process| process.pid == share.pid) {
                process.utilization_pct = percent(share.smUtil);
                process.memory_utilization_pct = percent(share.memUtil);
                process.encoder_utilization_pct = percent(share.encUtil);
                process.decoder_utilization_pct = percent(share.decUtil);
            }
        }
        Ok(())
    }
}

impl ProcessTable for Processes {
    fn driver(&self) -> Driver {
        Driver::Nvml
    }

    fn another(&self) -> Box<dyn ProcessTable> {
        let mut another = Self {
            gpus: Vec::new(),
            contexts: Vec::new(),
            shares: Vec::new(),
            procfs: self.procfs.clone(),
            ..*self
        };
        self.gpus.iter().for_each(|watched| another.watch(Arc::clone(&watched.name)));
        Box::new(another)
    }

    fn read(&mut self) -> Result<ProcessList, ProbeError> {
        let mut list = ProcessList::default();
        let mut is_listed = false;
        for at in 0..self.gpus.len() {
            let name = self.gpus.get(at).and_then(|watched| watched.name.get().cloned());
            let Some(identity) = name else { continue };
            match self.read_gpu(at, &identity, &mut list) {
                Ok(()) => is_listed = true,
                Err(error) => {
                    list.gaps.push(ProcessGap { gpu: identity.key(), part: "processes", error });
                }
            }
        }
        match list.gaps.pop_if(|_| !is_listed) {
            Some(gap) => Err(gap.error),
            None => Ok(list),
        }
    }
}

fn failed(code: Code) -> ProbeError {
    match code.meaning() {
        Meaning::Device(error) => error,
        Meaning::Never(_) if code == Code::NO_PERMISSION => ProbeError::Denied(code.to_string()),
        _ => ProbeError::Failed(code.to_string()),
    }
}

fn kind_of(kind: Contexts) -> ProcessKind {
    match kind {
        Contexts::Compute | Contexts::Mps => ProcessKind::Compute,
        Contexts::Graphics => ProcessKind::Graphics,
    }
}

/// Some drivers give garbage far above 100.
fn percent(value: u32) -> Option<f32> {
    u8::try_from(value).ok().filter(|value| *value <= 100).map(f32::from)
}

fn name(procfs: &std::path::Path, pid: u32) -> Arc<str> {
    let comm = std::fs::read(procfs.join(pid.to_string()).join("comm")).unwrap_or_default();
    let comm = String::from_utf8_lossy(&comm);
    let comm = comm.trim_end_matches(['\n', '\0']);
    Arc::from(if comm.is_empty() { NAMELESS } else { comm })
}
