//! An archive of an incident for a vendor's case: a plain `tar` (ustar), which every system reads.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use gpuvitals_core::clock::Moment;
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_log::open_file;

use crate::error::FlightError;

/// Bytes of a block.
const BLOCK: usize = 512;
/// Longest name of a file in an archive.
const NAME_LEN_MAX: usize = 100;
/// From how many bytes on a file does not fit: its length has eleven octal digits.
const LEN_END: u64 = 1 << 33;
/// Mode of the archive, and of the files in it: they are their owner's alone.
const MODE: u32 = 0o600;

/// A file of an archive.
#[derive(Debug)]
pub enum BundlePart {
    /// A file of this machine, under its own name. It is open: what its name leads to later is not read.
    File {
        /// Where it is.
        path: PathBuf,
        /// What is read.
        file: File,
    },
    /// A text made for the archive.
    Text {
        /// Its path in the archive.
        name: String,
        /// What is in it.
        bytes: Vec<u8>,
    },
}

/// A file that an archive has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundledFile {
    /// Its path in the archive.
    pub path: String,
    /// How long it is.
    pub bytes: u64,
}

impl BundlePart {
    /// A file that somebody names, by a link if he likes.
    ///
    /// # Errors
    /// If it cannot be opened, or is no regular file.
    pub fn open(path: PathBuf) -> Result<Self, FlightError> {
        let file = open_file(&path).map_err(FlightError::io("open", &path))?;
        Ok(Self::File { path, file })
    }

    /// Its bytes, if an archive can tell so many.
    fn len(&self) -> Result<u64, FlightError> {
        match self {
            Self::Text { bytes, .. } => Ok(bytes.len() as u64),
            Self::File { path, file } => {
                let len = file.metadata().map_err(FlightError::io("read", path))?.len();
                if len < LEN_END { Ok(len) } else { Err(FlightError::BundleLength { path: path.clone() }) }
            }
        }
    }

    /// Its name, if it can be one in an archive: printable ASCII without a slash, and no other's.
    fn name(&self, others: &[BundledFile], folder: &str) -> Result<String, FlightError> {
        let name = match self {
            Self::File { path, .. } => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            Self::Text { name, .. } => name.clone(),
        };
        let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
        let is_taken = others.iter().any(|other| other.path == path_of(folder, &name));
        let is_one = !matches!(name.as_str(), "" | "." | "..") && name.len() <= NAME_LEN_MAX;
        if is_one && name.bytes().all(is_plain) && !is_taken {
            return Ok(name);
        }
        Err(FlightError::BundleName { name })
    }
}

fn path_of(folder: &str, name: &str) -> String {
    format!("{folder}/{name}")
}

/// Whether an archive can be made of these files, before what takes long: a text counts by its name alone.
///
/// # Errors
/// If there is a file of the archive's name, or a part has no name or length for an archive.
pub fn check_bundle(target: &Path, folder: &str, parts: &[BundlePart]) -> Result<(), FlightError> {
    if fs::symlink_metadata(target).is_ok() {
        let taken = io::Error::new(io::ErrorKind::AlreadyExists, "it is there already; name another file");
        return Err(FlightError::io("create", target)(taken));
    }
    let mut listed = Vec::new();
    for part in parts {
        let name = part.name(&listed, folder)?;
        listed.push(BundledFile { path: path_of(folder, &name), bytes: part.len()? });
    }
    Ok(())
}

/// Writes an archive that only its owner may read, and says what is in it: these files, in a folder of this name.
///
/// # Errors
/// If there is a file of that name, or something cannot be read or written. Then there is no archive.
pub fn bundle(target: &Path, folder: &str, parts: &[BundlePart]) -> Result<Vec<BundledFile>, FlightError> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(MODE).open(target);
    let file = file.map_err(FlightError::io("create", target))?;
    let written = fill(&file, target, folder, parts);
    if written.is_err() {
        // What cannot be removed is a part of an archive, which no reader takes for a whole one.
        let _removed = fs::remove_file(target);
    }
    written
}

fn fill(
    mut file: &File,
    target: &Path,
    folder: &str,
    parts: &[BundlePart],
) -> Result<Vec<BundledFile>, FlightError> {
    let mut listed = Vec::new();
    for part in parts {
        let name = part.name(&listed, folder)?;
        let len = part.len()?;
        let mut source: Box<dyn Read + '_> = match part {
            BundlePart::File { file, .. } => Box::new(file.take(len)),
            BundlePart::Text { bytes, .. } => Box::new(bytes.as_slice()),
        };
        let begun = file.write_all(&header(folder, &name, len));
        begun.map_err(FlightError::io("write", target))?;
        let copied = io::copy(&mut source, &mut file).map_err(FlightError::io("write", target))?;
        if copied != len {
            let short = io::Error::new(io::ErrorKind::UnexpectedEof, format!("{name} became shorter"));
            return Err(FlightError::io("write", target)(short));
        }
        pad(file, len).map_err(FlightError::io("write", target))?;
        listed.push(BundledFile { path: path_of(folder, &name), bytes: len });
    }
    // Two empty blocks end it.
    let ended = file.write_all(&[0; 2 * BLOCK]).and_then(|()| file.sync_all());
    ended.map_err(FlightError::io("write", target))?;
    Ok(listed)
}

