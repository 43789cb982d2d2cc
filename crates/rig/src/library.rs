//! An imitation of NVIDIA's library: `library.c` beside this file says how it is told what to do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::program::Finished as _;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/library.c");
const FILE: &str = "libnvidia-ml.so";

static NEW: LazyLock<tempfile::TempDir> = LazyLock::new(|| compiled(&[]));
static OLD: LazyLock<tempfile::TempDir> = LazyLock::new(|| compiled(&["-DOLD"]));

fn compiled(flags: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let made = Command::new(compiler)
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
        .arg(dir.path().join(FILE))
        .args(flags)
        .args([SOURCE, "-ldl"])
        .finished()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    dir
}

/// The library of one test: compiled once, it is copied for each, since each file is loaded as another library with a
/// state of its own.
#[derive(Debug)]
pub struct Library {
    dir: tempfile::TempDir,
}

impl Library {
    /// Of a driver of today.
    #[expect(clippy::new_without_default, reason = "a test asks for a new file")]
    pub fn new() -> Self {
        Self::copied(NEW.path())
    }

    /// Of a driver of 2016.
    pub fn old() -> Self {
        Self::copied(OLD.path())
    }

    fn copied(from: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::copy(from.join(FILE), dir.path().join(FILE)).unwrap();
        Self { dir }
    }

    /// Its file, in a folder of its own.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join(FILE)
    }

    /// Sets its behaviour from now on.
    pub fn says(&self, lines: &[&str]) {
        let new = self.dir.path().join("new");
        std::fs::write(&new, lines.join("\n") + "\n").unwrap();
        std::fs::rename(new, self.path().with_extension("so.state")).unwrap();
    }

    /// How often each call came since this was asked before: `function gpu` and the count.
    pub fn calls(&self) -> BTreeMap<String, usize> {
        let path = self.path().with_extension("so.calls");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        std::fs::write(path, "").unwrap();
        let mut calls = BTreeMap::new();
        for line in text.lines() {
            *calls.entry(line.to_owned()).or_default() += 1;
        }
        calls
    }
}
