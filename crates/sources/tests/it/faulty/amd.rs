//! An AMD GPU whose `gpu_metrics` stops answering while its other files go on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gpuvitals_core::AbsenceReason;
use gpuvitals_rig::faulty_sysfs::FaultySysfs;
use gpuvitals_sources::dialect::amd_sysfs;
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::{Due, Probe, Reading, Row};
use gpuvitals_sources::registry::Verdict;
use rustix::io::Errno;
use serde_json::{Value, json};

pub(crate) const TABLE: &str = "/class/drm/card0/device/gpu_metrics";
pub(crate) fn captured(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/amd/sysfs").join(name)
}

/// The one GPU of a tree.
pub(crate) fn probe(sysfs: &Path) -> Box<dyn Probe> {
    let machine = Machine {
        sysfs: sysfs.to_owned(),
        procfs: sysfs.join("no-proc"),
        dev: sysfs.join("no-dev"),
        node: "node1".into(),
    };
    let mut probes = amd_sysfs::find(&machine).probes;
    assert_eq!(probes.len(), 1);
    probes.remove(0)
}

fn due(tick: u32) -> Due {
    Due { slow: tick.is_multiple_of(10), rare: tick.is_multiple_of(300) }
}

fn values(row: &Row) -> BTreeMap<&'static str, String> {
    row.values().iter().map(|(id, value)| (id.metric().column, format!("{value:?}"))).collect()
}

fn rule(path: &str, fault: &Value) -> Value {
    let mut rule = json!({"path": path});
    rule.as_object_mut().unwrap().extend(fault.as_object().unwrap().clone());
    rule
}

/// Faults of `gpu_metrics`, with their messages.
fn faults() -> Vec<(Value, &'static str)> {
    let read = |errno: Errno| json!({"read": errno.raw_os_error()});
    vec![
        (read(Errno::IO), "os error 5"),
        (read(Errno::BUSY), "os error 16"),
        (read(Errno::PERM), "os error 1"),
        (json!({"keep": 50}), "but 50 bytes were read"),
        (json!({"keep": 0}), "0 bytes are too few for a header"),
    ]
}

#[test]
fn a_table_that_stops_answering_leaves_the_gpu_up_with_what_hwmon_has_until_it_answers_again() {
    let is_long = std::env::var_os("GPUVITALS_TEST_LONG").is_some();
    // Of 10 Hz.
    let (gpus, ticks) = if is_long { (5, 250) } else { (2, 40) };
    for gpu in ["rx6900xt", "strixpoint", "phoenix", "rx7600s", "rx7800xt"].into_iter().take(gpus) {
        let table = TABLE.replace("card0", if gpu == "rx6900xt" { "card0" } else { "card1" });
        let Some(mut bare) = FaultySysfs::over(&captured(gpu)) else { return };
        bare.tell(json!({"unplug": [table]}));
        let mut sysfs = FaultySysfs::over(&captured(gpu)).unwrap();
        let mut reading = Reading::default();
        for (fault, _) in faults() {
            let (mut probe, mut without) = (probe(sysfs.path()), probe(bare.path()));
            let mut read = |probe: &mut Box<dyn Probe>, tick| {
                reading.clear();
                probe.read(due(tick), &mut reading).unwrap();
                let row = &reading.rows()[0];
                let stamp = row.absences().iter().find(|(id, _)| id.metric().column == "driver_snapshot_ns");
                let missing = stamp.map(|(_, reason)| *reason);
                (row.is_down(), values(row), row.snapshot_id(), missing)
            };
            let well: Vec<_> = (0..2).map(|tick| read(&mut probe, tick)).collect();
            assert!(well[1].2.is_some(), "{gpu}");
            sysfs.tell(rule(&table, &fault));
            // The first reading opens the files.
            read(&mut without, 0);
            for tick in 1..ticks {
                let (down, mut values, snapshot, missing) = read(&mut probe, tick);
                let (_, wanted, ..) = read(&mut without, tick);
                assert_eq!((down, snapshot), (None, None), "{gpu}, {fault}, tick {tick}");
                if tick == 1 {
                    // Opening the substitutes reads slow values too.
                    values.retain(|column, _| wanted.contains_key(column));
                }
                assert_eq!(values, wanted, "{gpu}, {fault}, tick {tick}");
                assert!(
                    missing.is_some_and(|reason| reason != AbsenceReason::NotSupported),
                    "{gpu}, {fault}"
                );
            }
            sysfs.tell(json!({"path": table}));
            assert_eq!(read(&mut probe, 300), well[0], "{gpu}, {fault}");
            assert_eq!(read(&mut probe, 301), well[1], "{gpu}, {fault}");
        }
    }
}

