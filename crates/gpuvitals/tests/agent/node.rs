//! A machine of files: two captured GPUs in one tree, and a captured host.

use std::path::{Path, PathBuf};

use gpuvitals_rig::tree;

use super::process::{Agent, fixture};

pub(crate) struct Node {
    root: tempfile::TempDir,
}

/// Key of the RX 580: it has no unique id.
pub(crate) const RX580: &str = "0000:09:00.0@n1";
/// Key of the Vega 56.
pub(crate) const VEGA56: &str = "0000:0b:00.0@n1";

impl Node {
    pub(crate) fn new() -> Self {
        Self::with(&[("rx580", "card0"), ("vega56", "card1")])
    }

    /// With these captured GPUs as these cards.
    pub(crate) fn with(gpus: &[(&str, &str)]) -> Self {
        let node = Self { root: tempfile::tempdir().unwrap() };
        std::fs::create_dir_all(node.path("sys/class/drm")).unwrap();
        for (gpu, card) in gpus {
            let from = fixture(&format!("amd/sysfs/{gpu}/class/drm/card0"));
            tree::copy(&from, &node.path("sys/class/drm").join(card));
        }
        tree::copy(&fixture("host/x86-2cpu"), &node.path("proc"));
        node
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    pub(crate) fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// An agent that samples this machine.
    pub(crate) fn agent(&self, more: &[&str]) -> Agent {
        self.agent_in(more, &[])
    }

    /// The same with an environment.
    pub(crate) fn agent_in(&self, more: &[&str], environment: &[(&str, &str)]) -> Agent {
        self.agent_over(&self.path("sys"), more, environment)
    }

    /// The same over another `/sys`, such as one that has faults.
    pub(crate) fn agent_over(&self, sysfs: &Path, more: &[&str], environment: &[(&str, &str)]) -> Agent {
        let procfs = self.path("proc");
        let machine = ["--sysfs", sysfs.to_str().unwrap(), "--procfs", procfs.to_str().unwrap()];
        Agent::start_in(&[&machine, more].concat(), environment)
    }
}

/// The series of a GPU.
pub(crate) fn series(name: &str, gpu: u8, key: &str) -> String {
    format!("{name}{{gpu=\"{gpu}\",uuid=\"{key}\",vendor=\"amd\"}} ")
}
