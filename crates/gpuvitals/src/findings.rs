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
use crate::quantity;
use crate::query;
use crate::query::flags::{Server, When};
use crate::table::{aligned, instant, is_cut, text, width};
use crate::terminal;

const SILENCES: &str = "/api/v1/analysis/silences";

/// Flags of the list, which say nothing of a change.
const LIST: [&str; 7] = ["severity", "kind", "host", "namespace", "limit", "steps", "at"];

/// `gpuvitals findings`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gpuvitals findings
  gpuvitals findings --severity critical,warning --steps
  gpuvitals findings --host node-17 --json
  gpuvitals findings --at 2026-11-20T03:10:00Z
  gpuvitals findings --acknowledge xid:GPU-5c1d0a44-9f0e-4d53-8f0a-0d1c6c5a7e21 --note \"Kim: drained, board ordered\"
  gpuvitals findings --silence host=node-17 --for 8h --note \"Kim: board exchange\"
  gpuvitals findings --silences
  gpuvitals findings --release host=node-17

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
    #[arg(long, value_name = "ID", group = "said", conflicts_with_all = LIST)]
    pub acknowledge: Option<String>,
    /// Say that somebody looks after all findings about a host or job, also those that come: host=NAME or job=CLUSTER/NAMESPACE/NAME
    #[arg(long, value_name = "WHAT", group = "said", requires = "end", conflicts_with_all = LIST)]
    pub silence: Option<String>,
    /// Who looks after it, and why
    #[arg(long, value_name = "TEXT", requires = "said")]
    pub note: Option<String>,
    /// For how long, 30d at most
    #[arg(long = "for", value_name = "DURATION", group = "end", requires = "said")]
    pub lasts: Option<String>,
    /// Until when, in 30 days at most
    #[arg(long, value_name = "TIME", group = "end", requires = "said")]
    pub until: Option<String>,
    /// Take it back: nobody looks after this finding, host=NAME or job=CLUSTER/NAMESPACE/NAME now
    #[arg(long, value_name = "WHAT", conflicts_with_all = LIST, conflicts_with_all = ["said", "silences"])]
    pub release: Option<String>,
    /// List what is silenced
    #[arg(long, conflicts_with_all = ["severity", "kind", "host", "namespace", "limit", "steps", "said"])]
    pub silences: bool,
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
    /// Name (node-1 / GPU 6), UUID, PCI address, or host:gpuN
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
    let said = match (&flags.acknowledge, &flags.silence) {
        (Some(id), _) => Some(("finding", id.as_str())),
        (None, Some(what)) => Some(host_or_job(what)?),
        (None, None) => None,
    };
    if let Some((kind, name)) = said {
        let note = flags.note.as_deref().unwrap_or_default();
        let body = json!({kind: name, "note": note, "until": end(flags)?});
        return changed(flags, &query::send(&flags.server, Method::POST, SILENCES, Some(&body))?, "silenced");
    }
    if let Some(what) = &flags.release {
        let (kind, name) = host_or_job(what).unwrap_or(("finding", what));
        let path = format!("{SILENCES}?{kind}={}", escaped(name));
        return changed(flags, &query::send(&flags.server, Method::DELETE, &path, None)?, "released");
    }
    let when = flags.when.parameter()?;
    if flags.silences {
        let answer = query::ask(&flags.server, &format!("{SILENCES}{}", when.replacen('&', "?", 1)))?;
        let shown = if flags.server.json { format!("{answer:#}\n") } else { silences(&answer) };
        return terminal::print(&shown);
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
    let path = format!("/api/v1/analysis/findings?limit={}{}{when}", flags.limit, filters.concat());
    let answer = query::ask(&flags.server, &path)?;
    if flags.server.json {
        return terminal::print(&format!("{answer:#}\n"));
    }
    let shown = if flags.steps { with_steps(&answer) } else { list(&answer, width()) };
    let hint = if answer["total"] == 0 { why_nothing(flags, &when) } else { String::new() };
    terminal::print(&(shown + &hint))
}

