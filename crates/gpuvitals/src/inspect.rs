//! `gpuvitals inspect`: what gpuvitals makes of files of rows. Nothing is stored.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use gpuvitals_core::batch::RowKeys;
use gpuvitals_core::foreign::names_host;
use gpuvitals_core::number::float;
use gpuvitals_core::ports::{Poll, Source as _};
use gpuvitals_core::quantity::counted;
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{Batch, Table, causes, clock, time};
use gpuvitals_inputs::csv::{CsvColumn, CsvDescription, Hints};
use gpuvitals_inputs::replay::{Cause, ReplayConfig, ReplayError, ReplaySource, Report, clash, together};
use gpuvitals_record::{RecordError, verify_recording};
use serde::Serialize;
use serde_json::json;

use crate::failure::{Exit, Failure};
use crate::files::{Files, is_endless};
use crate::record::count;
use crate::table::aligned;
use crate::terminal;

/// Examples for the help.
pub(crate) const EXAMPLES: &str = "Examples:
  gpuvitals inspect smi.csv
  gpuvitals inspect --timezone Europe/Berlin --host node7 smi.csv
  gpuvitals inspect --column \"Board Power=power_w:mW\" log.csv
  gpuvitals inspect --json *.csv";

/// Rows looked at together.
const BATCH_ROWS: usize = 8_192;
/// GPUs and hosts that are told apart; the others are one.
const NAMES_MAX: usize = 100_000;
/// Names that are printed.
const NAMES_SHOWN: usize = 16;
/// Distances between rows of which the middle one is shown.
const STEPS_MAX: usize = 10_000;
/// Rows that are remembered, to find those of the same GPU and time.
const SEEN_MAX: usize = 1_000_000;
/// Skipped rows of each file whose reasons are printed.
const REASONS_SHOWN: usize = 10;

/// Flags of `inspect`.
#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// CSV files, Parquet files with our columns, recordings; - is CSV on standard input
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was found in a file.
#[derive(Debug, Default, Serialize)]
struct FileReport {
    file: String,
    /// Why it is refused, or cannot be read on.
    error: Option<String>,
    /// Of a CSV file: what it is taken for.
    csv: Option<CsvDescription>,
    rows_read: u64,
    rows_taken: u64,
    /// Rows that would be skipped, by reason.
    rows_skipped: BTreeMap<&'static str, u64>,
    /// Rows of a GPU and time that an earlier row has: they are one row, with the values of the later.
    rows_repeated: u64,
    /// Values that would be left out.
    values_invalid: u64,
    /// Values that the file marks as missing.
    values_absent: u64,
    /// Rows of each table.
    tables: BTreeMap<&'static str, u64>,
    gpus: DistinctNames,
    hosts: DistinctNames,
    first: Option<String>,
    last: Option<String>,
    /// Between two rows of a GPU, seconds: the middle one.
    interval_seconds: Option<f64>,
    /// The first rows and values that are left out, with the reason.
    problems: Vec<String>,
}

/// Different names, as many as are remembered.
#[derive(Debug, Default, Serialize)]
struct DistinctNames {
    count: usize,
    names: BTreeSet<String>,
}

impl DistinctNames {
    fn add(&mut self, name: &str) {
        if self.names.len() < NAMES_MAX && !self.names.contains(name) {
            self.names.insert(name.to_owned());
        }
        self.count = self.names.len();
    }
}

impl FileReport {
    fn note(&mut self, reports: Vec<Report>) {
        let (anew, lost): (Vec<_>, Vec<_>) = reports.into_iter().partition(|it| it.cause == Cause::Header);
        let remarks = anew.into_iter().map(|report| format!("line {}: {}", report.line, report.reason));
        if let Some(csv) = &mut self.csv {
            csv.remarks.extend(remarks);
        }
        self.problems.extend(lost.iter().map(ToString::to_string));
        self.problems.truncate(REASONS_SHOWN);
    }

