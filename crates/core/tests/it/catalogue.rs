//! Rules for every row of the catalogue, and for the documents made from it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

use gpuvitals_core::catalogue::{self, ColumnType, Instrument, METRICS, Metric, Series, Table, Unit};

fn is_snake(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !name.ends_with('_')
        && !name.contains("__")
}

#[test]
fn promised_columns_have_their_names_and_types() {
    let promised = [
        ("gpu_clock_mhz", ColumnType::I32),
        ("mem_clock_mhz", ColumnType::I32),
        ("temperature_c", ColumnType::F32),
        ("power_w", ColumnType::F32),
        ("memory_used_mb", ColumnType::I64),
        ("utilization_pct", ColumnType::F32),
    ];
    for (at, (name, column_type)) in promised.into_iter().enumerate() {
        assert_eq!(METRICS[at].column, name, "the promised columns come first");
        assert_eq!(METRICS[at].column_type, column_type, "{name}");
        assert_eq!(METRICS[at].table, Table::GpuEvents, "{name}");
    }
    let host = [
        ("cpu_pct", ColumnType::F32),
        ("memory_mb", ColumnType::I64),
        ("ctx_switches", ColumnType::I64),
        ("page_faults", ColumnType::I64),
        ("irqs", ColumnType::I64),
        ("load1", ColumnType::F32),
    ];
    for ((name, column_type), (_, metric)) in host.into_iter().zip(catalogue::host_metrics()) {
        assert_eq!((metric.column, metric.column_type), (name, column_type));
    }
}

#[test]
fn tables_have_names_keys_and_columns_of_their_own() {
    let named = Table::ALL.map(Table::name);
    let names = [
        "gpu_events",
        "system_events",
        "gpu_details",
        "gpu_processes",
        "gpu_health_events",
        "gpu_usage",
        "jobs",
    ];
    assert_eq!(named, names);
    let key = |table: Table| table.key().map(|column| column.name).collect::<Vec<_>>();
    let keys = Table::ALL.map(key);
    assert_eq!(
        keys,
        [
            vec![],
            vec![],
            vec!["metric", "instance"],
            vec!["pid"],
            vec!["kind", "sequence"],
            vec!["holder", "share", "run"],
            vec!["job_id", "step", "told_by"]
        ]
    );
    let versions = Table::ALL.map(|table| table.version().map(|column| column.name));
    assert_eq!(versions, [None, None, None, None, None, Some("as_of_ns"), Some("as_of_ns")]);
    for (number, table) in Table::ALL.into_iter().enumerate() {
        assert_eq!(table as usize, number, "the number on the wire");
        assert_eq!(Table::by_name(table.name()), Some(table));
        for column in table.columns() {
            assert!(is_snake(column.name), "{}", column.name);
            assert!(column.help.ends_with('.'), "{}", column.name);
            let foreign = gpuvitals_core::batch::is_unknown(Table::GpuEvents, column.name);
            assert!(foreign, "{} means something else in other tables", column.name);
            assert_eq!(table.column(column.name), Some(column), "each name once");
        }
    }
}

#[test]
fn ids_are_positions_and_lookups_agree() {
    let both: Vec<_> = catalogue::gpu_metrics().chain(catalogue::host_metrics()).collect();
    assert_eq!(both.len(), METRICS.len());
    for (at, (id, metric)) in both.into_iter().enumerate() {
        assert_eq!(usize::from(id.0), at, "GPU columns come before those of the host");
        assert_eq!(metric.column, METRICS[at].column);
        assert_eq!(catalogue::by_column(metric.column), Some(id));
        assert_eq!(catalogue::by_alias(metric.column), Some(id), "a column is an alias of itself");
        assert_eq!(id.metric().column, metric.column);
        for alias in metric.aliases {
            assert_eq!(catalogue::by_alias(alias), Some(id), "{alias}");
        }
        for name in metric.dcgm {
            let (found, factor) = catalogue::by_dcgm(name.name).unwrap();
            assert!(found == id || TWICE.contains(&name.name), "{}", name.name);
            assert!((factor * name.factor - 1.0).abs() < 1e-12, "{}", name.name);
        }
    }
    assert_eq!(catalogue::by_column("nobody_knows"), None);
}

