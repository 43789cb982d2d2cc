//! A comparison, as text for people and as Markdown for a pull request.

use std::fmt::Write as _;

use gpuvitals_core::quantity::counted;
use gpuvitals_record::{
    ChangeVerdict, GateOutcome, MetricChange, MetricGate, RunComparison, RunDifference, RunMetric, RunOutline,
};
use gpuvitals_report::MarkdownText;
use serde_json::Value;

use crate::table;

const HEADINGS: [&str; 6] = ["metric", "base", "new", "change", "95 % interval", "verdict"];

/// Tables and sentences for a terminal.
pub(super) fn text(found: &RunComparison) -> String {
    let mut text = format!("base: {}\nnew:  {}\n", runs(&found.base), runs(&found.new));
    let mut line = |words: String| {
        text.push_str(&table::text(&Value::from(words)));
        text.push('\n');
    };
    found.differs.iter().map(difference).for_each(&mut line);
    let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
    rows.extend(found.metrics.iter().map(|(metric, change)| cells(metric.name(), change).to_vec()));
    table::with_numbers(&rows, 1).lines().map(str::to_owned).for_each(&mut line);
    found.gates.iter().map(gate).for_each(&mut line);
    for cause in &found.why {
        line(format!("why: {} ({}), explains {:.0} %", cause.sentence, cause.id, 100.0 * cause.explains));
    }
    if let Some(words) = unexplained(found) {
        line(words.to_owned());
    }
    if let Some(caution) = &found.caution {
        line(caution.clone());
    }
    text
}

/// The same for a pull request.
pub(super) fn markdown(found: &RunComparison) -> String {
    let mut text = format!("### gpuvitals: {}\n\n", word(Some(found.verdict)));
    let row = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| MarkdownText(cell).to_string()).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    text.push_str(&row(&HEADINGS.map(str::to_owned)));
    text.push_str("| --- | ---: | ---: | ---: | ---: | --- |\n");
    for (metric, change) in &found.metrics {
        text.push_str(&row(&cells(metric.name(), change)));
    }
    text.push('\n');
    let mut item = |words: &str| {
        // Writing to a text cannot fail.
        let _written = writeln!(text, "- {}", MarkdownText(words));
    };
    found.gates.iter().map(gate).for_each(|words| item(&words));
    for cause in &found.why {
        item(&format!("why: {} ({:.0} %)", cause.sentence, 100.0 * cause.explains));
    }
    unexplained(found).into_iter().for_each(&mut item);
    found.caution.iter().for_each(|words| item(words));
    found.differs.iter().map(difference).for_each(|words| item(&words));
    item(&format!("base: {}; new: {}", runs(&found.base), runs(&found.new)));
    text
}

fn runs(runs: &[RunOutline]) -> String {
    let steps: usize = runs.iter().map(|run| run.steps).sum();
    let gpus = runs.iter().map(|run| run.gpus).max().unwrap_or(0);
    let steps = if steps == 0 { "no steps".to_owned() } else { counted(steps as u64, "step") };
    format!("{}, {}, {steps}", counted(runs.len() as u64, "run"), counted(gpus as u64, "GPU"))
}

fn difference(difference: &RunDifference) -> String {
    let RunDifference { what, base, new, refuses } = difference;
    let remark = if *refuses { ": they are not alike" } else { "" };
    format!("{what} differs: {}, now {}{remark}", base.join(" or "), new.join(" or "))
}

fn gate(outcome: &GateOutcome) -> String {
    let gate = MetricGate { metric: outcome.metric, limit: outcome.limit_pct / 100.0 };
    let result = match outcome.verdict {
        ChangeVerdict::Regression => "failed",
        ChangeVerdict::CannotTell => "cannot tell",
        ChangeVerdict::Same | ChangeVerdict::Improvement => "held",
    };
    format!("gate {gate}: {result}")
}

