//! Which rows a query wants.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;

use crate::merge::RowKeys;
use crate::tail;

/// GPUs and time, both ends inclusive.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
    /// None: all.
    wanted: Option<Wanted>,
}

#[derive(Debug, Clone)]
struct Wanted {
    /// Keys, ascending.
    keys: Vec<Arc<str>>,
    /// What `uuid` may be in their rows, ascending: the key, and each of its beginnings that a partition may follow.
    uuids: Vec<String>,
}

fn any_within<T: AsRef<str>>(ascending: &[T], min: &[u8], max: &[u8]) -> bool {
    let at = ascending.partition_point(|text| text.as_ref().as_bytes() < min);
    ascending.get(at).is_some_and(|text| text.as_ref().as_bytes() <= max)
}

impl Scope {
    /// No key: all GPUs.
    pub(crate) fn new(gpus: &[Arc<str>], start_ns: i64, end_ns: i64) -> Self {
        let wanted = (!gpus.is_empty()).then(|| {
            let keys: BTreeSet<Arc<str>> = gpus.iter().cloned().collect();
            let uuids: BTreeSet<String> = keys
                .iter()
                .flat_map(|key| {
                    let beginnings = key.match_indices(':').filter_map(|(at, _)| key.get(..at));
                    beginnings.chain([key.as_ref()]).map(str::to_owned).collect::<Vec<_>>()
                })
                .collect();
            Wanted { keys: keys.into_iter().collect(), uuids: uuids.into_iter().collect() }
        });
        Self { start_ns, end_ns, wanted }
    }

    /// The same GPUs in another time.
    pub(crate) fn during(&self, start_ns: i64, end_ns: i64) -> Self {
        Self { start_ns, end_ns, wanted: self.wanted.clone() }
    }

    /// Keys wanted, ascending; none: all.
    pub(crate) fn keys(&self) -> Option<&[Arc<str>]> {
        self.wanted.as_ref().map(|wanted| wanted.keys.as_slice())
    }

    /// Whether there can be a wanted row between these keys and times.
    pub(crate) fn meets(&self, min_key: &str, max_key: &str, min_ns: i64, max_ns: i64) -> bool {
        self.meets_times(min_ns, max_ns)
            && self.keys().is_none_or(|keys| any_within(keys, min_key.as_bytes(), max_key.as_bytes()))
    }

    /// Whether there can be a wanted row between these times.
    pub(crate) fn meets_times(&self, min_ns: i64, max_ns: i64) -> bool {
        min_ns <= self.end_ns && max_ns >= self.start_ns
    }

    /// Whether a row whose `uuid` lies between these can be wanted.
    pub(crate) fn meets_uuids(&self, min: &[u8], max: &[u8]) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| any_within(&wanted.uuids, min, max))
    }

    /// Whether all rows between these times are wanted, whatever their GPU.
    pub(crate) fn covers(&self, min_ns: i64, max_ns: i64) -> bool {
        self.wanted.is_none() && self.start_ns <= min_ns && self.end_ns >= max_ns
    }

    fn wants(&self, key: &str) -> bool {
        self.keys().is_none_or(|keys| keys.binary_search_by(|probe| probe.as_ref().cmp(key)).is_ok())
    }
}

/// Ranges of rows that are in scope, ascending. `keys` are those of the rows; without them all GPUs are wanted.
pub(crate) fn matching(records: &RecordBatch, keys: Option<&RowKeys>, scope: &Scope) -> Vec<Range<usize>> {
    let times = tail::timestamps(records);
    let wanted: Option<Vec<bool>> = keys
        .filter(|_| scope.keys().is_some())
        .map(|keys| keys.keys.iter().map(|key| scope.wants(key)).collect());
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let mut start = None;
    for (row, time) in times.iter().enumerate() {
        let hit = (scope.start_ns..=scope.end_ns).contains(time)
            && match (&wanted, keys) {
                (Some(wanted), Some(keys)) => {
                    keys.ids.get(row).and_then(|&id| wanted.get(id as usize)).copied().unwrap_or(false)
                }
                _ => true,
            };
        match (hit, start) {
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
