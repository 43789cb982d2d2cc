//! The probe of one GPU: opens it at the first reading, leaves it alone while it sleeps, and looks for it
//! again by its PCI address when its driver has released it.

use std::sync::Arc;

use gpuvitals_core::{AbsenceReason, Identity};

use super::board::{Board, Whom};
use super::card::{Card, cards};
use super::sleep::Sleep;
use crate::finding::Finding;
use crate::machine::Machine;
use crate::probe::{Driver, Due, Probe, ProbeError, Reading};

/// Reads one GPU by its files.
#[derive(Debug)]
pub(super) struct SysfsProbe {
    machine: Machine,
    card: Card,
    whom: Whom,
    sleep: Option<Sleep>,
    board: Option<Board>,
    is_lost: bool,
}

impl SysfsProbe {
    pub(super) fn new(machine: Machine, card: Card) -> Self {
        let whole = Arc::new(card.identity(&machine, Driver::AmdSysfs, None));
        let whom = Whom { whole, partitions: Vec::new() };
        Self { machine, card, whom, sleep: None, board: None, is_lost: false }
    }

    /// Nothing of it can be read now.
    fn down(&self, reason: AbsenceReason, text: &'static str, reading: &mut Reading) {
        for identity in std::iter::once(&self.whom.whole).chain(&self.whom.partitions) {
            reading.row(identity).down(reason, text);
        }
    }

    /// Drops every open file; the card is looked for at the next reading.
    fn lose(&mut self, reading: &mut Reading) -> ProbeError {
        reading.clear();
        self.board = None;
        self.sleep = None;
        self.is_lost = true;
        ProbeError::Gone(format!("{}: its driver has released it", self.card.subject()))
    }

    /// Finds the card again, by its address: its DRM number may have changed.
    fn relocate(&mut self) -> Result<(), ProbeError> {
        let is_it = |card: &Card| match &self.card.pci {
            Some(pci) => card.pci.as_ref() == Some(pci),
            None => card.name == self.card.name,
        };
        let Some(mut card) = cards(&self.machine).into_iter().find(is_it) else {
            return Err(ProbeError::Gone(format!("{} is not there", self.card.subject())));
        };
        card.index = self.card.index;
        let whole = card.identity(&self.machine, Driver::AmdSysfs, None);
        if whole != *self.whom.whole {
            self.whom = Whom { whole: Arc::new(whole), partitions: Vec::new() };
        }
        self.card = card;
        self.is_lost = false;
        Ok(())
    }
}

impl Probe for SysfsProbe {
    fn driver(&self) -> Driver {
        Driver::AmdSysfs
    }

    fn targets(&self) -> Vec<Arc<Identity>> {
        std::iter::once(&self.whom.whole).chain(&self.whom.partitions).map(Arc::clone).collect()
    }

    fn renumber(&mut self, index: i32) {
        self.card.index = index;
        let whole = Arc::new(self.card.identity(&self.machine, Driver::AmdSysfs, None));
        self.whom = Whom { whole, partitions: Vec::new() };
    }

    fn fill(&mut self, due: Due, reading: &mut Reading) -> Result<(), ProbeError> {
        // Permanently missing values are reported at the rare tier, also those of the slow one.
        let due = Due { slow: due.slow || due.rare, rare: due.rare };
        if self.is_lost {
            self.relocate()?;
        }
        let device = &self.card.device;
        if self.sleep.get_or_insert_with(|| Sleep::open(device)).is_asleep(due) {
            let text = "asleep (power/runtime_status); left so";
            self.down(AbsenceReason::Suspended, text, reading);
            return Ok(());
        }
        let Self { machine, card, whom, board, .. } = self;
        let board = board.get_or_insert_with(|| Board::new(card));
        let rename = |partitions| partition_identities(machine, card, partitions);
        let read = board.read(card, due, reading, whom, rename);
        read.map_err(|_gone| self.lose(reading))
    }

    fn findings(&mut self) -> Vec<Finding> {
        self.board.as_mut().map(Board::findings).unwrap_or_default()
    }
}

/// The partitions of a divided GPU, called by the mode: `cpx0`, `cpx1` …
fn partition_identities(machine: &Machine, card: &Card, partitions: usize) -> Vec<Arc<Identity>> {
    let mode = card.partition_word();
    let identity = |at| Arc::new(card.identity(machine, Driver::AmdSysfs, Some(&format!("{mode}{at}"))));
    (0..partitions).map(identity).collect()
}
