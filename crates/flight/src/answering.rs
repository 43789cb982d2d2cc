//! What a node answers a gateway that asks for rows around a trigger of another node of its job.
//!
//! A piece is `length u32 | gpuvitals_core::wire::pack(batch)`, integers little-endian.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use gpuvitals_core::batch::{RowKeys, is_local};
use gpuvitals_core::wire::pack;
use gpuvitals_core::{Batch, Table};
use gpuvitals_log::read_beside;

use crate::error::FlightError;
use crate::folder::{FlightFolder, IncidentState};
use crate::incident::{FlightIncident, FlightSpan};
use crate::job_window::{GPU_LEN_MAX, LEN_MAX, len_max};
use crate::place;
use crate::ring::{self, undisturbed};
use crate::tables::IncidentRows;
use crate::trigger::FlightTrigger;

/// Rows of GPUs in pieces, as they are sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WindowAnswer {
    /// In the order of time; none: the node has no rows.
    pub pieces: Vec<Bytes>,
    /// Whether rows were left out for want of room.
    pub is_cut: bool,
}

/// The rows that a ring has within some time around a trigger. If they are too many, those that are farthest from it are left out.
///
/// # Errors
/// If the ring cannot be read.
pub fn window(directory: &Path, asked: FlightSpan, at_ns: i64) -> Result<WindowAnswer, FlightError> {
    let FlightSpan { from_ns, to_ns } = asked;
    let gathered = undisturbed(|| {
        let ring = read_beside(&place::ring(directory))?;
        let mut gathered = Gathered::around(at_ns);
        for batch in ring::rows(ring, Table::GpuEvents, (from_ns, to_ns)) {
            gathered.add(&batch?)?;
        }
        Ok(gathered)
    })?;
    Ok(gathered.cut(GPU_LEN_MAX))
}

/// The incident that a node has kept for this one of its job, or that began it by this trigger; none: it has none yet, or none any
/// more.
///
/// # Errors
/// If they cannot be listed.
pub(crate) fn kept(
    folder: &FlightFolder,
    id: &str,
    begun: &FlightTrigger,
) -> Result<Option<Box<FlightIncident>>, FlightError> {
    let is_for = |trigger: &FlightTrigger| trigger.is_of_job() && trigger.rule.as_deref() == Some(id);
    Ok(folder.list()?.into_iter().find_map(|entry| match entry.state {
        IncidentState::Whole(it) => {
            let is_it = it.trigger == *begun || is_for(&it.trigger) || it.others.iter().any(is_for);
            is_it.then_some(it)
        }
        _ => None,
    }))
}

/// The rows of GPUs among these that are within some time. If they are too many, those that are farthest from the trigger are left out.
///
/// # Errors
/// If they cannot be read.
pub(crate) fn rest(rows: IncidentRows, asked: FlightSpan, at_ns: i64) -> Result<WindowAnswer, FlightError> {
    let mut gathered = Gathered::around(at_ns);
    for batch in rows {
        let batch = batch?;
        let is_asked = |row_ns: &i64| {
            batch.table() == Table::GpuEvents && (asked.from_ns..=asked.to_ns).contains(row_ns)
        };
        let keep: Vec<bool> = batch.timestamps().iter().map(is_asked).collect();
        if let Some(batch) = batch.filter(&keep) {
            gathered.add(&batch)?;
        }
    }
    Ok(gathered.cut(LEN_MAX))
}

/// Pieces around a moment: never many more than can be sent.
#[derive(Debug)]
struct Gathered {
    at_ns: i64,
    pieces: Vec<GatheredPiece>,
    /// Bytes of these.
    len: u64,
    /// Whether others were left out.
    is_cut: bool,
}

#[derive(Debug)]
struct GatheredPiece {
    first_ns: i64,
    last_ns: i64,
    gpus: BTreeSet<Arc<str>>,
    bytes: Bytes,
}

impl Gathered {
    fn around(at_ns: i64) -> Self {
        Self { at_ns, pieces: Vec::new(), len: 0, is_cut: false }
    }

    fn add(&mut self, batch: &Batch) -> Result<(), FlightError> {
        let mut packed = Vec::new();
        // How long readings took says nothing elsewhere.
        pack(&batch.without_foreign(is_local), &mut packed)?;
        // A batch of a ring or a file is far smaller.
        let len = u32::try_from(packed.len()).unwrap_or(u32::MAX);
        let bytes = Bytes::from([len.to_le_bytes().as_slice(), &packed].concat());
        let first_ns = batch.timestamps().iter().min().copied().unwrap_or_default();
        let last_ns = batch.timestamps().iter().max().copied().unwrap_or_default();
        let mut gpus = BTreeSet::new();
        if let Ok(keys) = RowKeys::of(batch.records(), batch.table()) {
            // Some keys may be those of no row.
            let used: BTreeSet<u32> = keys.ids.iter().copied().collect();
            gpus.extend(used.into_iter().filter_map(|id| keys.keys.get(id as usize).cloned()));
        }
        self.push(GatheredPiece { first_ns, last_ns, gpus, bytes });
        Ok(())
    }

