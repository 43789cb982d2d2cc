//! What hooks told of the jobs that run, kept in a file: an agent that starts again knows which job has which GPUs.
//!
//! The file has the boot that it is of, then for each job since when it runs and the message that would tell of it: `BOOT=ID`,
//! `SINCE=NANOSECONDS`, `HOOK=prolog`, `SLURM_JOB_ID=4711` and so on, each ended by a zero byte, and one more after the last of each part.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use gpuvitals_core::causes;
use gpuvitals_log::{Fresh, make_directory, open_file, state_directory};

use super::fact::ToldJob;
use super::message::{HookMessage, JobHook};

/// Name of the directory below the one that the system gives.
const NAME: &str = "jobs";
/// The file in it.
const FILE: &str = "told";
/// Most bytes of it that are read; no agent writes so many.
const LEN_MAX: u64 = 64 << 20;

/// The file of the jobs that run.
#[derive(Debug)]
pub(crate) struct KeptJobs {
    path: PathBuf,
    /// What the kernel calls this boot.
    boot: String,
    /// Whether the last writing succeeded. Who holds it writes.
    works: Mutex<bool>,
}

/// A job that runs, and since when, nanoseconds UTC since 1970.
pub(crate) type KeptJob = (ToldJob, i64);

impl KeptJobs {
    /// In the directory that the system gives; none where it gives none.
    pub(crate) fn below(given: &OsStr) -> Option<Self> {
        Some(Self::of_boot(&state_directory(given, NAME)?, gpuvitals_flight::boot_id()))
    }

    pub(super) fn of_boot(directory: &Path, boot: String) -> Self {
        Self { path: directory.join(FILE), boot, works: Mutex::new(true) }
    }

    /// The jobs that ran when they were last written. Of those whose prolog was of an earlier boot none runs any more.
    pub(super) fn read(&self) -> Vec<KeptJob> {
        let text = match self.text() {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => {
                let file = self.path.display();
                tracing::warn!(%file, error = causes(&error), "the jobs that run are not known");
                return Vec::new();
            }
        };
        let (boot, jobs) = text.split_once("\0\0").unwrap_or_default();
        // Where the kernel does not name its boots, two are not the same.
        let is_this_boot = !self.boot.is_empty() && boot.strip_prefix("BOOT=") == Some(self.boot.as_str());
        let jobs = jobs.split_terminator("\0\0").filter_map(job);
        jobs.filter(|(told, _)| is_this_boot || told.hook == JobHook::Controller).collect()
    }

    fn text(&self) -> io::Result<String> {
        let mut text = String::new();
        open_file(&self.path)?.take(LEN_MAX).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Writes what is new, whole and synced: `news` gives the jobs that run, or none if nothing has changed.
    pub(super) fn write(&self, news: impl FnOnce() -> Option<Vec<KeptJob>>) {
        let mut works = self.works.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(jobs) = news() else { return };
        let outcome = self.put(&jobs);
        // Once, and not with each job.
        if let (Err(error), true) = (&outcome, *works) {
            let file = self.path.display();
            tracing::warn!(%file, %error, "an agent that starts again will not know the jobs that run");
        }
        *works = outcome.is_ok();
    }

    fn put(&self, jobs: &[KeptJob]) -> io::Result<()> {
        let mut text = format!("BOOT={}\0\0", self.boot);
        for (told, since_ns) in jobs {
            if let Some(message) = told.message() {
                let _infallible = write!(text, "SINCE={since_ns}\0{}\0", message.text());
            }
        }
        self.path.parent().map_or(Ok(()), make_directory)?;
        let fresh = Fresh::create_private(&self.path, self.path.with_extension("tmp"))?;
        fresh.file().write_all(text.as_bytes())?;
        fresh.put().map(drop)
    }
}

/// Of its part of the file; none if that is no job that runs.
fn job(part: &str) -> Option<KeptJob> {
    let (since, message) = part.split_once('\0')?;
    let since_ns = since.strip_prefix("SINCE=")?.parse().ok()?;
    let message = HookMessage::read(format!("{message}\0").as_bytes()).ok()?;
    let told = ToldJob::of(&message).filter(|told| !told.is_over)?;
    Some((told, since_ns))
}
