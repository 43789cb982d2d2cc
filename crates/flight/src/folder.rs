//! The incidents of a directory: listed, read, and the oldest removed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuvitals_core::{causes, time};
use gpuvitals_log::{open_file, read_beside};
use rustix::fs::{Mode, OFlags, open, openat};
use rustix::io::Errno;
use serde_json::Value;

use crate::archive::BundlePart;
use crate::error::FlightError;
use crate::incident::{FlightIncident, INCIDENT_SCHEMA};
use crate::place;
use crate::ring::{self, RingTrigger};
use crate::trigger::{DUMP, FlightTrigger};

/// What a folder is called until it is whole.
pub(crate) const PART: &str = ".part";
/// The file that says what happened.
pub(crate) const ABOUT: &str = "incident.json";
/// Longest `incident.json` that is read.
const ABOUT_LEN_MAX: u64 = 4 << 20;
/// Longest id of an incident.
const ID_LEN_MAX: usize = 80;
/// Bytes of all incidents.
pub(crate) const BYTES_MAX: u64 = 512 << 20;
/// Letters of a time in an id: `20261130T031459Z`.
const STAMP_LEN: usize = 16;
/// Age of the last change from which on nobody writes a torn incident any more.
const TORN_AGE: Duration = Duration::from_hours(1);

/// The incidents of a flight recorder's directory, whether an agent runs there or not.
#[derive(Debug, Clone)]
pub struct FlightFolder {
    directory: PathBuf,
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
    /// It has begun by this trigger: its time is not over, or its agent has ended. The next agent writes it.
    Begun(Box<FlightTrigger>),
    /// Its `incident.json` cannot be read.
    Unreadable(FlightError),
}

impl IncidentEntry {
    /// Whether a gateway asked for it, and nothing of this node itself is in it.
    fn is_only_asked(&self) -> bool {
        let IncidentState::Whole(incident) = &self.state else { return false };
        incident.trigger.is_of_job() && incident.others.iter().all(FlightTrigger::is_of_job)
    }

    /// Whether somebody asked for it with `gpuvitals flight dump`.
    fn is_dump(&self) -> bool {
        matches!(&self.state, IncidentState::Whole(incident) if incident.trigger.kind == DUMP)
    }
}

