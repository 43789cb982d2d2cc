//! Signals that end the program.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// SIGHUP, where it is no end: from now on.
///
/// # Errors
/// When the handler cannot be had.
pub(crate) fn hangups() -> Result<Signal, Failure> {
    signal(SignalKind::hangup()).map_err(|e| Failure::io("cannot wait for SIGHUP", e))
}

/// Waits for SIGINT, SIGTERM or SIGHUP and says which, for what has nothing to read anew. Where SIGHUP was ignored from the
/// start, as under `nohup`, it stays so.
pub(crate) async fn ended() -> &'static str {
    let hung_up = async {
        if crate::child::is_ignored(SignalKind::hangup()) {
            std::future::pending::<()>().await;
        } else {
            come(SignalKind::hangup()).await;
        }
    };
    tokio::select! {
        signal = terminated() => signal,
        () = hung_up => "SIGHUP",
    }
}

/// Waits for SIGINT or SIGTERM and says which.
pub(crate) async fn terminated() -> &'static str {
    tokio::select! {
        () = come(SignalKind::interrupt()) => "SIGINT",
        () = come(SignalKind::terminate()) => "SIGTERM",
    }
}

async fn come(kind: SignalKind) {
    match signal(kind) {
        Ok(mut stream) => {
            stream.recv().await;
        }
        // Without a handler the signal ends the process by itself.
        Err(_) => std::future::pending().await,
    }
}

/// Whether SIGINT, SIGTERM or SIGHUP has come, for a loop that draws on a terminal and has to give it back.
///
/// # Errors
/// When the handlers cannot be had.
pub(crate) fn watched() -> std::io::Result<std::sync::Arc<std::sync::atomic::AtomicBool>> {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let come = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let inside = runtime.enter();
    let mut hangup = signal(SignalKind::hangup())?;
    drop(inside);
    let tell = Arc::clone(&come);
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = hangup.recv() => {}
                _ = terminated() => {}
            }
        });
        tell.store(true, Ordering::Release);
    })?;
    Ok(come)
}
