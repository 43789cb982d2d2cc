//! Values of a healthy GPU, and those it does not support.

use std::collections::BTreeMap;

use gpuvitals_core::{AbsenceReason, IdentityColumn};
use gpuvitals_sources::attribution::{GpuName, Owner, Owners};
use gpuvitals_sources::probe::{Driver, Due};
use gpuvitals_sources::registry::Verdict;

use super::stub::{SaidRow, Stub, read};
use crate::details::details;

const FAST: Due = Due { slow: false, rare: false };

/// Readings until every row has had a metric that needs two samples. Each has it in a reading of its own: the rows of the
/// last reading, with what they had before.
fn read_until(probe: &mut Box<dyn gpuvitals_sources::probe::Probe>, column: &str) -> Vec<SaidRow> {
    let mut before: Vec<SaidRow> = Vec::new();
    for _ in 0..100_000 {
        let mut rows = read(probe, Due::ALL).unwrap();
        for row in &mut rows {
            let known = before.iter().find(|known| known.identity.key() == row.identity.key());
            for (column, value) in known.iter().flat_map(|known| &known.values) {
                row.values.entry(column).or_insert(*value);
            }
        }
        if rows.iter().all(|row| row.value(column).is_some()) {
            return rows;
        }
        before = rows;
    }
    panic!("no {column}")
}

#[test]
fn every_gpu_is_a_probe_with_its_identity() {
    let stub = Stub::new();
    let found = stub.find();
    assert_eq!(found.probes.len(), 2);
    let verdicts: Vec<Verdict> = found.findings.iter().map(|finding| finding.verdict).collect();
    assert_eq!(verdicts, [Verdict::Good; 3], "{:?}", found.findings);
    assert!(found.findings[0].text.contains("580.95.05"), "{:?}", found.findings[0]);
    let probe = &found.probes[1];
    assert_eq!(probe.driver(), Driver::Nvml);
    let identity = &probe.targets()[0];
    for (column, text) in [
        (IdentityColumn::Node, "n1"),
        (IdentityColumn::Vendor, "nvidia"),
        (IdentityColumn::Source, "nvml"),
        (IdentityColumn::Uuid, "GPU-5fd4f087-86f3-7a43-b711-4771313afc51"),
        (IdentityColumn::Model, "NVIDIA H100 80GB HBM3"),
        (IdentityColumn::Pci, "0000:1c:00.0"),
        (IdentityColumn::Driver, "580.95.05"),
        (IdentityColumn::Vbios, "96.00.A5.00.01"),
    ] {
        assert_eq!(identity.get(column), Some(text), "{column:?}");
    }
    assert_eq!((identity.index, identity.get(IdentityColumn::Partition)), (Some(1), None));
}

