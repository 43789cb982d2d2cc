//! Calls of the tool, and the consequences of its failures.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::AbsenceReason;
use gpuvitals_core::clock::Moment;
use gpuvitals_rig::waiting;
use gpuvitals_sources::attribution::Owners;
use gpuvitals_sources::dialect::rocm_smi::{RocmSmi, find};
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::{Driver, Due, Probe, ProbeError, Reading};
use gpuvitals_sources::registry::Verdict;
use gpuvitals_sources::sampler::{Liveness, Sampler, SamplerConfig};

use super::{FakeTool, capture, read};

const FAST: Due = Due { slow: false, rare: false };

#[test]
fn one_run_answers_for_all_cards_and_identity_is_asked_for_rarely() {
    let tool = FakeTool::new();
    tool.says("answer.json", &capture("mi100_rocm571.json"));
    let mut probe = tool.probe();
    assert!(probe.targets().is_empty(), "nothing is run before the first reading");
    let before = Moment::now().wall_ns;
    let first = read(&mut probe, FAST).unwrap();
    let taken = first.rows()[0].taken_ns().unwrap();
    assert!((before..=Moment::now().wall_ns).contains(&taken));
    let targets = probe.targets();
    assert_eq!(targets.len(), first.rows().len());
    let second = read(&mut probe, FAST).unwrap();
    for (row, target) in second.rows().iter().zip(&targets) {
        assert!(Arc::ptr_eq(row.identity(), target), "a card keeps its identity");
        assert_eq!(row.absences(), [], "what is never there is told rarely");
    }
    let asked = tool.asked();
    assert_eq!(asked.len(), 2);
    assert!(asked[0].contains("--showuniqueid") && asked[0].ends_with("--json"), "{}", asked[0]);
    let fast = "--showtemp --showpower --showuse --showmemuse --showclocks --showmeminfo vram --json";
    assert_eq!(asked[1], fast);
}

