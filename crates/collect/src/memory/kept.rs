//! The latest state and the newest rows of all GPUs, within their bounds.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpuvitals_core::batch::RowKeys;
use gpuvitals_core::history::{ExtraValue, Fleet, LiveFleet, Part, RowsQuery};
use gpuvitals_core::{Batch, BatchBuilder, Origin, Table, ValueError, clock};

use super::rows::{Columns, GpuRows, Row};
use crate::CollectorSettings;

/// What is kept, and how much of it at most.
#[derive(Debug)]
pub(super) struct KeptGpus {
    live: LiveFleet,
    shown: Arc<Fleet>,
    version: u64,
    gpus: HashMap<Arc<str>, GpuRows>,
    rows_max: usize,
    bytes_max: usize,
}

/// A row with its time and the key of its GPU.
pub(super) type FoundRow = (i64, Arc<str>, Arc<Row>);

/// How much is kept.
pub(super) struct KeptCounts {
    pub(super) gpus: usize,
    pub(super) rows: usize,
    /// Of the rows and their identities.
    pub(super) bytes: usize,
    /// GPUs that left because there were too many.
    pub(super) forgotten: u64,
}

impl KeptGpus {
    pub(super) fn new(settings: &CollectorSettings) -> Self {
        Self {
            live: LiveFleet::new(settings.fleet_bounds()),
            shown: Arc::default(),
            version: 0,
            gpus: HashMap::new(),
            rows_max: settings.max_entries,
            bytes_max: settings.cache_bytes.as_usize(),
        }
    }

    /// Takes rows. Returns the new version.
    pub(super) fn take(&mut self, batches: &[Batch]) -> u64 {
        for batch in batches {
            self.take_one(batch);
        }
        self.version += 1;
        self.version
    }

    fn take_one(&mut self, batch: &Batch) {
        if batch.table() != Table::GpuEvents {
            return;
        }
        // A sink takes no row without a key.
        let Ok(keys) = RowKeys::of(batch.records(), Table::GpuEvents) else { return };
        let forgotten_before = self.live.forgotten();
        self.live.arrive(batch, &keys, clock::now_ns());
        let columns = Columns::of(batch);
        let gpus_before = self.gpus.len();
        for (row, (&time_ns, &id)) in batch.timestamps().iter().zip(&keys.ids).enumerate() {
            // One that the fleet does not hold has only rows that are ahead of the clock.
            let Some(key) = keys.keys.get(id as usize).filter(|key| self.live.holds(key)) else { continue };
            let gpu = self.gpus.entry(Arc::clone(key)).or_default();
            gpu.add(time_ns, columns.row(batch, row));
            gpu.trim(self.rows_max, usize::MAX);
        }
        if self.live.forgotten() > forgotten_before {
            self.gpus.retain(|key, _| self.live.holds(key));
        }
        let share = self.bytes_max / self.gpus.len().max(1);
        if self.gpus.len() > gpus_before {
            self.gpus.values_mut().for_each(|gpu| gpu.trim(self.rows_max, share));
        } else {
            for key in &keys.keys {
                self.gpus.get_mut(key).into_iter().for_each(|gpu| gpu.trim(self.rows_max, share));
            }
        }
    }

    /// The present fleet; the version is that of the history.
    pub(super) fn fleet(&mut self, version: &AtomicU64) -> Arc<Fleet> {
        if self.live.advance(clock::now_ns()) {
            self.version += 1;
            version.store(self.version, Ordering::Release);
        }
        if self.shown.version != self.version {
            self.live.set_version(self.version);
            self.shown = Arc::new(self.live.snapshot());
        }
        Arc::clone(&self.shown)
    }

