//! The waits of tests. Each names what it waits for when that does not come.

use std::fmt::Debug;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Longest wait for anything that comes by itself.
pub const PATIENCE: Duration = Duration::from_mins(2);
/// Between two looks at what tells nobody that it has changed.
const PAUSE: Duration = Duration::from_millis(5);

/// What comes of a future.
pub async fn soon<T>(what: &str, coming: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, coming).await.unwrap_or_else(|_| panic!("{what} never came"))
}

/// Tries until something comes of it.
pub async fn retried<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let trying = async {
        loop {
            if let Some(found) = attempt().await {
                return found;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    soon(what, trying).await
}

/// Looks until it is so.
pub async fn watched(what: &str, mut is_so: impl FnMut() -> bool) {
    retried(what, async || is_so().then_some(())).await;
}

/// Looks until what is found is as it should be. It blocks its thread.
#[expect(clippy::disallowed_methods, reason = "a deadline of this process, which has no paused clock")]
pub fn until<T: Debug>(what: &str, mut look: impl FnMut() -> T, is_so: impl Fn(&T) -> bool) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = look();
        if is_so(&found) {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} never came; the last look found {found:?}");
        std::thread::park_timeout(PAUSE);
    }
}

/// How a process ended; one that does not end is killed, and the test fails.
pub fn ended(child: &mut Child) -> ExitStatus {
    struct Killed<'a>(&'a mut Child);
    impl Drop for Killed<'_> {
        fn drop(&mut self) {
            // One that has ended, and was waited for, is not killed.
            let _ended_before = self.0.kill();
        }
    }
    let child = Killed(child);
    let what = format!("the end of process {}", child.0.id());
    until(&what, || child.0.try_wait().unwrap(), Option::is_some).unwrap()
}
