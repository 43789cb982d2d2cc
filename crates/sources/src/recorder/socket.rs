//! The socket by which other programs set marks: a datagram is a mark, its bytes are the text.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use gpuvitals_core::clock::Moment;

use super::marks::{MARK_LEN_MAX, Marks};

/// Environment variable that names the socket to programs that are recorded.
pub const MARK_SOCKET_VARIABLE: &str = "GPUVITALS_MARK_SOCKET";

/// A socket for marks, in a directory that only this user can enter. Dropped, it is gone.
#[derive(Debug)]
pub struct MarkSocket {
    path: PathBuf,
    last: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Sends a mark to the socket of a running recording. What is sent when the recorder does not keep up waits for it.
///
/// # Errors
/// When nobody listens there.
pub fn send_mark(socket: &Path, text: &str) -> io::Result<()> {
    let text = &text[..text.floor_char_boundary(MARK_LEN_MAX)];
    UnixDatagram::unbound()?.send_to(text.as_bytes(), socket).map(|_| ())
}

impl MarkSocket {
    pub(super) fn open(marks: Arc<Marks>) -> io::Result<Self> {
        let now = Moment::now().wall_ns;
        let directory = std::env::temp_dir().join(format!("gpuvitals-{}-{now}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&directory)?;
        let path = directory.join("mark");
        let last = Arc::<AtomicBool>::default();
        let opened = UnixDatagram::bind(&path).and_then(|socket| {
            let last = Arc::clone(&last);
            let listen = move || listen(&socket, &marks, &last);
            std::thread::Builder::new().name("marks".to_owned()).spawn(listen)
        });
        let mut socket = Self { path, last, thread: None };
        // On an error the half-made socket removes what there is of it.
        socket.thread = Some(opened?);
        Ok(socket)
    }

    /// Where to send marks.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for MarkSocket {
    fn drop(&mut self) {
        self.last.store(true, Ordering::Release);
        // Wakes the thread, which takes what was sent before and then ends.
        let woken = UnixDatagram::unbound().and_then(|socket| socket.send_to(&[], &self.path));
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            let _panicked = thread.join();
        }
        // What stays lies in the system's directory for such things.
        let _removed = std::fs::remove_file(&self.path);
        let _removed = self.path.parent().map(std::fs::remove_dir);
    }
}

fn listen(socket: &UnixDatagram, marks: &Marks, last: &AtomicBool) {
    let mut bytes = [0; MARK_LEN_MAX];
    loop {
        let len = match socket.recv(&mut bytes) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let text = String::from_utf8_lossy(bytes.get(..len).unwrap_or_default());
        let text = text.trim_end_matches(['\0', '\n', '\r']);
        if text.is_empty() {
            if last.load(Ordering::Acquire) {
                return;
            }
            continue;
        }
        if let Err(error) = marks.put(text, Moment::now()) {
            tracing::warn!(error = gpuvitals_core::causes(&error), "a mark is lost");
        }
    }
}
