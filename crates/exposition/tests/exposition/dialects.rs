//! dcgm-exporter's names: the right values, units and labels, in either dialect and both.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gpuvitals_core::IdentityColumn;
use gpuvitals_core::catalogue::{Metric, Series, gpu_metrics};
use gpuvitals_core::figures::Format;
use gpuvitals_exposition::Compat;

use crate::fleet::{NOON, S, batch, everything, exposition, identity, nvidia, text, up};
use crate::reader::{Sample, read};

fn scrape(compat: Compat) -> Vec<Sample> {
    let mut exposition = exposition(Series::Standard, compat);
    exposition.observe(&everything(&nvidia(), NOON));
    let text = text(&mut exposition, Format::Prometheus, NOON, &[up(&nvidia())], &[]);
    let samples = read(Format::Prometheus, text.as_bytes());
    samples.into_iter().filter(|sample| sample.name.starts_with("DCGM")).collect()
}

fn labels(sample: &Sample) -> Vec<&str> {
    sample.labels.keys().map(String::as_str).collect()
}

const SHARED: [&str; 8] =
    ["UUID", "container", "device", "gpu", "modelName", "namespace", "pci_bus_id", "pod"];

#[test]
fn either_dialect_has_its_own_labels() {
    for (compat, own) in [
        (Compat::DcgmLegacy, ["DCGM_FI_DRIVER_VERSION", "Hostname"]),
        (Compat::Dcgm, ["DCGM_FI_SYSTEM_DRIVER_VERSION", "hostname"]),
    ] {
        let samples = scrape(compat);
        assert!(samples.len() > 40, "{}", samples.len());
        for sample in samples {
            let wanted: BTreeSet<&str> = SHARED.into_iter().chain(own).collect();
            assert_eq!(labels(&sample), wanted.into_iter().collect::<Vec<_>>(), "{}", sample.name);
            assert_eq!(sample.labels["device"], "nvidia0");
            assert_eq!(sample.labels["pci_bus_id"], "00000000:1B:00.0");
        }
    }
}

#[test]
fn both_dialects_are_the_names_of_either_and_a_shared_one_stands_once_with_the_labels_of_both() {
    let names =
        |samples: &[Sample]| samples.iter().map(|sample| sample.name.clone()).collect::<BTreeSet<_>>();
    let (legacy, modern, both) = (scrape(Compat::DcgmLegacy), scrape(Compat::Dcgm), scrape(Compat::Both));
    assert_eq!(names(&both), &names(&legacy) | &names(&modern));
    assert_eq!(both.len(), names(&both).len(), "once each");
    let shared = &names(&legacy) & &names(&modern);
    assert!(shared.contains("DCGM_FI_DEV_MIG_MODE") || shared.contains("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"));
    for sample in &both {
        let count = usize::from(sample.labels.contains_key("Hostname"))
            + usize::from(sample.labels.contains_key("hostname"));
        assert_eq!(count, if shared.contains(&sample.name) { 2 } else { 1 }, "{}", sample.name);
    }
}

#[test]
fn every_value_is_the_columns_in_the_units_of_its_name() {
    let mut exposition = exposition(Series::All, Compat::Both);
    let everything = everything(&nvidia(), NOON);
    exposition.observe(&everything);
    let text = text(&mut exposition, Format::Prometheus, NOON, &[up(&nvidia())], &[]);
    let mut checked = 0;
    for sample in read(Format::Prometheus, text.as_bytes()) {
        let published = |metric: &Metric, modern: bool| {
            let first = metric.dcgm.iter().find(|name| name.modern == modern);
            first.filter(|name| name.name == sample.name).copied()
        };
        let found = gpu_metrics().find_map(|(id, metric)| {
            Some((id, published(metric, false).or_else(|| published(metric, true))?))
        });
        let Some((id, name)) = found.filter(|(id, _)| id.metric().column != "memory_used_pct") else {
            continue;
        };
        let column = everything.metric(id).unwrap().value(0).unwrap().as_f64();
        let found = sample.value / name.factor;
        assert!((found - column).abs() <= column.abs() * 1e-6, "{}: {found}, not {column}", sample.name);
        checked += 1;
    }
    assert!(checked > 130, "{checked}");
}

