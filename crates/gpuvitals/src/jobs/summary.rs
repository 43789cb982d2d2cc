//! `gpuvitals jobs summary`: what a job used of its GPUs, in the form that jobstats keeps in Slurm's records.
#![expect(clippy::indexing_slicing, reason = "a key that JSON lacks reads as null")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use gpuvitals_core::clock;
use gpuvitals_core::time::SECOND_NS;
use serde_json::{Map, Value, json};

use crate::failure::{Exit, Failure};
use crate::percent::escaped;
use crate::query::flags::Server;
use crate::{query, terminal};

/// Most rows and GPUs of one answer.
const PAGE: usize = 10_000;
/// Most rows of a job: 4,096 GPUs for ten days, hour by hour.
const ROWS_MAX: usize = 1_000_000;
/// Bytes of what the tables count.
const MIB: i64 = 1 << 20;

/// Examples for the help.
pub(super) const EXAMPLES: &str = "Examples:
  gpuvitals jobs summary 4711
  sacctmgr -i modify job where jobid=4711 set AdminComment=\"$(gpuvitals jobs summary 4711 --js1)\"

Docs: docs/jobs.md.";

/// `gpuvitals jobs summary`
#[derive(Debug, Args)]
pub(crate) struct SummaryFlags {
    /// Number of the job
    pub id: String,
    /// How far back it is looked for
    #[arg(long, value_name = "DURATION", default_value = "31d")]
    pub last: String,
    /// Only in this cluster
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Packed, as jobstats reads it from Slurm's AdminComment
    #[arg(long)]
    pub js1: bool,
}

/// Prints the summary of a job.
///
/// # Errors
/// If the server cannot be reached or refuses the question, or no GPU was the job's.
pub(super) fn run(flags: &SummaryFlags, server: &Server) -> Result<(), Failure> {
    let used = rows(flags, server, "gpu_usage")?;
    if used.is_empty() {
        let (id, last) = (&flags.id, &flags.last);
        let text = format!("no GPU was job {id}'s in the last {last}; --last looks further back");
        return Err(Failure::new(Exit::Data, text));
    }
    let gpus = query::ask(server, &format!("/api/v1/gpus?limit={PAGE}"))?;
    let summary = summary(&used, &rows(flags, server, "jobs")?, &gpus["gpus"]);
    let shown = if flags.js1 { packed(&summary)? } else { format!("{summary:#}") };
    terminal::print(&format!("{shown}\n"))
}

/// All rows of a table about the job.
fn rows(flags: &SummaryFlags, server: &Server, table: &str) -> Result<Vec<Value>, Failure> {
    let cluster = flags.cluster.as_ref().map_or(String::new(), |cluster| format!(";cluster={cluster}"));
    let tests = escaped(&format!("job={}{cluster}", flags.id));
    let since = query::before(clock::now_ns(), &flags.last)?;
    let path = format!("/api/v1/telemetry?table={table}&where={tests}&start={since}&limit={PAGE}");
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let mut answer = query::ask(server, &format!("{path}{after}"))?;
        if let Value::Array(rows) = answer["data"].take() {
            all.extend(rows);
        }
        match answer["next"].as_str() {
            Some(next) if all.len() < ROWS_MAX => after = format!("&after={next}"),
            Some(_) => {
                let text = format!("job {} has more than {ROWS_MAX} rows; --last makes them fewer", flags.id);
                return Err(Failure::new(Exit::Data, text));
            }
            None => return Ok(all),
        }
    }
}

/// What a job used of one GPU.
#[derive(Debug, Default)]
struct GpuSum {
    held_ns: i64,
    busy_ns: Option<i64>,
    memory_mb: Option<i64>,
}

impl GpuSum {
    fn add(&mut self, metrics: &Value) {
        let number = |name: &str| metrics[name].as_i64();
        self.held_ns = self.held_ns.saturating_add(number("held_ns").unwrap_or(0));
        if let Some(busy_ns) = number("busy_ns") {
            self.busy_ns = Some(self.busy_ns.unwrap_or(0).saturating_add(busy_ns));
        }
        self.memory_mb = self.memory_mb.max(number("memory_max_mb"));
    }

    /// Mean utilisation in percent, to a tenth.
    fn utilization(&self) -> Option<f64> {
        let tenths = (i128::from(self.busy_ns?) * 1_000).checked_div(i128::from(self.held_ns))?;
        Some(f64::from(i32::try_from(tenths).ok()?) / 10.0)
    }
}

