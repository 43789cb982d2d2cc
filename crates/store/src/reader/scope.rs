//! Which rows a query wants.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use gpuvitals_core::Table;

use crate::grain::Grain;
use crate::manifest::FileRecord;

/// A table's GPUs (or hosts) and time, both ends inclusive.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) table: Table,
    pub(crate) grain: Grain,
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
    /// Keys, ascending; none: all.
    wanted: Option<Arc<[Arc<str>]>>,
}

fn any_within(ascending: &[Arc<str>], min: &str, max: &str) -> bool {
    let at = ascending.partition_point(|key| key.as_ref() < min);
    ascending.get(at).is_some_and(|key| key.as_ref() <= max)
}

impl Scope {
    /// No key: all GPUs.
    pub(crate) fn new(table: Table, gpus: &[Arc<str>], start_ns: i64, end_ns: i64) -> Self {
        let keys: BTreeSet<Arc<str>> = gpus.iter().cloned().collect();
        let wanted = (!keys.is_empty()).then(|| keys.into_iter().collect());
        Self { table, grain: Grain::Raw, start_ns, end_ns, wanted }
    }

    /// The same in another grain.
    pub(crate) fn by(self, grain: Grain) -> Self {
        Self { grain, ..self }
    }

    /// The same GPUs in another time.
    pub(crate) fn during(&self, start_ns: i64, end_ns: i64) -> Self {
        Self { start_ns, end_ns, ..self.clone() }
    }

    /// Keys wanted, ascending; none: all.
    pub(crate) fn keys(&self) -> Option<&[Arc<str>]> {
        self.wanted.as_deref()
    }

    /// Whether the rows of a GPU are wanted.
    pub(crate) fn wants(&self, key: &Arc<str>) -> bool {
        self.keys().is_none_or(|keys| keys.binary_search(key).is_ok())
    }

    /// Whether there can be a wanted row between these keys and times.
    pub(crate) fn meets(&self, min_key: &str, max_key: &str, min_ns: i64, max_ns: i64) -> bool {
        self.meets_times(min_ns, max_ns) && self.keys().is_none_or(|keys| any_within(keys, min_key, max_key))
    }

    /// Whether there can be a wanted row in a file.
    pub(crate) fn meets_file(&self, file: &FileRecord) -> bool {
        file.grain == self.grain && self.meets_rows(file)
    }

    /// The same, whatever the grain of the file.
    pub(crate) fn meets_rows(&self, file: &FileRecord) -> bool {
        let FileRecord { min_key, max_key, min_timestamp_ns, max_timestamp_ns, .. } = file;
        file.table == self.table && self.meets(min_key, max_key, *min_timestamp_ns, *max_timestamp_ns)
    }

    /// Whether there can be a wanted row between these times.
    pub(crate) fn meets_times(&self, min_ns: i64, max_ns: i64) -> bool {
        min_ns <= self.end_ns && max_ns >= self.start_ns
    }

    /// Whether all times between these are wanted.
    pub(crate) fn covers(&self, min_ns: i64, max_ns: i64) -> bool {
        self.start_ns <= min_ns && self.end_ns >= max_ns
    }

    /// The key wanted, if it is only one.
    pub(crate) fn only_key(&self) -> Option<&Arc<str>> {
        match self.keys() {
            Some([only]) => Some(only),
            _ => None,
        }
    }
}

/// Ranges of rows whose time is in scope, ascending.
pub(crate) fn in_time(times: &[i64], scope: &Scope) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let mut start = None;
    for (row, time) in times.iter().enumerate() {
        match ((scope.start_ns..=scope.end_ns).contains(time), start) {
            (true, None) => start = Some(row),
            (false, Some(from)) => {
                ranges.push(from..row);
                start = None;
            }
            _ => {}
        }
    }
    ranges.extend(start.map(|from| from..times.len()));
    ranges
}
