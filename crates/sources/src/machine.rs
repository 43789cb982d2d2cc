//! How the bytes of a machine are reached. All roots are parameters, so a captured tree is a machine.

mod command;
mod pinned;
mod tool;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use command::{LocalTool, find_tool};
pub use pinned::{PinnedFile, READ_LEN_MAX};
pub use tool::{Tool, ToolError, ToolOutput};

/// A machine: this one, or a captured tree that looks like one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Where `/sys` is, or a captured copy of it.
    pub sysfs: PathBuf,
    /// Where `/proc` is, or a captured copy of it.
    pub procfs: PathBuf,
    /// Where `/dev` is, or a captured copy of it.
    pub dev: PathBuf,
    /// Host name, the `node` of every row.
    pub node: Arc<str>,
}

impl Machine {
    /// The machine this process runs on, under the given name.
    pub fn local(node: &str) -> Self {
        Self {
            sysfs: PathBuf::from("/sys"),
            procfs: PathBuf::from("/proc"),
            dev: PathBuf::from("/dev"),
            node: Arc::from(node),
        }
    }

    /// Whether it is a captured tree and not this machine: libraries and tools that talk to the kernel by themselves would
    /// answer for another machine.
    pub fn is_captured(&self) -> bool {
        self.sysfs != Path::new("/sys")
    }

    /// Whether its `procfs` is not its own: that of this machine, beside a captured tree without one.
    pub fn has_foreign_procfs(&self) -> bool {
        self.is_captured() && self.procfs == Path::new("/proc")
    }
}
