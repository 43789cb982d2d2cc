//! When the programs of recordings last set a mark. Who sets marks goes on, whatever its GPUs look like.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use gpuvitals_core::batch::{Value, numbers};
use gpuvitals_core::history::{GpuState, Matcher, RowsQuery, Selector, TextTest};
use gpuvitals_core::usage::{RUN_HOLDER, hour_of};
use gpuvitals_core::{Batch, Identity, IdentityColumn, Table};

use super::subject::holder_id;
use super::threshold::MARKED_SINCE_NS;
use crate::freshness::Freshness;

/// Most recordings that are asked for.
const RUNS_MAX: usize = 512;
/// Most rows about them: each has one an hour and host.
const ROWS_MAX: usize = 10_000;
const MARKED: &str = "marked_ns";

/// The last marks of recordings, by cluster and run.
#[derive(Debug, Default)]
pub struct RunMarks(HashMap<Arc<str>, i64>);

impl RunMarks {
    /// What to ask the history for the marks of the recordings that hold GPUs; none: none does.
    pub fn next_query(&mut self, gpus: &[Arc<GpuState>], fresh: Freshness) -> Option<RowsQuery> {
        let present = gpus.iter().filter(|gpu| !fresh.is_old(gpu.last_seen_ns));
        let jobs = present.filter_map(|gpu| gpu.identity.shared(IdentityColumn::Job).cloned());
        let runs: BTreeSet<Arc<str>> = jobs.filter(|job| job.starts_with(RUN_HOLDER)).collect();
        if runs.is_empty() {
            self.0.clear();
            return None;
        }
        let runs = TextTest::Is(runs.into_iter().take(RUNS_MAX).collect());
        Some(RowsQuery {
            selector: Selector::new(vec![Matcher { column: IdentityColumn::Job, test: runs }]).ok()?,
            // Rows have the start of their hour.
            start_ns: Some(hour_of(fresh.now_ns.saturating_sub(MARKED_SINCE_NS))),
            newest_first: true,
            metrics: Some(vec![MARKED.to_owned()]),
            ..RowsQuery::of(Table::Jobs, ROWS_MAX)
        })
    }

    /// Takes the answer: rows of `jobs`, if there are any.
    pub fn take(&mut self, batch: Option<&Batch>) {
        self.0.clear();
        let Some(batch) = batch else { return };
        let Some(marked) = batch.records().column_by_name(MARKED).and_then(numbers) else { return };
        for row in 0..batch.rows() {
            let run = run_of(&batch.identity(row));
            if let (Some(run), Some(Value::Int(marked_ns))) = (run, marked.value(row)) {
                let last_ns = self.0.entry(run).or_insert(marked_ns);
                *last_ns = marked_ns.max(*last_ns);
            }
        }
    }

    /// When the program that has this GPU last set one, nanoseconds UTC since 1970.
    pub(super) fn of(&self, gpu: &GpuState) -> Option<i64> {
        self.0.get(&run_of(&gpu.identity)?).copied()
    }
}

fn run_of(identity: &Identity) -> Option<Arc<str>> {
    Some(holder_id(identity.get(IdentityColumn::Cluster), None, identity.get(IdentityColumn::Job)?))
}
