//! `gpuvitals doctor`: what was found, what is missing, and the remedy.
//!
//! Discovery finds the devices; then every device is really read for a moment, on its own thread, since only
//! a reading shows whether reading works.

#[cfg(feature = "services")]
mod history;
mod power;
mod surroundings;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use gpuvitals_analysis::condition::{self, MatchedCondition, Severity};
use gpuvitals_core::clock::Moment;
use gpuvitals_core::number::float;
use gpuvitals_core::{AbsenceReason, Batch, IdentityColumn, MetricId, Table, batch};
use gpuvitals_sources::attribution::Owners;
use gpuvitals_sources::dialect::nvml;
use gpuvitals_sources::probe::Driver;
use gpuvitals_sources::registry::{Finding, Verdict};
use gpuvitals_sources::sampler::{Liveness, Sampler, SamplerConfig, TargetState, WorkerStats};
use serde_json::{Value, json};

use crate::config::Config;
use crate::failure::{Exit, Failure};
use crate::terminal;
use power::PowerWatch;

/// How long devices have for their first reading; a vendor's tool may take seconds.
const PATIENCE: Duration = Duration::from_secs(35);
/// Readings of each device, so that its price is an average.
const READINGS: u64 = 5;
/// Wait for one batch before the states are looked at again.
const STEP: Duration = Duration::from_millis(20);

/// `gpuvitals doctor`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gpuvitals doctor
  gpuvitals doctor --absent            why a value is missing
  gpuvitals doctor --driver nvml       why this way does not work
  gpuvitals doctor --measure           what a reading costs
  gpuvitals doctor --measure power     how often the power sensor has a new value, and of how long

Exit codes: 0 all GPUs can be sampled, 69 one cannot or there is none, 77 a right is missing. Docs: docs/terminal.md, docs/energy.md.")]
pub(crate) struct Doctor {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Name every value that a device does not give, with the reason
    #[arg(long)]
    absent: bool,
    /// Measure what calls cost, or the sensor of power
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, default_missing_value = "calls")]
    measure: Option<Measured>,
}

/// What to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Measured {
    /// The time that each call of NVML takes on every NVIDIA GPU: twenty times
    Calls,
    /// How often each GPU makes a reading of its power, and over which time it averages: 20 s, best under a load that
    /// starts and stops
    Power,
}

/// A device that was read for a moment.
struct Examined {
    state: TargetState,
    stats: Option<WorkerStats>,
    seen: DeviceValues,
}

/// A device's values and absences.
#[derive(Default)]
struct DeviceValues {
    values: BTreeMap<MetricId, batch::Value>,
    absent: BTreeMap<&'static str, AbsenceReason>,
}

/// Examines and prints.
///
/// # Errors
/// 69 if no GPU can be sampled, or one of those found cannot; 77 if the missing part is a right.
pub(crate) fn run(flags: &Doctor, config: &Config) -> Result<(), Failure> {
    let mut found = crate::sampling::discover(&config.sampling)?;
    let machine = config.sampling.machine()?;
    let mut findings = found.findings;
    if machine.has_foreign_procfs() {
        // The host that a captured tree is examined on is not the one it was captured on.
        found.probes.retain(|probe| probe.table() == Table::GpuEvents);
        findings.retain(|finding| finding.subject != Driver::Procfs.as_str());
    }
    if !machine.is_captured() {
        findings.extend(surroundings::look(config));
    }
    if flags.measure == Some(Measured::Calls) {
        findings.extend(nvml::measure(&machine));
    }
    let mut watch = (flags.measure == Some(Measured::Power)).then(PowerWatch::default);
    let mut examined = Vec::new();
    if !found.probes.is_empty() {
        let terms = terms(watch.as_ref());
        let sampler =
            Sampler::start(Vec::new(), terms.clone(), Owners::new()).map_err(crate::sampling::refused)?;
        for probe in found.probes {
            sampler.add(probe).map_err(crate::sampling::refused)?;
        }
        examined = examine(&sampler, &terms, watch.as_mut());
        findings.extend(sampler.findings());
    }
    findings.extend(watch.iter().flat_map(PowerWatch::findings));
    let verdict = verdict(&findings, &examined);
    let report = if flags.json { as_json(&findings, &examined, &verdict) } else { String::new() };
    let text = if flags.json { report } else { as_text(&findings, &examined, flags.absent) };
    terminal::print(&text)?;
    verdict
}

fn terms(watch: Option<&PowerWatch>) -> SamplerConfig {
    let usual = SamplerConfig {
        interval: Duration::from_millis(100),
        system_interval: Duration::from_millis(100),
        hand_on: Duration::ZERO,
        ..SamplerConfig::default()
    };
    match watch {
        None => usual,
        // A driver with a limit is read at it: then its sensor may be too fast to be seen, which is said.
        Some(_) => SamplerConfig {
            interval: power::INTERVAL,
            hand_on: usual.interval,
            exact: false,
            monotonic: true,
            ..usual
        },
    }
}

