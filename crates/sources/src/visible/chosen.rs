//! A probe without the GPUs that nobody wants.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::{Identity, IdentityColumn, Table};

use super::cuda::{self, CudaGpu, CudaOrder};
use super::name::{VisibleGpus, VisibleName};
use crate::finding::Finding;
use crate::probe::{Driver, Due, Probe, ProbeError, Reading};

/// Which GPUs are wanted.
#[derive(Debug, Clone)]
pub(super) enum ChosenGpus {
    /// The ones that a variable names.
    Named(Vec<VisibleName>),
    /// Those of CUDA's list, as soon as a tool has said which there are.
    Listed { text: String, order: CudaOrder, known: VisibleGpus },
}

impl ChosenGpus {
    /// Of CUDA's list, for a tool that has not run yet.
    pub(super) fn listed(text: &str, order: CudaOrder) -> Self {
        Self::Listed { text: text.to_owned(), order, known: VisibleGpus::All }
    }

    fn wants(&self, identity: &Identity) -> bool {
        match self {
            Self::Named(names) | Self::Listed { known: VisibleGpus::Named(names), .. } => {
                names.iter().any(|name| name.covers(identity))
            }
            Self::Listed { .. } => true,
        }
    }

    fn learn(&mut self, probe: &dyn Probe) {
        if let Self::Listed { text, order, known } = self {
            *known = cuda::visible(text, *order, &gpus_of(&probe.targets()));
        }
    }
}

/// GPUs in the driver's order.
pub(super) fn gpus_of(targets: &[Arc<Identity>]) -> Vec<CudaGpu> {
    let mut whole: Vec<&Arc<Identity>> =
        targets.iter().filter(|target| target.get(IdentityColumn::Partition).is_none()).collect();
    whole.sort_by_key(|target| target.index);
    let gpu = |target: &Arc<Identity>| {
        let uuid = Arc::clone(target.shared(IdentityColumn::Uuid)?);
        Some(CudaGpu { uuid, model: target.shared(IdentityColumn::Model).cloned() })
    };
    whole.into_iter().filter_map(gpu).collect()
}

/// Reads by another probe, and passes on what is wanted.
pub(super) struct ChosenProbe {
    inner: Box<dyn Probe>,
    chosen: ChosenGpus,
    all: Reading,
}

impl ChosenProbe {
    pub(super) fn new(inner: Box<dyn Probe>, chosen: ChosenGpus) -> Self {
        Self { inner, chosen, all: Reading::default() }
    }
}

impl Probe for ChosenProbe {
    fn table(&self) -> Table {
        self.inner.table()
    }

    fn driver(&self) -> Driver {
        self.inner.driver()
    }

    fn targets(&self) -> Vec<Arc<Identity>> {
        let mut targets = self.inner.targets();
        targets.retain(|target| self.chosen.wants(target));
        targets
    }

    fn read_instances(&mut self) {
        self.inner.read_instances();
    }

    fn renumber(&mut self, index: i32) {
        self.inner.renumber(index);
    }

    fn interval_min(&self) -> Duration {
        self.inner.interval_min()
    }

    fn deadline(&self) -> Duration {
        self.inner.deadline()
    }

    fn fill(&mut self, due: Due, reading: &mut Reading) -> Result<(), ProbeError> {
        self.all.clear();
        self.inner.fill(due, &mut self.all)?;
        self.chosen.learn(self.inner.as_ref());
        self.all.hand_over(reading, |identity| self.chosen.wants(identity));
        Ok(())
    }

    fn findings(&mut self) -> Vec<Finding> {
        self.inner.findings()
    }
}
