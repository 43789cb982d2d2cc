//! `gpuvitals record`, `repair` and `mark`: recordings of this machine.

mod beside;
mod chosen;
mod holder;
mod progress;
mod summary;
mod words;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use clap::builder::{BoolishValueParser, OsStringValueParser, TypedValueParser as _};
use gpuvitals_agent::HOOK_SOCKET;
use gpuvitals_analysis::summary::Summary;
use gpuvitals_core::{AbsenceReason, Table};
use gpuvitals_record::{
    Arguments, MARK_SOCKET_VARIABLE, MarkContent, MarkSocket, RecordError, RecordSummary, Recorded, Recorder,
    RecorderConfig, RunFacts, send_mark,
};
use gpuvitals_settings::Override;
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::registry::Discovery;
use gpuvitals_sources::sampler::Liveness;
use gpuvitals_sources::settings::{Attribution, Sampling};

use crate::child::{Signals, code_of};
use crate::failure::{Exit, Failure};
use crate::replacing::Replacing;
use crate::report;
use crate::sampling::{discover, nothing_to_sample, refused, unasked};
use crate::{quantity, terminal};

use chosen::OpenedTables;
use holder::RunHolder;
use words::tell;

pub(crate) use words::{bytes, count};

/// `gpuvitals record`
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gpuvitals record -- python train.py      records while the command runs, and exits as it does
  gpuvitals record --duration 10s --json   ten seconds, summary as JSON
  gpuvitals mark 'epoch 1'                 from within the command: a mark in the recording

Docs: docs/recording.md.")]
pub(crate) struct Record {
    /// Samples of a GPU a second, up to 1000
    #[arg(long, value_name = "HZ", default_value_t = 100.0)]
    rate: f64,
    /// Samples of the host a second
    #[arg(long, value_name = "HZ", default_value_t = 10.0)]
    system_rate: f64,
    /// Record each CPU of the host too: rows of their own in system_events [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    per_core: Option<bool>,
    /// Directory of the recording
    #[arg(long, short = 'o', value_name = "DIR", default_value = "telemetry")]
    output: PathBuf,
    /// End after this time: 10s, 5m [default: when interrupted]
    #[arg(long, value_name = "DURATION", conflicts_with = "command")]
    duration: Option<String>,
    /// Record beside a process that runs already, and end with it
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pid: Option<u32>,
    /// Fail if there is no GPU to read, instead of recording the host alone
    #[arg(long)]
    require_gpus: bool,
    /// Replace a recording that is there already, and its report
    #[arg(long)]
    force: bool,
    /// Keep the command's arguments in the files, not its name alone: they may hold secrets
    #[arg(long)]
    keep_arguments: bool,
    /// Record all GPUs, whatever CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES say in the recorder's own environment
    #[arg(long)]
    all_gpus: bool,
    /// Socket of this node's agent, which is told that the run holds its GPUs [default: /run/gpuvitals/agent.sock]
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
    /// Write the report of the recording as a page, too: see `gpuvitals report`
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print no progress
    #[arg(long, short = 'q')]
    quiet: bool,
    /// Command to record: begins and ends with it, passes signals on, and exits as it does
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// `gpuvitals repair`
#[derive(Debug, Args)]
pub(crate) struct Repair {
    /// Directory of the recording
    #[arg(default_value = "telemetry")]
    directory: PathBuf,
}

/// `gpuvitals mark`
#[derive(Debug, Args)]
#[command(after_help = "Examples, in a command that `gpuvitals record -- COMMAND` runs:
  gpuvitals mark 'epoch 1'
  gpuvitals mark --phase train                     a phase begins, and ends the one before it
  gpuvitals mark --step 12 --value tokens=8192     a step begins; the one before it took 8192 tokens

From elsewhere --socket takes the path that `gpuvitals record` prints. Docs: docs/recording.md.")]
pub(crate) struct Mark {
    /// The event of this moment [default: what the flags say]
    #[arg(required_unless_present_any = ["phase", "step", "value"])]
    text: Option<String>,
    /// The phase that begins: load, warm-up, checkpoint; an empty one ends the phase before it
    #[arg(long, value_name = "NAME")]
    phase: Option<String>,
    /// Number of the step that begins
    #[arg(long, value_name = "N")]
    step: Option<i64>,
    /// A value of this moment: tokens=8192, loss=2.31
    #[arg(long, value_name = "NAME=NUMBER", value_parser = named_value)]
    value: Option<(String, f64)>,
    /// Socket of the recording; set for programs that are recorded
    // An empty one in the environment is none, and no mistake of the command line.
    #[arg(long, env = MARK_SOCKET_VARIABLE, value_name = "PATH", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    socket: Option<PathBuf>,
}

/// A name and a number.
fn named_value(text: &str) -> Result<(String, f64), String> {
    let form = || format!("{text:?} needs the form NAME=NUMBER, as tokens=8192");
    let (name, number) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(form)?;
    let number = number.trim().parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(form)?;
    Ok((name.to_owned(), number))
}

impl Mark {
    fn content(&self) -> MarkContent {
        let (value_name, value) = self.value.clone().unzip();
        let text = self.text.clone().unwrap_or_default();
        MarkContent { text, phase: self.phase.clone(), step: self.step, value_name, value }
    }
}

impl Record {
    /// The settings these flags change.
    pub(crate) fn overrides(&self) -> Vec<Override> {
        let set = |setting, value, flag| Override { setting, value, flag };
        let mut all = vec![
            set("sampling.rate", self.rate.into(), "--rate"),
            set("sampling.system_rate", self.system_rate.into(), "--system-rate"),
        ];
        all.extend(self.per_core.map(|is| set("sampling.per_core", is.into(), "--per-core")));
        all
    }

