//! XIDs that programs cause, and that come again and again on one GPU, whoever runs there: then the GPU is the suspect.
//!
//! NVIDIA's catalogue says of 31 that one alone is the program's, and that several on one GPU may be the hardware's; of 13 the same.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use gpuvitals_core::batch::RowKeys;
use gpuvitals_core::history::{ExtraValue, GpuState, RowsQuery};
use gpuvitals_core::time::{DAY_NS, MINUTE_NS};
use gpuvitals_core::{Batch, IdentityColumn, MetricId, Table};

use super::told::AgentWords;
use crate::condition::xid;
use crate::freshness::Freshness;

const XID_LAST: MetricId = MetricId::of("xid_last");
/// An exception of the graphics engine, and a fault of its memory management.
const CODES: [i64; 2] = [13, 31];
/// How often the events are asked for.
const EVERY_NS: i64 = MINUTE_NS;
/// Most rows that are read, the newest first.
const ROWS_MAX: usize = 10_000;
/// Most GPUs whose events are asked for.
const GPUS_MAX: usize = 64;

/// The repeated XIDs of GPUs.
#[derive(Debug, Default)]
pub struct RepeatedXids {
    asked_ns: Option<i64>,
    asked: Vec<Arc<str>>,
    gpus: HashMap<Arc<str>, XidTimes>,
}

/// How often XIDs came to a GPU in a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct XidTimes {
    /// The last of them.
    pub(super) code: i64,
    /// Those within a minute are one.
    pub(super) times: usize,
    /// Whose work they came to, as far as that is known.
    pub(super) holders: usize,
    /// What these are: jobs and pods; where nobody knows any, programs that the kernel's log names.
    pub(super) are: &'static str,
}

impl RepeatedXids {
    /// What to ask the history for the events of GPUs whose last XID is one that programs cause, by their drivers or by what agents say;
    /// none: there is none, or they are known.
    pub fn next_query(
        &mut self,
        gpus: &[Arc<GpuState>],
        fresh: Freshness,
        told: &AgentWords,
    ) -> Option<RowsQuery> {
        #[expect(clippy::cast_possible_truncation, reason = "a code")]
        let is_asked = |gpu: &&Arc<GpuState>| {
            let by_driver = fresh.recent(gpu, XID_LAST).map(|code| code.as_f64() as i64);
            by_driver.into_iter().chain(told.xid_of_day(&gpu.key)).any(xid::is_of_application)
        };
        let gpus: Vec<Arc<str>> =
            gpus.iter().filter(is_asked).take(GPUS_MAX).map(|gpu| Arc::clone(&gpu.key)).collect();
        self.gpus.retain(|gpu, _| gpus.contains(gpu));
        let is_due = self.asked_ns.is_none_or(|asked_ns| fresh.now_ns.saturating_sub(asked_ns) >= EVERY_NS);
        if gpus.is_empty() || !is_due {
            return None;
        }
        self.asked_ns = Some(fresh.now_ns);
        self.asked.clone_from(&gpus);
        Some(RowsQuery {
            gpus,
            start_ns: Some(fresh.now_ns.saturating_sub(DAY_NS)),
            newest_first: true,
            ..RowsQuery::of(Table::GpuHealthEvents, ROWS_MAX)
        })
    }

    /// Takes the answer: rows of events, if there are any.
    pub fn take(&mut self, batch: Option<&Batch>) {
        for gpu in self.asked.drain(..) {
            self.gpus.remove(&gpu);
        }
        self.gpus.extend(batch.map(times).unwrap_or_default());
    }

    /// How often they came to a GPU.
    pub(super) fn of(&self, gpu: &str) -> Option<XidTimes> {
        self.gpus.get(gpu).copied()
    }
}

/// An XID in a row of events: when, its code, the job or pod that had the GPU, and the program that the kernel's log names.
type XidRow = (i64, i64, Option<String>, Option<String>);

fn times(batch: &Batch) -> HashMap<Arc<str>, XidTimes> {
    let Ok(keys) = RowKeys::of(batch.records(), batch.table()) else { return HashMap::new() };
    let code_of = |row| match ExtraValue::of(batch.records().column_by_name("code")?, row)? {
        #[expect(clippy::cast_possible_truncation, reason = "it was a whole number")]
        ExtraValue::Number(code) => Some(code as i64),
        ExtraValue::Text(_) => None,
    };
    let text_of = |name, row| match ExtraValue::of(batch.records().column_by_name(name)?, row)? {
        ExtraValue::Text(text) => Some(text),
        ExtraValue::Number(_) => None,
    };
    let mut rows: HashMap<&Arc<str>, Vec<XidRow>> = HashMap::new();
    for (row, (id, at_ns)) in keys.ids.iter().zip(batch.timestamps()).enumerate() {
        let Some(code) = code_of(row).filter(|code| CODES.contains(code)) else { continue };
        // The kernel's line about an XID is of the same minute.
        let is_xid = text_of("kind", row).is_some_and(|kind| matches!(&*kind, "xid" | "kernel"));
        if let (true, Some(key)) = (is_xid, keys.keys.get(*id as usize)) {
            let identity = batch.identity(row);
            let holder = identity.get(IdentityColumn::Job).or_else(|| identity.get(IdentityColumn::Pod));
            let program = text_of("detail", row).and_then(|detail| program_of(&detail).map(str::to_owned));
            rows.entry(key).or_default().push((*at_ns, code, holder.map(str::to_owned), program));
        }
    }
    rows.into_iter().filter_map(|(key, rows)| Some((Arc::clone(key), times_of(rows)?))).collect()
}

