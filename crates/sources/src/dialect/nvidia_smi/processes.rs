//! Processes by `nvidia-smi pmon`, and by `--query-compute-apps` for GPUs that it leaves out (old drivers list four).

use std::path::PathBuf;
use std::sync::Arc;

use gpuvitals_core::Identity;
use gpuvitals_core::clock::Moment;

use super::pmon::{PmonRow, parse_pmon};
use super::query::{QueryTable, parse_query_csv};
use super::{identity_of, said};
use crate::machine::{LocalTool, Tool, ToolOutput};
use crate::probe::{Driver, ProbeError};
use crate::processes::{GpuProcess, NAMELESS, ProcessKind, ProcessList, ProcessTable};
use gpuvitals_core::foreign::reason_of;

const APPS: &[&str] = &["gpu_uuid", "pid", "process_name", "used_gpu_memory"];

/// Lists the processes by the tool.
#[derive(Debug)]
pub struct SmiProcesses {
    tool: Arc<dyn Tool>,
    node: Arc<str>,
    gpus: Vec<Arc<Identity>>,
    /// When the question began.
    begun: Moment,
}

impl SmiProcesses {
    /// The tool at a path (or a name on `PATH`), on a node. Nothing is run yet.
    pub fn new(program: impl Into<PathBuf>, node: &str) -> Self {
        Self::through(Arc::new(LocalTool(program.into())), node)
    }

    /// The tool as it can be run on this node. Nothing is run yet.
    pub fn through(tool: Arc<dyn Tool>, node: &str) -> Self {
        Self { tool, node: Arc::from(node), gpus: Vec::new(), begun: Moment::now() }
    }

    /// As [`SmiProcesses::through`], with the node's GPUs as just read: the tool is not asked for them again, unless it
    /// speaks of another one.
    pub fn among(tool: Arc<dyn Tool>, node: &str, gpus: Vec<Arc<Identity>>) -> Self {
        Self { gpus, ..Self::through(tool, node) }
    }

    /// Standard output, and whether the tool says that all went well.
    fn run(&self, arguments: &[&str]) -> Result<(String, bool), ProbeError> {
        let ToolOutput { code, stdout, .. } = self.tool.run(arguments, self.tool.left(self.begun))?;
        Ok((String::from_utf8_lossy(&stdout).into_owned(), code == Some(0)))
    }

    /// Learns which GPU has which index.
    fn learn(&mut self) -> Result<(), ProbeError> {
        const FIELDS: &[&str] = &["index", "uuid", "pci.bus_id"];
        let (text, _) = self.run(&["--query-gpu=index,uuid,pci.bus_id", "--format=csv"])?;
        let query = parse_query_csv(&text, FIELDS);
        if query.gpus.is_empty() {
            return Err(said(&text));
        }
        self.gpus = query.gpus.iter().filter_map(|row| identity_of(row, &self.node, false)).collect();
        Ok(())
    }

    fn gpu_of(&self, index: u32) -> Option<&Arc<Identity>> {
        let is_it = |identity: &&Arc<Identity>| identity.index.is_some_and(|i| u32::try_from(i) == Ok(index));
        self.gpus.iter().find(is_it)
    }

    /// The processes of GPUs that `pmon` did not speak of.
    fn add_apps(&self, rows: &[PmonRow], found: &mut Vec<GpuProcess>) -> Result<(), ProbeError> {
        let query = format!("--query-compute-apps={}", APPS.join(","));
        let (text, is_whole) = self.run(&[&query, "--format=csv,nounits"])?;
        let apps = parse_compute_apps(&text, APPS);
        // Neither way lists anything, and the tool says why: that is no GPU without processes.
        if !is_whole && rows.is_empty() && apps.is_empty() {
            return Err(said(&text));
        }
        for app in apps {
            let gpu = self.gpus.iter().find(|identity| identity.uuid() == Some(app.gpu_uuid.as_str()));
            let Some(identity) = gpu else { continue };
            let is_told = rows.iter().any(|row| i64::from(row.gpu) == identity.index.map_or(-1, i64::from));
            if !is_told {
                found.push(GpuProcess {
                    gpu: Arc::clone(identity),
                    pid: app.pid,
                    name: name_of(app.name),
                    kind: ProcessKind::Compute,
                    memory_mb: app.memory_mb,
                    utilization_pct: None,
                    memory_utilization_pct: None,
                    encoder_utilization_pct: None,
                    decoder_utilization_pct: None,
                    compute_units: None,
                });
            }
        }
        Ok(())
    }
}

