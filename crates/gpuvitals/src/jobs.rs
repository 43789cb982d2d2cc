//! `gpuvitals jobs`: what each job and pod used of its GPUs, from a running gpuvitals.

mod comment;
mod hook;
mod range;
mod show;
mod summary;
pub(crate) mod waste;

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use gpuvitals_core::quantity::counted;
use gpuvitals_core::usage::HOLDING_GROUPS;
use serde_json::Value;

use crate::failure::Failure;
use crate::percent::escaped;
use crate::query;
use crate::query::flags::Server;
use crate::table::{Yields, after_a_name, instant, narrowed, number, text, width};
use crate::terminal;
use range::{RangeFlags, range};
use show::{ShowFlags, show_path};

/// `gpuvitals jobs`
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  gpuvitals jobs
  gpuvitals jobs --last 7d --by namespace
  gpuvitals jobs --host node-17 --end 2026-11-20T16:00:00Z --json
  gpuvitals jobs top
  gpuvitals jobs show 4711 --last 7d
  gpuvitals jobs waste --last 7d --html waste.html

WASTED is the time whose utilisation is known, less time times utilisation; IDLE is the part of it in which the GPU did nothing. Docs: docs/jobs.md."
)]
pub(crate) struct JobsFlags {
    /// Which of them.
    #[command(flatten)]
    pub list: ListFlags,
    /// The server.
    #[command(flatten)]
    pub server: Server,
    /// What to ask
    #[command(subcommand)]
    pub what: Option<JobsWhat>,
}

/// What `jobs` can ask; without a word the list.
#[derive(Debug, Subcommand)]
pub(crate) enum JobsWhat {
    /// Whoever held most GPU hours first
    List(ListFlags),
    /// Whoever has a GPU now and has wasted most GPU hours first
    Top(TopFlags),
    /// One job or pod: what it used of each of its GPUs
    Show(ShowFlags),
    /// What was held for nothing, by user or namespace: as a table, a page or CSV
    #[command(after_help = waste::EXAMPLES)]
    Waste(waste::WasteFlags),
    /// Tell the agent of a job: for the scripts that Slurm runs at its begin and end
    #[command(after_help = hook::EXAMPLES)]
    Hook(hook::HookFlags),
    /// What a job used of its GPUs, in the form that jobstats keeps in Slurm's records
    #[command(after_help = summary::EXAMPLES)]
    Summary(summary::SummaryFlags),
}

/// `gpuvitals jobs list`
#[derive(Debug, Args)]
pub(crate) struct ListFlags {
    /// Of when
    #[command(flatten)]
    pub range: RangeFlags,
    /// Only what was used on these hosts
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub host: Vec<String>,
    /// Only what was used of this GPU: name (node-1 / GPU 6), UUID, PCI address, or host:gpuN; may be given several times
    #[arg(long, value_name = "GPU", value_delimiter = ',')]
    pub gpu: Vec<String>,
    /// Put together by this: holder, gpu, node, namespace, job, pod, model, cluster, day, user, account, queue, or label:KEY
    #[arg(
        long,
        value_name = "WHAT",
        default_value = "holder",
        value_parser = group
    )]
    pub by: String,
    /// Also compare the sums with the GPUs' own hours and energy
    #[arg(long)]
    pub check: bool,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
}

/// `gpuvitals jobs top`
#[derive(Debug, Args)]
pub(crate) struct TopFlags {
    /// How far back from now: 6h, 7d
    #[arg(long, value_name = "DURATION", default_value = "1d")]
    pub last: String,
    /// Only what was used on these hosts
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub host: Vec<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: usize,
}

/// A group by its name; the server knows which labels there are.
fn group(text: &str) -> Result<String, String> {
    let is_label = text.strip_prefix("label:").is_some_and(|key| !key.is_empty());
    if is_label || HOLDING_GROUPS.contains(&text) {
        Ok(text.to_owned())
    } else {
        Err(format!("it is none of {} and label:KEY", HOLDING_GROUPS.join(", ")))
    }
}

