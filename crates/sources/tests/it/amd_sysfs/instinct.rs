//! MI300X, whole and in CPX mode: the topology is a capture, the tables are built from the kernel's layout of v1.7.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use gpuvitals_core::{AbsenceReason, IdentityColumn};
use gpuvitals_sources::dialect::amd_sysfs::{self, cards, read_topology};
use gpuvitals_sources::probe::{Driver, Due, Reading, Row};
use gpuvitals_sources::registry::{discover, no_simulation};

use super::machines::{absence, copy, fixture, id, linked, machine, only_probe, table, value, write};
use crate::details::details;

/// Buses of the eight packages of the capture.
const BUSES: [u8; 8] = [0x05, 0x27, 0x47, 0x65, 0x85, 0xa7, 0xc7, 0xe5];

/// Offset of the partitions in v1.7, and the distance between them.
const XCP: usize = 344;
const XCP_LEN: usize = 232;

/// A table of v1.7: 750 W, each partition with its own activity, XCCs at 2000, 2010 … MHz.
fn metrics(partitions: u64, step: u64, throttled: u64) -> Vec<u8> {
    let mut fields = vec![
        (4, 2, 71),
        (6, 2, 58),
        (8, 2, 64),
        (10, 2, 750),
        (12, 2, 96),
        (14, 2, 41),
        (16, 8, 5300),
        (24, 8, 65_536 * 1000),
        (32, 8, 9_000_000_000 + step * 1_000_000),
        (40, 4, 1_000 + step),
        (44, 4, 0),
        (48, 4, throttled),
        (52, 4, 0),
        (56, 4, 0),
        (60, 4, 0),
        (64, 4, 0),
        (68, 2, 16),
        (70, 2, 320),
        (72, 2, 16),
        (74, 2, 32),
        (112, 8, 4),
        (288, 8, 77_000 + step),
        (336, 2, 1300),
        (338, 2, partitions),
    ];
    for link in 0..7 {
        fields.extend([(136 + link * 8, 8, 1024), (200 + link * 8, 8, 2048), (264 + link * 2, 2, 1)]);
    }
    for xcc in 0..8 {
        fields.push((296 + xcc * 2, 2, 2000 + 10 * xcc as u64));
    }
    let xccs = 8 / usize::try_from(partitions).unwrap();
    for partition in 0..usize::try_from(partitions).unwrap() {
        let at = XCP + partition * XCP_LEN;
        for xcc in 0..xccs {
            let busy = 10 * partition as u64 + xcc as u64;
            fields.extend([(at + xcc * 4, 4, busy), (at + 168 + xcc * 8, 8, 100)]);
        }
        fields.extend([(at + 96, 2, 20), (at + 98, 2, 40), (at + 32, 2, 7)]);
    }
    table(2208, 1, 7, &fields)
}

fn device(root: &Path, card: usize) -> PathBuf {
    root.join(format!("class/drm/card{card}/device"))
}

/// The captured topology with a card for each package.
fn node(mode: &str, metrics: &[u8]) -> tempfile::TempDir {
    let dir = copy("mi300x-cpx");
    for (card, bus) in BUSES.iter().enumerate() {
        let device = device(dir.path(), card);
        let uevent = format!("DRIVER=amdgpu\nPCI_ID=1002:74A1\nPCI_SLOT_NAME=0000:{bus:02x}:00.0\n");
        write(&device, "uevent", uevent);
        write(&device, "vendor", "0x1002\n");
        write(&device, "device", "0x74a1\n");
        write(&device, "unique_id", format!("3f1c0d2e4b5a69{bus:02x}\n"));
        write(&device, "current_compute_partition", format!("{mode}\n"));
        write(&device, "gpu_metrics", metrics);
        write(&device, "mem_info_vram_total", "206141652992\n");
        write(&device, "mem_info_vram_used", "103070826496\n");
        write(&device, "hwmon/hwmon3/name", "amdgpu\n");
        write(&device, "hwmon/hwmon3/temp2_label", "junction\n");
        write(&device, "hwmon/hwmon3/temp2_crit", "100000\n");
        write(&device, "ras/umc_err_count", "ue: 1\nce: 20\nde: 3\n");
        write(&device, "ras/gfx_err_count", "ue: 0\nce: 2\n");
        write(&device, "ras/gpu_vram_bad_pages", "0x1 : 0x1000 : R\n0x2 : 0x1000 : P\n");
    }
    dir
}

