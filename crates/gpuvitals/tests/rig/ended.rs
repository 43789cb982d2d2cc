//! The wait for the end of a process, which does not last for ever.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Longest wait.
const LIMIT: Duration = Duration::from_mins(2);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// How a process ended; one that does not end is killed, and the test fails.
#[expect(clippy::disallowed_methods, reason = "a deadline of this process, which has no paused clock")]
pub(crate) fn ended(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("process {} does not end", child.id());
        }
        std::thread::park_timeout(PAUSE);
    }
}
