//! The findings on a real capture of a fleet: one instant of 247 GPUs. docs/findings.md judges them.

use std::collections::HashMap;
use std::path::Path;

use gpuvitals_analysis::findings::{Recent, Situation, judge};
use gpuvitals_analysis::freshness::Freshness;
use gpuvitals_core::batch::RowKeys;
use gpuvitals_core::history::LiveFleet;
use gpuvitals_core::ports::{Poll, Source};
use gpuvitals_sources::csv::CsvSource;
use gpuvitals_sources::replay::ReplayConfig;

#[test]
fn the_real_capture_has_one_finding() {
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/dcgm/metrics.csv");
    if !capture.exists() {
        eprintln!("skipped: {} is not on this machine", capture.display());
        return;
    }
    let mut source = CsvSource::open(capture, ReplayConfig::default(), 0).unwrap();
    let mut live = LiveFleet::default();
    while let Poll::Ready(batch) = source.poll(i64::MAX).unwrap() {
        live.apply(&batch, &RowKeys::of(batch.records(), batch.table()).unwrap());
    }
    let fleet = live.snapshot();
    assert_eq!(fleet.gpus.len(), 247);
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
