//! Processes on the GPUs: the lists, and the rows of `gpu_processes`.

use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use gpuvitals_core::batch::{self, Value};
use gpuvitals_core::{IdentityColumn, Table};
use gpuvitals_sources::attribution::Owners;
use gpuvitals_sources::probe::{Due, ProbeError};
use gpuvitals_sources::processes::ProcessKind;
use gpuvitals_sources::registry::Verdict;
use gpuvitals_sources::sampler::{Sampler, SamplerConfig};

use super::stub::{Stub, read};

#[test]
fn processes_are_listed_with_names_kinds_and_shares() {
    let stub = Stub::new();
    let many: Vec<String> = (100..130).map(|pid: u32| pid.to_string()).collect();
    stub.says(&[
        "0.compute 4711,4712",
        "0.graphics 4712",
        &format!("1.compute {}", many.join(",")),
        "0.share_time 77",
        "0.share_pid 4711",
    ]);
    let comm = stub.machine().procfs.join("4711");
    std::fs::create_dir_all(&comm).unwrap();
    std::fs::write(comm.join("comm"), "python3\n").unwrap();
    let mut found = stub.find();
    let list = found.processes[0].read().unwrap();
    assert_eq!(list.gaps, []);
    let list = list.processes;
    assert_eq!(list.len(), 32);
    let (trains, draws) = (&list[0], &list[1]);
    assert_eq!((trains.pid, &*trains.name, trains.kind), (4711, "python3", ProcessKind::Compute));
    assert_eq!((trains.memory_mb, trains.utilization_pct), (Some(512), Some(66.0)));
    assert_eq!((trains.memory_utilization_pct, trains.decoder_utilization_pct), (Some(22.0), None));
    assert_eq!((draws.pid, &*draws.name, draws.kind), (4712, "-", ProcessKind::ComputeGraphics));
    assert_eq!(draws.utilization_pct, None);
    let again = found.processes[0].read().unwrap().processes;
    assert_eq!(again[0].utilization_pct, None, "nothing was used since");
    let another = found.processes[0].another().read().unwrap().processes;
    assert_eq!(another[0].utilization_pct, Some(66.0), "a reader has listings of its own");
}

#[test]
fn processes_come_out_of_the_sampler_as_rows() {
    let stub = Stub::new();
    stub.says(&["0.compute 4711,4712", "0.graphics 4712", "0.share_time 77", "0.share_pid 4711"]);
    let comm = stub.machine().procfs.join("4711");
    std::fs::create_dir_all(&comm).unwrap();
    std::fs::write(comm.join("comm"), "python3\n").unwrap();
    let found = stub.find();
    let often = SamplerConfig { rare: Duration::ZERO, ..SamplerConfig::default() };
    let sampler = Sampler::start(found.process_probes(), often, Owners::new()).unwrap();
    let rows = sampler.next(Duration::from_mins(1)).unwrap();
    assert_eq!((rows.table(), rows.rows()), (Table::GpuProcesses, 2));
    assert_eq!(rows.timestamps()[0], rows.timestamps()[1], "one listing has one time");
    let column = |name: &str| rows.extras().find(|(column, _)| *column == name).unwrap().1;
    for (name, cells) in [
        ("pid", [Some(4711.0), Some(4712.0)]),
        ("sm_utilization", [Some(66.0), None]),
        ("memory_utilization", [Some(22.0), None]),
        ("encoder_utilization", [Some(0.0), None]),
        ("fb_memory_mb", [Some(512.0), Some(512.0)]),
    ] {
        let numbers = batch::numbers(column(name)).unwrap();
        assert_eq!([0, 1].map(|row| numbers.value(row).map(Value::as_f64)), cells, "{name}");
    }
    for (name, cells) in
        [("process_type", [Some("compute"), Some("compute+graphics")]), ("command", [Some("python3"), None])]
    {
        let texts = column(name).as_dictionary::<Int32Type>();
        assert_eq!([0, 1].map(|row| batch::text_at(texts, row)), cells, "{name}");
    }
    assert!(rows.extras().all(|(name, _)| name != "decoder_utilization"), "4000 % is none");
    let identity = rows.identity(0);
    assert_eq!(identity.key(), found.probes[0].targets()[0].key());
    assert_eq!((identity.index, identity.get(IdentityColumn::Node)), (Some(0), Some("n1")));
    assert!(sampler.states().is_empty(), "the state of the GPU is its own probe's");
}

#[test]
fn a_gap_in_the_rows_of_processes_is_reported_once_and_when_it_is_over() {
    let stub = Stub::new();
    let found = stub.find();
    let mut probe = found.process_probes().remove(0);
    let mut round = |state: &[&str]| {
        stub.says(state);
        let result = read(&mut probe, Due::ALL).map(|rows| rows.len());
        let findings: Vec<_> =
            probe.findings().into_iter().map(|it| (it.subject, it.verdict, it.text)).collect();
        (result, findings)
    };
    let processes = ["0.compute 4711", "1.compute 4712"];
    assert_eq!(round(&processes), (Ok(2), Vec::new()));
    let lost = [&processes[..], &["0.lost 15"]].concat();
    let (rows, findings) = round(&lost);
    assert_eq!(rows, Ok(1));
    let [(subject, Verdict::Partial, text)] = &findings[..] else { panic!("{findings:?}") };
    assert!(subject == "nvidia processes" && text.contains("lost"), "{subject}: {text}");
    assert_eq!(round(&lost), (Ok(1), Vec::new()), "it is known");
    let (rows, findings) = round(&processes);
    assert!(matches!((rows, &findings[..]), (Ok(2), [(_, Verdict::Good, _)])), "{findings:?}");
    let (rows, findings) = round(&["lost 15"]);
    assert!(matches!((rows, &findings[..]), (Err(ProbeError::Gone(_)), [(_, Verdict::Partial, _)])));
}

#[test]
fn a_gap_in_the_list_of_processes_has_its_reason() {
    let stub = Stub::new();
    stub.says(&["0.compute 4711", "1.compute 4712"]);
    let mut found = stub.find();
    let keys: Vec<_> = found.probes.iter().map(|probe| probe.targets()[0].key()).collect();
    let mut list = |state: &[&str]| {
        stub.says(&[&["0.compute 4711", "1.compute 4712"], state].concat());
        found.processes[0].read()
    };
    let lost = list(&["0.lost 15"]).unwrap();
    assert_eq!(lost.processes.iter().map(|process| process.pid).collect::<Vec<_>>(), [4712]);
    assert_eq!(lost.gaps.len(), 1, "{:?}", lost.gaps);
    assert_eq!((&lost.gaps[0].gpu, lost.gaps[0].part), (&keys[0], "processes"));
    assert!(matches!(lost.gaps[0].error, ProbeError::Gone(_)), "{}", lost.gaps[0]);

    let shareless = list(&["1.ret.nvmlDeviceGetProcessUtilization 999"]).unwrap();
    assert_eq!(shareless.processes.len(), 2);
    let gaps: Vec<_> = shareless.gaps.iter().map(|gap| (&gap.gpu, gap.part)).collect();
    assert_eq!(gaps, [(&keys[1], "shares of processes")]);

    let never = list(&["ret.nvmlDeviceGetProcessUtilization 3"]).unwrap();
    assert_eq!((never.processes.len(), never.gaps.len()), (2, 0), "a part without such counts has no gap");
    assert!(matches!(list(&["lost 15"]), Err(ProbeError::Gone(_))));
}
