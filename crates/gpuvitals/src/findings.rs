//! `gpuvitals findings` and `gpuvitals explain`: what is wrong, and why a GPU was slow, from a running gpuvitals.
#![expect(clippy::indexing_slicing, reason = "a key that JSON lacks reads as null")]

use std::fmt::Write as _;

use clap::Args;
use gpuvitals_core::quantity::counted;
use gpuvitals_core::{clock, time};
use serde_json::{Value, json};
use ureq::http::Method;

use crate::failure::{Exit, Failure};
use crate::percent::escaped;
use crate::query;
use crate::query::flags::{Server, When};
use crate::table::{aligned, fitted, text, width};
use crate::terminal;

const ACKNOWLEDGEMENTS: &str = "/api/v1/analysis/acknowledgements";

/// `gpuvitals findings`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gpuvitals findings
  gpuvitals findings --severity critical,warning --steps
  gpuvitals findings --host node-17 --json
  gpuvitals findings --at 2026-11-20T03:10:00Z
  gpuvitals findings --acknowledge xid:GPU-5c1d0a44-9f0e-4d53-8f0a-0d1c6c5a7e21 --note \"Kim: drained, board ordered\"

Docs: docs/findings.md.")]
pub(crate) struct FindingsFlags {
    /// Only these severities: critical, warning, notice
    #[arg(long, value_delimiter = ',', value_parser = ["critical", "warning", "notice"], value_name = "SEVERITY")]
    pub severity: Vec<String>,
    /// Only these kinds, such as xid,straggler
    #[arg(long, value_delimiter = ',', value_name = "KIND")]
    pub kind: Vec<String>,
    /// Only those about these hosts
    #[arg(long, value_delimiter = ',', value_name = "HOST")]
    pub host: Vec<String>,
    /// Only those that concern these namespaces
    #[arg(long, value_delimiter = ',', value_name = "NAMESPACE")]
    pub namespace: Vec<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
    /// Of when
    #[command(flatten)]
    pub when: When,
    /// With the values that show each finding, what to do, and its id
    #[arg(long)]
    pub steps: bool,
    /// Say that somebody looks after this finding: it stands behind the others until it closes
    #[arg(long, value_name = "ID", conflicts_with_all = ["severity", "kind", "host", "namespace", "limit", "steps", "at"])]
    pub acknowledge: Option<String>,
    /// Who looks after it, and why
    #[arg(long, value_name = "TEXT", requires = "acknowledge")]
    pub note: Option<String>,
    /// Take an acknowledgement back: nobody looks after this finding now
    #[arg(long, value_name = "ID", conflicts_with_all = ["severity", "kind", "host", "namespace", "limit", "steps", "at", "acknowledge"])]
    pub release: Option<String>,
    /// The server.
    #[command(flatten)]
    pub server: Server,
}

/// `gpuvitals explain`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gpuvitals explain node-17:gpu3
  gpuvitals explain node-17:gpu3 --last 2h
  gpuvitals explain GPU-5c1d0a44-9f0e-4d53-8f0a-0d1c6c5a7e21 --end 2026-11-20T16:00:00Z")]
pub(crate) struct ExplainFlags {
    /// UUID, PCI address, or host:gpuN
    pub gpu: String,
    /// How far back, 1d at most
    #[arg(long, default_value = "10m", value_name = "DURATION")]
    pub last: String,
    /// End of the time [default: now]
    #[arg(long, value_name = "TIME")]
    pub end: Option<String>,
    /// The server.
    #[command(flatten)]
    pub server: Server,
}

/// Prints the findings.
///
/// # Errors
/// If the server cannot be reached, or refuses the question.
pub(crate) fn run(flags: &FindingsFlags) -> Result<(), Failure> {
    if let Some(id) = &flags.acknowledge {
        let note = flags.note.as_deref().unwrap_or_default();
        let body = json!({"finding": id, "note": note});
        return changed(flags, &query::send(&flags.server, Method::POST, ACKNOWLEDGEMENTS, Some(&body))?);
    }
    if let Some(id) = &flags.release {
        let path = format!("{ACKNOWLEDGEMENTS}?finding={}", escaped(id));
        return changed(flags, &query::send(&flags.server, Method::DELETE, &path, None)?);
    }
    let filters = [
        ("severity", &flags.severity),
        ("kind", &flags.kind),
        ("host", &flags.host),
        ("namespace", &flags.namespace),
    ];
    let some = filters.into_iter().filter(|(_, names)| !names.is_empty());
    let filters: Vec<String> =
        some.map(|(name, names)| format!("&{name}={}", escaped(&names.join(",")))).collect();
    let when = flags.when.parameter()?;
    let path = format!("/api/v1/analysis/findings?limit={}{}{when}", flags.limit, filters.concat());
    let answer = query::ask(&flags.server, &path)?;
    let shown = if flags.steps { with_steps(&answer) } else { fitted(list(&answer), width()) };
    terminal::print(&if flags.server.json { format!("{answer:#}\n") } else { shown })
}

/// Prints a finding whose acknowledgement has changed.
fn changed(flags: &FindingsFlags, finding: &Value) -> Result<(), Failure> {
    let shown = if flags.server.json {
        format!("{finding:#}\n")
    } else {
        let what = format!("{} {}", text(&finding["kind"]), subject(finding));
        format!("{what}: {}\n", looked_after(finding).unwrap_or_else(|| "nobody looks after it".to_owned()))
    };
    terminal::print(&shown)
}

