//! What was recorded, beside its machine: the command, the container that it ran in, the commit of its work tree.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use parquet::file::metadata::KeyValue;
use serde::{Deserialize, Serialize};

/// Digits of a container's number that are kept: as many as its tools print.
const CONTAINER_LEN: usize = 12;
/// Digits of a container's whole number.
const CONTAINER_LEN_WHOLE: usize = 64;
/// Most levels between a directory and the top of its work tree.
const LEVELS_MAX: usize = 64;

/// What a recording is of. None: not known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFacts {
    /// Name of the command, without its path.
    pub command: Option<String>,
    /// Its arguments, where they were to be kept: they may hold secrets.
    pub arguments: Option<Vec<String>>,
    /// Image of the container, or its number.
    pub container: Option<String>,
    /// Commit of the git work tree that it was started in.
    pub commit: Option<String>,
    /// Which GPUs were chosen to be recorded, and why.
    pub chosen: Option<String>,
}

/// Whether the arguments of a command are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arguments {
    /// With the name of the command.
    Kept,
    /// The name alone.
    Dropped,
}

impl RunFacts {
    /// Of a command that starts in a directory of this machine. `root` is `/`, or a tree with the same files.
    pub fn of(words: &[OsString], arguments: Arguments, root: &Path, directory: &Path) -> Self {
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        let (command, rest) = words.split_first().map_or((None, None), |(name, rest)| {
            let name = Path::new(name).file_name().map(|name| name.to_string_lossy().into_owned());
            (name, (arguments == Arguments::Kept).then(|| rest.iter().map(text).collect()))
        });
        Self { command, arguments: rest, container: container(root), commit: commit(directory), chosen: None }
    }

    /// As pairs of a Parquet footer: those that are known.
    pub(crate) fn footer(&self) -> Vec<KeyValue> {
        let arguments = self.arguments.as_ref().and_then(|words| serde_json::to_string(words).ok());
        let all = [
            ("command", self.command.clone()),
            ("arguments", arguments),
            ("container", self.container.clone()),
            ("commit", self.commit.clone()),
            ("chosen", self.chosen.clone()),
        ];
        all.into_iter()
            .filter_map(|(key, value)| Some(KeyValue::new(format!("gpuvitals.{key}"), value?)))
            .collect()
    }

    /// Back from a footer, whose values `fact` knows by their keys.
    pub(crate) fn of_footer(fact: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            command: fact("command"),
            arguments: fact("arguments").and_then(|json| serde_json::from_str(&json).ok()),
            container: fact("container"),
            commit: fact("commit"),
            chosen: fact("chosen"),
        }
    }
}

