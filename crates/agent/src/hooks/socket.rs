//! The socket on which hooks tell of jobs: for root and the agent's own user, a message a connection, none for long.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::clock::Moment;
use gpuvitals_sources::machine::{Machine, find_tool};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use super::fact::ToldJob;
use super::heard::Heard;
use super::jobs::Jobs;
use super::message::{HookMessage, JobHook, MESSAGE_LEN_MAX, TAKEN};
use super::outcome;
use crate::AgentSettings;

/// Hooks that are heard at once at most: a controller starts hundreds of jobs of an array at once.
const HEARD_MAX: usize = 256;
/// Longest time for a message, and for the answer to it: a hook waits no longer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause after a connection could not be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Bytes that are read at once.
const PIECE_LEN: usize = 4 << 10;
/// Who may read and write the socket's file and its lock: their owner alone. The system does not ask this of root.
const MODE: u32 = 0o600;

/// Why the agent cannot listen for hooks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// Another agent is there.
    #[error("{}: another process listens there; name another path, or off", path.display())]
    Taken {
        /// Where the socket was to be.
        path: PathBuf,
    },
    /// The system refuses.
    #[error("{}: failed to listen there; name a path whose folder this user may write, or off", path.display())]
    Listen {
        /// Where the socket was to be.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

/// Listens for hooks until it is dropped.
#[derive(Debug)]
pub(crate) struct HookSocket {
    path: PathBuf,
    _serving: AbortOnDropHandle<()>,
    _keeping: AbortOnDropHandle<()>,
    _asking: Option<AbortOnDropHandle<()>>,
    /// Held until the socket's file is gone, so that no other agent takes the path meanwhile.
    _lock: File,
}

impl HookSocket {
    /// By the settings; none if they want none. What is `auto` may be missing: that is said, and no more.
    ///
    /// # Errors
    /// When the agent cannot listen on the path that is set.
    pub(crate) fn open(
        settings: &AgentSettings,
        machine: &Machine,
        jobs: &Arc<Jobs>,
        runtime: &Handle,
    ) -> Result<Option<Self>, SocketError> {
        let Some(path) = settings.hook_socket(machine) else { return Ok(None) };
        match runtime.block_on(bind(&path)) {
            Ok((listener, lock)) => {
                tracing::info!(socket = %path.display(), "hooks of a batch system may tell of jobs");
                let serving = AbortOnDropHandle::new(runtime.spawn(serve(listener, Arc::clone(jobs))));
                let keeping = AbortOnDropHandle::new(runtime.spawn(keep(Arc::clone(jobs))));
                // Where Slurm is not installed nobody can be asked.
                let asking = find_tool(outcome::PROGRAM)
                    .map(|_| AbortOnDropHandle::new(runtime.spawn(outcome::ask(Arc::clone(jobs)))));
                Ok(Some(Self { path, _serving: serving, _keeping: keeping, _asking: asking, _lock: lock }))
            }
            Err(error) if settings.is_hook_socket_auto() => {
                tracing::warn!(error = gpuvitals_core::causes(&error), "no hook can tell of jobs");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl Drop for HookSocket {
    fn drop(&mut self) {
        // One that is left behind is taken away by the next agent.
        let _left = std::fs::remove_file(&self.path);
    }
}

/// Listens on a path, which nobody else does as long as its lock is held. What an agent that was killed has left there is taken away.
async fn bind(path: &Path) -> Result<(UnixListener, File), SocketError> {
    let failed = |source| SocketError::Listen { path: path.to_owned(), source };
    let taken = || SocketError::Taken { path: path.to_owned() };
    let lock = lock_of(path).map_err(failed)?;
    lock.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => taken(),
        TryLockError::Error(error) => failed(error),
    })?;
    if std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
        // Whoever knows no lock may listen there, too.
        match tokio::time::timeout(PATIENCE, UnixStream::connect(path)).await {
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => return Err(failed(error)),
            _ => return Err(taken()),
        }
        std::fs::remove_file(path).map_err(failed)?;
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(MODE)).map_err(failed)?;
    Ok((listener, lock))
}

/// The file beside a socket that is locked by whoever listens there. It stays: of one that is taken away two could hold the lock.
fn lock_of(path: &Path) -> io::Result<File> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    OpenOptions::new().write(true).create(true).truncate(false).mode(MODE).open(beside)
}

/// Hears hooks, several at once: of too many the one that has been silent for longest is let go, so that nobody keeps the place of others.
async fn serve(listener: UnixListener, jobs: Arc<Jobs>) {
    let mut heard: VecDeque<AbortOnDropHandle<()>> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                jobs.counts.note(Heard::Failed, &error.to_string());
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        heard.retain(|hearing| !hearing.is_finished());
        if heard.len() >= HEARD_MAX {
            heard.pop_front();
            jobs.counts.note(Heard::Late, "too many hooks tell at once, and this one was silent for longest");
        }
        let jobs = Arc::clone(&jobs);
        heard.push_back(AbortOnDropHandle::new(tokio::spawn(async move { answer(&stream, &jobs).await })));
    }
}