/// Prints what jobs and pods used.
///
/// # Errors
/// If the server cannot be reached, or refuses the question.
pub(crate) fn run(flags: &JobsFlags) -> Result<(), Failure> {
    let (path, by) = match &flags.what {
        None => (list_path(&flags.list)?, Some(flags.list.by.as_str())),
        Some(JobsWhat::List(asked)) => (list_path(asked)?, Some(asked.by.as_str())),
        Some(JobsWhat::Top(asked)) => (top_path(asked)?, Some("holder")),
        Some(JobsWhat::Show(asked)) => (show_path(asked)?, None),
        Some(JobsWhat::Hook(told)) => {
            hook::run(told);
            return Ok(());
        }
        Some(JobsWhat::Summary(job)) => return summary::run(job, &flags.server),
        Some(JobsWhat::Waste(asked)) => return waste::run(asked, &flags.server),
    };
    let answer = query::ask(&flags.server, &path)?;
    if flags.server.json {
        return terminal::print(&format!("{answer:#}\n"));
    }
    let table = by.map_or_else(|| detail(&answer, width()), |by| list(&answer, by, width()));
    let is_of_now = match &flags.what {
        None => flags.list.range.end.is_none(),
        Some(JobsWhat::List(asked)) => asked.range.end.is_none(),
        Some(_) => false,
    };
    let is_over = is_of_now && answer.get("total").is_some_and(|total| total == 0);
    let hint = if is_over { query::of_recording(&flags.server, "--end") } else { String::new() };
    terminal::print(&(table + &hint))
}

fn list_path(asked: &ListFlags) -> Result<String, Failure> {
    let check = if asked.check { "&check=true" } else { "" };
    Ok(format!(
        "/api/v1/jobs?{}&by={}&limit={}{}{}{check}",
        range(&asked.range)?,
        escaped(&asked.by),
        asked.limit,
        query::some("host", &asked.host),
        query::some("gpus", &asked.gpu),
    ))
}

fn top_path(asked: &TopFlags) -> Result<String, Failure> {
    Ok(format!(
        "/api/v1/jobs?{}&running=true&sort=-wasted_gpu_hours&limit={}{}",
        range(&RangeFlags { last: asked.last.clone(), end: None })?,
        asked.limit,
        query::some("host", &asked.host),
    ))
}

/// Heads and fields of the sums, in the order of the API; those without a value in any line are left out where the flag says so.
const SUMS: [(&str, &str, bool); 14] = [
    ("GPU HOURS", "held_gpu_hours", false),
    ("BUSY", "busy_gpu_hours", false),
    ("WASTED", "wasted_gpu_hours", false),
    ("IDLE", "idle_gpu_hours", true),
    ("THROTTLED", "throttled_gpu_hours", false),
    ("SHARED", "shared_gpu_hours", false),
    ("KWH", "energy_kwh", false),
    ("MAX W", "power_max_w", true),
    ("MAX °C", "temperature_max_c", true),
    ("MAX MB", "memory_max_mb", true),
    ("COST", "cost", true),
    ("WASTED COST", "wasted_cost", true),
    ("ENERGY COST", "energy_cost", true),
    ("CO2 KG", "carbon_kg", true),
];
/// Head and field of how many GPUs were asked for, which stands beside those that it had.
const ASKED: (&str, &str) = ("ASKED", "gpus_asked");
/// Heads and fields of what the batch system told; those without a value in any line are left out.
const ABOUT: [(&str, &str); 9] = [
    ("ARRAY", "array_task"),
    ("NAME", "name"),
    ("USER", "user"),
    ("ACCOUNT", "account"),
    ("QUEUE", "queue"),
    ("START", "start"),
    ("END", "end"),
    ("STATE", "state"),
    ("EXIT", "exit_code"),
];
/// Head and field of the cluster.
const CLUSTER: (&str, &str) = ("CLUSTER", "cluster");
/// Heads that only the GPUs of one job have.
const PEAKS: [&str; 3] = ["MAX W", "MAX °C", "MAX MB"];

/// The sums that these lines have, by head and field.
fn sums_of(lines: &[&Value], has_peaks: bool) -> Vec<(&'static str, &'static str)> {
    let is_known = |field: &str| lines.iter().any(|line| !line[field].is_null());
    let is_shown = |head: &str, field: &str, is_optional: bool| {
        (has_peaks || !PEAKS.contains(&head)) && (!is_optional || is_known(field))
    };
    let shown = SUMS.into_iter().filter(|&(head, field, is_optional)| is_shown(head, field, is_optional));
    shown.map(|(head, field, _)| (head, field)).collect()
}

/// What the batch system told of a job under a name.
fn told<'a>(job: &'a Value, field: &str) -> &'a Value {
    job.get("about").and_then(|about| about.get(field)).unwrap_or(&Value::Null)
}

/// What the batch system told, as people read it: instants to the second.
fn in_words(field: &str, told: &Value) -> String {
    if ["start", "end"].contains(&field) { instant(told) } else { text(told) }
}