    /// Where the agent is told of the run; none: nothing was started that holds GPUs, or which ones is not known. The agent of this machine is
    /// not told of the GPUs of a captured one.
    fn agent(&self, tables: &OpenedTables, machine: &Machine) -> Option<PathBuf> {
        let usual = || (!machine.is_captured()).then(|| PathBuf::from(HOOK_SOCKET));
        self.agent.clone().or_else(usual).filter(|_| tables.are_known())
    }

    fn replacing(&self) -> Replacing {
        Replacing { force: self.force }
    }

    fn duration(&self) -> Result<Option<Duration>, Failure> {
        self.duration.as_deref().map(|text| quantity::flag("--duration", text)).transpose()
    }
}

/// Records until the command ends, the time is over or a signal comes. Returns the exit code.
///
/// # Errors
/// If there is nothing to record, or it cannot be written.
pub(crate) fn run(
    flags: &Record,
    sampling: &Sampling,
    attribution: &Attribution,
) -> Result<ExitCode, Failure> {
    let duration = flags.duration()?;
    flags.report.as_deref().map_or(Ok(()), |file| report::check(file, flags.replacing()))?;
    let mut found = discover(sampling)?;
    if found.probes.is_empty() || (flags.require_gpus && !has_gpus(&found)) {
        return Err(nothing_to_sample(&found));
    }
    let mut shown = progress::RecordProgress::new(flags.quiet, !flags.command.is_empty(), sampling.rate);
    warn(&found);
    let mut config = recorder_config(flags, sampling)?;
    let tables = narrowed(flags, &mut found, &config.machine)?;
    config.run.chosen = Some(tables.chosen().to_owned());
    let without_gpus = code_without_gpus(flags, sampling, &found);
    let summary = Arc::new(Mutex::new(Summary::new(config.interval, config.system_interval)));
    let mut signals = Signals::catch()?;
    let ownership = sampling.ownership();
    let asking = attribution
        .ask(&ownership, &config.machine, std::mem::take(&mut found.processes))
        .map_err(unasked)?;
    config.owners = Arc::clone(ownership.owners());
    let holder = RunHolder::of(&flags.output, flags.agent(&tables, &config.machine));
    let recorder = Recorder::start_with(found, config, adding_to(&summary)).map_err(failure)?;
    let socket = recorder.mark_socket().map_err(|error| tell(&format!("marks cannot be set: {error}"))).ok();
    let marks = socket.as_ref().map(MarkSocket::path);
    let mut child = match start(&flags.command, marks) {
        Ok(child) => child,
        Err((code, text)) => {
            recorder.discard().map_err(failure)?;
            tell(&text);
            return Ok(code.into());
        }
    };
    let opened = flags.pid.or(child.as_ref().map(Child::id)).and_then(|process| tables.watch(process));
    shown.begin(&flags.output, marks, &recorder.progress().workers);
    let mut look = || {
        let progress = recorder.progress();
        holder.look(&progress);
        progress::warn(&recorder.findings());
        shown.draw(&progress);
        !progress.is_over && flags.pid.is_none_or(beside::lives)
    };
    let code = if let Some(child) = &mut child {
        // The command continues although its recording failed: the failure is reported at the end.
        Some(code_of(signals.wait_for(child, || _ = look())?))
    } else {
        signals.wait(duration, look);
        None
    };
    progress::warn(&recorder.findings());
    terminal::leave();
    drop((socket, asking, holder));
    let recorded = match recorder.stop() {
        Ok(recorded) => recorded,
        Err(error) => return failed(error, &flags.output, code),
    };
    tell_losses(&recorded);
    let of_rows = summary.lock().unwrap_or_else(PoisonError::into_inner);
    let mut summary = RecordSummary::new(&recorded, &of_rows, sampling, code);
    if let Some(opened) = opened {
        opened.narrow(&mut summary);
    }
    print(flags, &summary)?;
    write_page(flags, code)?;
    Ok(code.unwrap_or(if recorded.gpu_rows == 0 { without_gpus } else { 0 }).into())
}

/// Leaves the GPUs of the command or the process, as far as the environment names some, unless all are asked for.
///
/// # Errors
/// If none is left, and there has to be one.
fn narrowed(flags: &Record, found: &mut Discovery, machine: &Machine) -> Result<OpenedTables, Failure> {
    if flags.all_gpus {
        return Ok(OpenedTables::of_all("--all-gpus"));
    }
    if flags.command.is_empty() && flags.pid.is_none() {
        return Ok(OpenedTables::of_all("no program is recorded"));
    }
    let tables = chosen::narrow(found, machine);
    if flags.require_gpus && !has_gpus(found) {
        let text = "the environment names no GPU that could be recorded; --all-gpus records all";
        return Err(Failure::new(Exit::Unavailable, text));
    }
    Ok(tables)
}

/// The end of a recording that could not be completed.
fn failed(error: RecordError, directory: &Path, code: Option<u8>) -> Result<ExitCode, Failure> {
    let is_empty = matches!(error, RecordError::Empty(_));
    let failure = unfinished(error, directory);
    // How the command ended matters more than that its recording failed.
    match code {
        Some(code) if is_empty => {
            tell(&failure.to_string());
            Ok(code.into())
        }
        Some(code) if code != 0 => Ok(code.into()),
        _ => Err(failure),
    }
}

/// The exit code of a recording without a row of a GPU: a failure if one was asked for, or a driver was named that has some.
fn code_without_gpus(flags: &Record, sampling: &Sampling, found: &Discovery) -> u8 {
    let is_asked_for = flags.require_gpus || !sampling.drivers.is_empty();
    if is_asked_for && has_gpus(found) { Exit::Unavailable as u8 } else { 0 }
}

fn has_gpus(found: &Discovery) -> bool {
    found.probes.iter().any(|probe| probe.table() == Table::GpuEvents)
}

/// Adds each batch to the summary.
fn adding_to(summary: &Arc<Mutex<Summary>>) -> impl FnMut(&gpuvitals_core::Batch) + Send + use<> {
    let summary = Arc::clone(summary);
    move |batch| summary.lock().unwrap_or_else(PoisonError::into_inner).add(batch)
}

/// Starts the command, if there is one, with our standard streams as its own.
///
/// # Errors
/// With the exit code that shells use in this case, and a message.
fn start(words: &[OsString], marks: Option<&Path>) -> Result<Option<Child>, (u8, String)> {
    let Some((name, arguments)) = words.split_first() else { return Ok(None) };
    let mut command = Command::new(name);
    command.args(arguments);
    if let Some(path) = marks {
        command.env(MARK_SOCKET_VARIABLE, path);
    }
    command.spawn().map(Some).map_err(|error| {
        let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
        (code, format!("cannot start {}: {error}", name.display()))
    })
}

fn recorder_config(flags: &Record, sampling: &Sampling) -> Result<RecorderConfig, Failure> {
    if let Some(pid) = flags.pid.filter(|pid| !beside::lives(*pid)) {
        let text = format!("--pid {pid}: no such process runs; name one that does");
        return Err(Failure::new(Exit::Usage, text));
    }
    let sampler = sampling.sampler();
    let mut config = RecorderConfig::new(&flags.output, sampling.machine()?);
    config.interval = sampler.interval;
    config.system_interval = sampler.system_interval;
    config.slow = sampler.slow;
    config.rare = sampler.rare;
    config.overwrite = flags.force;
    let arguments = if flags.keep_arguments { Arguments::Kept } else { Arguments::Dropped };
    let beside = flags.pid.map(beside::words).unwrap_or_default();
    let words = if flags.command.is_empty() { &beside } else { &flags.command };
    config.run = RunFacts::of(words, arguments, Path::new("/"), Path::new("."));
    if flags.pid.is_some_and(|pid| !beside::is_here(pid)) {
        (config.run.container, config.run.commit) = (None, None);
    }
    Ok(config)
}

/// Prints the summary: text beside the output of a command, or as the answer; JSON as the answer always.
fn print(flags: &Record, summary: &RecordSummary) -> Result<(), Failure> {
    let text = if flags.json { summary.json() } else { summary::text(summary) };
    let written = if flags.json || flags.command.is_empty() {
        io::stdout().write_all(text.as_bytes())
    } else {
        io::stderr().write_all(text.as_bytes())
    };
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::io("cannot print the summary", error))
        }
        _ => Ok(()),
    }
}

