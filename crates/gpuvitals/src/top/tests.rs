//! Frames as text, compared with golden files.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::batch::Value;
use gpuvitals_core::{AbsenceReason, Batch, BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table};
use gpuvitals_sources::probe::Driver;
use gpuvitals_sources::probe::ProbeError;
use gpuvitals_sources::processes::{GpuProcess, ProcessGap, ProcessKind, ProcessList};
use gpuvitals_sources::sampler::{Liveness, TargetState};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::keys::Action;
use super::model::Model;
use super::view;

const NOON_NS: i64 = 1_790_000_000_000_000_000;

fn gpu(index: i32, model: &str) -> Identity {
    let mut identity = Identity::default()
        .with(IdentityColumn::Uuid, &format!("GPU-{index}"))
        .and_then(|i| i.with(IdentityColumn::Model, model))
        .unwrap();
    identity.index = Some(index);
    identity
}

fn row(table: Table, identity: &Identity, at_ns: i64, values: &[(&str, f64)]) -> Batch {
    let mut builder = BatchBuilder::new(table);
    let id = builder.intern(identity);
    let row = builder.row(at_ns, id);
    for (column, value) in values {
        builder.set(row, MetricId::of(column), Value::Float(*value)).unwrap();
    }
    builder.finish(Origin::default(), 1).unwrap()
}

fn state(identity: Identity, liveness: Liveness) -> TargetState {
    TargetState {
        identity: Arc::new(identity),
        sharers: Vec::new(),
        table: Table::GpuEvents,
        driver: Driver::Nvml,
        liveness,
        since_ns: NOON_NS,
        last_row_ns: None,
        update_interval: None,
    }
}

/// Four GPUs: two at work, one lost, one that hangs.
fn model(ascii: bool) -> Model {
    let mut model = Model::new("node-a".to_owned(), Duration::from_secs(1), ascii);
    let host = Identity::default().with(IdentityColumn::Node, "node-a").unwrap();
    let of_host =
        [("cpu_pct", 12.4), ("memory_mb", 65_536.0), ("host_memory_total_mb", 524_288.0), ("load1", 3.25)];
    model.observe(&row(Table::SystemEvents, &host, NOON_NS, &of_host));
    for second in 0..30_i32 {
        let at = NOON_NS + i64::from(second) * 1_000_000_000;
        let busy = f64::from(second % 10) * 10.0;
        let busier = [
            ("utilization_pct", busy),
            ("memory_used_mb", 40_960.0),
            ("memory_total_mb", 81_920.0),
            ("power_w", 100.0 + busy * 6.0),
            ("power_limit_w", 700.0),
            ("temperature_c", 86.0),
            ("gpu_clock_mhz", 1_980.0),
            ("mem_clock_mhz", 2_619.0),
            ("throttled", 1.0),
        ];
        model.observe(&row(Table::GpuEvents, &gpu(0, "NVIDIA H100 80GB HBM3"), at, &busier));
        let quiet =
            [("utilization_pct", 0.0), ("power_w", 71.5), ("temperature_c", 31.0), ("fan_speed_pct", 30.0)];
        model.observe(&row(Table::GpuEvents, &gpu(1, "NVIDIA H100 80GB HBM3"), at, &quiet));
    }
    let detail = "gone: GPU is lost".to_owned();
    model.states(vec![
        state(gpu(0, "NVIDIA H100 80GB HBM3"), Liveness::Up),
        state(gpu(1, "NVIDIA H100 80GB HBM3"), Liveness::Up),
        state(gpu(2, "NVIDIA H100 80GB HBM3"), Liveness::Down { reason: AbsenceReason::Gone, detail }),
        state(gpu(3, "AMD Instinct MI300X OAM"), Liveness::Stuck { for_ns: 12_000_000_000 }),
    ]);
    let process = GpuProcess {
        gpu: std::sync::Arc::new(gpu(0, "NVIDIA H100 80GB HBM3")),
        pid: 4711,
        name: "python3".into(),
        kind: ProcessKind::Compute,
        memory_mb: Some(38_912),
        utilization_pct: Some(97.0),
        memory_utilization_pct: None,
        encoder_utilization_pct: None,
        decoder_utilization_pct: None,
    };
    model.processes(ProcessList { processes: vec![process], gaps: Vec::new() });
    model
}

