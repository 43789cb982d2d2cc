//! The process that a recording is made beside: what it is, and whether it still runs.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt as _;

use rustix::io::Errno;

/// The words of its command; none if it has ended, or does not show them.
pub(super) fn words(pid: u32) -> Vec<OsString> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    // Each word ends with a zero.
    let line = line.strip_suffix(b"\0").unwrap_or(&line);
    if line.is_empty() {
        return Vec::new();
    }
    line.split(|&byte| byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect()
}

/// Whether it runs: one that has ended stays until its parent has asked for its exit code. What cannot be read for another reason runs.
pub(super) fn lives(pid: u32) -> bool {
    match fs::read(format!("/proc/{pid}/stat")) {
        // NUMBER (NAME) STATE …, where the name may be any bytes, brackets too.
        Ok(stat) => {
            let end = stat.iter().rposition(|&byte| byte == b')');
            let state = end.and_then(|end| stat.get(end + 2));
            !matches!(state, None | Some(b'Z' | b'X'))
        }
        Err(error) => {
            let is_gone = error.raw_os_error() == Some(Errno::SRCH.raw_os_error());
            !is_gone && error.kind() != ErrorKind::NotFound
        }
    }
}

/// Whether it sees the same files as this program and works in the same directory: then it has the same container and commit.
pub(super) fn is_here(pid: u32) -> bool {
    ["ns/mnt", "cwd"].iter().all(|link| {
        let of = |whose: &str| fs::read_link(format!("/proc/{whose}/{link}")).ok();
        of(&pid.to_string()).is_some_and(|its| Some(its) == of("self"))
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use gpuvitals_rig::waiting::within;

    use super::*;

    #[test]
    fn a_process_has_its_words_and_lives_until_it_ends() {
        let mut child = Command::new("sleep").args(["600"]).spawn().unwrap();
        let pid = child.id();
        // Before its program runs it has the words of this test, or none.
        let words_of_child = within("the words of a process", move || {
            loop {
                let words = words(pid);
                if words.first().is_some_and(|word| word == "sleep") {
                    return words;
                }
                std::thread::yield_now();
            }
        });
        assert_eq!(words_of_child, ["sleep", "600"].map(OsString::from));
        assert!(lives(pid) && is_here(pid) && !is_here(1 << 30));
        child.kill().unwrap();
        while lives(pid) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!lives(pid) && words(pid).is_empty());
    }
}