/// Why there may be no finding although something is wrong: no GPU had reported by the instant that the parameter gives, or the rows are a
/// recording that ended. Empty: none is known.
fn why_nothing(flags: &FindingsFlags, when: &str) -> String {
    // The list was answered: without this it is still an answer.
    let gpus = query::ask(&flags.server, &format!("/api/v1/gpus?limit=1{when}")).ok();
    let is_without_gpus = gpus.is_some_and(|gpus| gpus["total"] == 0);
    match (is_without_gpus, flags.when.is_now()) {
        (true, true) => "no GPU has reported yet: nothing was judged\n".to_owned(),
        (true, false) => "no GPU had reported by then: nothing was judged\n".to_owned(),
        (false, true) => query::of_recording(&flags.server, "--at"),
        (false, false) => String::new(),
    }
}

/// The host or job that a flag names.
fn host_or_job(text: &str) -> Result<(&str, &str), Failure> {
    let named =
        text.split_once('=').filter(|(kind, name)| matches!(*kind, "host" | "job") && !name.is_empty());
    named.ok_or_else(|| {
        let wrong = format!("--silence: {text:?} is neither host=NAME nor job=CLUSTER/NAMESPACE/NAME");
        Failure::new(Exit::Usage, wrong)
    })
}

/// When a silence ends by itself, if a flag says so.
fn end(flags: &FindingsFlags) -> Result<Option<String>, Failure> {
    let until_ns = match (&flags.lasts, &flags.until) {
        (Some(lasts), _) => {
            let lasts_ns = i64::try_from(quantity::flag("--for", lasts)?.as_nanos()).unwrap_or(i64::MAX);
            whole_second(clock::now_ns().saturating_add(lasts_ns))
        }
        (None, Some(text)) => {
            time::parse(text).map_err(|e| Failure::new(Exit::Usage, format!("--until: {e}")))?
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(time::format(until_ns)))
}

/// The second of an instant, as people write it.
fn whole_second(ns: i64) -> i64 {
    ns - ns.rem_euclid(time::SECOND_NS)
}

/// Prints a silence that has begun or ended.
fn changed(flags: &FindingsFlags, silence: &Value, what: &str) -> Result<(), Failure> {
    let shown = if flags.server.json {
        format!("{silence:#}\n")
    } else {
        let until = if what == "silenced" { until(silence) } else { String::new() };
        format!("{} {}: {what}{until}\n", text(&silence["type"]), text(&silence["id"]))
    };
    terminal::print(&shown)
}

/// When a silence ends.
fn until(silence: &Value) -> String {
    match silence["until"].as_str() {
        Some(until) => format!(" until {until}"),
        None => " until the finding closes".to_owned(),
    }
}

/// A line a silence.
fn silences(answer: &Value) -> String {
    let head = ["TYPE", "SILENCED", "SINCE", "UNTIL", "NOTE"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for silence in entries(answer, "silences") {
        rows.push(["type", "id", "at", "until", "note"].map(|key| text(&silence[key])).to_vec());
    }
    if rows.len() > 1 { aligned(&rows) } else { "nothing is silenced\n".to_owned() }
}

/// That somebody looks after a finding.
fn looked_after(finding: &Value) -> Option<String> {
    let silence = &finding["silenced"];
    let kind = silence["type"].as_str()?;
    let whole =
        if kind == "finding" { String::new() } else { format!(" with {kind} {}", text(&silence["id"])) };
    let note = silence["note"].as_str().filter(|note| !note.is_empty());
    let note = note.map_or_else(String::new, |note| format!(": {note}"));
    Some(format!("silenced{whole} {}{}{note}", text(&silence["at"]), until(silence)))
}

/// Prints why a GPU was slow.
///
/// # Errors
/// As [`run`].
pub(crate) fn explain(flags: &ExplainFlags) -> Result<(), Failure> {
    let end_ns = match &flags.end {
        Some(text) => time::parse(text).map_err(|e| Failure::new(Exit::Usage, format!("--end: {e}")))?,
        None => whole_second(clock::now_ns()),
    };
    let path = format!(
        "/api/v1/gpus/{}/explain?start={}&end={}",
        escaped(&flags.gpu),
        query::before(end_ns, &flags.last)?,
        escaped(&time::format(end_ns)),
    );
    let answer = query::ask(&flags.server, &path)?;
    if flags.server.json {
        return terminal::print(&format!("{answer:#}\n"));
    }
    let is_over = flags.end.is_none() && entries(&answer, "causes").any(|cause| cause["id"] == "no_data");
    let hint = if is_over { query::of_recording(&flags.server, "--end") } else { String::new() };
    terminal::print(&(explanation(&answer) + &hint))
}

fn entries<'a>(answer: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    answer[key].as_array().into_iter().flatten()
}

/// A line a finding. Where the terminal is too narrow for what it says, each has lines of its own instead: nothing is left out.
fn list(answer: &Value, width: Option<usize>) -> String {
    let is_known = |field: &str| entries(answer, "findings").any(|one| !one["reach"][field].is_null());
    let known: Vec<(&str, &str)> = COSTS.into_iter().filter(|(_, field)| is_known(field)).collect();
    let heads = ["SEVERITY", "KIND", "SUBJECT", "SINCE", "GPUS"].into_iter();
    let heads = heads.chain(known.iter().map(|(head, _)| *head)).chain(["JOB", "FINDING"]);
    let mut rows: Vec<Vec<String>> = vec![heads.map(str::to_owned).collect()];
    for finding in entries(answer, "findings") {
        let reach = &finding["reach"];
        let mut row = vec![
            text(&finding["severity"]),
            text(&finding["kind"]),
            subject(finding),
            since(finding),
            text(&reach["concerned_gpus"]),
        ];
        row.extend(known.iter().map(|(_, field)| cost(&reach[*field])));
        row.extend([job(finding), text(&finding["sentence"])]);
        rows.push(row);
    }
    let found = rows.len() - 1;
    let table = if found == 0 { String::new() } else { aligned(&rows) };
    let shown = if is_cut(&table, width) { in_lines(answer) } else { table };
    shown + &total(answer, found)
}

/// Each finding in lines of its own.
fn in_lines(answer: &Value) -> String {
    let mut out = String::new();
    for finding in entries(answer, "findings") {
        heading(&mut out, finding);
    }
    out
}

/// Heads and fields of what a finding costs, and whom; those that are known of none are left out.
const COSTS: [(&str, &str); 2] = [("GPU H/H", "gpu_hours_per_hour"), ("USER", "user")];

/// A number to one digit after the point, or a text.
fn cost(value: &Value) -> String {
    value.as_f64().map_or_else(|| text(value), |hours| format!("{hours:.1}"))
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
        let at = instant(&answer["judged_at"]);
        return format!("no findings, as judged at {at}\n");
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
        heading(&mut out, finding);
        evidence(&mut out, finding);
        incidents(&mut out, finding);
        if let Some(looked_after) = looked_after(finding) {
            line(&mut out, &format!("  {looked_after}"));
        }
        line(&mut out, &format!("  next: {}", text(&finding["next_step"])));
        line(&mut out, &format!("  id: {}", text(&finding["id"])));
        line(&mut out, "");
    }
    out + &total(answer, shown)
}

