//! What is read of a history: the values of its rows, figures where there are too many, and which series there are.

use std::collections::{BTreeMap, BTreeSet};

use std::time::Duration;

use gpuvitals_core::batch::{BatchBuilder, Value};
use gpuvitals_core::history::{History, RowsQuery};
use gpuvitals_core::{Batch, Identity, IdentityColumn, MetricId, Origin, Table};
use gpuvitals_promql::{
    Grid, Outcome, PromAnswer, PromError, PromLimits, PromSeries, WantedSeries, families, label_names,
    label_values, query, series,
};
use gpuvitals_rig::waiting::watched;
use gpuvitals_store::{Store, StoreConfig};

use crate::queries::of_dashboards;
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
    let few = PromLimits { values_max: 6_000, scanned_max: 1_000 };
    for (text, allowed) in [
        // A figure may count for the 15 s before or after the ends of its range.
        ("avg_over_time(gpu_utilization_ratio[10m])", 0.1),
        ("max_over_time(gpu_utilization_ratio[10m])", 0.1),
        ("count_over_time(gpu_utilization_ratio[10m])", 1.0),
        ("rate(gpu_energy_joules_total[10m])", 4.0),
        ("quantile_over_time(0.5, gpu_utilization_ratio[10m])", 0.1),
    ] {
        let (exact, notes) = world.series(text, whole(), PromLimits::default());
        assert!(notes.is_empty(), "{text}: {notes:?}");
        let (coarse, notes) = world.series(text, whole(), few);
        assert!(notes[0].contains("one by one: 10 s rollups were read"), "{text}: {notes:?}");
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
    assert!(notes[0].contains("60 s rollups were read"), "{notes:?}");
    assert_eq!(exact.len(), older.len());
    let refused = world.answer("avg_over_time(gpu_power_watts[20s])", whole(), few).unwrap_err();
    assert!(matches!(&refused, PromError::TooMuch(text) if text.contains("shorter range")), "{refused}");
    let refused =
        world.answer("gpu_power_watts", whole(), PromLimits { values_max: 100, ..few }).unwrap_err();
    assert!(matches!(refused, PromError::TooMuch(_)), "{refused}");
}

#[test]
fn ranges_that_consist_of_equal_steps_are_read_as_figures_whose_values_would_be_too_many() {
    let world = World::new();
    let few = PromLimits { values_max: 6_000, ..PromLimits::default() };
    for text in [
        "max_over_time(gpu_utilization_ratio[10m])",
        "avg_over_time(gpu_memory_used_bytes[10m])",
        "rate(gpu_energy_joules_total[10m])",
        "last_over_time(gpu_power_watts[10m])",
    ] {
        let (exact, _) = world.series(text, whole(), PromLimits::default());
        assert_eq!(world.series(text, whole(), few), (exact, Vec::new()), "{text}");
    }
}

/// The newest of each value that a function of a range gives.
fn values(series: &[PromSeries]) -> Vec<f64> {
    series.iter().flat_map(|one| &one.values).copied().flatten().collect()
}

/// A store in a folder, with rows of a GPU every so often; the power has a decimal, the energy counts.
fn store(folder: &std::path::Path, every_ns: i64, times: std::ops::Range<i64>) -> Store {
    let config = StoreConfig {
        merge: true,
        merge_after: Duration::ZERO,
        day_bytes: 0,
        rollup_rows: 5,
        flush_age: Duration::from_hours(24),
        ..StoreConfig::new(folder)
    };
    let (store, _) = Store::open(config).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // Several files, so that they are merged.
    let rows: Vec<i64> = times.collect();
    for rows in rows.chunks(rows.len().div_ceil(4).max(1)) {
        let batch = batch(rows.iter().map(|at| (at * every_ns, *at)));
        runtime.block_on(store.append(vec![batch])).unwrap();
        runtime.block_on(store.flush()).unwrap();
    }
    store
}

