//! The findings as a table, for CSV and Arrow.

use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::ArrowError;
use gpuvitals_analysis::findings::{Evidence, FleetFinding, Reach};
use gpuvitals_core::batch::TIMESTAMP_COLUMN;
use gpuvitals_core::time;

use crate::columns::{self, TableColumn};

/// A row a finding.
pub(super) fn of(findings: &[&(FleetFinding, String)]) -> Result<RecordBatch, ArrowError> {
    let all = || findings.iter().map(|(finding, _)| finding);
    let texts =
        |name, help, of: fn(&FleetFinding) -> Option<&str>| TableColumn::texts(name, help, all().map(of));
    let owned = |name, help, of: fn(&FleetFinding) -> String| {
        let texts: Vec<String> = all().map(of).collect();
        TableColumn::texts(
            name,
            help,
            texts.iter().map(|text| Some(text.as_str()).filter(|it| !it.is_empty())),
        )
    };
    let reach = |name, help, of: fn(&Reach) -> &Option<Arc<str>>| {
        TableColumn::texts(name, help, all().map(|finding| of(&finding.reach).as_deref()))
    };
    let since: Int64Array = all().map(|finding| Some(finding.since_ns)).collect();
    let names = findings.iter().map(|(_, name)| Some(name.as_str()));
    columns::table(vec![
        owned("id", "Kind and subject: its identity.", FleetFinding::id),
        TableColumn::of(TIMESTAMP_COLUMN, "The first row that shows it.", Arc::new(since)),
        texts("since_at_least", "Whether it may have begun earlier.", |finding| {
            Some(yes(finding.since_is_bound))
        }),
        texts("severity", "critical, warning or notice.", |finding| Some(finding.severity.name())),
        texts("kind", "Kind, see docs/findings.md.", |finding| Some(finding.kind.id)),
        texts("subject_type", "gpu, node, job, model or fleet.", |finding| Some(finding.subject.type_name())),
        TableColumn::texts("subject", "Name of what it is about.", names),
        texts("sentence", "What is wrong.", |finding| Some(&finding.sentence)),
        owned("evidence", "The values that show it.", |finding| {
            finding.evidence.iter().map(Evidence::text).collect::<Vec<_>>().join("; ")
        }),
        texts("next_step", "What to do.", |finding| Some(&finding.remedy)),
        TableColumn::counts(
            "gpu_count",
            "How many GPUs it is about.",
            all().map(|finding| finding.reach.gpus.len()),
        ),
        TableColumn::counts(
            "concerned_gpus",
            "How many GPUs do the work that it disturbs.",
            all().map(|finding| finding.reach.concerned_gpus),
        ),
        reach("cluster", "Cluster.", |reach| &reach.cluster),
        reach("hostname", "Host.", |reach| &reach.node),
        reach("namespace", "Namespace of the holder.", |reach| &reach.namespace),
        reach("pod", "Pod that holds the GPUs.", |reach| &reach.pod),
        reach("job", "Job that holds the GPUs.", |reach| &reach.job),
        texts("silenced", "Whether somebody looks after it.", |finding| {
            Some(yes(finding.silenced.is_some()))
        }),
        owned("silenced_until", "When that ends by itself.", |finding| {
            let until_ns = finding.silenced.as_ref().and_then(|silence| silence.until_ns);
            until_ns.map(time::format).unwrap_or_default()
        }),
        texts("note", "Who looks after it, and why.", |finding| Some(&finding.silenced.as_ref()?.note)),
        texts("simulated", "Whether all of its GPUs are made up by the simulation.", |finding| {
            Some(yes(finding.reach.is_simulated))
        }),
    ])
}

fn yes(is_so: bool) -> &'static str {
    if is_so { "true" } else { "false" }
}
