//! What a recording says of itself beside its rows, finished or not: its facts and its marks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuvitals_core::Table;
use parquet::file::metadata::KeyValue;

use crate::directory::{self, MARKS, marks_journal, state, table_file};
use crate::error::RecordError;
use crate::marks::{RecordedMark, RecordedMarks};
use crate::part;

/// Before each key of ours in a footer.
const PREFIX: &str = "gpuvitals.";

/// The facts of a recording by their keys: those of its footers, without `gpuvitals.`; of one that was not ended, what was
/// known when it began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordingFacts(BTreeMap<String, String>);

impl RecordingFacts {
    /// Of the recording in a directory.
    ///
    /// # Errors
    /// If the directory holds none, or its footer cannot be read.
    pub fn read(directory: &Path) -> Result<Self, RecordError> {
        let (whole, unfinished) = state(directory);
        if unfinished {
            // Lost in a power cut, perhaps: the rows may still be there.
            let about = directory::about(directory);
            return Ok(Self::of(about.iter().flat_map(directory::About::facts)));
        }
        if !whole {
            return Err(RecordError::no_recording(directory));
        }
        let facts = part::facts(&table_file(directory, Table::GpuEvents))?;
        Ok(Self::of(facts))
    }

    fn of(facts: impl IntoIterator<Item = KeyValue>) -> Self {
        let own = |fact: KeyValue| Some((fact.key.strip_prefix(PREFIX)?.to_owned(), fact.value?));
        Self(facts.into_iter().filter_map(own).collect())
    }

    /// A fact: `node`, `started`, `rate_hz`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Time between two samples, by a fact that is a rate: `rate_hz`, `system_rate_hz`. None: not known.
    pub fn interval(&self, key: &str) -> Option<Duration> {
        let rate: f64 = self.get(key)?.parse().ok()?;
        Duration::try_from_secs_f64(1.0 / rate).ok().filter(|interval| !interval.is_zero())
    }

    /// All of them, by key.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

/// Refuses recordings among which one is twice, also as a copy: its rows would count twice.
///
/// # Errors
/// If one is, or if what one says of itself cannot be read.
pub fn refuse_twice(directories: &[PathBuf]) -> Result<(), RecordError> {
    let mut known: BTreeMap<(Option<String>, String), &Path> = BTreeMap::new();
    for directory in directories {
        let facts = RecordingFacts::read(directory)?;
        // Lost in a power cut, perhaps: then nobody can say.
        let Some(started) = facts.get("started_ns") else { continue };
        let begin = (facts.get("node").map(str::to_owned), started.to_owned());
        if let Some(earlier) = known.insert(begin, directory) {
            return Err(RecordError::Twice { path: directory.clone(), earlier: earlier.to_owned() });
        }
    }
    Ok(())
}

/// The marks of a recording, finished or not, one by one.
///
/// # Errors
/// If they cannot be opened.
pub fn marks_of(directory: &Path) -> Result<RecordedMarks, RecordError> {
    let (_, unfinished) = state(directory);
    let path = if unfinished { marks_journal(directory) } else { directory.join(MARKS) };
    if !path.exists() {
        return Ok(RecordedMarks::nothing());
    }
    if unfinished { RecordedMarks::of_journal(&path) } else { RecordedMarks::of_file(&path) }
}

/// The first marks of a recording in the order in which they were set, and how many it has.
///
/// # Errors
/// If they cannot be read.
pub fn recorded_marks(directory: &Path, most: usize) -> Result<(Vec<RecordedMark>, u64), RecordError> {
    let (mut first, mut count) = (Vec::new(), 0);
    for mark in marks_of(directory)? {
        let mark = mark?;
        count += 1;
        if first.len() < most {
            first.push(mark);
        }
    }
    Ok((first, count))
}