    /// The rows among which the page is, and how many rows there are in all.
    pub(super) fn find(&self, query: &RowsQuery) -> (Vec<FoundRow>, usize) {
        let all = query.gpus.is_empty().then_some(&self.gpus).into_iter().flatten();
        let named = query.gpus.iter().filter_map(|key| self.gpus.get_key_value(key));
        let (mut found, mut total) = (Vec::new(), 0);
        let most = query.offset.saturating_add(query.limit);
        let is_selected = |row: &Row| query.selector.selects(|column| row.identity.get(column));
        for (key, gpu) in all.chain(named) {
            let rows = || gpu.rows.iter().filter(|(_, row)| is_selected(row));
            total += if query.selector.is_empty() { gpu.rows.len() } else { rows().count() };
            let behind = rows().filter(|(time_ns, _)| is_behind(**time_ns, key, query));
            let behind = behind.map(|(time_ns, row)| (*time_ns, Arc::clone(key), Arc::clone(row)));
            if query.newest_first {
                found.extend(behind.rev().take(most));
            } else {
                found.extend(behind.take(most));
            }
        }
        (found, total)
    }

    pub(super) fn counts(&self) -> KeptCounts {
        KeptCounts {
            gpus: self.gpus.len(),
            rows: self.gpus.values().map(|gpu| gpu.rows.len()).sum(),
            bytes: self.gpus.values().map(|gpu| gpu.bytes).sum(),
            forgotten: self.live.forgotten(),
        }
    }
}

/// Whether a row is behind the place after which the page begins.
fn is_behind(time_ns: i64, key: &Arc<str>, query: &RowsQuery) -> bool {
    query.after.as_ref().is_none_or(|after| {
        let by_time = time_ns.cmp(&after.timestamp_ns);
        let by_time = if query.newest_first { by_time.reverse() } else { by_time };
        by_time.then_with(|| key.cmp(&after.key)).is_gt()
    })
}

/// The rows of a page, in order, as a batch.
pub(super) fn page(mut found: Vec<FoundRow>, query: &RowsQuery) -> Part<Option<Batch>> {
    found.sort_unstable_by(|(a_ns, a, _), (b_ns, b, _)| {
        let by_time = a_ns.cmp(b_ns);
        if query.newest_first { by_time.reverse() } else { by_time }.then_with(|| a.cmp(b))
    });
    batch(found.iter().skip(query.offset).take(query.limit), query.metrics.as_deref())
}

