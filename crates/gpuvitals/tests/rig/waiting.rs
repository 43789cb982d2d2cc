//! The one wait for what tells nobody: another process has changed.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Longest wait.
const LIMIT: Duration = Duration::from_mins(1);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks until what is found is as it should be.
#[expect(clippy::disallowed_methods, reason = "a deadline of this process, which has no paused clock")]
pub(crate) fn until<T: Debug>(what: &str, mut look: impl FnMut() -> T, is_so: impl Fn(&T) -> bool) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        let found = look();
        if is_so(&found) {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} never came; the last look found {found:?}");
        std::thread::park_timeout(PAUSE);
    }
}