#[test]
fn power_and_used_memory_are_what_dcgm_means_by_them() {
    // Columns, then the value under each name of DCGM's: field 155 is the driver's power call (a mean of a
    // second if the part has one), 157 the instant, and 254 is used / (total - reserved).
    type Table = &'static [(&'static [(&'static str, f64)], &'static [(&'static str, Option<f64>)])];
    let table: Table = &[
        (
            &[("power_w", 212.5), ("power_average_w", 187.25)],
            &[
                ("DCGM_FI_DEV_POWER_USAGE", Some(187.25)),
                ("DCGM_FI_DEV_BOARD_POWER_WATTS", Some(187.25)),
                ("DCGM_FI_DEV_POWER_USAGE_INSTANT", Some(212.5)),
                ("DCGM_FI_DEV_BOARD_POWER_RAW_WATTS", Some(212.5)),
            ],
        ),
        (
            &[("power_w", 212.5)],
            &[("DCGM_FI_DEV_POWER_USAGE", Some(212.5)), ("DCGM_FI_DEV_BOARD_POWER_WATTS", Some(212.5))],
        ),
        (
            &[
                ("memory_used_mb", 5_000.0),
                ("memory_total_mb", 11_000.0),
                ("memory_reserved_mb", 1_000.0),
                ("memory_used_pct", 45.45),
            ],
            &[("DCGM_FI_DEV_FB_USED_PERCENT", Some(0.5)), ("DCGM_FI_DEV_FB_USED_RATIO", Some(0.5))],
        ),
        (
            &[("memory_used_mb", 5_000.0), ("memory_total_mb", 10_000.0)],
            &[("DCGM_FI_DEV_FB_USED_PERCENT", Some(0.5))],
        ),
        (&[("memory_used_pct", 25.0)], &[("DCGM_FI_DEV_FB_USED_PERCENT", Some(0.25))]),
        (
            &[("memory_used_mb", 5.0), ("memory_total_mb", 10.0), ("memory_reserved_mb", 10.0)],
            &[("DCGM_FI_DEV_FB_USED_PERCENT", None), ("DCGM_FI_DEV_FB_FREE", None)],
        ),
    ];
    for (columns, names) in table {
        let mut exposition = exposition(Series::Standard, Compat::Both);
        exposition.observe(&batch(&nvidia(), &[(NOON, columns)]));
        let text = text(&mut exposition, Format::Prometheus, NOON, &[up(&nvidia())], &[]);
        let samples = read(Format::Prometheus, text.as_bytes());
        for (name, wanted) in *names {
            let found = samples.iter().find(|sample| sample.name == *name).map(|sample| sample.value);
            assert_eq!(found, *wanted, "{name} of {columns:?}");
        }
    }
}

#[test]
fn reserved_memory_that_is_missing_only_now_does_not_count_as_zero() {
    let mut exposition = exposition(Series::Standard, Compat::DcgmLegacy);
    let memory = [("memory_used_mb", 5_000.0), ("memory_total_mb", 11_000.0), ("memory_used_pct", 45.45)];
    let reserved = [memory.as_slice(), &[("memory_reserved_mb", 1_000.0)]].concat();
    let mut shown = |at: i64, columns: &[(&str, f64)]| {
        exposition.observe(&batch(&nvidia(), &[(at, columns)]));
        let text = text(&mut exposition, Format::Prometheus, at, &[up(&nvidia())], &[]);
        let samples = read(Format::Prometheus, text.as_bytes());
        let value = |name: &str| samples.iter().find(|sample| sample.name == name).map(|sample| sample.value);
        (value("DCGM_FI_DEV_FB_FREE"), value("DCGM_FI_DEV_FB_USED_PERCENT"))
    };
    assert_eq!(shown(NOON, &reserved), (Some(5_000.0), Some(0.5)));
    let much_later = NOON + 3_600_000_000_000;
    assert_eq!(shown(much_later, &memory), (None, None));
    assert_eq!(shown(much_later + 1_000_000_000, &reserved), (Some(5_000.0), Some(0.5)));
}

#[test]
fn an_amd_gpu_has_what_means_the_same() {
    let mi = identity(
        4,
        &[(IdentityColumn::Uuid, "mi"), (IdentityColumn::Vendor, "amd"), (IdentityColumn::Model, "MI300X")],
    );
    let mut exposition = exposition(Series::Standard, Compat::DcgmLegacy);
    exposition.observe(&batch(
        &mi,
        &[(
            NOON,
            &[
                ("gpu_clock_mhz", 2_100.0),
                ("memory_used_mb", 1_000.0),
                ("memory_total_mb", 196_592.0),
                ("utilization_pct", 50.0),
                ("memory_utilization_pct", 7.0),
            ],
        )],
    ));
    let text = text(&mut exposition, Format::Prometheus, NOON, &[up(&mi)], &[]);
    let samples: BTreeMap<String, Sample> = read(Format::Prometheus, text.as_bytes())
        .into_iter()
        .map(|sample| (sample.name.clone(), sample))
        .collect();
    let value = |name: &str| samples.get(name).map(|sample| sample.value);
    assert_eq!(value("DCGM_FI_DEV_SM_CLOCK"), Some(2_100.0));
    assert_eq!(value("DCGM_FI_DEV_FB_FREE"), Some(195_592.0));
    assert_eq!(value("DCGM_FI_DEV_GPU_UTIL"), Some(50.0));
    assert_eq!(value("DCGM_FI_PROF_GR_ENGINE_ACTIVE"), Some(0.5));
    assert_eq!(value("DCGM_FI_PROF_DRAM_ACTIVE"), Some(0.07));
    assert_eq!(value("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"), None, "nothing on it means that");
    let sample = &samples["DCGM_FI_DEV_GPU_UTIL"];
    assert_eq!((sample.labels["device"].as_str(), sample.labels["modelName"].as_str()), ("amd4", "MI300X"));
    assert!(!sample.labels.contains_key("pod"), "nobody holds it");
}

/// NVIDIA's utilisation counts kernels; it does not stand in for the counter of the engine.
#[test]
fn a_load_stands_in_for_a_profiling_counter_on_no_nvidia_gpu() {
    let mut exposition = exposition(Series::Standard, Compat::Both);
    exposition
        .observe(&batch(&nvidia(), &[(NOON, &[("utilization_pct", 50.0), ("memory_utilization_pct", 7.0)])]));
    let text = text(&mut exposition, Format::Prometheus, NOON, &[up(&nvidia())], &[]);
    assert!(text.contains("DCGM_FI_DEV_GPU_UTIL{"), "{text}");
    for absent in ["GR_ENGINE_ACTIVE", "GR_ENGINE_UTIL", "DRAM_ACTIVE", "DRAM_UTIL"] {
        assert!(!text.contains(absent), "{text}");
    }
}

#[test]
fn the_throughput_of_the_links_is_the_rise_of_their_counters() {
    let mut exposition = exposition(Series::Standard, Compat::Both);
    let mut shown = |at_ns: i64, bytes: &[(&str, f64)]| {
        exposition.observe(&batch(&nvidia(), &[(at_ns, &[&[("power_w", 1.0)], bytes].concat())]));
        let text = text(&mut exposition, Format::Prometheus, at_ns, &[up(&nvidia())], &[]);
        let samples = read(Format::Prometheus, text.as_bytes());
        let value = |name: &str| samples.iter().find(|sample| sample.name == name).map(|sample| sample.value);
        let (old, new) = (
            value("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"),
            value("DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND"),
        );
        // KiB/s divided by 1,000.
        assert_eq!(old, new.map(|bytes| bytes / 1_024_000.0));
        new
    };
    let counters =
        |sent: f64, received: f64| [("interconnect_tx_bytes", sent), ("interconnect_rx_bytes", received)];
    assert_eq!(shown(NOON, &counters(5e9, 1e9)), None, "one reading is no rate");
    assert_eq!(shown(NOON + S, &counters(6e9, 1e9)), Some(1e9));
    assert_eq!(shown(NOON + 3 * S, &counters(8e9, 3e9)), Some(2e9));
    assert_eq!(shown(NOON + 4 * S, &counters(0.0, 3e9)), None, "a counter was reset");
    assert_eq!(shown(NOON + 5 * S, &counters(1e9, 3e9)), Some(1e9));
    assert_eq!(shown(NOON + 600 * S, &counters(9e9, 3e9)), None, "no rate over a gap");
    assert_eq!(shown(NOON + 601 * S, &counters(9e9, 3e9)), Some(0.0));
    let native = [counters(9e9, 3e9).as_slice(), &[("interconnect_bytes_per_s", 7.0)]].concat();
    assert_eq!(shown(NOON + 602 * S, &native), Some(7.0), "as the source gives it");
}

#[test]
fn every_value_has_the_time_of_its_reading() {
    let mi = identity(4, &[(IdentityColumn::Uuid, "mi"), (IdentityColumn::Vendor, "amd")]);
    let mut exposition = exposition(Series::Basic, Compat::Both);
    for (at_ns, bytes) in [(NOON, 1e9), (NOON + S, 2e9)] {
        let columns = [
            ("utilization_pct", 50.0),
            ("memory_utilization_pct", 7.0),
            ("interconnect_tx_bytes", bytes),
            ("interconnect_rx_bytes", bytes),
        ];
        exposition.observe(&batch(&mi, &[(at_ns, &columns)]));
    }
    let families = exposition.families(NOON + 2 * S, &[up(&mi)]);
    let dcgm = families.iter().filter(|family| family.name.starts_with("DCGM"));
    let times: BTreeMap<_, _> =
        dcgm.flat_map(|family| family.samples.iter().map(|sample| (&*family.name, sample.at_ns))).collect();
    assert!(times.contains_key("DCGM_FI_PROF_DRAM_ACTIVE"), "{times:?}");
    assert!(times.contains_key("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"), "{times:?}");
    assert!(times.values().all(|at_ns| *at_ns == Some(NOON + S)), "{times:?}");
}

#[test]
fn a_mig_instance_has_its_profile_and_number_beside_the_gpus_name() {
    let mig = identity(
        0,
        &[
            (IdentityColumn::Uuid, "GPU-34319582-d595-d1c7-d1d2-179bcfa61660"),
            (IdentityColumn::Vendor, "nvidia"),
            (IdentityColumn::Model, "NVIDIA A100-SXM4-40GB MIG 1g.5gb"),
            (IdentityColumn::Partition, "13"),
            (IdentityColumn::Node, "ub20-a100-k8s"),
        ],
    );
    let mut exposition = exposition(Series::Basic, Compat::DcgmLegacy);
    exposition.observe(&batch(&mig, &[(NOON, &[("graphics_engine_active_ratio", 0.995_687)])]));
    let text = text(&mut exposition, Format::Prometheus, NOON, &[up(&mig)], &[]);
    // As NVIDIA's MIG documentation prints it, but for the model's name, which its sample leaves out.
    assert!(text.contains(
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu=\"0\",UUID=\"GPU-34319582-d595-d1c7-d1d2-179bcfa61660\",device=\"nvidia0\",\
         modelName=\"NVIDIA A100-SXM4-40GB\",GPU_I_PROFILE=\"1g.5gb\",GPU_I_ID=\"13\",Hostname=\"ub20-a100-k8s\"} 0.995687\n"
    ));
}

/// Series that dcgm-exporter publishes unchanged have its kind and help line here too.
#[test]
fn the_default_list_of_the_exporter_is_there_with_its_heads() {
    let mut exposition = exposition(Series::Basic, Compat::DcgmLegacy);
    exposition.observe(&everything(&nvidia(), NOON));
    let ours = text(&mut exposition, Format::Prometheus, NOON, &[up(&nvidia())], &[]);
    let ours: BTreeSet<&str> = ours.lines().collect();
    let mut found = 0;
    for list in ["default-counters.csv", "dcp-metrics-included.csv"] {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/nvidia/dcgm-exporter").join(list);
        for line in std::fs::read_to_string(path).unwrap().lines().filter(|line| !line.starts_with('#')) {
            let cells: Vec<&str> = line.splitn(3, ',').map(str::trim).collect();
            let [field, kind @ ("gauge" | "counter"), help] = cells[..] else { continue };
            // A licence is not a measurement.
            if field == "DCGM_FI_DEV_VGPU_LICENSE_STATUS" {
                continue;
            }
            assert!(ours.contains(format!("# HELP {field} {help}").as_str()), "{line}");
            assert!(ours.contains(format!("# TYPE {field} {kind}").as_str()), "{line}");
            found += 1;
        }
    }
    assert!(found > 40, "{found}");
}
