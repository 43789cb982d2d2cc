//! Identities of GPUs: the driver's name, or the place while the driver has no answer.

use std::sync::{Arc, OnceLock};

use gpuvitals_core::{Identity, IdentityColumn, IdentityError};

use super::events::Events;
use super::known::{KnownGpu, PowerUsage, lost};
use super::library::{self, ListedGpu};
use super::probe::NvmlProbe;
use super::raw::Raw;
use crate::machine::Machine;
use crate::probe::{Driver, Due, Probe, ProbeError, Reading};

/// Identity of a GPU; empty until it could be asked for its name.
pub(super) type LateIdentity = Arc<OnceLock<Arc<Identity>>>;

/// A GPU that the library counts and that could not be asked for its name: lost, in need of a reset, or hanging.
pub(crate) struct Nameless {
    pub(super) raw: &'static Raw,
    index: u32,
    place: NodeDriver,
    /// Its place, used as identity.
    identity: Arc<Identity>,
}

/// What is known of every GPU before its first answer.
#[derive(Clone)]
pub(super) struct NodeDriver {
    node: Arc<str>,
    driver: Arc<str>,
}

impl NodeDriver {
    pub(super) fn new(machine: &Machine, driver: &str) -> Self {
        Self { node: Arc::clone(&machine.node), driver: Arc::from(driver) }
    }

    /// The GPU of this index as the driver calls it.
    pub(super) fn known(
        &self,
        raw: &'static Raw,
        index: u32,
        listed: &ListedGpu,
    ) -> Result<KnownGpu, IdentityError> {
        let (name, pci) = (listed.name.as_deref(), listed.pci.as_ref().map(|(pci, _)| pci.as_str()));
        let mut identity = self.identity(index, &listed.uuid, name, pci)?;
        if let Some(vbios) = &listed.vbios {
            // A text that cannot be one is left out: a row is worth more than a label.
            let _refused = identity.set(IdentityColumn::Vbios, vbios);
        }
        let power_usage = power_usage(listed);
        Ok(KnownGpu { raw, gpu: listed.gpu, identity: Arc::new(identity), power_usage })
    }

    /// The GPU of this index, of which nothing is known but perhaps the address.
    pub(super) fn nameless(
        &self,
        raw: &'static Raw,
        index: u32,
        pci: Option<&str>,
    ) -> Result<Nameless, IdentityError> {
        let identity = Arc::new(self.identity(index, "", None, pci)?);
        Ok(Nameless { raw, index, place: self.clone(), identity })
    }

    fn identity(
        &self,
        index: u32,
        uuid: &str,
        model: Option<&str>,
        pci: Option<&str>,
    ) -> Result<Identity, IdentityError> {
        let mut identity = Identity::default()
            .with(IdentityColumn::Node, &self.node)?
            .with(IdentityColumn::Vendor, "nvidia")?
            .with(IdentityColumn::Source, Driver::Nvml.as_str())?
            .with(IdentityColumn::Uuid, uuid)?
            .with(IdentityColumn::Driver, &self.driver)?
            .with(IdentityColumn::Model, model.unwrap_or_default())?
            .with(IdentityColumn::Pci, pci.unwrap_or_default())?;
        identity.index = i32::try_from(index).ok();
        identity.resolve()?;
        Ok(identity)
    }
}

/// The average from Ampere on, but not on GA100 (A100, A30 and their kin).
fn power_usage(listed: &ListedGpu) -> PowerUsage {
    const AMPERE: u32 = 7;
    const UNKNOWN: u32 = u32::MAX;
    let is_ga100 = listed.pci.as_ref().is_some_and(|(_, device)| device >> 8 == 0x20);
    let is_averaged = listed.architecture.is_some_and(|it| (AMPERE..UNKNOWN).contains(&it)) && !is_ga100;
    if is_averaged { PowerUsage::Average } else { PowerUsage::Instant }
}

/// The one address at which the kernel module has a GPU that is none of the named ones.
pub(super) fn address_left(machine: &Machine, named: &[&KnownGpu]) -> Option<String> {
    let gpus = std::fs::read_dir(machine.procfs.join("driver/nvidia/gpus")).ok()?;
    let spelled = |text: &str| {
        let identity = Identity::default().with(IdentityColumn::Pci, text).ok()?;
        identity.get(IdentityColumn::Pci).map(str::to_owned)
    };
    let mut left = gpus
        .flatten()
        .filter_map(|entry| spelled(entry.file_name().to_str()?))
        .filter(|pci| named.iter().all(|known| known.identity.get(IdentityColumn::Pci) != Some(pci)));
    left.next().filter(|_| left.next().is_none())
}

/// Asks a GPU for its name until it has one, and then reads it.
pub(super) struct NamingProbe {
    nameless: Nameless,
    events: Option<Arc<Events>>,
    name: LateIdentity,
    named: Option<NvmlProbe>,
}

impl NamingProbe {
    pub(super) fn new(nameless: Nameless, events: Option<Arc<Events>>, name: LateIdentity) -> Self {
        Self { nameless, events, name, named: None }
    }

    fn ask(&self) -> Result<NvmlProbe, ProbeError> {
        let Nameless { raw, index, ref place, .. } = self.nameless;
        let listed = library::list(raw, index).map_err(|code| lost(raw, code))?;
        let named = place.known(raw, index, &listed);
        let known = named.map_err(|error| ProbeError::Failed(format!("no name: {error}")))?;
        tracing::info!(gpu = known.identity.uuid(), index, "a GPU that could not be named answers");
        let _named_before = self.name.set(Arc::clone(&known.identity));
        Ok(NvmlProbe::new(known, self.events.clone()))
    }
}

impl Probe for NamingProbe {
    fn driver(&self) -> Driver {
        Driver::Nvml
    }

    fn targets(&self) -> Vec<Arc<Identity>> {
        self.named.as_ref().map_or_else(|| vec![Arc::clone(&self.nameless.identity)], Probe::targets)
    }

    fn fill(&mut self, due: Due, reading: &mut Reading) -> Result<(), ProbeError> {
        let probe = if let Some(probe) = &mut self.named {
            probe
        } else {
            let probe = self.ask()?;
            self.named.insert(probe)
        };
        probe.fill(due, reading)
    }
}
