//! Faults of a GPU, the library or the driver.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::{AbsenceReason, Batch, IdentityColumn};
use gpuvitals_sources::attribution::Owners;
use gpuvitals_sources::dialect::nvml;
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::{Due, Probe, ProbeError};
use gpuvitals_sources::registry::{Discovery, Verdict};
use gpuvitals_sources::sampler::{Liveness, Sampler, SamplerConfig};

use super::stub::{Stub, read};

const FAST: Due = Due { slow: false, rare: false };

#[test]
fn a_machine_without_the_driver_has_no_gpus_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("libnvidia-ml.so.1");
    let machine = Machine::local("n1");
    let found = nvml::find_by(&machine, &missing, Duration::from_mins(1));
    assert!(found.probes.is_empty() && found.processes.is_empty());
    assert_eq!(found.findings[0].verdict, Verdict::Broken, "a library that was named is to be there");
    std::fs::write(&missing, "no library").unwrap();
    let found = nvml::find_by(&machine, &missing, Duration::from_mins(1));
    assert_eq!(found.findings[0].verdict, Verdict::Broken);
    assert!(found.findings[0].remedy.is_some());
    let captured = Machine { sysfs: dir.path().to_owned(), ..machine };
    let found = nvml::find(&captured);
    assert!(found.findings.is_empty(), "a captured tree has no library: {:?}", found.findings);
}

#[test]
fn a_library_that_does_not_start_says_why_and_what_to_do() {
    for (code, text, remedy) in [
        (9, "not loaded", "modprobe"),
        (18, "different driver versions", "reboot"),
        (4, "no permission", "/dev/nvidiactl"),
        (17, "blocks the device files", "container"),
        (999, "unknown error", "container"),
    ] {
        let stub = Stub::new();
        stub.says(&[&format!("ret.nvmlInit_v2 {code}")]);
        let found = stub.find();
        let finding = &found.findings[0];
        assert!(found.probes.is_empty());
        assert_eq!(finding.verdict, Verdict::Broken);
        assert!(finding.text.contains(text), "{finding:?}");
        assert!(finding.remedy.as_ref().unwrap().contains(remedy), "{finding:?}");
        // The driver was loaded meanwhile.
        stub.says(&[]);
        assert_eq!(stub.find().probes.len(), 2, "{code}");
    }
}

#[test]
fn a_gpu_that_cannot_be_named_costs_only_itself() {
    let stub = Stub::new();
    stub.says(&["count 3", "1.lost 15"]);
    let mut found = stub.find();
    let broken: Vec<_> = found.findings.iter().filter(|it| it.verdict == Verdict::Broken).collect();
    assert_eq!(broken.len(), 1);
    assert!(broken[0].subject.contains("GPU 1") && broken[0].text.contains("lost"), "{broken:?}");
    assert!(read(&mut found.probes[0], Due::ALL).is_ok() && read(&mut found.probes[2], Due::ALL).is_ok());
}

#[test]
fn a_gpu_that_could_not_be_named_is_gone_until_it_has_its_name() {
    let stub = Stub::new();
    stub.says(&["compute 42", "1.lost 15"]);
    let mut found = stub.find();
    let late = &mut found.probes[1];
    let target = |probe: &dyn Probe| Arc::clone(&probe.targets()[0]);
    let stand_in = target(late.as_ref());
    assert_eq!((stand_in.key().as_deref(), stand_in.index), (Some("n1:gpu1"), Some(1)));
    for _ in 0..2 {
        let error = read(late, Due::ALL).unwrap_err();
        assert_eq!(error.reason(), AbsenceReason::Gone);
        assert!(error.to_string().contains("lost"), "{error}");
    }
    let gpus = |found: &mut Discovery| -> BTreeSet<_> {
        found.processes[0]
            .read()
            .unwrap()
            .processes
            .into_iter()
            .map(|process| process.gpu.key().unwrap().to_string())
            .collect()
    };
    let named = target(found.probes[0].as_ref()).key().unwrap().to_string();
    assert_eq!(gpus(&mut found), BTreeSet::from([named.clone()]));
    stub.says(&["compute 42"]);
    let rows = read(&mut found.probes[1], Due::ALL).unwrap();
    assert_eq!((rows[0].value("power_w"), rows[0].identity.index), (Some(312.5), Some(1)));
    let now = target(found.probes[1].as_ref());
    assert!(now.uuid().unwrap().starts_with("GPU-") && stand_in.stands_for(&now), "{now:?}");
    assert_eq!(gpus(&mut found), BTreeSet::from([named, now.key().unwrap().to_string()]));
}

