//! The port of a service: who is let in, how many, and until when.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::{Router, middleware};
use tokio::net::TcpListener;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_http::catch_panic::CatchPanicLayer;

use crate::connection::{Shared, Table};
use crate::limits::Terms;
use crate::meter::Meter;
use crate::observe::{Door, crashed, observe};
use crate::origin;

/// How long accepting pauses after an error that may pass, such as a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Between two looks for idle connections and changed files.
const LOOK_PAUSE: Duration = Duration::from_secs(2);
/// Between two warnings of refused connections.
const WARN_PAUSE: Duration = Duration::from_mins(1);
/// How much longer than [`ListenerLimits::drain`](crate::ListenerLimits::drain) the end may take.
const STRAGGLERS: Duration = Duration::from_secs(1);
/// Connections that the system keeps until they are accepted.
const BACKLOG: u32 = 4_096;

/// Why a listener ended without being told to.
#[derive(Debug, thiserror::Error)]
#[error("cannot accept connections")]
pub struct AcceptError(#[source] io::Error);

/// Takes a port. One that was just left is free again.
///
/// # Errors
/// When it is taken or may not be used.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket =
        if address.is_ipv4() { tokio::net::TcpSocket::new_v4() } else { tokio::net::TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves an application until `stop`, and then until its open requests have ended or [`ListenerLimits::drain`](crate::ListenerLimits::drain) has passed.
///
/// # Errors
/// When the socket fails for good.
pub async fn serve(
    socket: TcpListener,
    app: Router,
    terms: Terms,
    stop: CancellationToken,
) -> Result<(), AcceptError> {
    let Terms { access, limits, meter, .. } = terms.clone();
    let stop = stop.child_token();
    let address = socket.local_addr().map_err(AcceptError)?;
    let origins = terms.origins.clone();
    meter.watch(&access);
    let app = app
        .layer(CatchPanicLayer::custom(crashed))
        .layer(middleware::from_fn_with_state(Arc::new(Door::new(terms, address)), observe));
    // Outermost: a browser asks without a login whether a page may ask, and that page has to see why it is refused.
    let app = if origins.is_empty() { app } else { app.layer(origin::cors(&origins)) };
    let shared = Shared { app, access, limits, tasks: TaskTracker::new(), stop: stop.clone() };
    let table = Arc::new(Table::new(limits.connections, stop.clone()));
    let ended = accept(socket, &shared, &table, &meter).await;
    stop.cancel();
    shared.tasks.close();
    // Every connection ends within the drain time; the end must not hang on one that does not.
    if tokio::time::timeout(limits.drain.saturating_add(STRAGGLERS), shared.tasks.wait()).await.is_err() {
        tracing::warn!(open = shared.tasks.len(), "connections were still open at the end of the drain time");
    }
    ended
}

async fn accept(
    socket: TcpListener,
    shared: &Shared,
    table: &Arc<Table>,
    meter: &Arc<Meter>,
) -> Result<(), AcceptError> {
    let mut looks = tokio::time::interval(LOOK_PAUSE.min(shared.limits.idle));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut warned: Option<Instant> = None;
    loop {
        let accepted = tokio::select! {
            () = shared.stop.cancelled() => return Ok(()),
            _ = looks.tick() => {
                table.close_idle(shared.limits.idle);
                shared.access.follow_files();
                continue;
            }
            accepted = socket.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) if is_about_the_peer(&error) => continue,
            Err(error) if may_pass(&error) => {
                tracing::warn!(%error, "no connection can be accepted now");
                table.displace();
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
            Err(error) => return Err(AcceptError(error)),
        };
        if table.is_full() {
            if table.displace() {
                meter.displaced.fetch_add(1, Ordering::Relaxed);
            } else {
                meter.refused.fetch_add(1, Ordering::Relaxed);
                if warned.is_none_or(|at| at.elapsed() >= WARN_PAUSE) {
                    warned = Some(Instant::now());
                    let connections = shared.limits.connections;
                    tracing::warn!(connections, "all connections are in use, so new ones are closed");
                }
                continue;
            }
        }
        let (id, activity) = table.enter();
        let (shared, table, meter) = (shared.clone(), Arc::clone(table), Arc::clone(meter));
        shared.tasks.clone().spawn(async move {
            meter.connections.fetch_add(1, Ordering::Relaxed);
            shared.serve(stream, activity).await;
            meter.connections.fetch_sub(1, Ordering::Relaxed);
            table.leave(id);
        });
    }
}

/// The peer went away before it was accepted.
fn is_about_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, TimedOut};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted | TimedOut)
}

/// Too little of something that others may give back.
fn may_pass(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let scarce = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    scarce.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