/// Writes the page of the recording, if there is to be one. How the command failed matters more than that its page did.
fn write_page(flags: &Record, code: Option<u8>) -> Result<(), Failure> {
    let Some(file) = &flags.report else { return Ok(()) };
    match report::page(&flags.output, file, flags.replacing()) {
        Err(failure) if code.is_some_and(|code| code != 0) => {
            tell(&failure.to_string());
            Ok(())
        }
        written => written,
    }
}

/// Completes a recording that was killed.
///
/// # Errors
/// If there is none, it still runs, or cannot be read.
pub(crate) fn repair(flags: &Repair) -> Result<(), Failure> {
    let text = match gpuvitals_record::repair(&flags.directory).map_err(failure)? {
        None => format!("{}: nothing to do, the recording is whole\n", flags.directory.display()),
        Some(repaired) => format!(
            "{}: repaired, {} rows of GPUs, {} of the host, {} marks; {} bytes were no whole record\n",
            flags.directory.display(),
            repaired.gpu_rows,
            repaired.system_rows,
            repaired.marks,
            repaired.torn_bytes
        ),
    };
    terminal::print(&text)
}

/// Sets a mark in the recording of this program.
///
/// # Errors
/// If this program is not recorded, or nobody listens at the socket.
pub(crate) fn mark(flags: &Mark) -> Result<(), Failure> {
    let Some(socket) = flags.socket.as_ref().filter(|path| !path.as_os_str().is_empty()) else {
        let text = format!(
            "no recording is told by {MARK_SOCKET_VARIABLE}: run the program with `gpuvitals record -- CMD`, or give \
             the --socket that `gpuvitals record` prints"
        );
        return Err(Failure::new(Exit::Usage, text));
    };
    send_mark(socket, flags.content()).map_err(|error| {
        let text = format!(
            "no recording listens at {}: it has ended, or `gpuvitals record` has yet to be started",
            socket.display()
        );
        Failure::caused(Exit::Unavailable, text, error)
    })
}

