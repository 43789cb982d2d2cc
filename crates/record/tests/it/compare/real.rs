//! Minutes of a real server: an MI300X under vLLM, a row in 5 s, whose load comes and goes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use gpuvitals_core::batch::Value;
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table};
use gpuvitals_record::{ComparedRun, RecordError, RunFacts, RunSource};

const POWER: MetricId = MetricId::of("power_w");
/// Fewest rows of a whole minute.
const ROWS_MIN: usize = 10;

/// Seconds since 1970 and watts of each whole minute.
pub(crate) fn minutes() -> Vec<Vec<(i64, f64)>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/real/mi300x/gpu_power.csv");
    let mut minutes: BTreeMap<i64, Vec<(i64, f64)>> = BTreeMap::new();
    for line in std::fs::read_to_string(path).unwrap().lines().skip(1) {
        // A line may be cut.
        let fields: Vec<&str> = line.split(',').collect();
        let [second, _, watts, ..] = fields[..] else { continue };
        let (Ok(second), Ok(watts)) = (second.parse::<i64>(), watts.parse()) else { continue };
        minutes.entry(second / 60).or_default().push((second, watts));
    }
    minutes.into_values().filter(|rows| rows.len() >= ROWS_MIN).collect()
}

/// A minute as a run of its own.
pub(crate) fn run(minute: &[(i64, f64)]) -> ComparedRun {
    let identity = Identity::default()
        .with(IdentityColumn::Node, "mi300x")
        .and_then(|identity| identity.with(IdentityColumn::Uuid, "card0"))
        .unwrap();
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = builder.intern(&identity);
    for (second, watts) in minute {
        let row = builder.row(second * SECOND_NS, id);
        builder.set(row, POWER, Value::Float(*watts)).unwrap();
    }
    let batch = builder.finish(Origin::default(), 0).unwrap();
    let source = RunSource {
        name: "mi300x".to_owned(),
        facts: RunFacts::default(),
        interval: Duration::from_secs(5),
        system_interval: Duration::from_secs(5),
        marks: Vec::new(),
    };
    source.run(|| Ok(std::iter::once(Ok::<_, RecordError>(batch.clone())))).unwrap()
}
