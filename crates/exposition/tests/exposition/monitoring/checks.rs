//! `promtool` on the rules: they parse, and each alert fires, clears, and is silent before.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use gpuvitals_rig::program::Finished as _;

use super::alerts::{GROUPS, RULES, Shown};
use super::{recording, root, yaml};

fn promtool(args: &[&str], of: &Path) {
    let output = Command::new("promtool").args(args).arg(of).finished();
    let output = output.expect("promtool runs; scripts/need promtool installs it");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {args:?}: {text}");
}

#[test]
fn the_rules_parse() {
    for file in [RULES, recording::RULES] {
        promtool(&["check", "rules"], &root().join(file));
    }
}

#[test]
fn each_alert_fires_clears_and_is_silent_before() {
    let rules = root().join(RULES).canonicalize().unwrap();
    let mut out = format!("rule_files: [\"{}\"]\nevaluation_interval: 1m\ntests:\n", rules.display());
    let alerts: Vec<_> = GROUPS.iter().flat_map(|(_, alerts)| alerts()).collect();
    for (alert, shown) in alerts.iter().flat_map(|alert| alert.shown.iter().map(move |shown| (alert, shown)))
    {
        writeln!(out, "  - name: {}\n    interval: 1m\n    input_series:", alert.name).unwrap();
        for (series, values) in &shown.series {
            writeln!(out, "      - series: '{series}'\n        values: '{values}'").unwrap();
        }
        writeln!(out, "    alert_rule_test:").unwrap();
        for (minute, fires) in [(0, false), (60, true), (180, false)] {
            writeln!(out, "      - eval_time: {minute}m\n        alertname: {}", alert.name).unwrap();
            if fires {
                writeln!(out, "        exp_alerts:\n          - exp_labels:").unwrap();
                yaml::word(&mut out, 14, "severity", alert.severity);
                for (label, text) in shown.labels.iter().filter(|(label, _)| *label != "severity") {
                    yaml::text(&mut out, 14, label, text);
                }
                writeln!(out, "            exp_annotations:").unwrap();
                for (key, text) in [("summary", alert.summary.clone()), ("description", alert.description())]
                {
                    yaml::text(&mut out, 14, key, &filled(&text, shown));
                }
                yaml::text(&mut out, 14, "runbook", &alert.runbook());
            } else {
                writeln!(out, "        exp_alerts: []").unwrap();
            }
        }
    }
    test_rules("alerts-tests.yaml", &out);
}

/// Runs a file of `promtool test rules`.
pub(crate) fn test_rules(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, text).unwrap();
    promtool(&["test", "rules"], &file);
}

/// A text with the labels and the value of the test in it.
fn filled(text: &str, shown: &Shown) -> String {
    let (template, value) = &shown.value;
    let text = if template.is_empty() { text.to_owned() } else { text.replace(template.as_str(), value) };
    shown
        .labels
        .iter()
        .fold(text, |text, (label, value)| text.replace(&format!("{{{{ $labels.{label} }}}}"), value))
}