/// Whether lines are of different clusters, of which each may have a job of one name.
fn are_of_several(jobs: &[&Value]) -> bool {
    jobs.first().is_some_and(|first| jobs.iter().any(|job| job["cluster"] != first["cluster"]))
}

/// A line a job or group, and one about the rest of the GPUs' time. A narrow terminal has the first columns, whole.
fn list(answer: &Value, by: &str, width: Option<usize>) -> String {
    let jobs: Vec<&Value> = answer["jobs"].as_array().into_iter().flatten().collect();
    let sums = sums_of(&jobs, false);
    let first = if by == "holder" { "JOB".to_owned() } else { by.to_uppercase() };
    let is_told = |field: &str| jobs.iter().any(|job| !told(job, field).is_null());
    let about: Vec<(&str, &str)> = ABOUT.into_iter().filter(|(_, field)| is_told(field)).collect();
    let asked = Some(ASKED).filter(|(_, field)| is_told(field));
    let cluster = Some(CLUSTER).filter(|_| by != "cluster" && are_of_several(&jobs));
    let heads = [first.as_str()].into_iter().chain(cluster.map(|(head, _)| head)).chain(["GPUS"]);
    let heads = heads.chain(asked.map(|(head, _)| head));
    let heads = heads.chain(sums.iter().map(|(head, _)| *head));
    let heads = heads.chain(["HOSTS"]).chain(about.iter().map(|(head, _)| *head));
    let mut rows: Vec<Vec<String>> = vec![heads.map(str::to_owned).collect()];
    for job in &jobs {
        let simulated = if job["simulated"] == true { " (simulated)" } else { "" };
        let hosts: Vec<&str> =
            job["hosts"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut row = vec![text(&job["group"]) + simulated];
        row.extend(cluster.map(|(_, field)| text(&job[field])));
        row.push(text(&job["gpus"]));
        row.extend(asked.map(|(_, field)| in_words(field, told(job, field))));
        row.extend(sums.iter().map(|(_, field)| number(job[*field].as_f64())));
        row.push(text(&Value::from(hosts.join(","))));
        row.extend(about.iter().map(|(_, field)| in_words(field, told(job, field))));
        rows.push(row);
    }
    let yields = after_a_name(rows.first().map_or(0, Vec::len));
    let (table, without) =
        if jobs.is_empty() { (String::new(), String::new()) } else { narrowed(rows, &yields, width) };
    let total = answer["total"].as_u64().unwrap_or_default();
    let shown = if jobs.len() as u64 == total { String::new() } else { format!("{} of ", jobs.len()) };
    let nobody = &answer["nobody"];
    format!(
        "{table}{shown}{}; nobody had {} GPU hours{}, {} were not observed\n{}{}{}{without}",
        counted(total, if by == "holder" { "holder" } else { "group" }),
        number(nobody["held_gpu_hours"].as_f64()),
        nobody["energy_kwh"].as_f64().map_or_else(String::new, |kwh| format!(" ({kwh:.2} kWh)")),
        number(answer["unobserved_gpu_hours"].as_f64()),
        by_rows(answer),
        interpolated(answer),
        check(&answer["check"]),
    )
}

/// Characters that a narrow terminal leaves of a host, an id or a model.
const WORD_LEN: usize = 12;

/// What a job or pod used in all, and a line a GPU. A narrow terminal has the first columns, the model last.
fn detail(answer: &Value, width: Option<usize>) -> String {
    let job = &answer["job"];
    let mut shown = text(&job["holder"]);
    for (field, words) in [("simulated", " (simulated)"), ("running", ", has a GPU now")] {
        if job[field] == true {
            shown.push_str(words);
        }
    }
    let gpus: Vec<&Value> = answer["gpus"].as_array().into_iter().flatten().collect();
    let sums = sums_of(&gpus, true);
    let heads = ["HOST", "GPU", "MODEL"].into_iter().chain(sums.iter().map(|(head, _)| *head));
    let mut rows: Vec<Vec<String>> = vec![heads.map(str::to_owned).collect()];
    for gpu in gpus {
        let mut row = ["hostname", "gpu", "model"].map(|field| text(&gpu[field])).to_vec();
        row.extend(sums.iter().map(|(_, field)| number(gpu[*field].as_f64())));
        rows.push(row);
    }
    if rows.len() > 2 {
        let mut row = ["all together", "", ""].map(str::to_owned).to_vec();
        row.extend(sums.iter().map(|(_, field)| number(job[*field].as_f64())));
        rows.push(row);
    }
    let advice = answer
        .pointer("/advice/text")
        .and_then(Value::as_str)
        .map_or_else(String::new, |advice| format!("{advice}\n"));
    let mut yields = after_a_name(rows.first().map_or(0, Vec::len));
    for (column, rank) in yields.iter_mut().zip([0, 1, u8::MAX]) {
        *column = (rank, Yields::Middles(WORD_LEN));
    }
    let (table, without) = narrowed(rows, &yields, width);
    let below = [&*advice, &*by_rows(job), interpolated(answer), &*without].concat();
    format!("{shown}\n{}{table}{below}{}", about(&job["about"]), show::steps(answer, width))
}

/// What the batch system told of a job, on one line; empty if it told nothing.
fn about(about: &Value) -> String {
    let told = [ASKED].into_iter().chain(ABOUT).filter(|(_, field)| !about[*field].is_null());
    let told: Vec<String> = told
        .map(|(head, field)| format!("{} {}", head.to_lowercase(), in_words(field, &about[field])))
        .collect();
    if told.is_empty() { String::new() } else { told.join(", ") + "\n" }
}

/// Of how many GPUs there are no sums of an agent; empty if there are of all.
fn by_rows(answer: &Value) -> String {
    answer["gpus_by_rows"].as_u64().filter(|gpus| *gpus > 0).map_or_else(String::new, |gpus| {
        format!("by rows: {}, of which no agent makes sums\n", counted(gpus, "GPU"))
    })
}

/// What a range that begins or ends within an hour takes of it.
fn interpolated(answer: &Value) -> &'static str {
    if answer["interpolated"] == true {
        "of an hour in which the range begins or ends, a part is taken that is as long\n"
    } else {
        ""
    }
}

