//! `gpuvitals jobs summary`: what a job used of its GPUs, in the form that jobstats keeps in Slurm's records.
#![expect(clippy::indexing_slicing, reason = "a key that JSON lacks reads as null")]

use std::collections::BTreeSet;
use std::io::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use gpuvitals_core::time::{self, SECOND_NS};
use gpuvitals_sources::attribution::slurm::job_number;
use serde_json::{Map, Value, json};

use super::comment;
use super::range::RangeFlags;
use super::show::{ShowFlags, show_path};
use crate::failure::{Exit, Failure};
use crate::query::flags::Server;
use crate::table::text;
use crate::{query, terminal};

/// Bytes of what the tables count.
const MIB: i64 = 1 << 20;

/// Examples for the help.
pub(super) const EXAMPLES: &str = "Examples:
  gpuvitals jobs summary 4711
  gpuvitals jobs summary 4711 --write

Docs: docs/jobs.md.";

/// `gpuvitals jobs summary`
#[derive(Debug, Args)]
pub(crate) struct SummaryFlags {
    /// Number of the job
    pub id: String,
    /// How far back it is looked for
    #[arg(long, value_name = "DURATION", default_value = "31d")]
    pub last: String,
    /// Only in this cluster; with --write it is that of this machine's Slurm, whatever Slurm calls it
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Packed, as jobstats reads it from Slurm's AdminComment
    #[arg(long)]
    pub js1: bool,
    /// Write it there, by scontrol while the job runs, else by sacctmgr; prints nothing
    #[arg(long, conflicts_with = "js1")]
    pub write: bool,
}

/// Prints the summary of a job.
///
/// # Errors
/// If the job's number is none, the server cannot be reached or refuses the question, no GPU was the job's, several clusters have a job of
/// this number, that of the job is not the one of the Slurm that is to keep the summary, or Slurm does not take it.
pub(super) fn run(flags: &SummaryFlags, server: &Server) -> Result<(), Failure> {
    if job_number(&flags.id).is_none() {
        let text = format!("{:?} is no number of a job; write digits, such as 4711", flags.id);
        return Err(Failure::new(Exit::Usage, text));
    }
    let range = RangeFlags { last: flags.last.clone(), end: None };
    let asked = ShowFlags { id: flags.id.clone(), range, cluster: flags.cluster.clone() };
    let answer = query::ask(server, &show_path(&asked)?)?;
    let summary = summary(&answer);
    if flags.write {
        if let Some(cluster) = answer["job"]["cluster"].as_str().filter(|_| flags.cluster.is_none()) {
            comment::check_cluster(&flags.id, cluster)?;
        }
        return comment::write(&flags.id, &packed(&summary)?);
    }
    let shown = if flags.js1 { packed(&summary)? } else { format!("{summary:#}") };
    terminal::print(&format!("{shown}\n"))
}

/// The document: of each node of the job and each GPU there the mean utilisation in percent, and the memory in bytes.
fn summary(answer: &Value) -> Value {
    let gpus: Vec<&Value> = answer["gpus"].as_array().into_iter().flatten().collect();
    let (mut nodes, mut numbers) = (Map::new(), BTreeSet::new());
    for gpu in &gpus {
        let host = gpu["hostname"].as_str().unwrap_or_default();
        // Parts of a GPU have the number of the whole: the first of them is called so.
        let number = gpu["index"].as_i64().filter(|number| numbers.insert((host, *number)));
        let name = number.map_or_else(|| text(&gpu["gpu"]), |number| number.to_string());
        let node = nodes.entry(host).or_insert_with(|| json!({}));
        if let Some(percent) = utilization(gpu) {
            node["gpu_utilization"][&name] = percent.into();
        }
        if let (Some(used_mb), Some(whole_mb)) = (gpu["memory_max_mb"].as_f64(), gpu["memory_mb"].as_i64()) {
            node["gpu_used_memory"][&name] = whole(used_mb).saturating_mul(MIB).into();
            node["gpu_total_memory"][&name] = whole_mb.saturating_mul(MIB).into();
        }
    }
    let longest = gpus.iter().filter_map(|gpu| gpu["held_gpu_hours"].as_f64()).fold(0.0, f64::max);
    let total_time = seconds(answer).unwrap_or_else(|| whole(longest * 3_600.0));
    json!({ "nodes": nodes, "total_time": total_time, "gpus": gpus.len() })
}

/// Mean utilisation of a GPU in percent, to a tenth, of the time in which it is known.
fn utilization(gpu: &Value) -> Option<f64> {
    let hours = |name: &str| gpu[name].as_f64();
    let (known, busy) = hours("known_gpu_hours").filter(|known| *known > 0.0).zip(hours("busy_gpu_hours"))?;
    Some((1_000.0 * busy / known).round() / 10.0)
}