/// The program that a line of the kernel names: `…, pid=4711, name=python3, …`.
fn program_of(line: &str) -> Option<&str> {
    let (_, name) = line.split_once(", name=")?;
    name.split(',').next().filter(|name| !name.is_empty() && *name != "<unknown>")
}

fn times_of(mut rows: Vec<XidRow>) -> Option<XidTimes> {
    rows.sort_unstable();
    let code = rows.last()?.1;
    let (mut times, mut last_ns) = (0, None);
    let (mut holders, mut programs) = (BTreeSet::new(), BTreeSet::new());
    for (at_ns, _, holder, program) in rows {
        if last_ns.is_none_or(|last_ns: i64| at_ns.saturating_sub(last_ns) >= MINUTE_NS) {
            times += 1;
        }
        last_ns = Some(at_ns);
        holders.extend(holder);
        programs.extend(program);
    }
    let (holders, are) = if holders.is_empty() { (programs, "programs") } else { (holders, "jobs") };
    Some(XidTimes { code, times, holders: holders.len(), are })
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::{BatchBuilder, Identity, Origin};

    use super::*;

    /// What rows of GPU `a` tell: minute, kind, code, job.
    fn told(rows: &[(i64, &str, i64, &str)]) -> Option<XidTimes> {
        let rows: Vec<_> =
            rows.iter().map(|(minute, kind, code, job)| (*minute, *kind, *code, *job, "")).collect();
        said(&rows)
    }

    /// The same with the line of the kernel.
    fn said(rows: &[(i64, &str, i64, &str, &str)]) -> Option<XidTimes> {
        let mut builder = BatchBuilder::new(Table::GpuHealthEvents);
        for (number, (minute, kind, code, job, line)) in (0_i64..).zip(rows) {
            let gpu = Identity::default().with(IdentityColumn::Uuid, "a").unwrap();
            let who = builder.intern(&gpu.with(IdentityColumn::Job, job).unwrap());
            let row = builder.row(minute * MINUTE_NS, who);
            builder.set_extra(row, "sequence", number).unwrap();
            builder.set_extra(row, "code", *code).unwrap();
            builder.set_extra_text(row, "kind", kind).unwrap();
            builder.set_extra_text(row, "detail", line).unwrap();
        }
        times(&builder.finish(Origin::default(), 1).unwrap()).get("a").copied()
    }

    #[test]
    fn what_comes_at_once_is_one_fault_and_who_had_the_gpu_is_counted() {
        let many = [
            (9, "xid", 31, "2"),
            (9, "kernel", 31, "2"),
            (1, "xid", 13, "1"),
            (1, "xid", 13, "1"),
            (5, "xid", 79, "3"),
            (6, "ecc", 31, "4"),
            (7, "xid", 13, ""),
        ];
        assert_eq!(told(&many), Some(XidTimes { code: 31, times: 3, holders: 2, are: "jobs" }));
        assert_eq!(told(&[(5, "xid", 79, "3"), (5, "ecc", 13, "3")]), None);
    }

    #[test]
    fn where_nobody_knows_a_job_the_programs_of_the_kernels_lines_count() {
        let line = |name: &str| format!("NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name={name}, Ch 00000008");
        let [python, chrome, unknown] = ["python3", "chrome", "<unknown>"].map(line);
        let rows = |job| {
            [
                (1, "kernel", 31, job, &*python),
                (5, "kernel", 31, job, &*chrome),
                (9, "xid", 13, job, &*unknown),
            ]
        };
        assert_eq!(said(&rows("")), Some(XidTimes { code: 13, times: 3, holders: 2, are: "programs" }));
        let of_job = Some(XidTimes { code: 13, times: 3, holders: 1, are: "jobs" });
        assert_eq!(said(&rows("1")), of_job, "a job may run several programs");
        assert_eq!(program_of("XID 31 (a fault of memory management)"), None);
    }

    #[test]
    fn a_gpu_without_news_is_forgotten() {
        let mut xids = RepeatedXids::default();
        let times = XidTimes { code: 13, times: 3, holders: 2, are: "jobs" };
        xids.gpus.insert(Arc::from("a"), times);
        xids.asked.push(Arc::from("a"));
        xids.take(None);
        assert!(xids.gpus.is_empty());
    }
}