/// Says on standard error which values will be missing.
fn warn(found: &Discovery) {
    progress::warn(&found.findings);
    if !has_gpus(found) {
        tell("no GPU was found, only the host is recorded; `gpuvitals doctor` says why");
    }
}

fn tell_losses(recorded: &Recorded) {
    for target in &recorded.stuck {
        tell(&format!("{} by {} did not answer to the end", target.name(), target.driver));
    }
    let progress = &recorded.progress;
    for target in &progress.targets {
        if let Liveness::Down { reason, detail } = &target.liveness
            && *reason != AbsenceReason::Suspended
        {
            tell(&format!("{} by {}: {detail}", target.name(), target.driver));
        }
    }
    for (count, what) in [
        (progress.rows_dropped, "rows were dropped: the disk did not keep up"),
        (progress.marks_dropped, "marks were dropped"),
    ] {
        if count > 0 {
            tell(&format!("{count} {what}"));
        }
    }
}

fn failure(error: RecordError) -> Failure {
    match error {
        RecordError::Exists { unfinished: false, .. } => {
            Failure::new(Exit::Data, format!("{error}; --force replaces it"))
        }
        RecordError::Exists { unfinished: true, ref path } => {
            let path = path.display().to_string();
            Failure::new(
                Exit::Data,
                format!("{error}; `gpuvitals repair {path}` completes it, --force replaces it"),
            )
        }
        RecordError::Sampler(error) => refused(error),
        RecordError::Empty(ref targets) => {
            let why = targets.iter().filter_map(|target| match &target.liveness {
                Liveness::Down { detail, .. } => Some(format!("; {}: {detail}", target.name())),
                Liveness::Stuck { .. } => Some(format!("; {} does not answer", target.name())),
                Liveness::Starting | Liveness::Up => None,
            });
            Failure::new(Exit::Unavailable, format!("{error}{}", why.collect::<String>()))
        }
        RecordError::Busy { .. } => Failure::caused(Exit::Unavailable, "cannot record", error),
        RecordError::Thread(_) => Failure::caused(Exit::Io, "cannot record", error),
        RecordError::Writer | RecordError::Batch(_) => Failure::caused(Exit::Bug, "cannot record", error),
        _ => Failure::of_recording("record", error),
    }
}

/// Rows written before are not lost, and this is reported at once: the command's failure may come first
/// later.
fn unfinished(error: RecordError, directory: &Path) -> Failure {
    if matches!(error, RecordError::Empty(_)) {
        return failure(error);
    }
    let failure = failure(error);
    tell(&format!(
        "the recording ended before its time ({failure}); `gpuvitals repair {}` restores what was written",
        directory.display()
    ));
    failure
}
