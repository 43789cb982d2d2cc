//! `gpuvitals compare`: two sets of recordings beside each other, as an answer for people, pull requests and CI.

mod shown;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use gpuvitals_record::{
    ChangeVerdict, CompareError, ComparedRun, MetricGate, RUNS_MAX, UnlikeRuns, compare, refuse_twice,
};

use crate::failure::{Exit, Failure};
use crate::terminal;

/// Examples for the help.
pub(crate) const EXAMPLES: &str = "Examples:
  gpuvitals record -o before/1 -- python train.py     a run; record three on each side at least
  gpuvitals compare before/1 before/2 before/3 -- after/1 after/2 after/3
  gpuvitals compare main/* -- branch/*
  gpuvitals compare --gate step_s:+2%,energy_j:+3% --markdown main/* -- branch/*

Flags stand before the -- of the new runs.

Exit codes: 0 same or better, 1 a gate failed, 2 noise hides whether one did (with --strict),
64 usage, 65 the runs are not alike, one is there twice, or they lack a metric of a gate. Docs:
docs/compare.md.";

/// A gate failed.
const FAILED: u8 = 1;
/// Whether one failed cannot be told.
const OPEN: u8 = 2;

/// `gpuvitals compare`
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
#[derive(Debug, Args)]
pub(crate) struct CompareFlags {
    /// Recordings to compare with, a directory for each run
    #[arg(required = true, num_args = 1.., value_name = "BASE", value_hint = ValueHint::DirPath)]
    base: Vec<PathBuf>,
    /// Recordings that are compared with them
    #[arg(last = true, required = true, num_args = 1.., value_name = "NEW", value_hint = ValueHint::DirPath)]
    new: Vec<PathBuf>,
    /// How far metrics may change: step_s:+2% may not rise by more, gpu_clock_mhz:-1% may not fall by more [default: +1% for
    /// step_s or duration_s, +2% for step_energy_j or energy_j]
    #[arg(long = "gate", value_name = "METRIC:+PERCENT%", value_delimiter = ',')]
    gates: Vec<MetricGate>,
    /// Exit with 2 if noise hides whether a gate failed
    #[arg(long)]
    strict: bool,
    /// Compare runs with other GPUs, partitions, power limits or clock locks, too
    #[arg(long)]
    anyway: bool,
    /// Print JSON; metrics have the names of --gate
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print Markdown, for a pull request
    #[arg(long)]
    markdown: bool,
}

/// Compares recordings. Returns the exit code.
///
/// # Errors
/// If a recording cannot be read, or they cannot be compared.
pub(crate) fn run(flags: &CompareFlags) -> Result<ExitCode, Failure> {
    let is_flag = |path: &&PathBuf| path.as_os_str().as_encoded_bytes().starts_with(b"-");
    if let Some(flag) = flags.new.iter().find(is_flag) {
        let text = format!("{}: what follows -- are recordings; put flags before it", flag.display());
        return Err(Failure::new(Exit::Usage, text));
    }
    let read = |paths: &[PathBuf]| -> Result<Vec<ComparedRun>, Failure> {
        let unread = |error| Failure::of_recording("compare", error);
        refuse_twice(paths).map_err(unread)?;
        paths.iter().map(|path| ComparedRun::read(path).map_err(unread)).collect()
    };
    if flags.base.len().max(flags.new.len()) > RUNS_MAX {
        // Before they are read.
        return Err(refused(&CompareError::Runs));
    }
    let unlike = if flags.anyway { UnlikeRuns::Compared } else { UnlikeRuns::Refused };
    let (base, new) = (read(&flags.base)?, read(&flags.new)?);
    let found = compare(&base, &new, &flags.gates, unlike).map_err(|error| refused(&error))?;
    let text = if flags.json {
        // Names and numbers: nothing in it can fail.
        serde_json::to_string_pretty(&found).unwrap_or_default() + "\n"
    } else if flags.markdown {
        shown::markdown(&found)
    } else {
        shown::text(&found)
    };
    terminal::print(&text)?;
    Ok(match found.verdict {
        ChangeVerdict::Regression => ExitCode::from(FAILED),
        ChangeVerdict::CannotTell if flags.strict => ExitCode::from(OPEN),
        _ => ExitCode::SUCCESS,
    })
}

fn refused(error: &CompareError) -> Failure {
    match error {
        CompareError::Runs => Failure::new(Exit::Usage, error.to_string()),
        CompareError::Unlike(_) => {
            Failure::new(Exit::Data, format!("{error}; --anyway compares them nevertheless"))
        }
        CompareError::Missing { .. } | CompareError::Nothing => Failure::new(Exit::Data, error.to_string()),
    }
}
