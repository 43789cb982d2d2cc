//! `gpuvitals sample`: rows of every device to the terminal.

mod format;
mod print;
mod round;

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::BoolishValueParser;
use gpuvitals_core::catalogue::Scope;
use gpuvitals_core::integral::Blanks;
use gpuvitals_core::{AbsenceReason, Batch, Table};
use gpuvitals_settings::Override;
use gpuvitals_sources::attribution::Owners;
use gpuvitals_sources::registry::{Finding, Verdict};
use gpuvitals_sources::sampler::{Liveness, Sampler, SamplerConfig, TargetState};
use gpuvitals_sources::settings::Sampling;

use crate::failure::{Exit, Failure};
use crate::sampling::{discover, nothing_to_sample, rates_of, refused};

use format::Format;
use print::Printer;
use round::{Round, Waiting, name};

/// How long a wait for rows lasts at most before the devices are looked at.
const PATIENCE: Duration = Duration::from_millis(50);

/// `gpuvitals sample`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gpuvitals sample                                  a line a second for each GPU
  gpuvitals sample --format csv -i 10ms -n 1000     ten seconds at 100 Hz
  gpuvitals sample --host --per-core                the host and each of its CPUs")]
pub(crate) struct Sample {
    /// How rows are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// End after this many rows of each device [default: go on until interrupted]
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<u64>,
    /// Time between two rows of a device: 1s, 100ms, 1ms at least [default: sampling.rate of the configuration, 1s]
    #[arg(long, short = 'i', value_name = "DURATION")]
    interval: Option<String>,
    /// Print the host's rows instead of the GPUs', or beside them if the format allows it
    #[arg(long)]
    host: bool,
    /// Print a row of each CPU of the host as well, with its share; means --host [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    per_core: Option<bool>,
}

impl Sample {
    /// The settings these flags change.
    ///
    /// # Errors
    /// When the interval is none.
    pub(crate) fn overrides(&self) -> Result<Vec<Override>, Failure> {
        let rates = self.interval.as_deref().map(|text| rates_of("--interval", text)).transpose()?;
        let per_core = self.per_core.map(|is| Override {
            setting: "sampling.per_core",
            value: is.into(),
            flag: "--per-core",
        });
        Ok(rates.into_iter().flatten().chain(per_core).collect())
    }

    fn of_host(&self) -> bool {
        self.host || self.per_core == Some(true)
    }

    /// Whether rows of that table are printed: CSV has one header, and so one table.
    fn wants(&self, table: Table) -> bool {
        match table {
            Table::GpuEvents => !(self.of_host() && self.format == Format::Csv),
            Table::SystemEvents => self.of_host(),
            _ => false,
        }
    }
}

/// Prints rows until there are enough, or the reader goes away.
///
/// # Errors
/// If there is nothing to sample, or standard output fails.
pub(crate) fn run(flags: &Sample, sampling: &Sampling) -> Result<(), Failure> {
    let mut found = discover(sampling)?;
    found.probes.retain(|probe| flags.wants(probe.table()));
    if found.probes.is_empty() {
        return Err(nothing_to_sample(&found));
    }
    warn(&found.findings);
    let config = SamplerConfig { hand_on: Duration::ZERO, ..sampling.sampler() };
    let sampler = Sampler::start(found.probes, config, Owners::new()).map_err(refused)?;
    let mut printer = Printer::new(flags.format, sampling.per_core, sampling.sampler());
    match print_rows(&sampler, flags.count, &mut printer) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::io("cannot write to standard output", error)),
        Ok(given) if given == 0 && flags.count != Some(0) => Err(gave_nothing(&sampler.states())),
        Ok(_) => Ok(()),
    }
}

/// Returns how many rows were printed.
fn print_rows(sampler: &Sampler, count: Option<u64>, printer: &mut Printer) -> io::Result<u64> {
    let mut given: HashMap<Arc<str>, u64> = HashMap::new();
    let mut out = io::stdout().lock();
    let mut sick = Sick::default();
    let mut round = Round::default();
    let mut print = |rows: Vec<Waiting>| -> io::Result<()> {
        for Waiting { batch, row } in &rows {
            printer.print(&mut out, batch, *row)?;
        }
        if rows.is_empty() { Ok(()) } else { out.flush() }
    };
    loop {
        let batch = sampler.next(PATIENCE);
        let is_silent = batch.is_none();
        if let Some(batch) = batch.filter(|batch| batch.table() != Table::GpuDetails).map(Arc::new) {
            for row in counted_rows(&batch, &mut given, count) {
                print(round.take(&batch, row))?;
            }
            warn(&sampler.findings());
        }
        let states = sampler.states();
        let up = states.iter().filter(|state| state.liveness == Liveness::Up).map(TargetState::name);
        if is_silent || round.has_all(up) {
            print(round.end())?;
        }
        // Without any row the reasons are those of the failure.
        if count.is_none() || !given.is_empty() {
            sick.news(&states).iter().for_each(|text| tell(text));
        }
        if is_silent && sampler.is_over() || count.is_some_and(|count| is_enough(&given, &states, count)) {
            break;
        }
    }
    print(round.end())?;
    Ok(given.values().map(|&rows| count.map_or(rows, |count| rows.min(count))).sum())
}

