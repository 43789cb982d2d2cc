//! The incidents of a directory: listed, read, and the oldest removed.

use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use gpuvitals_core::time;
use gpuvitals_log::{open_file, sync_directory};
use serde_json::Value;

use crate::error::FlightError;
use crate::incident::{FlightIncident, INCIDENT_SCHEMA};
use crate::place;

/// What a folder is called until it is whole.
pub(crate) const PART: &str = ".part";
/// The file that says what happened.
pub(crate) const ABOUT: &str = "incident.json";
/// Longest `incident.json` that is read.
const ABOUT_LEN_MAX: u64 = 4 << 20;
/// Longest id.
const ID_LEN_MAX: usize = 80;
/// Bytes of all incidents.
const BYTES_MAX: u64 = 512 << 20;

/// The incidents of a flight recorder's directory, whether an agent runs there or not.
#[derive(Debug, Clone)]
pub struct FlightFolder {
    incidents: PathBuf,
}

/// An incident in a list.
#[derive(Debug)]
pub struct IncidentEntry {
    /// Its id: the name of its folder.
    pub id: String,
    /// Bytes of its files.
    pub bytes: u64,
    /// What can be said of it.
    pub state: IncidentState,
}

/// Whether an incident is whole.
#[derive(Debug)]
pub enum IncidentState {
    /// Its files are there.
    Whole(Box<FlightIncident>),
    /// It is being written, or its writer was killed.
    Torn,
    /// Its `incident.json` cannot be read.
    Unreadable(FlightError),
}

impl FlightFolder {
    /// Of this directory, which may be missing.
    pub fn of(directory: &Path) -> Self {
        Self { incidents: place::incidents(directory) }
    }

    /// The folder of an incident of this id, whether there is one or not.
    ///
    /// # Errors
    /// If the text cannot be an id.
    pub fn path(&self, id: &str) -> Result<PathBuf, FlightError> {
        if is_id(id) { Ok(self.incidents.join(id)) } else { Err(FlightError::Unknown { id: id.to_owned() }) }
    }

    /// All incidents, the oldest first. What has no name of an incident is somebody else's and left out.
    ///
    /// # Errors
    /// If the directory is there and cannot be read.
    pub fn list(&self) -> Result<Vec<IncidentEntry>, FlightError> {
        let entries = match fs::read_dir(&self.incidents) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(FlightError::io("list", &self.incidents))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(FlightError::io("list", &self.incidents))?;
            // A link may lead anywhere.
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let name = entry.file_name().into_string().ok().filter(|_| is_folder);
            found.extend(name.and_then(|name| self.entry(&name)));
        }
        found.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(found)
    }

    fn entry(&self, name: &str) -> Option<IncidentEntry> {
        let id = name.strip_suffix(PART).unwrap_or(name);
        if !is_id(id) {
            return None;
        }
        let folder = self.incidents.join(name);
        let state = if name == id {
            read(&folder).map_or_else(IncidentState::Unreadable, |it| IncidentState::Whole(Box::new(it)))
        } else {
            IncidentState::Torn
        };
        Some(IncidentEntry { id: id.to_owned(), bytes: bytes(&folder), state })
    }

    /// An incident.
    ///
    /// # Errors
    /// If there is none of this id, or its `incident.json` cannot be read.
    pub fn read(&self, id: &str) -> Result<FlightIncident, FlightError> {
        let folder = self.path(id)?;
        if !folder.is_dir() {
            return Err(FlightError::Unknown { id: id.to_owned() });
        }
        read(&folder)
    }

    /// Removes the oldest incidents beyond so many, or beyond the bytes that all may take; never the newest. Answers their ids.
    ///
    /// # Errors
    /// If one cannot be removed.
    pub(crate) fn prune(&self, keep: usize) -> Result<Vec<String>, FlightError> {
        let mut whole = self.list()?;
        whole.retain(|entry| !matches!(entry.state, IncidentState::Torn));
        let (mut count, mut all) = (whole.len(), whole.iter().map(|entry| entry.bytes).sum::<u64>());
        let mut gone = Vec::new();
        for entry in whole {
            if count <= 1 || (count <= keep && all <= BYTES_MAX) {
                break;
            }
            let folder = self.incidents.join(&entry.id);
            fs::remove_dir_all(&folder).map_err(FlightError::io("remove", &folder))?;
            count -= 1;
            all = all.saturating_sub(entry.bytes);
            gone.push(entry.id);
        }
        if !gone.is_empty() {
            sync_directory(&self.incidents).map_err(FlightError::io("sync", &self.incidents))?;
        }
        Ok(gone)
    }

    /// An id for an incident that begins now, which no other has.
    pub(crate) fn free_id(&self, kind: &str, at_ns: i64) -> String {
        let stem = id_of(kind, at_ns);
        let is_free = |id: &String| {
            let mut part = OsString::from(id);
            part.push(PART);
            !self.incidents.join(id).exists() && !self.incidents.join(part).exists()
        };
        let numbered = (2..1_000).map(|number| format!("{stem}-{number}"));
        std::iter::once(stem.clone()).chain(numbered).find(is_free).unwrap_or(stem)
    }
}