    /// Says it if the file's GPUs have the host that several files share: who reads them one by one names others.
    fn note_shared_host(&mut self, hints: &Hints) {
        let host = hints.usual_host.as_ref().filter(|host| self.hosts.names.contains(*host));
        if let (Some(host), Some(csv)) = (host, &mut self.csv) {
            csv.remarks.push(format!(
                "as one replay (up --csv, stream) the files are one machine's, {host}; store import names the host of each \
                 file after that file; --host settles it"
            ));
        }
    }

    /// Why a file that can be read is of no use.
    fn nothing(&self) -> Option<&'static str> {
        let empty = self.rows_skipped.get(Cause::NoValue.as_str()).copied().unwrap_or(0);
        let lost = self.rows_read - self.rows_taken.min(self.rows_read) - empty.min(self.rows_read);
        if self.rows_read == 0 && self.csv.is_some() {
            Some("it has no rows")
        } else if self.rows_read > 0 && self.rows_taken == 0 {
            Some("all its rows would be skipped")
        } else if lost * 2 > self.rows_read {
            Some("more than half of its rows would be skipped")
        } else {
            None
        }
    }
}

/// Looks at the files.
///
/// # Errors
/// When one is refused, cannot be read, or all its rows would be skipped; the others are shown.
pub(crate) fn run(flags: &Inspect, files: &Files) -> Result<(), Failure> {
    let mut hints = files.hints()?;
    if flags.paths.len() > 1 {
        hints = together(&flags.paths, hints);
    }
    let (mut all, mut exit) = (Vec::with_capacity(flags.paths.len()), Exit::Data);
    for path in &flags.paths {
        let mut found = FileReport { file: path.display().to_string(), ..FileReport::default() };
        if let Some(why) = is_endless(path) {
            found.error = Some(format!("{}: {why}", path.display()));
        } else if let Err(error) = verify_recording(path) {
            if let RecordError::Io { source, .. } = &error {
                exit = Exit::of(source);
            }
            found.error = Some(causes(&error));
        } else if let Err(error) = look(path, &hints, &mut found) {
            exit = error.io().map_or(exit, Exit::of);
            found.error = Some(causes(&error));
        } else {
            found.error = found.nothing().map(str::to_owned);
        }
        found.note_shared_host(&hints);
        all.push(found);
    }
    if flags.paths.len() > 1 {
        let config = ReplayConfig { hints, ..ReplayConfig::default() };
        if let Some(clash) = clash(&flags.paths, &config, clock::now_ns())
            && let Some(csv) = all.last_mut().and_then(|found| found.csv.as_mut())
        {
            csv.remarks.push(format!("as one replay these files are refused: {clash}"));
        }
    }
    let text = if flags.json {
        format!("{:#}\n", json!({ "files": all }))
    } else {
        all.iter().map(text).collect::<Vec<_>>().join("\n")
    };
    terminal::print(&text)?;
    let bad: Vec<&str> = all.iter().filter(|it| it.error.is_some()).map(|it| it.file.as_str()).collect();
    if bad.is_empty() {
        Ok(())
    } else {
        Err(Failure::new(exit, format!("cannot be used: {}", bad.join(", "))))
    }
}

/// Reads a file to its end.
fn look(path: &Path, hints: &Hints, found: &mut FileReport) -> Result<(), ReplayError> {
    let config = ReplayConfig { batch_rows: BATCH_ROWS, hints: hints.clone(), ..ReplayConfig::default() };
    let mut source = ReplaySource::open(path, config, clock::now_ns())?;
    found.csv = source.csv_files().first().map(|csv| csv.description());
    let mut times = RowTimes::default();
    let ended = loop {
        match source.poll(clock::now_ns()) {
            Ok(Poll::Ready(batch)) => {
                *found.tables.entry(batch.table().name()).or_default() += batch.rows() as u64;
                add_names(&batch, found);
                times.add(&batch);
            }
            // It never waits.
            Ok(Poll::NotBefore(_)) => {}
            Ok(Poll::End) => break Ok(()),
            Err(error) => break Err(error),
        }
        found.note(source.drain_reports());
    };
    found.note(source.drain_reports());
    let counts = source.counts();
    (found.rows_read, found.rows_taken) = (counts.rows_read, counts.rows_taken);
    let skipped = Cause::ALL.map(|cause| (cause.as_str(), counts.skipped(cause)));
    found.rows_skipped.extend(skipped.into_iter().filter(|(_, rows)| *rows > 0));
    (found.values_invalid, found.values_absent) = (counts.values_invalid, counts.values_absent);
    // Rows of a file without times have that of this moment.
    if found.csv.as_ref().is_none_or(|csv| csv.timezone_from.is_some()) {
        found.first = times.span.map(|(first, _)| time::format(first));
        found.last = times.span.map(|(_, last)| time::format(last));
        found.rows_repeated = times.repeated;
        found.interval_seconds = times.interval();
    }
    ended
}

