//! A small disk of its own, for a test that fills it.

use std::path::Path;
use std::process::Command;

use crate::program::Finished as _;
use crate::waiting;

/// A file system in memory, until it is dropped.
#[derive(Debug)]
pub struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    /// Mounted at a new folder, with a size as mount(8) has it. `None` if this machine does not permit that.
    pub fn mount(folder: &'a Path, size: &str) -> Option<Self> {
        std::fs::create_dir(folder).unwrap();
        let options = format!("size={size}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder).finished();
        if mounted.as_ref().is_ok_and(|output| output.status.success()) {
            return Some(Self(folder));
        }
        eprintln!("skipped: this machine does not permit a test to mount a small disk: {mounted:?}");
        None
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        waiting::clean_up(|| drop(Command::new("umount").arg("-l").arg(self.0).finished()));
    }
}