/// Keeps what is told for the next start, beside the hooks: none waits for a disk, and what many tell meanwhile is written once.
async fn keep(jobs: Arc<Jobs>) {
    loop {
        jobs.news.notified().await;
        let jobs = Arc::clone(&jobs);
        // It ends, or the process does.
        let _ended = tokio::task::spawn_blocking(move || jobs.keep()).await;
    }
}

/// Hears what one end of a connection tells, and answers. Whoever may not tell is sent away before anything is read.
async fn answer(stream: &UnixStream, jobs: &Jobs) {
    let own_uid = rustix::process::geteuid().as_raw();
    let uid = stream.peer_cred().map(|peer| peer.uid()).ok();
    let (heard, why) = if uid.is_some_and(|uid| may_tell(uid, own_uid)) {
        hear(stream, jobs).await
    } else {
        let who = uid.map_or_else(|| "a user that is not known".to_owned(), |uid| format!("uid {uid}"));
        (Heard::Stranger, format!("{who} may not tell of jobs: root and uid {own_uid} may"))
    };
    jobs.counts.note(heard, &why);
    let answer = if heard == Heard::Taken { TAKEN.to_owned() } else { format!("{why}\n") };
    // Nobody may listen any more.
    let _unheard = tokio::time::timeout(PATIENCE, tell(stream, answer.as_bytes())).await;
}

/// Whether a user may tell of jobs. A job's own user may not: by an epilog he would end what he is charged for.
fn may_tell(uid: u32, own_uid: u32) -> bool {
    uid == 0 || uid == own_uid
}

async fn hear(stream: &UnixStream, jobs: &Jobs) -> (Heard, String) {
    let bytes = match tokio::time::timeout(PATIENCE, read(stream)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) => return (Heard::Malformed, error.to_string()),
        Err(_) => return (Heard::Late, "the message did not come to its end".to_owned()),
    };
    let message = match HookMessage::read(&bytes) {
        Ok(message) => message,
        Err(error) => return (Heard::Malformed, error.to_string()),
    };
    let Some(told) = ToldJob::of(&message) else {
        return (Heard::Malformed, "SLURM_JOB_ID is no number of a job".to_owned());
    };
    let is_controllers = told.hook == JobHook::Controller;
    if jobs.hear(told, Moment::now()) {
        jobs.news.notify_one();
        if is_controllers {
            jobs.controlled.notify_one();
        }
        (Heard::Taken, String::new())
    } else {
        (Heard::Full, "too many jobs are known, and all run".to_owned())
    }
}

/// All that the other end sends, if that is not too long.
async fn read(stream: &UnixStream) -> io::Result<Vec<u8>> {
    let (mut bytes, mut piece) = (Vec::new(), vec![0; PIECE_LEN]);
    loop {
        stream.readable().await?;
        let len = match stream.try_read(&mut piece) {
            Ok(0) => return Ok(bytes),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        if bytes.len() + len > MESSAGE_LEN_MAX {
            let why = format!("the message is longer than {MESSAGE_LEN_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        bytes.extend_from_slice(piece.get(..len).unwrap_or_default());
    }
}

/// Sends an answer, which fits into what the system holds for a connection.
async fn tell(stream: &UnixStream, answer: &[u8]) -> io::Result<()> {
    loop {
        stream.writable().await?;
        match stream.try_write(answer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            sent => return sent.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_path_is_one_agents_as_long_as_it_holds_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.sock");
        let is_taken = async || matches!(bind(&path).await, Err(SocketError::Taken { .. }));
        let (listener, lock) = bind(&path).await.unwrap();
        let mode = std::fs::metadata(folder.path().join("agent.sock.lock")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        drop(listener);
        assert!(is_taken().await, "it still has the lock");
        drop(lock);
        let (listener, lock) = bind(&path).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(is_taken().await, "a file that is gone gives no path away");
        drop((listener, lock));
        let _without_lock = UnixListener::bind(&path).unwrap();
        assert!(is_taken().await, "another program listens");
    }

    #[test]
    fn root_and_the_agents_own_user_may_tell_and_nobody_else() {
        for (uid, own_uid, may) in [(0, 990, true), (990, 990, true), (1000, 990, false), (1000, 0, false)] {
            assert_eq!(may_tell(uid, own_uid), may, "{uid} {own_uid}");
        }
    }
}
