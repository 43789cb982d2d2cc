//! The error of an energy, judged by power meters that stood beside four cards, and by sensors that are made up.

use std::path::Path;

use gpuvitals_core::batch::Value;
use gpuvitals_core::energy::EnergyErrorCause::{Delay, Gain, Jumps, Sampling};
use gpuvitals_core::energy::{
    Energy, EnergyColumns, EnergyInterval, IntervalUnknown, SensorTiming, TimingUnknown,
};
use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table};

const MS: i64 = 1_000_000;
const GAP: i64 = 2_500 * MS;
const POWER: MetricId = MetricId::of("power_w");
const AVERAGE: MetricId = MetricId::of("power_average_w");
const A100: &str = "NVIDIA A100-PCIE-40GB";
const RTX_3090: &str = "NVIDIA GeForce RTX 3090";

/// Rows of a file of the fixture: milliseconds, and values in watts.
fn rows(file: &str) -> Vec<(i32, Vec<f64>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/real/meter");
    let text = std::fs::read_to_string(folder.join(file)).unwrap();
    let row = |line: &str| {
        let (ms, values) = line.split_once(',').unwrap();
        (ms.parse().unwrap(), values.split(',').map(|watts| watts.parse().unwrap()).collect())
    };
    text.lines().skip(1).map(row).collect()
}

fn gpu(model: &str) -> Identity {
    Identity::default()
        .with(IdentityColumn::Uuid, "GPU-0")
        .unwrap()
        .with(IdentityColumn::Model, model)
        .unwrap()
}

/// The energy of a GPU whose rows have these powers, watts, at these milliseconds.
fn energy(model: &str, metric: MetricId, readings: impl IntoIterator<Item = (i32, f64)>) -> Energy {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = builder.intern(&gpu(model));
    for (ms, watts) in readings {
        let time_ns = i64::from(ms) * MS;
        let row = builder.row_at(time_ns, time_ns, id);
        builder.set(row, metric, Value::Float(watts)).unwrap();
    }
    let batch = builder.finish(Origin::default(), 0).unwrap();
    let columns = EnergyColumns::of(&batch);
    let mut energy = Energy::default();
    for (row, &time_ns) in batch.timestamps().iter().enumerate() {
        energy.row(&columns, row, time_ns, GAP);
    }
    energy
}

fn interval(model: &str, metric: MetricId, readings: impl IntoIterator<Item = (i32, f64)>) -> EnergyInterval {
    energy(model, metric, readings).interval(&gpu(model)).unwrap()
}

/// What the meter counted from the first to the last reading, joules: its rows are means over 10 ms.
fn metered_j(file: &str, (from_ms, to_ms): (i32, i32)) -> f64 {
    let part = |(ms, watts): &(i32, Vec<f64>)| {
        let overlap_ms = to_ms.min(ms + 10) - from_ms.max(*ms);
        watts[0] * f64::from(overlap_ms.max(0)) / 1e3
    };
    rows(file).iter().map(part).sum()
}

/// The interval of a card's readings, and what the meter beside it counted.
fn beside_a_meter(card: &str, model: &str, metric: MetricId) -> (EnergyInterval, f64) {
    let readings = rows(&format!("{card}.readings.csv"));
    let column = usize::from(metric == AVERAGE);
    let found = interval(model, metric, readings.iter().map(|(ms, watts)| (*ms, watts[column])));
    let range = (readings[0].0, readings[readings.len() - 1].0);
    (found, metered_j(&format!("{card}.meter.csv"), range))
}

#[test]
fn the_interval_holds_the_meter_of_an_a100_and_a_k40m_and_of_the_rtx_cards_by_which_the_gain_was_set() {
    for (card, model, metric) in [
        ("a100", A100, POWER),
        ("rtx3090", RTX_3090, POWER),
        ("rtx3090", RTX_3090, AVERAGE),
        ("rtx4090", "NVIDIA GeForce RTX 4090", POWER),
        ("k40m", "Tesla K40m", POWER),
    ] {
        let (found, joules) = beside_a_meter(card, model, metric);
        assert!(found.low_j <= joules && joules <= found.high_j, "{card}: {joules} J is not in {found:?}");
        assert!(found.share < 0.12, "{card}: {found:?} says nothing");
    }
}

#[test]
fn ten_seconds_of_an_a100_are_known_within_six_percent_and_the_parts_add_up() {
    let (found, _) = beside_a_meter("a100", A100, POWER);
    assert!(found.share <= 0.06, "{found:?}");
    let causes: Vec<_> = found.parts.iter().map(|part| part.part).collect();
    assert_eq!(causes, [Gain, Delay, Sampling, Jumps]);
    let squares: f64 = found.parts.iter().map(|part| part.share * part.share).sum();
    assert!((squares.sqrt() - found.share).abs() < 1e-9, "{found:?}");
    assert!((found.parts[0].share - 0.05).abs() < 1e-9, "{found:?}");
    assert!(found.parts.iter().all(|part| !part.source.is_empty() && part.joules >= 0.0));
    assert!((found.seen_share - 0.25).abs() < 1e-9, "it looks for 25 ms of 100: {found:?}");
    assert_eq!(found.to_string(), format!("± {:.1} %", found.share * 100.0));
}

