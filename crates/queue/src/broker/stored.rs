//! Where a frame's bytes are: in memory, on disk, or both.

use std::sync::Arc;

use gpuvitals_log::Place;

use super::env::Env;
use crate::frame::{ContentType, Frame};

/// Where a frame lies in the log, for as long as somebody may ask for it.
#[derive(Clone, Debug)]
pub struct Home {
    /// The frame's offset, by which its record is known.
    pub offset: u64,
    /// Where its record stands.
    pub place: Place,
    /// Keeps the log's segment from being removed.
    pub pin: Arc<Pin>,
}

/// Held by everything that lies in one segment of the log.
#[derive(Debug, Default)]
pub struct Pin;

/// Something with a frame that may have to be read first.
#[derive(Clone, Debug)]
pub struct Lent<T> {
    /// The thing; its frame is blank if it has to be read.
    pub item: T,
    /// Where to read the frame, if it is not in memory.
    pub home: Option<Home>,
}

/// A frame that is held.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    frame: Option<Arc<Frame>>,
    pub(super) home: Option<Home>,
    /// What it counts against bounds.
    pub(super) cost: u64,
}

impl Stored {
    /// In memory, and on disk too if it has a home.
    pub(super) fn here(frame: Arc<Frame>, home: Option<Home>) -> Self {
        Self { cost: frame.cost_bytes(), frame: Some(frame), home }
    }

    /// On disk only.
    pub(super) fn on_disk(home: Home, cost: u64) -> Self {
        Self { frame: None, home: Some(home), cost }
    }

    /// The frame to be given to someone: as it is, or a blank one and where to read it.
    pub(super) fn lend(&self) -> (Arc<Frame>, Option<Home>) {
        match &self.frame {
            Some(frame) => (Arc::clone(frame), None),
            None => (Arc::new(Frame::new(ContentType::Batch, 0, Vec::new())), self.home.clone()),
        }
    }

    /// Whether it takes memory that it could do without.
    pub(super) fn is_cached(&self) -> bool {
        self.frame.is_some() && self.home.is_some()
    }

    /// Lets the memory go, if the bytes are on disk too.
    pub(super) fn let_go(&mut self, env: &mut Env) {
        if self.is_cached() {
            self.frame = None;
            env.cached.remove(self.cost);
        }
    }
}

/// Memory taken by frames that are on disk too.
#[derive(Debug, Default)]
pub(super) struct Cached {
    pub(super) frames: usize,
    pub(super) bytes: u64,
}

impl Cached {
    pub(super) fn add(&mut self, cost: u64) {
        self.frames += 1;
        self.bytes += cost;
    }

    fn remove(&mut self, cost: u64) {
        self.frames = self.frames.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(cost);
    }
}