#[test]
fn why_a_table_does_not_answer_is_told_once_and_that_it_does_again() {
    let Some(mut sysfs) = FaultySysfs::over(&captured("rx6900xt")) else { return };
    for (fault, cause) in faults() {
        let mut probe = probe(sysfs.path());
        let mut reading = Reading::default();
        let mut found = |ticks: std::ops::Range<u32>| -> Vec<(Verdict, String)> {
            let found = ticks.flat_map(|tick| {
                reading.clear();
                probe.read(due(tick), &mut reading).unwrap();
                probe.findings()
            });
            found.map(|finding| (finding.verdict, format!("{}: {}", finding.subject, finding.text))).collect()
        };
        assert_eq!(found(0..20), [], "{fault}");
        sysfs.tell(rule(TABLE, &fault));
        let told = found(20..300);
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].0, Verdict::Partial);
        assert!(told[0].1.starts_with("amd-sysfs card0 (0000:0c:00.0): gpu_metrics: "), "{told:?}");
        assert!(told[0].1.contains(cause), "{told:?}");
        sysfs.tell(json!({"path": TABLE}));
        assert_eq!(
            found(300..601),
            [(Verdict::Good, "amd-sysfs card0 (0000:0c:00.0): gpu_metrics answers again".to_owned())]
        );
        // Once a rare reading, also if it answers every other time.
        let told: usize = (601..900)
            .map(|tick| {
                let fault = if tick % 2 == 0 { rule(TABLE, &fault) } else { json!({"path": TABLE}) };
                sysfs.tell(fault);
                found(tick..tick + 1).len()
            })
            .sum();
        assert_eq!(told, 1, "{fault}");
        sysfs.tell(json!({"path": TABLE}));
    }
}

#[test]
fn a_table_that_answers_at_last_gives_what_it_has() {
    let Some(mut sysfs) = FaultySysfs::over(&captured("rx6900xt")) else { return };
    for errno in [Errno::IO, Errno::BUSY] {
        sysfs.tell(json!({"path": TABLE, "open": errno.raw_os_error()}));
        let mut late = probe(sysfs.path());
        let mut reading = Reading::default();
        let mut read = |probe: &mut Box<dyn Probe>, tick| {
            reading.clear();
            probe.read(due(tick), &mut reading).unwrap();
            let row = &reading.rows()[0];
            let stamp = row.absences().iter().find(|(id, _)| id.metric().column == "driver_snapshot_ns");
            let absent = stamp.map(|(_, reason)| *reason);
            (row.is_down(), values(row), row.snapshot_id(), absent)
        };
        for tick in 0..15 {
            let (down, values, _, absent) = read(&mut late, tick);
            assert_eq!((down, values.get("power_w")), (None, Some(&"Float32(36.0)".to_owned())), "{tick}");
            if tick == 0 {
                assert_ne!(absent, Some(AbsenceReason::NotSupported), "nobody knows yet");
            }
        }
        sysfs.tell(json!({"path": TABLE}));
        let mut prompt = probe(sysfs.path());
        assert_eq!(read(&mut late, 20).1, read(&mut prompt, 0).1);
        assert_eq!(read(&mut late, 300), read(&mut prompt, 300));
    }
}
