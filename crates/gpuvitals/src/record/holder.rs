//! The run that is recorded holds its GPUs: the agent of this node is told so, for its ledger, as long as the run lasts.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gpuvitals_agent::{HookError, HookMessage, RunNews};
use gpuvitals_core::Table;
use gpuvitals_core::clock::instant;
use gpuvitals_record::Progress;
use gpuvitals_sources::sampler::TargetState;

use super::words::tell;

/// The agent is told again after so long: one that starts meanwhile knows the run, and a run whose recorder was killed ends.
const AGAIN: Duration = Duration::from_secs(10);
/// The same until a GPU is there.
const SOON: Duration = Duration::from_millis(500);
/// Longest wait at the end for the agent to take the last word.
const PATIENCE: Duration = Duration::from_secs(1);

/// Tells the agent until it is dropped.
pub(super) struct RunHolder {
    run: Arc<Mutex<HeldRun>>,
    /// Dropped, the end is told.
    lasting: Option<SyncSender<()>>,
    /// Closed when that is done; none: nobody is told.
    done: Option<Receiver<()>>,
}

/// What is known of the run.
#[derive(Debug)]
struct HeldRun {
    began: Instant,
    gpus: Vec<Arc<str>>,
    marks: u64,
    marked_at: Option<Instant>,
}

impl RunHolder {
    /// Tells the agent at this socket of the run that is recorded into a directory; nobody without a socket.
    pub(super) fn of(directory: &Path, socket: Option<PathBuf>) -> Self {
        let run = HeldRun { began: instant(), gpus: Vec::new(), marks: 0, marked_at: None };
        let run = Arc::new(Mutex::new(run));
        let (lasting, ends) = sync_channel(0);
        let (doing, done) = sync_channel::<()>(0);
        let (held, name) = (Arc::clone(&run), name(directory));
        let telling = socket.and_then(|socket| {
            let work = move || {
                tell_again(&held, &name, &socket, &ends);
                drop(doing);
            };
            // Without a thread the recording goes on, and the ledger names no run.
            std::thread::Builder::new().name("holder".to_owned()).spawn(work).ok()
        });
        let is_told = telling.is_some();
        Self { run, lasting: is_told.then_some(lasting), done: is_told.then_some(done) }
    }

    /// Takes what the recording knows now.
    pub(super) fn look(&self, progress: &Progress) {
        let mut run = lock(&self.run);
        run.gpus = gpus(&progress.targets);
        if progress.marks > run.marks {
            (run.marks, run.marked_at) = (progress.marks, Some(instant()));
        }
    }
}

impl Drop for RunHolder {
    fn drop(&mut self) {
        drop(self.lasting.take());
        // An agent that hangs does not hold up the end.
        let _late = self.done.take().map(|done| done.recv_timeout(PATIENCE));
    }
}

fn lock(run: &Mutex<HeldRun>) -> MutexGuard<'_, HeldRun> {
    run.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells of the run until the other end of `ends` is gone, and then of its end. Without an agent nothing happens.
fn tell_again(run: &Mutex<HeldRun>, name: &str, socket: &Path, ends: &Receiver<()>) {
    let (mut is_known, mut is_refused) = (false, false);
    loop {
        let wait = if is_known { AGAIN } else { SOON };
        let is_over = ends.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
        // Not told under the lock: the agent may take its time.
        let news = message(&lock(run), name, is_over);
        if let Some(news) = news {
            is_known = true;
            if let (Err(HookError::Refused(why)), false) = (news.tell(socket), is_refused) {
                is_refused = true;
                tell(&format!(
                    "the agent at {} does not count this run as a holder: {why}",
                    socket.display()
                ));
            }
        }
        if is_over {
            return;
        }
    }
}

/// What is to be told of the run now; none: it has no GPU yet.
fn message(run: &HeldRun, name: &str, is_over: bool) -> Option<HookMessage> {
    let age = |since: Instant| instant().saturating_duration_since(since);
    let mark_age = run.marked_at.map(age);
    let news = RunNews { name, gpus: &run.gpus, age: age(run.began), mark_age, is_over };
    (!run.gpus.is_empty()).then(|| HookMessage::of_run(&news))
}

/// The keys of the GPUs that are recorded. Of a divided one the run has the parts that it sees.
fn gpus(targets: &[TargetState]) -> Vec<Arc<str>> {
    let identities =
        || targets.iter().filter(|target| target.table == Table::GpuEvents).map(|target| &target.identity);
    let divided: HashSet<Arc<str>> =
        identities().filter_map(|identity| identity.card()).filter_map(|card| card.key()).collect();
    let keys = identities().filter_map(|identity| identity.key());
    keys.filter(|key| !divided.contains(key)).collect()
}

/// What the run is called: as the directory of its recording.
fn name(directory: &Path) -> String {
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    absolute.file_name().map_or_else(|| "recording".to_owned(), |name| name.to_string_lossy().into_owned())
}