/// Values of GPU 0 of the imitation, by column, in the column's unit.
const VALUES: &[(&str, f64)] = &[
    ("power_w", 312.5),
    ("power_average_w", 305.25),
    ("temperature_c", 45.0),
    ("temperature_memory_c", 61.0),
    ("temperature_margin_c", 42.0),
    ("temperature_shutdown_c", 90.0),
    ("temperature_slowdown_c", 91.0),
    ("temperature_memory_max_operating_c", 92.0),
    ("temperature_max_operating_c", 93.0),
    ("energy_mj", 987_654_321.0),
    ("power_limit_w", 700.0),
    ("power_limit_enforced_w", 600.0),
    ("power_limit_min_w", 200.0),
    ("utilization_pct", 87.0),
    ("memory_utilization_pct", 41.0),
    ("encoder_utilization_pct", 11.0),
    ("decoder_utilization_pct", 12.0),
    ("jpeg_utilization_pct", 13.0),
    ("ofa_utilization_pct", 14.0),
    ("gpu_clock_mhz", 1000.0),
    ("sm_clock_mhz", 1100.0),
    ("mem_clock_mhz", 1200.0),
    ("video_clock_mhz", 1300.0),
    ("gpu_clock_max_mhz", 2000.0),
    ("mem_clock_application_mhz", 1700.0),
    ("throttle_reasons", 36.0),
    ("throttled", 1.0),
    ("throttled_sw_power_cap", 1.0),
    ("throttled_hw_slowdown", 0.0),
    ("throttled_sync_boost", 0.0),
    ("throttled_sw_thermal", 1.0),
    ("throttled_hw_thermal", 0.0),
    ("throttled_hw_power_brake", 0.0),
    ("throttled_power_ns", 5_000_000.0),
    ("throttled_sw_power_cap_ns", 5_000_000.0),
    ("throttled_thermal_ns", 0.0),
    ("throttled_sw_thermal_ns", 1000.0),
    ("throttled_hw_thermal_ns", 2000.0),
    ("throttled_hw_power_brake_ns", 3000.0),
    ("memory_total_mb", 81_920.0),
    ("memory_used_mb", 20_480.0),
    ("memory_used_pct", 25.0),
    ("memory_reserved_mb", 1024.0),
    ("memory_free_mb", 60_416.0),
    ("bar1_total_mb", 131_072.0),
    ("bar1_used_mb", 1024.0),
    ("fan_speed_pct", 35.0),
    ("fan_speed_rpm", 1800.0),
    ("performance_state", 0.0),
    ("pcie_gen", 5.0),
    ("pcie_width", 16.0),
    ("pcie_speed_gtps", 32.0),
    ("pcie_replays", 3.0),
    ("pcie_tx_bytes", 1_000_000.0),
    ("pcie_rx_bytes_per_s", 21.0 * 1_048_576.0),
    ("interconnect_tx_bytes", 1024.0 * 1024.0),
    ("interconnect_rx_bytes_per_s", 60.0 * 1_048_576.0),
    ("interconnect_links_up", 17.0),
    ("interconnect_links", 17.0),
    ("numa_node", 0.0),
    ("interconnect_replay_errors", 18.0),
    ("interconnect_recovery_errors", 36.0),
    ("interconnect_crc_errors", 54.0),
    ("ecc_mode", 1.0),
    ("ecc_corrected_volatile", 0.0),
    ("ecc_uncorrected_volatile", 1.0),
    ("ecc_corrected_aggregate", 10.0),
    ("ecc_uncorrected_aggregate", 11.0),
    ("ecc_dram_corrected_volatile", 200.0),
    ("ecc_dram_uncorrected_volatile", 201.0),
    ("ecc_dram_corrected_aggregate", 210.0),
    ("ecc_dram_uncorrected_aggregate", 211.0),
    ("ecc_sram_corrected_volatile", 700.0),
    ("ecc_sram_uncorrected_aggregate", 711.0),
    ("ecc_sram_parity_aggregate", 1.0),
    ("ecc_sram_secded_aggregate", 2.0),
    ("ecc_sram_parity_volatile", 4.0),
    ("ecc_sram_secded_volatile", 5.0),
    ("ecc_sram_source_l2", 7.0),
    ("ecc_sram_source_sm", 8.0),
    ("ecc_sram_source_pcie", 9.0),
    ("ecc_sram_source_mcu", 10.0),
    ("ecc_sram_source_other", 11.0),
    ("encoder_sessions", 2.0),
    ("encoder_fps", 108.0),
    ("encoder_latency_ns", 96_754_000.0),
    ("fabric_state", 3.0),
    ("fabric_health", 1.0),
    ("c2c_mode", 1.0),
    ("c2c_links", 10.0),
    ("remapped_rows_correctable", 1.0),
    ("remapped_rows_uncorrectable", 2.0),
    ("remapped_rows_pending", 0.0),
    ("remap_banks_max", 640.0),
    ("sram_threshold_exceeded", 0.0),
    ("recovery_action", 0.0),
    ("persistence_mode", 1.0),
    ("mig_mode", 0.0),
    ("mig_mode_pending", 1.0),
    ("partition_count", 0.0),
    ("confidential_mode", 0.0),
    ("process_count", 3.0),
    ("graphics_engine_active_ratio", 0.01),
    ("sm_active_ratio", 0.02),
    ("tensor_active_ratio", 0.05),
    ("dram_active_ratio", 0.1),
    ("xid_count", 0.0),
];

