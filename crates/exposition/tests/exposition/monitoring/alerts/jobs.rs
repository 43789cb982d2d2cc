//! Alerts on jobs: what the gateway finds about all GPUs of a job together.

use super::{Alert, Shown};

/// A count in a summary.
const COUNT: &str = "{{ $value | humanize }}";

/// Alerts on jobs.
pub(crate) fn all() -> Vec<Alert> {
    vec![
        Alert {
            meaning: "All GPUs of the job say that they are busy, and power and activity have collapsed together: it waits for itself, and \
                      every GPU of it is lost until somebody ends it."
                .to_owned(),
            remedy: "`gpuvitals findings` names the job, its user, its GPUs and which of them left first. Take a stack of its processes \
                     (`py-spy dump --pid PID`), then end the job; begin the search at the GPU or node that left first."
                .to_owned(),
            ..of_finding(("GpuJobHung", "job_hung"), "critical", "hang")
        },
        Alert {
            meaning: "All GPUs of the job have worked and do nothing any more, for ten minutes at least and for longer than it ever paused, \
                      while it holds them."
                .to_owned(),
            remedy: "`gpuvitals findings` names the job, its user and its GPUs. Does it wait for data, a file system, a lock? Has its program \
                     ended, and its script not? If nothing moves, end the job: that frees the GPUs."
                .to_owned(),
            ..of_finding(("GpuJobStalled", "job_stalled"), "warning", "have stalled")
        },
    ]
}

/// An alert as long as a finding of a kind is open; what it means and what to do is empty.
fn of_finding((name, kind): (&str, &'static str), severity: &'static str, what: &str) -> Alert {
    Alert {
        name: name.to_owned(),
        severity,
        hold: "1m",
        expr: format!("sum without (severity) (gpuvitals_findings{{kind=\"{kind}\"}}) > 0"),
        summary: format!("jobs that {what}, by the gateway at {{{{ $labels.instance }}}}: {COUNT}"),
        meaning: String::new(),
        remedy: String::new(),
        shown: vec![Shown {
            series: vec![(
                format!(
                    "gpuvitals_findings{{job=\"gateway\",instance=\"gateway:8081\",kind=\"{kind}\",severity=\"warning\"}}"
                ),
                "0x5 2x100 0x130".to_owned(),
            )],
            labels: vec![("instance", "gateway:8081"), ("job", "gateway"), ("kind", kind)],
            value: (COUNT.to_owned(), "2"),
        }],
    }
}