/// The document: of each node of the job and each GPU there the mean utilisation in percent, and the memory in bytes.
fn summary(used: &[Value], jobs: &[Value], gpus: &Value) -> Value {
    let mut sums: BTreeMap<(&str, &str), GpuSum> = BTreeMap::new();
    for row in used {
        if let (Some(host), Some(gpu)) = (row["hostname"].as_str(), row["gpu_id"].as_str()) {
            sums.entry((host, gpu)).or_default().add(&row["metrics"]);
        }
    }
    let longest_ns = sums.values().map(|sum| sum.held_ns).max().unwrap_or(0);
    let (mut nodes, mut numbers) = (Map::new(), BTreeSet::new());
    for ((host, id), sum) in &sums {
        let gpu = gpus.as_array().into_iter().flatten().find(|gpu| gpu["id"] == **id);
        let gpu = gpu.unwrap_or(&Value::Null);
        // Parts of a GPU have the number of the whole: the first of them is called so.
        let number = gpu["index"].as_i64().filter(|number| numbers.insert((*host, *number)));
        let name = number.map_or_else(|| (*id).to_owned(), |number| number.to_string());
        let node = nodes.entry(*host).or_insert_with(|| json!({}));
        if let Some(percent) = sum.utilization() {
            node["gpu_utilization"][&name] = percent.into();
        }
        if let (Some(used_mb), Some(whole_mb)) = (sum.memory_mb, gpu["memory_mb"].as_i64()) {
            node["gpu_used_memory"][&name] = used_mb.saturating_mul(MIB).into();
            node["gpu_total_memory"][&name] = whole_mb.saturating_mul(MIB).into();
        }
    }
    let total_time = seconds(jobs).unwrap_or(longest_ns / SECOND_NS);
    json!({ "nodes": nodes, "total_time": total_time, "gpus": sums.len() })
}

/// From the job's begin to its end, or to when it was last known to run, by the rows of `jobs`.
fn seconds(jobs: &[Value]) -> Option<i64> {
    let number = |row: &Value, name: &str| row["metrics"][name].as_i64();
    let start_ns = jobs.iter().filter_map(|row| number(row, "start_ns")).min()?;
    let ends = jobs.iter().filter_map(|row| number(row, "end_ns").or_else(|| number(row, "as_of_ns")));
    Some((ends.max()? - start_ns) / SECOND_NS)
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

    fn used(host: &str, gpu: &str, [held_s, busy_s, memory_mb]: [i64; 3]) -> Value {
        let metrics = json!({
            "held_ns": held_s * SECOND_NS, "busy_ns": busy_s * SECOND_NS, "memory_max_mb": memory_mb,
        });
        json!({ "hostname": host, "gpu_id": gpu, "metrics": metrics })
    }

    #[test]
    fn a_summary_has_the_fields_that_jobstats_reads() {
        let rows = [
            used("n1", "GPU-a", [3_600, 1_800, 10]),
            used("n1", "GPU-a", [1_800, 1, 30]),
            used("n1", "GPU-b", [5_400, 0, 5]),
            used("n2", "GPU-c", [0, 0, 5]),
        ];
        let told = [
            json!({ "metrics": { "start_ns": 10 * SECOND_NS, "as_of_ns": 20 * SECOND_NS } }),
            json!({ "metrics": { "start_ns": 12 * SECOND_NS, "end_ns": 5_410 * SECOND_NS, "as_of_ns": 5_411 * SECOND_NS } }),
        ];
        let gpus = json!([
            { "id": "GPU-a", "index": 0, "memory_mb": 80 },
            { "id": "GPU-b", "index": 3, "memory_mb": null },
        ]);
        let wanted = json!({
            "nodes": {
                "n1": {
                    "gpu_utilization": { "0": 33.3, "3": 0.0 },
                    "gpu_used_memory": { "0": 30 * MIB },
                    "gpu_total_memory": { "0": 80 * MIB },
                },
                "n2": {},
            },
            "total_time": 5_400,
            "gpus": 3,
        });
        assert_eq!(summary(&rows, &told, &gpus), wanted);
        assert_eq!(summary(&rows, &[], &gpus)["total_time"], 5_400, "as long as a GPU was held");
    }

    #[test]
    fn parts_of_a_gpu_have_names_of_their_own() {
        let rows = [used("n1", "GPU-a:1", [10, 1, 5]), used("n1", "GPU-a:2", [10, 2, 5])];
        let gpus = json!([{ "id": "GPU-a:1", "index": 0 }, { "id": "GPU-a:2", "index": 0 }]);
        let found = summary(&rows, &[], &gpus);
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
