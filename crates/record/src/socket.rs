//! The socket on which other programs set marks: a datagram is a mark (`mark.rs` has its form).
//!
//! It is beside the rows of the unfinished recording, so that a repair removes it after a kill; in the
//! system's directory for temporary files if the path is too long for a socket or the disk does not support
//! sockets.

use std::fs::DirBuilder;
use std::io;
use std::net::Shutdown;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use gpuvitals_core::clock::Moment;

use crate::mark::{MarkContent, set_at};
use crate::marks::Marks;

/// Environment variable that names the socket to recorded programs.
pub const MARK_SOCKET_VARIABLE: &str = "GPUVITALS_MARK_SOCKET";

/// Longest datagram: the longest mark, escaped as JSON.
const DATAGRAM_LEN_MAX: usize = 16_384;

/// A socket for marks, in a directory that only this user can enter. Removed when dropped.
#[derive(Debug)]
pub struct MarkSocket {
    path: PathBuf,
    socket: UnixDatagram,
    last: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Sends a mark to the socket of a running recording. Waits while the recorder does not keep up.
///
/// # Errors
/// If nobody listens there.
pub fn send_mark(socket: &Path, content: impl Into<MarkContent>) -> io::Result<()> {
    let bytes = content.into().kept().to_bytes();
    UnixDatagram::unbound()?.send_to(&bytes, socket).map(|_| ())
}

impl MarkSocket {
    pub(crate) fn open(marks: Arc<Marks>, unfinished: &Path) -> io::Result<Self> {
        let now = Moment::now().wall_ns;
        let temporary = std::env::temp_dir().join(format!("gpuvitals-{}-{now}", std::process::id()));
        let beside = std::path::absolute(unfinished).and_then(|directory| bind(&directory.join("socket")));
        let (path, socket) = beside.or_else(|_| bind(&temporary))?;
        let (last, listening) = (Arc::<AtomicBool>::default(), socket.try_clone()?);
        let mut socket = Self { path, socket, last: Arc::clone(&last), thread: None };
        let thread = std::thread::Builder::new().name("marks".to_owned());
        // On an error the half-made socket removes its remains.
        socket.thread = Some(thread.spawn(move || listen(&listening, &marks, &last))?);
        Ok(socket)
    }

    /// Path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for MarkSocket {
    fn drop(&mut self) {
        self.last.store(true, Ordering::Release);
        // Wakes the thread, which takes the marks sent before and then ends.
        let woken = self.socket.shutdown(Shutdown::Read);
        if let (Ok(()), Some(thread)) = (woken, self.thread.take()) {
            let _panicked = thread.join();
        }
        // Leftovers are removed with the unfinished recording.
        let _removed = std::fs::remove_file(&self.path);
        let _removed = self.path.parent().map(std::fs::remove_dir);
    }
}

/// A socket in a new directory that only this user can enter.
fn bind(directory: &Path) -> io::Result<(PathBuf, UnixDatagram)> {
    DirBuilder::new().mode(0o700).create(directory)?;
    let path = directory.join("mark");
    let socket = UnixDatagram::bind(&path).inspect_err(|_| {
        let _removed = std::fs::remove_dir(directory);
    })?;
    Ok((path, socket))
}

fn listen(socket: &UnixDatagram, marks: &Marks, last: &AtomicBool) {
    let mut bytes = [0; DATAGRAM_LEN_MAX];
    loop {
        let len = match socket.recv(&mut bytes) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let datagram = bytes.get(..len).unwrap_or_default();
        let Some(content) = MarkContent::of_bytes(datagram) else {
            if last.load(Ordering::Acquire) {
                return;
            }
            continue;
        };
        if let Err(error) = marks.put(content, set_at(datagram, Moment::now())) {
            tracing::warn!(error = gpuvitals_core::causes(&error), "a mark is lost");
        }
    }
}
