//! `gpuvitals store import`: rows of files and of other stores go into the store.
//!
//! Rows are acknowledged as those of a queue are: synced before the next ones are read. Rows merge by key, so an import
//! that was cut short is begun again, and a second one changes nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{IsTerminal, Write as _, stderr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use gpuvitals_core::history::{History as _, RowsQuery};
use gpuvitals_core::ports::{Poll, Sink, SinkError, Source as _};
use gpuvitals_core::quantity::counted;
use gpuvitals_core::time::HOUR_NS;
use gpuvitals_core::{Batch, Table, causes, clock};
use gpuvitals_inputs::csv::Hints;
use gpuvitals_inputs::replay::{Cause, ReplayConfig, ReplaySource};
use gpuvitals_record::verify_recording;
use gpuvitals_store::{Store, StoreView};
use serde::Serialize;
use serde_json::json;
use tokio::runtime::Runtime;

use super::output::{StoreOutput, overwritten_words};
use super::settings::Store as Settings;
use crate::failure::{Exit, Failure};
use crate::files::is_endless;
use crate::record::{bytes, count};
use crate::terminal;

/// Rows that are acknowledged together.
const BATCH_ROWS: usize = 8_192;
/// Files and folders that are looked at for their size.
const LOOKS_MAX: usize = 10_000;
/// Between two drawings of the progress.
const DRAW_PAUSE: Duration = Duration::from_millis(100);

/// Flags of `store import`.
#[derive(Debug, Args)]
pub(super) struct Import {
    /// CSV files, Parquet files with our columns, recordings, other stores; - is CSV on standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    output: StoreOutput,
}

/// The outcome of one path.
#[derive(Debug, Serialize)]
struct Imported {
    path: String,
    /// Rows that the store has acknowledged.
    rows: u64,
    /// Rows that were skipped, by reason.
    rows_skipped: BTreeMap<&'static str, u64>,
    values_invalid: u64,
    /// Values of columns that the catalogue does not know and that found no room.
    values_left_out: u64,
    /// Rows that are older than `store.keep` allows beside the newest row of the store. The next service that opens the store
    /// deletes them.
    rows_beyond_keep: u64,
    /// Why it was not imported whole.
    error: Option<String>,
    /// Rows by hour, hours since 1970.
    #[serde(skip)]
    hours: BTreeMap<i64, u64>,
}

/// The folder of a file whose name another of the paths has, too: the name of both tells no machines apart.
fn folder_of_namesake(path: &Path, paths: &[PathBuf]) -> Option<String> {
    let is_other = |other: &PathBuf| other != path && other.file_name() == path.file_name();
    let folder = path.parent()?.file_name()?;
    paths.iter().any(is_other).then(|| folder.to_string_lossy().into_owned())
}

/// Why no more rows are taken.
enum ImportStop {
    /// This path is at fault, for this reason.
    Path(String),
    /// The store is.
    Store(Failure),
}

/// Imports. The store is opened, or made, when the first rows come.
///
/// # Errors
/// If the store is open elsewhere or fails, or a path was not imported whole: then the others were.
pub(super) fn run(
    import: &Import,
    hints: Hints,
    settings: &Settings,
    open: impl FnOnce() -> Result<Arc<Store>, Failure>,
) -> Result<(), Failure> {
    let dir = &settings.dir;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::io("cannot start the runtime", e))?;
    let progress = ImportProgress {
        paths: import.paths.len(),
        paths_done: 0,
        bytes_done: 0,
        bytes_total: import.paths.iter().map(|path| bytes_of(path)).sum(),
        rows: 0,
        shows: stderr().is_terminal(),
        drawn: clock::instant(),
    };
    let hints = Hints { of_several: import.paths.len() > 1, ..hints };
    let mut importer =
        Importer { runtime, open: Some(open), store: None, dir: dir.to_owned(), hints, progress };
    let mut outcome = importer.all(&import.paths);
    if let (Ok(imported), false) = (&mut outcome, settings.keep.is_zero()) {
        importer.compare_with(settings.keep, imported)?;
    }
    let closed = importer.store.as_ref().map_or(Ok(()), |store| importer.runtime.block_on(store.close()));
    let overwritten = importer.store.map_or(0, |store| store.stats().rows_overwritten);
    terminal::leave();
    let imported = outcome?;
    closed.map_err(|error| {
        Failure::caused(Exit::Io, "cannot close the store; what was imported is in its log", error)
    })?;
    import.output.print(&as_json(&imported, overwritten), || text(&imported, overwritten, settings))?;
    let bad: Vec<&str> = imported.iter().filter(|it| it.error.is_some()).map(|it| it.path.as_str()).collect();
    if bad.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Exit::Data, format!("these were not imported, or are not whole: {}", bad.join(", "))))
}

