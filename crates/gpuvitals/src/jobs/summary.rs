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
use gpuvitals_sources::attribution::slurm::job_number;
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
/// If the job's number or cluster is none, the server cannot be reached or refuses the question, no GPU was the job's, or several clusters
/// have a job of this number.
pub(super) fn run(flags: &SummaryFlags, server: &Server) -> Result<(), Failure> {
    check(flags)?;
    let used = rows(flags, server, "gpu_usage", flags.cluster.as_deref())?;
    if used.is_empty() {
        let (id, last) = (&flags.id, &flags.last);
        let text = format!("no GPU was job {id}'s in the last {last}; --last looks further back");
        return Err(Failure::new(Exit::Data, text));
    }
    let gpus = gpus(server)?;
    let cluster = if flags.cluster.is_some() { flags.cluster.clone() } else { cluster_of(&used, &gpus)? };
    // Every cluster counts its jobs from 1, also those without GPUs.
    let told = rows(flags, server, "jobs", cluster.as_deref())?;
    let summary = summary(&used, &told, &gpus);
    let shown = if flags.js1 { packed(&summary)? } else { format!("{summary:#}") };
    terminal::print(&format!("{shown}\n"))
}

/// Refuses what would ask for other jobs, too.
fn check(flags: &SummaryFlags) -> Result<(), Failure> {
    if job_number(&flags.id).is_none() {
        let text = format!("{:?} is no number of a job; write digits, such as 4711", flags.id);
        return Err(Failure::new(Exit::Usage, text));
    }
    match &flags.cluster {
        Some(name) if name.starts_with('~') || name.contains([',', ';']) => {
            let text = format!("--cluster: {name:?} is no name of a cluster; write one without , ; and ~");
            Err(Failure::new(Exit::Usage, text))
        }
        _ => Ok(()),
    }
}

/// All GPUs, by id.
fn gpus(server: &Server) -> Result<BTreeMap<String, Value>, Failure> {
    let (mut all, mut offset) = (BTreeMap::new(), 0);
    loop {
        let path = format!("/api/v1/gpus?labels=cluster&limit={PAGE}&offset={offset}");
        let mut answer = query::ask(server, &path)?;
        let has_next = answer["pagination"]["has_next"] == true;
        let Value::Array(page) = answer["gpus"].take() else { return Ok(all) };
        offset += page.len();
        let is_last = !has_next || page.is_empty();
        all.extend(by_id(page));
        if is_last {
            return Ok(all);
        }
    }
}

fn by_id(gpus: Vec<Value>) -> impl Iterator<Item = (String, Value)> {
    gpus.into_iter().filter_map(|gpu| Some((gpu["id"].as_str()?.to_owned(), gpu)))
}

/// The cluster of the GPUs in these rows, empty if they name none; none if it is not known.
///
/// # Errors
/// If they are of several.
fn cluster_of(used: &[Value], gpus: &BTreeMap<String, Value>) -> Result<Option<String>, Failure> {
    let known = used.iter().filter_map(|row| gpus.get(row["gpu_id"].as_str()?));
    let clusters: BTreeSet<&str> =
        known.map(|gpu| gpu["labels"]["cluster"].as_str().unwrap_or_default()).collect();
    let mut names = clusters.iter();
    match (names.next(), names.next()) {
        (Some(one), Some(another)) => {
            let text = format!(
                "clusters {one:?} and {another:?} both have a job of this number; name one by --cluster"
            );
            Err(Failure::new(Exit::Usage, text))
        }
        (one, _) => Ok(one.map(|name| (*name).to_owned())),
    }
}

/// All rows of a table about the job, in a cluster if one is named.
fn rows(
    flags: &SummaryFlags,
    server: &Server,
    table: &str,
    cluster: Option<&str>,
) -> Result<Vec<Value>, Failure> {
    let cluster = cluster.map_or(String::new(), |cluster| format!(";cluster={cluster}"));
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
    /// The part of that in which the utilisation is known.
    known_ns: i64,
    busy_ns: Option<i64>,
    memory_mb: Option<i64>,
}

impl GpuSum {
    fn add(&mut self, metrics: &Value) {
        let number = |name: &str| metrics[name].as_i64();
        self.held_ns = self.held_ns.saturating_add(number("held_ns").unwrap_or(0));
        self.known_ns = self.known_ns.saturating_add(number("known_ns").unwrap_or(0));
        if let Some(busy_ns) = number("busy_ns") {
            self.busy_ns = Some(self.busy_ns.unwrap_or(0).saturating_add(busy_ns));
        }
        self.memory_mb = self.memory_mb.max(number("memory_max_mb"));
    }

    /// Mean utilisation in percent, to a tenth, of the time in which it is known.
    fn utilization(&self) -> Option<f64> {
        let tenths = (i128::from(self.busy_ns?) * 1_000).checked_div(i128::from(self.known_ns))?;
        Some(f64::from(i32::try_from(tenths).ok()?) / 10.0)
    }
}

