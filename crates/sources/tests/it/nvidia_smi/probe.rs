//! The probe and the process table on a tool that replays captures.

use gpuvitals_core::batch::Value;
use gpuvitals_core::{AbsenceReason, IdentityColumn, catalogue};
use gpuvitals_sources::dialect::nvidia_smi::{self, NvidiaSmi, SmiProcesses};
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::{Due, Probe, ProbeError, Reading, Row};
use gpuvitals_sources::processes::{ProcessKind, ProcessTable};

use super::tool::Tool;
use super::{COLUMNS, files};

const TICK: Due = Due { slow: true, rare: false };

fn capture(name: &str) -> String {
    files("captures", name).pop().unwrap().1
}

fn value(row: &Row, column: &str) -> Option<f64> {
    row.get(catalogue::by_column(column).unwrap()).map(Value::as_f64)
}

fn absent(row: &Row, column: &str) -> Option<AbsenceReason> {
    let metric = catalogue::by_column(column).unwrap();
    row.absences().iter().find(|(id, _)| *id == metric).map(|(_, reason)| *reason)
}

fn read(probe: &mut NvidiaSmi, due: Due) -> Reading {
    let mut reading = Reading::default();
    probe.read(due, &mut reading).unwrap();
    reading
}

/// Several GPUs of one kind, with the 13 columns and an address.
fn node(lines: &[&str]) -> String {
    format!("{}, pci.bus_id\n{}\n", COLUMNS.join(", "), lines.join("\n"))
}

const FIRST: &str = "0, GPU-0000aaaa-0000-0000-0000-000000000000, RTX 3090, 30, 0, 0, 24576, 1, 24265, 30.12, 350.00, 1, 16, 00000000:01:00.0";
const SECOND: &str = "1, GPU-1111aaaa-0000-0000-0000-000000000000, RTX 3090, 31, 5, 0, 24576, 1, 24265, 31.00, 350.00, 1, 16, 00000000:02:00.0";
const THIRD: &str = "2, GPU-2222aaaa-0000-0000-0000-000000000000, RTX 3090, 32, 0, 0, 24576, 1, 24265, 28.44, 350.00, 1, 16, 00000000:0A:00.0";

#[test]
fn a_capture_is_read_through_the_tool() {
    let tool = Tool::new(&capture("h200__590.48.01__load.csv"));
    let mut probe = NvidiaSmi::new(tool.path(), "n1");
    assert!(probe.targets().is_empty(), "who is there shows when it runs");
    let reading = read(&mut probe, Due::ALL);
    let [row] = reading.rows() else { panic!("{:?}", reading.rows()) };
    let identity = row.identity();
    assert_eq!(identity.uuid(), Some("GPU-00000000-0000-0000-0000-000000000000"));
    assert_eq!(identity.get(IdentityColumn::Pci), Some("0000:83:00.0"));
    assert_eq!(identity.get(IdentityColumn::Model), Some("NVIDIA H200"));
    assert_eq!(identity.get(IdentityColumn::Driver), Some("590.48.01"));
    assert_eq!(identity.get(IdentityColumn::Vbios), Some("96.00.A5.00.03"));
    assert_eq!((identity.get(IdentityColumn::Source), identity.index), (Some("nvidia-smi"), Some(0)));
    for (column, expected) in [
        ("power_w", 626.26),
        ("power_average_w", 627.4),
        ("utilization_pct", 100.0),
        ("gpu_clock_mhz", 1980.0),
        ("mem_clock_mhz", 3201.0),
        ("memory_used_mb", 32362.0),
        ("memory_total_mb", 143_771.0),
        ("temperature_c", 52.0),
        ("temperature_memory_c", 40.0),
        ("throttled", 0.0),
        ("ecc_mode", 1.0),
        ("mig_mode", 0.0),
        ("remap_banks_max", 3072.0),
        ("power_limit_min_w", 200.0),
    ] {
        assert_eq!(value(row, column), Some(expected), "{column}");
    }
    assert_eq!(absent(row, "fan_speed_pct"), Some(AbsenceReason::NotSupported));
    assert!(row.taken_ns().is_some());
    assert_eq!(tool.calls().len(), 1);

    let again = read(&mut probe, TICK);
    assert!(std::sync::Arc::ptr_eq(again.rows()[0].identity(), &probe.targets()[0]));
    assert_eq!(again.rows()[0].absences(), [], "what is not there for good is told at the rare tier only");
    assert_eq!(
        (value(&again.rows()[0], "power_limit_min_w"), value(&again.rows()[0], "power_w")),
        (None, Some(626.26))
    );
    let calls = tool.calls();
    assert!(calls.len() == 1 && !calls[0].contains("power.min_limit"), "{calls:?}");
}

