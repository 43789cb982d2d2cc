//! The one wait for what tells nobody.

use std::time::Duration;

use tokio::time::{sleep, timeout};

/// Longest wait.
const LIMIT: Duration = Duration::from_mins(1);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(2);

/// Tries until something comes of it.
pub(crate) async fn retried<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let trying = async {
        loop {
            if let Some(found) = attempt().await {
                return found;
            }
            sleep(PAUSE).await;
        }
    };
    timeout(LIMIT, trying).await.unwrap_or_else(|_| panic!("{what} never came"))
}