#[test]
fn a_gpu_without_a_name_has_the_address_that_is_left() {
    let stub = Stub::new();
    let found = stub.find();
    let address = |found: &Discovery, at: usize| {
        let target = Arc::clone(&found.probes[at].targets()[0]);
        target.get(IdentityColumn::Pci).map(str::to_owned)
    };
    let known = [address(&found, 0).unwrap(), address(&found, 1).unwrap()];
    for address in &known {
        stub.kernel_has(address);
    }
    stub.says(&["1.lost 15"]);
    let found = stub.find();
    assert_eq!(address(&found, 1), Some(known[1].clone()));
    let key = found.probes[1].targets()[0].key();
    assert_eq!(key.as_deref(), Some(format!("{}@n1", known[1]).as_str()));
    // With two of them their places are unknown.
    stub.says(&["0.lost 15", "1.lost 15"]);
    let found = stub.find();
    assert_eq!((address(&found, 0), address(&found, 1)), (None, None));
}

#[test]
fn a_gpu_that_this_process_may_not_open_is_none_of_its_own() {
    let stub = Stub::new();
    stub.says(&["1.ret.nvmlDeviceGetHandleByIndex_v2 4"]);
    let found = stub.find();
    assert_eq!(found.probes.len(), 1);
    assert!(found.findings.iter().any(|finding| finding.text.contains("no permission")));
}

#[test]
fn a_gpu_is_shown_once_when_it_gets_its_name() {
    let stub = Stub::new();
    stub.says(&["0.lost 15"]);
    let sampler = Sampler::start(stub.find().probes, quick(), Owners::new()).unwrap();
    let keys = || -> Vec<String> {
        let states = sampler.states();
        states.iter().map(|state| format!("{} {:?}", state.name(), state.liveness)).collect()
    };
    wait_for(&sampler, "one of two up", |_| {
        let keys = keys();
        keys.iter().any(|key| key.starts_with("n1:gpu0 Down { reason: Gone"))
            && keys.iter().any(|key| key.ends_with("Up"))
    });
    stub.says(&[]);
    wait_for(&sampler, "both up by their names", |_| {
        let keys = keys();
        assert_eq!(keys.len(), 2, "{keys:?}");
        keys.iter().all(|key| key.starts_with("GPU-") && key.ends_with("Up"))
    });
}

#[test]
fn a_library_that_hangs_at_its_start_holds_nobody_up() {
    let stub = Stub::new();
    stub.says(&["hang.nvmlInit_v2 1"]);
    for text in ["not started", "still being started"] {
        let found = stub.find_within(Duration::from_millis(200));
        assert!(found.probes.is_empty());
        assert!(found.findings[0].text.contains(text), "{:?}", found.findings);
    }
    // Of two GPUs one does not answer.
    let stub = Stub::new();
    stub.says(&["0.hang 1"]);
    let mut found = stub.find_within(Duration::from_secs(2));
    assert_eq!(found.probes.len(), 2);
    assert!(read(&mut found.probes[1], FAST).is_ok());
    assert!(found.findings[1].text.contains("not answered"), "{:?}", found.findings);
    stub.says(&[]);
}

#[test]
fn a_gpu_that_hangs_when_it_is_listed_is_asked_once_and_found_when_it_answers() {
    let stub = Stub::new();
    stub.says(&["0.hang 1"]);
    for _ in 0..3 {
        let found = stub.find_within(Duration::from_secs(2));
        assert_eq!(found.findings[1].verdict, Verdict::Broken, "{:?}", found.findings);
    }
    assert_eq!(stub.calls().get("nvmlDeviceGetHandleByIndex_v2 0"), Some(&1));
    stub.says(&[]);
    for _ in 0..100_000 {
        if stub.find().findings[1].verdict == Verdict::Good {
            return;
        }
    }
    panic!("it was not found again");
}