impl ProcessTable for SmiProcesses {
    fn driver(&self) -> Driver {
        Driver::NvidiaSmi
    }

    fn another(&self) -> Box<dyn ProcessTable> {
        Box::new(Self::through(Arc::clone(&self.tool), &self.node))
    }

    fn read(&mut self) -> Result<ProcessList, ProbeError> {
        self.begun = Moment::now();
        if self.gpus.is_empty() {
            self.learn()?;
        }
        let mut rows = parse_pmon(&self.run(&["pmon", "-c", "1", "-s", "um"])?.0);
        if rows.iter().any(|row| self.gpu_of(row.gpu).is_none()) {
            self.learn()?;
        }
        let is_told = |identity: &Arc<Identity>| {
            rows.iter().any(|row| i64::from(row.gpu) == identity.index.map_or(-1, i64::from))
        };
        let is_whole = self.gpus.iter().all(is_told);
        let mut found = Vec::new();
        if !is_whole {
            self.add_apps(&rows, &mut found)?;
        }
        for row in rows.drain(..) {
            let (Some(pid), Some(gpu)) = (row.pid, self.gpu_of(row.gpu)) else { continue };
            found.push(GpuProcess {
                gpu: Arc::clone(gpu),
                pid,
                name: name_of(row.name),
                kind: row.kind,
                memory_mb: row.memory_mb,
                utilization_pct: row.sm_pct,
                memory_utilization_pct: row.memory_pct,
                encoder_utilization_pct: row.encoder_pct,
                decoder_utilization_pct: row.decoder_pct,
                compute_units: None,
            });
        }
        Ok(ProcessList { processes: found, gaps: Vec::new() })
    }
}

/// A line of `--query-compute-apps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComputeApp {
    /// UUID of the GPU.
    pub gpu_uuid: String,
    /// Process id as the driver knows it.
    pub pid: u32,
    /// Name of the program, without its folder and arguments.
    pub name: String,
    /// Device memory it holds, MiB.
    pub memory_mb: Option<i64>,
}

/// Parses an answer to `--query-compute-apps`; one without a header has the columns `fields`.
pub fn parse_compute_apps(text: &str, fields: &[&str]) -> Vec<ComputeApp> {
    let is_field = |name: &str| {
        APPS.contains(&name) || ["timestamp", "gpu_name", "gpu_bus_id", "gpu_serial"].contains(&name)
    };
    let table = QueryTable::parse(text, fields, is_field);
    let app = |cells: &Vec<&str>| {
        let cell = |name: &str| {
            let pairs = table.columns.iter().zip(cells);
            let cell = pairs.filter(|(column, _)| column.name == name).map(|(_, cell)| *cell).next();
            cell.filter(|cell| reason_of(cell).is_none())
        };
        let memory = cell("used_gpu_memory").map(|memory| memory.strip_suffix(" MiB").unwrap_or(memory));
        Some(ComputeApp {
            gpu_uuid: cell("gpu_uuid")?.to_owned(),
            pid: cell("pid")?.parse().ok()?,
            name: cell("process_name").map(program_of).unwrap_or_default(),
            memory_mb: memory.and_then(|memory| memory.parse().ok()).filter(|mb| *mb >= 0),
        })
    };
    table.rows.iter().filter_map(app).collect()
}

fn name_of(name: String) -> Arc<str> {
    Arc::from(if name.is_empty() { NAMELESS.to_owned() } else { name })
}

/// The program of a command line: `/root/tools/memhog --all` is `memhog`. Nothing tells a blank in a path from one before
/// an argument, and arguments never leave: the path ends at its first blank.
fn program_of(command: &str) -> String {
    let path = command.split_whitespace().next().unwrap_or_default();
    path.rsplit(['/', '\\']).next().unwrap_or(path).to_owned()
}
