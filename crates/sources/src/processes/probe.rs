//! The rows of `gpu_processes`: a listing of the processes as a reading of the sampler, at the rare tier.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::batch::Value;
use gpuvitals_core::{Identity, Table};

use super::{GpuProcess, NAMELESS, ProcessTable};
use crate::finding::{Finding, Verdict};
use crate::probe::{Driver, Due, OwnValue, Probe, ProbeError, Reading, Row};

/// The column of a process's number.
const PID: &str = "pid";

/// Reads a table of processes into rows.
pub struct ProcessProbe {
    table: Box<dyn ProcessTable>,
    /// The gap reported last.
    gap: Option<String>,
    findings: Vec<Finding>,
}

impl ProcessProbe {
    /// Of this table, which nobody else reads: its shares cover the time since its own listing before.
    pub fn new(table: Box<dyn ProcessTable>) -> Self {
        Self { table, gap: None, findings: Vec::new() }
    }

    /// Reports a gap when it appears and when it is over.
    fn report(&mut self, gap: Option<String>) {
        if gap == self.gap {
            return;
        }
        let subject = format!("{} processes", self.table.driver().vendor());
        self.findings.push(match &gap {
            Some(gap) => Finding::new(Verdict::Partial, subject, gap.clone()),
            None => Finding::new(Verdict::Good, subject, "all of them are listed again"),
        });
        self.gap = gap;
    }
}

impl Probe for ProcessProbe {
    fn table(&self) -> Table {
        Table::GpuProcesses
    }

    fn driver(&self) -> Driver {
        self.table.driver()
    }

    /// None: a GPU has a probe of its own, and its processes come and go.
    fn targets(&self) -> Vec<Arc<Identity>> {
        Vec::new()
    }

    /// A tool may take this long.
    fn deadline(&self) -> Duration {
        Duration::from_secs(20)
    }

    fn fill(&mut self, _due: Due, reading: &mut Reading) -> Result<(), ProbeError> {
        let list = self.table.read();
        self.report(match &list {
            Ok(list) => list.gaps.first().map(ToString::to_string),
            Err(error) => Some(format!("cannot list them: {error}")),
        });
        for process in &list?.processes {
            fill(process, reading.row(&process.gpu));
        }
        Ok(())
    }

    fn findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }
}

impl fmt::Debug for ProcessProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessProbe").field("driver", &self.table.driver()).finish_non_exhaustive()
    }
}

/// The numbers of the processes in a reading.
pub(crate) fn pids(reading: &Reading) -> impl Iterator<Item = u32> {
    let values = reading.rows().iter().flat_map(Row::own_values);
    values.filter_map(|(column, value)| match value {
        OwnValue::Number(Value::Int(pid)) if *column == PID => u32::try_from(*pid).ok(),
        _ => None,
    })
}

/// Unknown values are left out.
fn fill(process: &GpuProcess, row: &mut Row) {
    row.own(PID, Value::Int(process.pid.into()));
    row.own_text("process_type", &Arc::from(process.kind.as_str()));
    if *process.name != *NAMELESS {
        row.own_text("command", &process.name);
    }
    for (column, share) in [
        ("sm_utilization", process.utilization_pct),
        ("memory_utilization", process.memory_utilization_pct),
        ("encoder_utilization", process.encoder_utilization_pct),
        ("decoder_utilization", process.decoder_utilization_pct),
    ] {
        if let Some(share) = share {
            row.own(column, Value::Float32(share));
        }
    }
    for (column, number) in [("fb_memory_mb", process.memory_mb), ("compute_units", process.compute_units)] {
        if let Some(number) = number {
            row.own(column, Value::Int(number));
        }
    }
}
