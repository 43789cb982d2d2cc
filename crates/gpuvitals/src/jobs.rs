//! `gpuvitals jobs`: what each job and pod used of its GPUs, from a running gpuvitals.

use clap::Args;
use gpuvitals_core::quantity::counted;
use gpuvitals_core::{clock, time};
use serde_json::Value;

use crate::failure::{Exit, Failure};
use crate::percent::escaped;
use crate::query;
use crate::query::flags::Server;
use crate::table::{aligned, fitted, text, width};
use crate::terminal;

/// `gpuvitals jobs`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gpuvitals jobs
  gpuvitals jobs --last 7d --limit 20
  gpuvitals jobs --host node-17 --end 2026-11-20T16:00:00Z --json

WASTED is the time held, less time times utilisation. Docs: docs/jobs.md.")]
pub(crate) struct JobsFlags {
    /// How far back from the end: 6h, 7d
    #[arg(long, value_name = "DURATION", default_value = "1d")]
    pub last: String,
    /// End (RFC 3339) [default: now]
    #[arg(long, value_name = "TIME")]
    pub end: Option<String>,
    /// Only what was used on these hosts
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub host: Vec<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
    /// The server.
    #[command(flatten)]
    pub server: Server,
}

/// Prints what jobs and pods used.
///
/// # Errors
/// If the server cannot be reached, or refuses the question.
pub(crate) fn run(flags: &JobsFlags) -> Result<(), Failure> {
    let end_ns = match &flags.end {
        Some(text) => time::parse(text).map_err(|e| Failure::new(Exit::Usage, format!("--end: {e}")))?,
        None => clock::now_ns(),
    };
    let hosts = if flags.host.is_empty() {
        String::new()
    } else {
        format!("&host={}", escaped(&flags.host.join(",")))
    };
    let path = format!(
        "/api/v1/jobs?start={}&end={}&limit={}{hosts}",
        query::before(end_ns, &flags.last)?,
        escaped(&time::format(end_ns)),
        flags.limit
    );
    let answer = query::ask(&flags.server, &path)?;
    let shown = if flags.server.json { format!("{answer:#}\n") } else { fitted(list(&answer), width()) };
    terminal::print(&shown)
}

/// A line a job, and one about the rest of the GPUs' time.
fn list(answer: &Value) -> String {
    let head = ["JOB", "GPUS", "GPU HOURS", "BUSY", "WASTED", "THROTTLED", "SHARED", "KWH", "HOSTS"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for job in answer["jobs"].as_array().into_iter().flatten() {
        let simulated = if job["simulated"] == true { " (simulated)" } else { "" };
        let wasted = job["held_gpu_hours"].as_f64().zip(job["busy_gpu_hours"].as_f64());
        let hosts: Vec<&str> =
            job["hosts"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        rows.push(vec![
            text(&job["holder"]) + simulated,
            text(&job["gpus"]),
            number(job["held_gpu_hours"].as_f64()),
            number(job["busy_gpu_hours"].as_f64()),
            number(wasted.map(|(held, busy)| held - busy)),
            number(job["throttled_gpu_hours"].as_f64()),
            number(job["shared_gpu_hours"].as_f64()),
            number(job["energy_kwh"].as_f64()),
            hosts.join(","),
        ]);
    }
    let held = rows.len() - 1;
    let table = if held == 0 { String::new() } else { aligned(&rows) };
    let total = answer["total"].as_u64().unwrap_or_default();
    let shown = if held as u64 == total { String::new() } else { format!("{held} of ") };
    let nobody = &answer["nobody"];
    format!(
        "{table}{shown}{}; nobody had {} GPU hours{}, {} were not observed\n",
        counted(total, "holder"),
        number(nobody["held_gpu_hours"].as_f64()),
        nobody["energy_kwh"].as_f64().map_or_else(String::new, |kwh| format!(" ({kwh:.2} kWh)")),
        number(answer["unobserved_gpu_hours"].as_f64()),
    )
}

/// To two digits after the point; what is not known is a dash.
fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}
