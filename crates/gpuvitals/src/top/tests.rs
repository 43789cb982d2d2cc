//! Frames as text, compared with golden files.

use std::path::Path;
use std::sync::Arc;

use gpuvitals_core::batch::Value;
use gpuvitals_core::identity::SIMULATED;
use gpuvitals_core::{AbsenceReason, Batch, BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table};
use gpuvitals_sources::probe::Driver;
use gpuvitals_sources::probe::ProbeError;
use gpuvitals_sources::processes::{GpuProcess, ProcessGap, ProcessKind, ProcessList};
use gpuvitals_sources::sampler::{Liveness, SamplerConfig, TargetState};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::Color;

use super::grid::Glyphs;
use super::keys::Action;
use super::listing::Listed;
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

fn empty(glyphs: Glyphs) -> Model {
    Model::new("node-a".to_owned(), SamplerConfig::default(), glyphs)
}

/// Four GPUs: two at work, one lost, one that hangs.
fn model(glyphs: Glyphs) -> Model {
    let mut model = empty(glyphs);
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
            // Software power cap and thermal slowdown.
            ("throttle_reasons", 36.0),
            ("encoder_utilization_pct", 12.0),
            ("decoder_utilization_pct", 0.0),
            ("pcie_gen", 5.0),
            ("pcie_width", 16.0),
            ("pcie_rx_bytes_per_s", 12.34e9),
            ("interconnect_tx_bytes", f64::from(second) * 2.5e9),
        ];
        model.observe(&row(Table::GpuEvents, &gpu(0, "NVIDIA H100 80GB HBM3"), at, &busier));
        let quiet =
            [("utilization_pct", 0.0), ("power_w", 71.5), ("temperature_c", 31.0), ("fan_speed_pct", 30.0)];
        model.observe(&row(Table::GpuEvents, &gpu(1, "NVIDIA H100 80GB HBM3"), at, &quiet));
        if second < 18 {
            let lost = [("utilization_pct", 55.0), ("power_w", 380.0), ("temperature_c", 58.0)];
            model.observe(&row(Table::GpuEvents, &gpu(2, "NVIDIA H100 80GB HBM3"), at, &lost));
        }
    }
    model.tick(NOON_NS + 29_500_000_000);
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
        compute_units: None,
    };
    let list = ProcessList { processes: vec![process], gaps: Vec::new() };
    model.processes(Listed { list, users: [(4711, "kim".to_owned())].into() });
    model
}

/// The same, and twelve simulated ones with long numbers: more than a small terminal has lines for.
fn fleet(glyphs: Glyphs) -> Model {
    let mut model = model(glyphs);
    let mut states: Vec<TargetState> = model
        .visible()
        .iter()
        .map(|gpu| state(gpu.identity.as_ref().clone(), gpu.liveness.clone()))
        .collect();
    for index in 4..16 {
        let mut identity = gpu(index, "AMD Instinct MI300X OAM");
        identity.set(IdentityColumn::Source, SIMULATED).unwrap();
        for second in 0..30 {
            let values = [
                ("utilization_pct", 100.0),
                ("memory_used_mb", 164_454.0),
                ("memory_total_mb", 196_608.0),
                ("power_w", 1_000.0),
                ("power_limit_w", 1_400.0),
                ("temperature_c", 101.0),
                ("gpu_clock_mhz", 2_100.0),
                ("throttle_sample_count", f64::from(second) * 1_000.0),
                ("throttle_ppt_count", f64::from(second) * 300.0),
            ];
            let at = NOON_NS + i64::from(second) * 1_000_000_000;
            model.observe(&row(Table::GpuEvents, &identity, at, &values));
        }
        states.push(state(identity, Liveness::Up));
    }
    model.states(states);
    model
}

fn drawn(model: &Model, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, model)).unwrap().buffer.clone()
}

fn text(model: &Model, width: u16, height: u16) -> String {
    super::lines_of(&drawn(model, width, height), width)
}

fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/top/golden").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    assert!(text == golden, "{name} differs; UPDATE=1 writes it anew. It is now:\n{text}");
}

const WIDTHS: [u16; 8] = [40, 56, 72, 80, 100, 120, 160, 200];