fn partition(row: &Row) -> Option<&str> {
    row.identity().get(IdentityColumn::Partition)
}

#[test]
fn the_nodes_of_the_compute_driver_belong_to_their_packages() {
    let dir = node("CPX", &metrics(8, 0, 0));
    assert_eq!(read_topology(dir.path()).len(), 63, "one partition is missing in the capture");
    let machine = machine(dir.path());
    let cards = cards(&machine);
    let mut nodes: Vec<usize> = cards.iter().map(|card| card.kfd.len()).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, [7, 8, 8, 8, 8, 8, 8, 8]);
    assert_eq!(cards[0].kfd[0].gfx_version, Some(90_402));
    assert_eq!(cards[0].render_nodes(&machine).len(), 8);
    assert!(cards[0].render_nodes(&machine)[0].ends_with("dri/renderD128"));
}

#[test]
fn a_divided_package_gives_its_own_row_and_one_a_partition() {
    let dir = node("CPX", &metrics(8, 0, 0));
    let mut keys = BTreeSet::new();
    let mut power = 0.0;
    for mut probe in amd_sysfs::find(&machine(dir.path())).probes {
        let mut reading = Reading::default();
        probe.read(Due::ALL, &mut reading).unwrap();
        assert_eq!(reading.rows().len(), 9);
        assert_eq!(probe.targets().len(), 9);
        let (package, parts) = reading.rows().split_first().unwrap();
        assert_eq!(partition(package), None);
        power += reading.rows().iter().filter_map(|row| value(row, "power_w")).sum::<f64>();
        for (at, row) in (0_u8..).zip(parts) {
            assert_eq!(partition(row), Some(format!("cpx{at}").as_str()));
            let has = |column| value(row, column);
            assert_eq!(has("utilization_pct"), Some(10.0 * f64::from(at)));
            assert_eq!(has("gpu_clock_mhz"), Some(2000.0 + 10.0 * f64::from(at)));
            assert_eq!(has("media_utilization_pct"), Some(30.0));
            assert_eq!(has("jpeg_utilization_pct"), Some(7.0));
            assert_eq!(has("below_limit_total_count"), Some(100.0));
            assert_eq!(row.values().len(), 5, "nothing of the package");
            let lacks: Vec<_> = row.absences().iter().map(|(id, _)| id.metric().column).collect();
            let other = ["ppt", "thermal", "low_utilization"].map(|why| format!("below_limit_{why}_count"));
            assert_eq!(lacks, other, "what v1.7 has no field for");
        }
        keys.extend(reading.rows().iter().map(|row| row.identity().key().unwrap()));
    }
    assert_eq!(keys.len(), 72, "every row has a key of its own");
    assert!((power - 8.0 * 750.0).abs() < 1e-9, "power is counted once a package");
}

#[test]
fn a_node_without_its_pci_domain_belongs_to_no_card() {
    let dir = tempfile::tempdir().unwrap();
    let node = |at: u32, domain: &str| {
        let properties = format!("simd_count 304\nvendor_id 4098\n{domain}location_id 3072\n");
        write(dir.path(), &format!("class/kfd/kfd/topology/nodes/{at}/properties"), properties);
    };
    node(1, "");
    node(2, "domain 1\n");
    let nodes = read_topology(dir.path());
    assert_eq!(nodes.len(), 1, "domain 0 is not guessed: {nodes:?}");
    assert_eq!((nodes[0].address.as_str(), nodes[0].gfx_version), ("0001:0c:00.0", None));
}

#[test]
fn links_lead_to_the_gpus_that_the_compute_driver_names() {
    let dir = linked();
    let mut numa = Vec::new();
    for mut probe in amd_sysfs::find(&machine(dir.path())).probes {
        let mut reading = Reading::default();
        probe.read(Due::ALL, &mut reading).unwrap();
        let row = &reading.rows()[0];
        numa.push((value(row, "numa_node"), absence(row, "numa_node")));
        let pci = row.identity().get(IdentityColumn::Pci).unwrap().to_owned();
        if pci == "0000:03:00.0" {
            assert_eq!(absence(row, "interconnect_links"), Some(AbsenceReason::NotSupported));
            continue;
        }
        assert_eq!(value(row, "interconnect_links"), Some(2.0));
        let ends: Vec<_> =
            details(probe).into_iter().map(|([_, metric, end], value)| (metric, end, value)).collect();
        let gpus = ["0000:03:00.0", "0000:43:00.0", "0000:63:00.0"].into_iter().filter(|gpu| *gpu != pci);
        let expected = gpus.map(|gpu| ("interconnect_links".to_owned(), gpu.to_owned(), 1.0));
        assert_eq!(ends, expected.collect::<Vec<_>>());
    }
    let none = (None, Some(AbsenceReason::NotSupported));
    assert_eq!(numa, [(Some(0.0), None), (Some(1.0), None), none]);
}