/// DCGM's field 155 is published as the mean power; it is understood as the power, and as the mean beside field 157.
const TWICE: [&str; 3] = ["DCGM_FI_DEV_POWER_USAGE", "dcgm_power_usage", "DCGM_FI_DEV_BOARD_POWER_WATTS"];

#[test]
fn a_dcgm_name_of_two_metrics_has_a_second_meaning_in_any_case() {
    let average = catalogue::by_column("power_average_w");
    for name in TWICE {
        assert_eq!(catalogue::second_by_dcgm(name), average, "{name}");
        assert_eq!(catalogue::second_by_dcgm(&name.to_ascii_lowercase()), average, "{name}");
    }
    for name in ["DCGM_FI_DEV_POWER_USAGE_INSTANT", "DCGM_FI_DEV_GPU_UTIL", "power_draw", "power_w"] {
        assert_eq!(catalogue::second_by_dcgm(name), None, "{name}");
    }
}

#[test]
fn a_name_belongs_to_one_metric() {
    let mut names: HashMap<String, &str> = HashMap::new();
    for metric in METRICS {
        for name in std::iter::once(&metric.column).chain(metric.aliases) {
            assert!(
                is_snake(name),
                "{name} would never be found: names are folded before they are looked up"
            );
            assert!(name.len() <= 64, "{name}");
            let other = names.insert((*name).to_owned(), metric.column);
            assert_eq!(other, None, "{name} of {} is taken", metric.column);
        }
    }
    let mut dcgm: HashMap<(String, bool), &str> = HashMap::new();
    let mut factors: HashMap<String, (&str, f64)> = HashMap::new();
    for metric in METRICS {
        for name in metric.dcgm {
            let key = name.name.to_ascii_uppercase();
            if metric.column == "power_average_w" && TWICE.contains(&name.name) {
                continue;
            }
            let other = dcgm.insert((key.clone(), name.modern), metric.column);
            assert_eq!(other, None, "{} of {} is taken", name.name, metric.column);
            let (owner, factor) = *factors.entry(key).or_insert((metric.column, name.factor));
            assert_eq!(owner, metric.column, "{}", name.name);
            assert!((factor - name.factor).abs() < f64::EPSILON, "{} has two factors", name.name);
        }
    }
}

#[test]
fn columns_end_in_their_unit_and_help_is_a_sentence() {
    let suffixes = [
        "_pct",
        "_ratio",
        "_mhz",
        "_c",
        "_w",
        "_mj",
        "_mb",
        "_rpm",
        "_mv",
        "_ns",
        "_gtps",
        "_bytes_per_s",
        "_bytes",
    ];
    for metric in METRICS {
        let Metric { column, unit, help, .. } = metric;
        assert!(is_snake(column), "{column}");
        assert!(column.ends_with(unit.column_suffix()), "{column} is in {unit}");
        if *unit == Unit::None {
            assert!(!suffixes.iter().any(|suffix| column.ends_with(suffix)), "{column} claims a unit");
        }
        assert!(help.ends_with('.') && !help.ends_with(".."), "{column}: {help}");
        assert!(help.starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit()), "{column}: {help}");
        assert!(!help.contains("  ") && !help.contains('|') && !help.contains('\n'), "{column}: {help}");
    }
}

