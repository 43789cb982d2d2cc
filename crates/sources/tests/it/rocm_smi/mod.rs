//! The `rocm-smi` driver, against the tool's output on real machines.

mod forms;
mod probing;

use std::path::{Path, PathBuf};

use gpuvitals_core::IdentityColumn;
use gpuvitals_sources::dialect::rocm_smi::RocmSmi;
use gpuvitals_sources::probe::{Due, Probe, ProbeError, Reading, Row};

/// Folder of the captures.
fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/amd/rocm-smi")
}

fn capture(name: &str) -> String {
    std::fs::read_to_string(captures().join(name)).unwrap()
}

/// A folder with an imitation of the tool, which prints the test's text.
struct FakeTool {
    folder: tempfile::TempDir,
}

impl FakeTool {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // A link and not a copy: a file that was just written may still be open in a fork of another test.
        std::os::unix::fs::symlink(captures().join("rocm-smi"), folder.path().join("rocm-smi")).unwrap();
        Self { folder }
    }

    fn says(&self, file: &str, content: &str) -> &Self {
        std::fs::write(self.folder.path().join(file), content).unwrap();
        self
    }

    fn probe(&self) -> RocmSmi {
        RocmSmi::new(self.folder.path().join("rocm-smi"), "node1")
    }

    /// The options of each run so far.
    fn asked(&self) -> Vec<String> {
        let asked = std::fs::read_to_string(self.folder.path().join("asked")).unwrap_or_default();
        asked.lines().map(str::to_owned).collect()
    }
}

fn read(probe: &mut RocmSmi, due: Due) -> Result<Reading, ProbeError> {
    let mut reading = Reading::default();
    probe.read(due, &mut reading)?;
    Ok(reading)
}

/// A row as text: identity, values, and absences with reasons.
fn render(row: &Row) -> String {
    let identity = row.identity();
    let mut lines = vec![format!("{} gpu={}", identity.key().unwrap(), identity.index.unwrap())];
    for column in IdentityColumn::ALL {
        if let Some(text) = identity.get(column) {
            lines.push(format!("  {}: {text}", column.name()));
        }
    }
    for (metric, value) in row.values() {
        lines.push(format!("  {} = {}", metric.metric().column, value.to_json()));
    }
    for (metric, reason) in row.absences() {
        lines.push(format!("  {} - {}", metric.metric().column, reason.as_str()));
    }
    lines.join("\n") + "\n"
}
