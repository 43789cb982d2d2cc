//! The probe of one GPU: opens it at the first reading, leaves it alone while it sleeps, and looks for it again by its PCI
//! address when its driver has let go of it.

use std::sync::Arc;

use gpuvitals_core::{AbsenceReason, Identity};

use super::board::{Board, Whom};
use super::card::{Card, cards, read_text};
use super::sensor::Missing;
use super::sleep::Sleep;
use crate::machine::Machine;
use crate::probe::{Driver, Due, Probe, ProbeError, Reading};

/// Seconds for which `gpu_metrics` may fail at first before the GPU is read without it.
const TRIES_MAX: u32 = 10;

/// Reads one GPU by its files.
#[derive(Debug)]
pub(super) struct SysfsProbe {
    machine: Machine,
    card: Card,
    whom: Whom,
    sleep: Option<Sleep>,
    board: Option<Board>,
    /// Why it is not open yet, and how often that was tried.
    waits: Option<AbsenceReason>,
    tries: u32,
    /// Whether it is read without a table that is there.
    is_makeshift: bool,
    is_lost: bool,
}

impl SysfsProbe {
    pub(super) fn new(machine: Machine, card: Card) -> Self {
        let whole = Arc::new(card.identity(&machine, Driver::AmdSysfs, None));
        let whom = Whom { whole, partitions: Vec::new() };
        Self {
            machine,
            card,
            whom,
            sleep: None,
            board: None,
            waits: None,
            tries: 0,
            is_makeshift: false,
            is_lost: false,
        }
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
        self.tries = 0;
        self.is_lost = true;
        ProbeError::Gone(format!("{}: its driver has let go of it", self.card.subject()))
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

    /// Opens the board, unless it does not answer yet: then it is tried once a second.
    fn open(&mut self, due: Due) -> Result<(), Missing> {
        if let Some(reason) = self.waits.filter(|_| !due.slow) {
            return Err(Missing::Now(reason));
        }
        match Board::open(&self.card) {
            Ok(board) => self.board = Some(board),
            Err(Missing::Now(_)) if self.tries >= TRIES_MAX => {
                self.board = Some(Board::without_table());
                self.is_makeshift = true;
                self.waits = None;
                return Ok(());
            }
            Err(missing) => {
                self.tries += 1;
                self.waits = Some(missing.reason());
                return Err(missing);
            }
        }
        (self.waits, self.tries, self.is_makeshift) = (None, 0, false);
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

    fn read(&mut self, due: Due, reading: &mut Reading) -> Result<(), ProbeError> {
        // What is missing for good is told at the rare tier, also of the slow one.
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
        if self.board.is_none() || (self.is_makeshift && due.rare) {
            match self.open(due) {
                Ok(()) => {}
                Err(Missing::Gone) => return Err(self.lose(reading)),
                Err(missing) => {
                    self.down(missing.reason(), "gpu_metrics does not answer yet", reading);
                    return Ok(());
                }
            }
        }
        let Some(board) = &mut self.board else { return Ok(()) };
        let (machine, card) = (&self.machine, &self.card);
        let rename = |partitions| partition_identities(machine, card, partitions);
        if board.read(card, due, reading, &mut self.whom, rename).is_err() {
            return Err(self.lose(reading));
        }
        Ok(())
    }
}

/// The partitions of a divided GPU, called by the mode: `cpx0`, `cpx1` …
fn partition_identities(machine: &Machine, card: &Card, partitions: usize) -> Vec<Arc<Identity>> {
    let mode =
        read_text(&card.device.join("current_compute_partition")).map(|mode| mode.to_ascii_lowercase());
    let mode = mode.filter(|mode| mode.bytes().all(|b| b.is_ascii_alphanumeric()) && mode.len() <= 8);
    let mode = mode.as_deref().unwrap_or("xcp");
    let identity = |at| Arc::new(card.identity(machine, Driver::AmdSysfs, Some(&format!("{mode}{at}"))));
    (0..partitions).map(identity).collect()
}
