//! Where the kernel's lines come from.

use std::io;
use std::time::Duration;

use gpuvitals_core::clock::Moment;

use super::journal::JournalLog;
use super::kmsg::Kmsg;
use super::limit::LineLimit;
use super::line::KernelLine;
use super::pattern::line_of;
use crate::machine::Machine;

/// The kernel's lines about GPUs and what they need, from now on.
#[derive(Debug)]
pub struct KernelLog {
    source: LineSource,
    limit: LineLimit,
    limited: u64,
}

#[derive(Debug)]
enum LineSource {
    Kmsg(Kmsg),
    Journal(JournalLog),
}

impl KernelLog {
    /// Of a machine. It may wait for some seconds until the journal has answered, as long as it is wanted.
    ///
    /// # Errors
    /// Why there is none, and what gives one.
    pub fn open(machine: &Machine, is_wanted: &dyn Fn() -> bool) -> Result<Self, String> {
        let path = machine.dev.join("kmsg");
        let of = |source| Self { source, limit: LineLimit::default(), limited: 0 };
        let why = match Kmsg::open(&path) {
            Ok(kmsg) => return Ok(of(LineSource::Kmsg(kmsg))),
            Err(error) => format!("{} cannot be read ({error}), which CAP_SYSLOG allows", path.display()),
        };
        if machine.is_captured() {
            return Err(why);
        }
        JournalLog::open(is_wanted)
            .map(|journal| of(LineSource::Journal(journal)))
            .map_err(|other| format!("{why}; {other}"))
    }

    /// Its name: `kmsg` or `journal`.
    pub fn name(&self) -> &'static str {
        match self.source {
            LineSource::Kmsg(_) => "kmsg",
            LineSource::Journal(_) => "journal",
        }
    }

    /// The next line, if one comes within this time that is about GPUs or what they need.
    ///
    /// # Errors
    /// If no line can come any more.
    pub fn next(&mut self, patience: Duration) -> io::Result<Option<KernelLine>> {
        let record = match &mut self.source {
            LineSource::Kmsg(kmsg) => kmsg.next(patience)?,
            LineSource::Journal(journal) => journal.next(patience)?,
        };
        let now = Moment::now();
        let Some(line) = record.and_then(|record| line_of(record, now.wall_ns)) else { return Ok(None) };
        if self.limit.admits(line.device.as_deref(), now.mono_ns) {
            return Ok(Some(line));
        }
        self.limited += 1;
        Ok(None)
    }

    /// Lines that are missing: overwritten before they were read, or too many of a device at once.
    pub fn lost(&self) -> u64 {
        let overwritten = match &self.source {
            LineSource::Kmsg(kmsg) => kmsg.lost(),
            LineSource::Journal(_) => 0,
        };
        overwritten.saturating_add(self.limited)
    }
}