#[test]
fn ranges_hold_values_and_refuse_blanks() {
    for metric in METRICS {
        let Metric { column, range: (low, high), .. } = metric;
        assert!(low.is_finite() && high.is_finite() && low < high, "{column}");
        let fits = match metric.column_type {
            ColumnType::I32 => *low >= f64::from(i32::MIN) && *high <= f64::from(i32::MAX),
            ColumnType::I64 => *low >= -9.2e18 && *high <= 9.2e18,
            ColumnType::F32 | ColumnType::F64 => true,
        };
        assert!(fits, "{column}: the range passes its type");
        // DCGM's "not supported" and its kin, as 32-bit, 64-bit and floating blanks; all-ones read as signed.
        assert!(*high < 9_223_372_036_854_775_792.0, "{column}");
        assert!(*low > -1.0 || metric.unit == Unit::Celsius, "{column}: -1 must be refused");
        if metric.column_type != ColumnType::I64 {
            assert!(*high < 140_737_488_355_328.0, "{column}");
        }
        if metric.column_type == ColumnType::I32 {
            assert!(*high < 2_147_483_632.0, "{column}");
        }
        if metric.instrument == Instrument::Counter {
            assert!(*low >= 0.0, "{column}: a counter is not negative");
        }
        if metric.unit == Unit::Celsius {
            assert!(*low > -273.0, "{column}: amdgpu's unset limit must be refused");
        }
        // The largest real values, and a blank or a wrong sign in the same column.
        let (real, blank) = match metric.unit {
            Unit::Watt if column.starts_with("module_") => (3_300.0, 42_949.7),
            Unit::Watt => (1_400.0, 4_294.97),
            Unit::Megahertz => (18_000.0, 32_768.0),
            Unit::Rpm => (25_000.0, 65_535.0),
            _ => continue,
        };
        assert!(metric.admits(real) && !metric.admits(blank), "{column}");
    }
}

#[test]
fn prometheus_names_follow_the_rules() {
    for metric in METRICS {
        let name = metric.prometheus;
        assert!(is_snake(name), "{name}");
        let prefix = if metric.table == Table::GpuEvents { "gpu_" } else { "host_" };
        assert!(name.starts_with(prefix), "{name}");
        assert!(!name.starts_with("gpu_gpu_"), "{name}");
        let counter = metric.instrument == Instrument::Counter;
        assert_eq!(name.ends_with("_total"), counter, "{name} of {}", metric.column);
        let stem = name.strip_suffix("_total").unwrap_or(name);
        let base = metric.unit.base();
        if base.is_empty() {
            for unit in [
                "ratio",
                "hertz",
                "celsius",
                "watts",
                "joules",
                "bytes",
                "rpm",
                "volts",
                "seconds",
                "per_second",
            ] {
                assert!(
                    !stem.ends_with(&format!("_{unit}")),
                    "{name} claims a unit that {} has not",
                    metric.column
                );
            }
        } else {
            assert!(stem.ends_with(&format!("_{base}")), "{name} is in {base}");
        }
        assert!((metric.factor - metric.unit.base_factor()).abs() < f64::EPSILON, "{name}");
        for reserved in ["_bucket", "_count", "_sum", "_info", "_created", "_window"] {
            assert!(!name.ends_with(reserved), "{name} ends as something else would");
        }
    }
}

#[test]
fn a_family_is_of_one_kind_and_its_series_differ() {
    let mut families: BTreeMap<&str, Vec<&Metric>> = BTreeMap::new();
    for metric in METRICS {
        families.entry(metric.prometheus).or_default().push(metric);
    }
    for (family, metrics) in families {
        let keys = |metric: &Metric| metric.labels.iter().map(|(key, _)| *key).collect::<BTreeSet<_>>();
        let mut series = HashSet::new();
        for metric in &metrics {
            assert_eq!(metric.unit.base(), metrics[0].unit.base(), "{family}");
            assert_eq!(
                metric.instrument == Instrument::Counter,
                metrics[0].instrument == Instrument::Counter,
                "{family}"
            );
            assert_eq!(keys(metric), keys(metrics[0]), "{family}: one set of labels");
            assert!(series.insert(metric.labels), "{family}: {} has a double", metric.column);
            for (key, text) in metric.labels {
                assert!(is_snake(key), "{family}: {key}");
                assert!(!text.is_empty() && !text.contains(['"', '\\', '\n']), "{family}: {text}");
                assert!(
                    !["gpu", "uuid", "vendor", "stat"].contains(key),
                    "{family}: {key} is an identity label"
                );
                assert_ne!(Some(*key), metric.scope.label(), "{family}");
            }
        }
    }
}

