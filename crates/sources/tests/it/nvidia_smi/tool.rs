//! A tool that answers like nvidia-smi, from captures.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use gpuvitals_rig::program::Finished as _;

/// Answers any `--query-gpu` from the capture `gpus`, refuses fields that it lacks, strips units, and notes each call.
const SCRIPT: &str = r#"#!/bin/sh
cd "$(dirname "$0")" || exit 1
echo "$1" >> calls
case "$1" in
  --query-gpu=*) ;;
  --query-compute-apps=*) exec cat apps ;;
  pmon) exec cat pmon ;;
esac
if [ -e said ]; then cat said; exit "$(cat status)"; fi
awk -v want="${1#--query-gpu=}" -F', ' '
  NR == 1 {
    for (i = 1; i <= NF; i++) { name = $i; sub(/ \[.*/, "", name); at[name] = i; title[name] = $i }
    n = split(want, field, ",")
    for (i = 1; i <= n; i++) if (!(field[i] in at)) { printf "Field \"%s\" is not a valid field to query.\n\n", field[i]; exit 2 }
    for (i = 1; i <= n; i++) printf "%s%s", title[field[i]], i < n ? ", " : "\n"
    next
  }
  NF == 1 { print; next }
  {
    for (i = 1; i <= n; i++) { cell = $at[field[i]]; sub(/ (MiB|MHz|W|%|us)$/, "", cell); printf "%s%s", cell, i < n ? ", " : "\n" }
  }' gpus
"#;

pub(crate) struct Tool {
    dir: tempfile::TempDir,
}

impl Tool {
    /// A tool that answers from a capture.
    pub(crate) fn new(gpus: &str) -> Self {
        let tool = Self { dir: tempfile::tempdir().unwrap() };
        // Written by another process: a file that a thread here has open for writing while another one forks is busy.
        let write = "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"";
        let written =
            Command::new("sh").args(["-c", write, "sh", SCRIPT]).arg(tool.path()).finished().unwrap();
        assert!(written.status.success(), "{written:?}");
        tool.put("gpus", gpus);
        tool
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("nvidia-smi")
    }

    pub(crate) fn put(&self, file: &str, text: &str) {
        fs::write(self.dir.path().join(file), text).unwrap();
    }

    /// Makes it say only this, and end so.
    pub(crate) fn says(&self, text: &str, status: i32) {
        self.put("said", text);
        self.put("status", &status.to_string());
    }

    pub(crate) fn speaks_again(&self) {
        fs::remove_file(self.dir.path().join("said")).unwrap();
    }

    /// The calls since the last time.
    pub(crate) fn calls(&self) -> Vec<String> {
        let path = self.dir.path().join("calls");
        let calls = fs::read_to_string(&path).unwrap_or_default();
        fs::write(path, "").unwrap();
        calls.lines().map(str::to_owned).collect()
    }
}
