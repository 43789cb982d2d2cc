//! What is read of a history: the values of its rows, figures where there are too many, and which series there are.

use std::collections::BTreeMap;

use gpuvitals_core::history::{History, RowsQuery};
use gpuvitals_core::{MetricId, Table};
use gpuvitals_promql::{
    Grid, Outcome, PromAnswer, PromError, PromLimits, PromSeries, families, label_names, label_values, query,
    series,
};

use crate::world::{BASE_NS, EVERY_NS, ROWS, SECOND_NS, World};

impl World {
    fn answer(&self, text: &str, grid: Grid, limits: PromLimits) -> Result<PromAnswer, PromError> {
        self.runtime.block_on(query(&self.store, text, grid, limits))
    }

    fn series(&self, text: &str, grid: Grid, limits: PromLimits) -> (Vec<PromSeries>, Vec<String>) {
        let answer = self.answer(text, grid, limits).unwrap();
        let Outcome::Vector(series) = answer.result else { panic!("{text} gives no series") };
        (series, answer.notes)
    }
}

fn whole() -> Grid {
    Grid::between(BASE_NS, BASE_NS + ROWS * EVERY_NS, 60 * SECOND_NS).unwrap()
}

#[test]
fn values_are_those_of_the_rows() {
    let world = World::new();
    let asked = RowsQuery {
        metrics: Some(vec!["memory_used_mb".to_owned()]),
        ..RowsQuery::of(Table::GpuEvents, 100_000)
    };
    let rows = world.runtime.block_on(world.store.rows(asked)).unwrap().answer.batch.unwrap();
    let mut expected: BTreeMap<String, Vec<(i64, f64)>> = BTreeMap::new();
    let values = rows.metric(MetricId::of("memory_used_mb")).unwrap();
    for (row, time_ns) in rows.timestamps().iter().enumerate() {
        if let Some(mib) = values.value(row) {
            let uuid = rows.identity(row).uuid().unwrap().to_owned();
            expected.entry(uuid).or_default().push((*time_ns, mib.as_f64() * 1_048_576.0));
        }
    }
    let grid = Grid::at(BASE_NS + 7_000 * SECOND_NS);
    let answer = world.answer("gpu_memory_used_bytes[2h]", grid, PromLimits::default()).unwrap();
    let Outcome::Ranges(found) = answer.result else { panic!("it asks for a range") };
    let found: BTreeMap<String, Vec<(i64, f64)>> =
        found.into_iter().map(|(labels, points)| (labels.get("uuid").to_owned(), points)).collect();
    assert_eq!(found, expected);
}

