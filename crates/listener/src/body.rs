//! Request bodies, received within bounds.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use bytes::{Buf as _, Bytes};
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How much of a refused body is still received and thrown away, so that the client reads the answer.
const DISCARD_MAX: usize = 16 << 20;
/// How long that may take.
const DISCARD_TIME: Duration = Duration::from_secs(2);

/// Why a body is not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// It is longer than this many bytes.
    #[error("the body is longer than {0} bytes")]
    TooLarge(usize),
    /// The connection ended before the body did.
    #[error("the body ended early")]
    Cut,
    /// All bodies together take too much memory.
    #[error("too much is being received at once")]
    Overloaded,
}

/// Bytes that all bodies together may take, and messages of gRPC that have come in part.
#[derive(Clone, Debug)]
pub struct Budget {
    free: Arc<Semaphore>,
    all: usize,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(bytes: usize) -> Self {
        let all = bytes.min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(all)), all }
    }

    /// Bytes that are taken now.
    pub fn taken(&self) -> usize {
        self.all.saturating_sub(self.free.available_permits())
    }

    /// A share of nothing, which can grow.
    pub fn share(&self) -> Share {
        Share { budget: Arc::clone(&self.free), held: None }
    }
}

/// The bytes that a request takes of the budget, given back when it is dropped.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
}

impl Share {
    /// Takes so much, whatever it took before.
    ///
    /// # Errors
    /// When the budget is used up.
    pub fn hold(&mut self, bytes: usize) -> Result<(), BodyError> {
        let held = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if bytes < held {
            self.clear();
            return self.grow(bytes);
        }
        self.grow(bytes - held)
    }

    /// Gives all of it back.
    pub fn clear(&mut self) {
        self.held = None;
    }

    /// Takes so much more.
    ///
    /// # Errors
    /// When the budget is used up.
    pub fn grow(&mut self, bytes: usize) -> Result<(), BodyError> {
        let bytes = u32::try_from(bytes).map_err(|_| BodyError::Overloaded)?;
        let more =
            Arc::clone(&self.budget).try_acquire_many_owned(bytes).map_err(|_| BodyError::Overloaded)?;
        match &mut self.held {
            Some(held) => held.merge(more),
            None => self.held = Some(more),
        }
        Ok(())
    }
}

/// Receives a whole body of at most `limit` bytes.
///
/// # Errors
/// When the body is longer or cut, or the budget is used up.
pub async fn receive(body: &mut Body, limit: usize, share: &mut Share) -> Result<Bytes, BodyError> {
    let expected = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if expected > limit {
        return Err(BodyError::TooLarge(limit));
    }
    let mut whole = Vec::new();
    while let Some(part) = body.frame().await {
        let Ok(data) = part.map_err(|_| BodyError::Cut)?.into_data() else { continue };
        if data.len() > limit - whole.len() {
            return Err(BodyError::TooLarge(limit));
        }
        share.grow(data.len())?;
        if whole.is_empty() && data.len() == expected {
            return Ok(data);
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.into())
}

/// Receives what is left of a refused body, within bounds: a client that still sends when the connection closes would
/// not read why.
pub async fn discard(body: &mut Body) {
    let rest = async {
        let mut left = DISCARD_MAX;
        while let Some(Ok(part)) = body.frame().await {
            let len = part.data_ref().map_or(0, Bytes::remaining);
            match left.checked_sub(len) {
                Some(less) => left = less,
                None => return,
            }
        }
    };
    // Over time or not: the answer goes out.
    let _in_time = tokio::time::timeout(DISCARD_TIME, rest).await.is_ok();
}
