//! Marks: events that a program reports (a phase, a step, a kernel), with the time on both clocks.
//!
//! They are kept in a journal of their own (`unfinished/marks.rows`) whose payload is
//! `timestamp_ns i64 | monotonic_ns i64 | the bytes of a mark` (`mark.rs`), and become `marks.parquet` at the end.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::vec::IntoIter;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array as _, ArrayRef, Float64Array, Int64Array, PrimitiveArray, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use gpuvitals_core::batch::{MONOTONIC_COLUMN, TIMESTAMP_COLUMN};
use gpuvitals_core::clock::Moment;
use gpuvitals_log::Fresh;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use parquet::file::metadata::KeyValue;

use crate::checksums::SummedWriter;
use crate::error::RecordError;
use crate::journal::{Journal, Records};
use crate::mark::MarkContent;
use crate::part;
use crate::table_file::with_numbers;

/// Most marks of a recording; later ones are counted and dropped.
pub const MARKS_MAX: u64 = 1_000_000;
/// Rows of a row group of `marks.parquet`.
const GROUP_ROWS: usize = 16_384;
const TEXT_COLUMN: &str = "text";
const PHASE_COLUMN: &str = "phase";
const STEP_COLUMN: &str = "step";
const VALUE_NAME_COLUMN: &str = "value_name";
const VALUE_COLUMN: &str = "value";

/// A mark of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedMark {
    /// When it was set, nanoseconds UTC since 1970.
    pub timestamp_ns: i64,
    /// The same moment on the kernel's monotonic clock.
    pub monotonic_ns: i64,
    /// What the program said.
    pub content: MarkContent,
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
    pub(crate) fn put(&self, content: MarkContent, now: Moment) -> Result<bool, RecordError> {
        // Counted under the lock, so that no two exceed the bound together.
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        if self.taken.load(Ordering::Relaxed) >= self.most {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return Ok(false);
        }
        let bytes = content.kept().to_bytes();
        journal.append(&[&now.wall_ns.to_le_bytes(), &now.mono_ns.to_le_bytes(), &bytes]).inspect_err(
            |_| {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            },
        )?;
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
    let schema = schema();
    let fresh = Fresh::create(target).map_err(RecordError::io("create", target))?;
    let broken =
        |error: ArrowError| RecordError::Parquet { path: fresh.path().to_owned(), source: error.into() };
    let mut writer = SummedWriter::begin(&fresh, &schema, facts)?;
    let mut records = Records::open(journal)?;
    let (mut marks, mut count) = (Vec::new(), 0);
    loop {
        let payload = records.next()?;
        let is_end = payload.is_none();
        if let Some(payload) = payload {
            marks.push(mark_of(payload).ok_or_else(|| strange(journal))?);
            count += 1;
        }
        if marks.len() >= GROUP_ROWS || (is_end && !marks.is_empty()) {
            writer.write(&rows(&schema, &std::mem::take(&mut marks)).map_err(broken)?)?;
            writer.end_group()?;
        }
        if is_end {
            break;
        }
    }
    writer.close()?;
    Ok((fresh, count, records.left()))
}

/// The marks of a recording one by one, in the order in which they arrived: those of several programs may not be in that of their
/// times.
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

    /// The marks of a finished recording, from `marks.parquet`.
    pub(crate) fn of_file(path: &Path) -> Result<Self, RecordError> {
        let batches = Box::new(part::open_plain(path)?);
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
                let own = schema();
                let wanted = |name: &str| Some(own.field_with_name(name).ok()?.data_type().clone());
                let records = records.and_then(|it| with_numbers(it, wanted)).map_err(broken)?;
                *ready = marks_in(&records).ok_or_else(|| strange(path))?.into_iter();
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
    RecordError::Directory {
        path: path.to_owned(),
        what: "holds no marks, though it has their name; move it away",
    }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new(TIMESTAMP_COLUMN, DataType::Int64, false),
        Field::new(MONOTONIC_COLUMN, DataType::Int64, false),
        Field::new(TEXT_COLUMN, DataType::Utf8, false),
        Field::new(PHASE_COLUMN, DataType::Utf8, true),
        Field::new(STEP_COLUMN, DataType::Int64, true),
        Field::new(VALUE_NAME_COLUMN, DataType::Utf8, true),
        Field::new(VALUE_COLUMN, DataType::Float64, true),
    ]))
}

