//! A recording as a trace of Perfetto, to be looked at beside one of a profiler.
//!
//! Times are those of the monotonic clock, as most profilers use it; the first packet ties it to the clocks of UTC and of the
//! time since boot. Each GPU, host and CPU is a group with a counter track a metric. A value is written when it is another one
//! than before: a track shows its value until the next. A time in which a GPU is known to report nothing, or has no rows, is a slice
//! on its group, and its values are written anew after it. Marks are instants that carry their phase, step and value.
//!
//! The rows go through one by one: memory holds the last value of each track.

mod packets;
mod wire;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use gpuvitals_analysis::summary::gap_ns;
use gpuvitals_core::batch::{MetricColumn, RowKeys, Value};
use gpuvitals_core::catalogue::Scope;
use gpuvitals_core::integral::Blanks;
use gpuvitals_core::{Batch, IdentityColumn, MetricId, Table};

use crate::about::{RecordingFacts, marks_of};
use crate::data::Data;
use crate::error::RecordError;
use crate::marks::RecordedMark;
use packets::{PacketWriter, TraceClock, TrackFacts};

/// Most GPUs, hosts and CPUs of a trace; the rows of others are counted.
const SUBJECTS_MAX: usize = 4_096;
/// Name of a time in which a GPU reports nothing.
const NOTHING: &str = "reports nothing";
/// Name of a time without rows.
const NO_ROWS: &str = "no rows";
/// The track of the marks.
const MARKS: &str = "marks";

