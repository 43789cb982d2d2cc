//! The disk of a directory, for the last line of a process whose log has failed.

use std::fs;
use std::path::{Path, PathBuf};

use gpuvitals_log::DISPLACED;

use crate::failure::{Exit, Failure};

/// A log has failed for good, so the process ends: the failure, the disk, and the remedy.
pub(crate) fn failed(what: &str, directory: Option<&Path>, reason: &str) -> Failure {
    let place = directory.map(|directory| format!(" in {}", directory.display())).unwrap_or_default();
    let failed = format!("the {what} can store nothing more{place}: {reason}");
    if reason.contains(DISPLACED) {
        let advice =
            "it took nothing more from then on; put back what is gone, or start again with a new directory";
        return Failure::new(Exit::Io, format!("{failed}; {advice}"));
    }
    let disk =
        directory.and_then(disk_of).map_or_else(|| "the disk".to_owned(), |disk| format!("the disk {disk}"));
    let advice =
        format!("check {disk} (dmesg says what it reported), then start again: acknowledged data is safe");
    Failure::new(Exit::Io, format!("{failed}; {advice}"))
}

/// Device and mount point of a directory.
fn disk_of(directory: &Path) -> Option<String> {
    let directory = directory.canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let (device, point) = mount_of(&mounts, &directory)?;
    Some(format!("{device} (mounted at {})", point.display()))
}

/// The mount of a path, from the text of `/proc/self/mountinfo` (proc(5)): the longest mount point, and of
/// two at one place the later.
fn mount_of(mounts: &str, path: &Path) -> Option<(String, PathBuf)> {
    let mounts = mounts.lines().filter_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        Some((plain(file_system.split(' ').nth(1)?), PathBuf::from(plain(mount.split(' ').nth(4)?))))
    });
    mounts.filter(|(_, point)| path.starts_with(point)).max_by_key(|(_, point)| point.components().count())
}

/// A field as it was before the kernel wrote its blanks in octal.
fn plain(field: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(field.to_owned(), |field, (octal, text)| field.replace(octal, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
29 21 0:25 / /data rw - tmpfs tmpfs rw,size=96m
30 21 259:3 / /data rw - xfs /dev/nvme0n1p3 rw
31 21 8:17 /sub /my\\040disk rw - btrfs /dev/sdb1 rw
";

    #[test]
    fn a_path_is_on_the_disk_of_its_deepest_and_latest_mount() {
        for (path, device, point) in [
            ("/var/lib/gpuvitals", "/dev/sda1", "/"),
            ("/data", "/dev/nvme0n1p3", "/data"),
            ("/data/store", "/dev/nvme0n1p3", "/data"),
            ("/database", "/dev/sda1", "/"),
            ("/my disk/store", "/dev/sdb1", "/my disk"),
        ] {
            let found = mount_of(MOUNTS, Path::new(path));
            assert_eq!(found, Some((device.to_owned(), PathBuf::from(point))), "{path}");
        }
        assert_eq!(mount_of("no mounts", Path::new("/data")), None);
    }
}
