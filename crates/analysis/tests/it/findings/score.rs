//! How right the findings are.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::path::Path;

use super::faults::{FAULTS, Place, Target, Trouble};
use super::lab::{Lab, gpu_seconds, is_about};

#[derive(Default)]
pub(crate) struct Score {
    of_faults: BTreeMap<usize, OfFault>,
    /// By kind: findings that a fault explains, and false ones.
    of_kinds: BTreeMap<&'static str, (usize, usize)>,
    gpu_days: f64,
    runs: usize,
    false_alarms: Vec<String>,
}

#[derive(Default)]
struct OfFault {
    runs: usize,
    seconds: Vec<f64>,
}

impl Score {
    pub(crate) fn add(&mut self, lab: &Lab) {
        self.gpu_days += lab.gpu_days();
        self.runs += 1;
        for trouble in &lab.troubles {
            let number = FAULTS.iter().position(|fault| fault.name == trouble.fault.name).unwrap();
            let is_own = matches!(trouble.fault.place, Place::Own(_));
            let begin_ns = if is_own { 0 } else { lab.fault_ns };
            let right = lab.opened.iter().filter(|opened| {
                trouble.fault.right.contains(&opened.kind)
                    && is_about(opened, &trouble.target)
                    && opened.at_ns >= begin_ns
            });
            let entry = self.of_faults.entry(number).or_default();
            entry.runs += 1;
            entry.seconds.extend(right.map(|opened| gpu_seconds(opened.at_ns - begin_ns)).reduce(f64::min));
        }
        // The first host has the fleet's own faults in every run.
        let own = FAULTS.iter().filter_map(|fault| match fault.place {
            Place::Own(index) => Some(Target::Gpu("sim-node-0001".to_owned(), index)),
            _ => None,
        });
        let own: Vec<Target> = own.collect();
        let mut seen = HashSet::new();
        for opened in lab.opened.iter().filter(|opened| seen.insert((opened.kind, opened.subject.clone()))) {
            let of = |trouble: &Trouble| {
                let is_in_time = opened.at_ns >= lab.fault_ns;
                is_in_time && is_about(opened, &trouble.target)
            };
            let is_true = lab.troubles.iter().any(of) || own.iter().any(|target| is_about(opened, target));
            let counts = self.of_kinds.entry(opened.kind).or_default();
            if is_true {
                counts.0 += 1;
            } else {
                counts.1 += 1;
                self.false_alarms.push(format!(
                    "seed {}: {} {} at {:.0} s: {}",
                    lab.seed,
                    opened.kind,
                    opened.subject,
                    gpu_seconds(opened.at_ns),
                    opened.sentence
                ));
            }
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    pub(crate) fn false_alarms_per_gpu_day(&self) -> f64 {
        self.false_alarms.len() as f64 / self.gpu_days
    }

    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    pub(crate) fn recall(&self) -> f64 {
        let runs: usize = self.of_faults.values().map(|one| one.runs).sum();
        let found: usize = self.of_faults.values().map(|one| one.seconds.len()).sum();
        found as f64 / runs as f64
    }

    /// What runs without a fault had.
    pub(crate) fn clean_line(&self, hours: i64) -> String {
        let (alarms, rate) = (self.false_alarms.len(), self.false_alarms_per_gpu_day());
        let (runs, days) = (self.runs, self.gpu_days);
        for alarm in &self.false_alarms {
            eprintln!("{alarm}");
        }
        format!(
            "\n{runs} runs of {hours} hours without a fault but those of the first host: {alarms} false alarms in {days:.0} GPU-days, \
             {rate:.4} a GPU-day.\n"
        )
    }

    /// The tables in Markdown.
    pub(crate) fn table(&self, is_long: bool) -> String {
        let mut text = String::new();
        let days = self.gpu_days;
        writeln!(
            text,
            "{} runs of 64 simulated GPUs over 90 minutes with a row every 10 s: {days:.0} GPU-days.\n",
            self.runs
        )
        .unwrap();
        text.push_str("| fault | found as | runs | recall | seconds until found: median, longest |\n|---|---|---|---|---|\n");
        for (number, OfFault { runs, seconds }) in &self.of_faults {
            let fault = &FAULTS[*number];
            let mut seconds = seconds.clone();
            seconds.sort_by(f64::total_cmp);
            let times = seconds
                .last()
                .map_or("-".to_owned(), |longest| format!("{:.0}, {longest:.0}", seconds[seconds.len() / 2]));
            let recall = percent(seconds.len(), *runs);
            writeln!(text, "| {} | {} | {runs} | {recall} | {times} |", fault.name, fault.right.join(", "))
                .unwrap();
        }
        text.push_str("\n| kind | true | false | precision |\n|---|---|---|---|\n");
        for (kind, (right, wrong)) in &self.of_kinds {
            writeln!(text, "| {kind} | {right} | {wrong} | {} |", percent(*right, right + wrong)).unwrap();
        }
        let rate = self.false_alarms_per_gpu_day();
        writeln!(
            text,
            "\nFalse alarms: {} in {days:.0} GPU-days, {rate:.4} a GPU-day.",
            self.false_alarms.len()
        )
        .unwrap();
        for alarm in &self.false_alarms {
            if is_long { eprintln!("{alarm}") } else { writeln!(text, "{alarm}").unwrap() }
        }
        text
    }
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
pub(crate) fn percent(part: usize, whole: usize) -> String {
    let share = 100.0 * part as f64 / whole as f64;
    // What is not all is not 100 %.
    let digits = usize::from(part < whole && share >= 99.5);
    format!("{share:.digits$} %")
}

/// Whether a part of the documentation is this table, after it was written if that is wanted.
pub(crate) fn put(part: &str, table: &str, write: bool) -> bool {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/findings.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (begin, end) =
        (format!("<!-- {part}: written by a test -->\n\n"), format!("\n<!-- end of {part} -->"));
    let (before, rest) = text.split_once(&begin).unwrap();
    let (old, after) = rest.split_once(&end).unwrap();
    let is_same = old == table;
    if write && !is_same {
        std::fs::write(&path, format!("{before}{begin}{table}{end}{after}")).unwrap();
    }
    is_same || write
}
