//! The kernel's lines by the journal, where `/dev/kmsg` may not be read: `journalctl`, which runs as long as they are followed.

use std::io::{self, PipeReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gpuvitals_core::clock::Moment;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use serde_json::Value;

use super::record::{KernelRecord, clean};
use crate::machine::find_tool;

/// Where it is.
const PROGRAMS: [&str; 2] = ["/usr/bin/journalctl", "/bin/journalctl"];
/// All fields, one line each; the last line of this boot first, which proves that this user may read them: `journalctl` says nothing to
/// one who may not, and waits.
const ARGUMENTS: [&str; 6] = ["--dmesg", "--follow", "--output=json", "--lines=1", "--all", "--quiet"];
/// How long that first line may take.
const PROOF: Duration = Duration::from_secs(5);
/// Between two looks at whether anybody still waits for it.
const LOOK: Duration = Duration::from_millis(250);
/// Longest line that is read.
const LINE_LEN_MAX: usize = 64 << 10;
const CHUNK_LEN: usize = 16 << 10;

/// The kernel's lines from now on. The program is ended when this is dropped.
#[derive(Debug)]
pub(super) struct JournalLog {
    child: Child,
    pipe: PipeReader,
    chunk: Vec<u8>,
    /// What has come and was not taken; a line that is too long is left out as it comes.
    pending: Vec<u8>,
    is_too_long: bool,
}

impl JournalLog {
    /// Follows it, if it answers while it is wanted.
    ///
    /// # Errors
    /// Why it cannot be followed, as a sentence without its full stop.
    pub(super) fn open(is_wanted: &dyn Fn() -> bool) -> Result<Self, String> {
        let program = PROGRAMS.iter().find_map(find_tool).ok_or("journalctl is not installed")?;
        Self::run(&program, PROOF, is_wanted)
    }

    fn run(program: &Path, proof: Duration, is_wanted: &dyn Fn() -> bool) -> Result<Self, String> {
        let name = program.display();
        let mut journal =
            Self::start(program).map_err(|error| format!("{name} cannot be started: {error}"))?;
        let patience_ns = i64::try_from(proof.as_nanos()).unwrap_or(i64::MAX);
        let until_ns = Moment::now().mono_ns.saturating_add(patience_ns);
        loop {
            let left_ns = until_ns.saturating_sub(Moment::now().mono_ns);
            let left = Duration::from_nanos(u64::try_from(left_ns).unwrap_or(0));
            match journal.line(left.min(LOOK)) {
                Ok(Some(_)) => return Ok(journal),
                Ok(None) if !left.is_zero() && is_wanted() => {}
                Ok(None) | Err(_) => {
                    return Err(format!(
                        "{name} shows no line of the kernel: this user is perhaps not in the group systemd-journal"
                    ));
                }
            }
        }
    }

    fn start(program: &Path) -> io::Result<Self> {
        let (pipe, end) = io::pipe()?;
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let child = Command::new(program)
            .args(ARGUMENTS)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(end)
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let (chunk, pending) = (vec![0; CHUNK_LEN], Vec::new());
        Ok(Self { child, pipe, chunk, pending, is_too_long: false })
    }

    /// The next line of the kernel, if one comes within this time.
    ///
    /// # Errors
    /// If `journalctl` has ended.
    pub(super) fn next(&mut self, patience: Duration) -> io::Result<Option<KernelRecord>> {
        Ok(self.line(patience)?.and_then(|line| record_of(&line)))
    }

    /// The next line of the program, if one comes within this time.
    fn line(&mut self, patience: Duration) -> io::Result<Option<Vec<u8>>> {
        if let Some(line) = self.take_line() {
            return Ok(Some(line));
        }
        match rustix::io::read(&self.pipe, self.chunk.as_mut_slice()) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => self.pending.extend_from_slice(self.chunk.get(..len).unwrap_or_default()),
            Err(Errno::AGAIN) => self.wait(patience)?,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.take_line())
    }

    fn take_line(&mut self) -> Option<Vec<u8>> {
        while let Some(end) = memchr::memchr(b'\n', &self.pending) {
            let rest = self.pending.split_off(end + 1);
            let line = std::mem::replace(&mut self.pending, rest);
            if !std::mem::take(&mut self.is_too_long) {
                return Some(line);
            }
        }
        if self.pending.len() > LINE_LEN_MAX {
            self.pending.clear();
            self.is_too_long = true;
        }
        None
    }

    fn wait(&self, patience: Duration) -> io::Result<()> {
        let timeout = Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: patience.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for JournalLog {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _reached = rustix::process::kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
        let _reaped = self.child.wait();
    }
}

/// A line of `journalctl` as a record; none if it is not of the kernel's log.
fn record_of(line: &[u8]) -> Option<KernelRecord> {
    let entry: Value = serde_json::from_slice(line).ok()?;
    let text = |name: &str| entry.get(name).and_then(Value::as_str);
    if text("_TRANSPORT") != Some("kernel") {
        return None;
    }
    // Without the field it is the kernel's own.
    let facility = text("SYSLOG_FACILITY").map_or(Some(0), |facility| facility.parse().ok())?;
    let message = match entry.get("MESSAGE")? {
        Value::String(text) => text.as_bytes().to_vec(),
        // What is no UTF-8 is a list of bytes.
        Value::Array(bytes) => {
            bytes.iter().map(|byte| u8::try_from(byte.as_u64()?).ok()).collect::<Option<Vec<u8>>>()?
        }
        _ => return None,
    };
    let device = text("_KERNEL_DEVICE").and_then(|device| device.strip_prefix("+pci:"));
    let device = device.map(|device| clean(device.as_bytes()));
    Some(KernelRecord { facility, sequence: None, text: clean(&message), device })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    /// A journalctl that does this.
    fn program(folder: &Path, script: &str) -> PathBuf {
        let path = folder.join("journalctl");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        path
    }

    #[test]
    fn the_first_line_is_proof_and_the_others_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let script = r#"echo '{"old":1}'; head -c 200000 /dev/zero | tr '\0' x; echo
echo '{"_TRANSPORT":"kernel","SYSLOG_FACILITY":"0","MESSAGE":"NVRM: a","_KERNEL_DEVICE":"+pci:0000:3b:00.0"}'
exec sleep 1000"#;
        let mut journal =
            JournalLog::run(&program(folder.path(), script), Duration::from_secs(20), &|| true).unwrap();
        let mut reads = std::iter::from_fn(|| Some(journal.next(Duration::from_secs(20)).unwrap()));
        let record = reads.by_ref().take(1_000).flatten().next().unwrap();
        assert_eq!((record.facility, record.text.as_str()), (0, "NVRM: a"));
        assert_eq!(record.device.as_deref(), Some("0000:3b:00.0"));
    }

    #[test]
    fn a_user_who_sees_nothing_is_told_why() {
        let folder = tempfile::tempdir().unwrap();
        for script in ["exec sleep 1000", "exit 1"] {
            let program = program(folder.path(), script);
            let why = JournalLog::run(&program, Duration::from_millis(200), &|| true).unwrap_err();
            assert!(why.contains("systemd-journal"), "{script}: {why}");
        }
    }

    #[test]
    fn nobody_waits_for_an_answer_that_is_not_wanted_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let program = program(folder.path(), "exec sleep 1000");
        let began_ns = Moment::now().mono_ns;
        assert!(JournalLog::run(&program, Duration::from_hours(1), &|| false).is_err());
        assert!(Moment::now().mono_ns - began_ns < 60_000_000_000);
    }

    #[test]
    fn only_the_kernels_own_transport_counts() {
        let text = |line: &str| record_of(line.as_bytes()).map(|record| (record.facility, record.text));
        let said = |facility, text: &str| Some((facility, text.to_owned()));
        assert_eq!(text(r#"{"_TRANSPORT":"kernel","MESSAGE":"a\nb\u001b[31m"}"#), said(0, "a b [31m"));
        assert_eq!(text(r#"{"_TRANSPORT":"kernel","SYSLOG_FACILITY":"1","MESSAGE":"a"}"#), said(1, "a"));
        assert_eq!(text(r#"{"_TRANSPORT":"kernel","MESSAGE":[97,255]}"#), said(0, "a\u{fffd}"));
        for line in [
            r#"{"_TRANSPORT":"syslog","SYSLOG_FACILITY":"0","MESSAGE":"a"}"#,
            r#"{"_TRANSPORT":"kernel","SYSLOG_FACILITY":"x","MESSAGE":"a"}"#,
            r#"{"_TRANSPORT":"kernel","MESSAGE":[97,256]}"#,
            r#"{"_TRANSPORT":"kernel","MESSAGE":null}"#,
            r#"{"_TRANSPORT":"kernel"}"#,
            "[[[[",
        ] {
            assert_eq!(text(line), None, "{line}");
        }
    }
}
