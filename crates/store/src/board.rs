//! Health of the store: each part reports its problem, the board combines them.

use std::sync::{Mutex, PoisonError};

use gpuvitals_core::{Health, Status};

use gpuvitals_core::clock;

/// A part of the store that can ail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Part {
    /// Taking rows: the log.
    Log,
    /// Writing rows to files.
    Flush,
    /// Merging files of an hour or a day.
    Merge,
    /// Files that were found damaged since the start.
    Files,
    /// What was found damaged or missing at the start.
    Damage,
    /// Foreign columns without room.
    Columns,
    /// Files that take more room than they may.
    Room,
}

const PARTS: usize = 7;

/// The first of several reasons, and the number of others.
pub(crate) fn first_and_more(reasons: &[String]) -> Option<String> {
    let (first, others) = reasons.split_first()?;
    Some(if others.is_empty() { first.clone() } else { format!("{first} (and {} more)", others.len()) })
}

#[derive(Debug)]
struct BoardState {
    reasons: [Option<String>; PARTS],
    health: Health,
}

/// Reasons by part, and the health that follows.
#[derive(Debug)]
pub(crate) struct Board(Mutex<BoardState>);

impl Board {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(BoardState { reasons: Default::default(), health: Health::healthy(clock::now_ns()) }))
    }

    /// Sets or (none) clears the problem of a part.
    pub(crate) fn set(&self, part: Part, reason: Option<String>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(slot) = state.reasons.get_mut(part as usize) else { return };
        if *slot == reason {
            return;
        }
        if let Some(reason) = &reason {
            tracing::warn!(?part, reason, "the store is degraded");
        } else {
            tracing::info!(?part, "the store has recovered");
        }
        *slot = reason;
        let reasons: Vec<&str> = state.reasons.iter().flatten().map(String::as_str).collect();
        let status = if reasons.is_empty() { Status::Healthy } else { Status::Degraded };
        let reason = reasons.join("; ");
        state.health.observe(status, reason, clock::now_ns());
    }

    pub(crate) fn health(&self) -> Health {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).health.clone()
    }
}