/// The sums beside the GPUs' own hours and energy; empty if nobody asked for that.
fn check(check: &Value) -> String {
    if !check.is_object() {
        return String::new();
    }
    let amount = |field: &str| number(check[field].as_f64());
    let percent =
        |field: &str| check[field].as_f64().map_or_else(|| "-".to_owned(), |pct| format!("{pct:+.2} %"));
    let mut said = format!(
        "check: {} GPU hours are {} by the samples ({}); {} kWh are {} ({})",
        amount("gpu_hours"),
        amount("own_gpu_hours"),
        percent("residual_pct"),
        amount("energy_kwh"),
        amount("own_energy_kwh"),
        percent("energy_residual_pct"),
    );
    if let Some(pct) = check["interpolated_pct"].as_f64().filter(|pct| *pct > 0.0) {
        let _infallible = write!(said, "; {pct:.0} % of the hours are of hours that the range cuts");
    }
    if let Some(gpus) = check["gpus_without_sums"].as_u64().filter(|gpus| *gpus > 0) {
        let _infallible = write!(said, "; {} more without an agent", counted(gpus, "GPU"));
    }
    said + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(group: Option<&str>, more: &Value) -> Value {
        let mut job = json!({
            "group": group, "gpus": 2, "hosts": ["a", "b"], "held_gpu_hours": 2.0, "shared_gpu_hours": 0.0, "busy_gpu_hours": 0.5,
            "wasted_gpu_hours": 1.5, "throttled_gpu_hours": null, "energy_kwh": 0.7,
        });
        if let (Some(job), Some(more)) = (job.as_object_mut(), more.as_object()) {
            job.extend(more.clone());
        }
        job
    }

    fn answer(jobs: &[Value]) -> Value {
        let nobody = json!({"held_gpu_hours": 3.0, "energy_kwh": null});
        json!({"jobs": jobs, "total": jobs.len(), "nobody": nobody, "unobserved_gpu_hours": 0.25, "interpolated": false})
    }

    #[test]
    fn sums_stand_in_the_order_of_the_api() {
        let document = include_str!("../../../api/openapi.yaml");
        let (_, from_sums) = document.split_once("\n    JobSums:\n").unwrap();
        let place = |field: &str| from_sums.find(&format!("\n        {field}:\n")).unwrap();
        assert!(SUMS.map(|(_, field, _)| place(field)).is_sorted());
        assert!(waste::NUMBERS.map(|(_, field, _)| place(field)).is_sorted());
    }

    #[test]
    fn a_list_has_a_line_a_group_and_columns_of_cost_only_where_there_is_a_price() {
        let plain = list(&answer(&[job(Some("job:7"), &json!({}))]), "holder", None);
        let lines: Vec<&str> = plain.lines().collect();
        assert!(lines[0].starts_with("JOB") && !lines[0].contains("COST"), "{plain}");
        let cells: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(cells, ["job:7", "2", "2.00", "0.50", "1.50", "-", "0.00", "0.70", "a,b"]);
        assert_eq!(lines[2], "1 holder; nobody had 3.00 GPU hours, 0.25 were not observed");
        let idle = list(&answer(&[job(Some("job:7"), &json!({"idle_gpu_hours": 1.25}))]), "holder", None);
        let cells: Vec<&str> = idle.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(cells[4..6], ["1.50", "1.25"], "held and never used, beside what was wasted: {idle}");
        let priced = job(None, &json!({"cost": 4.0, "power_max_w": 700.0}));
        let priced = list(&answer(&[priced]), "namespace", None);
        assert!(priced.starts_with("NAMESPACE"), "{priced}");
        assert!(priced.contains("  COST") && !priced.contains("MAX W"), "{priced}");
        assert!(priced.contains("1 group;"), "{priced}");
    }

    #[test]
    fn jobs_of_one_name_are_told_apart_by_their_clusters() {
        let of = |clusters: [&str; 2]| {
            let jobs = clusters.map(|cluster| job(Some("job:7"), &json!({"cluster": cluster})));
            list(&answer(&jobs), "holder", None)
        };
        let shown = of(["east", "west"]);
        let cells: Vec<Vec<&str>> =
            shown.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
        assert_eq!(cells[..3], [["JOB", "CLUSTER", "GPUS"], ["job:7", "east", "2"], ["job:7", "west", "2"]]);
        assert!(!of(["east", "east"]).contains("CLUSTER"));
    }

    #[test]
    fn a_narrow_terminal_has_whole_numbers_and_is_told_what_it_lacks() {
        let jobs = [job(Some("pod:research/sim-train-17-0-0-0/trainer"), &json!({}))];
        let shown = list(&answer(&jobs), "holder", Some(60));
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[..2].iter().all(|line| line.chars().count() <= 60), "{shown}");
        let cells: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(cells, ["pod:research/sim-train-17-0-0-0/trainer", "2", "2.00"], "{shown}");
        assert!(lines[3].starts_with("… without BUSY, WASTED, THROTTLED, SHARED, KWH, HOSTS: "), "{shown}");
        let long = [job(Some("pod:research/sim-train-17-0-0-0/trainer-with-a-long-name"), &json!({}))];
        let shown = list(&answer(&long), "holder", Some(60));
        assert!(shown.contains("pod:research/sim-train-17-0-0-0/trainer"), "{shown}");
    }

    #[test]
    fn what_is_cut_from_an_hour_and_how_far_the_sums_are_off_stands_below() {
        let mut answer = answer(&[]);
        assert_eq!(list(&answer, "holder", None).lines().count(), 1);
        answer["gpus_by_rows"] = json!(2);
        let said = list(&answer, "holder", None);
        assert!(said.ends_with("\nby rows: 2 GPUs, of which no agent makes sums\n"), "{said}");
        answer["gpus_by_rows"] = Value::Null;
        answer["interpolated"] = json!(true);
        answer["check"] = json!({
            "gpus": 4, "gpus_without_sums": 1, "gpu_hours": 3.0, "own_gpu_hours": 4.0, "residual_pct": -25.0, "energy_kwh": 1.0,
            "own_energy_kwh": null, "energy_residual_pct": null, "interpolated_pct": 12.4,
        });
        let said = list(&answer, "holder", None);
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[1].starts_with("of an hour in which the range begins or ends"), "{said}");
        assert_eq!(
            lines[2],
            "check: 3.00 GPU hours are 4.00 by the samples (-25.00 %); 1.00 kWh are - (-); \
             12 % of the hours are of hours that the range cuts; 1 GPU more without an agent"
        );
    }

    #[test]
    fn one_job_has_a_line_a_gpu_with_its_peaks_and_what_it_used_in_all() {
        let gpu =
            |gpu: &str| job(None, &json!({"gpu": gpu, "hostname": "a", "model": "M", "power_max_w": 700.0}));
        let whole = job(Some("job:7"), &json!({"holder": "job:7", "running": true, "power_max_w": 700.0}));
        let shown =
            detail(&json!({"job": whole, "gpus": [gpu("GPU-1"), gpu("GPU-2")], "interpolated": false}), None);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "job:7, has a GPU now");
        assert!(lines[1].contains("MAX W") && !lines[1].contains("MAX MB"), "{shown}");
        assert!(lines[2].contains("GPU-1") && lines[3].contains("GPU-2"), "{shown}");
        assert!(lines[4].starts_with("all together") && lines.len() == 5, "{shown}");
    }

    #[test]
    fn steps_of_a_job_stand_below_with_what_was_used_meanwhile() {
        let used =
            json!({"held_gpu_hours": 2.0, "busy_gpu_hours": 0.5, "wasted_gpu_hours": 1.5, "energy_kwh": 0.7});
        let step = |name: &str, gpus: Option<u64>, used: &Value| {
            json!({"step": name, "hosts": ["a", "b"], "gpus": gpus, "start": "2026-11-20T14:59:59.285057499Z", "end": null,
                   "state": "running", "used": used, "interpolated": true})
        };
        let mut answer = json!({"job": job(Some("job:7"), &json!({"holder": "job:7"})), "gpus": [], "interpolated": false});
        assert!(!detail(&answer, None).contains("STEP"));
        answer["steps"] = json!([step("0", Some(2), &used), step("batch", None, &Value::Null)]);
        answer["steps_total"] = json!(52);
        let shown = detail(&answer, None);
        let lines: Vec<&str> = shown.lines().collect();
        let from = lines.iter().position(|line| line.starts_with("STEP")).unwrap();
        let cells: Vec<&str> = lines[from + 1].split_whitespace().collect();
        assert_eq!(
            cells,
            ["0", "2", "2.00", "0.50", "1.50", "0.70", "2026-11-20T14:59:59Z", "-", "running", "a,b"]
        );
        let cells: Vec<&str> = lines[from + 2].split_whitespace().collect();
        assert_eq!(cells, ["batch", "-", "-", "-", "-", "-", "2026-11-20T14:59:59Z", "-", "running", "a,b"]);
        assert_eq!(
            lines[from + 3..],
            [
                "2 of 52 steps, those that began last",
                "a step that begins or ends within an hour has a part of that hour's sums that is as long; steps at one time on the same GPUs have the same",
            ]
        );
    }

    #[test]
    fn a_name_with_slashes_is_one_part_of_the_address() {
        let range = RangeFlags { last: "1h".into(), end: Some("2026-11-20T16:00:00Z".into()) };
        let path = show_path(&ShowFlags { id: "pod:team/a/".into(), range, cluster: None }).unwrap();
        assert_eq!(
            path,
            "/api/v1/jobs/pod%3Ateam%2Fa%2F?start=2026-11-20T15%3A00%3A00Z&end=2026-11-20T16%3A00%3A00Z"
        );
    }

    #[test]
    fn what_the_batch_system_told_of_jobs_stands_beside_them_and_advice_below() {
        let about = json!({
            "name": "train\u{1b}[2J", "user": "kim", "uid": 1001, "gpus_asked": 4, "account": "ml", "queue": null, "array_task": "6_1",
            "start": "2026-11-20T14:59:59.285057499Z", "end": null, "state": "running", "exit_code": null,
        });
        let told = job(Some("job:7"), &json!({"about": about, "holder": "job:7"}));
        let shown = list(&answer(&[told.clone(), job(Some("pod:team/p/"), &json!({}))]), "holder", None);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[0].ends_with("STATE") && !lines[0].contains("QUEUE"), "what nobody knows: {shown}");
        let cells: Vec<&str> = lines[1].split_whitespace().collect();
        let last = ["a,b", "6_1", "train\u{fffd}[2J", "kim", "ml", "2026-11-20T14:59:59Z", "running"];
        assert_eq!(cells[cells.len() - 7..], last);
        assert_eq!(cells[..3], ["job:7", "2", "4"], "what it asked for stands beside what it had: {shown}");
        assert!(lines[0].starts_with("JOB") && lines[0].contains("  ASKED  "), "{shown}");
        assert!(lines[2].ends_with('-'), "{shown}");
        let advice =
            json!({"text": "2 of 8 GPUs never passed 1 %; with 6 this job would have saved 31.2 GPU hours"});
        let gpu = job(None, &json!({"gpu": "GPU-1", "hostname": "a", "model": "M"}));
        let job = json!({"job": told, "gpus": [gpu], "interpolated": false, "advice": advice});
        let shown = detail(&job, None);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines[1],
            "asked 4, array 6_1, name train\u{fffd}[2J, user kim, account ml, start 2026-11-20T14:59:59Z, state running"
        );
        assert!(lines[lines.len() - 1].ends_with("31.2 GPU hours"), "{shown}");
    }
}
