//! Recorded telemetry as a source: CSV files in the wide or the long (DCGM) form, replayed.
//!
//! Header and first rows decide: names are mapped by the user's hints, the dialect of the tool that wrote the file, and
//! the catalogue ([`gpuvitals_core::foreign`]). Columns that nobody knows, and those whose values cannot be what their name
//! says, are kept under their own name. A file with the columns `metric_name` and `value` is in the
//! long form; its adjacent rows with one GPU and one time fill one row of a batch, the others merge
//! downstream.
//!
//! Input may be compressed with gzip, begin with a byte order mark, end lines with `\r\n`, quote fields
//! according to RFC 4180, and separate them with comma, semicolon, tab or pipe. It is streamed: whatever the file,
//! memory stays at about one megabyte for the reader, eight for known GPUs, and one batch.
//!
//! A bad row is skipped, counted and reported; a bad value is left out of its row, counted and reported
//! ([`CsvSource::counts`], [`CsvSource::drain_reports`]). Only a file that cannot be read at all is an error.

mod cell;
mod decimal;
mod describe;
mod draft;
mod error;
mod fold;
mod gpustat;
mod head;
mod header;
mod hints;
mod input;
mod labels;
mod messages;
mod model;
mod numbering;
mod other;
mod owner;
mod part;
mod plan;
mod repeats;
mod rows;
mod sample;
mod series;
mod split;
mod spread;
mod stamped;
mod subject;
mod tables;
mod tail;
mod text;
mod time_name;
mod times;
mod units;
mod when;
mod whose;
pub mod write;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpuvitals_core::ports::{Poll, Source};
use gpuvitals_core::{Batch, Origin};

use crate::config::ReplayConfig;
use crate::report::{Cause, Counts, Ledger, Report};
use crate::timeline::Timeline;

pub use describe::{CsvColumn, CsvDescription};
pub use error::CsvError;
pub use hints::{ColumnHint, HintError, HintSense, Hints};
pub use input::CsvInput;
pub use plan::CsvForm;

use head::{HeadReach, InputHead};
use plan::{Plan, Surroundings};
use rows::RowBuilder;
use sample::Sample;
use split::{FIELD_LEN_MAX, FIELDS_MAX, RECORD_LEN_MAX, SplitStep, Splitter};
use tables::TableKind;
use text::TextKind;

/// Most bytes of input in one batch, and most that one call of `poll` processes.
const BATCH_INPUT_LEN_MAX: usize = 4 << 20;

/// Most different headers of one file that are remembered.
const PLANS_MAX: usize = 16;

/// A CSV file as a source of batches.
#[derive(Debug)]
pub struct CsvSource {
    file: Arc<str>,
    /// Its name, which stands for its machine, and what is between its fields.
    stem: Arc<str>,
    delimiter: u8,
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
    /// Rows of hosts, which follow those of GPUs.
    hosts: Option<Batch>,
    first_ns: Option<i64>,
    /// When the batch under construction got its first row, and its bytes so far.
    batch_since_ns: i64,
    batch_input_len: usize,
    pass_taken: u64,
    /// The recorded time of the current record, which waits for its turn.
    held: Option<i64>,
    /// The line of the last header among the rows, if it cannot be read: then the rows behind it cannot either.
    unfit_line: Option<u64>,
    /// What the columns under earlier headers are: a header that comes again means the same.
    plans: Vec<Arc<Plan>>,
    state: CsvState,
}

