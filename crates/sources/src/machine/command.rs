//! A vendor's tool is run: without a shell, with an end to its time and to its output.

use std::ffi::OsStr;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gpuvitals_core::clock::Moment;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Access;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};

use super::tool::{Tool, ToolError, ToolOutput};

/// [`Tool::patience`] on this machine.
const PATIENCE: Duration = Duration::from_secs(29);
/// Most output that is read on this machine: nvidia-smi gives some 20 KiB for 16 GPUs, rocm-smi 200 KiB for 64 partitions.
const OUTPUT_LEN_MAX: usize = 4 << 20;
/// Bytes of standard error that are kept.
const STDERR_LEN_MAX: usize = 64 << 10;
/// Size of one read: a pipe's usual capacity.
const CHUNK_LEN: usize = 64 << 10;
/// Reads in a row from one pipe, before the clock is looked at again.
const READS_MAX: usize = 16;
/// Polling interval if the kernel cannot report an exit (`pidfd_open` came with 5.3).
const ASK_NS: i64 = 10_000_000;

/// A program of this machine, by its path, or by a name on `PATH`.
#[derive(Debug, Clone)]
pub struct LocalTool(pub PathBuf);

impl Tool for LocalTool {
    fn run(&self, args: &[&str], deadline: Duration) -> Result<ToolOutput, ToolError> {
        run_tool(&self.0, args, deadline, OUTPUT_LEN_MAX)
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }
}

/// The path of a program: a name is searched in the absolute folders of `PATH`, a path is taken unchanged.
/// None if nothing executable is found.
pub fn find_tool(program: impl AsRef<OsStr>) -> Option<PathBuf> {
    let program = program.as_ref();
    let is_executable = |path: &PathBuf| path.is_file() && rustix::fs::access(path, Access::EXEC_OK).is_ok();
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(is_executable);
    }
    std::env::split_paths(&std::env::var_os("PATH")?)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(program))
        .find(is_executable)
}

/// Runs a program to its end, with empty standard input, in the C locale, in a process group of its own. At
/// the deadline the whole group is killed; so are the processes it leaves behind when it ends. Returns only
/// when it is reaped: one that the kernel cannot kill, since it waits for a sick device, blocks the caller,
/// and no second one is started after it.
///
/// # Errors
/// If it cannot be found or started, or does not end in time.
fn run_tool(
    program: impl AsRef<OsStr>,
    args: &[impl AsRef<OsStr>],
    deadline: Duration,
    output_max: usize,
) -> Result<ToolOutput, ToolError> {
    let program = program.as_ref();
    let name = || program.display().to_string();
    let path = find_tool(program).ok_or_else(|| ToolError::NotInstalled { program: name() })?;
    let until_ns =
        Moment::now().mono_ns.saturating_add(i64::try_from(deadline.as_nanos()).unwrap_or(i64::MAX));
    let mut running = Running::start(&path, args, output_max)
        .map_err(|source| ToolError::Start { program: path.display().to_string(), source })?;
    let is_over = running.follow(until_ns).map_err(|source| ToolError::Read { program: name(), source })?;
    if !is_over {
        return Err(ToolError::TimedOut { program: name(), deadline });
    }
    running.finish().map_err(|source| ToolError::Read { program: name(), source })
}

/// A process group that is killed and reaped when this is dropped.
struct Running {
    child: Child,
    exit: Option<OwnedFd>,
    stdout: Capture,
    stderr: Capture,
}

impl Running {
    fn start(path: &Path, args: &[impl AsRef<OsStr>], output_max: usize) -> io::Result<Self> {
        let (stdout, stdout_end) = Capture::open(output_max)?;
        let (stderr, stderr_end) = Capture::open(STDERR_LEN_MAX)?;
        let child = Command::new(path)
            .args(args)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(stdout_end)
            .stderr(stderr_end)
            .process_group(0)
            .spawn()?;
        let exit = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok();
        Ok(Self { child, exit, stdout, stderr })
    }

    /// Reads its output until it ends; false if it has not by then.
    fn follow(&mut self, until_ns: i64) -> io::Result<bool> {
        let mut chunk = vec![0; CHUNK_LEN];
        loop {
            let has_ended = self.has_ended()?;
            if has_ended {
                // Before the last look, so that children it left cannot go on talking.
                self.kill();
            }
            self.stdout.take_in(&mut chunk)?;
            self.stderr.take_in(&mut chunk)?;
            if has_ended {
                return Ok(true);
            }
            let left_ns = until_ns.saturating_sub(Moment::now().mono_ns);
            if left_ns <= 0 {
                return Ok(false);
            }
            self.wait(left_ns)?;
        }
    }

