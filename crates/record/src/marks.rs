//! Marks: events that a program reports (a phase, a step, a kernel), with the time on both clocks.
//!
//! They are kept in a journal of their own (`unfinished/marks.rows`) whose payload is
//! `timestamp_ns i64 | monotonic_ns i64 | text`, and become `marks.parquet` at the end.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::vec::IntoIter;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use gpuvitals_core::batch::{MONOTONIC_COLUMN, TIMESTAMP_COLUMN};
use gpuvitals_core::clock::Moment;
use gpuvitals_log::Fresh;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use parquet::file::metadata::KeyValue;

use crate::error::RecordError;
use crate::journal::{Journal, Records};
use crate::layout::properties;
use crate::part;

/// Longest text of a mark, in bytes; longer ones are cut.
pub const MARK_LEN_MAX: usize = 1_024;
/// Most marks of a recording; later ones are counted and dropped.
pub const MARKS_MAX: u64 = 1_000_000;
/// Rows of a row group of `marks.parquet`.
const GROUP_ROWS: usize = 16_384;

/// A mark of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedMark {
    /// When it was set, nanoseconds UTC since 1970.
    pub timestamp_ns: i64,
    /// The same moment on the kernel's monotonic clock.
    pub monotonic_ns: i64,
    /// What the program said.
    pub text: String,
}

/// Takes the marks of a running recording.
#[derive(Debug)]
pub(crate) struct Marks {
    journal: Mutex<Journal>,
    taken: AtomicU64,
    dropped: AtomicU64,
    most: u64,
}

impl Marks {
    pub(crate) fn new(journal: Journal, most: u64) -> Self {
        Self { journal: Mutex::new(journal), taken: AtomicU64::new(0), dropped: AtomicU64::new(0), most }
    }

    /// Writes a mark. Beyond the bound it is counted and dropped, and the result is false.
    pub(crate) fn put(&self, text: &str, now: Moment) -> Result<bool, RecordError> {
        // Counted under the lock, so that no two exceed the bound together.
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        if self.taken.load(Ordering::Relaxed) >= self.most {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return Ok(false);
        }
        let text = &text[..text.floor_char_boundary(MARK_LEN_MAX)];
        journal
            .append(&[&now.wall_ns.to_le_bytes(), &now.mono_ns.to_le_bytes(), text.as_bytes()])
            .inspect_err(|_| {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            })?;
        self.taken.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Marks written, and marks dropped.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.taken.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed))
    }
}

/// Turns the journal of marks into a file, which has not its place yet. Returns with it the number of marks, and of bytes of a
/// torn tail.
pub(crate) fn finish(
    journal: &Path,
    target: &Path,
    facts: Vec<KeyValue>,
) -> Result<(Fresh, u64, u64), RecordError> {
    let schema = Arc::new(Schema::new(vec![
        Field::new(TIMESTAMP_COLUMN, DataType::Int64, false),
        Field::new(MONOTONIC_COLUMN, DataType::Int64, false),
        Field::new("text", DataType::Utf8, false),
    ]));
    let fresh = Fresh::create(target).map_err(RecordError::io("create", target))?;
    let broken = |source| RecordError::Parquet { path: fresh.path().to_owned(), source };
    let properties = properties(&schema, facts);
    let mut writer =
        ArrowWriter::try_new(fresh.file(), Arc::clone(&schema), Some(properties)).map_err(broken)?;
    let mut records = Records::open(journal)?;
    let (mut rows, mut marks) = (Rows::default(), 0);
    loop {
        let payload = records.next()?;
        let is_end = payload.is_none();
        if let Some(payload) = payload {
            rows.add(payload).ok_or_else(|| strange(journal))?;
            marks += 1;
        }
        if rows.times.len() >= GROUP_ROWS || (is_end && !rows.times.is_empty()) {
            let columns: Vec<ArrayRef> = vec![
                Arc::new(Int64Array::from(std::mem::take(&mut rows.times))),
                Arc::new(Int64Array::from(std::mem::take(&mut rows.clock))),
                Arc::new(StringArray::from(std::mem::take(&mut rows.texts))),
            ];
            let batch = RecordBatch::try_new(Arc::clone(&schema), columns).map_err(|e| broken(e.into()))?;
            writer.write(&batch).and_then(|()| writer.flush()).map_err(broken)?;
        }
        if is_end {
            break;
        }
    }
    writer.close().map_err(broken)?;
    Ok((fresh, marks, records.left()))
}

/// The marks of a recording one by one, in the order in which they were set.
#[derive(Debug)]
pub struct RecordedMarks(MarksSource);