struct Importer<O> {
    runtime: Runtime,
    /// Until the first rows come.
    open: Option<O>,
    store: Option<Arc<Store>>,
    dir: PathBuf,
    hints: Hints,
    progress: ImportProgress,
}

impl<O: FnOnce() -> Result<Arc<Store>, Failure>> Importer<O> {
    fn all(&mut self, paths: &[PathBuf]) -> Result<Vec<Imported>, Failure> {
        let mut all = Vec::with_capacity(paths.len());
        for path in paths {
            let mut outcome = Imported {
                path: path.display().to_string(),
                rows: 0,
                rows_skipped: BTreeMap::new(),
                values_invalid: 0,
                values_left_out: 0,
                rows_beyond_keep: 0,
                error: None,
                hours: BTreeMap::new(),
            };
            let is_store = ["raw", "wal"].iter().any(|name| path.join(name).is_dir());
            let left_out_before = self.left_out();
            let usual_host = folder_of_namesake(path, paths).or_else(|| self.hints.usual_host.clone());
            let hints = Hints { usual_host, ..self.hints.clone() };
            let ended =
                if is_store { self.store(path, &mut outcome) } else { self.file(path, hints, &mut outcome) };
            match ended {
                Ok(()) => {}
                Err(ImportStop::Path(reason)) => outcome.error = Some(reason),
                Err(ImportStop::Store(failure)) => return Err(failure),
            }
            outcome.values_left_out = self.left_out() - left_out_before;
            self.progress.next(bytes_of(path));
            all.push(outcome);
        }
        Ok(all)
    }

    /// Counts the rows that are too old beside the newest row of the store.
    fn compare_with(&self, keep: Duration, imported: &mut [Imported]) -> Result<(), Failure> {
        let Some(store) = &self.store else { return Ok(()) };
        let mut newest_ns = i64::MIN;
        for table in Table::ALL {
            let newest =
                RowsQuery { newest_first: true, metrics: Some(Vec::new()), ..RowsQuery::of(table, 1) };
            let newest = self.runtime.block_on(store.rows(newest));
            let newest = newest
                .map_err(|e| Failure::caused(Exit::Io, "cannot ask the store for its newest row", e))?;
            newest_ns = newest_ns.max(newest.answer.end().map_or(i64::MIN, |place| place.timestamp_ns));
        }
        let keep_ns = i64::try_from(keep.as_nanos()).unwrap_or(i64::MAX);
        let oldest_hour = newest_ns.saturating_sub(keep_ns).div_euclid(HOUR_NS);
        for one in imported {
            one.rows_beyond_keep = one.hours.range(..oldest_hour).map(|(_, rows)| rows).sum();
        }
        Ok(())
    }

    /// Values of columns without room, so far.
    fn left_out(&self) -> u64 {
        self.store.as_ref().map_or(0, |store| store.stats().values_left_out)
    }

