//! A bounded queue in memory in front of a receiver.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::receiver::Packed;

/// What a request takes beside its body, bytes.
const OVERHEAD_BYTES: u64 = 64;

/// Requests that wait, oldest first. The newest are worth more than old ones: at the bound, in bytes, the oldest go. The request
/// that is being sent may be among them: it is counted as dropped then, though it may still arrive.
#[derive(Debug)]
pub(crate) struct WaitingRequests<F> {
    bytes_max: u64,
    line: Mutex<RequestLine<F>>,
    /// The line is another one.
    changed: Notify,
}

#[derive(Debug)]
struct RequestLine<F> {
    requests: VecDeque<Arc<Packed<F>>>,
    bytes: u64,
    samples: u64,
}

impl<F> RequestLine<F> {
    fn add(&mut self, request: Packed<F>) {
        self.bytes += cost(&request);
        self.samples += request.samples;
        self.requests.push_back(Arc::new(request));
    }

    /// Takes the oldest out; returns its samples.
    fn remove_oldest(&mut self) -> u64 {
        let Some(oldest) = self.requests.pop_front() else { return 0 };
        self.bytes -= cost(&oldest);
        self.samples -= oldest.samples;
        oldest.samples
    }
}

fn cost<F>(request: &Packed<F>) -> u64 {
    OVERHEAD_BYTES + u64::try_from(request.body.len()).unwrap_or(u64::MAX / 2)
}

impl<F> WaitingRequests<F> {
    /// Room for so many bytes.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let line = Mutex::new(RequestLine { requests: VecDeque::new(), bytes: 0, samples: 0 });
        Self { bytes_max, line, changed: Notify::new() }
    }

    /// Adds a request. Returns the number of samples that were dropped for it, oldest first; its own, if it is larger than the
    /// queue.
    pub(crate) fn add(&self, request: Packed<F>) -> u64 {
        if cost(&request) > self.bytes_max {
            return request.samples;
        }
        let mut dropped = 0;
        let mut line = self.line();
        while line.bytes + cost(&request) > self.bytes_max {
            dropped += line.remove_oldest();
        }
        line.add(request);
        drop(line);
        self.changed.notify_waiters();
        dropped
    }

    /// The oldest request, once there is one.
    pub(crate) async fn oldest(&self) -> Arc<Packed<F>> {
        loop {
            let changed = self.changed.notified();
            if let Some(oldest) = self.line().requests.front() {
                return Arc::clone(oldest);
            }
            changed.await;
        }
    }

    /// A request that was the oldest need not be sent any more.
    pub(crate) fn settle(&self, request: &Arc<Packed<F>>) {
        let mut line = self.line();
        // It may have been dropped meanwhile.
        if line.requests.front().is_some_and(|oldest| Arc::ptr_eq(oldest, request)) {
            line.remove_oldest();
        }
        drop(line);
        self.changed.notify_waiters();
    }

    /// Samples that wait, or are being sent.
    pub(crate) fn samples(&self) -> u64 {
        self.line().samples
    }

    /// Ends when nothing waits.
    pub(crate) async fn emptied(&self) {
        loop {
            let changed = self.changed.notified();
            if self.line().requests.is_empty() {
                return;
            }
            changed.await;
        }
    }

    fn line(&self) -> MutexGuard<'_, RequestLine<F>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(samples: u64, bytes: usize) -> Packed<()> {
        Packed { body: vec![0; bytes].into(), form: (), samples, newest_ms: 0 }
    }

    #[tokio::test]
    async fn at_the_bound_the_oldest_go_and_what_is_too_large_drops_nothing_else() {
        let waiting = WaitingRequests::new(3 * (100 + OVERHEAD_BYTES));
        assert_eq!((1..=3).map(|samples| waiting.add(request(samples, 100))).sum::<u64>(), 0);
        let sent = waiting.oldest().await;
        assert_eq!((sent.samples, waiting.samples()), (1, 6));
        assert_eq!(waiting.add(request(4, 200)), 1 + 2);
        assert_eq!(waiting.add(request(5, 1_000)), 5);
        // Its place is another's by now.
        waiting.settle(&sent);
        assert_eq!(waiting.samples(), 3 + 4);
        for samples in [3, 4] {
            let oldest = waiting.oldest().await;
            assert_eq!(oldest.samples, samples);
            waiting.settle(&oldest);
        }
        waiting.emptied().await;
        assert_eq!((waiting.samples(), waiting.line().bytes), (0, 0));
    }
}
