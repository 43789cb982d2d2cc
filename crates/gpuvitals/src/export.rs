//! `gpuvitals export`: a recording in the form of other programs, row by row.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args};
use gpuvitals_core::batch::MONOTONIC_COLUMN;
use gpuvitals_core::quantity::counted;
use gpuvitals_core::{MetricId, Table, time};
use gpuvitals_inputs::csv::write::{WideWriter, WriteError, quoted};
use gpuvitals_record::{
    Data, PerfettoError, RecordError, RecordedMark, RecordingFacts, marks_of, write_perfetto,
};

use crate::failure::{Exit, Failure};
use crate::record::bytes;
use crate::replacing::{Replacing, unwritten};
use crate::terminal;

/// Name of the marks beside those of the tables.
const MARKS: &str = "marks";

/// `gpuvitals export`
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("form").required(true).args(["perfetto", "csv"])), after_help = "Examples:
  gpuvitals export telemetry --perfetto -o run.pftrace          for https://ui.perfetto.dev
  gpuvitals export telemetry --csv -o gpus.csv                  the rows of the GPUs
  gpuvitals export telemetry --csv --table marks -o marks.csv   the marks

Docs: docs/recording.md.")]
pub(crate) struct ExportFlags {
    /// Directory of the recording, finished or not
    #[arg(value_name = "RECORDING", default_value = "telemetry")]
    recording: PathBuf,
    /// Write a trace of Perfetto: a counter track for each metric of each GPU, marks as instants
    #[arg(long)]
    perfetto: bool,
    /// Write the rows of one table as CSV
    #[arg(long)]
    csv: bool,
    /// Table that is written as CSV
    #[arg(long, value_name = "TABLE", default_value = "gpu_events", conflicts_with = "perfetto", value_parser = PossibleValuesParser::new(["gpu_events", "system_events", MARKS]))]
    table: String,
    /// File that is written
    #[arg(long, short = 'o', value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    replacing: Replacing,
}

/// Exports.
///
/// # Errors
/// If the recording cannot be read, or the file is there already or cannot be written.
pub(crate) fn run(flags: &ExportFlags) -> Result<(), Failure> {
    let path = &flags.output;
    let failed = |error| unwritten(path, error);
    let fresh = flags.replacing.create(path)?;
    let mut out = BufWriter::new(fresh.file());
    let written = match (flags.csv, Table::by_name(&flags.table)) {
        (false, _) => trace(flags, &mut out)?,
        (true, Some(table)) => rows(flags, table, &mut out)?,
        (true, None) => marks(flags, &mut out)?,
    };
    out.flush().map_err(failed)?;
    drop(out);
    let size = fresh.put().map_err(failed)?;
    terminal::print(&format!("{}: {written} ({})\n", path.display(), bytes(size)))
}

/// Writes the trace, and says how much that is.
fn trace(flags: &ExportFlags, out: &mut dyn Write) -> Result<String, Failure> {
    let totals = write_perfetto(&flags.recording, out).map_err(|error| match error {
        PerfettoError::Recording(error) => unreadable(error),
        PerfettoError::Write(error) => unwritten(&flags.output, error),
    })?;
    let left_out = match totals.rows_left_out {
        0 => String::new(),
        rows => format!("; without {} of more devices than a trace takes", counted(rows, "row")),
    };
    Ok(format!("{} on {}{left_out}", counted(totals.events, "event"), counted(totals.tracks, "track")))
}

/// Writes the rows of a table. They go through twice: parts of a recording that runs do not all have the same columns.
fn rows(flags: &ExportFlags, table: Table, out: &mut BufWriter<&File>) -> Result<String, Failure> {
    let batches = || {
        let all = Data::open(&flags.recording).map_err(unreadable)?;
        let of_table = all.filter(move |batch| !batch.as_ref().is_ok_and(|batch| batch.table() != table));
        Ok::<_, Failure>(of_table.map(|batch| batch.map_err(unreadable)))
    };
    let mut metrics: BTreeSet<MetricId> = BTreeSet::new();
    // Those that only some recordings have, as incidents of the flight recorder.
    let mut unknown: BTreeSet<String> = BTreeSet::new();
    for batch in batches()? {
        let batch = batch?;
        metrics.extend(batch.metrics().map(|(id, _)| id));
        let extras = batch.extras().map(|(name, _)| name);
        unknown.extend(extras.filter(|name| table.column(name).is_none()).map(str::to_owned));
    }
    let own = table.columns().iter().map(|column| column.name);
    let mut writer = WideWriter::with_metrics(out, metrics)
        .and_columns([MONOTONIC_COLUMN])
        .and_columns(own)
        .and_columns(unknown);
    let mut count = 0;
    for batch in batches()? {
        let batch = batch?;
        count += batch.rows() as u64;
        writer.write(&batch).map_err(|error| match error {
            WriteError::Io(error) => unwritten(&flags.output, error),
            error @ WriteError::Column(_) => Failure::caused(Exit::Data, "cannot export", error),
        })?;
    }
    if count == 0 {
        let text = format!("{}: no row of {} was recorded", flags.recording.display(), table.name());
        return Err(Failure::new(Exit::Data, text));
    }
    Ok(counted(count, "row"))
}

/// Writes the marks.
fn marks(flags: &ExportFlags, out: &mut dyn Write) -> Result<String, Failure> {
    let failed = |error| unwritten(&flags.output, error);
    // A directory without marks may be no recording.
    let _facts = RecordingFacts::read(&flags.recording).map_err(unreadable)?;
    writeln!(out, "timestamp,{MONOTONIC_COLUMN},text,phase,step,value_name,value").map_err(failed)?;
    let mut count = 0;
    for mark in marks_of(&flags.recording).map_err(unreadable)? {
        let mark = mark.map_err(unreadable)?;
        writeln!(out, "{}", line_of(&mark)).map_err(failed)?;
        count += 1;
    }
    Ok(counted(count, "mark"))
}

/// A mark as a line of CSV. What it does not say is empty.
fn line_of(mark: &RecordedMark) -> String {
    let content = &mark.content;
    let field = |text: Option<&str>| quoted(text.unwrap_or_default()).into_owned();
    let fields = [
        time::format(mark.timestamp_ns),
        mark.monotonic_ns.to_string(),
        field(Some(&content.text)),
        field(content.phase.as_deref()),
        content.step.map_or_else(String::new, |step| step.to_string()),
        field(content.value_name.as_deref()),
        content.value.map_or_else(String::new, |value| value.to_string()),
    ];
    fields.join(",")
}

fn unreadable(error: RecordError) -> Failure {
    Failure::of_recording("export", error)
}