#[test]
fn every_width_shows_whole_columns() {
    let mut traffic = fleet(Glyphs::Blocks);
    traffic.apply(Action::Traffic);
    for (name, model) in [("vitals", fleet(Glyphs::Blocks)), ("traffic", traffic)] {
        let list = |width| -> Vec<String> {
            let text = text(&model, width, 24);
            text.lines().skip(2).take_while(|line| !line.starts_with('…')).map(str::to_owned).collect()
        };
        let widest = list(200);
        for width in WIDTHS {
            check(&format!("{name}-{width}.txt"), &text(&model, width, 24));
            for (line, whole) in list(width).iter().zip(&widest) {
                let cut = line.split_whitespace().find(|word| {
                    let is_number = word.starts_with(|c: char| c.is_ascii_digit()) && !word.ends_with('…');
                    is_number && !whole.split_whitespace().any(|it| it == *word)
                });
                assert_eq!(cut, None, "{width} columns: {line}");
            }
        }
    }
}

#[test]
fn a_narrow_list_tells_models_apart() {
    for (model, shown) in [
        ("AMD Instinct MI300X", "MI300X "),
        ("AMD Radeon RX 7900 XTX", "RX 7900…"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA Tesla T4", "T4 "),
        ("AMD Radeon Graphics", "Radeon …"),
        ("NVIDIA H100 80GB HBM3", "H100 80…"),
    ] {
        let mut narrow = empty(Glyphs::Blocks);
        let values = ["utilization_pct", "memory_used_mb", "power_w", "temperature_c", "gpu_clock_mhz"]
            .map(|it| (it, 1.0));
        narrow.observe(&row(Table::GpuEvents, &gpu(0, model), NOON_NS, &values));
        let drawn = text(&narrow, 43, 24);
        assert!(drawn.lines().nth(3).unwrap().contains(&format!(" {shown}")), "{model}: {drawn}");
    }
}

#[test]
fn what_is_not_of_now_is_grey_and_has_its_age() {
    let mut model = model(Glyphs::Blocks);
    let colours = |model: &Model, line: u16| -> Vec<Color> {
        let buffer = drawn(model, 120, 24);
        (0..100).map(|x| buffer[(x, line)].fg).filter(|colour| *colour != Color::Reset).collect()
    };
    let lost = text(&model, 120, 24).lines().nth(5).unwrap().to_owned();
    assert!(lost.contains("380") && lost.contains("gone 12s"), "{lost}");
    assert!(colours(&model, 5).contains(&Color::DarkGray));
    assert!(!colours(&model, 4).contains(&Color::DarkGray));
    // A GPU that is up and gives no rows: three intervals are waited for.
    model.tick(NOON_NS + 32_000_000_000);
    assert!(!text(&model, 120, 24).contains("old"));
    model.tick(NOON_NS + 36_000_000_000);
    assert!(text(&model, 120, 24).contains("7s old"));
    assert!(colours(&model, 4).contains(&Color::DarkGray));
    // One value that is read no more, in a row of now: its driver's slow values are a second apart.
    model.observe(&row(
        Table::GpuEvents,
        &gpu(1, "NVIDIA H100 80GB HBM3"),
        NOON_NS + 36_000_000_000,
        &[("power_w", 72.0)],
    ));
    assert!(!text(&model, 120, 24).lines().nth(4).unwrap().contains("old"));
    assert!(colours(&model, 4).contains(&Color::DarkGray), "the temperature is of earlier");
}

#[test]
fn why_a_gpu_is_slow_is_said_in_words() {
    let mut model = empty(Glyphs::Blocks);
    let shown = |model: &mut Model, values: &[(&str, f64)]| {
        model.observe(&row(Table::GpuEvents, &gpu(0, "a GPU"), NOON_NS, values));
        let text = text(model, 60, 20);
        let at = text.lines().nth(2).unwrap().split("state").next().unwrap().chars().count();
        let state: String = text.lines().nth(3).unwrap().chars().skip(at).collect();
        state.split("  ").next().unwrap().trim().to_owned()
    };
    for (values, words) in [
        (&[("throttled", 0.0)][..], ""),
        (&[("throttled", 1.0)], "slow"),
        (&[("throttle_reasons", 1.0)], ""),
        (&[("throttle_reasons", 4.0)], "power"),
        (&[("throttle_reasons", 64.0)], "heat"),
        (&[("throttle_reasons", 8.0)], "hardware"),
        (&[("throttle_reasons", 128.0)], "brake"),
        (&[("throttle_reasons", 36.0)], "power+heat"),
        (&[("throttle_reasons", 0.0), ("throttle_status", 65_536.0)], "power"),
        (&[("throttle_sample_count", 1_000.0), ("throttle_ppt_count", 100.0)], ""),
        (&[("throttle_sample_count", 2_000.0), ("throttle_ppt_count", 350.0)], "power 25%"),
    ] {
        let values: Vec<(&str, f64)> = values.iter().copied().chain([("utilization_pct", 1.0)]).collect();
        assert_eq!(shown(&mut model, &values), words, "{values:?}");
    }
}

#[test]
fn ascii_draws_with_nothing_else() {
    let drawn = text(&model(Glyphs::Ascii), 100, 24);
    assert!(drawn.contains("...") && drawn.contains("^v select"), "{drawn}");
    assert!(drawn.lines().nth(2).unwrap().contains("  C "), "{drawn}");
    let mut starts = empty(Glyphs::Ascii);
    starts.states(vec![state(gpu(0, "Geförce"), Liveness::Starting)]);
    let mut all = vec![text(&starts, 100, 24)];
    for action in [Action::Last, Action::Filter, Action::Help, Action::Traffic] {
        let mut fleet = fleet(Glyphs::Ascii);
        fleet.apply(action);
        all.push(text(&fleet, 100, 24));
    }
    for drawn in all {
        assert!(drawn.is_ascii(), "{drawn}");
    }
}

#[test]
fn a_tool_that_stood_in_for_its_gpu_leaves_the_list() {
    let mut model = empty(Glyphs::Blocks);
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
fn a_frame_is_whole_once_the_host_has_answered_too() {
    let mut model = empty(Glyphs::Blocks);
    let host = Identity::default().with(IdentityColumn::Node, "node-a").unwrap();
    let states = || {
        let of_host = TargetState { table: Table::SystemEvents, ..state(host.clone(), Liveness::Up) };
        vec![state(gpu(0, "NVIDIA H200"), Liveness::Up), of_host]
    };
    model.observe(&row(Table::GpuEvents, &gpu(0, "NVIDIA H200"), NOON_NS, &[("power_w", 77.0)]));
    model.states(states());
    assert!(!model.is_complete());
    model.observe(&row(Table::SystemEvents, &host, NOON_NS, &[("load1", 3.25)]));
    model.states(states());
    assert!(model.is_complete());
    let drawn = text(&model, 80, 24);
    assert!(drawn.contains("\nmemory -  load 3.25\n"), "the share of the CPU is not known yet: {drawn}");
}

#[test]
fn a_list_of_processes_with_a_gap_says_so() {
    let mut model = model(Glyphs::Blocks);
    let gap = |gpu: &str| ProcessGap {
        gpu: Some(gpu.into()),
        part: "processes",
        error: ProbeError::Denied("no permission".to_owned()),
    };
    let mut listed = model.listed.clone();
    listed.list.gaps = vec![gap("GPU-1")];
    model.processes(listed);
    assert!(!text(&model, 80, 24).contains("cannot read"), "it is about another GPU");
    let list = ProcessList { processes: Vec::new(), gaps: vec![gap("GPU-0")] };
    model.processes(Listed { list, ..Listed::default() });
    let drawn = text(&model, 80, 24);
    assert!(drawn.contains("cannot read processes of GPU-0: denied: no permission"), "{drawn}");
    assert!(!drawn.contains("no processes seen"), "{drawn}");
}

#[test]
fn no_terminal_is_too_small() {
    for (width, height) in [(1, 1), (10, 2), (20, 5), (80, 10), (200, 3)] {
        text(&fleet(Glyphs::Blocks), width, height);
    }
}

#[test]
fn orders_filters_and_selections_do_what_they_say() {
    let mut model = model(Glyphs::Blocks);
    let order =
        |model: &Model| -> Vec<i32> { model.visible().iter().filter_map(|gpu| gpu.identity.index).collect() };
    assert_eq!(order(&model), [0, 1, 2, 3]);
    model.apply(Action::Reverse);
    assert_eq!(order(&model), [3, 2, 1, 0]);
    model.apply(Action::Reverse);
    model.apply(Action::Sort);
    assert_eq!(order(&model)[0], 0, "the busiest first, those without a value last");
    let head = |model: &Model| text(model, 80, 24).lines().nth(2).unwrap().to_owned();
    assert!(head(&model).contains("busy▼"), "{}", head(&model));
    model.apply(Action::Reverse);
    assert!(head(&model).contains("busy▲"), "{}", head(&model));
    model.apply(Action::Reverse);
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