/// The document: of each node of the job and each GPU there the mean utilisation in percent, and the memory in bytes.
fn summary(used: &[Value], jobs: &[Value], gpus: &BTreeMap<String, Value>) -> Value {
    let mut sums: BTreeMap<(&str, &str), GpuSum> = BTreeMap::new();
    for row in used {
        if let (Some(host), Some(gpu)) = (row["hostname"].as_str(), row["gpu_id"].as_str()) {
            sums.entry((host, gpu)).or_default().add(&row["metrics"]);
        }
    }
    let longest_ns = sums.values().map(|sum| sum.held_ns).max().unwrap_or(0);
    let (mut nodes, mut numbers) = (Map::new(), BTreeSet::new());
    for ((host, id), sum) in &sums {
        let gpu = gpus.get(*id).unwrap_or(&Value::Null);
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

/// From the job's begin to its end, or to when it was last known to run, by the rows of `jobs`. The controller's word counts: nodes begin
/// and end one after the other, and one that was put back into the queue has rows of both runs.
fn seconds(jobs: &[Value]) -> Option<i64> {
    let number = |row: &Value, name: &str| row["metrics"][name].as_i64();
    let of_all = |name: &'static str| jobs.iter().filter_map(move |row| number(row, name));
    let by_controller = jobs.iter().filter(|row| row["metrics"]["told_by"] == "controller");
    let newest = by_controller.max_by_key(|row| number(row, "as_of_ns"));
    let by_controller = |name: &str| newest.and_then(|row| number(row, name));
    let start_ns = by_controller("start_ns").or_else(|| of_all("start_ns").min())?;
    let last_end_ns = || of_all("end_ns").filter(|end_ns| *end_ns >= start_ns).max();
    let end_ns = by_controller("end_ns").or_else(last_end_ns).or_else(|| of_all("as_of_ns").max())?;
    Some(end_ns.saturating_sub(start_ns).max(0) / SECOND_NS)
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
            "held_ns": held_s * SECOND_NS, "known_ns": held_s * SECOND_NS, "busy_ns": busy_s * SECOND_NS, "memory_max_mb": memory_mb,
        });
        json!({ "hostname": host, "gpu_id": gpu, "metrics": metrics })
    }

    fn known(gpus: Value) -> BTreeMap<String, Value> {
        let Value::Array(gpus) = gpus else { panic!("{gpus}") };
        by_id(gpus).collect()
    }

    #[test]
    fn what_is_no_number_of_a_job_or_no_cluster_is_refused() {
        let flags = |id: &str, cluster: Option<&str>| SummaryFlags {
            id: id.to_owned(),
            last: "31d".to_owned(),
            cluster: cluster.map(str::to_owned),
            js1: false,
        };
        for (id, cluster) in [
            ("", None),
            ("~.*", None),
            ("4711;node=n1", None),
            ("4711,4712", None),
            ("4711_3", None),
            ("4711", Some("~.*")),
            ("4711", Some("east,west")),
            ("4711", Some("east;node=n1")),
        ] {
            let failure = check(&flags(id, cluster)).unwrap_err();
            assert_eq!(failure.code(), Exit::Usage as u8, "{id:?} {cluster:?}");
        }
        assert!(check(&flags("4711", None)).is_ok() && check(&flags("4711", Some("east"))).is_ok());
    }

    #[test]
    fn a_job_of_two_clusters_is_refused() {
        let gpus = known(json!([
            { "id": "GPU-a", "labels": { "cluster": "east" } },
            { "id": "GPU-b", "labels": { "cluster": "west" } },
            { "id": "GPU-c", "labels": { "cluster": null } },
        ]));
        let of = |ids: &[&str]| {
            let rows: Vec<Value> = ids.iter().map(|id| used("n1", id, [1, 1, 1])).collect();
            cluster_of(&rows, &gpus)
        };
        assert_eq!(of(&["GPU-a", "GPU-a", "GPU-gone"]).unwrap().as_deref(), Some("east"));
        assert_eq!(of(&["GPU-c"]).unwrap().as_deref(), Some(""));
        assert_eq!(of(&["GPU-gone"]).unwrap(), None);
        for ids in [["GPU-a", "GPU-b"], ["GPU-a", "GPU-c"]] {
            let failure = of(&ids).unwrap_err();
            assert!(failure.to_string().contains("--cluster"), "{failure}");
        }
    }

    #[test]
    fn a_job_lasts_from_its_begin_to_its_end_by_who_knows_best() {
        let told = |by: &str, [start, end, as_of]: [Option<i64>; 3]| {
            let ns = |second: Option<i64>| second.map(|second| second * SECOND_NS);
            let metrics =
                json!({ "told_by": by, "start_ns": ns(start), "end_ns": ns(end), "as_of_ns": ns(as_of) });
            json!({ "metrics": metrics })
        };
        // The prolog's row of a node whose epilog was lost is told again for long after the end.
        let mut rows = vec![
            told("prolog", [Some(10), None, Some(9_000)]),
            told("epilog", [Some(12), Some(110), Some(110)]),
        ];
        assert_eq!(seconds(&rows), Some(100));
        rows.push(told("controller", [Some(5), None, Some(6)]));
        assert_eq!(seconds(&rows), Some(105), "the controller has not told of its end");
        rows.push(told("controller", [Some(5), Some(115), Some(115)]));
        assert_eq!(seconds(&rows), Some(110));
        rows.push(told("controller", [Some(500), None, Some(520)]));
        assert_eq!(seconds(&rows), Some(8_500), "it runs again");
        assert_eq!(seconds(&rows[..1]), Some(8_990));
        assert_eq!(seconds(&[]), None);
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
        let gpus = known(json!([
            { "id": "GPU-a", "index": 0, "memory_mb": 80 },
            { "id": "GPU-b", "index": 3, "memory_mb": null },
        ]));
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
        let gpus = known(json!([{ "id": "GPU-a:1", "index": 0 }, { "id": "GPU-a:2", "index": 0 }]));
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