#[test]
fn values_stand_in_their_columns_and_units() {
    let stub = Stub::new();
    stub.says(&["0.reasons 36", "0.mig_pending 1", "0.compute 4711,4712", "0.graphics 4712,4713"]);
    let mut probes = stub.find().probes;
    let rows = read_until(&mut probes[0], "sm_active_ratio");
    assert_eq!(rows.len(), 1);
    for (column, value) in VALUES {
        assert_eq!(rows[0].value(column), Some(*value), "{column}: {:?}", rows[0].absence(column));
    }
    assert_eq!(rows[0].value("xid_last"), None);
    let row = &read(&mut probes[0], FAST).unwrap()[0];
    let fast: Vec<&str> = row.values.keys().copied().collect();
    assert_eq!(
        fast,
        [
            "gpu_clock_mhz",
            "mem_clock_mhz",
            "memory_used_mb",
            "memory_used_pct",
            "memory_utilization_pct",
            "power_average_w",
            "power_w",
            "sm_clock_mhz",
            "temperature_c",
            "throttle_reasons",
            "throttled",
            "utilization_pct",
        ]
    );
    assert!(row.absences.is_empty(), "{row:?}");
}

#[test]
fn each_link_and_each_memory_is_a_row_of_the_details() {
    let stub = Stub::new();
    // Replays of link 3; link 5 does not count what it sends.
    stub.says(&["field.161.3 9", "field.138.5 -3"]);
    let probe = stub.find().probes.remove(0);
    let gpu = probe.targets()[0].uuid().unwrap().to_owned();
    let mut expected = BTreeMap::new();
    let mut expect = |metric: &str, instance: &str, value: f64| {
        expected.insert([gpu.clone(), metric.to_owned(), instance.to_owned()], value);
    };
    for link in 0..18 {
        let name = link.to_string();
        if link != 5 {
            expect("interconnect_tx_bytes", &name, 1024.0 * 1024.0);
        }
        expect("interconnect_rx_bytes", &name, 2048.0 * 1024.0);
        expect("interconnect_replay_errors", &name, if link == 3 { 9.0 } else { 1.0 });
        expect("interconnect_recovery_errors", &name, 2.0);
        expect("interconnect_crc_errors", &name, 3.0);
        expect("interconnect_links_up", &name, if link < 17 { 1.0 } else { 0.0 });
    }
    expect("interconnect_links", "0000:1c:00.0", 12.0);
    expect("interconnect_links", "switch", 5.0);
    for (memory, number) in [("dram", 200.0), ("sram", 700.0)] {
        expect("ecc_corrected_volatile", memory, number);
        expect("ecc_uncorrected_volatile", memory, number + 1.0);
        expect("ecc_corrected_aggregate", memory, number + 10.0);
        expect("ecc_uncorrected_aggregate", memory, number + 11.0);
    }
    assert_eq!(details(probe), expected);
}

#[test]
fn clocks_are_held_down_by_power_heat_and_hardware_only() {
    let stub = Stub::new();
    let mut probes = stub.find().probes;
    for (reasons, is_throttled) in [
        (0, 0.0),
        (0x1, 0.0),
        (0x2, 0.0),
        (0x10, 0.0),
        (0x100, 0.0),
        (0x4, 1.0),
        (0x8, 1.0),
        (0x21, 1.0),
        (0x40, 1.0),
        (0x80, 1.0),
    ] {
        stub.says(&[&format!("reasons {reasons}")]);
        let row = &read(&mut probes[0], FAST).unwrap()[0];
        assert_eq!(row.value("throttle_reasons"), Some(f64::from(reasons)));
        assert_eq!(row.value("throttled"), Some(is_throttled), "{reasons:#x}");
    }
}