#[test]
fn the_standard_set_stays_within_its_budget() {
    let count =
        |wanted: fn(&Metric) -> bool| catalogue::gpu_metrics().filter(|(_, metric)| wanted(metric)).count();
    let series = count(|metric| metric.series <= Series::Standard);
    // Besides the catalogue a GPU has these series in the exposition: info and state (info, attribution, up,
    // state change, last sample, update interval, samples, absences by six reasons), totals (busy, throttled,
    // unobserved), and windows: their end, and min, max, mean and p99 of five metrics. The exposition's own
    // test counts them all.
    let (about, totals, windows) = (13, 3, 1 + 4 * 5);
    assert!(series + about + totals + windows <= 100, "{series} series");
    assert!(count(|metric| metric.series == Series::Basic) <= 12);
}

#[test]
fn dcgm_names_have_their_units() {
    // name, column, DCGM's value, the column's value
    let known = [
        ("DCGM_FI_DEV_SM_CLOCK", "sm_clock_mhz", 1980.0, 1980.0),
        ("DCGM_FI_DEV_SM_CLOCK_HERTZ", "sm_clock_mhz", 1.98e9, 1980.0),
        ("DCGM_FI_DEV_MEM_CLOCK", "mem_clock_mhz", 2619.0, 2619.0),
        ("DCGM_FI_DEV_MEMORY_CLOCK_HERTZ", "mem_clock_mhz", 2.619e9, 2619.0),
        ("DCGM_FI_DEV_GPU_TEMP", "temperature_c", 63.0, 63.0),
        ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", "temperature_c", 63.0, 63.0),
        ("DCGM_FI_DEV_MEMORY_TEMP", "temperature_memory_c", 71.0, 71.0),
        ("DCGM_FI_DEV_POWER_USAGE", "power_w", 156.596, 156.596),
        ("DCGM_FI_DEV_BOARD_POWER_WATTS", "power_w", 156.596, 156.596),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "energy_mj", 322_435_711_239.0, 322_435_711_239.0),
        ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", "energy_mj", 322_435_711.0, 322_435_711_000.0),
        ("DCGM_FI_DEV_GPU_UTIL", "utilization_pct", 97.0, 97.0),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", "utilization_pct", 0.97, 97.0),
        ("DCGM_FI_DEV_MEM_COPY_UTIL", "memory_utilization_pct", 76.0, 76.0),
        ("DCGM_FI_DEV_MEMORY_UTIL_RATIO", "memory_utilization_pct", 0.76, 76.0),
        ("DCGM_FI_DEV_ENC_UTIL_RATIO", "encoder_utilization_pct", 1.0, 100.0),
        ("DCGM_FI_DEV_DEC_UTIL", "decoder_utilization_pct", 4.0, 4.0),
        ("DCGM_FI_DEV_FB_USED", "memory_used_mb", 77_413.0, 77_413.0),
        ("DCGM_FI_DEV_FB_USED_BYTES", "memory_used_mb", 81_173_413_888.0, 77_413.0),
        ("DCGM_FI_DEV_FB_FREE", "memory_free_mb", 3594.0, 3594.0),
        ("DCGM_FI_DEV_FB_RESERVED_BYTES", "memory_reserved_mb", 578_813_952.0, 552.0),
        ("DCGM_FI_DEV_FB_CAPACITY_BYTES", "memory_total_mb", 85_520_809_984.0, 81_559.0),
        ("DCGM_FI_DEV_FB_USED_PERCENT", "memory_used_pct", 0.955, 95.5),
        ("DCGM_FI_DEV_FAN_SPEED_RATIO", "fan_speed_pct", 0.3, 30.0),
        ("DCGM_FI_DEV_POWER_VIOLATION", "throttled_power_ns", 2.5e9, 2.5e9),
        ("DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL", "throttled_power_ns", 2.5, 2.5e9),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "tensor_active_ratio", 0.92926, 0.92926),
        ("DCGM_FI_PROF_PCIE_RX_BYTES", "pcie_rx_bytes_per_s", 97_863_601.0, 97_863_601.0),
        ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "interconnect_bytes_per_s", 1000.0, 1_024_000_000.0),
        ("DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND", "interconnect_bytes_per_s", 1e9, 1e9),
        ("DCGM_FI_DEV_XID_ERRORS", "xid_last", 79.0, 79.0),
        ("DCGM_FI_DEV_XID_ERROR", "xid_last", 79.0, 79.0),
        ("DCGM_FI_DEV_PCIE_REPLAY_TOTAL", "pcie_replays", 7.0, 7.0),
        ("DCGM_FI_DEV_ROW_REMAP_FAILED", "remapped_rows_failed", 1.0, 1.0),
        ("dcgm_gpu_utilization", "utilization_pct", 97.0, 97.0),
        ("dcgm_fi_prof_dram_active", "dram_active_ratio", 0.5, 0.5),
    ];
    for (name, wanted, foreign, own) in known {
        let (id, factor) = catalogue::by_dcgm(name).unwrap_or_else(|| panic!("{name} is not known"));
        assert_eq!(id.metric().column, wanted, "{name}");
        let value = foreign * factor;
        assert!((value - own).abs() <= own.abs() * 1e-12, "{name}: {value} instead of {own}");
    }
    for stranger in ["DCGM_FI_DEV_VGPU_LICENSE_STATUS", "DCGM_FI_DRIVER_VERSION", "GPU_UTIL", "", "DCGM"] {
        assert_eq!(catalogue::by_dcgm(stranger), None, "{stranger}");
    }
}