#[derive(Debug)]
enum CsvState {
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
        let (file, stem): (Arc<str>, String) = (input.name().into(), input.stem());
        config.check()?;
        let BegunFile { records, plan, opened, first_ns, delimiter } = open(input, &file, &config, now_ns)?;
        if config.loop_file && opened.again.is_none() {
            return Err(CsvError::NoLoop { file });
        }
        let rows = RowBuilder::new(Arc::new(plan), config.messages);
        if !rows.has_parts() {
            return Err(CsvError::Hosts { file });
        }
        let mut ledger = Ledger::new(Arc::clone(&file), "line");
        ledger.counts.bytes_total = opened.total;
        Ok(Self {
            origin: Origin { node: stem.as_str().into(), started_ns: now_ns },
            timeline: Timeline::new(config.replay, config.speed, config.pace, now_ns),
            rows,
            config,
            records,
            ledger,
            taken: opened.taken,
            taken_before: 0,
            stream: opened.total.is_none(),
            again: opened.again,
            stem: stem.into(),
            delimiter,
            file,
            sequence: 0,
            hosts: None,
            first_ns,
            batch_since_ns: now_ns,
            batch_input_len: 0,
            pass_taken: 0,
            held: None,
            unfit_line: None,
            plans: Vec::new(),
            state: CsvState::Running,
        })
    }

    /// Wide or long.
    pub fn form(&self) -> CsvForm {
        self.rows.plan().form
    }

    /// The file's name in reports.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// What the file is taken for.
    pub fn description(&self) -> CsvDescription {
        describe::describe(self.rows.plan())
    }

    /// What is left out of the file, in sentences.
    pub fn warnings(&self) -> &[String] {
        &self.rows.plan().warnings
    }

    /// What was settled that the file does not say, in sentences.
    pub fn notes(&self) -> &[String] {
        &self.rows.plan().notes
    }

    /// The first time of a row as recorded, if rows have times.
    pub fn first_ns(&self) -> Option<i64> {
        self.first_ns
    }

    /// Of several files of one time: with this recorded time the replay begins.
    pub(crate) fn begin_with(&mut self, first_ns: i64) {
        self.timeline.begin_with(first_ns);
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
        let (gpus, hosts) = self.rows.finish(&self.origin, self.sequence + 1);
        self.sequence += u64::from(gpus.is_some()) + u64::from(hosts.is_some());
        self.hosts = hosts;
        gpus.or_else(|| self.hosts.take())
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
            self.state = CsvState::Ended;
            return Ok(());
        };
        let BegunFile { records, plan, opened, .. } =
            open(CsvInput::File(path), &self.file, &self.config, now_ns)?;
        self.taken_before += self.taken.load(Ordering::Relaxed);
        self.taken = opened.taken;
        self.ledger.counts.bytes_total = opened.total;
        self.records = records;
        self.rows.go_on_with(Arc::new(plan));
        self.unfit_line = None;
        self.pass_taken = 0;
        self.timeline.next_pass(now_ns);
        Ok(())
    }

    /// The current record names other columns: what follows is read by them. If that cannot be, it is left out.
    fn begin_again(&mut self, line: u64, now_ns: i64) -> Result<(), CsvError> {
        let Some(names) = header::names(&self.records) else { return Ok(()) };
        let known = self.plans.iter().find(|plan| plan.is_of(&names)).map(Arc::clone);
        let plan = match known.map_or_else(|| self.settle_again(names, line, now_ns), Ok) {
            Ok(plan) => plan,
            Err(error @ CsvError::Read { .. }) => return Err(error),
            Err(error) => {
                let reason = format!("another header; it and the rows behind it are left out: {error}");
                self.ledger.remark(line, reason);
                self.unfit_line = Some(line);
                return Ok(());
            }
        };
        let remarks: Vec<&str> = plan.remarks().collect();
        let reason = format!("another header; the rows behind it are read by it; {}", remarks.join("; "));
        self.ledger.remark(line, reason.trim_end_matches("; ").to_owned());
        let before = self.rows.go_on_with(plan);
        if self.plans.len() < PLANS_MAX && self.plans.iter().all(|plan| plan.heads != before.heads) {
            self.plans.push(before);
        }
        self.unfit_line = None;
        Ok(())
    }

    /// Settles the columns under a header among the rows, by the rows that are read already; or why that cannot be.
    fn settle_again(&mut self, names: Vec<String>, line: u64, now_ns: i64) -> Result<Arc<Plan>, CsvError> {
        let is_row = |ahead: &[u8]| memchr::memchr2(b'\n', b'\r', ahead.trim_ascii_start()).is_some();
        while !is_row(self.records.ahead()) {
            let read = self.records.fill();
            let read =
                read.map_err(|source| CsvError::Read { file: Arc::clone(&self.file), line, source })?;
            self.batch_input_len += read;
            if read == 0 || self.records.ahead().len() > RECORD_LEN_MAX {
                break;
            }
        }
        let mut look = Splitter::new(Box::new(std::io::Cursor::new(self.records.ahead().to_vec())));
        look.set_delimiter(self.delimiter);
        look.set_quote(self.records.quote());
        let mut sample = Sample::of(&mut look, &names, head::HeadEnd::Cut);
        let hints = Hints { of_several: true, ..self.config.hints.clone() };
        let (stem, delimiter, replay) = (&*self.stem, self.delimiter, self.config.replay);
        let around = Surroundings { hints: &hints, stem, delimiter, replay, now_ns };
        units::settled(names, &mut sample, around, (&self.file, line)).map(Arc::new)
    }

    /// Processes the current record; `Some` if it must wait.
    fn record(&mut self, now_ns: i64) -> Option<i64> {
        let line = self.records.record_line();
        let checked = match self.held.take() {
            Some(recorded_ns) => Ok(recorded_ns),
            None if self.rows.is_header(&self.records) => {
                self.unfit_line = self.unfit_line.filter(|_| !self.rows.is_names(&self.records));
                return None;
            }
            None if header::is_another(&self.records) => {
                if let Err(error) = self.begin_again(line, now_ns) {
                    self.state = CsvState::Failed(error);
                }
                return None;
            }
            None if let Some(remark) = header::remark(&self.records) => {
                self.ledger.remark(line, format!("a remark, no row: {remark}"));
                return None;
            }
            None if let Some(header) = self.unfit_line => {
                let reason = format!("the header above it, in line {header}, cannot be read");
                self.ledger.counts.rows_read += 1;
                self.ledger.skip(Cause::Fields, line, None, reason);
                return None;
            }
            None => {
                self.ledger.counts.rows_read += 1;
                self.rows.check(&self.records, now_ns, self.config.replay)
            }
        };
        let outcome = match checked {
            Ok(recorded_ns) => {
                let due_ns = self.timeline.due(recorded_ns);
                if due_ns > now_ns {
                    self.held = Some(recorded_ns);
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
        let step = if self.held.is_some() { SplitStep::Record } else { self.records.step() };
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
                        self.state = CsvState::Failed(CsvError::Read { file, line, source });
                    }
                }
            }
            SplitStep::End => {
                if let Err(error) = self.turn(now_ns) {
                    self.state = CsvState::Failed(error);
                }
            }
        }
        None
    }
}