/// That somebody looks after a finding.
fn looked_after(finding: &Value) -> Option<String> {
    let acknowledged = finding["acknowledged"].as_object()?;
    let at = acknowledged.get("at").map(text).unwrap_or_default();
    let note = acknowledged.get("note").and_then(Value::as_str).filter(|note| !note.is_empty());
    Some(note.map_or_else(|| format!("acknowledged {at}"), |note| format!("acknowledged {at}: {note}")))
}

/// Prints why a GPU was slow.
///
/// # Errors
/// As [`run`].
pub(crate) fn explain(flags: &ExplainFlags) -> Result<(), Failure> {
    let end_ns = match &flags.end {
        Some(text) => time::parse(text).map_err(|e| Failure::new(Exit::Usage, format!("--end: {e}")))?,
        None => clock::now_ns(),
    };
    let path = format!(
        "/api/v1/gpus/{}/explain?start={}&end={}",
        escaped(&flags.gpu),
        query::before(end_ns, &flags.last)?,
        escaped(&time::format(end_ns)),
    );
    let answer = query::ask(&flags.server, &path)?;
    terminal::print(&if flags.server.json { format!("{answer:#}\n") } else { explanation(&answer) })
}

fn entries<'a>(answer: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    answer[key].as_array().into_iter().flatten()
}

/// A line a finding.
fn list(answer: &Value) -> String {
    let head = ["SEVERITY", "KIND", "SUBJECT", "SINCE", "GPUS", "JOB", "FINDING"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for finding in entries(answer, "findings") {
        rows.push(vec![
            text(&finding["severity"]),
            text(&finding["kind"]),
            subject(finding),
            since(finding),
            text(&finding["reach"]["concerned_gpus"]),
            job(finding),
            text(&finding["sentence"]),
        ]);
    }
    let found = rows.len() - 1;
    let table = if found == 0 { String::new() } else { aligned(&rows) };
    table + &total(answer, found)
}

/// When it began.
fn since(finding: &Value) -> String {
    let earlier = if finding["since_at_least"] == true { " or earlier" } else { "" };
    format!("{}{earlier}", text(&finding["since"]))
}

fn subject(finding: &Value) -> String {
    let simulated = if finding["simulated"] == true { " (simulated)" } else { "" };
    format!("{}{simulated}", text(&finding["subject"]["name"]))
}

/// The job or pod that is concerned, with its namespace.
fn job(finding: &Value) -> String {
    let reach = &finding["reach"];
    let name = if reach["job"].is_null() { &reach["pod"] } else { &reach["job"] };
    match (reach["namespace"].as_str(), name.as_str()) {
        (Some(_), Some(_)) => format!("{}/{}", text(&reach["namespace"]), text(name)),
        _ => text(name),
    }
}

fn total(answer: &Value, shown: usize) -> String {
    let all = answer["total"].as_u64().unwrap_or(0);
    if all == 0 {
        return format!("no findings, as judged at {}\n", text(&answer["judged_at"]));
    }
    let more = if all > shown as u64 { format!(", {shown} shown") } else { String::new() };
    format!("{}{more}\n", counted(all, "finding"))
}

/// Each finding with the values that show it, and what to do.
fn with_steps(answer: &Value) -> String {
    let mut out = String::new();
    let mut shown = 0;
    for finding in entries(answer, "findings") {
        shown += 1;
        line(
            &mut out,
            &format!("{} {}: {}", text(&finding["severity"]), text(&finding["kind"]), subject(finding)),
        );
        line(&mut out, &format!("  {}", text(&finding["sentence"])));
        let whom = format!("  since {}, {} concerned", since(finding), {
            counted(finding["reach"]["concerned_gpus"].as_u64().unwrap_or(0), "GPU")
        });
        let job = job(finding);
        line(&mut out, &if job == "-" { whom } else { format!("{whom}, job {job}") });
        evidence(&mut out, finding);
        if let Some(looked_after) = looked_after(finding) {
            line(&mut out, &format!("  {looked_after}"));
        }
        line(&mut out, &format!("  next: {}", text(&finding["next_step"])));
        line(&mut out, &format!("  id: {}", text(&finding["id"])));
        line(&mut out, "");
    }
    out + &total(answer, shown)
}

fn evidence(out: &mut String, of: &Value) {
    for value in entries(of, "evidence") {
        line(out, &format!("    {}", text(&value["text"])));
    }
}

fn explanation(answer: &Value) -> String {
    let mut out = String::new();
    line(
        &mut out,
        &format!("{}, {} to {}", text(&answer["name"]), text(&answer["start"]), text(&answer["end"])),
    );
    line(&mut out, &text(&answer["verdict"]));
    let peers = &answer["peers"];
    let count = peers["count"].as_u64().unwrap_or(0);
    let beside = if count == 0 {
        "there is nothing to compare it with".to_owned()
    } else {
        format!(
            "compared with {} of its {} {}",
            counted(count, "other GPU"),
            text(&peers["basis"]),
            text(&peers["name"])
        )
    };
    line(&mut out, &beside);
    line(&mut out, "");
    for cause in entries(answer, "causes") {
        let weight = 100.0 * cause["weight"].as_f64().unwrap_or(0.0);
        line(&mut out, &format!("{weight:3.0} %  {}: {}", text(&cause["id"]), text(&cause["sentence"])));
        evidence(&mut out, cause);
    }
    for event in entries(answer, "events") {
        line(
            &mut out,
            &format!("{}  {}: {}", text(&event["timestamp"]), text(&event["kind"]), text(&event["detail"])),
        );
    }
    out
}

fn line(out: &mut String, text: &str) {
    // A string takes everything.
    let _written = writeln!(out, "{text}");
}