#[derive(Debug)]
enum MarksSource {
    /// There is no file of them.
    Nothing,
    Journal(PathBuf, Box<Records>),
    File {
        path: PathBuf,
        batches: Box<ParquetRecordBatchReader>,
        ready: IntoIter<RecordedMark>,
    },
}

impl RecordedMarks {
    /// Of a recording without a file of them.
    pub(crate) fn nothing() -> Self {
        Self(MarksSource::Nothing)
    }

    /// Of a journal as it is now.
    pub(crate) fn of_journal(path: &Path) -> Result<Self, RecordError> {
        let records = Records::open(path)?;
        Ok(Self(MarksSource::Journal(path.to_owned(), Box::new(records))))
    }

    /// Of `marks.parquet`.
    pub(crate) fn of_file(path: &Path) -> Result<Self, RecordError> {
        let batches = Box::new(part::open(path)?);
        Ok(Self(MarksSource::File { path: path.to_owned(), batches, ready: Vec::new().into_iter() }))
    }

    fn read(&mut self) -> Result<Option<RecordedMark>, RecordError> {
        match &mut self.0 {
            MarksSource::Nothing => Ok(None),
            MarksSource::Journal(path, records) => {
                let mark = records.next()?.map(|payload| mark_of(payload).ok_or_else(|| strange(path)));
                mark.transpose()
            }
            MarksSource::File { path, batches, ready } => loop {
                if let Some(mark) = ready.next() {
                    return Ok(Some(mark));
                }
                let Some(records) = batches.next() else { return Ok(None) };
                let broken =
                    |error: ArrowError| RecordError::Parquet { path: path.clone(), source: error.into() };
                *ready = marks_in(&records.map_err(broken)?).ok_or_else(|| strange(path))?.into_iter();
            },
        }
    }
}

impl Iterator for RecordedMarks {
    type Item = Result<RecordedMark, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.read().transpose();
        if matches!(next, Some(Err(_))) {
            self.0 = MarksSource::Nothing;
        }
        next
    }
}

fn strange(path: &Path) -> RecordError {
    RecordError::Directory { path: path.to_owned(), what: "holds no marks" }
}

/// The marks of a batch of the file; none if they are none.
fn marks_in(records: &RecordBatch) -> Option<Vec<RecordedMark>> {
    let times = |column| records.column_by_name(column)?.as_primitive_opt::<Int64Type>();
    let (wall, clock) = (times(TIMESTAMP_COLUMN)?, times(MONOTONIC_COLUMN)?);
    let texts = records.column_by_name("text")?.as_string_opt::<i32>()?;
    let rows = wall.values().iter().zip(clock.values()).zip(texts);
    let mark = |((&timestamp_ns, &monotonic_ns), text): ((&i64, &i64), Option<&str>)| RecordedMark {
        timestamp_ns,
        monotonic_ns,
        text: text.unwrap_or_default().to_owned(),
    };
    Some(rows.map(mark).collect())
}

/// The mark of a record of the journal; none if it is none.
fn mark_of(payload: &[u8]) -> Option<RecordedMark> {
    let (time, rest) = payload.split_first_chunk::<8>()?;
    let (clock, text) = rest.split_first_chunk::<8>()?;
    Some(RecordedMark {
        timestamp_ns: i64::from_le_bytes(*time),
        monotonic_ns: i64::from_le_bytes(*clock),
        text: String::from_utf8_lossy(text).into_owned(),
    })
}

#[derive(Default)]
struct Rows {
    times: Vec<i64>,
    clock: Vec<i64>,
    texts: Vec<String>,
}

impl Rows {
    fn add(&mut self, payload: &[u8]) -> Option<()> {
        let mark = mark_of(payload)?;
        self.times.push(mark.timestamp_ns);
        self.clock.push(mark.monotonic_ns);
        self.texts.push(mark.text);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_beyond_the_bound_are_counted_and_long_ones_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("marks.rows");
        let marks = Marks::new(Journal::create(path.clone()).unwrap(), 2);
        let now = Moment { wall_ns: 7, mono_ns: 8 };
        assert!(marks.put(&"ü".repeat(MARK_LEN_MAX), now).unwrap());
        assert!(marks.put("epoch 1", now).unwrap());
        assert!(!marks.put("one too many", now).unwrap());
        assert_eq!(marks.counts(), (2, 1));
        let mut records = Records::open(&path).unwrap();
        let mut rows = Rows::default();
        while let Some(payload) = records.next().unwrap() {
            rows.add(payload).unwrap();
        }
        assert_eq!((rows.times[0], rows.clock[0]), (7, 8));
        assert_eq!((rows.texts[0].len(), rows.texts[1].as_str()), (MARK_LEN_MAX, "epoch 1"));
    }
}