/// Fills the last block of a file with zeros.
fn pad(mut file: &File, len: u64) -> io::Result<()> {
    let block = BLOCK as u64;
    let rest = usize::try_from((block - len % block) % block).unwrap_or_default();
    file.write_all(&vec![0; rest])
}

/// The block before a file.
fn header(folder: &str, name: &str, len: u64) -> [u8; BLOCK] {
    let mtime = Moment::now().wall_ns / SECOND_NS;
    let mut header = [0; BLOCK];
    for (at, field) in [
        (0, name.to_owned()),
        (100, format!("{MODE:07o}")),
        (108, "0".repeat(7)),
        (116, "0".repeat(7)),
        (124, format!("{len:011o}")),
        (136, format!("{mtime:011o}")),
        // The sum is taken with blanks in its own place.
        (148, " ".repeat(8)),
        (156, "0".to_owned()),
        (257, "ustar\u{0}00".to_owned()),
        (345, folder.to_owned()),
    ] {
        put(&mut header, at, &field);
    }
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    put(&mut header, 148, &format!("{sum:06o}\u{0} "));
    header
}

fn put(header: &mut [u8; BLOCK], at: usize, field: &str) {
    if let Some(place) = header.get_mut(at..at + field.len()) {
        place.copy_from_slice(field.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use gpuvitals_rig::program::Finished as _;

    use super::*;

    fn text(name: &str, len: usize) -> BundlePart {
        BundlePart::Text { name: name.to_owned(), bytes: vec![b'x'; len] }
    }

    #[test]
    fn the_systems_tar_reads_what_was_written_and_only_its_owner_may() {
        let folder = tempfile::tempdir().unwrap();
        let (target, file) = (folder.path().join("a.tar"), folder.path().join("rows.parquet"));
        fs::write(&file, vec![7; 5_000]).unwrap();
        let parts =
            [BundlePart::open(file).unwrap(), text("empty", 0), text("block", BLOCK), text("said.txt", 3)];
        let listed = bundle(&target, "20261130T031459Z-xid", &parts).unwrap();
        let bytes: Vec<u64> = listed.iter().map(|file| file.bytes).collect();
        assert_eq!(bytes, [5_000, 0, 512, 3]);
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
        let run = |arguments: &[&str]| {
            let output = Command::new("tar").args(arguments).current_dir(folder.path()).finished().unwrap();
            assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let names: Vec<&str> = listed.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(run(&["-tf", "a.tar"]).lines().collect::<Vec<_>>(), names);
        run(&["-xf", "a.tar"]);
        let found = fs::read(folder.path().join("20261130T031459Z-xid/rows.parquet")).unwrap();
        assert_eq!(found, vec![7; 5_000]);
    }

    #[test]
    fn nothing_is_overwritten_and_half_an_archive_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a.tar");
        fs::write(&target, "mine").unwrap();
        let taken = gpuvitals_core::causes(&check_bundle(&target, "id", &[]).unwrap_err());
        assert!(taken.ends_with("it is there already; name another file"), "{taken}");
        assert!(bundle(&target, "id", &[text("a", 1)]).is_err());
        assert_eq!(fs::read(&target).unwrap(), b"mine");
        fs::remove_file(&target).unwrap();
        for name in ["", "..", "a/b", "a b", "ä", &"x".repeat(101)] {
            assert!(check_bundle(&target, "id", &[text(name, 0)]).is_err(), "{name}");
            let refused = bundle(&target, "id", &[text("first", 1), text(name, 1)]);
            assert!(matches!(refused, Err(FlightError::BundleName { .. })), "{name}");
            assert!(!target.exists());
        }
        assert!(bundle(&target, "id", &[text("a", 1), text("a", 1)]).is_err(), "twice");
        assert!(BundlePart::open(folder.path().join("missing")).is_err());
        assert!(!target.exists());
    }

    #[test]
    fn a_file_whose_length_has_no_place_in_an_archive_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (target, path) = (folder.path().join("a.tar"), folder.path().join("dump"));
        File::create(&path).unwrap().set_len(1 << 33).unwrap();
        let part = BundlePart::open(path.clone()).unwrap();
        let refused = check_bundle(&target, "id", &[part]).unwrap_err();
        assert!(refused.to_string().starts_with(path.to_str().unwrap()), "{refused}");
        File::options().write(true).open(&path).unwrap().set_len((1 << 33) - 1).unwrap();
        assert!(check_bundle(&target, "id", &[BundlePart::open(path).unwrap()]).is_ok());
    }
}