#[test]
fn a_lost_gpu_is_gone_and_comes_back_whole() {
    let stub = Stub::new();
    let mut probes = stub.find().probes;
    assert!(read(&mut probes[0], Due::ALL).is_ok());
    for (code, is) in [(15, "lost"), (16, "reset"), (9, "not loaded")] {
        stub.says(&[&format!("0.lost {code}")]);
        for _ in 0..2 {
            match read(&mut probes[0], Due::ALL) {
                Err(ProbeError::Gone(text)) => assert!(text.contains(is), "{text}"),
                other => panic!("{code}: {other:?}"),
            }
        }
        assert_eq!(read(&mut probes[1], FAST).unwrap()[0].value("power_w"), Some(312.5));
        stub.says(&["generation 2"]);
        let row = &read(&mut probes[0], Due::ALL).unwrap()[0];
        assert_eq!(row.value("power_w"), Some(312.5));
        assert_eq!(row.value("xid_count"), Some(0.0), "events are registered anew");
        stub.says(&[]);
        read(&mut probes[0], FAST).unwrap();
    }
}

#[test]
fn codes_of_the_whole_device_are_told_apart() {
    for (code, reason) in [
        (17, AbsenceReason::Denied),
        (18, AbsenceReason::Invalid),
        (999, AbsenceReason::Invalid),
        (1, AbsenceReason::Invalid),
    ] {
        let stub = Stub::new();
        let mut probes = stub.find().probes;
        stub.says(&[&format!("0.lost {code}")]);
        assert_eq!(read(&mut probes[0], FAST).unwrap_err().reason(), reason, "{code}");
        stub.says(&[]);
        assert!(read(&mut probes[0], FAST).is_ok(), "{code}");
    }
}

#[test]
fn a_call_that_fails_for_now_is_null_now_and_asked_again() {
    for (code, reason) in [
        (10, AbsenceReason::TimedOut),
        (19, AbsenceReason::Invalid),
        (27, AbsenceReason::Invalid),
        (999, AbsenceReason::Invalid),
        (77, AbsenceReason::Invalid),
    ] {
        let stub = Stub::new();
        let mut probes = stub.find().probes;
        stub.says(&[&format!("ret.nvmlDeviceGetUtilizationRates {code}")]);
        for _ in 0..10 {
            let row = &read(&mut probes[0], FAST).unwrap()[0];
            assert_eq!(
                (row.value("utilization_pct"), row.absence("utilization_pct")),
                (None, Some(reason)),
                "{code}"
            );
        }
        stub.says(&[]);
        let row = &read(&mut probes[0], FAST).unwrap()[0];
        assert_eq!(
            (row.value("utilization_pct"), row.absence("utilization_pct")),
            (Some(87.0), None),
            "{code}"
        );
    }
}

#[test]
fn no_share_comes_of_memory_that_cannot_be_in_use() {
    let stub = Stub::new();
    let mut probes = stub.find().probes;
    for (used, is_told) in [("-1", false), ("4611686018427387904", false), ("85899345921", true)] {
        stub.says(&[&format!("memory_used {used}")]);
        let row = &read(&mut probes[0], FAST).unwrap()[0];
        assert_eq!(row.value("memory_used_mb").is_some(), is_told, "{used}");
        let share = (row.value("memory_used_pct"), row.absence("memory_used_pct"));
        assert_eq!(share, (None, Some(AbsenceReason::Invalid)), "{used}");
    }
}

