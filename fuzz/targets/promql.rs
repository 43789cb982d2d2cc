//! Any text as PromQL over a history of three GPUs: at an instant, by steps, and as a selector of series.
#![no_main]

use std::sync::{Arc, LazyLock};

use gpuvitals_core::batch::{RowKeys, Value};
use gpuvitals_core::history::{
    Answered, BucketQuery, Buckets, Cell, Change, Changes, Fleet, GroupColumn, History, HistoryStats,
    LiveFleet, Part, Rows, RowsQuery, Track,
};
use gpuvitals_core::ports::Answer;
use gpuvitals_core::{BatchBuilder, Health, Identity, IdentityColumn, MetricId, Origin, Table};
use gpuvitals_promql::{Grid, PromLimits, WantedSeries, query, series};
use libfuzzer_sys::fuzz_target;

const SECOND_NS: i64 = 1_000_000_000;
const NOW_NS: i64 = 1_795_532_400 * SECOND_NS;

/// A history whose values are the same at all times.
#[derive(Debug)]
struct Even(Arc<Fleet>);

impl Even {
    fn new() -> Self {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        for gpu in 0..3 {
            let mut identity = Identity::default();
            for (column, text) in [
                (IdentityColumn::Uuid, format!("GPU-{gpu}")),
                (IdentityColumn::Node, "n1".to_owned()),
                (IdentityColumn::Vendor, if gpu < 2 { "nvidia" } else { "amd" }.to_owned()),
            ] {
                identity.set(column, &text).unwrap();
            }
            identity.index = Some(gpu);
            let identity = builder.intern(&identity);
            let row = builder.row(NOW_NS, identity);
            builder.set(row, MetricId::of("power_w"), Value::Float32(100.5)).unwrap();
        }
        let batch = builder.finish(Origin::default(), 0).unwrap();
        let mut fleet = LiveFleet::default();
        fleet.apply(&batch, &RowKeys::of(batch.records(), batch.table()).unwrap());
        Self(Arc::new(fleet.snapshot()))
    }

    fn figures(&self, query: &BucketQuery) -> Option<Buckets> {
        let steps = query.steps().ok()?;
        let mut buckets = Buckets::new(steps, &query.metrics, &query.aggregates);
        let others = query.group_by.iter().filter(|column| **column != GroupColumn::Gpu).count();
        for gpu in &self.0.gpus {
            if !query.gpus.is_empty() && !query.gpus.contains(&gpu.key) {
                continue;
            }
            let key = Some(Arc::clone(&gpu.key));
            let group = buckets.group(&std::iter::once(key).chain((0..others).map(|_| None)).collect());
            let lane = buckets.has_tracks().then(|| buckets.lane(group, &gpu.key));
            buckets.check(query.aggregates.len()).ok()?;
            for step in 0..steps.count {
                let time_ns = steps.time(step);
                let (place, track) = (buckets.place(group, step), lane.map(|lane| buckets.place(lane, step)));
                for measured in buckets.metrics_mut() {
                    let cell = Cell { count: 1, sum: 2.5, min: 2.5, max: 2.5, last_ns: time_ns, last: 2.5 };
                    measured.cells[place] = cell;
                    if let Some(track) = track {
                        measured.tracks[track] = Track::of(time_ns, 2.5);
                    }
                }
            }
        }
        Some(buckets)
    }
}

impl History for Even {
    fn version(&self) -> u64 {
        1
    }

    fn fleet(&self) -> Answered<'_, Arc<Fleet>> {
        Box::pin(async { Ok(Part::whole(Arc::clone(&self.0))) })
    }

    fn rows(&self, _query: RowsQuery) -> Answered<'_, Rows> {
        Box::pin(async { Ok(Part::whole(Rows::default())) })
    }

    fn buckets(&self, query: BucketQuery) -> Answered<'_, Buckets> {
        Box::pin(async move {
            let found = self.figures(&query);
            let none = || query.steps().map(|steps| Buckets::new(steps, &query.metrics, &query.aggregates));
            Ok(Part::whole(found.map_or_else(none, Ok)?))
        })
    }

    fn changes(&self) -> Box<dyn Changes> {
        Box::new(Never)
    }

    fn health(&self) -> Health {
        unreachable!("nobody asks")
    }

    fn stats(&self) -> HistoryStats {
        HistoryStats::default()
    }
}

struct Never;

impl Changes for Never {
    fn next(&mut self) -> Answer<'_, Option<Change>> {
        Box::pin(async { None })
    }
}

struct World {
    runtime: tokio::runtime::Runtime,
    history: Even,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    // The parser panics on some durations, which is caught: only other panics are a find.
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let is_parser = panic.location().is_some_and(|place| {
            place.file().contains("promql-parser") || place.file().ends_with("core/src/time.rs")
        });
        if !is_parser {
            told(panic);
        }
    }));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    World { runtime, history: Even::new() }
});

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let World { runtime, history } = &*WORLD;
    let limits = PromLimits { values_max: 100_000, ..PromLimits::default() };
    let steps = Grid::between(NOW_NS - 600 * SECOND_NS, NOW_NS, 60 * SECOND_NS).unwrap();
    for grid in [Grid::at(NOW_NS), steps] {
        // An answer, or an error with words.
        if let Err(error) = runtime.block_on(query(history, text, grid, limits)) {
            assert!(!error.to_string().is_empty());
        }
    }
    let wanted = WantedSeries { selectors: vec![text.to_owned()], start_ns: 0, end_ns: NOW_NS };
    let _is_selector = runtime.block_on(series(history, &wanted));
});
