use gpuvitals_core::batch::Value;
use gpuvitals_core::{BatchBuilder, MetricId};

use super::*;
use crate::doubles::gpu_up;

fn at(second: i64) -> Moment {
    Moment { wall_ns: 1_796_007_299 * SECOND_NS + second * SECOND_NS, mono_ns: second * SECOND_NS }
}

fn gpu(uuid: &str, pci: &str) -> Identity {
    let gpu = Identity::default().with(IdentityColumn::Uuid, uuid).unwrap();
    gpu.with(IdentityColumn::Pci, pci).unwrap()
}

fn state(identity: Identity) -> TargetState {
    gpu_up(Arc::new(identity))
}

fn states() -> Vec<TargetState> {
    vec![state(gpu("GPU-1", "0000:3b:00.0")), state(gpu("GPU-2", "0000:5e:00.0"))]
}

fn watch(machine: Machine) -> KernelWatch {
    let watch = KernelWatch::new(machine, Origin::default());
    watch.began("kmsg");
    watch
}

fn line(kind: KernelKind, device: &str, code: Option<i64>, second: i64) -> KernelLine {
    let device = Some(device.to_owned());
    KernelLine { at_ns: at(second).wall_ns, kind, device, code, is_grave: true, text: "the line".to_owned() }
}

/// A row of GPU-1 with so many XIDs counted.
fn counted(xids: i64) -> Batch {
    counted_by("nvml", xids)
}

fn counted_by(source: &str, xids: i64) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let gpu = gpu("GPU-1", "0000:3b:00.0").with(IdentityColumn::Source, source).unwrap();
    let id = builder.intern(&gpu);
    let row = builder.row(0, id);
    builder.set(row, MetricId::of("xid_count"), Value::Int(xids)).unwrap();
    builder.finish(Origin::default(), 1).unwrap()
}

/// GPU, kind and code of the events that have come.
fn events(watch: &KernelWatch, second: i64) -> Vec<(String, String, Option<i64>)> {
    let rows = watch.take(&states(), at(second)).rows;
    let events = rows.iter().flat_map(HealthEvent::of_rows);
    events.map(|event| (event.gpu.to_string(), event.kind.to_string(), event.code)).collect()
}

fn event(gpu: &str, kind: &str, code: Option<i64>) -> (String, String, Option<i64>) {
    (gpu.to_owned(), kind.to_owned(), code)
}

fn missed(watch: &KernelWatch) -> (u64, u64) {
    let [(_, by_driver), (_, by_kernel)] = watch.heard().xids.missed();
    (by_driver, by_kernel)
}

#[test]
fn an_xid_that_both_sources_tell_of_is_the_drivers_and_the_line_its_text() {
    for is_driver_first in [true, false] {
        let watch = watch(Machine::local("n1"));
        watch.sampled(&counted(0), at(0));
        let driver = || watch.sampled(&counted(1), at(3));
        if is_driver_first {
            driver();
        }
        watch.hear(line(KernelKind::Xid, "0000:3b:00", Some(79), 3));
        if !is_driver_first {
            assert!(events(&watch, 3).is_empty(), "the driver may be late");
            driver();
        }
        assert_eq!(events(&watch, 4), [event("GPU-1", "kernel", Some(79))]);
        assert!(events(&watch, 60).is_empty());
        assert_eq!(missed(&watch), (0, 0));
    }
}

#[test]
fn a_source_of_xids_that_is_dead_is_found_by_the_other() {
    let watch = watch(Machine::local("n1"));
    watch.sampled(&counted(0), at(0));
    watch.hear(line(KernelKind::Xid, "0000:3b:00", Some(79), 1));
    assert!(events(&watch, 1).is_empty());
    assert_eq!(events(&watch, 12), [event("GPU-1", "xid", Some(79))]);
    assert_eq!(missed(&watch), (1, 0));
    watch.sampled(&counted(1), at(100));
    assert!(events(&watch, 101).is_empty());
    assert!(events(&watch, 120).is_empty());
    assert_eq!(missed(&watch), (1, 1));
}

