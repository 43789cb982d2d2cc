//! The GPUs that are recorded with a program: those that its environment names, and, where that does not say which they are, those
//! that it opens. The environment is our own: a command has it from us, and a process that starts its recorder gives it to us.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gpuvitals_record::RecordSummary;
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::processes::ProcessTable;
use gpuvitals_sources::registry::Discovery;
use gpuvitals_sources::visible::{VisibleKept, VisibleOutcome, VisibleVariables};

use super::words::tell;

/// Time from the start to the first look at the processes, and between two.
const LOOK: Duration = Duration::from_secs(1);
/// Most generations between a process and the program.
const GENERATIONS_MAX: usize = 64;

/// Tables of processes that tell which GPUs a program opens; none where that need not be found out.
#[derive(Default)]
pub(super) struct OpenedTables {
    tables: Vec<Box<dyn ProcessTable>>,
    procfs: PathBuf,
    /// Whether the GPUs that are recorded are those of a program.
    are_known: bool,
    /// Which GPUs are recorded, and why.
    chosen: String,
}

/// Leaves the GPUs that the environment names, and says so.
pub(super) fn narrow(found: &mut Discovery, machine: &Machine) -> OpenedTables {
    let outcomes = VisibleVariables::of(|name| std::env::var_os(name)).narrow(found, machine);
    outcomes.iter().filter_map(told).for_each(|text| tell(&text));
    let is_unclear = outcomes.iter().any(|outcome| matches!(outcome.kept, VisibleKept::Unclear(_)));
    let tables = found.processes.iter().filter(|_| is_unclear);
    OpenedTables {
        tables: tables.map(|table| table.another()).collect(),
        procfs: machine.procfs.clone(),
        are_known: !is_unclear,
        chosen: chosen(&outcomes),
    }
}

/// Which GPUs are recorded by the environment, for the files.
fn chosen(outcomes: &[VisibleOutcome]) -> String {
    let words = outcomes.iter().map(|VisibleOutcome { variables, kept }| match kept {
        VisibleKept::Counted(kept, all) => format!("{kept} of {all} by {variables}"),
        VisibleKept::Later => format!("those that {variables} names"),
        VisibleKept::Unclear(why) => format!("all in spite of {variables}, because {why}"),
    });
    let words: Vec<String> = words.collect();
    if words.is_empty() { "all: the environment names none".to_owned() } else { words.join("; ") }
}

fn told(outcome: &VisibleOutcome) -> Option<String> {
    let variables = &outcome.variables;
    Some(match outcome.kept {
        VisibleKept::Counted(kept, all) if kept == all => return None,
        VisibleKept::Counted(0, all) => {
            format!("{variables} names no GPU, and none is recorded; --all-gpus records all {all}")
        }
        VisibleKept::Counted(kept, all) => {
            format!("{variables}: {kept} of {all} GPUs are recorded; --all-gpus records all")
        }
        VisibleKept::Later => {
            format!("{variables}: the GPUs that it names are recorded; --all-gpus records all")
        }
        VisibleKept::Unclear(why) => {
            format!(
                "{variables}: all GPUs are recorded, because {why}; the summary has those that the program opens"
            )
        }
    })
}

/// The GPUs that a program and the processes it starts have opened so far.
#[derive(Debug)]
pub(super) struct OpenedGpus {
    keys: Arc<Mutex<BTreeSet<Arc<str>>>>,
    /// Dropped, it ends the looks.
    _looking: SyncSender<()>,
}

impl OpenedTables {
    /// All GPUs are recorded, for this reason.
    pub(super) fn of_all(why: &str) -> Self {
        Self { chosen: format!("all: {why}"), ..Self::default() }
    }

    /// Which GPUs are recorded, and why.
    pub(super) fn chosen(&self) -> &str {
        &self.chosen
    }

    /// Whether the GPUs that are recorded are those that a program may use, and no others.
    pub(super) fn are_known(&self) -> bool {
        self.are_known
    }

    /// Looks from now on; none without a table, or if there is no thread for it.
    pub(super) fn watch(self, program: u32) -> Option<OpenedGpus> {
        if self.tables.is_empty() {
            return None;
        }
        let keys = Arc::<Mutex<BTreeSet<Arc<str>>>>::default();
        let (looking, ended) = sync_channel(0);
        let seen = Arc::clone(&keys);
        // Nobody waits for it: a driver that hangs holds up no end.
        let thread = std::thread::Builder::new().name("opened".to_owned());
        thread.spawn(move || self.look(program, &seen, &ended)).ok()?;
        Some(OpenedGpus { keys, _looking: looking })
    }

    fn look(mut self, program: u32, seen: &Mutex<BTreeSet<Arc<str>>>, ended: &Receiver<()>) {
        // A program that starts its recorder does not open what that reads.
        let own = std::process::id();
        while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            // One that cannot be read now may be later, and without any the summary has all.
            let lists = self.tables.iter_mut().filter_map(|table| table.read().ok());
            let processes = lists.flat_map(|list| list.processes);
            let opened =
                processes.filter(|process| process.pid != own && is_of(program, process.pid, &self.procfs));
            let opened: Vec<Arc<str>> = opened.filter_map(|process| process.gpu.key()).collect();
            seen.lock().unwrap_or_else(PoisonError::into_inner).extend(opened);
        }
    }
}

impl OpenedGpus {
    /// Leaves those in a summary, if there are any. Says how many that are.
    pub(super) fn narrow(&self, summary: &mut RecordSummary) {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let is_opened = |id: &str| keys.iter().any(|key| **key == *id);
        let (all, opened) =
            (summary.gpus.len(), summary.gpus.iter().filter(|gpu| is_opened(&gpu.summary.id)).count());
        if opened == 0 {
            tell("the list of processes does not say which GPUs the program opened: the summary has all");
            return;
        }
        summary.gpus.retain(|gpu| is_opened(&gpu.summary.id));
        tell(&format!(
            "the summary has the {opened} of {all} GPUs that the program opened; the files have all"
        ));
    }
}

/// Whether a process is a program or one that it started.
fn is_of(program: u32, mut process: u32, procfs: &Path) -> bool {
    for _ in 0..GENERATIONS_MAX {
        if process == program {
            return true;
        }
        match parent(process, procfs) {
            Some(parent) => process = parent,
            None => return false,
        }
    }
    false
}

/// Field 4 of `/proc/PID/stat`; the name before it may have blanks and parentheses.
fn parent(process: u32, procfs: &Path) -> Option<u32> {
    let stat = std::fs::read_to_string(procfs.join(format!("{process}/stat"))).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_of_the_program_that_started_one_of_its_ancestors() {
        let procfs = tempfile::tempdir().unwrap();
        for (process, name, parent) in
            [(1, "init", 0), (10, "gpuvitals", 1), (20, "sh", 10), (30, "a) R 1 (b", 20), (40, "other", 1)]
        {
            let folder = procfs.path().join(process.to_string());
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("stat"), format!("{process} ({name}) S {parent} 7 7 0")).unwrap();
        }
        let is_of = |process| is_of(20, process, procfs.path());
        assert_eq!([20, 30, 40, 10, 1, 99].map(is_of), [true, true, false, false, false, false]);
    }
}
