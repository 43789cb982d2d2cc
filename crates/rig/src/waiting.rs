//! The waits of tests. Each names what it waits for when that does not come.

use std::fmt::Debug;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::{Child, ExitStatus, Output};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
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

/// What comes of work that blocks, such as reading what a process writes. Work that does not come back keeps its thread, and the
/// test fails.
pub fn within<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = sync_channel(1);
    std::thread::spawn(move || done.send(work()));
    received(what, &result)
}

/// What comes through a channel of threads.
pub fn received<T>(what: &str, channel: &Receiver<T>) -> T {
    channel.recv_timeout(PATIENCE).unwrap_or_else(|error| match error {
        RecvTimeoutError::Timeout => panic!("{what} never came"),
        RecvTimeoutError::Disconnected => panic!("waiting for {what} failed"),
    })
}

/// How a process ended, and what it wrote to its pipes; one that does not end is killed, and the test fails.
pub fn outcome(child: Child) -> Output {
    let name = named(&child);
    outcome_of(&name, child)
}

/// The same for a process with a name that says more than its number.
pub(crate) fn outcome_of(name: &str, mut child: Child) -> Output {
    // A process that reads its input to the end waits for that.
    drop(child.stdin.take());
    let stdout = child.stdout.take().map(read_beside);
    let stderr = child.stderr.take().map(read_beside);
    let status = end_of(name, &mut child);
    let whole = |what: &str, stream: Option<Receiver<Vec<u8>>>| {
        stream.map_or_else(Vec::new, |stream| received(what, &stream))
    };
    Output {
        status,
        stdout: whole("the end of its output", stdout),
        stderr: whole("the end of its errors", stderr),
    }
}

/// Reads a stream to its end, on a thread of its own.
fn read_beside(mut stream: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (done, result) = sync_channel(1);
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        done.send(bytes)
    });
    result
}

/// How a process ended; one that does not end is killed, and the test fails.
pub fn ended(child: &mut Child) -> ExitStatus {
    let name = named(child);
    end_of(&name, child)
}

/// Cleans up after a test. What fails there fails the test, unless it has failed before: two panics at once would end all tests of
/// the program.
pub(crate) fn clean_up(work: impl FnOnce()) {
    if let Err(why) = catch_unwind(AssertUnwindSafe(work))
        && !std::thread::panicking()
    {
        resume_unwind(why);
    }
}

fn named(child: &Child) -> String {
    format!("process {}", child.id())
}

fn end_of(name: &str, child: &mut Child) -> ExitStatus {
    struct Killed<'a>(&'a mut Child);
    impl Drop for Killed<'_> {
        fn drop(&mut self) {
            // One that has ended, and was waited for, is not killed.
            let _ended_before = self.0.kill();
        }
    }
    let child = Killed(child);
    until(&format!("the end of {name}"), || child.0.try_wait().unwrap(), Option::is_some).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Unclean;

    impl Drop for Unclean {
        fn drop(&mut self) {
            clean_up(|| panic!("it never came"));
        }
    }

    #[test]
    fn cleaning_up_fails_a_test_and_not_the_one_that_has_failed() {
        let end = |fails: bool| {
            let test = move || {
                let _unclean = Unclean;
                assert!(!fails, "the test fails");
            };
            let why = std::thread::spawn(test).join().unwrap_err();
            why.downcast_ref::<&str>().map(|why| (*why).to_owned())
        };
        assert_eq!(end(false).as_deref(), Some("it never came"));
        assert_eq!(end(true).as_deref(), Some("the test fails"));
    }
}
