//! Recorded telemetry as a source: CSV files in the wide or the long (DCGM) form, replayed.
//!
//! The header decides: names are mapped by the catalogue ([`gpuvitals_core::foreign::meaning`]), columns it
//! does not know are kept under their own name. A file with the columns `metric_name` and `value` is in the
//! long form; its adjacent rows with one GPU and one time fill one row of a batch, the others merge
//! downstream.
//!
//! Input may be compressed with gzip, begin with a byte order mark, end lines with `\r\n`, quote fields
//! according to RFC 4180, and separate them with comma, semicolon or tab. It is streamed: whatever the file,
//! memory stays at about one megabyte for the reader, eight for known GPUs, and one batch.
//!
//! A bad row is skipped, counted and reported; a bad value is left out of its row, counted and reported
//! ([`CsvSource::counts`], [`CsvSource::drain_reports`]). Only a file that cannot be read at all is an error.

mod cell;
mod error;
mod header;
mod input;
mod labels;
mod messages;
mod rows;
mod split;
mod subject;
pub mod write;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpuvitals_core::ports::{Poll, Source};
use gpuvitals_core::{Batch, Origin};

use crate::replay::ReplayConfig;
use crate::replay::report::{Cause, Counts, Ledger, Report};
use crate::replay::timeline::Timeline;

pub use error::CsvError;
pub use header::CsvForm;
pub use input::CsvInput;

use header::{Plan, Unfit};
use rows::RowBuilder;
use split::{FIELD_LEN_MAX, FIELDS_MAX, RECORD_LEN_MAX, SplitStep, Splitter};

/// Most bytes of input in one batch, and most that one call of `poll` processes.
const BATCH_INPUT_LEN_MAX: usize = 4 << 20;

/// A CSV file as a source of batches.
#[derive(Debug)]
pub struct CsvSource {
    file: Arc<str>,
    config: ReplayConfig,
    origin: Origin,
    records: Splitter,
    rows: RowBuilder,
    timeline: Timeline,
    ledger: Ledger,
    /// Bytes taken in this pass, and in those before it.
    taken: Arc<AtomicU64>,
    taken_before: u64,
    /// Reopened for the next pass.
    again: Option<PathBuf>,
    /// A stream hands over its rows before it waits for more.
    stream: bool,
    sequence: u64,
    /// When the batch under construction got its first row, and its bytes so far.
    batch_since_ns: i64,
    batch_input_len: usize,
    pass_taken: u64,
    /// The current record waits for its time.
    held: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    Running,
    Ended,
    Failed(CsvError),
}

impl CsvSource {
    /// Opens an input and reads its header. `now_ns` (nanoseconds UTC since 1970) is when the replay starts.
    ///
    /// # Errors
    /// If it cannot be opened, is empty, is not text, has no header, names no GPU or no metric, should loop
    /// although it can be read only once, or a setting makes no sense.
    pub fn open(input: impl Into<CsvInput>, config: ReplayConfig, now_ns: i64) -> Result<Self, CsvError> {
        let input = input.into();
        let file: Arc<str> = input.name().into();
        config.check()?;
        let (records, plan, opened) = open(input, &file)?;
        if config.loop_file && opened.again.is_none() {
            return Err(CsvError::NoLoop { file });
        }
        let mut ledger = Ledger::new(Arc::clone(&file), "line");
        ledger.counts.bytes_total = opened.total;
        Ok(Self {
            origin: Origin { node: Arc::clone(&config.node), started_ns: now_ns },
            timeline: Timeline::new(config.replay, config.speed, config.pace, now_ns),
            rows: RowBuilder::new(plan, config.messages),
            config,
            records,
            ledger,
            taken: opened.taken,
            taken_before: 0,
            stream: opened.total.is_none(),
            again: opened.again,
            file,
            sequence: 0,
            batch_since_ns: now_ns,
            batch_input_len: 0,
            pass_taken: 0,
            held: false,
            state: State::Running,
        })
    }

    /// Wide or long.
    pub fn form(&self) -> CsvForm {
        self.rows.plan().form
    }

    /// The rows of the batch that was handed over last as messages ([`gpuvitals_core::message`]) with the file's own names
    /// and values, once. None unless the configuration asks for them.
    pub fn messages(&mut self) -> Option<Vec<serde_json::Value>> {
        self.rows.messages()
    }

    /// Counts of the rows so far.
    pub fn counts(&self) -> Counts {
        let bytes_read = self.taken_before + self.taken.load(Ordering::Relaxed);
        let mut counts = self.ledger.counts.clone();
        counts.bytes_read = bytes_read;
        counts
    }