/// `20261130T031459Z-xid`: sorted by name they are sorted by time.
fn id_of(kind: &str, at_ns: i64) -> String {
    let whole_ns = at_ns - at_ns.rem_euclid(time::SECOND_NS);
    let stamp: String = time::format(whole_ns).chars().filter(char::is_ascii_alphanumeric).collect();
    let kind: String = kind.chars().filter(|c| c.is_ascii_lowercase() || *c == '_').take(32).collect();
    format!("{stamp}-{kind}")
}

/// Whether a text can be the name of an incident: a plain file name, whoever gives it.
fn is_id(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    !text.is_empty() && text.len() <= ID_LEN_MAX && text.bytes().all(is_plain)
}

fn read(folder: &Path) -> Result<FlightIncident, FlightError> {
    let path = folder.join(ABOUT);
    let file = open_file(&path).map_err(FlightError::io("open", &path))?;
    let mut text = Vec::new();
    file.take(ABOUT_LEN_MAX).read_to_end(&mut text).map_err(FlightError::io("read", &path))?;
    let foreign = |source| FlightError::Json { path: path.clone(), source };
    let value: Value = serde_json::from_slice(&text).map_err(foreign)?;
    let schema = value.get("schema").and_then(Value::as_u64).unwrap_or_default();
    if schema > INCIDENT_SCHEMA {
        return Err(FlightError::Later { path, schema });
    }
    serde_json::from_value(value).map_err(foreign)
}

/// Bytes of the files in a folder.
fn bytes(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|facts| facts.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_plain_file_name() {
        assert_eq!(id_of("xid", 1_796_007_299_123_456_789), "20261130T025459Z-xid");
        assert_eq!(id_of("../\u{1b}[31mX y", 0), "19700101T000000Z-my");
        for id in ["20261130T031459Z-xid", "a", "a-2_b"] {
            assert!(is_id(id), "{id}");
        }
        for id in ["", ".", "..", "a/b", "../a", "a.part", "a b", "a\n", "ä", "\u{1b}[2J", &"x".repeat(81)] {
            assert!(!is_id(id), "{id:?}");
        }
    }

    #[test]
    fn hostile_neighbours_are_left_out_or_said() {
        let directory = tempfile::tempdir().unwrap();
        let folder = FlightFolder::of(directory.path());
        assert!(folder.list().unwrap().is_empty(), "nothing is there yet");
        let incidents = place::incidents(directory.path());
        for name in ["torn.part", "empty", "later", "wrong", ".hidden", "a b", "x\u{1b}[31m"] {
            fs::create_dir_all(incidents.join(name)).unwrap();
        }
        fs::write(incidents.join("file"), "").unwrap();
        std::os::unix::fs::symlink("/etc", incidents.join("link")).unwrap();
        fs::write(incidents.join("later").join(ABOUT), r#"{"schema":2}"#).unwrap();
        fs::write(incidents.join("wrong").join(ABOUT), "[[[[").unwrap();
        let listed: Vec<_> =
            folder.list().unwrap().into_iter().map(|entry| (entry.id, entry.state)).collect();
        let names: Vec<_> = listed.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(names, ["empty", "later", "torn", "wrong"]);
        assert!(matches!(listed[0].1, IncidentState::Unreadable(FlightError::Io { .. })));
        assert!(matches!(listed[1].1, IncidentState::Unreadable(FlightError::Later { schema: 2, .. })));
        assert!(matches!(listed[2].1, IncidentState::Torn));
        assert!(matches!(listed[3].1, IncidentState::Unreadable(FlightError::Json { .. })));
        for id in ["link", "file", "../..", "nothing", "torn.part"] {
            assert!(folder.read(id).is_err(), "{id}");
        }
    }

    #[test]
    fn the_oldest_go_first_and_the_newest_stays() {
        let directory = tempfile::tempdir().unwrap();
        let folder = FlightFolder::of(directory.path());
        let ids: Vec<String> = (0..5).map(|second| folder.free_id("xid", second * time::SECOND_NS)).collect();
        for id in &ids {
            fs::create_dir_all(folder.path(id).unwrap()).unwrap();
        }
        assert_eq!(folder.free_id("xid", 0), format!("{}-2", ids[0]));
        assert_eq!(folder.prune(3).unwrap(), ids[..2]);
        assert_eq!(folder.prune(3).unwrap(), [""; 0]);
        assert_eq!(folder.prune(0).unwrap(), ids[2..4]);
    }
}
