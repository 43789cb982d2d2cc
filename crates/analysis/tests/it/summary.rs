//! The summary of loads with known answers.

use std::time::Duration;

use gpuvitals_analysis::summary::{GpuSummary, Summary};
use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::Scope;
use gpuvitals_core::energy::EnergySource;
use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table};

const SECOND: i64 = 1_000_000_000;

fn gpu(index: i32) -> Identity {
    let identity = Identity::default().with(IdentityColumn::Uuid, &format!("GPU-{index}")).unwrap();
    let mut identity = identity.with(IdentityColumn::Node, "n1").unwrap();
    identity.index = Some(index);
    identity
}

fn near(found: f64, wanted: f64) {
    assert!((found - wanted).abs() <= 0.011 * wanted.abs() + 1e-9, "{found} is not {wanted}");
}

/// Ten minutes at 100 Hz in batches of 50 rows, two GPUs by turns; values by second and GPU.
fn recorded(values: impl Fn(f64, i32) -> Vec<(&'static str, f64)>) -> Vec<GpuSummary> {
    let mut summary = Summary::new(Duration::from_millis(10), Duration::from_millis(100));
    for piece in 0..1_200_i32 {
        for index in [1, 0] {
            let mut builder = BatchBuilder::new(Table::GpuEvents);
            let id = builder.intern(&gpu(index));
            for n in piece * 50..(piece + 1) * 50 {
                let mono_ns = 77 * SECOND + i64::from(n) * SECOND / 100;
                // The wall clock steps back by an hour on the way.
                let step = if n > 20_000 { -3_600 * SECOND } else { 0 };
                let row = builder.row_at(1_700_000_000 * SECOND + mono_ns + step, mono_ns, id);
                for (column, value) in values(f64::from(n) / 100.0, index) {
                    let metric = gpuvitals_core::catalogue::by_column(column).unwrap();
                    builder.set(row, metric, Value::Float(value)).unwrap();
                }
            }
            summary.add(&builder.finish(Origin::default(), 0).unwrap());
        }
    }
    summary.gpus()
}

#[test]
fn a_known_load_has_the_known_figures() {
    let gpus = recorded(|t, gpu| {
        // 400 W for the first tenth of each second, then 100 W; the clock likewise.
        let busy = t.fract() < 0.0999;
        let mut row = vec![
            ("power_w", if busy { 400.0 } else { 100.0 }),
            ("gpu_clock_mhz", if busy { 2_100.0 } else { 300.0 }),
            ("utilization_pct", if gpu == 0 { 50.0 } else { 0.0 }),
            ("memory_used_mb", 1_000.0 + t.floor()),
            ("throttled", f64::from(u8::from(t < 150.0))),
        ];
        if t.fract() < 0.001 {
            row.push(("energy_mj", 1e9 + t * 130e3));
        }
        row
    });
    assert_eq!(gpus.iter().map(|gpu| gpu.id.as_str()).collect::<Vec<_>>(), ["GPU-0", "GPU-1"]);
    let first = &gpus[0];
    near(first.duration_s, 599.99);
    assert_eq!((first.samples, first.gaps), (60_000, 0));
    near(first.rate_hz.unwrap(), 100.0);
    let energy = first.energy.as_ref().unwrap();
    assert_eq!(energy.source, EnergySource::Counter, "{energy:?}");
    near(energy.joules, 600.0 * 130.0);
    let power = first.power_w.unwrap();
    near(power.mean, 130.0);
    near(power.p99, 400.0);
    assert_eq!((power.max, power.averaged), (400.0, false));
    let clock = first.gpu_clock_mhz.unwrap();
    near(clock.mean, 480.0);
    assert_eq!((clock.min, clock.max), (300.0, 2_100.0));
    let throttled = first.throttled.unwrap();
    near(throttled.seconds, 150.0);
    near(throttled.share, 0.25);
    near(first.utilization_pct.unwrap().mean, 50.0);
    assert!(gpus[1].utilization_pct.unwrap().max.abs() < 1e-9, "0 is a value");
    assert_eq!(first.memory_used_max_mb, Some(1_599.0));
    assert_eq!((first.mem_clock_mhz, first.temperature_c), (None, None), "what was not read is none");
}

#[test]
fn without_the_instantaneous_reading_the_average_stands_in_and_counters_for_states() {
    let gpus = recorded(|t, _| {
        let ns = (t * 0.4e9).floor();
        vec![("power_average_w", 250.0), ("throttled_power_ns", ns), ("throttled_thermal_ns", ns / 2.0)]
    });
    let power = gpus[0].power_w.unwrap();
    assert_eq!((power.mean, power.averaged), (250.0, true));
    // A part that has nothing but its average gives it as both.
    let both = recorded(|t, _| vec![("power_w", t), ("power_average_w", t)]);
    assert!(both[0].power_w.unwrap().averaged);
    let apart = recorded(|t, _| vec![("power_w", t), ("power_average_w", t.max(400.0))]);
    assert!(!apart[0].power_w.unwrap().averaged);
    let neither = recorded(|t, _| vec![("power_w", t)]);
    assert!(!neither[0].power_w.unwrap().averaged);
    let energy = gpus[0].energy.as_ref().unwrap();
    assert_eq!(energy.source, EnergySource::Integrated);
    near(energy.joules, 250.0 * 599.99);
    let throttled = gpus[0].throttled.unwrap();
    assert!(throttled.counted);
    near(throttled.seconds, 240.0);
    near(throttled.share, 0.4);
}

#[test]
fn the_energy_says_how_far_it_may_be_off_and_of_an_unknown_model_that_it_does_not_know() {
    let summed = |model: &str| {
        let mut summary = Summary::new(Duration::from_millis(10), Duration::from_millis(100));
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let id = builder.intern(&gpu(0).with(IdentityColumn::Model, model).unwrap());
        for n in 0..=6_000_i64 {
            let row = builder.row_at(n, n * SECOND / 100, id);
            builder.set(row, MetricId::of("power_w"), Value::Int(400)).unwrap();
        }
        summary.add(&builder.finish(Origin::default(), 0).unwrap());
        summary.gpus()[0].energy.clone().unwrap()
    };
    let known = summed("NVIDIA A100-SXM4-80GB");
    assert_eq!(known.error, "± 5.0 %");
    let interval = known.interval.unwrap();
    assert!(interval.low_j < 0.951 * known.joules && interval.high_j > 1.049 * known.joules, "{interval:?}");
    let unknown = summed("AMD Instinct MI300X");
    assert!(unknown.error.starts_with("not known") && unknown.interval.is_none(), "{unknown:?}");
}

#[test]
fn steps_under_a_limit_are_counted_and_not_the_state_that_there_were_some() {
    // 1,000 steps a second: 10 at the power limit, 40 hot. From 400 s on the counter does not move, as with a
    // driver that repeats itself.
    let gpus = recorded(|t, _| {
        let t = t.min(400.0);
        let steps = (4_294_900_000.0 + t * 1e3).floor() % 4_294_967_296.0;
        vec![
            ("throttled", 1.0),
            ("throttle_sample_count", steps),
            ("throttle_ppt_count", (t * 10.0).floor()),
            ("throttle_socket_thermal_count", (t * 40.0).floor()),
        ]
    });
    let throttled = gpus[0].throttled.unwrap();
    assert!(throttled.counted);
    near(throttled.seconds, 16.0);
    near(throttled.share, 0.04);
}

#[test]
fn a_summary_is_of_so_many_gpus_and_hosts_and_counts_the_rows_of_others() {
    let mut summary = Summary::new(Duration::from_secs(1), Duration::from_secs(1));
    for (table, column) in
        [(Table::GpuEvents, IdentityColumn::Uuid), (Table::SystemEvents, IdentityColumn::Node)]
    {
        for round in 0..2 {
            let mut builder = BatchBuilder::new(table);
            for n in 0..1_030 {
                let name = format!("x{n}");
                let id = builder.intern(&Identity::default().with(column, &name).unwrap());
                builder.row(round, id);
            }
            summary.add(&builder.finish(Origin::default(), 0).unwrap());
        }
    }
    assert_eq!((summary.gpus().len(), summary.hosts().len()), (1_024, 1_024));
    assert!(summary.hosts().iter().all(|host| host.samples == 2));
    assert_eq!(summary.left_out(), 2 * 2 * 6);
}

#[test]
fn a_gap_is_counted_and_not_filled() {
    let mut summary = Summary::new(Duration::from_millis(10), Duration::from_millis(100));
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = builder.intern(&gpu(0));
    for n in (0..1_000).chain(3_000..4_000_i64) {
        let row = builder.row_at(n, n * SECOND / 100, id);
        builder.set(row, MetricId::of("power_w"), Value::Int(100)).unwrap();
    }
    summary.add(&builder.finish(Origin::default(), 0).unwrap());
    let gpu = &summary.gpus()[0];
    assert_eq!(gpu.gaps, 1);
    near(gpu.gaps_s, 20.0);
    let energy = gpu.energy.as_ref().unwrap();
    near(energy.joules, 2_000.0);
    near(energy.power_seen_s, 20.0);
    near(gpu.power_w.unwrap().mean, 100.0);
}

#[test]
fn a_time_in_which_a_gpu_is_known_to_give_nothing_is_a_gap_however_short_it_is() {
    let mut summary = Summary::new(Duration::from_millis(100), Duration::from_millis(100));
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = builder.intern(&gpu(0));
    // Ten times 1 s awake at 10 Hz, and 1 s asleep, which begins with a row that has no value.
    for n in (0..200_i64).filter(|n| n % 20 <= 10) {
        let row = builder.row_at(n, n * SECOND / 10, id);
        if n % 20 < 10 {
            builder.set(row, MetricId::of("power_w"), Value::Int(100)).unwrap();
            builder.set(row, MetricId::of("utilization_pct"), Value::Int(50)).unwrap();
        }
    }
    summary.add(&builder.finish(Origin::default(), 0).unwrap());
    let gpu = &summary.gpus()[0];
    assert_eq!((gpu.samples, gpu.gaps), (100, 9));
    near(gpu.gaps_s, 9.0 * 1.1);
    let energy = gpu.energy.as_ref().unwrap();
    near(energy.joules, 10.0 * 0.9 * 100.0);
    near(energy.power_seen_s, 9.0);
    near(gpu.utilization_pct.unwrap().mean, 50.0);
}

#[test]
fn one_row_is_a_summary_too() {
    let mut summary = Summary::new(Duration::from_secs(1), Duration::from_secs(1));
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = builder.intern(&gpu(0));
    let row = builder.row(5, id);
    builder.set(row, MetricId::of("power_w"), Value::Int(42)).unwrap();
    summary.add(&builder.finish(Origin::default(), 0).unwrap());
    let gpu = &summary.gpus()[0];
    assert_eq!((gpu.duration_s, gpu.rate_hz, gpu.power_w.unwrap().mean), (0.0, None, 42.0));
    assert!(gpu.energy.as_ref().unwrap().joules.abs() < 1e-9);
}

#[test]
fn the_host_has_rates_and_peaks() {
    let mut summary = Summary::new(Duration::from_millis(10), Duration::from_millis(100));
    let mut builder = BatchBuilder::new(Table::SystemEvents);
    let id = builder.intern(&Identity::default().with(IdentityColumn::Node, "n1").unwrap());
    for n in 0..=600_i64 {
        let row = builder.row_at(n, n * SECOND / 10, id);
        let mut set = |column, value| builder.set(row, column, Value::Int(value)).unwrap();
        set(MetricId::of("cpu_pct"), if n < 300 { 0 } else { 80 });
        set(MetricId::of("memory_mb"), 1_000 + n);
        set(MetricId::of("ctx_switches"), 1_000_000 + n * 500);
        set(MetricId::of("irqs"), n * 7);
    }
    // A row about one CPU says nothing about the host.
    let core = builder.row_at(600, 60 * SECOND, id);
    builder.set_instance(core, Scope::CpuCore, "3").unwrap();
    builder.set(core, MetricId::of("cpu_core_pct"), Value::Int(7)).unwrap();
    summary.add(&builder.finish(Origin::default(), 0).unwrap());
    let host = &summary.hosts()[0];
    assert_eq!(host.samples, 601);
    near(host.cpu_pct.unwrap().mean, 40.0);
    assert_eq!((host.cpu_pct.unwrap().max, host.memory_max_mb), (80.0, Some(1_600.0)));
    near(host.ctx_switches_per_s.unwrap(), 5_000.0);
    near(host.irqs_per_s.unwrap(), 70.0);
    assert_eq!((host.page_faults_per_s, host.node.as_deref()), (None, Some("n1")));
}