#[test]
fn whole_numbers_survive_the_way_through_dcgm() {
    for metric in
        METRICS.iter().filter(|metric| matches!(metric.column_type, ColumnType::I32 | ColumnType::I64))
    {
        for name in metric.dcgm {
            let (_, back) = catalogue::by_dcgm(name.name).unwrap();
            for whole in [0.0, 1.0, 345.0, 1755.0, 1980.0, 14_001.0, 81_559.0] {
                assert!(((whole * name.factor * back).round() - whole).abs() < 0.5, "{} {whole}", name.name);
            }
        }
    }
}

/// If the shared fixtures are beside the checkout, every field that dcgm-exporter publishes by default is
/// known.
#[test]
fn fields_of_dcgm_exporter_are_known() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/nvidia/dcgm-exporter");
    if !folder.is_dir() {
        eprintln!("skipped: {} is not there", folder.display());
        return;
    }
    // A licence is not a measurement; the exporter's own counts are windows, not counters.
    let left_out =
        ["DCGM_FI_DEV_VGPU_LICENSE_STATUS", "DCGM_FI_DEV_NVLINK_BANDWIDTH_L0", "dcgm_vgpu_license_status"];
    let mut known = 0;
    for file in ["default-counters.csv", "dcp-metrics-included.csv", "1.x-compatibility-metrics.csv"] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        for line in text.lines() {
            let mut cells = line.trim_start_matches(['#', ' ']).split(',').map(str::trim);
            let (Some(field), Some(kind)) = (cells.next(), cells.next()) else { continue };
            let ours = field.starts_with("DCGM_FI_") || field.starts_with("dcgm_");
            if ours && matches!(kind, "gauge" | "counter") && !left_out.contains(&field) {
                assert!(catalogue::by_dcgm(field).is_some(), "{field} of {file}");
                known += 1;
            }
        }
    }
    assert!(known > 80, "only {known} fields were found in the files");
}