#[test]
fn of_a_simulated_gpu_no_line_is_missed() {
    let watch = watch(Machine::local("n1"));
    watch.sampled(&counted_by("simulated", 0), at(0));
    watch.sampled(&counted_by("simulated", 1), at(1));
    assert!(events(&watch, 60).is_empty());
    assert_eq!(missed(&watch), (0, 0));
}

#[test]
fn where_no_driver_counts_the_kernel_tells_at_once() {
    let watch = watch(Machine::local("n1"));
    watch.hear(line(KernelKind::Xid, "0000:5e:00", Some(31), 1));
    let rows = watch.take(&states(), at(1)).rows.unwrap();
    let found = HealthEvent::of_rows(&rows);
    let [event] = &found[..] else { panic!("{found:?}") };
    assert_eq!((&*event.gpu, &*event.kind, event.code), ("GPU-2", "xid", Some(31)));
    assert_eq!(rows.identity(0).get(IdentityColumn::Source), Some("agent"), "gateways find it by that");
    assert_eq!(missed(&watch), (0, 0));
}

#[test]
fn many_lines_of_a_fault_are_one_event_and_each_goes_to_the_recorder() {
    let watch = watch(Machine::local("n1"));
    for _ in 0..100 {
        watch.hear(line(KernelKind::Reset, "0000:3b:00.0", None, 1));
    }
    let news = watch.take(&states(), at(1));
    assert_eq!((news.lines.len(), news.rows.as_ref().map(Batch::rows)), (100, Some(1)));
    assert_eq!(news.log.as_deref(), Some("kmsg"));
    let trigger = news.lines[0].trigger.as_ref().unwrap();
    assert_eq!((trigger.kind.as_str(), trigger.gpu.as_deref()), ("reset", Some("GPU-1")));
    watch.hear(line(KernelKind::Reset, "0000:3b:00.0", None, 5));
    assert!(events(&watch, 5).is_empty());
    watch.hear(line(KernelKind::Reset, "0000:3b:00.0", None, 20));
    assert_eq!(events(&watch, 20), [event("GPU-1", "kernel", None)]);
}

#[test]
fn a_fault_of_a_bridge_is_one_of_the_gpus_below_it() {
    let folder = tempfile::tempdir().unwrap();
    let devices = folder.path().join("bus/pci/devices");
    std::fs::create_dir_all(&devices).unwrap();
    for gpu in ["0000:3b:00.0", "0000:5e:00.0"] {
        let bridge = if gpu.contains("3b") { "0000:00:01.1" } else { "0000:00:01.2" };
        std::os::unix::fs::symlink(format!("../../../devices/pci0000:00/{bridge}/{gpu}"), devices.join(gpu))
            .unwrap();
    }
    let watch = watch(Machine { sysfs: folder.path().to_owned(), ..Machine::local("n1") });
    watch.hear(line(KernelKind::Aer, "0000:00:01.2", None, 1));
    assert_eq!(events(&watch, 1), [event("GPU-2", "kernel", None)]);
    watch.hear(line(KernelKind::Link, "0000:00:01.3", None, 2));
    watch.hear(KernelLine { device: None, ..line(KernelKind::OutOfMemory, "", None, 2) });
    assert!(events(&watch, 2).is_empty(), "of another device, or of none");
}

#[test]
fn what_nobody_takes_has_a_bound() {
    let watch = watch(Machine::local("n1"));
    for second in 0..2 * LINES_MAX {
        watch.hear(line(KernelKind::Aer, "0000:3b:00.0", None, i64::try_from(second).unwrap()));
    }
    assert_eq!(watch.take(&states(), at(1)).lines.len(), LINES_MAX);
    let lost = watch.heard().lost;
    assert_eq!(lost, LINES_MAX as u64);
}

#[test]
fn a_long_line_is_cut_between_characters() {
    let text = "ä".repeat(1_000);
    assert_eq!(cut(&text).len(), DETAIL_LEN_MAX);
    assert_eq!(cut("short"), "short");
}