/// The rows of a batch that are printed: those with a value, of each device at most so many, and those of its CPUs.
fn counted_rows(batch: &Batch, given: &mut HashMap<Arc<str>, u64>, count: Option<u64>) -> Vec<usize> {
    let blanks = Blanks::of(batch);
    // A row without values means that the device reports nothing; its state has the reason.
    let rows = (0..batch.rows()).filter(|&row| !blanks.has(row)).filter(|&row| {
        let printed = given.entry(name(batch, row)).or_insert(0);
        // The rows of its CPUs follow the host's own and do not count as rows of the device.
        *printed += u64::from(batch.instance(Scope::CpuCore, row).is_none());
        count.is_none_or(|count| *printed <= count)
    });
    rows.collect()
}

/// Whether every device has given so many rows, or gives none.
fn is_enough(given: &HashMap<Arc<str>, u64>, states: &[TargetState], count: u64) -> bool {
    states.iter().all(|state| match &state.liveness {
        Liveness::Starting => false,
        Liveness::Up => given.get(&state.name()).copied().unwrap_or(0) >= count,
        Liveness::Down { .. } | Liveness::Stuck { .. } => true,
    })
}

/// The devices that give nothing now, by name, and why, as far as it was said.
#[derive(Debug, Default)]
struct Sick(HashMap<Arc<str>, &'static str>);

impl Sick {
    /// Which devices hang or fail and why, and which answer again: each once.
    fn news(&mut self, states: &[TargetState]) -> Vec<String> {
        let mut news = Vec::new();
        for state in states {
            let name = state.name();
            let (word, text) = match &state.liveness {
                Liveness::Stuck { .. } => ("stuck", "hangs: the driver holds the call".to_owned()),
                Liveness::Down { reason, detail } => (reason.as_str(), detail.clone()),
                Liveness::Starting | Liveness::Up => {
                    if self.0.remove(&name).is_some() && state.liveness == Liveness::Up {
                        news.push(format!("{name} by {}: it answers again", state.driver));
                    }
                    continue;
                }
            };
            if self.0.insert(Arc::clone(&name), word) != Some(word) {
                news.push(format!("{name} by {}: {text}", state.driver));
            }
        }
        news
    }
}

/// Prints on standard error which values will be missing.
fn warn(findings: &[Finding]) {
    for finding in findings.iter().filter(|finding| finding.verdict >= Verdict::Partial) {
        tell(&format!("{}: {}", finding.subject, finding.text));
    }
}

fn tell(text: &str) {
    // If not even this can be written, nobody is left to report to.
    let _unwritten = writeln!(io::stderr(), "gpuvitals: {text}");
}

fn gave_nothing(states: &[TargetState]) -> Failure {
    let is_denied =
        |state: &TargetState| matches!(&state.liveness, Liveness::Down { reason: AbsenceReason::Denied, .. });
    let exit = if states.iter().any(is_denied) { Exit::Permission } else { Exit::Unavailable };
    let lines = states.iter().map(|state| {
        let why = match &state.liveness {
            Liveness::Down { detail, .. } => detail.clone(),
            Liveness::Stuck { for_ns } => format!("no answer for {} s", for_ns / 1_000_000_000),
            Liveness::Starting | Liveness::Up => "no answer yet".to_owned(),
        };
        format!("\n  {} by {}: {why}", state.name(), state.driver)
    });
    let text: String = std::iter::once("no device gave a row".to_owned()).chain(lines).collect();
    Failure::new(exit, text)
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::{Identity, IdentityColumn};
    use gpuvitals_sources::probe::Driver;

    use super::*;

    #[test]
    fn a_gpu_that_hangs_is_named_once_and_once_more_when_it_answers() {
        let mut sick = Sick::default();
        let mut news = |liveness| {
            let mut identity = Identity::default().with(IdentityColumn::Node, "n1").unwrap();
            identity.index = Some(3);
            identity.resolve().unwrap();
            sick.news(&[TargetState {
                identity: Arc::new(identity),
                sharers: Vec::new(),
                table: Table::GpuEvents,
                driver: Driver::Nvml,
                liveness,
                since_ns: 0,
                last_row_ns: None,
                update_interval: None,
            }])
        };
        let hangs = ["n1:gpu3 by nvml: hangs: the driver holds the call"];
        assert!(news(Liveness::Starting).is_empty() && news(Liveness::Up).is_empty());
        assert_eq!(news(Liveness::Stuck { for_ns: 1_000_000_000 }), hangs);
        assert!(news(Liveness::Stuck { for_ns: 9_000_000_000 }).is_empty());
        let gone = Liveness::Down { reason: AbsenceReason::Gone, detail: "gone: it is lost".to_owned() };
        assert_eq!(news(gone), ["n1:gpu3 by nvml: gone: it is lost"]);
        assert_eq!(news(Liveness::Up), ["n1:gpu3 by nvml: it answers again"]);
    }
}