/// The interval of an RTX 3090 whose rows, each 10 ms, have these samples and averages.
fn beside_averages(rows: impl Iterator<Item = (f64, f64)>) -> EnergyInterval {
    let gpu = gpu(RTX_3090);
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = builder.intern(&gpu);
    for (at, (sample, average)) in (0_i64..).zip(rows) {
        let row = builder.row_at(at * 10 * MS, at * 10 * MS, id);
        builder.set(row, POWER, Value::Float(sample)).unwrap();
        builder.set(row, AVERAGE, Value::Float(average)).unwrap();
    }
    let batch = builder.finish(Origin::default(), 0).unwrap();
    let columns = EnergyColumns::of(&batch);
    let mut energy = Energy::default();
    for (row, &time_ns) in batch.timestamps().iter().enumerate() {
        energy.row(&columns, row, time_ns, GAP);
    }
    energy.interval(&gpu).unwrap()
}

#[test]
fn an_average_that_is_given_as_a_sample_too_stays_one_if_a_reading_comes_between_the_two() {
    let average = |row: i32| f64::from(200 + row / 10 % 7 * 20);
    let torn = |row: i32| match row {
        // The sample was read before a new reading and the average after it; and the other way round.
        500 => (average(499), average(500)),
        700 => (average(700), average(699)),
        _ => (average(row), average(row)),
    };
    assert!((beside_averages((0..1_000).map(torn)).window_s - 1.0).abs() < 1e-9);
    let sampled = |row: i32| (average(row), if row < 300 { average(row) } else { 260.0 });
    assert!((beside_averages((0..1_000).map(sampled)).window_s - 0.1).abs() < 1e-9, "few were equal");
    let resting = |row: i32| if row < 800 { (120.0, 120.0) } else { (average(row), 160.0) };
    assert!((beside_averages((0..1_000).map(resting)).window_s - 0.1).abs() < 1e-9, "at rest both are one");
}

#[test]
fn half_a_second_is_known_worse_than_a_minute() {
    let steady = |seconds: i32| (0..=seconds * 100).map(|n| (n * 10, 250.0));
    let half = interval(A100, POWER, (0..=50).map(|n| (n * 10, 250.0)));
    let (second, minute) = (interval(A100, POWER, steady(1)), interval(A100, POWER, steady(60)));
    assert!(
        half.share > 1.5 * second.share && second.share > 1.5 * minute.share,
        "{half:?} {second:?} {minute:?}"
    );
    assert!(minute.share < 0.051, "only the gain is left: {minute:?}");
    let moving = |n: i32| (n * 10, if (n / 10) % 2 == 0 { 100.0 } else { 300.0 });
    let (half, minute) =
        (interval(A100, POWER, (0..=50).map(moving)), interval(A100, POWER, (0..=6_000).map(moving)));
    assert!(half.share > 3.0 * minute.share, "{half:?} {minute:?}");
}

#[test]
fn a_power_that_moves_is_known_worse_than_a_steady_one_where_the_sensor_does_not_look() {
    let sampling = |model, at: fn(i32) -> f64| {
        let found = interval(model, POWER, (0..=1_000).map(|n| (n * 10, at(n / 10))));
        found.parts.iter().find(|part| part.part == Sampling).unwrap().share
    };
    let moving = |n: i32| if n % 2 == 0 { 100.0 } else { 300.0 };
    assert!(sampling(A100, |_| 200.0) < 1e-9);
    assert!(sampling(A100, moving) > 0.05);
    assert!(sampling(RTX_3090, moving) < 1e-9, "its windows have no distance");
}

#[test]
fn rows_that_are_rarer_than_the_sensor_see_less() {
    let every = |ms: i32| {
        let wave = |n: i32| if n % 3 == 0 { 100.0 } else { 300.0 };
        interval(RTX_3090, POWER, (0..=60_000 / ms).map(|n| (n * ms, wave(n))))
    };
    let (fast, slow) = (every(50), every(1_000));
    assert!(slow.share > fast.share && slow.seen_share < 0.11, "{fast:?} {slow:?}");
    assert!(slow.peaks_unknown_below_s > 1.0, "{slow:?}");
}

/// Readings, 100 a second, of a sensor that averages each 100 ms of power that alternates between 100 and 300 W.
fn averaged(half_period_ms: i32) -> Vec<(i32, f64)> {
    let at = |ms: i32| if (ms / half_period_ms) % 2 == 0 { 100.0 } else { 300.0 };
    let mean = |end_ms: i32| (end_ms - 100..end_ms).map(at).sum::<f64>() / 100.0;
    (10..=1_000).map(|n| (n * 10, mean(n / 10 * 100))).collect()
}

