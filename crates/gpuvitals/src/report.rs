//! `gpuvitals report`: a run from its recordings, as a page, as Markdown or as JSON.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use gpuvitals_report::RunReport;

use crate::failure::{Exit, Failure};
use crate::jobs::waste::{self, WasteFlags};
use crate::query::flags::Server;
use crate::replacing::Replacing;
use crate::terminal;

/// `gpuvitals report`
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_help = "Examples:
  gpuvitals report telemetry -o run.html            a page for a browser, from a disk or a mail
  gpuvitals report --markdown telemetry             for a pull request
  gpuvitals report node1/ node2/ -o run.html        a run on several machines
  gpuvitals record --report run.html -- ./bench     a recording with its report

Docs: docs/report.md."
)]
pub(crate) struct ReportFlags {
    /// Directory of the recording; of a run on several machines those of all
    #[arg(value_name = "RECORDING", default_value = "telemetry")]
    recordings: Vec<PathBuf>,
    /// File that is written [default: standard output]
    #[arg(long, short = 'o', value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    replacing: Replacing,
    /// Write JSON in place of a page
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Write Markdown in place of a page
    #[arg(long)]
    markdown: bool,
    /// What else there is a report of
    #[command(subcommand)]
    of: Option<ReportOf>,
}

/// What else there is a report of. A recording of such a name is `./NAME`.
#[derive(Debug, Subcommand)]
enum ReportOf {
    /// What was held for nothing: `gpuvitals jobs waste`
    #[command(hide = true)]
    Waste {
        #[command(flatten)]
        asked: WasteFlags,
        #[command(flatten)]
        server: Server,
    },
}

/// Writes the report of some recordings, or of waste.
///
/// # Errors
/// If one is none or cannot be read, or the file is there already or cannot be written; of waste, those of `gpuvitals jobs waste`.
pub(crate) fn run(flags: &ReportFlags) -> Result<(), Failure> {
    if let Some(ReportOf::Waste { asked, server }) = &flags.of {
        return waste::run(asked, server);
    }
    let is_page = !flags.json && !flags.markdown;
    if is_page && flags.output.is_none() && io::stdout().is_terminal() {
        let text =
            "a page is for a browser: -o FILE writes it to a file; --markdown and --json are for a terminal";
        return Err(Failure::new(Exit::Usage, text));
    }
    flags.output.as_deref().map_or(Ok(()), |file| flags.replacing.check(file))?;
    let report = read(&flags.recordings)?;
    let text = match (flags.json, flags.markdown) {
        (true, _) => report.json(),
        (_, true) => report.markdown(),
        _ => report.html(),
    };
    match &flags.output {
        Some(file) => flags.replacing.write(file, &text),
        None => terminal::print(&text),
    }
}

/// Writes the page of one recording to a file.
///
/// # Errors
/// As [`run`].
pub(crate) fn page(recording: &Path, file: &Path, replacing: Replacing) -> Result<(), Failure> {
    let report = read(&[recording.to_owned()])?;
    replacing.write(file, &report.html())
}

/// Refuses a file that could not be written: a run of hours must not end with that.
///
/// # Errors
/// If its folder is none, or it is there and is not to be replaced.
pub(crate) fn check(file: &Path, replacing: Replacing) -> Result<(), Failure> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if folder.is_dir() && !file.is_dir() {
        return replacing.check(file);
    }
    let text = format!("--report {}: name a file in a folder that is there", file.display());
    Err(Failure::new(Exit::Usage, text))
}

fn read(recordings: &[PathBuf]) -> Result<RunReport, Failure> {
    RunReport::read(recordings).map_err(|error| Failure::of_recording("report", error))
}