/// Reads until every device has answered, several times, and its power was watched long enough.
fn examine(sampler: &Sampler, terms: &SamplerConfig, mut watch: Option<&mut PowerWatch>) -> Vec<Examined> {
    let after = |time: Duration| {
        Moment::now().mono_ns.saturating_add(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX))
    };
    let end_ns = after(PATIENCE);
    let watched_ns = after(if watch.is_some() { power::LASTS } else { Duration::ZERO });
    let mut seen: BTreeMap<Arc<str>, DeviceValues> = BTreeMap::new();
    loop {
        if let Some(batch) = sampler.next(STEP) {
            note(&batch, &mut seen);
            if let Some(watch) = &mut watch {
                watch.note(&batch);
            }
        }
        let (states, stats) = (sampler.states(), sampler.stats());
        let said = states.iter().all(|state| state.liveness != Liveness::Starting);
        // A device is up a moment before its first row is here.
        let heard = states.iter().filter(|state| state.liveness == Liveness::Up).all(|state| {
            !matches!(state.table, Table::GpuEvents | Table::SystemEvents) || seen.contains_key(&state.name())
        });
        let enough = stats.iter().all(|stats| stats.ticks >= READINGS || stats.interval > terms.interval);
        let stuck = states.iter().any(|state| matches!(state.liveness, Liveness::Stuck { .. }));
        let now_ns = Moment::now().mono_ns;
        let is_done = said && heard && (enough || stuck) && now_ns >= watched_ns;
        if is_done || now_ns > end_ns || sampler.is_over() {
            let examined = |state: TargetState| {
                let name = state.name();
                let stats = stats.iter().find(|stats| stats.targets.contains(&name)).cloned();
                let seen = seen.remove(&name).unwrap_or_default();
                Examined { state, stats, seen }
            };
            return states.into_iter().map(examined).collect();
        }
    }
}

fn note(batch: &Batch, seen: &mut BTreeMap<Arc<str>, DeviceValues>) {
    for row in 0..batch.rows() {
        let identity = batch.identity(row);
        let key = identity.key().or_else(|| identity.shared(IdentityColumn::Node).cloned());
        let seen = seen.entry(key.clone().unwrap_or_default()).or_default();
        for (metric, column) in batch.metrics() {
            if let Some(value) = column.value(row) {
                seen.values.insert(metric, value);
            }
        }
        for absence in batch.absences().iter().filter(|absence| Some(&absence.gpu) == key.as_ref()) {
            seen.absent.insert(absence.metric.metric().column, absence.reason);
        }
    }
}

/// Whether sampling will work.
fn verdict(findings: &[Finding], examined: &[Examined]) -> Result<(), Failure> {
    let gpus = || examined.iter().filter(|one| one.state.table == Table::GpuEvents);
    let sick = gpus().filter(|one| one.judged().0 == Verdict::Broken).count();
    let denied = findings.iter().any(|finding| finding.is_denied)
        || gpus()
            .any(|one| matches!(&one.state.liveness, Liveness::Down { reason: AbsenceReason::Denied, .. }));
    let exit = if denied { Exit::Permission } else { Exit::Unavailable };
    let broken = findings.iter().filter(|finding| finding.verdict == Verdict::Broken).count();
    if gpus().next().is_none() {
        return Err(Failure::new(exit, "no GPU can be sampled here; see above for what to do"));
    }
    if sick > 0 {
        let all = gpus().count();
        let text = format!("{sick} of {all} GPUs cannot be sampled or are sick; see above for what to do");
        return Err(Failure::new(exit, text));
    }
    if broken > 0 {
        return Err(Failure::new(exit, "not everything works; see above for what to do"));
    }
    Ok(())
}

impl Examined {
    /// How well it is, why not, and what to do about it.
    fn judged(&self) -> (Verdict, String, Option<Cow<'static, str>>) {
        let verdict = how(&self.state.liveness);
        if verdict != Verdict::Good {
            return (verdict, liveness(&self.state.liveness).1, None);
        }
        if self.seen.values.is_empty() {
            return (Verdict::Broken, "it answers, and gives no value".to_owned(), None);
        }
        let conditions: Vec<MatchedCondition> =
            condition::found(|metric| self.seen.values.get(&metric).copied()).collect();
        if let Some(worst) = conditions.first().filter(|it| it.condition.severity >= Severity::Warning) {
            let is_failed = worst.condition.severity == Severity::Critical;
            let sentences: Vec<String> = conditions.iter().map(MatchedCondition::sentence).collect();
            let verdict = if is_failed { Verdict::Broken } else { Verdict::Partial };
            return (verdict, sentences.join("; "), Some(worst.remedy(&self.state.identity)));
        }
        let gone = self.seen.absent.values().filter(|reason| **reason == AbsenceReason::Gone).count();
        if gone > 0 {
            let text = format!("the driver has lost it or asks for a reset: {gone} of its values are gone");
            return (Verdict::Broken, text, Some("reset the GPU, or reboot the node".into()));
        }
        (Verdict::Good, String::new(), None)
    }
}

