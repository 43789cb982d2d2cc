//! `gpuvitals clocks`: the clocks of GPUs are shown, locked for a measurement, and given back.

mod say;
mod show;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use gpuvitals_clocks::{
    ClockControl, ClockError, ClockJournal, ClockStep, ClocksBusy, Held, Level, Lock, Plan, reset_gpu_clocks,
    restore_clocks,
};
use gpuvitals_core::{Identity, IdentityColumn};
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::settings::Sampling;

use crate::child::{self, Signals};
use crate::failure::{Exit, Failure};
use crate::terminal::{self, PrintForm};

use say::{failure, name, tell};

/// `gpuvitals clocks`
#[derive(Debug, Args)]
pub(crate) struct Clocks {
    #[command(subcommand)]
    action: ClocksAction,
}

#[derive(Debug, Subcommand)]
enum ClocksAction {
    /// Show the present clocks, and whether they are locked
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        devices: Devices,
    },
    /// Lock clocks: until `clocks reset`, or while a command runs
    ///
    /// The settings before the lock are restored when the command has ended, in any way. SIGINT, SIGTERM and
    /// SIGHUP are passed on to the command; its exit code is passed on too.
    Lock(LockFlags),
    /// Give the clocks back to the driver
    Reset {
        /// Print the planned writes, write nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        devices: Devices,
    },
}