#[test]
fn a_process_is_on_the_partition_that_has_a_row() {
    let dir = node("CPX", &metrics(8, 0, 0));
    let machine = machine(dir.path());
    let nodes = read_topology(dir.path());
    for (pid, node) in (1000..).zip(&nodes) {
        // The capture has the nodes without their numbers.
        let folder = format!("class/kfd/kfd/topology/nodes/{}", node.node);
        write(dir.path(), &format!("{folder}/gpu_id"), format!("{}\n", 50_000 + pid));
        write(dir.path(), &format!("class/kfd/kfd/proc/{pid}/vram_{}", 50_000 + pid), "1048576\n");
        write(&machine.procfs, &format!("{pid}/comm"), "train\n");
    }
    let mut found = discover(&machine, &[Driver::AmdSysfs], no_simulation);
    let mut reading = Reading::default();
    for probe in &mut found.probes {
        probe.read(Due::ALL, &mut reading).unwrap();
    }
    let keys: BTreeSet<_> = reading.rows().iter().filter_map(|row| row.identity().key()).collect();
    let processes = found.processes.remove(0).read().unwrap().processes;
    let on: BTreeSet<_> = processes.into_iter().filter_map(|process| process.gpu.key()).collect();
    assert_eq!(on.len(), nodes.len(), "each on a partition of its own");
    assert!(on.is_subset(&keys) && on.iter().all(|key| key.contains(":cpx")), "{on:?}");
}

#[test]
fn a_whole_package_gives_one_row_with_everything() {
    let dir = node("SPX", &metrics(1, 0, 0));
    let mut probe = amd_sysfs::find(&machine(dir.path())).probes.remove(0);
    let mut reading = Reading::default();
    probe.read(Due::ALL, &mut reading).unwrap();
    assert_eq!(reading.rows().len(), 1);
    let row = &reading.rows()[0];
    let wanted = [
        ("power_w", 750.0),
        ("energy_mj", 1_000_000.0),
        ("temperature_c", 71.0),
        ("temperature_junction_c", 71.0),
        ("temperature_memory_c", 58.0),
        ("temperature_vr_soc_c", 64.0),
        ("temperature_slowdown_c", 100.0),
        ("utilization_pct", 96.0),
        ("memory_utilization_pct", 41.0),
        ("media_utilization_pct", 30.0),
        ("gpu_clock_mhz", 2070.0),
        ("mem_clock_mhz", 1300.0),
        ("gpu_clock_locked", 0.0),
        ("memory_used_mb", 98_296.0),
        ("memory_used_pct", 50.0),
        ("memory_bandwidth_max_bytes_per_s", 5.3e12),
        ("pcie_gen", 5.0),
        ("pcie_width", 16.0),
        ("pcie_replays", 4.0),
        ("interconnect_rx_bytes", 7.0 * 1024.0 * 1024.0),
        ("interconnect_tx_bytes", 7.0 * 2048.0 * 1024.0),
        ("interconnect_links_up", 7.0),
        ("interconnect_width", 16.0),
        ("interconnect_speed_gtps", 32.0),
        ("below_limit_total_count", 800.0),
        ("throttle_sample_count", 1000.0),
        ("firmware_timestamp_ns", 770_000.0),
        ("partition_count", 1.0),
        ("ras_uncorrected", 1.0),
        ("ras_corrected", 22.0),
        ("ras_deferred", 3.0),
        ("bad_pages_retired", 1.0),
        ("bad_pages_pending", 1.0),
        ("bad_pages_unreservable", 0.0),
    ];
    for (column, wanted) in wanted {
        assert_eq!(value(row, column), Some(wanted), "{column}");
    }
    assert_eq!(row.snapshot_id(), Some(77_000));
    for column in ["temperature_edge_c", "power_average_w", "throttle_status", "fan_speed_pct"] {
        assert_eq!(absence(row, column), Some(AbsenceReason::NotSupported), "{column}");
    }
    assert_eq!(row.identity().uuid(), Some("3f1c0d2e4b5a6905"));
}

