//! Handlers share a queue, its bounds and what is counted.

use std::sync::Arc;

use gpuvitals_listener::body::Budget;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::config::{HttpLimits, ServerConfig};
use super::metrics::ServerMeter;
use super::refusal::Refusal;
use crate::service::Queue;

/// Bodies that are unpacked or are long are read by so many threads at most.
const READERS: usize = 4;

/// What the handlers share.
#[derive(Clone, Debug)]
pub(crate) struct Served(Arc<ServedInner>);

#[derive(Debug)]
struct ServedInner {
    queue: Queue,
    limits: HttpLimits,
    bodies: Budget,
    readers: Arc<Semaphore>,
    meter: Arc<ServerMeter>,
}

impl Served {
    pub(super) fn new(queue: Queue, config: &ServerConfig, bodies: Budget) -> Self {
        let (limits, meter) = (config.http, Arc::clone(&config.meter));
        let readers = Arc::new(Semaphore::new(READERS));
        Self(Arc::new(ServedInner { queue, limits, bodies, readers, meter }))
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.0.queue
    }

    pub(crate) fn limits(&self) -> &HttpLimits {
        &self.0.limits
    }

    pub(crate) fn bodies(&self) -> &Budget {
        &self.0.bodies
    }

    pub(crate) fn meter(&self) -> &ServerMeter {
        &self.0.meter
    }

    /// Waits for a turn to read a long body, or letters. It goes with the work, which does not end with the request.
    pub(crate) async fn reader(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let readers = Arc::clone(&self.0.readers);
        let turn = tokio::time::timeout(self.0.limits.request_time, readers.acquire_owned()).await;
        turn.ok().and_then(Result::ok).ok_or(Refusal::Overloaded)
    }
}
