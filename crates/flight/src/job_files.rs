//! The files of the incidents of jobs: `jobs/ID/incident.json`, `NODE.window` and `NODE.rest`, of a node with a cluster
//! `CLUSTER@NODE`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpuvitals_core::causes;
use gpuvitals_log::{DirectoryLock, Fresh, make_directory, open_file};

use crate::error::{FlightError, JobError};
use crate::folder::{ABOUT, id_of, is_stamped, remove};
use crate::job_incident::{JOB_SCHEMA, JobIncident, WindowPart};

/// What a file is called until it has its place.
const FRESH: &str = ".tmp";
/// Name of the directory below that of the flight recorder.
const NAME: &str = "jobs";
/// Longest `incident.json` of a job: some megabytes are those of a thousand nodes with eight GPUs.
const JOB_LEN_MAX: u64 = 64 << 20;

/// The incidents by id.
pub(crate) type ById = BTreeMap<String, Arc<JobIncident>>;

/// The directory, which is this process's.
#[derive(Debug)]
pub(crate) struct JobFiles {
    lock: DirectoryLock,
    /// Files that are written have names of their own.
    fresh: AtomicU64,
}

impl JobFiles {
    /// Takes the directory, and reads what is there. What cannot be read stays, and the log says so; what a killed process has left
    /// goes.
    pub(crate) fn open(directory: &Path) -> Result<(Self, ById), FlightError> {
        let lock = DirectoryLock::take(&directory.join(NAME))?;
        let files = Self { lock, fresh: AtomicU64::new(0) };
        let root = files.root();
        let mut kept = ById::new();
        for entry in fs::read_dir(root).map_err(FlightError::io("list", root))? {
            let entry = entry.map_err(FlightError::io("list", root))?;
            // A link may lead anywhere.
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let name = entry.file_name().into_string().ok();
            let Some(id) = name.filter(|name| is_folder && is_stamped(name)) else { continue };
            files.sweep(&id);
            match files.read(&id) {
                Ok(incident) => {
                    kept.insert(id, Arc::new(incident));
                }
                // It was cut off when it began: nobody was told its id.
                Err(FlightError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    remove(&root.join(&id));
                }
                Err(error) => {
                    tracing::warn!(id, error = causes(&error), "an incident of a job cannot be read");
                }
            }
        }
        Ok((files, kept))
    }

    fn root(&self) -> &Path {
        self.lock.directory()
    }

    /// Removes files of an incident that have not come to their place.
    fn sweep(&self, id: &str) {
        let entries = fs::read_dir(self.root().join(id)).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            if path.extension().is_some_and(|end| end == FRESH.trim_start_matches('.')) {
                // What cannot be removed is overwritten some day.
                let _removed = fs::remove_file(path);
            }
        }
    }

    fn read(&self, id: &str) -> Result<JobIncident, FlightError> {
        let path = self.root().join(id).join(ABOUT);
        let file = open_file(&path).map_err(FlightError::io("open", &path))?;
        let mut text = Vec::new();
        file.take(JOB_LEN_MAX).read_to_end(&mut text).map_err(FlightError::io("read", &path))?;
        let foreign = |source| FlightError::Json { path: path.clone(), source };
        let mut incident: JobIncident = serde_json::from_slice(&text).map_err(foreign)?;
        incident.about_len = text.len() as u64;
        if incident.schema > JOB_SCHEMA {
            return Err(FlightError::Later { path, schema: incident.schema });
        }
        // A folder that somebody has renamed.
        if incident.id == id { Ok(incident) } else { Err(FlightError::Unknown { id: id.to_owned() }) }
    }

    /// Writes `incident.json` of an incident, whole or not at all: not if it would be too long to be read again. Answers its bytes.
    pub(crate) fn write(&self, incident: &JobIncident) -> Result<u64, JobError> {
        let folder = self.root().join(&incident.id);
        make_directory(&folder).map_err(FlightError::io("create", &folder))?;
        let path = folder.join(ABOUT);
        let text = serde_json::to_vec_pretty(incident)
            .map_err(|source| FlightError::Json { path: path.clone(), source })?;
        if text.len() as u64 > JOB_LEN_MAX {
            return Err(JobError::TooLong { what: "what is known of an incident", max: JOB_LEN_MAX });
        }
        let failed = || FlightError::io("write", &path);
        let fresh = Fresh::create_private(&path, self.beside(&incident.id)).map_err(failed())?;
        fresh.file().write_all(&text).map_err(failed())?;
        Ok(fresh.put().map_err(failed())?)
    }

    /// Removes an incident.
    pub(crate) fn remove(&self, id: &str) -> bool {
        remove(&self.root().join(id))
    }

    /// The file of what a node has sent, whether it is there or not. The names were checked.
    pub(crate) fn answer(&self, id: &str, node: &str, part: WindowPart) -> PathBuf {
        // No name has an @.
        self.root().join(id).join(format!("{}.{}", node.replace('/', "@"), part.name()))
    }

    /// A new name for a file of an incident until it has its place.
    pub(crate) fn beside(&self, id: &str) -> PathBuf {
        let number = self.fresh.fetch_add(1, Ordering::Relaxed);
        self.root().join(id).join(format!("{number}{FRESH}"))
    }

    /// An id that no incident has.
    pub(crate) fn free_id(&self, kind: &str, at_ns: i64) -> String {
        let stem = id_of(kind, at_ns);
        let is_free = |id: &String| !self.root().join(id).exists();
        let numbered = (2..1_000).map(|number| format!("{stem}-{number}"));
        std::iter::once(stem.clone()).chain(numbered).find(is_free).unwrap_or(stem)
    }
}