impl FlightFolder {
    /// Of this directory, which may be missing.
    pub fn of(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), incidents: place::incidents(directory) }
    }

    /// The folder of an incident of this id, whether there is one or not.
    ///
    /// # Errors
    /// If the text cannot be an id.
    pub fn path(&self, id: &str) -> Result<PathBuf, FlightError> {
        if is_id(id) { Ok(self.incidents.join(id)) } else { Err(FlightError::Unknown { id: id.to_owned() }) }
    }

    /// The files of an incident that is whole, by name, and open. No link is followed: it may lead anywhere.
    ///
    /// # Errors
    /// If there is none of this id, or its folder cannot be read.
    pub fn files(&self, id: &str) -> Result<Vec<BundlePart>, FlightError> {
        let path = self.whole(id)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let folder = open(&path, flags | OFlags::DIRECTORY, Mode::empty());
        let folder = folder.map_err(|errno| FlightError::io("open", &path)(errno.into()))?;
        let mut names = Vec::new();
        for entry in fs::read_dir(&path).map_err(FlightError::io("list", &path))? {
            names.push(entry.map_err(FlightError::io("list", &path))?.file_name());
        }
        names.sort_unstable();
        let mut files = Vec::new();
        for name in names {
            let path = path.join(&name);
            // By the open folder: what the names on the way to it lead to may change.
            let file = match openat(&folder, &name, flags, Mode::empty()) {
                Ok(file) => File::from(file),
                // A link, or a socket.
                Err(Errno::LOOP | Errno::NXIO) => continue,
                Err(errno) => return Err(FlightError::io("open", &path)(errno.into())),
            };
            if file.metadata().map_err(FlightError::io("read", &path))?.is_file() {
                files.push(BundlePart::File { path, file });
            }
        }
        Ok(files)
    }

    /// The folder of an incident, which is there and no link.
    fn whole(&self, id: &str) -> Result<PathBuf, FlightError> {
        let folder = self.path(id)?;
        let is_folder = |path: &Path| fs::symlink_metadata(path).is_ok_and(|facts| facts.is_dir());
        if is_folder(&folder) {
            Ok(folder)
        } else if is_folder(&self.incidents.join(format!("{id}{PART}"))) {
            Err(FlightError::Torn { id: id.to_owned() })
        } else if self.begun().is_ok_and(|begun| begun.iter().any(|it| it.id == id)) {
            Err(FlightError::Begun { id: id.to_owned() })
        } else {
            Err(FlightError::Unknown { id: id.to_owned() })
        }
    }

    /// All incidents, the oldest first. What has no name of an incident is somebody else's and left out.
    ///
    /// # Errors
    /// If the directory cannot be read, or no flight recorder ever had it.
    pub fn list(&self) -> Result<Vec<IncidentEntry>, FlightError> {
        let entries = match fs::read_dir(&self.incidents) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let has_ring = place::ring(&self.directory).is_dir();
                let path = self.directory.clone();
                return if has_ring { Ok(Vec::new()) } else { Err(FlightError::NoRing { path }) };
            }
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

    /// As [`FlightFolder::list`], with those that have begun and are not written yet, of which the ring alone knows.
    ///
    /// # Errors
    /// As [`FlightFolder::list`]. If the ring cannot be read, the others are listed, and the log says so.
    pub fn list_begun(&self) -> Result<Vec<IncidentEntry>, FlightError> {
        // Before the folders: what is written meanwhile is among these.
        let begun = self.begun().unwrap_or_else(|error| {
            tracing::warn!(error = causes(&error), "incidents that are not written yet are not listed");
            Vec::new()
        });
        let mut found = self.list()?;
        for RingTrigger { id, trigger } in begun {
            if is_stamped(&id) && found.iter().all(|entry| entry.id != id) {
                found.push(IncidentEntry { id, bytes: 0, state: IncidentState::Begun(Box::new(trigger)) });
            }
        }
        found.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(found)
    }

    /// The triggers of incidents that the ring has as not written.
    fn begun(&self) -> Result<Vec<RingTrigger>, FlightError> {
        let ring = place::ring(&self.directory);
        if ring.is_dir() { ring::undisturbed(|| ring::pending(read_beside(&ring)?)) } else { Ok(Vec::new()) }
    }

    fn entry(&self, name: &str) -> Option<IncidentEntry> {
        let id = name.strip_suffix(PART).unwrap_or(name);
        if !is_stamped(id) {
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
        read(&self.whole(id)?)
    }

    /// Removes incidents beyond so many, or beyond the bytes that all may take, never this one; and what killed writers have left. The
    /// oldest go first, those before them that only a gateway asked for: their number pushes out none of this node's own. What cannot be
    /// removed, as that of another user, stays, and the log says so. Answers the ids.
    pub(crate) fn prune(&self, keep: usize, spared: &str) -> Vec<String> {
        let (torn, whole) = self.parted();
        let mut all = torn.iter().chain(&whole).map(|entry| entry.bytes).sum::<u64>();
        let mut gone = Vec::new();
        for entry in torn {
            let folder = self.incidents.join(format!("{}{PART}", entry.id));
            if is_left(&folder) && remove(&folder) {
                all = all.saturating_sub(entry.bytes);
                gone.push(entry.id);
            }
        }
        let (asked, own): (Vec<_>, Vec<_>) = whole.into_iter().partition(IncidentEntry::is_only_asked);
        let (both, own_alone) = (asked.len() + own.len(), own.len());
        for (group, count) in [(asked, both), (own, own_alone)] {
            let removed =
                self.thin(group, (count.saturating_sub(keep), all.saturating_sub(BYTES_MAX)), spared);
            all = all.saturating_sub(removed.iter().map(|entry| entry.bytes).sum());
            gone.extend(removed.into_iter().map(|entry| entry.id));
        }
        gone
    }

    /// Removes dumps while there are more incidents, or more bytes of them, never this one: those of the agent are not for whoever asks
    /// for a dump to remove.
    pub(crate) fn prune_dumps(&self, keep: usize, spared: &str) {
        let (torn, whole) = self.parted();
        let all = torn.iter().chain(&whole).map(|entry| entry.bytes).sum::<u64>();
        let too_many = (whole.len().saturating_sub(keep), all.saturating_sub(BYTES_MAX));
        self.thin(whole.into_iter().filter(IncidentEntry::is_dump).collect(), too_many, spared);
    }

    /// Those that are torn, and the others, the oldest first; none, if they cannot be listed.
    fn parted(&self) -> (Vec<IncidentEntry>, Vec<IncidentEntry>) {
        let listed = self.list().unwrap_or_else(|error| {
            tracing::warn!(error = causes(&error), "old incidents stay: they cannot be listed");
            Vec::new()
        });
        listed.into_iter().partition(|entry| matches!(entry.state, IncidentState::Torn))
    }

    /// Removes the first of some incidents, but for one, until so many and so many bytes are gone.
    fn thin(
        &self,
        group: Vec<IncidentEntry>,
        (mut count, mut bytes): (usize, u64),
        spared: &str,
    ) -> Vec<IncidentEntry> {
        let mut gone = Vec::new();
        for entry in group.into_iter().filter(|entry| entry.id != spared) {
            if count == 0 && bytes == 0 {
                break;
            }
            if remove(&self.incidents.join(&entry.id)) {
                (count, bytes) = (count.saturating_sub(1), bytes.saturating_sub(entry.bytes));
                gone.push(entry);
            }
        }
        gone
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
pub(crate) fn id_of(kind: &str, at_ns: i64) -> String {
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

/// Whether a text is an id as they are given. A folder that somebody has renamed is kept for good.
pub(crate) fn is_stamped(text: &str) -> bool {
    let fits = |(at, byte): (usize, u8)| match at {
        8 => byte == b'T',
        15 => byte == b'Z',
        _ => byte.is_ascii_digit(),
    };
    let stamp = text.split_at_checked(STAMP_LEN).filter(|(_, kind)| kind.starts_with('-'));
    is_id(text) && stamp.is_some_and(|(stamp, _)| stamp.bytes().enumerate().all(fits))
}

/// Whether nobody has written in a folder for long.
fn is_left(folder: &Path) -> bool {
    let changed = fs::metadata(folder).and_then(|facts| facts.modified());
    // What was changed in the future is not old.
    changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|age| age >= TORN_AGE))
}

/// Removes a folder; what cannot be removed is said.
pub(crate) fn remove(folder: &Path) -> bool {
    let removed = fs::remove_dir_all(folder);
    if let Err(error) = &removed {
        tracing::warn!(folder = %folder.display(), %error, "an old incident stays: it cannot be removed");
    }
    removed.is_ok()
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
    use gpuvitals_rig::small_disk::SmallDisk;

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
        assert!(matches!(folder.list(), Err(FlightError::NoRing { .. })), "no recorder was here");
        fs::create_dir(place::ring(directory.path())).unwrap();
        assert!(folder.list().unwrap().is_empty(), "nothing is there yet");
        let incidents = place::incidents(directory.path());
        let [empty, later, torn, wrong] = [0, 1, 2, 3].map(|second| id_of("xid", second * time::SECOND_NS));
        for name in [&empty, &later, &format!("{torn}.part"), &wrong] {
            fs::create_dir_all(incidents.join(name)).unwrap();
        }
        let strange = [
            ".hidden",
            "a b",
            "x\u{1b}[31m",
            "xid",
            "of-node-17",
            "20261130T031459-xid",
            "20261130T031459Zxid",
        ];
        for name in strange {
            fs::create_dir(incidents.join(name)).unwrap();
        }
        fs::write(incidents.join("20261130T031459Z-file"), "").unwrap();
        std::os::unix::fs::symlink("/etc", incidents.join("20261130T031459Z-link")).unwrap();
        fs::write(incidents.join(&later).join(ABOUT), r#"{"schema":2}"#).unwrap();
        fs::write(incidents.join(&wrong).join(ABOUT), "[[[[").unwrap();
        let listed: Vec<_> =
            folder.list().unwrap().into_iter().map(|entry| (entry.id, entry.state)).collect();
        let names: Vec<_> = listed.iter().map(|(id, _)| id).collect();
        assert_eq!(names, [&empty, &later, &torn, &wrong]);
        assert!(matches!(listed[0].1, IncidentState::Unreadable(FlightError::Io { .. })));
        assert!(matches!(listed[1].1, IncidentState::Unreadable(FlightError::Later { schema: 2, .. })));
        assert!(matches!(listed[2].1, IncidentState::Torn));
        assert!(matches!(listed[3].1, IncidentState::Unreadable(FlightError::Json { .. })));
        for id in ["20261130T031459Z-link", "20261130T031459Z-file", "../..", "nothing", "torn.part"] {
            assert!(folder.read(id).is_err(), "{id}");
        }
        assert!(matches!(folder.read(&torn), Err(FlightError::Torn { .. })));
        folder.prune(0, &wrong);
        assert!(strange.iter().all(|name| incidents.join(name).is_dir()));
    }

    #[test]
    fn a_link_among_incidents_or_their_files_leads_nowhere() {
        let (directory, folder, ids) = with_incidents(0..1);
        let elsewhere = tempfile::tempdir().unwrap();
        let secret = elsewhere.path().join("secret");
        fs::write(&secret, "of another user").unwrap();
        fs::write(elsewhere.path().join(ABOUT), "{}").unwrap();
        let link = id_of("link", 0);
        std::os::unix::fs::symlink(elsewhere.path(), place::incidents(directory.path()).join(&link)).unwrap();
        assert!(matches!(folder.files(&link), Err(FlightError::Unknown { .. })));
        assert!(matches!(folder.read(&link), Err(FlightError::Unknown { .. })));
        let whole = folder.path(&ids[0]).unwrap();
        std::os::unix::fs::symlink(&secret, whole.join("link")).unwrap();
        fs::create_dir(whole.join("folder")).unwrap();
        fs::write(whole.join("rows"), "its own").unwrap();
        let files = folder.files(&ids[0]).unwrap();
        let [BundlePart::File { path, file }] = &files[..] else { panic!("{files:?}") };
        assert_eq!(*path, whole.join("rows"));
        // What the name leads to later is another file.
        fs::remove_file(path).unwrap();
        std::os::unix::fs::symlink(&secret, path).unwrap();
        let mut text = String::new();
        let mut source = file;
        source.read_to_string(&mut text).unwrap();
        assert_eq!(text, "its own");
    }

    /// A directory with incidents of these seconds.
    fn with_incidents(seconds: std::ops::Range<i64>) -> (tempfile::TempDir, FlightFolder, Vec<String>) {
        let directory = tempfile::tempdir().unwrap();
        let folder = FlightFolder::of(directory.path());
        let ids: Vec<String> =
            seconds.map(|second| folder.free_id("xid", second * time::SECOND_NS)).collect();
        for id in &ids {
            fs::create_dir_all(folder.path(id).unwrap()).unwrap();
        }
        (directory, folder, ids)
    }

    #[test]
    fn the_oldest_go_first_and_the_one_just_written_stays() {
        let (_directory, folder, ids) = with_incidents(0..5);
        assert_eq!(folder.free_id("xid", 0), format!("{}-2", ids[0]));
        assert_eq!(folder.prune(3, &ids[4]), ids[..2]);
        assert!(folder.prune(3, &ids[4]).is_empty());
        // One of a clock that was set back is the oldest by its name.
        assert_eq!(folder.prune(1, &ids[2]), ids[3..]);
        assert_eq!(folder.prune(0, &ids[2]), [""; 0]);
    }

    #[test]
    fn what_cannot_be_removed_stays_and_the_next_goes() {
        let (_directory, folder, ids) = with_incidents(0..3);
        let busy = folder.path(&ids[0]).unwrap().join("busy");
        // A folder in use by a mount cannot be removed even by root.
        let Some(_disk) = SmallDisk::mount(&busy, "1m") else { return };
        assert_eq!(folder.prune(1, &ids[2]), ids[1..2]);
        assert!(busy.is_dir());
    }

    #[test]
    fn what_a_killed_writer_has_left_goes_when_it_is_old() {
        let (directory, folder, ids) = with_incidents(0..1);
        let incidents = place::incidents(directory.path());
        let hours_ago = std::time::UNIX_EPOCH + Duration::from_hours(1);
        for (second, is_old) in [(1, true), (2, false)] {
            let part = incidents.join(format!("{}{PART}", id_of("dump", second * time::SECOND_NS)));
            fs::create_dir(&part).unwrap();
            if is_old {
                fs::File::open(&part).unwrap().set_modified(hours_ago).unwrap();
            }
        }
        assert_eq!(folder.prune(3, &ids[0]), [id_of("dump", time::SECOND_NS)]);
        let left: Vec<String> = folder.list().unwrap().into_iter().map(|entry| entry.id).collect();
        assert_eq!(left, [ids[0].clone(), id_of("dump", 2 * time::SECOND_NS)]);
    }
}