/// That another time has no cause among what was recorded; nothing if it has, or if the time is the same: causes are of the time alone.
fn unexplained(found: &RunComparison) -> Option<&'static str> {
    let time = [RunMetric::StepS, RunMetric::DurationS].iter().find_map(|metric| found.metrics.get(metric));
    let verdict = time.and_then(|change| change.verdict);
    let changed = matches!(verdict, Some(ChangeVerdict::Regression | ChangeVerdict::Improvement));
    (changed && found.why.is_empty()).then_some("why: nothing that was recorded explains it")
}

fn cells(name: &str, change: &MetricChange) -> [String; 6] {
    [
        name.to_owned(),
        figure(change.base),
        figure(change.new),
        format!("{:+.2} %", change.change_pct),
        format!("{:+.2} to {:+.2} %", change.low_pct, change.high_pct),
        word(change.verdict).to_owned(),
    ]
}

/// A number with four digits that count, below 10 with four places.
fn figure(value: f64) -> String {
    match value.abs() {
        large if large >= 1_000.0 => format!("{value:.0}"),
        large if large >= 100.0 => format!("{value:.1}"),
        large if large >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn word(verdict: Option<ChangeVerdict>) -> &'static str {
    match verdict {
        None => "-",
        Some(ChangeVerdict::Improvement) => "improvement",
        Some(ChangeVerdict::Same) => "same",
        Some(ChangeVerdict::CannotTell) => "cannot tell",
        Some(ChangeVerdict::Regression) => "regression",
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_record::ChangeCause;

    use super::*;

    fn found(sentence: &str) -> RunComparison {
        let run = RunOutline { recording: "a".to_owned(), steps: 40, gpus: 8 };
        let metric = "step_s:+1%".parse::<MetricGate>().unwrap().metric;
        let change = MetricChange {
            base: 0.46,
            new: 0.469,
            change_pct: 2.0,
            low_pct: 1.2,
            high_pct: 2.8,
            detectable_pct: 0.8,
            certain: true,
            verdict: Some(ChangeVerdict::Regression),
        };
        let commit = RunDifference {
            what: "command",
            base: vec!["train|x".to_owned()],
            new: vec![sentence.to_owned()],
            refuses: false,
        };
        let cause = ChangeCause {
            id: "clock_heat",
            explains: 0.98,
            sentence: "the clock under load: 1700 -> 1666 MHz".to_owned(),
            gpu: None,
        };
        RunComparison {
            base: vec![run.clone()],
            new: vec![run],
            differs: vec![commit],
            metrics: [(metric, change)].into(),
            gates: vec![GateOutcome { metric, limit_pct: 1.0, verdict: ChangeVerdict::Regression }],
            verdict: ChangeVerdict::Regression,
            why: vec![cause],
            caution: None,
        }
    }

    #[test]
    fn the_text_has_the_change_its_gate_and_its_cause() {
        let text = text(&found("other"));
        for wanted in [
            "base: 1 run, 8 GPUs, 40 steps",
            "command differs: train|x, now other",
            "step_s  0.4600  0.4690  +2.00 %",
            "gate step_s:+1%: failed",
            "why: the clock under load: 1700 -> 1666 MHz (clock_heat), explains 98 %",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
    }

    #[test]
    fn what_runs_say_of_themselves_is_text_and_nothing_else() {
        let evil = "</script>\n# x | y `z` \u{1b}[31m @all";
        let markdown = markdown(&found(evil));
        assert!(!markdown.contains("</script>") && !markdown.contains("\n# x"), "{markdown}");
        assert!(
            markdown.contains("@<!-- -->all") && !markdown.contains("@all"),
            "it calls nobody: {markdown}"
        );
        assert!(markdown.contains("\n| --- | ---: |"), "a table: {markdown}");
        assert!(markdown.contains("train\\|x") && markdown.contains("\\`z\\`"), "{markdown}");
        assert!(!text(&found(evil)).contains('\u{1b}'));
    }

    #[test]
    fn a_change_without_a_cause_says_so() {
        let mut found = found("");
        found.why.clear();
        assert!(text(&found).contains("nothing that was recorded explains it"));
        assert!(markdown(&found).contains("nothing that was recorded explains it"));
    }
}