fn batch(rows: impl Iterator<Item = (i64, i64)>) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let identity = Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap();
    let identity = builder.intern(&identity);
    for (after_ns, number) in rows {
        let row = builder.row(BASE_NS + after_ns, identity);
        builder.set(row, MetricId::of("power_w"), Value::Float32(power_of(number))).unwrap();
        builder.set(row, MetricId::of("energy_mj"), Value::Int(number * 7_000)).unwrap();
    }
    builder.finish(Origin::default(), 0).unwrap()
}

/// Watts with a decimal.
fn power_of(number: i64) -> f32 {
    f32::from(u16::try_from(1_000 + number * 37 % 501).unwrap()) / 10.0
}

/// The same as people read it.
fn power(number: i64) -> f64 {
    power_of(number).to_string().parse().unwrap()
}

fn ask(store: &Store, text: &str, grid: Grid) -> (Vec<f64>, Vec<String>) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let answer = runtime.block_on(query(store, text, grid, PromLimits::default())).unwrap();
    let Outcome::Vector(series) = answer.result else { panic!("{text} gives no series") };
    (values(&series), answer.notes)
}

#[test]
fn each_value_counts_also_of_rows_within_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), SECOND_NS / 4, 0..400);
    // 30 s, of which the first is not one.
    let grid = Grid::at(BASE_NS + 50 * SECOND_NS);
    let mut wanted: Vec<f64> = (81..=200).map(power).collect();
    wanted.sort_by(f64::total_cmp);
    let mean = wanted.iter().sum::<f64>() / 120.0;
    let close = |text: &str, wanted: f64| {
        let (found, notes) = ask(&store, text, grid);
        assert!(notes.is_empty() && found.len() == 1, "{text}: {found:?} {notes:?}");
        assert!((found[0] - wanted).abs() < 1e-9 * wanted, "{text}: {} and not {wanted}", found[0]);
    };
    close("avg_over_time(gpu_power_watts[30s])", mean);
    close("sum_over_time(gpu_power_watts[30s])", mean * 120.0);
    close("count_over_time(gpu_power_watts[30s])", 120.0);
    close("max_over_time(gpu_power_watts[30s])", wanted[119]);
    close("quantile_over_time(0.5, gpu_power_watts[30s])", f64::midpoint(wanted[59], wanted[60]));
    let variance = wanted.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 120.0;
    close("stddev_over_time(gpu_power_watts[30s])", variance.sqrt());
    close("irate(gpu_energy_joules_total[30s])", 28.0);
    close("rate(gpu_energy_joules_total[30s])", 28.0);
}

/// Rows of many GPUs or hosts, each with the same values at the same times.
fn many(
    folder: &std::path::Path,
    column: &str,
    names: IdentityColumn,
    count: usize,
    times_ns: &[i64],
) -> Store {
    let (store, _) = Store::open(StoreConfig::new(folder)).unwrap();
    let column = MetricId::of(column);
    let mut builder = BatchBuilder::new(column.metric().table);
    for number in 0..count {
        let identity = Identity::default().with(names, &format!("x{number:04}")).unwrap();
        let identity = builder.intern(&identity);
        for (value, &after_ns) in times_ns.iter().enumerate() {
            let row = builder.row(BASE_NS + after_ns, identity);
            builder.set(row, column, Value::Float32(value as f32)).unwrap();
        }
    }
    let batch = builder.finish(Origin::default(), 0).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(store.append(vec![batch])).unwrap();
    store
}

#[test]
fn figures_of_many_gpus_are_asked_for_by_turns() {
    let folder = tempfile::tempdir().unwrap();
    let store =
        many(folder.path(), "utilization_pct", IdentityColumn::Uuid, 1_100, &[0, 8 * 3_600 * SECOND_NS]);
    let grid = Grid::between(BASE_NS, BASE_NS + 8 * 3_600 * SECOND_NS, 60 * SECOND_NS).unwrap();
    // 1,100 GPUs × 485 minutes × 4 figures are more than a history answers at once.
    let (found, notes) = ask(&store, "max_over_time(gpu_utilization_ratio[5m])", grid);
    assert_eq!((found.len(), notes), (1_100 * 6, Vec::new()));
}

