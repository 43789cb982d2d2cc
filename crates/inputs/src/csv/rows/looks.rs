//! Rows of processes, whose memory is put together by GPU and look.

use std::collections::HashSet;

use gpuvitals_core::batch::Value;

use super::RowBuilder;
use crate::csv::plan::is_named;
use crate::csv::split::Splitter;
use crate::csv::subject::Look;

/// Lines of one look at the processes of a GPU come within this.
const ONE_LOOK_NS: u64 = 1_000_000_000;

impl RowBuilder {
    /// The time of the look at a GPU's processes that a record is of: each process comes once in one.
    pub(super) fn look(&mut self, index: usize, record: &Splitter, time_ns: i64) -> i64 {
        let pid = self.plan.columns.iter().position(|column| is_named(&column.name, "pid"));
        let pid: Box<[u8]> = pid.map_or(&b""[..], |column| record.field(column).trim_ascii()).into();
        let is_untimed = self.times.is_none();
        let Some(subject) = self.subjects.get_mut(index) else { return time_ns };
        let known = subject.look.as_mut().filter(|look| {
            let is_near = is_untimed || look.time_ns.abs_diff(time_ns) < ONE_LOOK_NS;
            is_near && !look.pids.contains(&pid)
        });
        if let Some(look) = known {
            look.pids.insert(pid);
            return look.time_ns;
        }
        let time_ns = if is_untimed { subject.untimed(time_ns) } else { time_ns };
        subject.look = Some(Look { time_ns, pids: HashSet::from([pid]), sum: None });
        time_ns
    }

    /// The memory of the processes in this look at a GPU, with one more.
    pub(super) fn summed(&mut self, index: usize, value: Value) -> Value {
        let subject = self.subjects.get_mut(index);
        let Some(look) = subject.and_then(|subject| subject.look.as_mut()) else { return value };
        let sum = look.sum.map_or(value, |sum| Value::Float(sum.as_f64() + value.as_f64()));
        look.sum = Some(sum);
        sum
    }
}