    /// The reports since the last call: the first [`REPORTS_MAX`](crate::replay::REPORTS_MAX) of each cause, in order. The rest is only
    /// counted.
    pub fn drain_reports(&mut self) -> Vec<Report> {
        self.ledger.drain()
    }

    fn hand_over(&mut self) -> Option<Batch> {
        self.batch_input_len = 0;
        let batch = self.rows.finish(self.origin.clone(), self.sequence + 1)?;
        self.sequence += 1;
        Some(batch)
    }

    /// The rows so far, or nothing before `due_ns`.
    fn wait(&mut self, now_ns: i64, due_ns: i64) -> Poll {
        let ripe_ns = self.batch_since_ns.saturating_add(self.config.batch_age_ns);
        if self.rows.len() == 0 {
            return Poll::NotBefore(due_ns);
        }
        if now_ns < ripe_ns {
            return Poll::NotBefore(due_ns.min(ripe_ns));
        }
        self.hand_over().map_or(Poll::NotBefore(due_ns), Poll::Ready)
    }

    /// The end of a pass: starts the next one, or ends.
    fn turn(&mut self, now_ns: i64) -> Result<(), CsvError> {
        self.ledger.counts.passes += 1;
        // A pass without rows would be repeated for ever.
        let Some(path) = self.again.clone().filter(|_| self.config.loop_file && self.pass_taken > 0) else {
            self.state = State::Ended;
            return Ok(());
        };
        let (records, plan, opened) = open(CsvInput::File(path), &self.file)?;
        self.taken_before += self.taken.load(Ordering::Relaxed);
        self.taken = opened.taken;
        self.ledger.counts.bytes_total = opened.total;
        self.records = records;
        self.rows.go_on_with(plan);
        self.pass_taken = 0;
        self.timeline.next_pass(now_ns);
        Ok(())
    }

    /// Processes the current record; `Some` if it must wait.
    fn record(&mut self, now_ns: i64) -> Option<i64> {
        let line = self.records.record_line();
        if !self.held {
            self.ledger.counts.rows_read += 1;
        }
        self.held = false;
        let outcome = match self.rows.check(&self.records, now_ns) {
            Ok(recorded_ns) => {
                let due_ns = self.timeline.due(recorded_ns);
                if due_ns > now_ns {
                    self.held = true;
                    return Some(due_ns);
                }
                let time_ns = if self.rows.is_timed() { self.timeline.publish(recorded_ns) } else { now_ns };
                if self.rows.len() == 0 {
                    self.batch_since_ns = now_ns;
                }
                self.rows.take(&self.records, time_ns, &mut self.ledger)
            }
            Err(refusal) => Err(refusal),
        };
        match outcome {
            Ok(true) => {
                self.ledger.counts.rows_taken += 1;
                self.pass_taken += 1;
                self.timeline.taken(now_ns);
            }
            Ok(false) => {}
            Err(refusal) => {
                let column =
                    refusal.column.and_then(|c| self.rows.plan().columns.get(c)).map(|c| c.name.as_str());
                self.ledger.skip(refusal.cause, line, column, refusal.reason);
            }
        }
        None
    }

    fn skip(&mut self, cause: Cause, field: usize, reason: String) {
        let column = self.rows.plan().columns.get(field).map(|c| c.name.as_str());
        self.ledger.counts.rows_read += 1;
        self.ledger.skip(cause, self.records.record_line(), column, reason);
    }

    /// Moves to the next record and processes it; `Some` if the call must return.
    fn advance(&mut self, now_ns: i64) -> Option<Result<Poll, CsvError>> {
        let step = if self.held { SplitStep::Record } else { self.records.step() };
        match step {
            SplitStep::Record => return self.record(now_ns).map(|due_ns| Ok(self.wait(now_ns, due_ns))),
            SplitStep::Oversize { field, field_len, record_len } => {
                let reason = if field_len > FIELD_LEN_MAX {
                    format!("field of {field_len} bytes, more than {FIELD_LEN_MAX}")
                } else if record_len >= RECORD_LEN_MAX {
                    format!("row of {record_len} bytes, not less than {RECORD_LEN_MAX}")
                } else {
                    format!("more than {FIELDS_MAX} fields")
                };
                self.skip(Cause::Oversize, field, reason);
            }
            SplitStep::Unclosed { field } => {
                self.skip(Cause::Quote, field, "the quoted field is never closed".to_owned());
            }
            SplitStep::NeedInput => {
                if self.stream
                    && self.rows.len() > 0
                    && let Some(batch) = self.hand_over()
                {
                    return Some(Ok(Poll::Ready(batch)));
                }
                match self.records.fill() {
                    Ok(read) => self.batch_input_len += read,
                    Err(source) => {
                        let (file, line) = (Arc::clone(&self.file), self.records.record_line());
                        self.state = State::Failed(CsvError::Read { file, line, source });
                    }
                }
            }
            SplitStep::End => {
                if let Err(error) = self.turn(now_ns) {
                    self.state = State::Failed(error);
                }
            }
        }
        None
    }
}