#[test]
fn hosts_are_asked_for_by_turns_and_those_without_gpus_are_among_them() {
    let folder = tempfile::tempdir().unwrap();
    let ends = [0, SECOND_NS / 2, 86_000 * SECOND_NS];
    let store = many(folder.path(), "cpu_pct", IdentityColumn::Node, 40, &ends);
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    for number in 0..39 {
        let identity = Identity::default().with(IdentityColumn::Uuid, &format!("GPU-{number}")).unwrap();
        let identity = identity.with(IdentityColumn::Node, &format!("x{number:04}")).unwrap();
        let identity = builder.intern(&identity);
        builder.row(BASE_NS, identity);
    }
    let batch = builder.finish(Origin::default(), 1).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(store.append(vec![batch])).unwrap();
    // Two rows within a second: each row is read, of one host at a time.
    let (found, notes) =
        ask(&store, "avg_over_time(host_cpu_utilization_ratio[1d])", Grid::at(BASE_NS + 86_300 * SECOND_NS));
    assert_eq!((found.len(), notes.len()), (40, 0), "{notes:?}");
    assert!(found.iter().all(|mean| (mean - 0.01).abs() < 1e-9), "{found:?}");
}

#[test]
fn where_rows_have_been_deleted_ranges_come_from_rollups_and_the_answer_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = store(folder.path(), SECOND_NS, 0..7_200);
    let until = |store: &Store, done: fn(&Store) -> bool| {
        runtime.block_on(watched("what is visible", || done(store)));
    };
    until(&store, |store| (store.stats().flushed.files, store.stats().merged.files) == (0, 2));
    let grid =
        Grid::between(BASE_NS + 1_803 * SECOND_NS, BASE_NS + 6_003 * SECOND_NS, 60 * SECOND_NS).unwrap();
    let texts = [
        ("gpu_power_watts", 51.0),
        ("avg_over_time(gpu_power_watts[10m])", 1.0),
        ("max_over_time(gpu_power_watts[10m])", 0.3),
        ("count_over_time(gpu_power_watts[10m])", 10.0),
        ("quantile_over_time(0.5, gpu_power_watts[10m])", 10.0),
        ("rate(gpu_energy_joules_total[10m])", 0.2),
        ("increase(gpu_energy_joules_total[1m])", 80.0),
    ];
    let before = texts.map(|(text, _)| ask(&store, text, grid));
    assert!(before.iter().all(|(found, notes)| found.len() == grid.count && notes.is_empty()), "{before:?}");
    runtime.block_on(store.close()).unwrap();
    drop(store);
    let config = StoreConfig { keep: Some(Duration::from_mins(30)), ..StoreConfig::new(folder.path()) };
    let (store, _) = Store::open(config).unwrap();
    // A newer row makes the others old.
    runtime.block_on(store.append(vec![batch([(9_000 * SECOND_NS, 9_000)].into_iter())])).unwrap();
    runtime.block_on(store.flush()).unwrap();
    until(&store, |store| store.stats().rows_too_old == 7_200);
    for ((text, allowed), (exact, _)) in texts.into_iter().zip(before) {
        let (found, notes) = ask(&store, text, grid);
        assert_eq!(found.len(), exact.len(), "{text}");
        assert!(notes.iter().any(|note| note.contains("kept only as 10 s rollups")), "{text}: {notes:?}");
        let apart = found.iter().zip(&exact).map(|(one, other)| (one - other).abs()).fold(0.0, f64::max);
        assert!(apart <= allowed, "{text}: {apart}");
    }
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let world = World::new();
    let refused =
        |text: &str| world.answer(text, Grid::at(BASE_NS), PromLimits::default()).unwrap_err().to_string();
    for (text, words) in [
        ("gpu_up", "gpu_up is made by an exporter"),
        ("sum(gpu_condition{severity=\"critical\"})", "gpu_condition is made by an exporter"),
        ("histogram_quantile(0.9, gpu_power_watts)", "the function histogram_quantile is not supported"),
        ("limitk(2, gpu_power_watts)", "limitk"),
        ("gpu_power_watts{node=\"a\" or node=\"b\"}", "`or` between matchers is not supported"),
        ("rate(gpu_power_watts)", "expected type"),
        ("sum(", "unclosed left parenthesis"),
        ("gpu_power_watts{node=~\"(\"}", "regex"),
        ("label_replace(gpu_power_watts, \"a-b\", \"\", \"node\", \"\")", "invalid label name \"a-b\""),
        ("gpu_power_watts[5m] offset 300y", "292 years"),
    ] {
        let said = refused(text);
        assert!(said.contains(words), "{text}: {said}");
    }
    // What stands in quotes does not nest.
    let uuids = vec!["GPU-5fd4f087-86f3-4a1b-(0)"; 100].join("|");
    let text = format!("gpu_power_watts{{uuid=~\"{uuids}\"}}");
    assert!(world.answer(&text, Grid::at(BASE_NS), PromLimits::default()).is_ok());
}