#[test]
fn each_link_and_each_block_of_a_package_is_a_row_of_the_details() {
    let dir = node("CPX", &metrics(8, 0, 0));
    let mut expected = Vec::new();
    // The table has no values of the eighth link.
    for link in 0..7 {
        expected.extend([
            ("interconnect_rx_bytes", link.to_string(), 1024.0 * 1024.0),
            ("interconnect_tx_bytes", link.to_string(), 2048.0 * 1024.0),
            ("interconnect_links_up", link.to_string(), 1.0),
        ]);
    }
    // The block `gfx` does not count deferred errors.
    let blocks = [
        ("ras_corrected", "umc", 20.0),
        ("ras_corrected", "gfx", 2.0),
        ("ras_uncorrected", "umc", 1.0),
        ("ras_uncorrected", "gfx", 0.0),
        ("ras_deferred", "umc", 3.0),
    ];
    expected.extend(blocks.map(|(metric, block, value)| (metric, block.to_owned(), value)));
    let gpu = "3f1c0d2e4b5a6905";
    let expected =
        expected.into_iter().map(|(metric, instance, value)| ([gpu.into(), metric.into(), instance], value));
    let probe = amd_sysfs::find(&machine(dir.path())).probes.remove(0);
    assert_eq!(details(probe), expected.collect());
}

#[test]
fn each_hbm_stack_is_a_row_of_the_details() {
    let stacks = [(22, 2, 300), (32, 8, 5_000_000), (88, 2, 61), (90, 2, 0), (92, 2, 63)];
    let dir = node("SPX", &table(120, 1, 3, &stacks));
    let probe = amd_sysfs::find(&machine(dir.path())).probes.remove(0);
    let stacks: Vec<_> =
        details(probe).into_iter().filter(|([_, metric, _], _)| metric == "temperature_hbm_c").collect();
    let stack = |number: &str, degrees| {
        (["3f1c0d2e4b5a6905", "temperature_hbm_c", number].map(str::to_owned), degrees)
    };
    assert_eq!(stacks, [stack("0", 61.0), stack("2", 63.0)], "a sensor that is not there reads 0");
}

#[test]
fn the_clocks_are_throttled_while_a_residency_grows() {
    let dir = node("SPX", &metrics(1, 0, 0));
    let mut probe = amd_sysfs::find(&machine(dir.path())).probes.remove(0);
    let mut reading = Reading::default();
    let mut read = |step, throttled| {
        fs::write(device(dir.path(), 0).join("gpu_metrics"), metrics(1, step, throttled)).unwrap();
        reading.clear();
        probe.read(Due::ALL, &mut reading).unwrap();
        let row = &reading.rows()[0];
        (value(row, "throttled"), absence(row, "throttled"))
    };
    assert_eq!(read(0, 5), (None, None), "one snapshot does not tell, and that is not for good");
    assert_eq!(read(0, 5), (None, None), "nor does the same again");
    assert_eq!(read(1, 6), (Some(1.0), None));
    assert_eq!(read(1, 6), (Some(1.0), None), "the same snapshot says the same");
    assert_eq!(read(2, 6), (Some(0.0), None));
}