#[test]
fn fields_with_unknown_errors_do_not_take_those_that_answer_with_them() {
    let stub = Stub::new();
    let mut probes = stub.find().probes;
    let sick = ["field.82", "field.83", "field.190", "field.192", "field.187", "field.188"];
    let lines: Vec<String> = sick.iter().map(|field| format!("{field} -999")).collect();
    stub.says(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    for _ in 0..10 {
        let row = &read(&mut probes[0], Due::ALL).unwrap()[0];
        assert_eq!(row.value("power_w"), Some(312.5));
        assert_eq!(row.value("throttled_power_ns"), Some(5_000_000.0), "of the same call");
        assert_eq!(row.absence("temperature_memory_c"), Some(AbsenceReason::Invalid));
    }
    stub.says(&[]);
    assert_eq!(read(&mut probes[0], Due::ALL).unwrap()[0].value("temperature_memory_c"), Some(61.0));
}

#[test]
fn a_sum_over_links_has_every_link_that_ever_answered_or_none() {
    let stub = Stub::new();
    let replays = |probe: &mut _| {
        let row = &read(probe, Due::ALL).unwrap()[0];
        (row.value("interconnect_replay_errors"), row.absence("interconnect_replay_errors"))
    };
    // Of 18 links one cannot answer yet.
    stub.says(&["field.161.3 -999"]);
    let mut probes = stub.find().probes;
    assert_eq!(replays(&mut probes[0]), (None, Some(AbsenceReason::Invalid)));
    stub.says(&[]);
    assert_eq!(replays(&mut probes[0]), (Some(18.0), None));
    let all_bits = "field.161.3 9223372036854775807";
    for failure in ["field.161.3 -999", "field.161.3 -1", "field.161.3 -10", all_bits] {
        stub.says(&[failure]);
        assert_eq!(replays(&mut probes[0]), (None, Some(AbsenceReason::Invalid)), "{failure}");
    }
    stub.says(&[]);
    assert_eq!(replays(&mut probes[0]), (Some(18.0), None));
    // A link that never had it does not count, until it does.
    stub.says(&["field.161.3 -1"]);
    let mut probes = stub.find().probes;
    assert_eq!(replays(&mut probes[0]), (Some(17.0), None));
    stub.says(&[]);
    assert_eq!(replays(&mut probes[0]), (Some(18.0), None));
}

#[test]
fn one_counter_does_not_stand_in_for_another_that_failed_once() {
    let stub = Stub::new();
    let sent = |probe: &mut _| read(probe, Due::ALL).unwrap()[0].value("interconnect_tx_bytes");
    // Field 138 counts what is sent in KiB, field 202 in bytes, from another start.
    let (other, no_total) = ("field.202 5", "field.138.4294967295 -3");
    stub.says(&[other, "field.138 -3"]);
    let mut probes = stub.find().probes;
    assert_eq!(sent(&mut probes[0]), Some(90.0), "where the first is not known");
    stub.says(&[other, no_total]);
    let mut probes = stub.find().probes;
    let kib = 18.0 * 1024.0 * 1024.0;
    assert_eq!(sent(&mut probes[0]), Some(kib));
    stub.says(&[other, no_total, "field.138 -999"]);
    assert_eq!(sent(&mut probes[0]), None);
    stub.says(&[other, no_total]);
    assert_eq!(sent(&mut probes[0]), Some(kib));
}

#[test]
fn what_is_learnt_once_is_asked_again_where_it_failed_for_now() {
    for code in [10, 23, 999] {
        let stub = Stub::new();
        stub.says(&[&format!("field.91 -{code}"), &format!("ret.nvmlDeviceGetSupportedEventTypes {code}")]);
        let mut probes = stub.find().probes;
        let row = &read(&mut probes[0], Due::ALL).unwrap()[0];
        for column in ["interconnect_replay_errors", "interconnect_links_up", "xid_count"] {
            let reason = row.absence(column).unwrap_or_else(|| panic!("{column} after {code}: {row:?}"));
            assert_ne!(reason, AbsenceReason::NotSupported, "{column} after {code}");
        }
        stub.says(&[]);
        let row = &read(&mut probes[0], Due::ALL).unwrap()[0];
        for (column, value) in
            [("interconnect_replay_errors", 18.0), ("interconnect_links_up", 17.0), ("xid_count", 0.0)]
        {
            assert_eq!(
                (row.value(column), row.absence(column)),
                (Some(value), None),
                "{column} after {code}"
            );
        }
        stub.calls();
        read(&mut probes[0], Due::ALL).unwrap();
        let calls = stub.calls();
        assert_eq!((calls.get("field:91:0 0"), calls.get("nvmlDeviceRegisterEvents 0")), (None, None));
    }
}

#[test]
fn power_does_not_change_its_meaning_where_its_field_fails_once() {
    let stub = Stub::new();
    let mut probes = stub.find().probes;
    assert_eq!(read(&mut probes[0], FAST).unwrap()[0].value("power_w"), Some(312.5));
    stub.says(&["field.186 -10"]);
    let row = &read(&mut probes[0], Due::ALL).unwrap()[0];
    assert_eq!((row.value("power_w"), row.absence("power_w")), (None, Some(AbsenceReason::TimedOut)));
    assert_eq!(row.value("power_average_w"), Some(305.25));
    stub.says(&[]);
    assert_eq!(read(&mut probes[0], FAST).unwrap()[0].value("power_w"), Some(312.5));
}

#[test]
fn an_argument_that_is_refused_twice_is_not_supported() {
    let stub = Stub::new();
    stub.says(&["ret.nvmlDeviceGetPerformanceState 2"]);
    let mut probes = stub.find().probes;
    let row = &read(&mut probes[0], Due::ALL).unwrap()[0];
    assert_eq!(row.absence("performance_state"), Some(AbsenceReason::Invalid));
    let row = &read(&mut probes[0], Due::ALL).unwrap()[0];
    assert_eq!(row.absence("performance_state"), Some(AbsenceReason::NotSupported));
    stub.calls();
    read(&mut probes[0], Due::ALL).unwrap();
    let calls = stub.calls();
    assert_eq!(calls.get("nvmlDeviceGetPerformanceState 0"), None);
    assert_eq!(calls.get("nvmlDeviceGetHandleByUUID 0"), None);
}

#[test]
fn xids_are_counted_for_the_gpu_they_befall() {
    let stub = Stub::new();
    let mut probes = stub.find().probes;
    assert_eq!(read(&mut probes[1], Due::ALL).unwrap()[0].value("xid_count"), Some(0.0));
    stub.says(&["1.xid 79", "1.xid_seq 2"]);
    for _ in 0..100_000 {
        let row = &read(&mut probes[1], Due { slow: true, rare: false }).unwrap()[0];
        if row.value("xid_count") == Some(2.0) {
            assert_eq!(row.value("xid_last"), Some(79.0));
            assert_eq!(read(&mut probes[0], Due::ALL).unwrap()[0].value("xid_count"), Some(0.0));
            return;
        }
    }
    panic!("no XID came");
}

fn quick() -> SamplerConfig {
    let (interval, hand_on) = (Duration::from_millis(50), Duration::from_millis(100));
    SamplerConfig { interval, hand_on, ..SamplerConfig::default() }
}

/// Batches until one is as wished; each comes within a second of its rows.
fn wait_for(sampler: &Sampler, what: &str, mut is: impl FnMut(Option<&Batch>) -> bool) {
    for _ in 0..200 {
        let batch = sampler.next(Duration::from_millis(100));
        if is(batch.as_ref()) {
            return;
        }
    }
    panic!("waited in vain for: {what}");
}

#[test]
fn a_gpu_that_hangs_is_stuck_alone_and_comes_back() {
    let stub = Stub::new();
    let probes = stub.find().probes;
    let sampler = Sampler::start(probes, quick(), Owners::new()).unwrap();
    let liveness = |gpu: i32| {
        let states = sampler.states();
        states.into_iter().find(|state| state.identity.index == Some(gpu)).unwrap().liveness
    };
    wait_for(&sampler, "both GPUs up", |_| liveness(0) == Liveness::Up && liveness(1) == Liveness::Up);
    stub.says(&["0.hang 1"]);
    wait_for(&sampler, "GPU 0 stuck", |_| matches!(liveness(0), Liveness::Stuck { .. }));
    let mut rows = 0;
    wait_for(&sampler, "20 rows of GPU 1", |batch| {
        assert!(matches!(liveness(0), Liveness::Stuck { .. }));
        rows += batch.map_or(0, Batch::rows);
        rows >= 20
    });
    assert_eq!(liveness(1), Liveness::Up);
    stub.says(&[]);
    wait_for(&sampler, "GPU 0 back", |_| liveness(0) == Liveness::Up);
    assert!(sampler.stop(Duration::from_secs(10)).is_empty());
}
