//! An incident that is written on a thread of its own before its time is over: no row waits for that, and at the end only the last
//! seconds are left to be written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use crate::error::FlightError;
use crate::incident::FlightIncident;
use crate::order::Order;
use crate::writing::write_until;

/// An incident that is being written.
#[derive(Debug)]
pub(crate) struct EarlyIncident {
    /// By which it is told that its time is over; none: it was told.
    over: Option<SyncSender<Order>>,
    /// Whether it has what the ring had, and waits.
    is_waiting: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<FlightIncident, FlightError>>>,
}

impl EarlyIncident {
    /// Begins to write what the ring has now.
    ///
    /// # Errors
    /// If there is no thread.
    pub(crate) fn begin(order: Order) -> Result<Self, FlightError> {
        let (over, ended) = sync_channel(1);
        let is_waiting = Arc::new(AtomicBool::new(false));
        let waits = Arc::clone(&is_waiting);
        let work = move || {
            write_until(&order, || {
                waits.store(true, Ordering::Release);
                let order = ended.recv().ok();
                // Its end may have been told before it waited.
                waits.store(false, Ordering::Release);
                order
            })
        };
        let thread = thread::Builder::new().name("flight-incident".to_owned()).spawn(work);
        Ok(Self { over: Some(over), is_waiting, thread: Some(thread.map_err(FlightError::Thread)?) })
    }

    /// Its time is over, and this is known of it now.
    pub(crate) fn end(&mut self, order: Order) {
        self.is_waiting.store(false, Ordering::Release);
        if let Some(over) = self.over.take() {
            // If its thread has ended already, it failed, and says so.
            let _failed = over.try_send(order);
        }
    }

    /// Whether it reads nothing of the ring now, and needs of it only what comes from here on.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Acquire)
    }

    /// Whether its thread has ended.
    pub(crate) fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for it, and gives it up if its time is not over. None: its thread panicked.
    pub(crate) fn join(mut self) -> Option<Result<FlightIncident, FlightError>> {
        self.over = None;
        self.thread.take()?.join().ok()
    }
}

impl Drop for EarlyIncident {
    /// Nobody else may write the same folder meanwhile.
    fn drop(&mut self) {
        self.over = None;
        if let Some(thread) = self.thread.take() {
            let _given_up = thread.join();
        }
    }
}
