//! Settings before a lock, saved so that they can be restored if the holder is killed.
//!
//! A file for each GPU: `/run/gpuvitals/clocks/<gpu>.json` for root, `$XDG_RUNTIME_DIR/gpuvitals/clocks/…`
//! for others, below `$RUNTIME_DIRECTORY` if a service manager sets it. Its holder keeps it locked (`flock`),
//! so a file that can be locked and still has steps was left by a killed holder. It identifies the GPU by its
//! key and the steps by the names of files, never by the number of a card, which may change when a driver is
//! reloaded. All of these places are empty after a boot, as the clocks are unlocked. A captured tree has its
//! own files: its GPUs may have the same names as those of this machine.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;

use gpuvitals_sources::machine::Machine;
use serde::{Deserialize, Serialize};

use crate::control::{ClockStep, Plan};

/// Longest journal that is read; one of ours has some hundred bytes.
const LEN_MAX: u64 = 64 << 10;
/// How often a file is opened that others remove meanwhile.
const TRIES: usize = 16;

/// Another process holds the clocks of the GPU with this key.
#[derive(Debug, thiserror::Error)]
#[error("{0}: another gpuvitals holds its clocks; wait for it, or end it")]
pub struct ClocksBusy(pub String);

/// The journal of a GPU's clocks. One that cannot be written keeps nobody from setting them: it tells so.
#[derive(Debug)]
pub struct ClockJournal {
    /// None where there is no place for it.
    file: Option<(File, PathBuf)>,
    before: Noted,
    noted: Noted,
    tell: fn(&str),
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Noted {
    /// Steps back from the lock that is held while a command runs.
    running: Vec<ClockStep>,
    /// Steps back from the lock that is kept until a reset.
    kept: Vec<ClockStep>,
}

impl ClockJournal {
    /// Opens the journal of the GPU with this key, for this process alone. `tell` hears what cannot be saved.
    ///
    /// # Errors
    /// When another process holds the GPU's clocks.
    pub fn open(key: &str, machine: &Machine, tell: fn(&str)) -> Result<Self, ClocksBusy> {
        for _ in 0..TRIES {
            let Some((mut file, path)) = file_of(key, machine) else { break };
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => return Err(ClocksBusy(key.to_owned())),
                // A file system without locks: two holders are merely not kept apart.
                Ok(()) | Err(TryLockError::Error(_)) => {}
            }
            // The holder before this one may have removed the file since it was opened.
            if file.metadata().is_ok_and(|meta| meta.nlink() > 0) {
                let noted = Noted::read(&mut file);
                return Ok(Self { file: Some((file, path)), before: noted.clone(), noted, tell });
            }
        }
        tell("there is no place to note down what was before; should this be killed, `clocks reset` helps");
        Ok(Self { file: None, before: Noted::default(), noted: Noted::default(), tell })
    }

    /// Steps back from a lock whose holder was killed.
    pub fn running(&self) -> &[ClockStep] {
        &self.noted.running
    }

    /// Steps back from the lock that is kept.
    pub fn kept(&self) -> &[ClockStep] {
        &self.noted.kept
    }

    /// A lock begins that ends with a command.
    pub fn begin(&mut self, plan: &Plan) {
        self.noted.running.clone_from(&plan.back);
        self.write();
    }

    /// A lock begins that is kept until a reset. Of several, the first to touch a target has its earlier
    /// setting, and the last is undone first.
    pub fn keep(&mut self, plan: &Plan) {
        let kept = &mut self.noted.kept;
        if plan.back.iter().any(|new| kept.iter().all(|step| step.target != new.target)) {
            kept.splice(..0, plan.back.iter().cloned());
        }
        self.write();
    }

    /// The command has ended, and its earlier settings are restored.
    pub fn end(&mut self) {
        self.noted.running.clear();
        self.before = self.noted.clone();
        self.write();
    }

    /// The lock did not come about.
    pub fn undo(&mut self) {
        self.noted = self.before.clone();
        self.write();
    }

    /// The driver has the clocks again.
    pub fn clear(&mut self) {
        self.noted = Noted::default();
        self.write();
    }

    fn write(&mut self) {
        let Some((file, _)) = &mut self.file else { return };
        let text = serde_json::to_string(&self.noted).unwrap_or_default();
        let written =
            file.rewind().and_then(|()| file.set_len(0)).and_then(|()| file.write_all(text.as_bytes()));
        if let Err(error) = written {
            (self.tell)(&format!("cannot save the earlier settings: {error}"));
        }
    }
}

impl Drop for ClockJournal {
    /// A journal without a step is not left behind, nor is its folder.
    fn drop(&mut self) {
        let is_empty = self.noted.running.is_empty() && self.noted.kept.is_empty();
        if let (true, Some((_, path))) = (is_empty, &self.file) {
            let _removed = fs::remove_file(path);
            // Those of other GPUs keep it.
            let _removed = path.parent().map(fs::remove_dir);
        }
    }
}

impl Noted {
    /// An unreadable or invalid file counts as empty.
    fn read(file: &mut File) -> Self {
        let mut text = String::new();
        let _unread = file.take(LEN_MAX).read_to_string(&mut text);
        serde_json::from_str(&text).unwrap_or_default()
    }
}

/// Whether a lock of ours is in force on a GPU, by its journal: kept, or held by a command, or left by a killed holder.
pub fn is_held(key: &str, machine: &Machine) -> bool {
    let path = folder_of(machine).map(|folder| folder.join(name_of(key)));
    let noted = path.and_then(|path| File::open(path).ok()).map(|mut file| Noted::read(&mut file));
    noted.is_some_and(|noted| !noted.running.is_empty() || !noted.kept.is_empty())
}

fn file_of(key: &str, machine: &Machine) -> Option<(File, PathBuf)> {
    let folder = folder_of(machine)?;
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
    let path = folder.join(name_of(key));
    let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).ok()?;
    Some((file, path))
}

fn name_of(key: &str) -> String {
    let name: String = key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("{name}.json")
}

fn folder_of(machine: &Machine) -> Option<PathBuf> {
    let mut folder = folder()?.join("clocks");
    if machine.is_captured() {
        let tree = machine.sysfs.canonicalize().ok()?;
        let mut hasher = DefaultHasher::new();
        tree.hash(&mut hasher);
        folder.push(format!("tree-{:016x}", hasher.finish()));
    }
    Some(folder)
}

fn folder() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("RUNTIME_DIRECTORY").or_else(|| {
        if rustix::process::geteuid().is_root() {
            Some(PathBuf::from("/run/gpuvitals"))
        } else {
            variable("XDG_RUNTIME_DIR").map(|folder| folder.join("gpuvitals"))
        }
    })
}
