//! XIDs: one thread waits for the events of all GPUs and counts them for the probes.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use super::code::{Answer, Code};
use super::raw::{EventSet, Gpu, Raw};

/// The one type of event that has columns; asking for one that a GPU lacks fails them all.
const XID_CRITICAL: u64 = 0x8;
/// How long one wait lasts; a stop is seen after it.
const WAIT_MS: u32 = 1_000;
/// Pause after a wait that failed: a lost GPU must not make this thread spin.
const PAUSE: Duration = Duration::from_secs(5);

/// XIDs of one GPU since this process watches it.
#[derive(Debug, Default)]
pub(super) struct Xids {
    count: AtomicI64,
    last: AtomicI64,
}

impl Xids {
    /// Their number, and the last one's code.
    pub(super) fn seen(&self) -> (i64, Option<i64>) {
        let count = self.count.load(Ordering::Acquire);
        (count, (count > 0).then(|| self.last.load(Ordering::Relaxed)))
    }
}

/// The thread that waits; it ends when the last probe lets go of this.
pub(super) struct Events {
    shared: Arc<SharedEvents>,
    thread: Thread,
}

struct SharedEvents {
    set: EventSet,
    watched: Mutex<Vec<(Gpu, Arc<Xids>)>>,
    is_over: AtomicBool,
}

impl Events {
    /// Starts waiting; none if the library has no events or the thread cannot be started.
    pub(super) fn start(raw: &'static Raw) -> Option<Arc<Self>> {
        let shared = Arc::new(SharedEvents {
            set: EventSet::new(raw).ok()?,
            watched: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("nvml-events".into()).spawn(move || of_thread.run()).ok()?;
        Some(Arc::new(Self { shared, thread: thread.thread().clone() }))
    }

    /// Watches a GPU, again after it was reopened.
    pub(super) fn watch(&self, raw: &Raw, gpu: Gpu, xids: &Arc<Xids>) -> Answer<()> {
        if raw.event_types(gpu)? & XID_CRITICAL == 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        let mut watched = self.shared.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|(_, known)| !Arc::ptr_eq(known, xids));
        watched.push((gpu, Arc::clone(xids)));
        drop(watched);
        self.shared.set.register(gpu, XID_CRITICAL)
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // Not waited for: a wait may hang with a GPU that does.
        self.shared.is_over.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl SharedEvents {
    fn run(&self) {
        while !self.is_over.load(Ordering::Acquire) {
            match self.set.wait(WAIT_MS) {
                Ok((gpu, kind, code)) if kind & XID_CRITICAL != 0 => self.note(gpu, code),
                Ok(_) | Err(Code::TIMEOUT) => {}
                Err(_) => std::thread::park_timeout(PAUSE),
            }
        }
    }

    fn note(&self, gpu: Gpu, code: u64) {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, xids)) = watched.iter().find(|(known, _)| *known == gpu) {
            xids.last.store(i64::try_from(code).unwrap_or(i64::MAX), Ordering::Relaxed);
            xids.count.fetch_add(1, Ordering::Release);
        }
    }
}
