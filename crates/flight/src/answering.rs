//! What a node answers a gateway that asks for rows around a trigger of another node of its job.
//!
//! It is in pieces, as [`job_window`](crate::job_window) reads them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use gpuvitals_core::batch::RowKeys;
use gpuvitals_core::{Batch, Table};
use gpuvitals_log::read_beside;
use gpuvitals_record::{Data, pack};

use crate::error::FlightError;
use crate::folder::{FlightFolder, IncidentState};
use crate::incident::FlightSpan;
use crate::job_incident::WindowPart;
use crate::job_window::len_max;
use crate::place;
use crate::ring;
use crate::trigger::FlightTrigger;
use crate::writing::undisturbed;

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
        let mut gathered = Gathered::default();
        for batch in ring::rows(ring, Table::GpuEvents, (from_ns, to_ns)) {
            gathered.add(&batch?)?;
        }
        Ok(gathered)
    })?;
    Ok(gathered.cut(at_ns, |gpus| len_max(WindowPart::Window, gpus)))
}

/// The rows within some time of the incident that a node has kept for this one of its job, or that began it by this trigger; none: it has none yet,
/// or none any more.
///
/// # Errors
/// If it cannot be read.
pub fn rest(
    directory: &Path,
    id: &str,
    begun: &FlightTrigger,
    asked: FlightSpan,
) -> Result<Option<WindowAnswer>, FlightError> {
    let folder = FlightFolder::of(directory);
    let is_for = |trigger: &FlightTrigger| trigger.is_of_job() && trigger.rule.as_deref() == Some(id);
    let kept = folder.list()?.into_iter().find_map(|entry| match entry.state {
        IncidentState::Whole(it) => {
            let is_it = it.trigger == *begun || is_for(&it.trigger) || it.others.iter().any(is_for);
            is_it.then_some(it)
        }
        _ => None,
    });
    let Some(incident) = kept else { return Ok(None) };
    let mut gathered = Gathered::default();
    for batch in Data::open(&folder.path(&incident.id)?)? {
        let batch = batch?;
        let is_asked =
            |at_ns: &i64| batch.table() == Table::GpuEvents && (asked.from_ns..=asked.to_ns).contains(at_ns);
        let keep: Vec<bool> = batch.timestamps().iter().map(is_asked).collect();
        if let Some(batch) = batch.filter(&keep) {
            gathered.add(&batch)?;
        }
    }
    Ok(Some(gathered.cut(incident.trigger.at_ns, |gpus| len_max(WindowPart::Rest, gpus))))
}

/// Pieces as they are read.
#[derive(Debug, Default)]
struct Gathered {
    pieces: Vec<GatheredPiece>,
}

#[derive(Debug)]
struct GatheredPiece {
    first_ns: i64,
    last_ns: i64,
    bytes: Bytes,
    /// The GPUs that it has rows of.
    gpus: Vec<Arc<str>>,
}

impl Gathered {
    fn add(&mut self, batch: &Batch) -> Result<(), FlightError> {
        let mut packed = Vec::new();
        pack(batch, &mut packed)?;
        // A batch of a ring or a file is far smaller.
        let len = u32::try_from(packed.len()).unwrap_or(u32::MAX);
        let bytes = Bytes::from([len.to_le_bytes().as_slice(), &packed].concat());
        let first_ns = batch.timestamps().iter().min().copied().unwrap_or_default();
        let last_ns = batch.timestamps().iter().max().copied().unwrap_or_default();
        let gpus = RowKeys::of(batch.records(), batch.table()).map_or_else(
            |_| Vec::new(),
            |keys| {
                // Some keys may be those of no row.
                let used: BTreeSet<u32> = keys.ids.iter().copied().collect();
                used.into_iter().filter_map(|id| keys.keys.get(id as usize).cloned()).collect()
            },
        );
        self.pieces.push(GatheredPiece { first_ns, last_ns, bytes, gpus });
        Ok(())
    }

    /// The pieces that are nearest to a moment, as many as fit: of so many GPUs so many bytes. Only the GPUs of what is kept count.
    fn cut(mut self, at_ns: i64, len_max: impl Fn(usize) -> u64) -> WindowAnswer {
        self.pieces.sort_by_key(|piece| piece.distance(at_ns));
        let mut gpus: BTreeSet<&Arc<str>> = BTreeSet::new();
        let (mut len, mut fitting) = (0_u64, 0);
        for (piece, count) in self.pieces.iter().zip(1..) {
            len = len.saturating_add(piece.bytes.len() as u64);
            gpus.extend(&piece.gpus);
            if len <= len_max(gpus.len()) {
                fitting = count;
            }
        }
        let is_cut = fitting < self.pieces.len();
        self.pieces.truncate(fitting);
        self.pieces.sort_by_key(|piece| piece.first_ns);
        WindowAnswer { pieces: self.pieces.into_iter().map(|piece| piece.bytes).collect(), is_cut }
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
    use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, MetricId, Origin};
    use gpuvitals_record::unpack;
    use gpuvitals_settings::Section as _;