#[test]
fn foreign_spellings_find_their_column() {
    let known = [
        ("temperature", "temperature_c"),
        ("utilization", "utilization_pct"),
        ("memory_used", "memory_used_mb"),
        ("power_draw", "power_w"),
        ("gpu_temp", "temperature_c"),
        ("GPU-Util", "utilization_pct"),
        ("utilization.gpu [%]", "utilization_pct"),
        ("utilization.memory [%]", "memory_utilization_pct"),
        (" power.draw [W]", "power_w"),
        ("power.draw.average [W]", "power_average_w"),
        ("memory.used [MiB]", "memory_used_mb"),
        ("memory.total [MiB]", "memory_total_mb"),
        ("clocks.current.sm [MHz]", "sm_clock_mhz"),
        ("clocks.sm", "sm_clock_mhz"),
        ("clocks.gr", "gpu_clock_mhz"),
        ("temperature.gpu", "temperature_c"),
        ("fan.speed [%]", "fan_speed_pct"),
        ("enforced.power.limit [W]", "power_limit_enforced_w"),
        ("pcie.link.gen.current", "pcie_gen"),
        ("ecc.errors.uncorrected.volatile.total", "ecc_uncorrected_volatile"),
        ("GPU use (%)", "utilization_pct"),
        ("Temperature (Sensor junction) (C)", "temperature_junction_c"),
        ("Current Socket Graphics Package Power (W)", "power_w"),
        ("GPU Memory Read/Write Activity (%)", "memory_utilization_pct"),
        ("Power_W", "power_w"),
        // what a node of a cluster reports
        ("temperature_celsius", "temperature_c"),
        ("utilization_gpu_percent", "utilization_pct"),
        ("utilization_memory_percent", "memory_utilization_pct"),
        ("memory_total_mb", "memory_total_mb"),
        ("memory_free_mb", "memory_free_mb"),
        ("power_draw_watts", "power_w"),
        ("power_limit_watts", "power_limit_w"),
        ("pcie_generation", "pcie_gen"),
        ("pcie_link_width", "pcie_width"),
        ("fan_speed_percent", "fan_speed_pct"),
        ("context switches", "ctx_switches"),
    ];
    for (name, wanted) in known {
        let found = catalogue::by_alias(name).map(|id| id.metric().column);
        assert_eq!(found, Some(wanted), "{name}");
    }
    // Another unit is another thing: nothing may be read in the wrong one.
    for stranger in [
        "memory.used [B]",
        "VRAM Total Used Memory (B)",
        "power.draw [mW]",
        "energy (kWh)",
        "clocks_event_reasons_counters.sw_power_cap [us]",
        "memory_used_bytes",
        "batch_loss",
        "",
        "[W]",
        "_",
    ] {
        assert_eq!(catalogue::by_alias(stranger), None, "{stranger}");
    }
    assert_eq!(catalogue::by_alias(&"x".repeat(10_000_000)), None);
}

#[test]
fn typing_errors_get_a_suggestion() {
    for (typed, wanted) in [
        ("powr_w", Some("power_w")),
        ("utilisation_pct", Some("utilization_pct")),
        ("temprature", Some("temperature_c")),
        ("MEMORY.USED.MB", Some("memory_used_mb")),
        ("ctx_switch", Some("ctx_switches")),
        ("entirely_else_and_long", None),
        ("日本語", None),
        ("", None),
    ] {
        assert_eq!(catalogue::suggest(typed), wanted, "{typed}");
    }
    assert_eq!(catalogue::suggest(&"x".repeat(10_000_000)), None);
}