    /// A CSV file, a table file or a directory of them.
    fn file(&mut self, path: &Path, hints: Hints, outcome: &mut Imported) -> Result<(), ImportStop> {
        if let Some(why) = is_endless(path) {
            return Err(ImportStop::Path(why.to_owned()));
        }
        verify_recording(path).map_err(|error| ImportStop::Path(causes(&error)))?;
        let config = ReplayConfig { batch_rows: BATCH_ROWS, hints, ..ReplayConfig::default() };
        let mut source =
            ReplaySource::open(path, config, clock::now_ns()).map_err(|e| ImportStop::Path(causes(&e)))?;
        for csv in source.csv_files() {
            for text in csv.warnings().iter().chain(csv.notes()) {
                let _unwritten = writeln!(terminal::Lines, "{}: {text}", csv.file());
            }
        }
        let ended = loop {
            for report in source.drain_reports() {
                // If this cannot be written, the counts still say it.
                let _unwritten = writeln!(terminal::Lines, "{report}");
            }
            match source.poll(clock::now_ns()) {
                Ok(Poll::Ready(batch)) => {
                    if let Err(stop) = self.take(batch, source.counts().bytes_read, outcome) {
                        break Err(stop);
                    }
                }
                // It never waits.
                Ok(Poll::NotBefore(_)) => {}
                Ok(Poll::End) => break Ok(()),
                Err(error) => break Err(ImportStop::Path(causes(&error))),
            }
        };
        let counts = source.counts();
        let skipped = Cause::ALL.map(|cause| (cause.as_str(), counts.skipped(cause)));
        outcome.rows_skipped.extend(skipped.into_iter().filter(|(_, rows)| *rows > 0));
        outcome.values_invalid = counts.values_invalid;
        if ended.is_ok() && counts.rows_read > 0 && counts.rows_skipped() == counts.rows_read {
            return Err(ImportStop::Path("all its rows were skipped".to_owned()));
        }
        ended
    }

    /// Another store: all rows of its files and of its log.
    fn store(&mut self, path: &Path, outcome: &mut Imported) -> Result<(), ImportStop> {
        let is_same = fs::canonicalize(path).ok() == fs::canonicalize(&self.dir).ok();
        if is_same {
            return Err(ImportStop::Path("it is the store itself".to_owned()));
        }
        let view = StoreView::open(path).map_err(|error| ImportStop::Path(causes(&error)))?;
        let mut missing = Vec::new();
        for table in view.tables() {
            let broken = |error| ImportStop::Path(causes(&error));
            let mut rows = view.all(RowsQuery::of(table, 0)).map_err(broken)?;
            while let Some(batch) = rows.next_batch().map_err(broken)? {
                self.take(batch, 0, outcome)?;
            }
            missing.extend(rows.missing().map(str::to_owned));
        }
        missing.sort();
        missing.dedup();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(ImportStop::Path(format!("rows are missing: {}", missing.join("; "))))
        }
    }

    /// Has the store take rows; they are synced when this returns.
    fn take(&mut self, batch: Batch, read: u64, outcome: &mut Imported) -> Result<(), ImportStop> {
        let rows = batch.rows() as u64;
        for time_ns in batch.timestamps() {
            *outcome.hours.entry(time_ns.div_euclid(HOUR_NS)).or_default() += 1;
        }
        if let Some(open) = self.open.take() {
            self.store = Some(open().map_err(ImportStop::Store)?);
        }
        let Some(store) = &self.store else { return Ok(()) };
        self.runtime.block_on(store.accept(vec![batch])).map_err(|error| match error {
            SinkError::Refused(_) => ImportStop::Path(causes(&error)),
            error => ImportStop::Store(Failure::caused(Exit::Io, "the store takes no rows", error)),
        })?;
        outcome.rows += rows;
        self.progress.draw(rows, read);
        Ok(())
    }
}

/// How far the import is, on a terminal.
struct ImportProgress {
    paths: usize,
    paths_done: usize,
    bytes_done: u64,
    bytes_total: u64,
    rows: u64,
    shows: bool,
    drawn: Instant,
}