    fn push(&mut self, piece: GatheredPiece) {
        self.len = self.len.saturating_add(piece.bytes.len() as u64);
        self.pieces.push(piece);
        if self.len > 2 * LEN_MAX {
            // Those that do not fit now are too far whatever comes.
            self.leave(LEN_MAX);
        }
    }

    /// Leaves the pieces that are nearest to the moment, as many as fit: so many bytes for each GPU that they are of.
    fn leave(&mut self, gpu_len_max: u64) {
        let at_ns = self.at_ns;
        self.pieces.sort_by_key(|piece| piece.distance(at_ns));
        let (mut gpus, mut len, mut count) = (BTreeSet::new(), 0_u64, 0);
        for piece in &self.pieces {
            gpus.extend(piece.gpus.iter().cloned());
            let with_it = len.saturating_add(piece.bytes.len() as u64);
            if with_it > len_max(gpu_len_max, gpus.len()) {
                break;
            }
            (len, count) = (with_it, count + 1);
        }
        self.is_cut |= count < self.pieces.len();
        self.pieces.truncate(count);
        self.len = len;
    }

    /// What is sent of them.
    fn cut(mut self, gpu_len_max: u64) -> WindowAnswer {
        self.leave(gpu_len_max);
        self.pieces.sort_by_key(|piece| piece.first_ns);
        let pieces = self.pieces.into_iter().map(|piece| piece.bytes).collect();
        WindowAnswer { pieces, is_cut: self.is_cut }
    }
}

impl GatheredPiece {
    fn distance(&self, at_ns: i64) -> i64 {
        self.first_ns.saturating_sub(at_ns).max(at_ns.saturating_sub(self.last_ns)).max(0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    use gpuvitals_core::batch::Value;
    use gpuvitals_core::clock::now_ns;
    use gpuvitals_core::time::SECOND_NS;
    use gpuvitals_core::wire::unpack;
    use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, MetricId, Origin};
    use gpuvitals_settings::Section as _;

    use super::*;
    use gpuvitals_rig::waiting::until;

    use crate::doubles::PIECES;
    use crate::{FlightPlace, FlightRecorder, FlightSettings, FlightTerms};

    /// A row of each of two GPUs.
    fn rows(at_ns: i64) -> Batch {
        rows_of(&["GPU-1", "GPU-2"], at_ns)
    }

    fn rows_of(gpus: &[&str], at_ns: i64) -> Batch {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        for gpu in gpus {
            let id = builder.intern(&Identity::default().with(IdentityColumn::Uuid, gpu).unwrap());
            let row = builder.row_at(at_ns, at_ns, id);
            builder.set(row, MetricId::of("power_w"), Value::Float32(300.0)).unwrap();
        }
        builder.finish(Origin::default(), 1).unwrap()
    }

    /// The times of the rows in pieces.
    fn times(answer: &WindowAnswer) -> Vec<i64> {
        let of_piece = |piece: &Bytes| {
            let (len, packed) = piece.split_first_chunk::<4>().unwrap();
            assert_eq!(u32::from_le_bytes(*len) as usize, packed.len());
            unpack(packed).unwrap().timestamps().to_vec()
        };
        let mut times: Vec<i64> = answer.pieces.iter().flat_map(of_piece).collect();
        times.sort_unstable();
        times
    }

    #[test]
    fn a_node_answers_with_what_its_ring_has_and_keeps_the_rest_once() {
        let folder = tempfile::tempdir().unwrap();
        let (begun, told) = sync_channel(8);
        let start = || {
            let terms = FlightTerms::new(&FlightSettings::of(&[]).unwrap(), "n1", PIECES);
            let terms = FlightTerms { begun: Some(begun.clone()), ..terms };
            FlightRecorder::start(FlightPlace::take(folder.path()).unwrap(), terms).unwrap()
        };
        let at_ns = now_ns() - 100 * SECOND_NS;
        let recorder = start();
        for second in -90..90 {
            recorder.take(&rows(at_ns + second * SECOND_NS));
        }
        recorder.asked("20261130T031459Z-xid", at_ns);
        recorder.asked("20261130T031459Z-xid", at_ns);
        let listed = || FlightFolder::of(folder.path()).list().unwrap();
        until("the incident", listed, |all| all.iter().any(|it| matches!(it.state, IncidentState::Whole(_))));
        recorder.finish(Duration::from_mins(1));
        let asked = FlightSpan { from_ns: at_ns - 60 * SECOND_NS, to_ns: at_ns + 30 * SECOND_NS };
        let answer = window(folder.path(), asked, at_ns).unwrap();
        let wanted: Vec<i64> = (-60..=30).flat_map(|second| [at_ns + second * SECOND_NS; 2]).collect();
        assert_eq!((times(&answer), answer.is_cut), (wanted, false));

        // A gateway that has lost the answer asks again.
        let recorder = start();
        recorder.asked("20261130T031459Z-xid", at_ns);
        recorder.finish(Duration::from_mins(1));
        assert_eq!(listed().len(), 1);
        let told: Vec<FlightTrigger> = told.try_iter().map(|(_, trigger)| trigger).collect();
        let [begun] = &told[..] else { panic!("{told:?}") };
        assert_eq!((begun.kind.as_str(), begun.rule.as_deref()), ("job", Some("20261130T031459Z-xid")));
        let elsewhere = FlightTrigger { kind: "xid".to_owned(), ..begun.clone() };
        let span = FlightSpan { from_ns: at_ns - 80 * SECOND_NS, to_ns: at_ns + 600 * SECOND_NS };
        let kept = |id: &str, begun: &FlightTrigger| recorder.rest(id, begun, span).unwrap();
        let whole = kept("20261130T031459Z-xid", &elsewhere).unwrap();
        // As far as the settings say: 60 s after it.
        assert_eq!(times(&whole).len(), 2 * (-80..=60).count());
        assert_eq!(kept("20261130T031459Z-lost", &elsewhere), None);
        assert!(kept("20261130T031459Z-lost", begun).is_some(), "its own");
    }

    #[test]
    fn what_happens_here_while_a_gateway_asks_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let (begun, told) = sync_channel(8);
        let terms = FlightTerms::new(&FlightSettings::of(&[]).unwrap(), "n1", PIECES);
        let terms = FlightTerms { begun: Some(begun), ..terms };
        let recorder = FlightRecorder::start(FlightPlace::take(folder.path()).unwrap(), terms).unwrap();
        recorder.asked("20261130T031459Z-xid", now_ns());
        recorder.signal();
        recorder.signal();
        recorder.finish(Duration::from_mins(1));
        let told: Vec<(String, FlightTrigger)> = told.try_iter().collect();
        let [(of_job, job), (of_own, own)] = &told[..] else { panic!("{told:?}") };
        assert_eq!((of_job, job.kind.as_str(), own.kind.as_str()), (of_own, "job", "signal"));
    }