/// From the job's begin to its end, or to the end of the answer if it runs; none: that is not known.
fn seconds(answer: &Value) -> Option<i64> {
    let about = &answer["job"]["about"];
    let instant = |time: &Value| time::parse(time.as_str()?).ok();
    let runs = about["state"] == "running";
    let end_ns = instant(&about["end"]).or_else(|| instant(&answer["end"]).filter(|_| runs))?;
    Some(end_ns.saturating_sub(instant(&about["start"])?).max(0) / SECOND_NS)
}

#[expect(clippy::cast_possible_truncation, reason = "seconds and MiB of a GPU are far below 2^52")]
fn whole(number: f64) -> i64 {
    number.round() as i64
}

/// `JS1:`, and the document as gzip in base 64.
fn packed(summary: &Value) -> Result<String, Failure> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let packed = encoder.write_all(summary.to_string().as_bytes()).and_then(|()| encoder.finish());
    let packed = packed.map_err(|error| Failure::io("cannot pack the summary", error))?;
    Ok(format!("JS1:{}", BASE64_STANDARD.encode(packed)))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    fn gpu(name: &str, host: &str, index: Option<i64>, [held_s, busy_s]: [f64; 2]) -> Value {
        json!({
            "gpu": name, "hostname": host, "index": index, "memory_mb": index.map(|_| 80), "memory_max_mb": 30.0,
            "held_gpu_hours": held_s / 3_600.0, "known_gpu_hours": held_s / 3_600.0, "busy_gpu_hours": busy_s / 3_600.0,
        })
    }

    fn answer(gpus: &[Value], about: &Value) -> Value {
        json!({ "job": { "about": about }, "gpus": gpus, "end": "2026-11-20T16:00:00Z" })
    }

    #[test]
    fn a_job_lasts_from_its_begin_to_its_end_or_as_long_as_it_held_a_gpu() {
        let gpus = [gpu("GPU-a", "n1", Some(0), [90.0, 0.0]), gpu("GPU-b", "n1", Some(1), [80.0, 0.0])];
        let lasts = |state: Option<&str>, start: Option<&str>, end: Option<&str>| {
            summary(&answer(&gpus, &json!({ "state": state, "start": start, "end": end })))["total_time"]
                .clone()
        };
        let (start, end) = (Some("2026-11-20T15:00:00Z"), Some("2026-11-20T15:01:40Z"));
        assert_eq!(lasts(Some("ended"), start, end), 100);
        assert_eq!(lasts(Some("running"), start, None), 3_600, "to now");
        assert_eq!(lasts(None, start, None), 90, "nobody knows whether it runs");
        assert_eq!(lasts(Some("ended"), None, end), 90);
        assert_eq!(summary(&answer(&gpus, &Value::Null))["total_time"], 90);
    }

    #[test]
    fn a_summary_has_the_fields_that_jobstats_reads() {
        let mut unread = gpu("GPU-c", "n2", None, [0.0, 0.0]);
        unread["busy_gpu_hours"] = Value::Null;
        let gpus = [
            gpu("GPU-a", "n1", Some(0), [5_400.0, 1_801.0]),
            gpu("GPU-b", "n1", Some(3), [5_400.0, 0.0]),
            unread,
        ];
        let wanted = json!({
            "nodes": {
                "n1": {
                    "gpu_utilization": { "0": 33.4, "3": 0.0 },
                    "gpu_used_memory": { "0": 30 * MIB, "3": 30 * MIB },
                    "gpu_total_memory": { "0": 80 * MIB, "3": 80 * MIB },
                },
                "n2": {},
            },
            "total_time": 5_400,
            "gpus": 3,
        });
        assert_eq!(summary(&answer(&gpus, &Value::Null)), wanted);
    }

    #[test]
    fn parts_of_a_gpu_have_names_of_their_own() {
        let gpus = [gpu("GPU-a:1", "n1", Some(0), [10.0, 1.0]), gpu("GPU-a:2", "n1", Some(0), [10.0, 2.0])];
        let found = summary(&answer(&gpus, &Value::Null));
        assert_eq!(found["nodes"]["n1"]["gpu_utilization"], json!({ "0": 10.0, "GPU-a:2": 20.0 }));
    }

    #[test]
    fn what_is_packed_has_no_quotes_and_is_the_same_again() {
        let document = json!({ "nodes": { "n1": { "gpu_utilization": { "0": 33.3 } } }, "gpus": 1 });
        let packed = packed(&document).unwrap();
        assert!(
            packed.bytes().all(|byte| byte.is_ascii_alphanumeric() || b":+/=".contains(&byte)),
            "{packed}"
        );
        let bytes = BASE64_STANDARD.decode(packed.strip_prefix("JS1:").unwrap()).unwrap();
        let mut text = String::new();
        GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), document);
    }
}