/// The container that this process is in: podman writes its image, the others mount files that have its number in their path.
fn container(root: &Path) -> Option<String> {
    let written = fs::read_to_string(root.join("run/.containerenv")).unwrap_or_default();
    let image =
        written.lines().find_map(|line| line.strip_prefix("image=")).map(|text| text.trim_matches('"'));
    if let Some(image) = image.filter(|image| !image.is_empty()) {
        return Some(image.to_owned());
    }
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    mounts.lines().find_map(|line| {
        // ID PARENT MAJOR:MINOR ROOT MOUNT-POINT …
        let mut fields = line.split(' ').skip(3);
        let (from, at) = (fields.next()?, fields.next()?);
        let is_number = |part: &&str| {
            part.len() == CONTAINER_LEN_WHOLE && part.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let is_written_for_it = matches!(at, "/etc/hostname" | "/etc/hosts" | "/etc/resolv.conf");
        let number = from.split('/').find(is_number).filter(|_| is_written_for_it)?;
        number.get(..CONTAINER_LEN).map(str::to_owned)
    })
}

/// The commit that is checked out where a directory is, read from git's files.
fn commit(directory: &Path) -> Option<String> {
    let directory = directory.canonicalize().ok()?;
    let marker =
        directory.ancestors().take(LEVELS_MAX).map(|path| path.join(".git")).find(|it| it.exists())?;
    let git = git_directory(&marker)?;
    let head = fs::read_to_string(git.join("HEAD")).ok()?;
    let Some(name) = head.trim().strip_prefix("ref: ") else { return number_of_commit(&head) };
    // A work tree beside the first one has a head of its own and shares the branches.
    let shared = fs::read_to_string(git.join("commondir"));
    let common = shared.map_or_else(|_| git.clone(), |path| git.join(path.trim()));
    let loose = fs::read_to_string(common.join(name)).ok().and_then(|text| number_of_commit(&text));
    loose.or_else(|| {
        let packed = fs::read_to_string(common.join("packed-refs")).ok()?;
        let line = packed.lines().find(|line| line.split(' ').nth(1) == Some(name))?;
        number_of_commit(line.split(' ').next()?)
    })
}

/// Where `.git` leads: it is the directory, or a file with its path.
fn git_directory(marker: &Path) -> Option<PathBuf> {
    if marker.is_dir() {
        return Some(marker.to_owned());
    }
    let text = fs::read_to_string(marker).ok()?;
    let path = text.trim().strip_prefix("gitdir: ")?;
    Some(marker.parent()?.join(path))
}

fn number_of_commit(text: &str) -> Option<String> {
    let text = text.trim();
    let is_number = text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_number.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "10497fd9aa0b3c4d5e6f708192a3b4c5d6e7f809";

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_commit_is_found_wherever_git_keeps_it() {
        let check = |files: &[(&str, &str)], wanted: Option<&str>| {
            let dir = tempfile::tempdir().unwrap();
            for (name, text) in files {
                write(&dir.path().join(name), text);
            }
            let inside = dir.path().join("tree/a/b");
            fs::create_dir_all(&inside).unwrap();
            assert_eq!(commit(&inside).as_deref(), wanted, "{files:?}");
        };
        let branch = ("tree/.git/HEAD", "ref: refs/heads/main\n");
        let packed = format!("# pack-refs with: peeled\n{COMMIT} refs/heads/main\n");
        check(&[("tree/.git/HEAD", COMMIT)], Some(COMMIT));
        check(&[branch, ("tree/.git/refs/heads/main", COMMIT)], Some(COMMIT));
        check(&[branch, ("tree/.git/packed-refs", &packed)], Some(COMMIT));
        check(&[branch], None);
        check(
            &[
                ("tree/.git", "gitdir: ../first/.git/worktrees/tree\n"),
                ("first/.git/worktrees/tree/HEAD", "ref: refs/heads/x\n"),
                ("first/.git/worktrees/tree/commondir", "../..\n"),
                ("first/.git/refs/heads/x", COMMIT),
            ],
            Some(COMMIT),
        );
    }

    #[test]
    fn a_container_is_named_by_its_image_or_by_its_number() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(container(dir.path()), None);
        let number = "ab".repeat(32);
        let mounts = format!(
            "600 500 0:50 / / rw - overlay overlay rw\n\
             700 600 8:1 /var/lib/docker/containers/{number}/hostname /etc/hostname rw - ext4 /dev/sda1 rw\n"
        );
        write(&dir.path().join("proc/self/mountinfo"), &mounts);
        assert_eq!(container(dir.path()).as_deref(), Some("abababababab"));
        write(&dir.path().join("run/.containerenv"), "engine=\"podman-5\"\nimage=\"quay.io/train:7\"\n");
        assert_eq!(container(dir.path()).as_deref(), Some("quay.io/train:7"));
    }

    #[test]
    fn arguments_are_kept_where_it_is_asked_for_alone() {
        let (dir, words) =
            (tempfile::tempdir().unwrap(), ["/usr/bin/python", "--key", "x"].map(OsString::from));
        let of = |arguments| RunFacts::of(&words, arguments, dir.path(), dir.path());
        let (kept, dropped) = (of(Arguments::Kept), of(Arguments::Dropped));
        assert_eq!((dropped.command.as_deref(), dropped.arguments.as_ref()), (Some("python"), None));
        assert_eq!(kept.arguments, Some(vec!["--key".to_owned(), "x".to_owned()]));
        let pairs = kept.footer();
        let fact = |key: &str| {
            pairs
                .iter()
                .find(|pair| pair.key == format!("gpuvitals.{key}"))
                .and_then(|pair| pair.value.clone())
        };
        assert_eq!(RunFacts::of_footer(fact), kept);
    }
}