    #[test]
    fn rows_far_from_the_trigger_are_left_out_first() {
        let mut gathered = Gathered::around(4 * SECOND_NS);
        for second in [1, 2, 3, 4, 5] {
            gathered.add(&rows(second * SECOND_NS)).unwrap();
        }
        let len = gathered.pieces[0].bytes.len() as u64;
        let answer = gathered.cut(len + 3 * len / 4);
        assert!(answer.is_cut);
        assert_eq!(times(&answer), [3, 3, 4, 4, 5, 5].map(|second| second * SECOND_NS));
    }

    #[test]
    fn a_gpu_that_is_left_out_gives_the_others_no_room() {
        let mut gathered = Gathered::around(SECOND_NS);
        for second in [1, 2, 3] {
            gathered.add(&rows(second * SECOND_NS)).unwrap();
        }
        let len = gathered.pieces[0].bytes.len() as u64;
        gathered.add(&rows_of(&["GPU-3"], 60 * SECOND_NS)).unwrap();
        // Room for two pieces and a half; for three and more, if three GPUs counted.
        let answer = gathered.cut(len + len / 4);
        assert!(answer.is_cut);
        assert_eq!(times(&answer), [1, 1, 2, 2].map(|second| second * SECOND_NS));
    }

    #[test]
    fn what_is_gathered_never_takes_much_more_memory_than_what_is_sent() {
        let bytes = Bytes::from(vec![0; 32 << 20]);
        let mut gathered = Gathered::around(9);
        for at_ns in 0..10 {
            let gpus = BTreeSet::new();
            gathered.push(GatheredPiece { first_ns: at_ns, last_ns: at_ns, gpus, bytes: bytes.clone() });
            assert!(gathered.pieces.len() <= 4, "{at_ns}");
        }
        assert!(gathered.pieces.iter().any(|piece| piece.first_ns == 9));
        assert_eq!(gathered.cut(LEN_MAX).pieces.len(), 2);
    }
}