#[test]
fn figures_stand_in_for_too_many_values_and_the_answer_says_so() {
    let world = World::new();
    // Of 8 GPUs a value a second would be 36,000, figures of 10 s are 3,600.
    let few = PromLimits { values_max: 6_000, ..PromLimits::default() };
    for (text, allowed) in [
        // A figure may count for the 15 s before or after the ends of its range.
        ("avg_over_time(gpu_utilization_ratio[10m])", 0.1),
        ("max_over_time(gpu_utilization_ratio[10m])", 0.1),
        ("count_over_time(gpu_utilization_ratio[10m])", 1.0),
        ("rate(gpu_energy_joules_total[10m])", 4.0),
    ] {
        let (exact, notes) = world.series(text, whole(), PromLimits::default());
        assert!(notes.is_empty(), "{text}: {notes:?}");
        let (coarse, notes) = world.series(text, whole(), few);
        assert!(notes[0].contains("figures of 10 s"), "{text}: {notes:?}");
        assert_eq!(exact.len(), coarse.len());
        for (exact, coarse) in exact.iter().zip(&coarse) {
            assert_eq!(exact.labels, coarse.labels);
            let pairs = exact.values.iter().zip(&coarse.values);
            let apart =
                pairs.filter_map(|(one, other)| Some(((*one)? - (*other)?).abs())).fold(0.0, f64::max);
            assert!(apart <= allowed, "{text}: {apart}");
        }
    }
    let (exact, _) = world.series("gpu_power_watts", whole(), PromLimits::default());
    let coarse = PromLimits { scanned_max: 1_000, ..PromLimits::default() };
    let (older, notes) = world.series("gpu_power_watts", whole(), coarse);
    assert!(notes[0].contains("figures of 60 s"), "{notes:?}");
    assert_eq!(exact.len(), older.len());
    let refused = world.answer("avg_over_time(gpu_power_watts[20s])", whole(), few).unwrap_err();
    assert!(matches!(&refused, PromError::TooMuch(text) if text.contains("shorter range")), "{refused}");
    let refused =
        world.answer("gpu_power_watts", whole(), PromLimits { values_max: 100, ..few }).unwrap_err();
    assert!(matches!(refused, PromError::TooMuch(_)), "{refused}");
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let world = World::new();
    let refused =
        |text: &str| world.answer(text, Grid::at(BASE_NS), PromLimits::default()).unwrap_err().to_string();
    for (text, words) in [
        ("gpu_up", "gpu_up, which is not a column"),
        ("sum(gpu_condition{severity=\"critical\"})", "gpu_condition, which is not a column"),
        ("histogram_quantile(0.9, gpu_power_watts)", "the function histogram_quantile is not supported"),
        ("limitk(2, gpu_power_watts)", "limitk"),
        ("gpu_power_watts{node=\"a\" or node=\"b\"}", "`or` between matchers is not supported"),
        ("rate(gpu_power_watts)", "expected type"),
        ("sum(", "unclosed left parenthesis"),
        ("gpu_power_watts{node=~\"(\"}", "regex"),
        ("label_replace(gpu_power_watts, \"a-b\", \"\", \"node\", \"\")", "\"a-b\" is no name of a label"),
        ("gpu_power_watts[5m] offset 300y", "292 years"),
    ] {
        let said = refused(text);
        assert!(said.contains(words), "{text}: {said}");
    }
    // What stands in quotes does not nest.
    let uuids = vec!["GPU-5fd4f087-86f3-4a1b-(0)"; 100].join("|");
    let text = format!("gpu_power_watts{{uuid=~\"{uuids}\"}}");
    assert!(world.answer(&text, Grid::at(BASE_NS), PromLimits::default()).is_ok());
    // Bombs: long, deep, wide.
    assert!(refused(&"1+".repeat(20_000)).contains("16384 bytes"));
    assert!(refused(&format!("{}1{}", "(".repeat(900), ")".repeat(900))).contains("deep"));
    assert!(refused(&format!("{}vector(1){}", "abs(".repeat(100), ")".repeat(100))).contains("deep"));
    assert!(refused(&format!("{}1", "-".repeat(700))).contains("deep"));
    assert!(refused(&format!("1{}", "+1".repeat(700))).contains("deep"));
    assert!(refused("sum_over_time(vector(1)[1000d:1s])").contains("steps"));
}

#[test]
fn series_labels_and_families_can_be_browsed() {
    let world = World::new();
    let run = &world.runtime;
    let (start_ns, end_ns) = (BASE_NS, BASE_NS + ROWS * EVERY_NS);
    let found = run.block_on(series(
        &world.store,
        &["gpu_power_watts{node=\"n1\"}".to_owned(), "gpu_clock_hertz{clock=\"sm\"}".to_owned()],
        start_ns,
        end_ns,
    ));
    // Two GPUs of AMD have no clock of this name.
    assert_eq!(found.unwrap().answer.len(), 4 + 6);
    let names = run.block_on(label_names(&world.store, &[], start_ns, end_ns)).unwrap().answer;
    for name in [
        "__name__", "gpu", "uuid", "node", "cluster", "instance", "pod", "clock", "sensor", "Hostname",
        "model",
    ] {
        assert!(names.contains(name), "{name} is not among {names:?}");
    }
    let values = |name: &str, selectors: &[String]| {
        let found =
            run.block_on(label_values(&world.store, name, selectors, start_ns, end_ns)).unwrap().answer;
        found.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(values("node", &[]), ["n0", "n1"]);
    assert_eq!(values("vendor", &[]), ["amd", "nvidia"]);
    assert_eq!(values("node", &["gpu_power_watts{vendor=\"amd\"}".to_owned()]), ["n1"]);
    assert!(values("sensor", &[]).contains(&"memory".to_owned()));
    assert!(values("__name__", &[]).contains(&"DCGM_FI_DEV_GPU_UTIL".to_owned()));
    let nothing = run.block_on(series(&world.store, &["gpu_power_watts".to_owned()], 0, 1)).unwrap().answer;
    assert!(nothing.is_empty(), "before the first row: {nothing:?}");
    let power = families().into_iter().find(|family| family.name == "gpu_power_watts").unwrap();
    assert_eq!((power.kind, power.unit), ("gauge", "watts"));
}