/// A trace that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum PerfettoError {
    /// The recording cannot be read.
    #[error(transparent)]
    Recording(#[from] RecordError),
    /// The output does not take it.
    #[error("cannot write the trace")]
    Write(#[from] io::Error),
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PerfettoTotals {
    /// Changes of values, marks, and ends of times without values.
    pub events: u64,
    /// Tracks of values.
    pub tracks: u64,
    /// Rows of more GPUs, hosts and CPUs than a trace takes.
    pub rows_left_out: u64,
}

/// Writes the recording in a directory, finished or not, as a trace. The output is written piece by piece: it has a buffer.
///
/// # Errors
/// If the recording cannot be read, has no monotonic clock, or the output fails.
pub fn write_perfetto(directory: &Path, out: &mut dyn Write) -> Result<PerfettoTotals, PerfettoError> {
    let facts = RecordingFacts::read(directory)?;
    let boot_ahead_ns = facts.get("boot_ahead_ns").and_then(|ns| ns.parse().ok());
    let mut trace = Trace::new(out, boot_ahead_ns);
    // An incident of a flight recorder does not say how often it was sampled: what is a gap there is not known.
    trace.gaps_ns = ["rate_hz", "system_rate_hz"].map(|fact| facts.interval(fact).map_or(i64::MAX, gap_ns));
    let clockless = || RecordError::Directory {
        path: directory.to_owned(),
        what: "has rows without the monotonic clock",
    };
    for batch in Data::open(directory)? {
        let batch = batch?;
        let times = trace.times(&batch)?.ok_or_else(clockless)?;
        trace.add(&batch, &times)?;
    }
    for mark in marks_of(directory)? {
        trace.mark(&mark?)?;
    }
    Ok(trace.totals())
}

/// A trace that is being written.
struct Trace<'a> {
    packets: PacketWriter<'a>,
    /// How far the clock of the time since boot, which runs on while the machine sleeps, is ahead; none: not known.
    boot_ahead_ns: Option<i64>,
    /// How far the monotonic clock is behind UTC; none before the first moment on both.
    behind_ns: Option<i64>,
    /// Distance between two rows of a GPU, and of a host, beyond which there is a gap.
    gaps_ns: [i64; 2],
    /// The places of GPUs, hosts and CPUs by name.
    places: HashMap<Arc<str>, usize>,
    subjects: Vec<TraceSubject>,
    has_marks: bool,
    tracks: u64,
    rows_left_out: u64,
}

/// A GPU, a host or a CPU.
struct TraceSubject {
    name: Arc<str>,
    group: u64,
    counters: BTreeMap<MetricId, TraceCounter>,
    /// Time of its last row.
    last_ns: Option<i64>,
    /// Whether it is known to report nothing.
    is_blank: bool,
}

struct TraceCounter {
    track: u64,
    last: Option<Value>,
}

impl<'a> Trace<'a> {
    fn new(out: &'a mut dyn Write, boot_ahead_ns: Option<i64>) -> Self {
        Self {
            packets: PacketWriter::new(out),
            boot_ahead_ns,
            behind_ns: None,
            gaps_ns: [i64::MAX; 2],
            places: HashMap::new(),
            subjects: Vec::new(),
            has_marks: false,
            tracks: 0,
            rows_left_out: 0,
        }
    }

    /// The first moment that is known on both clocks ties them.
    fn tie(&mut self, wall_ns: i64, mono_ns: i64) -> io::Result<()> {
        if self.behind_ns.is_some() {
            return Ok(());
        }
        self.behind_ns = Some(wall_ns.saturating_sub(mono_ns));
        let mut shown = vec![(TraceClock::Monotonic, mono_ns), (TraceClock::Realtime, wall_ns)];
        let since_boot_ns = self.boot_ahead_ns.map(|ahead_ns| mono_ns.saturating_add(ahead_ns));
        shown.extend(since_boot_ns.map(|ns| (TraceClock::Boottime, ns)));
        self.packets.clocks(&shown)
    }

    /// Times of the rows on the monotonic clock; none if that is not known.
    fn times(&mut self, batch: &Batch) -> io::Result<Option<Vec<i64>>> {
        if let Some(times) = batch.monotonic() {
            if let (Some(wall_ns), Some(mono_ns)) = (batch.timestamps().first(), times.first()) {
                self.tie(*wall_ns, *mono_ns)?;
            }
            return Ok(Some(times.to_vec()));
        }
        let of = |behind_ns: i64| batch.timestamps().iter().map(|ns| ns.saturating_sub(behind_ns)).collect();
        Ok(self.behind_ns.map(of))
    }

    fn add(&mut self, batch: &Batch, times: &[i64]) -> io::Result<()> {
        // Every row of a recording names its GPU or host.
        let Ok(keys) = RowKeys::of(batch.records(), batch.table()) else { return Ok(()) };
        let columns: Vec<(MetricId, MetricColumn<'_>)> = batch.metrics().collect();
        let blanks = Blanks::of(batch);
        let has_cores = batch.table() == Table::SystemEvents;
        let mut known: Vec<Option<usize>> = vec![None; keys.keys.len()];
        for (row, (time_ns, id)) in times.iter().zip(&keys.ids).enumerate() {
            let core = if has_cores { batch.instance(Scope::CpuCore, row) } else { None };
            let slot = known.get_mut(*id as usize).filter(|_| core.is_none());
            let place = match slot {
                Some(slot) => {
                    if slot.is_none() {
                        *slot = self.place(&subject_name(batch, row, None))?;
                    }
                    *slot
                }
                None => self.place(&subject_name(batch, row, core))?,
            };
            let Some(subject) = place.and_then(|place| self.subjects.get_mut(place)) else {
                self.rows_left_out += 1;
                continue;
            };
            let [of_gpu, of_host] = self.gaps_ns;
            subject.pass(&mut self.packets, *time_ns, if has_cores { of_host } else { of_gpu })?;
            if blanks.has(row) {
                subject.lose(&mut self.packets, *time_ns)?;
            } else {
                let values = columns.iter().filter_map(|(id, column)| Some((*id, column.value(row)?)));
                self.tracks += subject.take(&mut self.packets, *time_ns, values)?;
            }
        }
        Ok(())
    }

    /// The place of a GPU, host or CPU, which is described when it is new; none beyond the bound.
    fn place(&mut self, name: &str) -> io::Result<Option<usize>> {
        if let Some(place) = self.places.get(name) {
            return Ok(Some(*place));
        }
        let place = self.subjects.len();
        if place >= SUBJECTS_MAX {
            return Ok(None);
        }
        let (name, group) = (Arc::<str>::from(name), track_id(name, ""));
        self.packets.group(TrackFacts { id: group, group: None, name: &name, help: "", rank: 0 })?;
        self.places.insert(Arc::clone(&name), place);
        self.subjects.push(TraceSubject {
            name,
            group,
            counters: BTreeMap::new(),
            last_ns: None,
            is_blank: false,
        });
        Ok(Some(place))
    }

    fn mark(&mut self, mark: &RecordedMark) -> io::Result<()> {
        self.tie(mark.timestamp_ns, mark.monotonic_ns)?;
        let id = track_id(MARKS, "");
        if !self.has_marks {
            self.has_marks = true;
            self.packets.group(TrackFacts { id, group: None, name: MARKS, help: "", rank: 0 })?;
        }
        self.packets.mark(mark.monotonic_ns, id, &mark.content)
    }

    fn totals(&self) -> PerfettoTotals {
        PerfettoTotals { events: self.packets.events, tracks: self.tracks, rows_left_out: self.rows_left_out }
    }
}

impl TraceSubject {
    /// Comes to a row. A gap before it is a slice, unless it is known to have reported nothing.
    fn pass(&mut self, packets: &mut PacketWriter<'_>, time_ns: i64, gap_ns: i64) -> io::Result<()> {
        let last_ns = self.last_ns.replace(time_ns).filter(|_| !self.is_blank);
        let Some(last_ns) = last_ns.filter(|last_ns| time_ns.saturating_sub(*last_ns) > gap_ns) else {
            return Ok(());
        };
        self.forget();
        packets.slice_begin(last_ns, self.group, NO_ROWS)?;
        packets.slice_end(time_ns, self.group)
    }

    /// The same value later is a new one.
    fn forget(&mut self) {
        self.counters.values_mut().for_each(|counter| counter.last = None);
    }

    /// It reports nothing from now on.
    fn lose(&mut self, packets: &mut PacketWriter<'_>, time_ns: i64) -> io::Result<()> {
        self.forget();
        if self.is_blank {
            return Ok(());
        }
        self.is_blank = true;
        packets.slice_begin(time_ns, self.group, NOTHING)
    }

    /// Takes the values of a row; answers how many tracks are new.
    fn take(
        &mut self,
        packets: &mut PacketWriter<'_>,
        time_ns: i64,
        values: impl Iterator<Item = (MetricId, Value)>,
    ) -> io::Result<u64> {
        if std::mem::take(&mut self.is_blank) {
            packets.slice_end(time_ns, self.group)?;
        }
        let mut added = 0;
        for (id, value) in values {
            let counter = match self.counters.entry(id) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(free) => {
                    added += 1;
                    free.insert(described(packets, &self.name, self.group, id)?)
                }
            };
            if counter.last != Some(value) {
                counter.last = Some(value);
                packets.counter(time_ns, counter.track, value)?;
            }
        }
        Ok(added)
    }
}

/// Describes the track of a metric.
fn described(
    packets: &mut PacketWriter<'_>,
    subject: &str,
    group: u64,
    id: MetricId,
) -> io::Result<TraceCounter> {
    let metric = id.metric();
    let (track, name) = (track_id(subject, metric.column), metric.column);
    let facts = TrackFacts { id: track, group: Some(group), name, help: metric.help, rank: id.0 };
    packets.counter_track(facts, metric.unit.as_str())?;
    Ok(TraceCounter { track, last: None })
}

/// `GPU 0 NVIDIA H100 on n1, GPU-…`, `host n1`, `CPU 3 of n1`. No two have the same.
fn subject_name(batch: &Batch, row: usize, core: Option<&str>) -> String {
    let identity = batch.identity(row);
    let node = identity.node().unwrap_or("an unknown host");
    if batch.table() == Table::SystemEvents {
        return core.map_or_else(|| format!("host {node}"), |core| format!("CPU {core} of {node}"));
    }
    let index = identity.index.map_or(String::new(), |index| format!(" {index}"));
    let part = identity.get(IdentityColumn::Partition).map_or(String::new(), |part| format!("/{part}"));
    let model = identity.get(IdentityColumn::Model).map_or(String::new(), |model| format!(" {model}"));
    let key = identity.key().unwrap_or_default();
    format!("GPU{index}{part}{model} on {node}, {key}")
}

/// The id of a track (FNV-1a). A GPU has the same in every trace, and no other GPU has it: traces can be joined.
fn track_id(subject: &str, column: &str) -> u64 {
    let bytes = subject.bytes().chain([0]).chain(column.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