/// Rows as a batch, with those columns or all.
fn batch<'a>(rows: impl Iterator<Item = &'a FoundRow>, wanted: Option<&[String]>) -> Part<Option<Batch>> {
    let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted.iter().any(|column| column == name));
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let mut refused: Option<ValueError> = None;
    let mut note = |outcome: Result<(), ValueError>| refused = refused.take().or(outcome.err());
    for (time_ns, _, row) in rows {
        let identity = builder.intern(&row.identity);
        let id = builder.row(*time_ns, identity);
        for (metric, value) in row.values.iter().filter(|(metric, _)| is_wanted(metric.metric().column)) {
            note(builder.set(id, *metric, *value));
        }
        for (name, value) in row.extras.iter().filter(|(name, _)| is_wanted(name)) {
            match value {
                ExtraValue::Text(text) => note(builder.set_extra_text(id, name, text)),
                ExtraValue::Number(number) => note(builder.set_extra(id, name, *number)),
            }
        }
    }
    let missing = refused.map(|error| format!("not all values of these rows: {error}"));
    Part { answer: builder.finish(Origin::default(), 0), missing: missing.into_iter().collect() }
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::batch::Value;
    use gpuvitals_core::history::FleetBounds;
    use gpuvitals_core::time::SECOND_NS;
    use gpuvitals_core::{Identity, IdentityColumn, MetricId};
    use gpuvitals_settings::Section;

    use super::*;

    /// A row of one GPU, with that many values of unknown columns.
    fn row(time_ns: i64, job: &str, unknown: usize) -> Batch {
        let identity = Identity::default().with(IdentityColumn::Uuid, "GPU-0");
        let identity = identity.and_then(|identity| identity.with(IdentityColumn::Job, job)).unwrap();
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let identity = builder.intern(&identity);
        let row = builder.row(time_ns, identity);
        builder.set(row, MetricId::of("power_w"), Value::Float(1.5)).unwrap();
        for column in 0..unknown {
            builder.set_extra_text(row, &format!("{}{column}", "name_".repeat(10)), "text").unwrap();
        }
        builder.finish(Origin::default(), 0).unwrap()
    }

    /// Bytes that the rows of a GPU hold: each piece once, however many rows share it.
    fn held(gpu: &GpuRows) -> usize {
        let mut pieces: HashMap<*const (), usize> = HashMap::new();
        for row in gpu.rows.values() {
            pieces.insert(Arc::as_ptr(row).cast(), size_of::<Row>());
            pieces.insert(row.values.as_ptr().cast(), row.values.capacity() * size_of::<(MetricId, Value)>());
            pieces.insert(
                row.extras.as_ptr().cast(),
                row.extras.capacity() * size_of::<(Arc<str>, ExtraValue)>(),
            );
            pieces.insert(Arc::as_ptr(&row.identity).cast(), size_of::<Identity>());
            let texts = IdentityColumn::ALL.iter().filter_map(|column| row.identity.shared(*column));
            let extras = row.extras.iter().flat_map(|(name, value)| match value {
                ExtraValue::Number(_) => [Some(name), None],
                ExtraValue::Text(text) => [Some(name), Some(text)],
            });
            for text in texts.chain(extras.flatten()) {
                pieces.insert(Arc::as_ptr(text).cast(), text.len());
            }
        }
        pieces.values().sum()
    }

    #[test]
    fn a_row_of_a_clock_ahead_counts_when_its_time_has_come_although_nothing_else_comes() {
        let mut kept = KeptGpus::new(&CollectorSettings::of(&[]).unwrap());
        kept.live = LiveFleet::new(FleetBounds { ahead_max_ns: 0, ..FleetBounds::default() });
        let now_ns = clock::now_ns();
        let soon_ns = now_ns + SECOND_NS;
        let version = AtomicU64::new(kept.take(&[row(now_ns, "a", 0), row(soon_ns, "b", 0)]));
        let before = kept.fleet(&version).version;
        while kept.fleet(&version).gpus[0].last_seen_ns < soon_ns {
            assert!(clock::now_ns() < soon_ns + 60 * SECOND_NS, "it never counts");
        }
        assert!(clock::now_ns() >= soon_ns, "it counts before its time");
        assert!(version.into_inner() > before, "whoever waits for another version looks again");
    }

    #[test]
    fn rows_hold_no_more_than_their_room_whatever_their_identities_and_names_are() {
        const ROOM: usize = 64 << 10;
        let settings = CollectorSettings::of(&[("collector.cache_bytes", "64KiB".into())]).unwrap();
        let check = |case: &str, rows_min: usize, batch: &dyn Fn(i64) -> Batch| {
            let mut kept = KeptGpus::new(&settings);
            for time_ns in 0..900 {
                // Now and then a row of a time that is there.
                kept.take(&[batch(time_ns), batch(time_ns / 7 * 7)]);
            }
            let gpu = kept.gpus.get("GPU-0").unwrap();
            let (rows, bytes, held) = (gpu.rows.len(), gpu.bytes, held(gpu));
            assert!(held <= bytes && bytes <= ROOM && rows >= rows_min, "{case}: {rows}, {bytes}, {held}");
            assert!(gpu.identities.len() <= rows, "{case}: identities of rows that are gone");
            assert_eq!(gpu.identities.values().sum::<usize>(), rows, "{case}");
        };
        check("the same", 340, &|time_ns| row(time_ns, "job", 0));
        // Two sources of a GPU, say.
        check("in turns", 340, &|time_ns| row(time_ns, ["job-a", "job-b"][usize::from(time_ns % 2 == 0)], 0));
        check("always new", 80, &|time_ns| row(time_ns, &format!("{time_ns:0>250}"), 0));
        check("unknown columns", 45, &|time_ns| row(time_ns, "job", 8));
    }
}
