//! Counts and health of the collector.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use gpuvitals_core::figures::Histogram;
use gpuvitals_core::{Health, Status};
use gpuvitals_queue::link::Away;
use tokio::sync::watch;

use gpuvitals_core::clock;

/// Hosts whose rows ahead are counted apart; those of further ones are counted together.
const HOSTS_MAX: usize = 1_000;
const OTHER_HOSTS: &str = "others";

/// Counts and health of the collector.
#[derive(Debug)]
pub struct CollectorProgress {
    /// Rows made durable.
    pub rows_stored: AtomicU64,
    /// Rows refused because their time is in the future.
    pub rows_future: AtomicU64,
    /// Rows that were taken although their clock is ahead ([`AHEAD_MAX_NS`](gpuvitals_core::time::AHEAD_MAX_NS)), by host.
    rows_ahead: Mutex<BTreeMap<Arc<str>, u64>>,
    /// Messages refused because they are no rows.
    pub messages_refused: AtomicU64,
    /// Values left out of rows that were taken: they cannot be true, or no column takes them.
    pub values_invalid: AtomicU64,
    /// Tries to store that failed.
    pub store_failures: AtomicU64,
    /// Time until rows that came together were durable.
    pub latency: Histogram,
    health: Mutex<Health>,
    /// Whether the queue takes rows that may not be stored.
    dead_letters: Mutex<Health>,
    /// Whether each worker reaches the queue.
    ways: Mutex<Vec<watch::Receiver<Away>>>,
    reach: Mutex<Health>,
    /// Since when and why no more rows will come.
    source_broken: OnceLock<Health>,
}

impl Default for CollectorProgress {
    fn default() -> Self {
        Self::new()
    }
}

impl CollectorProgress {
    /// Nothing yet, and healthy.
    pub fn new() -> Self {
        Self {
            rows_stored: AtomicU64::new(0),
            rows_future: AtomicU64::new(0),
            rows_ahead: Mutex::default(),
            messages_refused: AtomicU64::new(0),
            values_invalid: AtomicU64::new(0),
            store_failures: AtomicU64::new(0),
            latency: Histogram::default(),
            health: Mutex::new(Health::healthy(clock::now_ns())),
            dead_letters: Mutex::new(Health::healthy(clock::now_ns())),
            ways: Mutex::default(),
            reach: Mutex::new(Health::healthy(clock::now_ns())),
            source_broken: OnceLock::new(),
        }
    }

    /// Registers a worker's connection state, until its other end is dropped.
    pub fn goes(&self, way: watch::Receiver<Away>) {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner).push(way);
    }

    /// Whether the queue is reached. Logged when that changes: once for all workers.
    pub fn reach(&self) -> Health {
        let mut ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        ways.retain(|way| way.has_changed().is_ok());
        let reason = ways.iter().find_map(|way| way.borrow().clone());
        let (status, words) = match reason {
            Some(reason) => (Status::Degraded, format!("the queue is not reached: {reason}")),
            None => (Status::Healthy, String::new()),
        };
        let mut reach = self.reach.lock().unwrap_or_else(PoisonError::into_inner);
        match (reach.status, status) {
            (Status::Healthy, Status::Degraded) => tracing::warn!("{words}; trying until it is"),
            (Status::Degraded, Status::Healthy) => tracing::info!("the queue is reached again"),
            _ => {}
        }
        reach.observe(status, words, clock::now_ns());
        reach.clone()
    }

    /// Notes that the source broke off; that does not pass.
    pub fn source_broke(&self, reason: &str) {
        let mut health = Health::healthy(0);
        health.observe(Status::Degraded, format!("the source broke off: {reason}"), clock::now_ns());
        self.source_broken.get_or_init(|| health);
    }

    /// How the collector is.
    pub fn health(&self) -> Health {
        let storing = self.health.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let dead_letters = self.dead_letters.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Health::of_all(
            [storing, dead_letters, self.reach()].into_iter().chain(self.source_broken.get().cloned()),
        )
    }

    /// Rows of a host came with a time ahead of the clock here.
    pub(super) fn ahead(&self, host: &str, rows: u64) {
        let mut ahead = self.rows_ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let host = if ahead.len() < HOSTS_MAX || ahead.contains_key(host) { host } else { OTHER_HOSTS };
        if let Some(counted) = ahead.get_mut(host) {
            *counted += rows;
        } else {
            tracing::warn!(
                host,
                "rows come with a time ahead of the clock here; they count when it has come"
            );
            ahead.insert(host.into(), rows);
        }
    }

    /// Rows whose time was ahead when they came, by host.
    pub fn rows_ahead(&self) -> BTreeMap<Arc<str>, u64> {
        self.rows_ahead.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Rows are durable, after this time.
    pub(super) fn stored(&self, rows: usize, took: Duration) {
        self.latency.observe(took);
        self.rows_stored.fetch_add(rows as u64, Ordering::Relaxed);
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        if health.status != Status::Healthy {
            tracing::info!("the store takes rows again");
            health.observe(Status::Healthy, String::new(), clock::now_ns());
        }
    }

    /// A try to store failed, for this reason. The same reason is logged once.
    pub(super) fn not_stored(&self, reason: &str) {
        self.store_failures.fetch_add(1, Ordering::Relaxed);
        let words = format!("rows cannot be stored: {reason}");
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        if health.reason != words {
            tracing::error!(error = reason, "rows cannot be stored; nothing is acknowledged, trying again");
        }
        health.observe(Status::Degraded, words, clock::now_ns());
    }

    /// The queue took a dead letter, or refused it for this reason. Logged when that changes.
    pub(super) fn dead_letter(&self, outcome: Result<(), &str>) {
        let mut health = self.dead_letters.lock().unwrap_or_else(PoisonError::into_inner);
        let (status, words) = match outcome {
            Ok(()) => (Status::Healthy, String::new()),
            Err(reason) => (Status::Degraded, format!("the queue takes no dead letters: {reason}")),
        };
        match (health.status, status) {
            (Status::Healthy, Status::Degraded) => {
                tracing::error!("{words}; their frames are not acknowledged, trying again");
            }
            (Status::Degraded, Status::Healthy) => tracing::info!("the queue takes dead letters again"),
            _ => {}
        }
        health.observe(status, words, clock::now_ns());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_letter_that_is_not_taken_is_no_failure_of_the_store_and_passes_by_itself() {
        let progress = CollectorProgress::new();
        progress.dead_letter(Err("connection refused"));
        let health = progress.health();
        assert_eq!(health.status, Status::Degraded);
        assert_eq!(health.reason, "the queue takes no dead letters: connection refused");
        assert_eq!(progress.store_failures.load(Ordering::Relaxed), 0);
        progress.dead_letter(Ok(()));
        assert_eq!(progress.health().status, Status::Healthy);
    }
}