#[test]
fn reasons_that_neither_heat_nor_power_bears_out_are_left_out() {
    // Power in mW of a limit of 600 W, °C of a limit of 91, reasons, reasons told.
    for (power, heat, reasons, told) in [
        (60_000, 35, 0x4, 0),
        (60_000, 35, 0x20 | 0x40 | 0x8, 0),
        (60_000, 35, 0x1 | 0x4, 0x1),
        // A signal from outside is what makes a GPU draw little.
        (60_000, 35, 0x80 | 0x8, 0x80 | 0x8),
        (60_000, 35, 0x8, 0x8),
        (60_000, 75, 0x20, 0x20),
        (560_000, 35, 0x4, 0x4),
        // It may be hot where no sensor is.
        (560_000, 35, 0x20, 0x20),
    ] {
        let stub = Stub::new();
        let temperature = format!("temperature {heat}");
        let margin = format!("margin {}", 91 - heat);
        let [instant, average] = [186, 185].map(|field| format!("field.{field} {power}"));
        stub.says(&[&instant, &average, &temperature, &margin, &format!("reasons {reasons}")]);
        let row = &read(&mut stub.find().probes[0], Due::ALL).unwrap()[0];
        let case = format!("{power} mW, {heat} °C, {reasons:#x}");
        assert_eq!(row.value("throttle_reasons"), Some(f64::from(told)), "{case}");
        assert_eq!(row.value("throttled"), Some(f64::from(u8::from(told & !1 != 0))), "{case}");
        for (bit, flag) in [(0x4, "throttled_sw_power_cap"), (0x20, "throttled_sw_thermal")] {
            assert_eq!(row.value(flag), Some(f64::from(u8::from(told & bit != 0))), "{case} {flag}");
        }
    }
}

#[test]
fn what_a_gpu_does_not_have_is_told_with_its_reason_and_not_asked_again() {
    let stub = Stub::new();
    stub.says(&[
        "ret.nvmlDeviceGetEncoderUtilization 3",
        "ret.nvmlDeviceGetFanSpeedRPM 26",
        "ret.nvmlDeviceGetNumFans 3",
        "ret.nvmlDeviceGetTotalEccErrors 4",
        "ret.nvmlDeviceGetUtilizationRates 3",
        "ret.nvmlDeviceGetSupportedEventTypes 3",
        "field.82 0",
        "gpm 0",
    ]);
    let mut probes = stub.find().probes;
    let row = &read(&mut probes[0], Due::ALL).unwrap()[0];
    for (column, reason) in [
        ("encoder_utilization_pct", AbsenceReason::NotSupported),
        ("fan_speed_rpm", AbsenceReason::NotSupported),
        ("fan_speed_pct", AbsenceReason::NotSupported),
        ("ecc_corrected_volatile", AbsenceReason::Denied),
        ("utilization_pct", AbsenceReason::NotSupported),
        ("memory_utilization_pct", AbsenceReason::NotSupported),
        ("temperature_memory_c", AbsenceReason::NotSupported),
        ("module_power_w", AbsenceReason::NotSupported),
        ("retired_pages_sbe", AbsenceReason::NotSupported),
        ("interconnect_crc_flit_errors", AbsenceReason::NotSupported),
        ("sm_active_ratio", AbsenceReason::NotSupported),
        ("xid_count", AbsenceReason::NotSupported),
    ] {
        assert_eq!((row.value(column), row.absence(column)), (None, Some(reason)), "{column}");
    }
    stub.calls();
    for _ in 0..3 {
        let row = &read(&mut probes[0], Due { slow: true, rare: false }).unwrap()[0];
        assert!(row.absences.is_empty(), "told only when the rare tier is due: {row:?}");
    }
    let told_again = &read(&mut probes[0], Due::ALL).unwrap()[0];
    assert_eq!(told_again.absences, row.absences);
    let calls = stub.calls();
    for unasked in [
        "nvmlDeviceGetEncoderUtilization 0",
        "nvmlDeviceGetFanSpeedRPM 0",
        "nvmlDeviceGetNumFans 0",
        "nvmlDeviceGetTotalEccErrors 0",
        "nvmlDeviceGetUtilizationRates 0",
        "nvmlGpmQueryDeviceSupport 0",
        "field:82:0 0",
        "field:186:1 0",
        "field:29:0 0",
    ] {
        assert_eq!(calls.get(unasked), None, "{unasked}");
    }
    assert_eq!(
        calls.get("nvmlDeviceGetFieldValues 0"),
        Some(&(4 + 4 + 1 + 1)),
        "one call a tier, one for the links"
    );
}

