//! The dashboards for a Prometheus that scrapes, and by rule those for our own history.

use std::collections::HashSet;

use gpuvitals_exposition::ColumnSeries;

use super::{JOBS, NODE_INFO, OF, PODS, Panel, of, sick};

/// What a dashboard asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A Prometheus that scrapes agents and services.
    Scrapes,
    /// Our own history by its PromQL, which has columns, and neither states of agents nor figures of services.
    History,
}

impl Source {
    pub(crate) fn uid(self, name: &str) -> String {
        if self == Self::History { format!("gpuvitals-history-{name}") } else { format!("gpuvitals-{name}") }
    }

    pub(crate) fn title(self, title: &str) -> String {
        if self == Self::History { format!("{title} (history)") } else { title.to_owned() }
    }

    /// Panels without what cannot be asked.
    pub(crate) fn panels(self, panels: Vec<Panel>) -> Vec<Panel> {
        if self == Self::Scrapes {
            return panels;
        }
        let kept: HashSet<_> = ColumnSeries::all().0.into_iter().map(|series| series.name).collect();
        let is_series = |name: &&str| {
            *name == "up" || ["gpu_", "host_", "gpuvitals_", "DCGM_"].iter().any(|it| name.starts_with(it))
        };
        let is_kept = |expr: &str| {
            let names = expr.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            names.filter(is_series).all(|name| kept.contains(name))
        };
        let of_history = |mut panel: Panel| {
            if panel.targets[0].0 == sick().targets[0].0 {
                "Of the whole range. The page's Now judges more: docs/findings.md."
                    .clone_into(&mut panel.help);
            }
            for (expr, _) in &mut panel.targets {
                *expr = in_history(expr);
            }
            panel.targets.retain(|(expr, _)| is_kept(expr));
            (!panel.targets.is_empty()).then_some(panel)
        };
        panels.into_iter().filter_map(of_history).collect()
    }
}

/// Of the holders of a GPU the one with the newest row.
fn newest(holders: &str) -> String {
    format!("(topk by (instance, uuid, partition) (1, timestamp({holders})) ^ 0)")
}

/// An expression about scrapes as one about the history, as far as there is a rule.
fn in_history(expr: &str) -> String {
    let lost = r#"last_over_time(gpu_info{cluster=~"$cluster",node=~"$node"}[$__range]) unless on (uuid, partition) gpu_info"#;
    let grew = |series: &str| format!("(increase({series}[$__range]) > 0) * {OF}");
    let wrong = [
        (lost.to_owned(), "no values", "critical"),
        (grew(&of("ecc_uncorrected_volatile")), "uncorrectable memory errors", "critical"),
        (grew(&of("ras_uncorrected")), "uncorrectable memory errors", "critical"),
        (grew(&of("xid_count")), "xid", "warning"),
    ];
    let wrong = wrong.map(|(series, condition, severity)| {
        format!(
            "label_replace(label_replace({series}, \"condition\", \"{condition}\", \"\", \"\"), \"severity\", \"{severity}\", \"\", \"\")"
        )
    });
    let rules = [
        (sick().targets[0].0.clone(), wrong.join(" or ")),
        (format!("(gpu_up == 0) * {OF}"), lost.to_owned()),
        // A GPU is there as long as it has rows.
        ("gpu_up".to_owned(), "gpu_info".to_owned()),
        (
            NODE_INFO.to_owned(),
            "group by (instance, node) (gpu_info{cluster=~\"$cluster\",node=~\"$node\"})".to_owned(),
        ),
        // Rows have no mark where a job ends: for five minutes it is there beside the next one.
        (PODS.to_owned(), newest(r#"gpu_attribution_info{namespace!="",namespace=~"$namespace"}"#)),
        // Nobody has scraped them, so `job` is that of the row.
        (
            JOBS.to_owned(),
            format!(
                r#"label_replace({}, "exported_job", "$1", "job", "(.+)")"#,
                newest(r#"gpu_attribution_info{job!=""}"#)
            ),
        ),
        // The driver counts each reason; how long any of them held is computed by an agent.
        (
            "rate(gpu_throttled_seconds_total{reason=\"any\"}[$__rate_interval])".to_owned(),
            "max without (reason) (rate(gpu_throttled_seconds_total[$__rate_interval]))".to_owned(),
        ),
    ];
    rules.iter().fold(expr.to_owned(), |expr, (from, to)| expr.replace(from, to))
}