fn add_names(batch: &Batch, found: &mut FileReport) {
    for row in 0..batch.rows() {
        let identity = batch.identity(row);
        if let Some(key) = identity.key() {
            found.gpus.add(&key);
        }
        if let Some(node) = identity.node() {
            found.hosts.add(node);
        }
    }
}

/// When rows were.
#[derive(Default)]
struct RowTimes {
    span: Option<(i64, i64)>,
    /// The first subject's name, and its last time.
    subject: Option<(String, i64)>,
    steps: Vec<i64>,
    /// GPUs and times of rows, as far as they are remembered.
    seen: HashSet<(Arc<str>, i64)>,
    repeated: u64,
}

impl RowTimes {
    fn add(&mut self, batch: &Batch) {
        self.count_repeats(batch);
        for (row, &at) in batch.timestamps().iter().enumerate() {
            self.span = Some(self.span.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
            if self.steps.len() >= STEPS_MAX {
                continue;
            }
            let identity = batch.identity(row);
            let name =
                identity.key().map(|key| key.to_string()).or_else(|| identity.node().map(str::to_owned));
            let Some(name) = name else { continue };
            let (subject, last) = self.subject.get_or_insert_with(|| (name.clone(), at));
            // A file may be written newest first.
            if *subject == name && at != *last {
                self.steps.push((at - *last).abs());
                *last = at;
            }
        }
    }

    fn count_repeats(&mut self, batch: &Batch) {
        if batch.table() != Table::GpuEvents {
            return;
        }
        let Ok(keys) = RowKeys::of(batch.records(), batch.table()) else { return };
        for (&at, &id) in batch.timestamps().iter().zip(&keys.ids) {
            let Some(key) = keys.keys.get(id as usize) else { continue };
            let row = (Arc::clone(key), at);
            if self.seen.contains(&row) {
                self.repeated += 1;
            } else if self.seen.len() < SEEN_MAX {
                self.seen.insert(row);
            }
        }
    }

    fn interval(mut self) -> Option<f64> {
        self.steps.sort_unstable();
        self.steps.get(self.steps.len() / 2).map(|step| float(*step) / float(SECOND_NS))
    }
}

fn text(found: &FileReport) -> String {
    let mut text = format!("{}\n", found.file);
    if let Some(error) = &found.error {
        let _written = writeln!(text, "  refused: {error}");
    }
    if let Some(csv) = &found.csv {
        let dialect = csv.dialect.map(|name| format!(", columns of {name}")).unwrap_or_default();
        let _written = writeln!(text, "  form: {}{dialect}", csv.form);
    }
    if found.rows_read > 0 {
        let _written = writeln!(
            text,
            "  rows: {} read, {} taken{}",
            count(found.rows_read),
            count(found.rows_taken),
            losses(found)
        );
        let tables = found.tables.iter().map(|(table, rows)| format!("{table} {}", count(*rows)));
        let _written = writeln!(text, "  tables: {}", tables.collect::<Vec<_>>().join(", "));
        let _written = writeln!(text, "  times: {}", span(found));
        let _written = writeln!(text, "  hosts: {}", names(&found.hosts));
        let _written = writeln!(text, "  GPUs: {}", names(&found.gpus));
    }
    if found.rows_repeated > 0 {
        let _written = writeln!(
            text,
            "  note: {} the GPU and time of an earlier row, and replace it; {}",
            if found.rows_repeated == 1 {
                "1 row has".to_owned()
            } else {
                format!("{} rows have", count(found.rows_repeated))
            },
            remedy_of_repeats(found)
        );
    }
    if let Some(csv) = &found.csv {
        let mut rows = vec![["COLUMN", "IS", "UNIT", "FACTOR", "EXAMPLE", "WHY"].map(str::to_owned).to_vec()];
        rows.extend(csv.columns.iter().map(line));
        for line in aligned(&rows).lines() {
            let _written = writeln!(text, "  {line}");
        }
        if !csv.metrics.is_empty() {
            let mut rows =
                vec![["METRIC", "IS", "UNIT", "FACTOR", "EXAMPLE", "WHY"].map(str::to_owned).to_vec()];
            rows.extend(csv.metrics.iter().map(line));
            for line in aligned(&rows).lines() {
                let _written = writeln!(text, "  {line}");
            }
        }
        for remark in &csv.remarks {
            let _written = writeln!(text, "  note: {remark}");
        }
    }
    for problem in &found.problems {
        let _written = writeln!(text, "  left out: {problem}");
    }
    text
}

fn remedy_of_repeats(found: &FileReport) -> String {
    match found.csv.as_ref().and_then(|csv| csv.apart.as_ref()) {
        Some(name) => {
            let what = if names_host(name) { "host" } else { "gpu" };
            format!("column {name} tells them apart: --column \"{name}={what}\" if it is the {what}")
        }
        None => "if the file is of several GPUs, name the column that tells them apart: --column NAME=gpu"
            .to_owned(),
    }
}

fn losses(found: &FileReport) -> String {
    let mut text = String::new();
    for (cause, rows) in &found.rows_skipped {
        let _written = write!(text, ", {} skipped for {cause}", count(*rows));
    }
    if found.values_invalid > 0 {
        let _written = write!(text, ", {} left out", counted(found.values_invalid, "value"));
    }
    text
}

fn span(found: &FileReport) -> String {
    let Some((first, last)) = found.first.as_ref().zip(found.last.as_ref()) else {
        return "none in the file".to_owned();
    };
    let mut text = format!("{first} to {last}");
    if let Some(seconds) = found.interval_seconds {
        let _written = write!(text, ", a row of a GPU each {seconds} s");
    }
    let zone = found.csv.as_ref().and_then(|csv| Some((csv.timezone.as_ref()?, csv.timezone_from?)));
    if let Some((zone, from)) = zone {
        let whose = if from == "user" { "as you say" } else { "this machine's" };
        let _written = write!(text, ", written in {zone} ({whose})");
    }
    text
}

fn names(names: &DistinctNames) -> String {
    if names.count == 0 {
        return "none".to_owned();
    }
    let shown: Vec<&str> = names.names.iter().take(NAMES_SHOWN).map(String::as_str).collect();
    let more = if names.count > shown.len() { ", …" } else { "" };
    format!("{} ({}{more})", names.count, shown.join(", "))
}

fn line(column: &CsvColumn) -> Vec<String> {
    let is = match (&column.column, &column.gpu) {
        (Some(name), Some(gpu)) => format!("{name} of GPU {gpu}"),
        (Some(name), None) if column.role == "own" => format!("own column {name}"),
        (Some(name), None) => name.clone(),
        (None, _) => column.role.to_owned(),
    };
    let cell = |text: Option<&str>| crate::table::text(&text.map_or(serde_json::Value::Null, Into::into));
    vec![
        cell(Some(&column.name)),
        cell(Some(&is)),
        cell(column.unit),
        column.factor.map_or_else(|| "-".to_owned(), |factor| factor.to_string()),
        cell(column.example.as_deref()),
        column.why.clone().unwrap_or_default(),
    ]
}
