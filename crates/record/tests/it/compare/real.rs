//! Parts of real loads: minutes of a server, an MI300X under vLLM whose load comes and goes; periods of a load that alternates on a card.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuvitals_core::batch::Value;
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table};
use gpuvitals_record::{ComparedRun, RecordError, RunFacts, RunSource};

const POWER: MetricId = MetricId::of("power_w");
const MS: i64 = 1_000_000;
/// Fewest rows of a whole part.
const ROWS_MIN: usize = 6;
/// The time in which the load alternates, ms.
const ALTERNATES_MS: std::ops::Range<i64> = 2_000..9_000;

/// Parts of a load that are alike.
pub(crate) struct RealLoad {
    /// Nanoseconds and watts of the rows of each.
    pub(crate) parts: Vec<Vec<(i64, f64)>>,
    /// Time between two rows.
    interval: Duration,
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/real").join(name)
}

impl RealLoad {
    /// The whole minutes of the server, a row in 5 s.
    pub(crate) fn minutes() -> Self {
        let text = std::fs::read_to_string(file("mi300x/gpu_power.csv")).unwrap();
        let rows = text.lines().skip(1).filter_map(|line| {
            // A line may be cut.
            let fields: Vec<&str> = line.split(',').collect();
            let [second, _, watts, ..] = fields[..] else { return None };
            Some((second.parse::<i64>().ok()? * SECOND_NS, watts.parse().ok()?))
        });
        Self::of(rows, 60 * SECOND_NS, Duration::from_secs(5))
    }

    /// The periods of a load that alternates on a card, a row in some 10 ms. One is as long as a reading of the sensor.
    pub(crate) fn periods(card: &str, period_ms: i64) -> Self {
        let text = std::fs::read_to_string(file(&format!("meter/{card}.readings.csv"))).unwrap();
        let rows = text.lines().skip(1).map(|line| {
            let mut fields = line.split(',');
            (fields.next().unwrap().parse::<i64>().unwrap(), fields.next().unwrap().parse::<f64>().unwrap())
        });
        let rows = rows.filter(|(ms, _)| ALTERNATES_MS.contains(ms)).map(|(ms, watts)| (ms * MS, watts));
        Self::of(rows, period_ms * MS, Duration::from_millis(10))
    }

    fn of(rows: impl Iterator<Item = (i64, f64)>, part_ns: i64, interval: Duration) -> Self {
        let mut parts: BTreeMap<i64, Vec<(i64, f64)>> = BTreeMap::new();
        for (time_ns, watts) in rows {
            parts.entry(time_ns / part_ns).or_default().push((time_ns, watts));
        }
        Self { parts: parts.into_values().filter(|rows| rows.len() >= ROWS_MIN).collect(), interval }
    }

    /// A part as a run of its own.
    pub(crate) fn run(&self, part: &[(i64, f64)]) -> ComparedRun {
        let identity = Identity::default()
            .with(IdentityColumn::Node, "real")
            .and_then(|identity| identity.with(IdentityColumn::Uuid, "card0"))
            .unwrap();
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let id = builder.intern(&identity);
        for (time_ns, watts) in part {
            let row = builder.row(*time_ns, id);
            builder.set(row, POWER, Value::Float(*watts)).unwrap();
        }
        let batch = builder.finish(Origin::default(), 0).unwrap();
        let source = RunSource {
            name: "real".to_owned(),
            facts: RunFacts::default(),
            interval: self.interval,
            system_interval: self.interval,
            marks: Vec::new(),
        };
        source.run(|| Ok(std::iter::once(Ok::<_, RecordError>(batch.clone())))).unwrap()
    }
}