#[test]
fn every_capture_gives_a_row_that_a_batch_takes() {
    for (name, text) in files("captures", ".csv") {
        let tool = Tool::new(&text.replace('\r', ""));
        let reading = read(&mut NvidiaSmi::new(tool.path(), "n1"), Due::ALL);
        let [row] = reading.rows() else { panic!("{name}: {:?}", reading.rows()) };
        for column in ["power_w", "temperature_c", "memory_used_mb", "gpu_clock_mhz", "memory_used_pct"] {
            assert!(value(row, column).is_some(), "{name} {column}");
        }
        let is_mig = name.contains("mig");
        assert_eq!(absent(row, "utilization_pct"), is_mig.then_some(AbsenceReason::NotSupported), "{name}");
    }
}

#[test]
fn an_old_driver_is_asked_with_fewer_and_older_fields() {
    let old = "index, uuid, name, pci.bus_id, driver_version, temperature.gpu, utilization.gpu, utilization.memory, \
         memory.total [MiB], memory.used [MiB], memory.free [MiB], power.draw [W], clocks.gr [MHz], \
         clocks_throttle_reasons.active\n\
         0, GPU-1, Tesla P100, 00000000:04:00.0, 384.81, 40, 98, 55, 16276 MiB, 893 MiB, 15383 MiB, 120.50 W, 1328 MHz, 0x0000000000000004\n";
    let tool = Tool::new(old);
    let mut probe = NvidiaSmi::new(tool.path(), "n1");
    let reading = read(&mut probe, Due::ALL);
    let row = &reading.rows()[0];
    assert_eq!((value(row, "power_w"), value(row, "gpu_clock_mhz")), (Some(120.5), Some(1328.0)));
    assert_eq!((value(row, "throttle_reasons"), value(row, "throttled")), (Some(4.0), Some(1.0)));
    assert_eq!(absent(row, "ecc_mode"), Some(AbsenceReason::NotSupported));
    assert_eq!(absent(row, "power_w"), None);
    assert!(tool.calls().len() > 5);
    read(&mut probe, Due::ALL);
    assert_eq!(tool.calls().len(), 1, "what was refused is not asked for again");

    let vague = Tool::new(&node(&[FIRST]));
    vague.says("Some option is not a valid field to query\n", 2);
    let mut probe = NvidiaSmi::new(vague.path(), "n1");
    assert!(probe.read(Due::ALL, &mut Reading::default()).is_err());
    vague.speaks_again();
    assert_eq!(
        value(&read(&mut probe, Due::ALL).rows()[0], "power_w"),
        Some(30.12),
        "the 13 fields of every driver"
    );
}

#[test]
fn a_lost_gpu_is_down_and_the_others_go_on() {
    let tool = Tool::new(&node(&[FIRST, SECOND, THIRD]));
    let mut probe = NvidiaSmi::new(tool.path(), "n1");
    assert_eq!(read(&mut probe, Due::ALL).rows().len(), 3);

    let sentence = "Unable to determine the device handle for GPU0000:02:00.0: Unknown Error";
    let unknown = ["[Unknown Error]"; 14].join(", ");
    tool.put("gpus", &node(&[FIRST, sentence, &unknown]));
    let reading = read(&mut probe, TICK);
    let down: Vec<_> = reading.rows().iter().map(|row| (row.identity().index, row.is_down())).collect();
    assert_eq!(down[0], (Some(0), None));
    assert_eq!(
        down[1],
        (Some(1), Some((AbsenceReason::Gone, "nvidia-smi cannot reach it: lost, or in need of a reset")))
    );
    assert_eq!(down[2], (Some(2), Some((AbsenceReason::Gone, "nvidia-smi does not list it any more"))));

    tool.put("gpus", &node(&[FIRST, SECOND, THIRD]));
    let reading = read(&mut probe, TICK);
    assert!(reading.rows().iter().all(|row| row.is_down().is_none()), "they come back");
}

#[test]
fn a_gpu_that_is_lost_from_the_start_is_named_by_the_sentence_about_it() {
    let sentence = "Unable to determine the device handle for GPU0: 0000:02:00.0: Unknown Error";
    let tool = Tool::new(&node(&[FIRST, sentence]));
    let mut probe = NvidiaSmi::new(tool.path(), "n1");
    for _ in 0..2 {
        let reading = read(&mut probe, Due::ALL);
        let [first, lost] = reading.rows() else { panic!("{:?}", reading.rows()) };
        assert_eq!((first.is_down(), lost.identity().uuid()), (None, Some("0000:02:00.0@n1")));
        assert!(matches!(lost.is_down(), Some((AbsenceReason::Gone, _))));
        let unreached = probe.unreached();
        assert!(
            unreached.len() == 1 && unreached[0].starts_with("GPU (0000:02:00.0) was not read: "),
            "{unreached:?}"
        );
    }
    tool.put("gpus", &node(&[FIRST, SECOND]));
    let reading = read(&mut probe, TICK);
    let names: Vec<_> = reading.rows().iter().map(|row| (row.identity().index, row.is_down())).collect();
    assert_eq!(names, [(Some(0), None), (Some(1), None)], "it has its name now");
    assert!(probe.unreached().is_empty());
}