fn text(model: &Model, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let frame = terminal.draw(|frame| view::draw(frame, model)).unwrap();
    super::lines_of(frame.buffer, width)
}

fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/top/golden").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    assert!(text == golden, "{name} differs; UPDATE=1 writes it anew. It is now:\n{text}");
}

#[test]
fn a_small_terminal_shows_every_gpu_and_the_keys() {
    check("80x24.txt", &text(&model(false), 80, 24));
}

#[test]
fn a_wide_terminal_shows_more() {
    check("120x40.txt", &text(&model(false), 120, 40));
}

#[test]
fn ascii_draws_without_blocks() {
    let drawn = text(&model(true), 80, 24);
    assert!(drawn.contains("..."));
    assert!(!drawn.contains(['█', '━', '─']), "{drawn}");
}

#[test]
fn a_tool_that_stood_in_for_its_gpu_leaves_the_list() {
    let mut model = Model::new("node-a".to_owned(), Duration::from_secs(1), false);
    let tool = Identity::default().with(IdentityColumn::Uuid, "nvidia-smi").unwrap();
    model.states(vec![state(tool, Liveness::Starting)]);
    assert!(text(&model, 80, 24).contains("1 GPU "), "it is waited for");
    model.observe(&row(Table::GpuEvents, &gpu(0, "NVIDIA H200"), NOON_NS, &[("power_w", 77.0)]));
    model.states(vec![state(gpu(0, "NVIDIA H200"), Liveness::Up)]);
    let drawn = text(&model, 80, 24);
    assert!(drawn.contains("1 GPU ") && !drawn.contains("nvidia-smi"), "{drawn}");
    let visible = model.visible();
    assert_eq!(visible.get(model.selected(&visible)).unwrap().identity.index, Some(0));
}

#[test]
fn a_list_of_processes_with_a_gap_says_so() {
    let mut model = model(false);
    let gap = |gpu: &str| ProcessGap {
        gpu: Some(gpu.into()),
        part: "processes",
        error: ProbeError::Denied("no permission".to_owned()),
    };
    let mut list = model.listed.clone();
    list.gaps = vec![gap("GPU-1")];
    model.processes(list);
    assert!(!text(&model, 80, 24).contains("cannot read"), "it is about another GPU");
    model.processes(ProcessList { processes: Vec::new(), gaps: vec![gap("GPU-0")] });
    let drawn = text(&model, 80, 24);
    assert!(drawn.contains("cannot read processes of GPU-0: denied: no permission"), "{drawn}");
    assert!(!drawn.contains("no processes seen"), "{drawn}");
}

#[test]
fn no_terminal_is_too_small() {
    for (width, height) in [(1, 1), (10, 2), (20, 5), (80, 10), (200, 3)] {
        text(&model(false), width, height);
    }
}

#[test]
fn orders_filters_and_selections_do_what_they_say() {
    let mut model = model(false);
    let order =
        |model: &Model| -> Vec<i32> { model.visible().iter().filter_map(|gpu| gpu.identity.index).collect() };
    assert_eq!(order(&model), [0, 1, 2, 3]);
    model.apply(Action::Reverse);
    assert_eq!(order(&model), [3, 2, 1, 0]);
    model.apply(Action::Reverse);
    model.apply(Action::Sort);
    assert_eq!(order(&model)[0], 0, "the busiest first, those without a value last");
    model.apply(Action::Filter);
    "mi300".chars().for_each(|c| model.apply(Action::Type(c)));
    assert_eq!(order(&model), [3]);
    model.apply(Action::Escape);
    assert_eq!(order(&model).len(), 4);
    assert!(!model.is_typing());
    model.apply(Action::Down);
    let visible = model.visible();
    assert_eq!(model.selected(&visible), 1);
    model.apply(Action::Last);
    model.apply(Action::Down);
    let visible = model.visible();
    assert_eq!(model.selected(&visible), 3);
}
