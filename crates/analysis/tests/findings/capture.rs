//! The findings on a real capture of a fleet: one instant of 247 GPUs. docs/findings.md judges them.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use gpuvitals_analysis::course::{WATCHED, hour_query, unusual};
use gpuvitals_analysis::findings::{Recent, Situation, judge};
use gpuvitals_analysis::freshness::Freshness;
use gpuvitals_core::batch::{RowKeys, Value};
use gpuvitals_core::history::{Buckets, Cell, Fleet, GroupName, LiveFleet};
use gpuvitals_core::ports::{Poll, Source};
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table};
use gpuvitals_inputs::csv::CsvSource;
use gpuvitals_inputs::replay::ReplayConfig;

use crate::lab::{Lab, START_NS};

/// The fleet of the capture; none where it is not on this machine.
fn fleet() -> Option<(Fleet, Vec<Batch>)> {
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/dcgm/metrics.csv");
    if !capture.exists() {
        eprintln!("skipped: {} is not on this machine", capture.display());
        return None;
    }
    let mut source = CsvSource::open(capture, ReplayConfig::default(), 0).unwrap();
    let (mut live, mut rows) = (LiveFleet::default(), Vec::new());
    while let Poll::Ready(batch) = source.poll(i64::MAX).unwrap() {
        live.apply(&batch, &RowKeys::of(batch.records(), batch.table()).unwrap());
        rows.push(batch);
    }
    let fleet = live.snapshot();
    assert_eq!(fleet.gpus.len(), 247);
    Some((fleet, rows))
}

#[test]
fn the_real_capture_has_one_finding() {
    let Some((fleet, _)) = fleet() else { return };
    let now_ns = fleet.gpus.iter().map(|gpu| gpu.last_seen_ns).max().unwrap();
    let fresh = Freshness { now_ns, stale_after_ns: 90_000_000_000 };
    let (recent, lost) = (Recent::default(), HashMap::new());
    let situation = Situation { fresh, gpus: &fleet.gpus, recent: &recent, lost: &lost };
    let found: Vec<String> = judge(&situation)
        .iter()
        .map(|one| format!("{}: {}", one.finding.id(), one.finding.sentence))
        .collect();
    let missing = "gpu_missing:mtv5-dgx1-hgpu-012: the node has 7 GPUs (GPU 6 is missing), most nodes with NVIDIA H100 80GB HBM3 have 8";
    assert_eq!(found, [missing]);
}

/// The capture as the only hour that is known.
fn hour(metric: MetricId, end_ns: i64, rows: &[Batch]) -> Buckets {
    let query = hour_query(metric, end_ns, 0);
    let steps = query.steps().unwrap();
    let mut buckets = Buckets::new(steps, &query.metrics, &[]);
    for batch in rows {
        let keys = RowKeys::of(batch.records(), batch.table()).unwrap();
        for (row, (id, &at_ns)) in keys.ids.iter().zip(batch.timestamps()).enumerate() {
            let mut name = vec![None; query.group_by.len()];
            name[0] = Some(Arc::clone(&keys.keys[*id as usize]));
            let group = buckets.group(&GroupName::from(name));
            let place = buckets.place(group, steps.at(at_ns));
            for measured in buckets.metrics_mut() {
                let value = batch.metric(measured.metric).and_then(|column| column.value(row));
                let Some(value) = value.map(Value::as_f64) else { continue };
                let one = Cell { count: 1, sum: value, min: value, max: value, last_ns: at_ns, last: value };
                measured.cells[place].merge(&one);
            }
        }
    }
    buckets
}

#[test]
fn the_real_capture_lists_three_anomalies_at_most() {
    let Some((fleet, rows)) = fleet() else { return };
    let end_ns = fleet.gpus.iter().map(|gpu| gpu.last_seen_ns).max().unwrap() + 1;
    let mut listed = Vec::new();
    for metric in WATCHED {
        for one in unusual(&[hour(metric, end_ns, &rows)], &fleet) {
            if one.score() >= 4.0 {
                listed.push(format!("{}: {}", one.gpu, one.sentence(metric)));
            }
        }
    }
    eprintln!("{listed:#?}");
    assert!(listed.len() <= 3, "{listed:#?}");
    // A person sees it, too: it spins.
    let power = "power_w is 108 W: fewer than 3 days under like load are known of it; 379 W below the 487 W under like load";
    assert!(listed.iter().any(|one| one.contains(power)), "{listed:#?}");
}

/// Rows of one job: the capture's files have none.
fn rows_of_a_job(at_ns: i64, rows: &[(&str, &[(MetricId, f64)])]) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    for (card, values) in rows {
        let mut identity = Identity::default();
        for (column, text) in [
            (IdentityColumn::Uuid, *card),
            (IdentityColumn::Node, "mi300x"),
            (IdentityColumn::Vendor, "amd"),
            (IdentityColumn::Job, "vllm"),
        ] {
            identity.set(column, text).unwrap();
        }
        let who = builder.intern(&identity);
        let row = builder.row(at_ns, who);
        for (metric, value) in *values {
            builder.set(row, *metric, Value::Float(*value)).unwrap();
        }
    }
    builder.finish(Origin { node: Arc::from("mi300x"), started_ns: 1 }, 1).unwrap()
}

/// 46 minutes of a real machine with eight MI300X, of which one served a model: its load comes and goes between 0 and 100 %, and the others
/// have 1 to 4 % for moments, the last time after 36 minutes. No finding is right: not as one job, nor as one of the GPU that works and
/// itself a second time.
#[test]
fn a_real_machine_whose_load_comes_and_goes_never_stands_still() {
    let logs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/logs/mi300x");
    let (power, busy) = (MetricId::of("power_w"), MetricId::of("utilization_pct"));
    let mut seconds: BTreeMap<i64, BTreeMap<String, Vec<(MetricId, f64)>>> = BTreeMap::new();
    for (file, metric) in [("gpu_power.csv", power), ("gpu_usage.csv", busy)] {
        for line in std::fs::read_to_string(logs.join(file)).unwrap().lines().skip(1) {
            // The last line is cut.
            let fields: Vec<&str> = line.split(',').collect();
            let [second, card, value, ..] = fields[..] else { continue };
            let (Ok(second), Ok(value)) = (second.parse(), value.parse()) else { continue };
            seconds.entry(second).or_default().entry(card.to_owned()).or_default().push((metric, value));
        }
    }
    let first = *seconds.keys().next().unwrap();
    let (mut whole, mut alone) = (Lab::new(1, &[], 0), Lab::new(1, &[], 0));
    for (number, (second, cards)) in seconds.iter().enumerate() {
        let now_ns = (second - first) * 1_000_000_000;
        let rows: Vec<_> = cards.iter().map(|(card, values)| (card.as_str(), values.as_slice())).collect();
        whole.take(rows_of_a_job(START_NS + now_ns, &rows));
        if let Some(values) = cards.get("card0") {
            alone.take(rows_of_a_job(START_NS + now_ns, &[("card0", values), ("card0-again", values)]));
        }
        if number % 3 == 2 {
            whole.judge(now_ns);
            alone.judge(now_ns);
        }
    }
    let kinds = |lab: &Lab| lab.opened.iter().map(|one| one.kind).collect::<Vec<_>>();
    assert_eq!((kinds(&whole), kinds(&alone)), (Vec::new(), Vec::new()));
}