#[test]
fn an_encoder_without_a_session_and_a_gpu_without_a_fabric_give_no_zeros() {
    let stub = Stub::new();
    stub.says(&["encoder_sessions 0", "fabric 0", "fabric_health 0", "sram 0"]);
    let mut probes = stub.find().probes;
    let row = &read(&mut probes[0], Due::ALL).unwrap()[0];
    assert_eq!(row.value("encoder_sessions"), Some(0.0));
    for column in ["encoder_fps", "encoder_latency_ns"] {
        assert_eq!((row.value(column), row.absence(column)), (None, None), "{column}");
    }
    for column in ["fabric_state", "fabric_health", "ecc_sram_corrected_volatile"] {
        let not_there = (None, Some(AbsenceReason::NotSupported));
        assert_eq!((row.value(column), row.absence(column)), not_there, "{column}");
    }
    // The fabric manager starts; this driver does not tell the health.
    stub.says(&["encoder_sessions 1", "fabric 2", "fabric_version 2"]);
    let row = &read(&mut probes[0], Due::ALL).unwrap()[0];
    assert_eq!(row.value("encoder_latency_ns"), Some(96_754_000.0));
    assert_eq!((row.value("fabric_state"), row.value("fabric_health")), (Some(2.0), None));
    assert_eq!(row.absence("fabric_health"), Some(AbsenceReason::NotSupported));
}

#[test]
fn rates_follow_from_counters_where_there_is_no_gpm() {
    let stub = Stub::new();
    stub.says(&["gpm 0", "field.197 1000000", "field.198 5"]);
    let mut probes = stub.find().probes;
    let row = &read(&mut probes[0], Due::ALL).unwrap()[0];
    assert_eq!(row.value("pcie_tx_bytes_per_s"), None);
    stub.says(&["gpm 0", "field.197 3000000", "field.198 4"]);
    let row = &read(&mut probes[0], Due::ALL).unwrap()[0];
    let rate = row.value("pcie_tx_bytes_per_s").unwrap();
    assert!(rate > 0.0 && rate.is_finite(), "{rate}");
    assert_eq!(row.value("pcie_rx_bytes_per_s"), None, "a counter that fell says nothing");
    assert_eq!(row.absence("pcie_tx_bytes_per_s"), None);
}

#[test]
fn an_old_driver_gives_what_it_has() {
    let check = |architecture: u32, pci_id: u32, average: Option<f64>| {
        let stub = Stub::old();
        stub.says(&[
            "driver 375.20",
            &format!("architecture {architecture}"),
            &format!("pci_id {}", (pci_id << 16) | 0x10de),
        ]);
        let found = stub.find();
        let mut probes = found.probes;
        let row = &read(&mut probes[0], Due::ALL).unwrap()[0];
        for (column, value) in [
            ("power_w", 250.75),
            ("temperature_c", 44.0),
            ("memory_used_mb", 21.0 * 1024.0),
            ("fan_speed_pct", 33.0),
            ("power_limit_w", 650.0),
            ("power_limit_max_w", 700.0),
            ("pcie_replays", 7.0),
            ("throttle_reasons", 0.0),
        ] {
            assert_eq!(row.value(column), Some(value), "{column}");
        }
        assert_eq!(row.value("power_average_w"), average, "architecture {architecture}");
        for column in [
            "memory_reserved_mb",
            "energy_mj",
            "temperature_memory_c",
            "jpeg_utilization_pct",
            "sm_active_ratio",
            "process_count",
        ] {
            assert_eq!(row.absence(column), Some(AbsenceReason::NotSupported), "{column}");
        }
    };
    check(6, 0x1eb8, None); // T4, Turing: instantaneous
    check(7, 0x20b0, None); // A100, GA100: instantaneous
    check(7, 0x2236, Some(250.75)); // A10, Ampere: average over 1 s
    check(u32::MAX, 0x2236, None); // unknown
}

