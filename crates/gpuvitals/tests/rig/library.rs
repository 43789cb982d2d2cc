//! An imitation of NVIDIA's library: see its source in `crates/sources/tests/nvml/stub.c`.

use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) struct Library {
    dir: tempfile::TempDir,
}

impl Library {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sources/tests/nvml/stub.c");
        let library = dir.path().join("libnvidia-ml.so");
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let made = Command::new(compiler)
            .args(["-shared", "-fPIC", "-o"])
            .arg(library)
            .arg(source)
            .arg("-ldl")
            .status()
            .unwrap();
        assert!(made.success());
        Self { dir }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("libnvidia-ml.so")
    }

    /// Sets its behaviour from now on.
    pub(crate) fn says(&self, lines: &[&str]) {
        let new = self.dir.path().join("new");
        std::fs::write(&new, lines.join("\n") + "\n").unwrap();
        std::fs::rename(new, self.dir.path().join("libnvidia-ml.so.state")).unwrap();
    }
}