    /// Waits until it prints something or ends, at most for this long.
    fn wait(&self, left_ns: i64) -> io::Result<()> {
        let wait_ns = if self.exit.is_some() { left_ns } else { left_ns.min(ASK_NS) };
        let timeout = Timespec { tv_sec: wait_ns / 1_000_000_000, tv_nsec: wait_ns % 1_000_000_000 };
        let pipes = [&self.stdout.pipe, &self.stderr.pipe].into_iter().flatten().map(AsFd::as_fd);
        let fds = pipes.chain(self.exit.iter().map(AsFd::as_fd));
        let mut polled: Vec<PollFd<'_>> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether it has ended. It is not reaped by the question, so that its group keeps its number.
    fn has_ended(&self) -> io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match rustix::process::waitid(WaitId::Pid(Pid::from_child(&self.child)), options) {
            Ok(status) => Ok(status.is_some()),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn finish(mut self) -> io::Result<ToolOutput> {
        Ok(ToolOutput {
            code: self.child.wait()?.code(),
            stdout: std::mem::take(&mut self.stdout.kept),
            stderr: std::mem::take(&mut self.stderr.kept),
        })
    }

    fn kill(&self) {
        // Only a process with other rights (setuid) cannot be killed, and ends by itself.
        let _reached = rustix::process::kill_process_group(Pid::from_child(&self.child), Signal::KILL);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill();
        }
        let _reaped = self.child.wait();
    }
}

/// One pipe's output, up to a length.
struct Capture {
    /// None when the other end is closed.
    pipe: Option<PipeReader>,
    kept: Vec<u8>,
    len_max: usize,
}

impl Capture {
    /// With the end that the tool writes to.
    fn open(len_max: usize) -> io::Result<(Self, PipeWriter)> {
        let (reader, writer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&reader, true)?;
        Ok((Self { pipe: Some(reader), kept: Vec::new(), len_max }, writer))
    }

    /// Reads the available output, without waiting for more.
    fn take_in(&mut self, chunk: &mut [u8]) -> io::Result<()> {
        for _ in 0..READS_MAX {
            let Some(pipe) = &self.pipe else { return Ok(()) };
            match rustix::io::read(pipe, &mut *chunk) {
                Ok(0) => self.pipe = None,
                Ok(len) => {
                    let room = self.len_max.saturating_sub(self.kept.len()).min(len);
                    self.kept.extend_from_slice(chunk.get(..room).unwrap_or_default());
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::ProbeError;

    const LONG: Duration = Duration::from_secs(20);

    fn sh(script: &str, deadline: Duration, output_max: usize) -> Result<ToolOutput, ToolError> {
        run_tool("sh", &["-c", script], deadline, output_max)
    }

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn output_and_exit_code_both_count() {
        let said = sh("echo $LC_ALL; echo warning >&2; cat; exit 2", LONG, 100).unwrap();
        assert_eq!(said.code, Some(2));
        assert_eq!((text(&said.stdout), text(&said.stderr)), ("C\n", "warning\n"));
    }

    #[test]
    fn an_argument_is_no_script() {
        let said = run_tool("echo", &["$HOME; `id`"], LONG, 100).unwrap();
        assert_eq!(text(&said.stdout), "$HOME; `id`\n");
    }

    #[test]
    fn a_tool_that_hangs_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        let script = format!("sleep 1000 & echo $! $$ > {}; wait", pids.display());
        let before = Moment::now().mono_ns;
        let error = sh(&script, Duration::from_secs(1), 100).unwrap_err();
        let took = Moment::now().mono_ns - before;
        assert!(matches!(&error, ToolError::TimedOut { .. }), "{error}");
        assert!((1_000_000_000..10_000_000_000).contains(&took), "{took} ns");
        for pid in std::fs::read_to_string(&pids).unwrap().split_whitespace() {
            assert!(is_gone(pid), "{pid} lives");
        }
    }

    #[test]
    fn what_a_tool_leaves_behind_neither_delays_its_answer_nor_lives_on() {
        let before = Moment::now().mono_ns;
        let said = sh("sleep 1000 & echo $!", LONG, 100).unwrap();
        assert!(Moment::now().mono_ns - before < 10_000_000_000);
        assert!(is_gone(text(&said.stdout).trim()));
    }

    /// Killed, and at most not yet reaped by init.
    fn is_gone(pid: &str) -> bool {
        let until_ns = Moment::now().mono_ns + 5_000_000_000;
        loop {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            if stat.is_empty() || stat.contains(") Z") {
                return true;
            }
            if Moment::now().mono_ns > until_ns {
                return false;
            }
            rustix::thread::sched_yield();
        }
    }

    #[test]
    fn output_beyond_its_bound_is_not_kept() {
        let script = "head -c 300000 /dev/zero; head -c 100000 /dev/zero >&2";
        let said = sh(script, LONG, 1000).unwrap();
        assert_eq!((said.stdout.len(), said.stderr.len()), (1000, STDERR_LEN_MAX));
        assert!(matches!(sh("yes", Duration::from_millis(200), 10), Err(ToolError::TimedOut { .. })));
    }

    #[test]
    fn a_program_that_is_missing_is_told_from_one_that_does_not_start() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("nvidia-smi");
        let error = run_tool(&missing, &[""; 0], LONG, 10).unwrap_err();
        assert!(matches!(ProbeError::from(error), ProbeError::Gone(_)));
        std::fs::write(&missing, "not executable").unwrap();
        assert_eq!(find_tool(&missing), None);
        assert_eq!(find_tool("no-such-tool-anywhere"), None);
        assert!(find_tool("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(find_tool(dir.path()), None, "a folder is no program");
    }

    #[test]
    fn a_tool_killed_by_a_signal_has_no_exit_code() {
        let said = sh("echo partly; kill -ABRT $$", LONG, 100).unwrap();
        assert_eq!((said.code, text(&said.stdout)), (None, "partly\n"));
    }
}