#[test]
fn the_peaks_of_a_wave_faster_than_the_window_are_unknown() {
    let fast = averaged(15);
    let highest = fast.iter().map(|(_, watts)| *watts).fold(0.0, f64::max);
    assert!(highest < 230.0, "no reading shows its 300 W: {highest}");
    let found = interval(RTX_3090, POWER, fast);
    assert!(found.peaks_unknown_below_s > 0.015, "{found:?}");
    assert!(found.low_j < 200.0 * 9.9 && 200.0 * 9.9 < found.high_j, "{found:?}");
    let slow = averaged(1_000);
    assert!(slow.iter().any(|(_, watts)| (watts - 300.0).abs() < 1e-9));
    let found = interval(RTX_3090, POWER, slow);
    assert!(found.peaks_unknown_below_s < 1.0, "{found:?}");
}

#[test]
fn a_part_without_an_entry_has_no_number() {
    let steady = || (0..=1_000).map(|n| (n * 10, 250.0));
    for model in ["AMD Instinct MI300X", "NVIDIA B300", "GPU"] {
        let unknown = energy(model, POWER, steady()).interval(&gpu(model));
        assert_eq!(unknown, Err(IntervalUnknown::Sensor), "{model}");
    }
    assert!(IntervalUnknown::Sensor.to_string().starts_with("not known"));
    let nameless = energy(A100, POWER, steady()).interval(&Identity::default());
    assert_eq!(nameless, Err(IntervalUnknown::Sensor));
}

#[test]
fn one_reading_has_no_interval() {
    let unknown = energy(A100, POWER, [(0, 250.0)]).interval(&gpu(A100));
    assert_eq!(unknown, Err(IntervalUnknown::TooFew));
}

#[test]
fn a_gap_moves_nothing_and_the_interval_is_of_the_observed_time() {
    let parts = [0..=1_000, 100_000..=101_000];
    let watts = |n: i32| if n < 50_000 { 100.0 } else { 300.0 };
    let readings = parts.into_iter().flatten().map(|n| (n * 10, watts(n)));
    let found = interval(A100, POWER, readings);
    assert!((found.low_j + found.high_j - 2.0 * 4_000.0).abs() < 1.0, "{found:?}");
    assert!(found.parts[2].joules < 1e-9 && found.parts[3].joules < 1e-9, "no step was seen: {found:?}");
    assert!(found.to_string().ends_with(" % of the observed time"), "{found}");
    let mut lost = energy(A100, POWER, (0..=100).map(|n| (n * 10, 250.0)));
    assert!(lost.interval(&gpu(A100)).unwrap().to_string().ends_with(" %"));
    lost.lose();
    assert!(lost.interval(&gpu(A100)).unwrap().has_gaps, "nobody knows how it went on");
}

/// The timing of a sensor by a column of a card's readings.
fn timing(file: &str, column: usize) -> SensorTiming {
    let readings: Vec<_> =
        rows(file).iter().map(|(ms, watts)| (i64::from(*ms) * MS, watts[column])).collect();
    SensorTiming::of(&readings).unwrap()
}

#[test]
fn the_period_of_a_sensor_is_found_from_its_readings() {
    let found = timing("update_a100.readings.csv", 0);
    assert!((found.period_s - 0.1).abs() <= 0.005 && found.changes > 500, "{found:?}");
    for (file, period_s) in [("a100", 0.1), ("rtx3090", 0.1), ("rtx4090", 0.1), ("k40m", 0.03)] {
        let found = timing(&format!("{file}.readings.csv"), 0);
        assert!((found.period_s - period_s).abs() <= 0.05 * period_s, "{file}: {found:?}");
    }
}

#[test]
fn the_window_of_a_sensor_is_at_most_as_long_as_its_sharpest_step() {
    let window = |file, column| timing(file, column).window_max_s.unwrap();
    for file in ["a100.readings.csv", "rtx3090.readings.csv"] {
        assert!((0.1..0.13).contains(&window(file, 0)), "{file}: {}", window(file, 0));
    }
    let slower = window("rtx4090.readings.csv", 0);
    assert!((0.1..0.3).contains(&slower), "its load takes more than one reading to rise: {slower}");
    let average = window("rtx3090.readings.csv", 1);
    assert!((0.9..1.2).contains(&average), "power.draw of this card averages a second: {average}");
    let faster = timing("k40m.readings.csv", 0);
    assert_eq!(faster.window_max_s, None, "30 ms are too fast: its steps would say less than its window has");
}

#[test]
fn what_the_readings_do_not_show_of_a_sensor_is_not_guessed() {
    let steady: Vec<_> = (0..1_000).map(|n| (n * 10 * MS, 250.0)).collect();
    assert_eq!(SensorTiming::of(&steady), Err(TimingUnknown::Still));
    assert_eq!(SensorTiming::of(&[]), Err(TimingUnknown::Still));
    let always_new: Vec<_> = (0..1_000_i32).map(|n| (i64::from(n) * 10 * MS, 250.0 + f64::from(n))).collect();
    assert_eq!(SensorTiming::of(&always_new), Err(TimingUnknown::TooFast));
    let noise = |n: i32| 250.0 + f64::from(n / 10 % 7);
    let stepless: Vec<_> = (0..1_000_i32).map(|n| (i64::from(n) * 10 * MS, noise(n))).collect();
    let found = SensorTiming::of(&stepless).unwrap();
    assert!((found.period_s - 0.1).abs() < 1e-6 && found.window_max_s.is_none(), "{found:?}");
}
