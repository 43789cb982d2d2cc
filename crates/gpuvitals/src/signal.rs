//! Signals that end the program.

/// Waits for SIGINT or SIGTERM and says which.
pub(crate) async fn terminated() -> &'static str {
    use tokio::signal::unix::{SignalKind, signal};
    let wait = |kind: SignalKind| async move {
        match signal(kind) {
            Ok(mut stream) => {
                stream.recv().await;
            }
            // Without a handler the signal ends the process by itself.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = wait(SignalKind::interrupt()) => "SIGINT",
        () = wait(SignalKind::terminate()) => "SIGTERM",
    }
}