/// Whose job it is, and what each hour costs, as far as they are known.
fn costs(reach: &Value) -> String {
    let user = reach["user"].as_str().map(|_| format!(" of {}", text(&reach["user"])));
    let hours = reach["gpu_hours_per_hour"].as_f64();
    let hours = hours.map(|hours| format!(", {hours:.1} GPU hours an hour for nothing"));
    user.unwrap_or_default() + &hours.unwrap_or_default()
}

/// What is wrong with whom, since when, and whom it concerns.
fn heading(out: &mut String, finding: &Value) {
    line(out, &format!("{} {}: {}", text(&finding["severity"]), text(&finding["kind"]), subject(finding)));
    line(out, &format!("  {}", text(&finding["sentence"])));
    let concerned = counted(finding["reach"]["concerned_gpus"].as_u64().unwrap_or(0), "GPU");
    let whom = format!("  since {}, {concerned} concerned", since(finding));
    let job = job(finding);
    let whom = if job == "-" { whom } else { format!("{whom}, job {job}") };
    line(out, &(whom + &costs(&finding["reach"])));
}

fn evidence(out: &mut String, of: &Value) {
    for value in entries(of, "evidence") {
        line(out, &format!("    {}", text(&value["text"])));
    }
}

/// The incidents of jobs that a finding caused, and how to get them.
fn incidents(out: &mut String, finding: &Value) {
    for incident in entries(finding, "incidents") {
        let (id, had) = (text(&incident["id"]), text(&incident["nodes_had"]));
        let asked = counted(incident["nodes_asked"].as_u64().unwrap_or(0), "node");
        let first = &incident["first"];
        let doubt =
            first["doubt"].as_str().map_or_else(String::new, |_| format!(", {}", text(&first["doubt"])));
        let why = first["why"].as_str().map_or_else(String::new, |_| {
            let [gpu, node, why] = ["gpu", "hostname", "why"].map(|key| text(&first[key]));
            format!("; first {gpu} on {node}: {why}{doubt}")
        });
        line(
            out,
            &format!(
                "  incident {id}: rows of {had} of {asked}{why}; all of it: gpuvitals flight fetch {id}"
            ),
        );
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_says_whose_job_is_concerned_and_what_that_costs_where_it_is_known() {
        let of = |reach: &Value| {
            let subject = json!({"name": "7"});
            json!({"severity": "warning", "kind": "job_hung", "subject": subject, "since": "2026-11-20T10:00:00Z",
                   "sentence": "7 stands still", "reach": reach})
        };
        let plain = of(&json!({"concerned_gpus": 8, "job": "7"}));
        let told = of(&json!({"concerned_gpus": 8, "job": "7", "user": "kim", "gpu_hours_per_hour": 8.0}));
        let shown = list(&json!({"findings": [plain], "total": 1}), None);
        assert!(!shown.contains("USER") && !shown.contains("GPU H/H"), "{shown}");
        let answer = json!({"findings": [told, plain], "total": 2});
        let shown = list(&answer, None);
        let line = |number: usize| shown.lines().nth(number).unwrap();
        assert!(line(0).contains("GPU H/H") && line(0).contains("USER"), "{shown}");
        assert!(line(1).contains(" 8.0 ") && line(1).contains(" kim "), "{shown}");
        assert!(!line(2).contains("kim"), "{shown}");
        let steps = with_steps(&answer);
        assert!(
            steps.contains("8 GPUs concerned, job 7 of kim, 8.0 GPU hours an hour for nothing"),
            "{steps}"
        );
    }

    #[test]
    fn the_steps_of_a_finding_name_its_incidents_and_how_to_get_them() {
        let first =
            json!({"gpu": "GPU-1", "hostname": "n2", "why": "it gave no value after that", "doubt": null});
        let of = |first: &Value| {
            let incident =
                json!({"id": "20261130T031459Z-xid", "nodes_asked": 3, "nodes_had": 2, "first": first});
            with_steps(&json!({"total": 1, "findings": [{
                "severity": "critical", "kind": "xid", "since": "2026-11-30T03:14:59Z",
                "subject": {"name": "n1 / GPU 0"}, "sentence": "XID 79", "reach": {"concerned_gpus": 1},
                "incidents": [incident],
            }]}))
        };
        let end = "all of it: gpuvitals flight fetch 20261130T031459Z-xid\n";
        let begin = "  incident 20261130T031459Z-xid: rows of 2 of 3 nodes; ";
        let told = of(&first);
        assert!(
            told.contains(&format!("{begin}first GPU-1 on n2: it gave no value after that; {end}")),
            "{told}"
        );
        let unknown = of(&Value::Null);
        assert!(unknown.contains(&format!("{begin}{end}")), "{unknown}");
    }

    #[test]
    fn a_narrow_terminal_shows_all_of_what_a_finding_says() {
        let answer = json!({"total": 1, "findings": [{
            "severity": "warning", "kind": "xid_nonfatal", "since": "2026-11-20T15:00:00Z",
            "subject": {"name": "node-17 / GPU 6"}, "sentence": "XID 63: bad memory was marked for replacement",
            "reach": {"concerned_gpus": 2, "namespace": "research", "job": "train-7"},
        }]});
        let table = list(&answer, None);
        assert_eq!(table.lines().count(), 3, "{table}");
        let widest = table.lines().map(|line| line.chars().count()).max();
        assert_eq!(list(&answer, widest), table);
        let narrow = "warning xid_nonfatal: node-17 / GPU 6\n  XID 63: bad memory was marked for replacement\n  \
                      since 2026-11-20T15:00:00Z, 2 GPUs concerned, job research/train-7\n1 finding\n";
        assert_eq!(list(&answer, Some(80)), narrow);
        let none = json!({"total": 0, "judged_at": "2026-11-20T16:00:00.844390449Z"});
        assert_eq!(list(&none, Some(20)), "no findings, as judged at 2026-11-20T16:00:00Z\n");
    }
}
