//! The end, told to all workers at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A flag that can be waited for.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    set: AtomicBool,
    lock: Mutex<()>,
    told: Condvar,
}

impl Stop {
    pub(crate) fn set(&self) {
        let _held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.set.store(true, Ordering::Release);
        self.told.notify_all();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Waits so long at most; true when it is set.
    pub(crate) fn wait(&self, nanos: i64) -> bool {
        let patience = Duration::from_nanos(u64::try_from(nanos).unwrap_or(0));
        let held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.told.wait_timeout_while(held, patience, |()| !self.is_set());
        drop(waited);
        self.is_set()
    }
}