#[test]
fn residencies_that_count_every_step_of_an_idle_package_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let device = device(dir.path(), 0);
    write(&device, "uevent", "DRIVER=amdgpu\nPCI_ID=1002:74A1\nPCI_SLOT_NAME=0000:0c:00.0\n");
    write(&device, "hwmon/hwmon3/name", "amdgpu\n");
    let blob = fs::read(fixture("../gpu-metrics-blobs").join("mi300x-v1.6-constructed.bin")).unwrap();
    // Whether the limit is known, watts, °C, steps under each limit of the first snapshot and of 100 more steps; what is told:
    // throttled, the counters of power and heat.
    let nothing = [None, None];
    for (limit, watts, hotspot, (first, more), (throttled, told)) in [
        (true, 120, 42, (10_657_785, 100), (0.0, nothing)),
        (false, 120, 42, (10_657_785, 100), (0.0, nothing)),
        (true, 120, 42, (500, 0), (0.0, [Some(500.0); 2])),
        (true, 740, 96, (10_657_785, 100), (1.0, [Some(10_658_785.0); 2])),
        (true, 740, 42, (400, 100), (1.0, [Some(1400.0), None])),
        (true, 120, 96, (400, 100), (1.0, [None, Some(1400.0)])),
    ] {
        let cap = device.join("hwmon/hwmon3/power1_cap");
        let _gone = fs::remove_file(&cap);
        if limit {
            write(&device, "hwmon/hwmon3/power1_cap", "750000000\n");
        }
        let mut probe = amd_sysfs::find(&machine(dir.path())).probes.remove(0);
        let mut reading = Reading::default();
        let mut refused = 0;
        for round in 0..=10_u32 {
            let mut bytes = blob.clone();
            let mut put = |at: usize, number: u32| bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
            put(32, 10_657_785 + 100 * round);
            for at in [40, 44, 52] {
                put(at, first + more * round);
            }
            bytes[4..6].copy_from_slice(&u16::to_le_bytes(hotspot));
            bytes[10..12].copy_from_slice(&u16::to_le_bytes(watts));
            bytes[256] = bytes[256].wrapping_add(u8::try_from(round).unwrap());
            fs::write(device.join("gpu_metrics"), bytes).unwrap();
            reading.clear();
            probe.read(if round == 0 { Due::ALL } else { Due::default() }, &mut reading).unwrap();
            refused += reading.rows()[0].refused();
        }
        let row = &reading.rows()[0];
        let case = format!("{limit} {watts} W, {hotspot} °C, {first} + {more}");
        assert_eq!(value(row, "throttled"), Some(throttled), "{case}");
        let counters =
            ["throttle_ppt_count", "throttle_socket_thermal_count"].map(|column| value(row, column));
        assert_eq!(counters, told, "{case}");
        assert_eq!(refused > 0, told.contains(&None), "{case}");
    }
}

#[test]
fn partitions_come_and_go_while_it_is_read() {
    let dir = node("SPX", &metrics(1, 0, 0));
    let mut probe = amd_sysfs::find(&machine(dir.path())).probes.remove(0);
    let mut reading = Reading::default();
    let mut rows = |mode: &str, partitions| {
        write(&device(dir.path(), 0), "current_compute_partition", mode);
        write(&device(dir.path(), 0), "gpu_metrics", metrics(partitions, 0, 0));
        reading.clear();
        probe.read(Due::default(), &mut reading).unwrap();
        let gone = reading.rows().iter().filter(|row| row.is_down().is_some()).count();
        let up = reading.rows().iter().filter(|row| row.is_down().is_none());
        (up.map(|row| partition(row).unwrap_or("whole").to_owned()).collect::<Vec<_>>().join(" "), gone)
    };
    let whole = |gone| ("whole".to_owned(), gone);
    assert_eq!(rows("SPX", 1), whole(0));
    assert_eq!(rows("QPX", 4), ("whole qpx0 qpx1 qpx2 qpx3".to_owned(), 0));
    assert_eq!(rows("DPX", 2), ("whole dpx0 dpx1".to_owned(), 4), "those that are no more are told once");
    assert_eq!(rows("SPX", 1), whole(2));
    assert_eq!(rows("SPX", 1), whole(0));
}

#[test]
fn an_element_that_is_missing_this_time_is_absent_this_time() {
    let dir = node("CPX", &metrics(8, 0, 0));
    let mut probe = amd_sysfs::find(&machine(dir.path())).probes.remove(0);
    let mut reading = Reading::default();
    let mut read = |bytes: &[u8]| {
        write(&device(dir.path(), 0), "gpu_metrics", bytes);
        reading.clear();
        probe.read(Due::default(), &mut reading).unwrap();
        let row = &reading.rows()[0];
        let down = reading.rows().iter().filter(|row| row.is_down().is_some()).count();
        (value(row, "power_w"), absence(row, "power_w"), row.absences().len(), down)
    };
    let whole = metrics(8, 0, 0);
    let mut without_power = whole.clone();
    without_power[10..12].fill(0xff);
    assert_eq!(read(&whole).0, Some(750.0));
    assert_eq!(read(&whole), (Some(750.0), None, 0, 0));
    assert_eq!(read(&without_power), (None, Some(AbsenceReason::Invalid), 1, 0));
    let (_, broken, _, down) = read(&whole[..100]);
    assert_eq!((broken, down), (Some(AbsenceReason::Invalid), 8), "partitions have nothing but the table");
    assert_eq!(read(&whole), (Some(750.0), None, 0, 0));
}