#[derive(Debug, Args)]
struct Devices {
    /// This GPU only: index, UUID or unique id, or PCI address; may be given several times [default: all]
    #[arg(long = "gpu", value_name = "GPU", value_delimiter = ',')]
    gpus: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gpuvitals clocks lock --level high -- ./benchmark     for as long as a command runs
  gpuvitals clocks lock --gpu 0 --sclk 1500             until `gpuvitals clocks reset`
  gpuvitals clocks lock --gpu 0 --sclk 1500 --dry-run   what would be written")]
struct LockFlags {
    /// How the driver chooses clocks. NVIDIA has auto, low and high
    #[arg(long, value_parser = levels(), value_name = "LEVEL")]
    level: Option<String>,
    /// GPU clock: the nearest that the GPU can hold
    #[arg(long, value_name = "MHZ")]
    sclk: Option<u32>,
    /// Memory clock: the nearest that the GPU can hold
    #[arg(long, value_name = "MHZ")]
    mclk: Option<u32>,
    /// Print what would be written, write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    devices: Devices,
    /// Command that runs with these clocks
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn levels() -> PossibleValuesParser {
    PossibleValuesParser::new(Level::ALL.map(Level::as_str))
}

impl Clocks {
    fn devices(&self) -> &Devices {
        match &self.action {
            ClocksAction::Show { devices, .. } | ClocksAction::Reset { devices, .. } => devices,
            ClocksAction::Lock(flags) => &flags.devices,
        }
    }
}

impl LockFlags {
    fn lock(&self) -> Lock {
        Lock {
            level: self.level.as_deref().and_then(Level::by_name),
            gpu_mhz: self.sclk,
            memory_mhz: self.mclk,
        }
    }
}

/// Shows, locks or resets.
///
/// # Errors
/// If the GPU is missing, does not support the request, or the right is missing.
pub(crate) fn run(flags: &Clocks, sampling: &Sampling) -> Result<ExitCode, Failure> {
    let machine = sampling.machine()?;
    let found = gpuvitals_clocks::find(&machine, &sampling.drivers);
    if found.controls.is_empty() {
        let seen: Vec<String> = found
            .findings
            .iter()
            .map(|finding| {
                let remedy = finding.remedy.as_ref().map_or(String::new(), |remedy| format!(" ({remedy})"));
                format!("; {}: {}{remedy}", finding.subject, finding.text)
            })
            .collect();
        let text = format!("no GPU with readable clocks was found{}", seen.concat());
        return Err(Failure::new(Exit::Unavailable, text));
    }
    let mut controls = chosen(found.controls, &flags.devices().gpus)?;
    let controls = controls.as_mut_slice();
    let code = match &flags.action {
        ClocksAction::Show { json, .. } => show::show(controls, PrintForm::of(*json), &machine)?,
        ClocksAction::Reset { dry_run: true, .. } => {
            let plans = controls.iter_mut().map(|control| {
                let plan = control.plan_reset();
                plan.map_err(|error| failure(control.identity(), error))
            });
            let plans = plans.collect::<Result<Vec<_>, _>>()?;
            terminal::print(&forward_of(controls, &plans))?;
            0
        }
        ClocksAction::Reset { .. } => reset(controls, &machine)?,
        ClocksAction::Lock(flags) if flags.dry_run => {
            let plans = planned(controls, &flags.lock())?;
            let mut text = forward_of(controls, &plans);
            if !flags.command.is_empty() {
                text.push_str("# when the command has ended\n");
                text.push_str(&steps_of(controls, &plans, |plan| &plan.back));
            }
            terminal::print(&text)?;
            0
        }
        ClocksAction::Lock(flags) if flags.command.is_empty() => keep(controls, &flags.lock(), &machine)?,
        ClocksAction::Lock(flags) => hold(controls, flags, &machine)?,
    };
    Ok(ExitCode::from(code))
}

/// Locks clocks until they are reset.
fn keep(controls: &mut [Box<dyn ClockControl>], lock: &Lock, machine: &Machine) -> Result<u8, Failure> {
    let mut journals = journals(controls, machine)?;
    let plans = planned(controls, lock)?;
    take(controls, plans, &mut journals, ClockJournal::keep)?.into_iter().for_each(Held::keep);
    show::show(controls, PrintForm::Text, machine)
}

/// Locks clocks for as long as a command runs.
fn hold(controls: &mut [Box<dyn ClockControl>], flags: &LockFlags, machine: &Machine) -> Result<u8, Failure> {
    // From here on no signal ends this program before the clocks are given back.
    let signals = Signals::catch()?;
    let mut journals = journals(controls, machine)?;
    let plans = planned(controls, &flags.lock())?;
    let held = take(controls, plans, &mut journals, ClockJournal::begin)?;
    let ended = signals.run(&flags.command);
    let mut restored = Ok(());
    for (held, journal) in held.into_iter().zip(&mut journals) {
        let identity = held.identity().clone();
        match held.give_back() {
            Ok(()) => journal.end(),
            Err(error) => restored = restored.and(Err(failure(&identity, error))),
        }
    }
    let ended = ended.map(child::code_of);
    match restored {
        Err(failure) if !matches!(ended, Ok(0)) => {
            tell(&format!("the clocks were not given back: {failure}"));
            ended
        }
        restored => restored.and(ended),
    }
}

/// Restores clocks, first from the journals of earlier locks, then by the driver.
fn reset(controls: &mut [Box<dyn ClockControl>], machine: &Machine) -> Result<u8, Failure> {
    let mut journals = opened(controls, machine)?;
    let mut first = Ok(());
    for (control, journal) in controls.iter_mut().zip(&mut journals) {
        // An earlier setting that can no longer be restored must not keep the driver from taking over.
        for noted in [journal.running(), journal.kept()] {
            if let Err(error) = restore_clocks(control.as_mut(), noted) {
                let failure = failure(control.identity(), error);
                tell(&format!("the settings before a lock are not restored: {failure}"));
            }
        }
        match reset_gpu_clocks(control.as_mut()) {
            Ok(()) => journal.clear(),
            Err(error) => first = first.and(Err(failure(control.identity(), error))),
        }
    }
    first?;
    show::show(controls, PrintForm::Text, machine)
}

/// The journal of each GPU, held as long as it lives.
fn opened(controls: &[Box<dyn ClockControl>], machine: &Machine) -> Result<Vec<ClockJournal>, Failure> {
    let busy = |busy: ClocksBusy| Failure::new(Exit::Unavailable, busy.to_string());
    let keys = controls.iter().map(|control| key(control.as_ref()));
    keys.map(|key| ClockJournal::open(&key, machine, tell).map_err(busy)).collect()
}

/// The same for a lock: the settings before a killed holder's lock are restored first.
fn journals(controls: &mut [Box<dyn ClockControl>], machine: &Machine) -> Result<Vec<ClockJournal>, Failure> {
    let mut journals = opened(controls, machine)?;
    for (control, journal) in controls.iter_mut().zip(&mut journals) {
        if !journal.running().is_empty() {
            let name = name(control.identity());
            tell(&format!("{name}: an earlier lock was killed; restoring the settings before it"));
            restore_clocks(control.as_mut(), journal.running()).map_err(|error| {
                tell(&format!("{name}: `clocks reset` returns the clocks to the driver instead"));
                failure(control.identity(), error)
            })?;
            journal.end();
        }
    }
    Ok(journals)
}

/// Plans for all GPUs, before anything is changed on one of them.
fn planned(controls: &mut [Box<dyn ClockControl>], lock: &Lock) -> Result<Vec<Plan>, Failure> {
    controls
        .iter_mut()
        .map(|control| {
            let plan = control.plan(lock).map_err(|error| failure(control.identity(), error))?;
            for note in &plan.notes {
                tell(&format!("{}: {note}", name(control.identity())));
            }
            Ok(plan)
        })
        .collect()
}

/// Makes the planned changes, each saved before; if one fails, the earlier ones are undone. An entry is
/// dropped only when its settings are in force again.
fn take<'a>(
    controls: &'a mut [Box<dyn ClockControl>],
    plans: Vec<Plan>,
    journals: &mut [ClockJournal],
    note: fn(&mut ClockJournal, &Plan),
) -> Result<Vec<Held<'a>>, Failure> {
    let mut taken: Vec<(Held<'a>, &mut ClockJournal)> = Vec::new();
    for ((control, plan), journal) in controls.iter_mut().zip(plans).zip(journals) {
        let identity = control.identity().clone();
        note(journal, &plan);
        match Held::take(control.as_mut(), plan) {
            Ok(held) => taken.push((held, journal)),
            Err(error) => {
                if !matches!(error, ClockError::HalfMade { .. }) {
                    journal.undo();
                }
                for (held, journal) in taken {
                    let identity = held.identity().clone();
                    match held.give_back() {
                        Ok(()) => journal.undo(),
                        Err(error) => {
                            let failure = failure(&identity, error);
                            tell(&format!("the clocks were not given back: {failure}"));
                        }
                    }
                }
                return Err(failure(&identity, error));
            }
        }
    }
    Ok(taken.into_iter().map(|(held, _)| held).collect())
}

/// The GPUs that were asked for.
fn chosen(
    controls: Vec<Box<dyn ClockControl>>,
    names: &[String],
) -> Result<Vec<Box<dyn ClockControl>>, Failure> {
    let mut wanted = vec![names.is_empty(); controls.len()];
    for asked in names {
        let matching: Vec<usize> = controls
            .iter()
            .enumerate()
            .filter(|(_, control)| is_called(control.identity(), asked))
            .map(|(at, _)| at)
            .collect();
        match matching.as_slice() {
            [at] => wanted.iter_mut().skip(*at).take(1).for_each(|wanted| *wanted = true),
            several => {
                let known: Vec<String> = controls.iter().map(|control| name(control.identity())).collect();
                let what = if several.is_empty() { "no GPU is" } else { "several GPUs are" };
                let text = format!("{what} called {asked:?}; there is {}", known.join(", "));
                return Err(Failure::new(Exit::Usage, text));
            }
        }
    }
    Ok(controls.into_iter().zip(wanted).filter(|(_, wanted)| *wanted).map(|(control, _)| control).collect())
}

fn is_called(identity: &Identity, asked: &str) -> bool {
    let bare = asked.strip_prefix("0x").unwrap_or(asked);
    let texts = [identity.uuid(), identity.get(IdentityColumn::Pci)];
    texts
        .into_iter()
        .flatten()
        .any(|text| text.eq_ignore_ascii_case(asked) || text.eq_ignore_ascii_case(bare))
        || identity.index.is_some_and(|index| asked == index.to_string())
}

fn key(control: &dyn ClockControl) -> Arc<str> {
    control.identity().key().unwrap_or_default()
}

fn forward_of(controls: &[Box<dyn ClockControl>], plans: &[Plan]) -> String {
    steps_of(controls, plans, |plan| &plan.forward)
}

/// Steps of the plans of all GPUs, a line each.
fn steps_of(controls: &[Box<dyn ClockControl>], plans: &[Plan], steps: fn(&Plan) -> &[ClockStep]) -> String {
    let of_gpu = |(control, plan): (&dyn ClockControl, &Plan)| -> String {
        let line =
            |step: &ClockStep| format!("{}\n", ClockStep { target: control.place(step), ..step.clone() });
        steps(plan).iter().map(line).collect()
    };
    controls.iter().map(AsRef::as_ref).zip(plans).map(of_gpu).collect()
}
