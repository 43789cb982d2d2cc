//! The users whose processes run.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The names of the users of a machine.
#[derive(Debug)]
pub struct Users {
    procfs: PathBuf,
    names: HashMap<u32, String>,
}

impl Users {
    /// Those in `/etc/passwd` beside the process file system.
    pub fn of(procfs: &Path) -> Self {
        let list = procfs.parent().map(|root| root.join("etc/passwd"));
        // Names of users and programs may be in any encoding.
        let list = list.and_then(|path| fs::read(path).ok()).unwrap_or_default();
        let names = String::from_utf8_lossy(&list);
        let names = names.lines().filter_map(|line| {
            let mut cells = line.split(':');
            let name = cells.next()?.to_owned();
            Some((cells.nth(1)?.parse().ok()?, name))
        });
        Self { procfs: procfs.to_owned(), names: names.collect() }
    }

    /// The name, or the number of a user without one here, such as one of a directory service.
    pub fn of_process(&self, pid: u32) -> Option<String> {
        let status = fs::read(self.procfs.join(pid.to_string()).join("status")).ok()?;
        let status = String::from_utf8_lossy(&status);
        let user = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        let user = user.split_whitespace().next()?.parse().ok()?;
        Some(self.names.get(&user).cloned().unwrap_or_else(|| user.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_the_name_of_its_user_or_the_number() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n# odd\nkim:x:1000:1000:Kim:/home/kim:/bin/sh\n");
        write("proc/7/status", "Name:\tpython3\nUid:\t1000\t0\t0\t0\n");
        write("proc/8/status", "Uid:\t4000001\t0\t0\t0\n");
        let users = Users::of(&root.path().join("proc"));
        let named = [7, 8, 9].map(|pid| users.of_process(pid));
        assert_eq!(named, [Some("kim".to_owned()), Some("4000001".to_owned()), None]);
    }
}
