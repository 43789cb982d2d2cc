//! The latest state of GPUs as batches, for a file or the network.
//!
//! They are ordinary rows in pieces ([`wire::push_frame`]), for each GPU one per time of any of its latest values, so that replaying
//! them gives the same fleet.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ExtraValue, GpuState, LiveFleet};
use crate::batch::{RowKeys, ValueError};
use crate::wire::FramesError;
use crate::{Batch, BatchBuilder, Origin, RowId, Table, wire};

/// GPUs per frame: with every column at a time of its own a frame stays within `wire::ROWS_MAX`.
const FRAME_GPUS: usize = 200;

/// Spells GPUs.
///
/// # Errors
/// If a batch of it exceeds the limits of the wire form.
pub fn write(gpus: &[Arc<GpuState>]) -> Result<Vec<u8>, wire::WireError> {
    let mut bytes = Vec::new();
    for gpus in gpus.chunks(FRAME_GPUS) {
        spell(gpus, &mut bytes)?;
    }
    Ok(bytes)
}

fn spell(gpus: &[Arc<GpuState>], bytes: &mut Vec<u8>) -> Result<(), wire::WireError> {
    let mut frame = Frame {
        numbers: BatchBuilder::new(Table::GpuEvents),
        texts: BatchBuilder::new(Table::GpuEvents),
        done: Vec::new(),
    };
    for gpu in gpus {
        frame.gpu(gpu);
    }
    frame.end();
    let start = bytes.len();
    for batch in &frame.done {
        let encoded = match wire::encode(batch) {
            // Foreign texts may be long; those of one GPU fit.
            Err(wire::WireError::Limit { .. }) if gpus.len() > 1 => {
                bytes.truncate(start);
                let (one, other) = gpus.split_at(gpus.len() / 2);
                spell(one, bytes)?;
                return spell(other, bytes);
            }
            encoded => encoded?,
        };
        wire::push_frame(bytes, &encoded);
    }
    Ok(())
}

/// Replays what was spelled.
///
/// # Errors
/// If it has changed since it was written; everything before the fault has been replayed.
pub fn read(bytes: &[u8], fleet: &mut LiveFleet) -> Result<(), FramesError> {
    for batch in wire::decode_frames(bytes) {
        let batch = batch?;
        if let Ok(keys) = RowKeys::of(batch.records(), batch.table()) {
            fleet.apply(&batch, &keys);
        }
    }
    Ok(())
}

/// Batches of one frame; text columns apart, because a column's name may mean numbers here and text there.
struct Frame {
    numbers: BatchBuilder,
    texts: BatchBuilder,
    done: Vec<Batch>,
}

impl Frame {
    fn gpu(&mut self, gpu: &GpuState) {
        let mut rows: BTreeMap<i64, RowId> = BTreeMap::new();
        for time in [gpu.first_seen_ns, gpu.last_seen_ns] {
            row(&mut self.numbers, gpu, time, &mut rows);
        }
        for (metric, latest) in &gpu.latest {
            let row = row(&mut self.numbers, gpu, latest.timestamp_ns, &mut rows);
            // It was in range when it came; were it not, it would be absent.
            let _taken = self.numbers.set(row, *metric, latest.value);
        }
        for (name, value, time) in &gpu.extras {
            self.extra(gpu, name, value, *time);
        }
    }

    fn extra(&mut self, gpu: &GpuState, name: &Arc<str>, value: &ExtraValue, time: i64) {
        // Rows of their own: rows with equal keys are one row.
        let mut set = || match value {
            ExtraValue::Number(number) => {
                let row = row(&mut self.numbers, gpu, time, &mut BTreeMap::new());
                self.numbers.set_extra(row, name, *number)
            }
            ExtraValue::Text(text) => {
                let row = row(&mut self.texts, gpu, time, &mut BTreeMap::new());
                self.texts.set_extra_text(row, name, text)
            }
        };
        if let Err(ValueError::TooManyExtras(_)) = set() {
            self.end();
            self.extra(gpu, name, value, time);
        }
    }

    fn end(&mut self) {
        self.done.extend(self.numbers.finish(Origin::default(), 0));
        self.done.extend(self.texts.finish(Origin::default(), 0));
    }
}

fn row(builder: &mut BatchBuilder, gpu: &GpuState, time: i64, rows: &mut BTreeMap<i64, RowId>) -> RowId {
    *rows.entry(time).or_insert_with(|| {
        let identity = builder.intern(&gpu.identity);
        builder.row(time, identity)
    })
}

#[cfg(test)]
mod tests {
    use crate::{Identity, IdentityColumn};

    use super::*;

    #[test]
    fn long_foreign_texts_do_not_keep_a_fleet_from_being_spelled() {
        let gpus: Vec<_> = (0..20)
            .map(|gpu| {
                let key = format!("GPU-{gpu}");
                let text = |column| format!("{key} {column} {}", "x".repeat(60 << 10)).into();
                Arc::new(GpuState {
                    key: Arc::from(key.as_str()),
                    identity: Identity::default().with(IdentityColumn::Uuid, &key).unwrap(),
                    first_seen_ns: 1,
                    last_seen_ns: 2,
                    latest: Vec::new(),
                    extras: (0..100)
                        .map(|column| (format!("text {column}").into(), ExtraValue::Text(text(column)), 2))
                        .collect(),
                })
            })
            .collect();
        let bytes = write(&gpus).unwrap();
        let mut read_back = LiveFleet::default();
        read(&bytes, &mut read_back).unwrap();
        let found = read_back.snapshot();
        for gpu in gpus {
            let found = found.get(&gpu.key).unwrap();
            assert_eq!(found.extras.len(), gpu.extras.len());
            assert!(gpu.extras.iter().all(|extra| found.extras.contains(extra)));
        }
    }
}