/// Marks as rows of the file.
fn rows(schema: &SchemaRef, marks: &[RecordedMark]) -> Result<RecordBatch, ArrowError> {
    let contents = || marks.iter().map(|mark| &mark.content);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(marks.iter().map(|mark| Some(mark.timestamp_ns)).collect::<Int64Array>()),
        Arc::new(marks.iter().map(|mark| Some(mark.monotonic_ns)).collect::<Int64Array>()),
        Arc::new(contents().map(|content| Some(content.text.as_str())).collect::<StringArray>()),
        Arc::new(contents().map(|content| content.phase.as_deref()).collect::<StringArray>()),
        Arc::new(contents().map(|content| content.step).collect::<Int64Array>()),
        Arc::new(contents().map(|content| content.value_name.as_deref()).collect::<StringArray>()),
        Arc::new(contents().map(|content| content.value).collect::<Float64Array>()),
    ];
    RecordBatch::try_new(Arc::clone(schema), columns)
}

/// The marks of a batch of the file; none if they are none.
fn marks_in(records: &RecordBatch) -> Option<Vec<RecordedMark>> {
    let columns = MarkColumns::of(records)?;
    Some((0..records.num_rows()).map(|row| columns.mark(row)).collect())
}

/// The mark of a record of the journal; none if it is none.
fn mark_of(payload: &[u8]) -> Option<RecordedMark> {
    let (time, rest) = payload.split_first_chunk::<8>()?;
    let (clock, content) = rest.split_first_chunk::<8>()?;
    Some(RecordedMark {
        timestamp_ns: i64::from_le_bytes(*time),
        monotonic_ns: i64::from_le_bytes(*clock),
        content: MarkContent::of_bytes(content).unwrap_or_default(),
    })
}

/// The columns of a batch of marks. A file of an older version has the first three alone.
struct MarkColumns<'a> {
    wall: &'a PrimitiveArray<Int64Type>,
    clock: &'a PrimitiveArray<Int64Type>,
    texts: &'a StringArray,
    phases: Option<&'a StringArray>,
    steps: Option<&'a PrimitiveArray<Int64Type>>,
    value_names: Option<&'a StringArray>,
    values: Option<&'a PrimitiveArray<Float64Type>>,
}

impl<'a> MarkColumns<'a> {
    fn of(records: &'a RecordBatch) -> Option<Self> {
        let whole = |name| records.column_by_name(name)?.as_primitive_opt::<Int64Type>();
        let texts = |name| records.column_by_name(name)?.as_string_opt::<i32>();
        Some(Self {
            wall: whole(TIMESTAMP_COLUMN)?,
            clock: whole(MONOTONIC_COLUMN)?,
            texts: texts(TEXT_COLUMN)?,
            phases: texts(PHASE_COLUMN),
            steps: whole(STEP_COLUMN),
            value_names: texts(VALUE_NAME_COLUMN),
            values: records
                .column_by_name(VALUE_COLUMN)
                .and_then(|column| column.as_primitive_opt::<Float64Type>()),
        })
    }

    fn mark(&self, row: usize) -> RecordedMark {
        let text = |column: Option<&StringArray>| {
            column.filter(|texts| texts.is_valid(row)).map(|texts| texts.value(row).to_owned())
        };
        RecordedMark {
            timestamp_ns: self.wall.value(row),
            monotonic_ns: self.clock.value(row),
            content: MarkContent {
                text: text(Some(self.texts)).unwrap_or_default(),
                phase: text(self.phases),
                step: self.steps.filter(|steps| steps.is_valid(row)).map(|steps| steps.value(row)),
                value_name: text(self.value_names),
                value: self.values.filter(|values| values.is_valid(row)).map(|values| values.value(row)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mark::MARK_LEN_MAX;

    #[test]
    fn marks_beyond_the_bound_are_counted_and_long_ones_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("marks.rows");
        let marks = Marks::new(Journal::create(path.clone()).unwrap(), 2);
        let now = Moment { wall_ns: 7, mono_ns: 8 };
        assert!(marks.put("ü".repeat(MARK_LEN_MAX).into(), now).unwrap());
        assert!(marks.put("epoch 1".into(), now).unwrap());
        assert!(!marks.put("one too many".into(), now).unwrap());
        assert_eq!(marks.counts(), (2, 1));
        let kept: Vec<RecordedMark> = RecordedMarks::of_journal(&path).unwrap().map(Result::unwrap).collect();
        assert_eq!((kept[0].timestamp_ns, kept[0].monotonic_ns, kept.len()), (7, 8, 2));
        assert_eq!(kept[0].content.text.len(), MARK_LEN_MAX);
        assert_eq!(kept[1].content, MarkContent::from("epoch 1"));
    }
}