#[test]
fn the_table_fits_a_terminal_and_filters() {
    let all = catalogue::table("");
    let widest = all.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 120, "{widest}");
    assert!(METRICS.iter().all(|metric| all.lines().any(|line| line.starts_with(metric.column))));
    let power = catalogue::table(" Power ");
    assert!(power.contains("power_limit_w") && !power.contains("load15"));
    assert!(catalogue::table("DCGM_FI_DEV_GPU_UTIL").contains("utilization_pct"), "found by a foreign name");
    assert_eq!(catalogue::table("nobody has this").lines().count(), 1, "only the heads");
}

#[test]
fn json_has_every_fact() {
    let rows = catalogue::json();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), METRICS.len());
    let power = rows.iter().find(|row| row["column"] == "power_w").unwrap();
    assert_eq!(power["type"], "float32");
    assert_eq!(power["unit"], "W");
    assert_eq!(power["table"], "gpu_events");
    assert_eq!(power["prometheus"]["name"], "gpu_power_watts");
    assert_eq!(power["otel"], "hw.power");
    assert!(power["aliases"].as_array().unwrap().contains(&"power_draw".into()));
    let clock = rows.iter().find(|row| row["column"] == "gpu_clock_mhz").unwrap();
    assert_eq!(clock["prometheus"]["unit"], "hertz");
    assert_eq!(clock["prometheus"]["factor"], 1e6);
    assert_eq!(clock["prometheus"]["labels"]["clock"], "graphics");
    let sm = rows.iter().find(|row| row["column"] == "sm_clock_mhz").unwrap();
    assert_eq!(sm["dcgm"][0]["name"], "DCGM_FI_DEV_SM_CLOCK");
    assert_eq!(sm["dcgm"][0]["dialect"], "legacy");
    assert_eq!(rows.iter().find(|row| row["column"] == "ras_deferred").unwrap()["instance_label"], "block");
}

/// `docs/metrics.md` matches the catalogue; `UPDATE=1` writes it.
#[test]
fn the_document_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let wanted = catalogue::markdown();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == wanted,
        "docs/metrics.md is stale: run `UPDATE=1 cargo test -p gpuvitals-core --test it catalogue`"
    );
}

#[test]
fn the_bits_of_a_mask_have_names() {
    let metric = |column| catalogue::by_column(column).unwrap().metric();
    let reasons = metric("throttle_reasons");
    assert_eq!(reasons.names_of(0x24), "software power cap, software thermal slowdown");
    assert_eq!(reasons.names_of(1 << 40), "bit 40");
    assert_eq!(reasons.names_of(0), "none");
    assert_eq!(metric("throttle_status").names_of(1 << 36 | 1), "PPT0, hotspot temperature");
    assert_eq!(metric("power_w").names_of(3), "");
    for metric in METRICS {
        let bits: BTreeSet<u8> = metric.bits.iter().map(|(bit, _)| *bit).collect();
        assert_eq!(bits.len(), metric.bits.len(), "{}", metric.column);
        assert!(bits.iter().all(|bit| *bit < 63), "{}", metric.column);
    }
}

#[test]
fn no_two_families_have_one_name_of_the_conventions_unless_an_attribute_or_label_tells_them_apart() {
    let mut taken: BTreeMap<String, &str> = BTreeMap::new();
    let mut kinds: BTreeMap<&str, (bool, &str)> = BTreeMap::new();
    for metric in METRICS {
        let Some(otel) = metric.otel else { continue };
        // The label `engine` becomes the attribute that the general utilisation has.
        let engine = metric.labels.iter().find(|(label, _)| *label == "engine");
        let told_apart = otel.attribute.or(engine.copied());
        let holder = *taken.entry(format!("{} {told_apart:?}", otel.name)).or_insert(metric.prometheus);
        assert_eq!(holder, metric.prometheus, "{} of {}", otel.name, metric.column);
        let kind = (metric.prometheus.ends_with("_total"), metric.unit.base());
        assert_eq!(*kinds.entry(otel.name).or_insert(kind), kind, "kind and unit of {}", otel.name);
    }
}