#[test]
fn gpus_with_one_uuid_are_told_apart_by_their_address() {
    let twin = SECOND.replace("GPU-1111", "GPU-0000");
    let tool = Tool::new(&node(&[FIRST, &twin]));
    let reading = read(&mut NvidiaSmi::new(tool.path(), "n1"), Due::ALL);
    let names: Vec<_> = reading.rows().iter().map(|row| row.identity().uuid().unwrap().to_owned()).collect();
    assert_eq!(names, ["0000:01:00.0@n1", "0000:02:00.0@n1"]);
}

#[test]
fn what_the_tool_says_instead_of_gpus_is_the_reason() {
    let tool = Tool::new("");
    let mut probe = NvidiaSmi::new(tool.path(), "n1");
    let mut fails = |text: &str, status: i32| {
        tool.says(text, status);
        probe.read(Due::ALL, &mut Reading::default()).unwrap_err()
    };
    for (name, text) in files("query-csv", ".stdout.txt") {
        let error = fails(&text, 9);
        let first = text.lines().next().unwrap();
        assert!(matches!(&error, ProbeError::Gone(said) if said.starts_with(first)), "{name}: {error}");
    }
    assert!(matches!(fails("Insufficient Permissions\n", 4), ProbeError::Denied(_)));
    assert!(matches!(fails("", 4), ProbeError::Denied(_)));
    assert!(matches!(fails("", 255), ProbeError::Failed(_)));
    assert!(matches!(fails("hello\n", 0), ProbeError::Failed(_)));
    let missing = NvidiaSmi::new("/no/such/nvidia-smi", "n1").read(Due::ALL, &mut Reading::default());
    assert!(matches!(missing, Err(ProbeError::Gone(_))), "{missing:?}");
}

#[test]
fn processes_come_from_pmon_and_for_gpus_it_leaves_out_from_the_apps() {
    let tool = Tool::new(&node(&[FIRST, SECOND]));
    let (_, pmon) = files("pmon", "535-um-fb-ccpm.txt").pop().unwrap();
    tool.put("pmon", &pmon);
    tool.put(
        "apps",
        "gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n\
         GPU-0000aaaa-0000-0000-0000-000000000000, 1360690, /usr/bin/python, 382\n\
         GPU-1111aaaa-0000-0000-0000-000000000000, 77, /opt/train --secret=1, 512\n",
    );
    let mut table = SmiProcesses::new(tool.path(), "n1");
    let mut found = table.read().unwrap().processes;
    found.sort_by_key(|process| process.pid);
    let names: Vec<_> =
        found.iter().map(|process| (process.gpu.uuid().unwrap(), process.pid, &*process.name)).collect();
    let (first, second) =
        ("GPU-0000aaaa-0000-0000-0000-000000000000", "GPU-1111aaaa-0000-0000-0000-000000000000");
    assert_eq!(
        names,
        [
            (second, 77, "train"),
            (first, 155_367, "firefox"),
            (first, 1_360_690, "python"),
            (first, 3_160_582, "Xorg"),
            (first, 3_444_723, "python"),
        ]
    );
    let busy = &found[2];
    assert_eq!(
        (busy.utilization_pct, busy.memory_utilization_pct, busy.memory_mb),
        (Some(99.0), Some(30.0), Some(382))
    );
    assert_eq!((found[0].kind, found[1].kind), (ProcessKind::Compute, ProcessKind::Graphics));
    assert_eq!((found[0].memory_mb, found[0].utilization_pct), (Some(512), None));
    let learnt = tool.calls().iter().filter(|call| call.starts_with("--query-gpu")).count();
    table.read().unwrap();
    assert_eq!((learnt, tool.calls().iter().filter(|call| call.starts_with("--query-gpu")).count()), (1, 0));

    tool.says("NVIDIA-SMI has failed\n", 9);
    assert!(SmiProcesses::new(tool.path(), "n1").read().is_err());
}

#[test]
fn a_captured_tree_is_not_asked_for_by_a_tool_of_this_machine() {
    let machine = Machine { sysfs: "/tmp".into(), ..Machine::local("n1") };
    let found = nvidia_smi::find(&machine);
    assert!(found.probes.is_empty() && found.processes.is_empty() && found.findings.len() == 1);
}