    use super::*;
    use crate::{FlightPlace, FlightRecorder, FlightSettings, FlightTerms};

    /// A row of each of two GPUs.
    fn rows(at_ns: i64) -> Batch {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        for gpu in ["GPU-1", "GPU-2"] {
            let id = builder.intern(&Identity::default().with(IdentityColumn::Uuid, gpu).unwrap());
            let row = builder.row(at_ns, id);
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
            let terms = FlightTerms::new(&FlightSettings::of(&[]).unwrap(), "n1");
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
        recorder.finish(Duration::from_mins(1));
        let asked = FlightSpan { from_ns: at_ns - 60 * SECOND_NS, to_ns: at_ns + 30 * SECOND_NS };
        let answer = window(folder.path(), asked, at_ns).unwrap();
        let wanted: Vec<i64> = (-60..=30).flat_map(|second| [at_ns + second * SECOND_NS; 2]).collect();
        assert_eq!((times(&answer), answer.is_cut), (wanted, false));

        // A gateway that has lost the answer asks again.
        let recorder = start();
        recorder.asked("20261130T031459Z-xid", at_ns);
        recorder.finish(Duration::from_mins(1));
        let told: Vec<FlightTrigger> = told.try_iter().map(|(_, trigger)| trigger).collect();
        let [begun] = &told[..] else { panic!("{told:?}") };
        assert_eq!((begun.kind.as_str(), begun.rule.as_deref()), ("job", Some("20261130T031459Z-xid")));
        let elsewhere = FlightTrigger { kind: "xid".to_owned(), ..begun.clone() };
        let span = FlightSpan { from_ns: at_ns - 80 * SECOND_NS, to_ns: at_ns + 600 * SECOND_NS };
        let kept = |id: &str, begun: &FlightTrigger| rest(folder.path(), id, begun, span).unwrap();
        let whole = kept("20261130T031459Z-xid", &elsewhere).unwrap();
        // As far as the settings say: 60 s after it.
        assert_eq!(times(&whole).len(), 2 * (-80..=60).count());
        assert_eq!(kept("20261130T031459Z-lost", &elsewhere), None);
        assert!(kept("20261130T031459Z-lost", begun).is_some(), "its own");
    }

    #[test]
    fn rows_far_from_the_trigger_are_left_out_first() {
        let mut gathered = Gathered::default();
        for second in [1, 2, 3, 4, 5] {
            gathered.add(&rows(second * SECOND_NS)).unwrap();
        }
        let len = gathered.pieces[0].bytes.len() as u64;
        let answer = gathered.cut(4 * SECOND_NS, |_| 3 * len + len / 2);
        assert!(answer.is_cut);
        assert_eq!(times(&answer), [3, 3, 4, 4, 5, 5].map(|second| second * SECOND_NS));
    }

    #[test]
    fn a_gpu_of_which_all_rows_are_left_out_gives_the_others_no_room() {
        let of_gpu = |at_ns: i64, gpu: usize| {
            let rows = rows(at_ns);
            let keep: Vec<bool> = (0..rows.rows()).map(|row| row == gpu).collect();
            rows.filter(&keep).unwrap()
        };
        let gathered = |seconds: i64, far: Option<i64>| {
            let mut gathered = Gathered::default();
            let near = (1..=seconds).map(|second| (second, 0));
            for (second, gpu) in near.chain(far.map(|second| (second, 1))) {
                gathered.add(&of_gpu(second * SECOND_NS, gpu)).unwrap();
            }
            gathered
        };
        // A GPU gives room for three pieces.
        let len = gathered(1, None).pieces[0].bytes.len() as u64;
        let cut = |seconds: i64, far: i64| {
            let gathered = gathered(seconds, Some(far));
            let answer = gathered.cut(SECOND_NS, |gpus| gpus as u64 * (3 * len + len / 2));
            (times(&answer).into_iter().map(|at_ns| at_ns / SECOND_NS).collect::<Vec<_>>(), answer.is_cut)
        };
        assert_eq!(cut(5, 90), (vec![1, 2, 3, 4, 5, 90], false), "all of it has room");
        assert_eq!(cut(9, 90), (vec![1, 2, 3], true), "a gateway would refuse more of one GPU");
    }
}
