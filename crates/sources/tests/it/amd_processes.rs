//! Processes on AMD GPUs, on made-up procfs and KFD trees with the kernel's own record format.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::{Driver, ProbeError};
use gpuvitals_sources::processes::amd::AmdProcesses;
use gpuvitals_sources::processes::{Engine, GpuProcess, ProcessKind, ProcessList, parse_fdinfo};
use gpuvitals_sources::registry::{discover, no_simulation};
use proptest::prelude::*;

const SECOND: i64 = 1_000_000_000;

fn captured() -> String {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/amd/fdinfo/amdgpu-common-memory-keys.txt");
    fs::read_to_string(path).unwrap()
}

/// A machine of files.
struct Tree {
    root: tempfile::TempDir,
}

impl Tree {
    fn new() -> Self {
        let tree = Self { root: tempfile::tempdir().unwrap() };
        fs::create_dir(tree.root.path().join("proc")).unwrap();
        tree
    }

    fn machine(&self) -> Machine {
        let root = self.root.path();
        Machine {
            sysfs: root.join("sys"),
            procfs: root.join("proc"),
            dev: root.join("dev"),
            node: "n".into(),
        }
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// A process with open files: number, where it points, record.
    fn process(&self, pid: u32, name: &str, files: &[(u32, &str, &str)]) {
        self.write(&format!("proc/{pid}/comm"), &format!("{name}\n"));
        fs::create_dir_all(self.root.path().join(format!("proc/{pid}/fd"))).unwrap();
        for (fd, link, record) in files {
            let path = self.root.path().join(format!("proc/{pid}/fd/{fd}"));
            let _before = fs::remove_file(&path);
            symlink(link, path).unwrap();
            self.write(&format!("proc/{pid}/fdinfo/{fd}"), record);
        }
    }

    /// A card of amdgpu.
    fn card(&self, card: u32, pci: &str) {
        let uevent = format!("DRIVER=amdgpu\nPCI_ID=1002:74A1\nPCI_SLOT_NAME={pci}\n");
        self.write(&format!("sys/class/drm/card{card}/device/uevent"), &uevent);
    }

    /// The table of a machine with these cards.
    fn table(&self, cards: &[&str]) -> AmdProcesses {
        for (card, pci) in (0..).zip(cards) {
            self.card(card, pci);
        }
        AmdProcesses::new(&self.machine())
    }

    /// A GPU of the compute driver.
    fn kfd_gpu(&self, node: u32, gpu_id: u32, location: u32, minor: u32) {
        let folder = format!("sys/class/kfd/kfd/topology/nodes/{node}");
        self.write(&format!("{folder}/gpu_id"), &format!("{gpu_id}\n"));
        let properties = format!(
            "simd_count 304\nvendor_id 4098\ndomain 0\nlocation_id {location}\ndrm_render_minor {minor}\n"
        );
        self.write(&format!("{folder}/properties"), &properties);
    }
}

fn record(pci: &str, client: u64, vram: &str, engines: &[(&str, u64)]) -> String {
    let engines: Vec<_> =
        engines.iter().map(|(name, busy_ns)| format!("drm-engine-{name}:\t{busy_ns} ns\n")).collect();
    let engines = engines.concat();
    format!(
        "pos:\t0\ndrm-driver:\tamdgpu\ndrm-client-id:\t{client}\ndrm-pdev:\t{pci}\ndrm-memory-vram:\t{vram}\n{engines}"
    )
}

fn only(mut list: ProcessList) -> GpuProcess {
    assert_eq!((list.processes.len(), list.gaps.len()), (1, 0), "{list:?}");
    list.processes.remove(0)
}

#[test]
fn the_captured_record_is_understood() {
    let client = parse_fdinfo(&captured()).unwrap();
    assert_eq!((client.id, client.pci.as_deref()), (30, Some("0000:04:00.0")));
    assert_eq!(client.vram_bytes, Some(544_428 << 10), "both generations of keys tell the same, once");
    let gfx = Engine { busy_ns: 39_456_116_802, capacity: 1 };
    assert_eq!(client.engines.into_iter().collect::<Vec<_>>(), [("gfx".to_owned(), gfx)]);
}

#[test]
fn what_is_no_client_of_amdgpu_is_none() {
    assert_eq!(parse_fdinfo("pos:\t0\nflags:\t02\nmnt_id:\t24\n"), None);
    assert_eq!(parse_fdinfo(&captured().replace("amdgpu\n", "i915\n")), None);
    assert_eq!(parse_fdinfo(&captured().replace("drm-client-id:\t30\n", "")), None);
    let later = parse_fdinfo(&captured().replace("0000:04:00.0", "../../etc")).unwrap();
    assert_eq!(later.pci, None);
}

#[test]
fn a_share_is_the_busy_time_between_two_readings_by_the_number_of_engines() {
    let tree = Tree::new();
    let mut table = tree.table(&["0000:04:00.0"]);
    let run = |gfx: u64, enc: u64| {
        let record =
            record("0000:04:00.0", 7, "1024 KiB", &[("gfx", gfx), ("enc", enc), ("capacity-enc", 9)]);
        let record = record.replace("capacity-enc:\t9 ns", "capacity-enc:\t2");
        tree.process(42, "blender", &[(3, "/dev/dri/renderD128", &record)]);
    };
    run(5_000_000_000, 0);
    let first = only(table.read_at(10 * SECOND).unwrap());
    assert_eq!(first.utilization_pct, None, "one reading knows no share");
    run(5_500_000_000, 1_000_000_000);
    let second = only(table.read_at(12 * SECOND).unwrap());
    let expected = GpuProcess {
        gpu: second.gpu.clone(),
        pid: 42,
        name: "blender".into(),
        kind: ProcessKind::Graphics,
        memory_mb: Some(1),
        utilization_pct: Some(25.0),
        memory_utilization_pct: None,
        encoder_utilization_pct: Some(25.0),
        decoder_utilization_pct: None,
        compute_units: None,
    };
    assert_eq!(second, expected);
    assert_eq!(second.gpu.key().as_deref(), Some("0000:04:00.0@n"));
    run(1_000, 0);
    let reused = only(table.read_at(13 * SECOND).unwrap());
    assert_eq!(reused.utilization_pct, None, "a count that falls back is another client's");
}

#[test]
fn a_client_counts_once_however_often_its_file_is_open() {
    let tree = Tree::new();
    let one = record("0000:04:00.0", 7, "2 MiB", &[("gfx", 5)]);
    let two = record("0000:04:00.0", 8, "3 MiB", &[]);
    tree.process(42, "parent", &[(3, "/dev/dri/renderD128", &one), (4, "/dev/dri/renderD128", &one)]);
    tree.process(43, "child", &[(3, "/dev/dri/renderD128", &one), (9, "/dev/dri/card0", &two)]);
    tree.process(44, "idle", &[(3, "/dev/dri/renderD128", &record("0000:04:00.0", 9, "0", &[]))]);
    tree.process(45, "log", &[(3, "/var/log/dri/renderD128", &one), (5, "socket:[7]", &one)]);
    let mut table = tree.table(&["0000:04:00.0"]);
    let seen = table.read_at(SECOND).unwrap().processes;
    let short: Vec<_> = seen.iter().map(|p| (p.pid, &*p.name, p.memory_mb)).collect();
    assert_eq!(short, [(42, "parent", Some(2)), (43, "child", Some(3))]);
}

#[test]
fn memory_of_a_compute_process_is_the_larger_of_both_tables_and_its_share_is_unknown() {
    let tree = Tree::new();
    tree.kfd_gpu(1, 51_000, 0x0500, 128);
    tree.kfd_gpu(2, 51_001, 0x2600, 129);
    tree.write("sys/class/kfd/kfd/proc/42/vram_51000", "1073741824\n");
    tree.write("sys/class/kfd/kfd/proc/42/vram_51001", "0\n");
    tree.write("sys/class/kfd/kfd/proc/42/stats_51000/cu_occupancy", "120\n");
    tree.write("sys/class/kfd/kfd/proc/43/vram_51000", "4096\n");
    let small = record("0000:05:00.0", 7, "10 MiB", &[("dma", 100)]);
    tree.process(42, "python3", &[(3, "/dev/dri/renderD128", &small)]);
    let mut table = tree.table(&["0000:05:00.0", "0000:26:00.0"]);
    table.read_at(SECOND).unwrap();
    let python = only(table.read_at(2 * SECOND).unwrap());
    assert_eq!((python.gpu.uuid(), python.memory_mb), (Some("0000:05:00.0@n"), Some(1024)));
    assert_eq!((python.kind, python.utilization_pct), (ProcessKind::Compute, None));
    assert_eq!(python.compute_units, Some(120));
    fs::remove_dir_all(tree.root.path().join("sys/class/kfd/kfd/proc/42/stats_51000")).unwrap();
    let python = only(table.read_at(3 * SECOND).unwrap());
    assert_eq!(
        (python.memory_mb, python.compute_units),
        (Some(1024), None),
        "an older kernel does not say it"
    );
}

#[test]
fn memory_that_the_kernel_does_not_give_is_not_zero() {
    let tree = Tree::new();
    let known = record("0000:04:00.0", 7, "2 MiB", &[("gfx", 5)]);
    let unknown = record("0000:04:00.0", 8, "0", &[("gfx", 5)]).replace("drm-memory-vram:\t0\n", "");
    tree.process(42, "one", &[(3, "/dev/dri/renderD128", &known), (4, "/dev/dri/renderD128", &unknown)]);
    let other = unknown.replace("client-id:\t8", "client-id:\t9");
    tree.process(43, "other", &[(3, "/dev/dri/renderD128", &other)]);
    let mut table = tree.table(&["0000:04:00.0"]);
    let seen = table.read_at(SECOND).unwrap().processes;
    let short: Vec<_> = seen.iter().map(|p| (p.pid, p.memory_mb)).collect();
    assert_eq!(short, [(42, None), (43, None)], "a part of the memory is not the memory");
}

#[test]
fn a_list_of_compute_processes_that_cannot_be_read_is_a_gap() {
    let tree = Tree::new();
    tree.kfd_gpu(1, 51_000, 0x0500, 128);
    tree.process(42, "render", &[(3, "/dev/dri/renderD128", &record("0000:05:00.0", 7, "2 MiB", &[]))]);
    let mut table = tree.table(&["0000:05:00.0"]);
    let list = table.read_at(SECOND).unwrap();
    assert_eq!(list.processes.iter().map(|p| p.pid).collect::<Vec<_>>(), [42], "the others are still seen");
    assert_eq!(list.gaps.len(), 1);
    assert!(list.gaps[0].to_string().contains("kfd/proc"), "{}", list.gaps[0]);
    fs::create_dir_all(tree.root.path().join("sys/class/kfd/kfd/proc/42")).unwrap();
    assert_eq!(table.read_at(2 * SECOND).unwrap().gaps, [], "a process that has ended is no gap");
    tree.write("sys/class/kfd/kfd/proc/42/vram_51000", "?\n");
    assert_eq!(table.read_at(3 * SECOND).unwrap().gaps.len(), 1);
}

#[test]
fn partitions_of_one_device_are_told_apart_as_soon_as_there_are_some() {
    let tree = Tree::new();
    tree.kfd_gpu(2, 60, 0x0500, 128);
    tree.write("sys/class/kfd/kfd/proc/42/vram_60", "3145728\n");
    tree.process(42, "train", &[]);
    let mut table = tree.table(&["0000:05:00.0"]);
    let mut seen = |at| {
        let seen = table.read_at(at * SECOND).unwrap().processes;
        seen.into_iter().map(|p| (p.gpu.key().unwrap().to_string(), p.memory_mb)).collect::<Vec<_>>()
    };
    let held = |gpu: &str, mib| (gpu.to_owned(), Some(mib));
    assert_eq!(seen(1), [held("0000:05:00.0@n", 3)]);
    // It is divided, and another comes.
    tree.write("sys/class/drm/card0/device/current_compute_partition", "DPX\n");
    tree.kfd_gpu(3, 61, 0x0501, 129);
    tree.write("sys/class/kfd/kfd/proc/42/vram_61", "4194304\n");
    tree.card(1, "0000:26:00.0");
    let nameless = record("", 9, "8 MiB", &[]).replace("drm-pdev:\t\n", "");
    let other = record("0000:26:00.0", 10, "9 MiB", &[]);
    let unknown = record("0000:05:00.2", 11, "10 MiB", &[]);
    let files = [
        (3, "/dev/dri/renderD129", &*nameless),
        (4, "/dev/dri/renderD130", &*other),
        (5, "/dev/dri/renderD131", &*unknown),
    ];
    tree.process(42, "train", &files);
    let expected = [
        held("0000:05:00.0@n", 10),
        held("0000:05:00.0@n:dpx0", 3),
        held("0000:05:00.0@n:dpx1", 8),
        held("0000:26:00.0@n", 9),
    ];
    assert_eq!(seen(2), expected, "a partition that is not known is the whole GPU's");
}

#[test]
fn a_process_that_ends_and_a_gpu_that_is_not_ours_are_not_there() {
    let tree = Tree::new();
    tree.process(42, "other", &[(3, "/dev/dri/renderD128", &record("0000:99:00.0", 7, "2 MiB", &[]))]);
    tree.write("proc/43/comm", "kthread\n");
    fs::create_dir_all(tree.root.path().join("proc/44/fd")).unwrap();
    symlink("/dev/dri/renderD128", tree.root.path().join("proc/44/fd/3")).unwrap();
    let mut table = tree.table(&["0000:04:00.0"]);
    assert_eq!(table.read_at(SECOND).unwrap(), ProcessList::default());
    fs::remove_dir_all(tree.root.path().join("proc")).unwrap();
    assert!(matches!(table.read_at(SECOND), Err(ProbeError::Failed(text)) if text.contains("proc")));
}

#[test]
fn on_a_large_machine_all_are_looked_at_in_turn_and_those_found_each_time() {
    let tree = Tree::new();
    for pid in 1..=1100 {
        fs::create_dir_all(tree.root.path().join(format!("proc/{pid}"))).unwrap();
    }
    for (pid, client) in [(7, 1), (1090, 2)] {
        let record = record("0000:04:00.0", client, "1 MiB", &[]);
        tree.process(pid, "render", &[(3, "/dev/dri/renderD128", &record)]);
    }
    let mut table = tree.table(&["0000:04:00.0"]);
    let mut seen = |at| table.read_at(at).unwrap().processes.iter().map(|p| p.pid).collect::<Vec<_>>();
    assert_eq!(seen(SECOND), [7]);
    assert_eq!(seen(2 * SECOND), [7, 1090]);
    assert_eq!(seen(3 * SECOND), [7, 1090]);
}

#[test]
fn only_amd_gpus_have_such_a_table_and_a_captured_tree_has_no_processes_of_this_machine() {
    let tree = Tree::new();
    let tables = |machine: &Machine| discover(machine, &[Driver::AmdSysfs], no_simulation).processes.len();
    assert_eq!(tables(&tree.machine()), 0);
    tree.card(0, "0000:04:00.0");
    assert_eq!(tables(&tree.machine()), 1);
    assert_eq!(tables(&Machine { procfs: "/proc".into(), ..tree.machine() }), 0);
    assert_eq!(discover(&tree.machine(), &[Driver::Procfs], no_simulation).processes.len(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,300}") {
        let _client = parse_fdinfo(&text);
    }

    #[test]
    fn the_captured_record_with_bytes_changed_is_read_or_refused(at in 0usize..689, byte in any::<char>()) {
        let mut text: Vec<char> = captured().chars().collect();
        if let Some(place) = text.get_mut(at) {
            *place = byte;
        }
        let _client = parse_fdinfo(&text.into_iter().collect::<String>());
    }

    #[test]
    fn shares_lie_between_nothing_and_all(steps in proptest::collection::vec((0u64..3_000_000_000, 1i64..3), 1..6)) {
        let tree = Tree::new();
        let mut table = tree.table(&["0000:04:00.0"]);
        let (mut busy_ns, mut now_ns) = (0, 0);
        for (busy, seconds) in steps {
            busy_ns += busy;
            now_ns += seconds * SECOND;
            let record = record("0000:04:00.0", 7, "1 MiB", &[("gfx", busy_ns)]);
            tree.process(42, "x", &[(3, "/dev/dri/renderD128", &record)]);
            for process in table.read_at(now_ns).unwrap().processes {
                prop_assert!(process.utilization_pct.is_none_or(|share| (0.0..=100.0).contains(&share)));
            }
        }
    }
}