impl Source for CsvSource {
    type Error = CsvError;

    fn poll(&mut self, now_ns: i64) -> Result<Poll, CsvError> {
        loop {
            if !matches!(self.state, State::Running) {
                if let Some(batch) = self.hand_over() {
                    return Ok(Poll::Ready(batch));
                }
                return match std::mem::replace(&mut self.state, State::Ended) {
                    State::Failed(error) => Err(error),
                    _ => Ok(Poll::End),
                };
            }
            let full = self.rows.len() >= self.config.batch_rows;
            if full || self.batch_input_len >= BATCH_INPUT_LEN_MAX {
                return Ok(self.hand_over().map_or(Poll::NotBefore(now_ns), Poll::Ready));
            }
            let due_ns = self.timeline.next_due();
            if due_ns > now_ns {
                return Ok(self.wait(now_ns, due_ns));
            }
            if let Some(outcome) = self.advance(now_ns) {
                return outcome;
            }
        }
    }
}

/// Opens an input and reads its header.
fn open(input: CsvInput, file: &Arc<str>) -> Result<(Splitter, Plan, input::Opened), CsvError> {
    let mut opened =
        input::open(input).map_err(|source| CsvError::Open { file: Arc::clone(file), source })?;
    let bytes = std::mem::replace(&mut opened.bytes, Box::new(std::io::empty()));
    let mut records = Splitter::new(bytes);
    let plan = header(&mut records, file)?;
    Ok((records, plan, opened))
}

fn header(records: &mut Splitter, file: &Arc<str>) -> Result<Plan, CsvError> {
    let file = || Arc::clone(file);
    let line_is_there = |ahead: &[u8]| {
        let text = ahead.iter().position(|b| !matches!(b, b'\n' | b'\r')).and_then(|at| ahead.get(at..));
        text.is_some_and(|text| memchr::memchr2(b'\n', b'\r', text).is_some())
    };
    while !line_is_there(records.ahead()) && records.ahead().len() <= RECORD_LEN_MAX {
        let read = records.fill().map_err(|source| CsvError::Read { file: file(), line: 1, source })?;
        if read == 0 {
            break;
        }
    }
    let binary = |what| CsvError::Binary { file: file(), line: 1, what };
    if !line_is_there(records.ahead()) && records.ahead().len() > RECORD_LEN_MAX {
        let nul = memchr::memchr(0, records.ahead()).is_some();
        return Err(if nul {
            binary("it has NUL bytes")
        } else {
            CsvError::HeaderTooLong { file: file(), line: 1 }
        });
    }
    if records.ahead().starts_with(b"\xff\xfe") || records.ahead().starts_with(b"\xfe\xff") {
        return Err(binary("UTF-16; convert it with iconv -f UTF-16 -t UTF-8"));
    }
    if records.ahead().starts_with(b"\xef\xbb\xbf") {
        records.pass_over(3);
    }
    let first = records.ahead().iter().position(|b| !matches!(b, b'\n' | b'\r')).unwrap_or(0);
    records.set_delimiter(header::delimiter(records.ahead().get(first..).unwrap_or_default()));
    let step = loop {
        match records.step() {
            SplitStep::NeedInput if records.ahead().len() <= RECORD_LEN_MAX => {
                records.fill().map_err(|source| CsvError::Read { file: file(), line: 1, source })?;
            }
            step => break step,
        }
    };
    let line = records.record_line();
    if memchr::memchr(0, records.text()).is_some() {
        return Err(CsvError::Binary { file: file(), line, what: "it has NUL bytes" });
    }
    match step {
        SplitStep::End => return Err(CsvError::Empty { file: file() }),
        SplitStep::Record => {}
        _ => return Err(CsvError::HeaderTooLong { file: file(), line }),
    }
    let names: Result<Vec<String>, _> =
        (0..records.len()).map(|i| String::from_utf8(records.field(i).to_vec())).collect();
    let names = names.map_err(|_| CsvError::Binary { file: file(), line, what: "it is not UTF-8" })?;
    let columns = || names.join(", ").escape_debug().take(400).collect();
    Plan::new(&names).map_err(|unfit| match unfit {
        Unfit::Data(field) => CsvError::NoHeader { file: file(), line, field },
        Unfit::NoGpu => CsvError::NoGpu { file: file(), line, columns: columns() },
        Unfit::NoMetric => CsvError::NoMetric { file: file(), line, columns: columns() },
    })
}