impl Source for CsvSource {
    type Error = CsvError;

    fn poll(&mut self, now_ns: i64) -> Result<Poll, CsvError> {
        if let Some(hosts) = self.hosts.take() {
            return Ok(Poll::Ready(hosts));
        }
        loop {
            if !matches!(self.state, CsvState::Running) {
                if let Some(batch) = self.hand_over() {
                    return Ok(Poll::Ready(batch));
                }
                return match std::mem::replace(&mut self.state, CsvState::Ended) {
                    CsvState::Failed(error) => Err(error),
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

/// An input that is open, at its first row.
struct BegunFile {
    records: Splitter,
    plan: Plan,
    opened: input::OpenedInput,
    /// The first time of a row, if rows have times.
    first_ns: Option<i64>,
    /// Between the fields.
    delimiter: u8,
}

/// Opens an input and settles what its columns are.
fn open(input: CsvInput, file: &Arc<str>, config: &ReplayConfig, now_ns: i64) -> Result<BegunFile, CsvError> {
    let stem = input.stem();
    let mut opened =
        input::open(input).map_err(|source| CsvError::Open { file: Arc::clone(file), source })?;
    let bytes = std::mem::replace(&mut opened.bytes, Box::new(std::io::empty()));
    let reach = if opened.total.is_some() { HeadReach::Full } else { HeadReach::FirstRow };
    let mut head = InputHead::read(bytes, reach);
    if let TextKind::Foreign(what, remedy) = head.kind {
        return Err(CsvError::Foreign { file: Arc::clone(file), what, remedy });
    }
    let is_windows = head.kind == TextKind::Csv && text::is_windows_1252(&head.bytes);
    if is_windows {
        head.reader = Box::new(text::Windows1252::new(head.reader));
        head.bytes = text::of_windows_1252(&head.bytes).into();
    }
    let mut records = Splitter::new(head.reader);
    let (mut names, delimiter) = header::read(&mut records, file)?;
    let again = || Splitter::new(Box::new(std::io::Cursor::new(Arc::clone(&head.bytes))));
    let mut look = again();
    let mut before = None;
    if header::read(&mut look, file).is_ok() {
        before = header::later(&mut look, names.len());
    }
    look = again();
    let mut sample = Sample::default();
    if header::read(&mut look, file).is_ok() {
        if let Some(before) = before {
            let _passed = header::pass(&mut look, before);
            names = header::pass(&mut records, before).unwrap_or(names);
        }
        sample = Sample::of(&mut look, &names, head.end);
    }
    let line = records.record_line();
    let around = Surroundings { hints: &config.hints, stem: &stem, delimiter, replay: config.replay, now_ns };
    let mut plan = units::settled(names, &mut sample, around, (file, line))?;
    if before.is_some() {
        plan.notes.push(format!("the names of the columns are in line {line}, which the rows fit; the lines before it are left out"));
    }
    if is_windows {
        plan.notes.push("the text is no UTF-8 and is read as Windows-1252".to_owned());
    }
    if head.kind == TextKind::Stamped {
        plan.notes.push("the time that stands alone in a line is that of the rows below it".to_owned());
    }
    if head.kind == TextKind::Table(TableKind::Processes) {
        let note = "shares and memory of a GPU are the sums of its processes'";
        plan.notes.push(note.to_owned());
    }
    let first_ns = plan.times.as_ref().and_then(|times| times.first(&sample));
    Ok(BegunFile { records, plan, opened, first_ns, delimiter })
}