#[test]
fn what_a_partition_does_not_say_this_time_is_absent_this_time() {
    let dir = node("CPX", &metrics(8, 0, 0));
    let mut probe = amd_sysfs::find(&machine(dir.path())).probes.remove(0);
    let mut reading = Reading::default();
    let mut read = |bytes: &[u8], due| {
        write(&device(dir.path(), 0), "gpu_metrics", bytes);
        reading.clear();
        probe.read(due, &mut reading).unwrap();
        let row = reading.rows().iter().find(|row| partition(row) == Some("cpx3")).unwrap();
        (value(row, "utilization_pct"), row.absences().to_vec(), row.is_down().map(|(reason, _)| reason))
    };
    let whole = metrics(8, 0, 0);
    assert_eq!(read(&whole, Due::ALL).0, Some(30.0));
    assert_eq!(read(&whole, Due::default()), (Some(30.0), vec![], None));
    let mut silent = whole.clone();
    silent[XCP + 3 * XCP_LEN..][..XCP_LEN].fill(0xff);
    let told = ["utilization_pct", "gpu_clock_mhz"].map(|column| (id(column), AbsenceReason::Invalid));
    assert_eq!(read(&silent, Due::default()), (None, told.to_vec(), Some(AbsenceReason::Invalid)));
    let due = Due { slow: true, rare: false };
    assert_eq!(read(&silent, due).1.len(), 5, "also what is read once a second");
    assert_eq!(read(&whole, Due::default()), (Some(30.0), vec![], None));
}

#[test]
fn a_table_without_a_place_for_each_partition_gives_one_row() {
    // v1.9: power, number of partitions, and one activity for all of them.
    let record = |attribute: u64, kind: u64, values: &[u8]| {
        let encoding = kind << 20 | attribute << 10 | 1;
        [&encoding.to_le_bytes()[..], values].concat()
    };
    let records = [record(3, 2, &[7, 2]), record(38, 2, &[8, 0]), record(40, 4, &[40, 0, 0, 0])].concat();
    let len = u8::try_from(8 + records.len()).unwrap();
    let bytes = [&[len, 0, 1, 9, 3, 0, 0, 0][..], &records].concat();
    let dir = node("CPX", &bytes);
    let mut probe = amd_sysfs::find(&machine(dir.path())).probes.remove(0);
    let mut reading = Reading::default();
    probe.read(Due::ALL, &mut reading).unwrap();
    assert_eq!(value(&reading.rows()[0], "power_w"), Some(519.0));
    assert_eq!(value(&reading.rows()[0], "partition_count"), Some(8.0));
    assert_eq!(reading.rows().len(), 1);
}

#[test]
fn the_second_die_of_an_mi250_has_no_power_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let device = device(dir.path(), 0);
    write(&device, "vendor", "0x1002\n");
    write(&device, "device", "0x740c\n");
    let fields = [(4, 2, 45), (22, 2, 0), (24, 8, 65_536), (32, 8, 1), (54, 2, 1700)];
    write(&device, "gpu_metrics", table(120, 1, 3, &fields));
    write(&device, "hwmon/hwmon0/power1_average", "0\n");
    let mut reading = Reading::default();
    only_probe(&machine(dir.path())).read(Due::ALL, &mut reading).unwrap();
    let row = &reading.rows()[0];
    assert_eq!(absence(row, "power_w"), Some(AbsenceReason::NotSupported));
    assert_eq!(absence(row, "power_average_w"), Some(AbsenceReason::NotSupported));
    assert_eq!(value(row, "gpu_clock_mhz"), Some(1700.0));
    assert_eq!(value(row, "energy_mj"), Some(1_000.0));
    // A counter that stands at its beginning is one that the firmware does not have.
    write(&device, "gpu_metrics", table(120, 1, 3, &[(24, 8, 0), (54, 2, 1700)]));
    let mut reading = Reading::default();
    only_probe(&machine(dir.path())).read(Due::ALL, &mut reading).unwrap();
    let row = &reading.rows()[0];
    assert_eq!((value(row, "gpu_clock_mhz"), value(row, "energy_mj")), (Some(1700.0), None));
}