/// On a stack as small as that of a thread of a runtime.
fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(2 << 20).spawn(work).unwrap().join().unwrap();
}

#[test]
fn bombs_are_refused() {
    on_a_small_stack(|| {
        let world = World::new();
        let grid = Grid::between(BASE_NS, BASE_NS + 1_000 * SECOND_NS, SECOND_NS).unwrap();
        let limits = PromLimits { values_max: 100_000, ..PromLimits::default() };
        let all = "{__name__=~\"gpu_.*\"}";
        let nested = |of: &str, end: &str, times: usize, inner: &str| {
            format!("{}{inner}{}", of.repeat(times), end.repeat(times))
        };
        let doubled = r#", "node", "$1$1$1$1$1$1$1$1", "node", "(.*)")"#;
        let small = vec![r#"a=~"\\pL{30}\\pL{30}""#; 65].join(",");
        for (text, words) in [
            // Long, deep, wide.
            ("1+".repeat(20_000), "16384 bytes"),
            (nested("(", ")", 900, "1"), "deep"),
            (nested("abs(", ")", 100, "vector(1)"), "deep"),
            (nested("-", "", 700, "1"), "deep"),
            (nested("", "+1", 700, "1"), "deep"),
            (nested("", "*1", 8_000, "1"), "deep"),
            (nested("", "^1", 8_000, "1"), "deep"),
            (nested("", " or a", 3_200, "a"), "deep"),
            (nested("", ">bool 1", 2_000, "1"), "deep"),
            (nested("", "[1m:]", 3_000, "(a)"), "deep"),
            // What hides operators here hides them from the parser.
            (format!("# '\r{}", nested("(", ")", 5_000, "1")), "deep"),
            (format!("`\\`` == {}", nested("(", ")", 5_000, "1")), "deep"),
            ("sum_over_time(vector(1)[1000d:1s])".to_owned(), "steps"),
            ("max_over_time(gpu_power_watts[5m:0])".to_owned(), "greater than 0"),
            ("max_over_time(gpu_power_watts[5m:0.0000000001])".to_owned(), "greater than 0"),
            ("max_over_time(gpu_power_watts[0])".to_owned(), "greater than 0"),
            (format!("{{{small}}}"), "64 regular expressions"),
            (r#"gpu_info{node=~"((a{50}){50}){50}"}"#.to_owned(), "together when compiled"),
            // Short ones that come to much together.
            (format!("gpu_info{{{}}}", vec![r#"node=~".{0,300}""#; 60].join(",")), "together when compiled"),
            (nested("label_replace(", ", \"a\", \"b\", \"c\", \"d\")", 70, "gpu_info"), "64 regular"),
            (
                r#"label_replace(gpu_info, "a", "", "a", "((a{50}){50}){50}")"#.to_owned(),
                "together when compiled",
            ),
            // A text that grows.
            (nested("label_replace(", doubled, 12, "gpu_info"), "label may have 4096 bytes"),
            // Values: what is read, a series for each value, and what is kept of parts at a time.
            (format!("count({all})"), "reads more than 100000 values"),
            ("count_values(\"value\", gpu_power_watts)".to_owned(), "too many values"),
            (nested("gpu_power_watts or (", ")", 30, "gpu_power_watts"), "what else the query computes"),
        ] {
            let start: String = text.chars().take(60).collect();
            let asked = query(&world.store, &text, grid, limits);
            let answer =
                world.runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), asked).await });
            let answer = answer.unwrap_or_else(|_| panic!("{start} takes long"));
            let said = answer.err().unwrap_or_else(|| panic!("{start} is answered")).to_string();
            assert!(said.contains(words), "{start}: {said}");
        }
        let fine = nested("1 + ", "1", 1, &"1 + ".repeat(60));
        assert!(world.answer(&fine, Grid::at(BASE_NS), limits).is_ok(), "{fine}");
    });
}

#[test]
fn every_question_of_the_dashboards_of_the_history_has_an_answer() {
    let world = World::new();
    let questions = of_dashboards("gpuvitals-history-");
    let is_there = |text: &String| {
        let answer = world.answer(text, whole(), PromLimits::default());
        let answer = answer.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(answer.notes.is_empty() && answer.missing.is_empty(), "{text}: {:?}", answer.notes);
        matches!(answer.result, Outcome::Vector(series) if !series.is_empty())
    };
    // No GPU was idle for half an hour.
    let empty: Vec<&String> =
        questions.iter().filter(|text| !is_there(text) && !text.contains("< 0.01")).collect();
    assert!(
        questions.len() > 80 && empty.is_empty(),
        "{} questions, without values: {empty:#?}",
        questions.len()
    );
}

/// What these selectors match in the whole time of the world.
fn wanted(selectors: &[&str]) -> WantedSeries {
    let selectors = selectors.iter().map(|text| (*text).to_owned()).collect();
    WantedSeries { selectors, start_ns: BASE_NS, end_ns: BASE_NS + ROWS * EVERY_NS }
}

#[test]
fn series_labels_and_families_can_be_browsed() {
    let world = World::new();
    let run = &world.runtime;
    let found = run.block_on(series(
        &world.store,
        &wanted(&["gpu_power_watts{node=\"n1\"}", "gpu_clock_hertz{clock=\"sm\"}"]),
    ));
    // Two GPUs of AMD have no clock of this name.
    assert_eq!(found.unwrap().answer.len(), 4 + 6);
    let names = run.block_on(label_names(&world.store, &wanted(&[]))).unwrap().answer;
    for name in [
        "__name__", "gpu", "uuid", "node", "cluster", "instance", "pod", "clock", "sensor", "Hostname",
        "model",
    ] {
        assert!(names.contains(name), "{name} is not among {names:?}");
    }
    let values = |name: &str, selectors: &[&str]| {
        let found = run.block_on(label_values(&world.store, name, &wanted(selectors))).unwrap().answer;
        found.into_iter().collect::<Vec<_>>()
    };
    let all = run.block_on(series(&world.store, &wanted(&["{__name__=~\".+\"}"])));
    let of_series: BTreeSet<String> = all
        .unwrap()
        .answer
        .iter()
        .flat_map(|labels| labels.iter().map(|(name, _)| name.to_owned()))
        .collect();
    assert_eq!(names, of_series, "no label that no series has");
    assert_eq!(values("node", &[]), ["n0", "n1"]);
    assert_eq!(values("vendor", &[]), ["amd", "nvidia"]);
    assert_eq!(values("node", &["gpu_power_watts{vendor=\"amd\"}"]), ["n1"]);
    assert!(values("sensor", &[]).contains(&"memory".to_owned()));
    assert!(values("__name__", &[]).contains(&"DCGM_FI_DEV_GPU_UTIL".to_owned()));
    let before = WantedSeries { start_ns: 0, end_ns: 1, ..wanted(&["gpu_power_watts"]) };
    let nothing = run.block_on(series(&world.store, &before)).unwrap().answer;
    assert!(nothing.is_empty(), "before the first row: {nothing:?}");
    let power = families().into_iter().find(|family| family.name == "gpu_power_watts").unwrap();
    assert_eq!((power.kind, power.unit), ("gauge", "watts"));
}

/// Prometheus' names for the holder's labels of a scrape whose targets have such labels themselves.
#[test]
fn the_holder_answers_to_the_names_that_prometheus_gives_it() {
    let world = World::new();
    let grid = Grid::at(BASE_NS + 1_000 * SECOND_NS);
    let labels = |text: &str| {
        let (series, _) = world.series(text, grid, PromLimits::default());
        let one =
            |series: &PromSeries| series.labels.iter().map(|(name, text)| format!("{name}={text}")).collect();
        series.iter().map(one).collect::<Vec<Vec<String>>>()
    };
    for name in ["DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE", "gpu_attribution_info"] {
        let by =
            labels(&format!("count by (exported_pod, exported_namespace) ({name}{{exported_pod!=\"\"}})"));
        let pods = labels(&format!("count by (pod, namespace) ({name}{{pod!=\"\"}})"));
        let renamed =
            |labels: Vec<String>| labels.into_iter().map(|label| format!("exported_{label}")).collect();
        let mut wanted: Vec<Vec<String>> = pods.into_iter().map(renamed).collect();
        let mut found = by;
        found.sort();
        wanted.sort();
        assert!(found.len() > 3 && found == wanted, "{name}: {found:?}, not {wanted:?}");
    }
    let jobs = labels("sum by (exported_job) (gpu_attribution_info{exported_job=~\".+\"})");
    assert_eq!(jobs, [["exported_job=4711"]]);
    let joined = labels(
        "label_replace(DCGM_FI_DEV_GPU_UTIL{exported_pod=\"train-1\"}, \"pod\", \"$1\", \"exported_pod\", \"(.*)\") \
         * on (pod) group_left (exported_container) gpu_attribution_info{exported_container=\"main\"}",
    );
    assert!(joined.len() == 1 && joined[0].contains(&"exported_container=main".to_owned()), "{joined:?}");
    // A question that does not name them has none.
    assert!(labels("DCGM_FI_DEV_GPU_UTIL").iter().flatten().all(|label| !label.starts_with("exported_")));
    let run = &world.runtime;
    let values = |name: &str, selectors: &[&str]| {
        run.block_on(label_values(&world.store, name, &wanted(selectors))).unwrap().answer
    };
    for selectors in [vec![], vec!["DCGM_FI_DEV_GPU_UTIL"]] {
        assert_eq!(values("exported_namespace", &selectors), values("namespace", &selectors));
        assert!(values("exported_pod", &selectors).contains("train-11"));
    }
}

#[test]
fn a_ratio_has_no_more_digits_than_its_percentage() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(StoreConfig::new(folder.path())).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let identity = Identity::default().with(IdentityColumn::Uuid, "GPU-r").unwrap();
    let identity = builder.intern(&identity);
    let load = MetricId::of("utilization_pct");
    for percent in 0..1_000_i32 {
        let row = builder.row(BASE_NS + i64::from(percent) * SECOND_NS, identity);
        builder.set(row, load, Value::Float32(percent as f32 / 10.0)).unwrap();
    }
    runtime.block_on(store.append(vec![builder.finish(Origin::default(), 0).unwrap()])).unwrap();
    let grid = Grid::between(BASE_NS, BASE_NS + 999 * SECOND_NS, SECOND_NS).unwrap();
    for (text, grid) in [("gpu_utilization_ratio", grid), ("max_over_time(gpu_utilization_ratio[1s])", grid)]
    {
        let answer = runtime.block_on(query(&store, text, grid, PromLimits::default())).unwrap();
        let Outcome::Vector(series) = answer.result else { panic!("{text} gives no series") };
        for (percent, value) in (0..).zip(&series[0].values) {
            let expected: f64 = format!("{percent}e-3").parse().unwrap();
            assert_eq!(value.unwrap().to_bits(), expected.to_bits(), "{text}: {value:?}, not {expected}");
        }
    }
}
