//! What other programs export: the first row of each log, and whose the rows are.

use std::path::Path;

use super::logs::read_with;
use super::reading::config;

/// The rows of a log.
fn read(name: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/logs/tools").join(name);
    let (rows, skipped) = read_with(path, config());
    assert_eq!(skipped, 0, "{name}");
    rows
}

#[test]
fn the_lines_of_gpustat_are_rows_of_gpus_at_the_time_above_them() {
    let rows = read("gpustat.txt");
    assert_eq!(rows.len(), 4);
    assert_eq!(
        rows[0],
        "2023-03-18T14:11:44Z node01:gpu0 memory_total_mb=24576 memory_used_mb=20345 power_limit_w=350 power_w=287 \
         temperature_c=54 utilization_pct=97 driver=525.60.13 gpu=0 model=NVIDIA GeForce RTX 3090 node=node01 \
         vendor=nvidia"
    );
    assert!(rows[3].starts_with("2023-03-18T14:11:45Z node01:gpu1 "), "{}", rows[3]);
}

#[test]
fn a_time_that_a_loop_prints_above_each_table_is_that_of_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("loop.csv");
    let look = |at: u8| {
        format!("Fri Jul 18 20:42:3{at} UTC 2025\nindex, power.draw [W]\n0, 6{at}.00 W\n1, 7{at}.00 W\n\n")
    };
    std::fs::write(&path, [look(4), look(5)].concat()).unwrap();
    let (rows, skipped) = read_with(path, config());
    assert_eq!((rows.len(), skipped), (4, 0), "{rows:?}");
    assert!(rows[0].starts_with("2025-07-18T20:42:34Z loop:gpu0 power_w=64 "), "{rows:?}");
    assert!(rows[3].starts_with("2025-07-18T20:42:35Z loop:gpu1 power_w=75 "), "{rows:?}");
}

#[test]
fn experiment_trackers_name_the_gpu_in_their_columns() {
    let wide = read("mlflow_wide.csv");
    assert!(
        wide[0].starts_with(
            "2024-04-25T17:43:20.123Z mlflow_wide:gpu0 memory_used_mb=37864 power_w=287.4 utilization_pct=97"
        ),
        "{}",
        wide[0]
    );
    assert!(
        wide.iter().any(|row| row.contains(" cpu_pct=5.1 ") && row.contains(" memory_mb=64000")),
        "{wide:?}"
    );
    let nvitop = read("nvitop.csv");
    let expected = "2024-04-25T17:43:20.12Z nvitop:gpu3 fan_speed_pct=41 memory_used_mb=20345 memory_used_pct=82.8 \
                    memory_utilization_pct=54.1 power_w=287.4 temperature_c=61.1 utilization_pct=97.1 ";
    assert!(nvitop[0].starts_with(expected), "{}", nvitop[0]);
}

#[test]
fn a_field_and_its_value_are_a_long_form_under_the_names_of_influxdb_too() {
    assert_eq!(read("influx.csv").len(), 2);
    let first = "2024-04-25T16:00:10Z GPU-50205d95-57b6-f541-2bcb-86c09afed564 power_w=287.4 temperature_c=61 utilization_pct=97 ";
    assert!(read("influx.csv")[0].starts_with(first), "{:?}", read("influx.csv"));
}

#[test]
fn grafanas_columns_are_of_the_gpu_in_their_labels_and_of_the_metric_that_these_or_the_file_name() {
    let rows = read("grafana-labels.csv");
    let first = "2024-04-25T17:43:20Z GPU-50205d95-57b6-f541-2bcb-86c09afed564 power_w=287.4 ";
    assert!(rows[0].starts_with(first) && rows.len() == 4, "{rows:?}");
    let folder = tempfile::tempdir().unwrap();
    let panel = folder.path().join("GPU Power Usage-data-2024-04-25 17_03_20.csv");
    for names in ["\"GPU 0\",\"GPU 1\"", "\"{gpu=\"\"0\"\"}\",\"{gpu=\"\"1\"\"}\""] {
        std::fs::write(&panel, format!("\"Time\",{names}\n2024-04-25 16:00:00,287.4,68.1\n")).unwrap();
        let (rows, _) = read_with(panel.clone(), config());
        let values: Vec<bool> = ["gpu0 power_w=287.4", "gpu1 power_w=68.1"]
            .map(|it| rows.iter().any(|row| row.contains(it)))
            .to_vec();
        assert_eq!(values, [true, true], "{names}: {rows:?}");
    }
}