impl ImportProgress {
    fn next(&mut self, bytes: u64) {
        self.paths_done += 1;
        self.bytes_done += bytes;
    }

    /// More rows are in, and as many bytes of the path were read.
    fn draw(&mut self, rows: u64, read: u64) {
        self.rows += rows;
        let now = clock::instant();
        if !self.shows || now.duration_since(self.drawn) < DRAW_PAUSE {
            return;
        }
        self.drawn = now;
        let (done, total) = (bytes(self.bytes_done + read), bytes(self.bytes_total));
        let Self { paths, paths_done, rows, .. } = self;
        terminal::draw(&format!("{paths_done} of {paths} done, {done} of {total}, {} rows", count(*rows)));
    }
}

/// Bytes of a file, or of the table files below a directory, as far as few looks tell: they only show how far an import is.
fn bytes_of(path: &Path) -> u64 {
    let (mut bytes, mut looks, mut paths) = (0, LOOKS_MAX, vec![path.to_owned()]);
    while let Some(path) = paths.pop().filter(|_| looks > 0) {
        looks -= 1;
        if !path.is_dir() {
            bytes += fs::metadata(path).map_or(0, |facts| facts.len());
            continue;
        }
        let entries = fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
        let is_table = |path: &PathBuf| path.is_dir() || path.extension().is_some_and(|it| it == "parquet");
        let tables = entries.take(looks).map(|entry| entry.path()).filter(is_table);
        paths.extend(tables);
    }
    bytes
}

fn text(imported: &[Imported], overwritten: u64, settings: &Settings) -> String {
    let mut text = String::new();
    for one in imported {
        let Imported { path, rows, rows_skipped, values_invalid, values_left_out, error, .. } = one;
        let _written = write!(text, "{path}: {}", counted(*rows, "row"));
        for (cause, rows) in rows_skipped {
            let _written = write!(text, ", {} skipped for {cause}", count(*rows));
        }
        if *values_invalid > 0 {
            let _written = write!(text, ", {} left out", counted(*values_invalid, "value"));
        }
        if *values_left_out > 0 {
            let left_out = counted(*values_left_out, "value");
            let _written =
                write!(text, ", {left_out} left out, because the names of their columns are too many");
        }
        let reason = error.as_ref().map(|error| format!("; not whole: {error}"));
        let _written = writeln!(text, "{}", reason.unwrap_or_default());
    }
    let rows: u64 = imported.iter().map(|it| it.rows).sum();
    let _written = writeln!(text, "{} in {}", counted(rows, "row"), settings.dir.display());
    if let Some(said) = overwritten_words(overwritten) {
        let _written = writeln!(
            text,
            "{said}. If the files are of several machines, import each with --host HOST; if one is of several GPUs, name the \
             column that tells them apart: --column NAME=gpu"
        );
    }
    let beyond: u64 = imported.iter().map(|it| it.rows_beyond_keep).sum();
    if beyond > 0 {
        let days = settings.keep.as_secs_f64() / 86_400.0;
        let _written = writeln!(
            text,
            "{} are older than the newest row by more than store.keep ({days} days): the next service that opens the store \
             deletes them. Raise store.keep before, or import them into a store of their own",
            counted(beyond, "row")
        );
    }
    text
}

fn as_json(imported: &[Imported], overwritten: u64) -> serde_json::Value {
    let skipped = |it: &Imported| it.rows_skipped.values().sum::<u64>();
    json!({
        "files": imported,
        "rows": imported.iter().map(|it| it.rows).sum::<u64>(),
        "rows_skipped": imported.iter().map(skipped).sum::<u64>(),
        "rows_overwritten": overwritten,
        "rows_beyond_keep": imported.iter().map(|it| it.rows_beyond_keep).sum::<u64>(),
    })
}
