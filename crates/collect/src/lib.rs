//! The collector: from a queue into a sink. Decode, validate, make durable, acknowledge.
//!
//! A frame is acknowledged after the sink has made its rows durable, never before. While the sink cannot take
//! rows (a full disk) a worker keeps its frames, extends their leases and tries again; it takes nothing new,
//! so the queue fills and the source slows down; after some minutes it gives its frames back. A
//! frame that can never be opened or stored goes to the dead letters with its reason, and so does one that
//! makes decoding or storing panic. Of a frame with good and bad rows the good ones are stored and the bad
//! ones published as a dead letter; then it is acknowledged.

mod bad;
mod defect;
mod member;
mod memory;
mod meter;
mod opening;
mod progress;
mod settings;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::ports::Sink;
use gpuvitals_queue::link::ConnectError;
use tokio::task::JoinSet;

use worker::Terms;

pub use member::Member;
pub use memory::MemoryHistory;
pub use meter::families;
pub use opening::unpacked;
pub use progress::CollectorProgress;
pub use settings::{CollectorSettings, SinkKind};
pub use worker::Ended;

/// The workers of a collector.
#[derive(Debug)]
pub struct Workers {
    running: JoinSet<Ended>,
    terms: Terms,
}

impl Workers {
    /// Sets them going. Their group is there from now on, before anything is published to a queue of this process.
    ///
    /// # Errors
    /// If a name is refused, or a credential cannot be read.
    pub async fn start(
        settings: &CollectorSettings,
        member: &Member,
        sink: Arc<dyn Sink>,
        progress: Arc<CollectorProgress>,
    ) -> Result<Self, ConnectError> {
        let terms = Terms::new(sink, progress, settings);
        let mut joined = Vec::with_capacity(settings.worker_count);
        for _ in 0..settings.worker_count {
            joined.push(member.join().await?);
        }
        let work = |consumer| worker::work(consumer, member.clone(), terms.clone());
        let mut running: JoinSet<_> = joined.into_iter().map(work).collect();
        running.spawn(worker::watch(terms.clone()));
        Ok(Self { running, terms })
    }

    /// Waits for the next worker that ends, and says why.
    pub async fn ended(&mut self) -> Ended {
        match self.running.join_next().await {
            Some(ended) => ended.unwrap_or_else(Ended::Panicked),
            None => std::future::pending().await,
        }
    }

    /// Lets them end without settling their frames: the queue is closed.
    pub fn abandon(&self) {
        self.terms.abandon.cancel();
    }

    /// Lets them finish their frames; the rest goes back to the queue.
    pub async fn finish(&mut self, patience: Duration) {
        self.terms.stop.cancel();
        let finished = async { while self.running.join_next().await.is_some() {} };
        if tokio::time::timeout(patience, finished).await.is_err() {
            tracing::warn!(
                "rows that were received could not be stored in time; the queue delivers them again"
            );
            self.abandon();
            while self.running.join_next().await.is_some() {}
        }
    }
}
