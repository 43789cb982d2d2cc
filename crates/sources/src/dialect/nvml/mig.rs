//! MIG instances of a GPU: their identities and readings.

use std::sync::{Arc, Mutex, PoisonError};

use gpuvitals_core::{AbsenceReason, Identity, IdentityColumn};

use super::board::Parts;
use super::code::{Answer, Code, Meaning};
use super::gpm::Gpm;
use super::ledger::Ledger;
use super::raw::{Gpu, Raw};
use super::tick::{DeviceReading, GpuTick};
use crate::probe::{ProbeError, Reading, Row};

/// Most instances of one GPU.
const INSTANCES_MAX: u32 = 64;

/// An instance with the state of its calls.
pub(super) struct MigInstance {
    pub(super) identity: Arc<Identity>,
    pub(super) gpu: Gpu,
    uuid: Arc<str>,
    ledger: Ledger,
    gpm: Gpm,
    parts: Parts,
}

/// The instances of a GPU; none if they are those that are known.
pub(super) fn find(
    raw: &Raw,
    gpu: Gpu,
    parent: &Arc<Identity>,
    known: &[MigInstance],
) -> Result<Option<Vec<MigInstance>>, ProbeError> {
    let listed = match list(raw, gpu) {
        Ok(listed) => listed,
        // An older driver, or a GPU without MIG.
        Err(Code::NOT_SUPPORTED | Code::FUNCTION_NOT_FOUND) => Vec::new(),
        Err(code) => match code.meaning() {
            Meaning::Device(error) => return Err(error),
            _ => return Ok(None),
        },
    };
    let is_same = listed.len() == known.len()
        && listed.iter().zip(known).all(|(new, old)| *new.uuid == *old.uuid && new.gpu == old.gpu);
    if is_same {
        return Ok(None);
    }
    let shares_instance =
        |place: &MigPlace| listed.iter().filter(|other| other.gpu_instance == place.gpu_instance).count() > 1;
    let found: Vec<MigInstance> =
        listed.iter().filter_map(|place| instance(place, parent, shares_instance(place))).collect();
    remember(parent, &found);
    Ok(Some(found))
}

struct MigPlace {
    gpu: Gpu,
    uuid: String,
    name: Option<String>,
    gpu_instance: u32,
    compute_instance: Option<u32>,
}

fn list(raw: &Raw, gpu: Gpu) -> Answer<Vec<MigPlace>> {
    let mut listed = Vec::new();
    for index in 0..raw.mig_devices_max(gpu)?.min(INSTANCES_MAX) {
        let instance = match raw.mig_device(gpu, index) {
            Ok(instance) => instance,
            // There are gaps without an instance.
            Err(Code::NOT_FOUND | Code::INVALID_ARGUMENT) => continue,
            Err(code) => return Err(code),
        };
        listed.push(MigPlace {
            gpu: instance,
            uuid: raw.uuid(instance)?,
            name: raw.name(instance).ok(),
            gpu_instance: raw.gpu_instance(instance)?,
            compute_instance: raw.compute_instance(instance).ok(),
        });
    }
    Ok(listed)
}

/// The parent's identity with the number of the GPU instance as partition, as DCGM names it (`GPU_I_ID`), and
/// that of the compute instance if several share a GPU instance.
fn instance(place: &MigPlace, parent: &Identity, shares_instance: bool) -> Option<MigInstance> {
    let mut identity = parent.clone();
    let partition = match place.compute_instance {
        Some(compute) if shares_instance => format!("{}-{compute}", place.gpu_instance),
        _ => place.gpu_instance.to_string(),
    };
    identity.set(IdentityColumn::Partition, &partition).ok()?;
    if let Some(name) = &place.name {
        // A name that is none leaves the parent's.
        let _refused = identity.set(IdentityColumn::Model, name);
    }
    Some(MigInstance {
        identity: Arc::new(identity),
        uuid: Arc::from(place.uuid.as_str()),
        gpu: place.gpu,
        ledger: Ledger::default(),
        gpm: Gpm::of_instance(place.gpu_instance),
        parts: Parts::default(),
    })
}

impl MigInstance {
    /// Reads the instance into a row of its own, at a tick of its parent. Returns whether its handle is stale.
    pub(super) fn read(&mut self, tick: GpuTick, reading: &mut Reading) -> Result<bool, ProbeError> {
        let row = reading.row(&self.identity);
        self.ledger.begin();
        match self.fill(tick, row) {
            // Its own failure; the parent reports failures of the whole GPU.
            Err(ProbeError::Failed(_)) => {
                row.down(AbsenceReason::Invalid, "the MIG instance does not answer");
            }
            filled => filled?,
        }
        if self.ledger.is_stale {
            row.down(AbsenceReason::Gone, "the MIG instance is no more");
        }
        self.ledger.close(tick.due, row);
        Ok(self.ledger.is_stale)
    }

    fn fill(&mut self, tick: GpuTick, row: &mut Row) -> Result<(), ProbeError> {
        let own = GpuTick { gpu: self.gpu, ..tick };
        let device = &mut DeviceReading { tick: own, ledger: &mut self.ledger, row };
        self.parts.read_memory(device)?;
        if tick.due.slow {
            self.parts.read_contexts(device)?;
            // GPM asks the parent for its instance.
            device.tick = tick;
            self.gpm.read(device)?;
        }
        Ok(())
    }
}

/// An instance under both its names.
struct NamedInstance {
    parent: Arc<str>,
    uuid: Arc<str>,
    key: Arc<str>,
}

/// The instances of all GPUs.
static NAMED: Mutex<Vec<NamedInstance>> = Mutex::new(Vec::new());

fn remember(parent: &Identity, found: &[MigInstance]) {
    let Some(parent) = parent.shared(IdentityColumn::Uuid) else { return };
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    named.retain(|known| known.parent != *parent);
    for instance in found {
        if let Some(key) = instance.identity.key() {
            named.push(NamedInstance { parent: Arc::clone(parent), uuid: Arc::clone(&instance.uuid), key });
        }
    }
}

/// Key of the instance of this name, if a probe has seen it; the beginning of a name that only one has will do.
pub(super) fn key_of(name: &str) -> Option<Arc<str>> {
    let named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    // Drivers before 470 named an instance by its GPU and its numbers.
    let numbered = || {
        let (gpu, numbers) = name.strip_prefix("MIG-")?.split_once('/')?;
        let (gpu_instance, compute_instance) = numbers.split_once('/')?;
        named.iter().find(|known| {
            let partition = known.key.strip_prefix(gpu).and_then(|rest| rest.strip_prefix(':'));
            partition == Some(gpu_instance)
                || partition.and_then(|it| it.split_once('-')) == Some((gpu_instance, compute_instance))
        })
    };
    let begun = || {
        name.strip_prefix("MIG-").filter(|rest| !rest.is_empty())?;
        let mut all = named.iter().filter(|known| known.uuid.starts_with(name));
        let first = all.next()?;
        all.next().is_none().then_some(first)
    };
    let whole = named.iter().find(|known| *known.uuid == *name);
    whole.or_else(numbered).or_else(begun).map(|known| Arc::clone(&known.key))
}