#[test]
fn a_tool_that_aborts_at_the_clocks_is_asked_without_them() {
    let tool = FakeTool::new();
    tool.says("abort-on-clocks", "").says("answer.json", r#"{"card0": {"GPU use (%)": "4"}}"#);
    let mut probe = tool.probe();
    assert_eq!(read(&mut probe, FAST).unwrap().rows().len(), 1);
    assert_eq!(tool.asked().len(), 2);
    read(&mut probe, FAST).unwrap();
    let asked = tool.asked();
    assert_eq!(asked.len(), 3, "the way that worked is kept");
    assert!(!asked[2].contains("--showclocks"));
    fs::remove_file(tool.folder.path().join("abort-on-clocks")).unwrap();
    read(&mut probe, Due::ALL).unwrap();
    read(&mut probe, FAST).unwrap();
    assert!(tool.asked()[4].contains("--showclocks"), "a better way is tried again rarely");
}

#[test]
fn where_no_json_comes_text_is_read() {
    let tool = FakeTool::new();
    tool.says("answer.json", "usage: rocm-smi\n").says("answer.txt", &capture("mi300x-x4-showall.txt"));
    let mut probe = tool.probe();
    let reading = read(&mut probe, Due::ALL).unwrap();
    let keys: Vec<_> = reading.rows().iter().map(|row| row.identity().key().unwrap()).collect();
    let ids = ["8d1457e2c20f59d2", "b4fa34630e85d42a", "e8986800e182538a", "eff71edc82169115"];
    assert_eq!(keys.iter().map(|key| &**key).collect::<Vec<_>>(), ids);
}

/// GPUs that are up, and those reported gone.
fn who(reading: &Reading) -> [Vec<String>; 2] {
    [None, Some(AbsenceReason::Gone)].map(|wanted| {
        let rows = reading.rows().iter().filter(|row| row.is_down().map(|(reason, _)| reason) == wanted);
        rows.filter_map(|row| row.identity().uuid()).map(|id| id.trim_start_matches('0').to_owned()).collect()
    })
}

#[test]
fn cards_are_asked_who_they_are_when_one_came_or_went_and_what_is_gone_is_told_once() {
    let tool = FakeTool::new();
    let mut probe = tool.probe();
    let mut read = |ids: &[(u32, &str)], due| {
        let cards = ids
            .iter()
            .map(|(number, id)| format!(r#""card{number}": {{"Unique ID": "0x{id}", "Fan RPM": "1"}}"#));
        tool.says("answer.json", &format!("{{{}}}", cards.collect::<Vec<_>>().join(", ")));
        who(&read(&mut probe, due).unwrap())
    };
    let told = |up: &[&str], gone: &[&str]| {
        [up, gone].map(|ids| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>())
    };
    let two = [(0, "a1"), (1, "b2")];
    assert_eq!(read(&two, FAST), told(&["a1", "b2"], &[]));
    // The first is unplugged, and the tool calls the second by its number.
    assert_eq!(read(&[(0, "b2")], FAST), told(&[], &[]), "nobody knows whose values these are");
    assert_eq!(read(&[(0, "b2")], FAST), told(&["b2"], &["a1"]));
    assert_eq!(read(&[(0, "b2")], FAST), told(&["b2"], &[]));
    assert_eq!(read(&[(0, "b2"), (1, "c3")], FAST), told(&[], &[]));
    assert_eq!(read(&[(0, "b2"), (1, "c3")], FAST), told(&["b2", "c3"], &[]));
    assert_eq!(
        read(&two, Due::ALL),
        told(&["a1", "b2"], &["c3"]),
        "the rare tier sees another of the same number"
    );
    assert_eq!(
        read(&[(0, "b2"), (1, "a1")], Due::ALL),
        told(&["b2", "a1"], &[]),
        "those that swap are both there"
    );
}

#[test]
fn partitions_of_one_package_are_told_apart() {
    let tool = FakeTool::new();
    let card = r#"{"Unique ID": "0x8d1457e2c20f59d2", "Fan RPM": "1"}"#;
    tool.says("answer.json", &format!(r#"{{"card0": {card}, "card1": {card}}}"#));
    let reading = read(&mut tool.probe(), FAST).unwrap();
    let keys: Vec<_> = reading.rows().iter().map(|row| row.identity().key().unwrap()).collect();
    assert_eq!(keys, ["8d1457e2c20f59d2:xcp0".into(), "8d1457e2c20f59d2:xcp1".into()]);
}

#[test]
fn what_two_devices_share_is_no_unique_id() {
    let tool = FakeTool::new();
    let card = |bus: &str| format!(r#"{{"Unique ID": "0xa1", "PCI Bus": "0000:{bus}:00.0"}}"#);
    tool.says("answer.json", &format!(r#"{{"card0": {}, "card1": {}}}"#, card("0B"), card("0C")));
    let reading = read(&mut tool.probe(), FAST).unwrap();
    let keys: Vec<_> = reading.rows().iter().map(|row| row.identity().key().unwrap()).collect();
    assert_eq!(keys, ["0000:0b:00.0@node1".into(), "0000:0c:00.0@node1".into()]);
}

#[test]
fn hostile_names_stay_out_of_identities() {
    let tool = FakeTool::new();
    let card = r#"{"Unique ID": "../../etc", "PCI Bus": "x:\u0007", "Card Series": "a\nb"}"#;
    tool.says("answer.json", &format!(r#"{{"card3": {card}}}"#));
    let reading = read(&mut tool.probe(), FAST).unwrap();
    assert_eq!(reading.rows()[0].identity().key().as_deref(), Some("node1:gpu3"));
}

#[test]
fn a_tool_without_cards_says_what_it_said() {
    let tool = FakeTool::new();
    tool.says("answer.json", "").says("answer.txt", "ERROR: Driver not initialized (amdgpu not found)\n");
    let Err(ProbeError::Gone(text)) = read(&mut tool.probe(), Due::ALL) else { panic!("no error") };
    assert!(text.contains("Driver not initialized") && text.contains("exit code 2"), "{text}");
    let missing = read(&mut RocmSmi::new("/no/such/rocm-smi", "n"), Due::ALL).unwrap_err();
    assert_eq!(missing, ProbeError::Gone("/no/such/rocm-smi is not installed, or not on PATH".to_owned()));
}

/// The names and liveness of a sampler when none is starting any more.
fn settled(tool: &FakeTool) -> Vec<(String, Liveness)> {
    let config = SamplerConfig::default();
    let sampler = Sampler::start(vec![Box::new(tool.probe())], config, Owners::new()).unwrap();
    assert_eq!(sampler.states().len(), 1, "the tool stands for its GPUs");
    let look = || {
        let _rows = sampler.next(Duration::from_millis(20));
        sampler.states()
    };
    let states = waiting::until("the start of every GPU", look, |states| {
        states.iter().all(|state| state.liveness != Liveness::Starting)
    });
    states.into_iter().map(|state| (state.name().to_string(), state.liveness)).collect()
}

#[test]
fn a_sampler_waits_for_the_tool_and_then_knows_its_gpus_alone() {
    let tool = FakeTool::new();
    tool.says("answer.json", r#"{"card0": {"Fan RPM": "1"}, "card1": {"Fan RPM": "2"}}"#);
    let expected = ["node1:gpu0", "node1:gpu1"].map(|name| (name.to_owned(), Liveness::Up));
    assert_eq!(settled(&tool), expected);
}

#[test]
fn a_sampler_says_why_the_tool_lists_no_gpu() {
    let tool = FakeTool::new();
    tool.says("answer.json", "").says("answer.txt", "Driver not initialized\n");
    let states = settled(&tool);
    let [(name, Liveness::Down { reason: AbsenceReason::Gone, detail })] = states.as_slice() else {
        panic!("{states:?}")
    };
    assert!(name == "rocm-smi" && detail.contains("Driver not initialized"), "{name}: {detail}");
}

#[test]
fn a_captured_tree_is_never_read_by_a_tool_that_asks_this_machine() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine { sysfs: dir.path().into(), ..Machine::local("captured") };
    let found = find(&machine);
    assert!(found.probes.is_empty());
    assert_eq!(found.findings[0].verdict, Verdict::Note);
    assert_eq!(found.findings[0].subject, Driver::RocmSmi.as_str());
}
