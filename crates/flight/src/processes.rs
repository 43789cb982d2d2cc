//! `processes.json`: the programs that had the GPUs, by name. No arguments, no user.

use std::collections::BTreeMap;

use gpuvitals_core::batch::{RowKeys, Value, numbers};
use gpuvitals_core::history::ExtraValue;
use gpuvitals_core::{Batch, Table};
use serde::Serialize;

/// Most processes of a listing.
const PROCESSES_MAX: usize = 4_096;

/// A program on a GPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct FlightProcess {
    pid: i64,
    name: Option<String>,
    kind: Option<String>,
    memory_mb: Option<f64>,
}

/// The last listing of the processes on each GPU.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    by_gpu: BTreeMap<String, (i64, Vec<FlightProcess>)>,
}

/// A listing as it stands in the file.
#[derive(Debug, Serialize)]
struct Listing<'a> {
    gpu: &'a str,
    at_ns: i64,
    processes: &'a [FlightProcess],
}

impl Processes {
    /// Takes rows of a listing; a later one of a GPU replaces the one before.
    pub(crate) fn add(&mut self, batch: &Batch) {
        if batch.table() != Table::GpuProcesses {
            return;
        }
        let Ok(keys) = RowKeys::of(batch.records(), batch.table()) else { return };
        let text = |name: &str, row| match ExtraValue::of(batch.records().column_by_name(name)?, row)? {
            ExtraValue::Text(text) => Some(text.to_string()),
            ExtraValue::Number(_) => None,
        };
        let number = |name: &str, row| numbers(batch.records().column_by_name(name)?)?.value(row);
        for (row, (id, &at_ns)) in keys.ids.iter().zip(batch.timestamps()).enumerate() {
            let Some(gpu) = keys.keys.get(*id as usize) else { continue };
            let Some(Value::Int(pid)) = number("pid", row) else { continue };
            let (time_ns, listed) = self.by_gpu.entry(gpu.to_string()).or_insert((at_ns, Vec::new()));
            if at_ns > *time_ns {
                (*time_ns, *listed) = (at_ns, Vec::new());
            }
            if at_ns == *time_ns && listed.len() < PROCESSES_MAX {
                listed.push(FlightProcess {
                    pid,
                    name: text("command", row),
                    kind: text("process_type", row),
                    memory_mb: number("fb_memory_mb", row).map(Value::as_f64),
                });
            }
        }
    }

    /// The file's text.
    pub(crate) fn json(&self) -> Result<Vec<u8>, serde_json::Error> {
        let listing = |(gpu, (at_ns, processes)): (&String, &(i64, Vec<FlightProcess>))| {
            serde_json::to_value(Listing { gpu, at_ns: *at_ns, processes })
        };
        let listings = self.by_gpu.iter().map(listing).collect::<Result<Vec<_>, _>>()?;
        serde_json::to_vec_pretty(&listings)
    }
}