/// A GPU that sleeps is well; it gives values when it is used.
fn how(liveness: &Liveness) -> Verdict {
    match liveness {
        Liveness::Up => Verdict::Good,
        Liveness::Down { reason: AbsenceReason::Suspended, .. } => Verdict::Note,
        Liveness::Starting | Liveness::Down { .. } | Liveness::Stuck { .. } => Verdict::Broken,
    }
}

fn as_json(findings: &[Finding], examined: &[Examined], verdict: &Result<(), Failure>) -> String {
    let devices: Vec<Value> = examined
        .iter()
        .map(|one| {
            let (liveness, _) = liveness(&one.state.liveness);
            let (verdict, detail, remedy) = one.judged();
            let stats = one.stats.as_ref();
            json!({
                "key": &*one.state.name(),
                "driver": one.state.driver.as_str(),
                "model": one.state.identity.get(IdentityColumn::Model),
                "liveness": liveness,
                "verdict": word(verdict),
                "detail": detail,
                "remedy": remedy,
                "values": one.seen.values.len(),
                "reading_us": stats.and_then(mean_read_us),
                "reading_max_us": stats.map(|stats| stats.read_max_ns / 1_000),
                "absent": one.seen.absent.iter().map(|(name, reason)| ((*name).to_owned(), reason.as_str().into()))
                    .collect::<serde_json::Map<String, Value>>(),
            })
        })
        .collect();
    let findings: Vec<Value> = findings
        .iter()
        .map(|finding| {
            json!({
                "verdict": word(finding.verdict),
                "subject": finding.subject,
                "text": finding.text,
                "remedy": finding.remedy,
            })
        })
        .collect();
    let report = json!({ "works": verdict.is_ok(), "findings": findings, "devices": devices });
    format!("{report:#}\n")
}

fn as_text(findings: &[Finding], examined: &[Examined], name_absent: bool) -> String {
    let mut report = TextReport { lines: Vec::new(), colour: io::stdout().is_terminal() };
    for finding in findings {
        report.judged(finding.verdict, &finding.subject, &finding.text);
        if let Some(remedy) = &finding.remedy {
            report.below(&format!("→ {remedy}"));
        }
    }
    for one in examined {
        let (verdict, detail, remedy) = one.judged();
        let price = one.stats.as_ref().and_then(mean_read_us).map_or(String::new(), |us| {
            format!("; a reading takes {us:.0} µs on average, slow values included")
        });
        let text = match verdict {
            Verdict::Good => format!("{} values{price}", one.seen.values.len()),
            _ => detail,
        };
        report.judged(verdict, &subject(&one.state), &text);
        if let Some(remedy) = remedy {
            report.below(&format!("→ {remedy}"));
        }
        let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, reason) in &one.seen.absent {
            by_reason.entry(reason.as_str()).or_default().push(name);
        }
        for (reason, names) in by_reason {
            let list = if name_absent { format!(": {}", names.join(", ")) } else { String::new() };
            report.below(&format!("{} {reason}{list}", names.len()));
        }
    }
    report.lines.concat()
}

fn subject(state: &TargetState) -> String {
    let model = state.identity.get(IdentityColumn::Model);
    let who = match (state.table, state.identity.index) {
        (Table::SystemEvents, _) => "host".to_owned(),
        (_, Some(index)) => format!("GPU {index} {}", model.unwrap_or_default()),
        (_, None) => state.name().to_string(),
    };
    format!("{} by {}", who.trim_end(), state.driver)
}

/// A report for people: lines that are judged, and what there is to say about each below it.
struct TextReport {
    lines: Vec<String>,
    colour: bool,
}

impl TextReport {
    fn judged(&mut self, verdict: Verdict, subject: &str, text: &str) {
        let (on, off) = match (self.colour, verdict) {
            (false, _) => ("", ""),
            (true, Verdict::Good) => ("\x1b[32m", "\x1b[0m"),
            (true, Verdict::Note) => ("\x1b[36m", "\x1b[0m"),
            (true, Verdict::Partial) => ("\x1b[33m", "\x1b[0m"),
            (true, Verdict::Broken) => ("\x1b[31m", "\x1b[0m"),
        };
        self.lines.push(format!("{on}{:>9}{off}   {subject}: {text}\n", word(verdict)));
    }

    fn below(&mut self, text: &str) {
        self.lines.push(format!("            {text}\n"));
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Good => "good",
        Verdict::Note => "note",
        Verdict::Partial => "partial",
        Verdict::Broken => "broken",
    }
}

fn liveness(liveness: &Liveness) -> (&'static str, String) {
    match liveness {
        Liveness::Starting => ("starting", "no answer yet".to_owned()),
        Liveness::Up => ("up", String::new()),
        Liveness::Down { reason, detail } => (reason.as_str(), detail.clone()),
        Liveness::Stuck { for_ns } => {
            ("stuck", format!("no answer for {} s; the driver holds the call", for_ns / 1_000_000_000))
        }
    }
}

fn mean_read_us(stats: &WorkerStats) -> Option<f64> {
    (stats.ticks > 0).then(|| float(stats.read_ns) / float(stats.ticks) / 1_000.0)
}