#[test]
fn mig_instances_are_rows_of_their_own_and_follow_the_layout() {
    let stub = Stub::new();
    let divided = ["mig 1", "instances 2", "ret.nvmlDeviceGetUtilizationRates 3", "0.compute 4711"];
    stub.says(&divided);
    let found = stub.find();
    let (mut probes, mut processes) = (found.probes, found.processes);
    let rows = read_until(&mut probes[0], "sm_active_ratio");
    let keys: Vec<String> = rows.iter().map(|row| row.identity.key().unwrap().to_string()).collect();
    let uuid = "GPU-5fd4f087-86f3-7a43-b711-4771313afc50";
    assert_eq!(keys, [uuid.to_owned(), format!("{uuid}:7"), format!("{uuid}:8")]);
    assert_eq!(rows[0].value("partition_count"), Some(2.0));
    assert_eq!(rows[0].value("memory_total_mb"), Some(81_920.0));
    assert_eq!(rows[1].value("memory_total_mb"), Some(10_240.0));
    assert_eq!(rows[1].value("process_count"), Some(1.0));
    assert_eq!(rows[1].value("power_w"), None, "power is the whole GPU's");
    assert_eq!(rows[1].identity.get(IdentityColumn::Model), Some("NVIDIA H100 80GB HBM3 MIG 1g.10gb"));
    assert_eq!(probes[0].targets().len(), 3);
    let owners = Owners::new();
    for name in ["MIG-00000000-1111-2222-3333-000000000001", &format!("MIG-{uuid}/7/0")] {
        let pod = Owner { pod: Some(name.into()), ..Owner::default() };
        owners.replace(vec![(GpuName::Uuid(name.into()), pod)]);
        let pods: Vec<Option<String>> = rows
            .iter()
            .map(|row| owners.attribute(&row.identity).get(IdentityColumn::Pod).map(str::to_owned))
            .collect();
        assert_eq!(pods, [None, Some(name.to_owned()), None], "the kubelet names instances by UUID");
    }
    let listed = processes[0].read().unwrap().processes;
    assert_eq!(*listed[0].gpu.key().unwrap(), *keys[1]);
    // An instance that gives only unknown errors is down alone.
    stub.says(&[&divided[..], &["mig.lost 999"]].concat());
    for _ in 0..4 {
        let rows = read(&mut probes[0], FAST).unwrap();
        assert_eq!(rows[1].absence("memory_used_mb"), Some(AbsenceReason::Invalid));
    }
    let rows = read(&mut probes[0], FAST).unwrap();
    let downs: Vec<Option<AbsenceReason>> = rows.iter().map(|row| row.down).collect();
    assert_eq!(downs, [None, Some(AbsenceReason::Invalid), Some(AbsenceReason::Invalid)]);
    assert_eq!(rows[0].value("power_w"), Some(312.5));
    // The layout changes: old handles are refused, and unsupported calls are repeated.
    stub.says(&["mig 1", "instances 1", "generation 2"]);
    let rows = read(&mut probes[0], FAST).unwrap();
    assert_eq!(rows[1].down, Some(AbsenceReason::Gone));
    read(&mut probes[0], Due::ALL).unwrap();
    let rows = read_until(&mut probes[0], "sm_active_ratio");
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0].value("utilization_pct"), Some(87.0));
}

#[test]
fn a_call_that_a_divided_gpu_refuses_is_given_up_and_the_rest_goes_on() {
    let stub = Stub::new();
    stub.says(&[
        "mig 1",
        "instances 2",
        "ret.nvmlDeviceGetPerformanceState 2",
        "ret.nvmlDeviceGetMPSComputeRunningProcesses_v3 2",
    ]);
    let mut probes = stub.find().probes;
    // Discovery, doubted, given up.
    for _ in 0..3 {
        read(&mut probes[0], Due::ALL).unwrap();
    }
    stub.calls();
    let rows = read(&mut probes[0], Due::ALL).unwrap();
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| row.down.is_none()), "{rows:?}");
    assert_eq!(rows[0].absence("performance_state"), Some(AbsenceReason::NotSupported));
    let calls = stub.calls();
    for unasked in [
        "nvmlDeviceGetPerformanceState 0",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3 0",
        "nvmlDeviceGetHandleByUUID 0",
    ] {
        assert_eq!(calls.get(unasked), None, "{unasked}");
    }
    read_until(&mut probes[0], "sm_active_ratio");
}
