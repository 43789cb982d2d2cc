//! The flight recorder of an agent: what outlives it, and what asks for it.

use std::path::Path;

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Finished as _;
use serde_json::Value;

use super::node::{Node, RX580, VEGA56};
use super::process::value;

const ROWS: &str = "gpuvitals_flight_rows_total ";

/// What `gpuvitals flight` prints of a directory.
fn flight(directory: &Path, arguments: &[&str]) -> String {
    let mut command = gpuvitals!();
    let output = command.arg("flight").args(arguments).arg("--flight-dir").arg(directory).finished().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The incidents of a directory, all of which are whole.
pub(crate) fn incidents(directory: &Path) -> Vec<Value> {
    let listed: Value = serde_json::from_str(&flight(directory, &["list", "--json"])).unwrap();
    let entries = listed.as_array().unwrap().iter();
    entries
        .map(|entry| {
            assert_eq!(entry["state"], "whole", "{entry}");
            entry["incident"].clone()
        })
        .collect()
}

#[test]
fn the_last_minutes_outlive_a_kill_and_a_signal_keeps_them() {
    let node = Node::new();
    let directory = node.path("flight");
    let place = ["--flight-dir", directory.to_str().unwrap()];
    let after = [("GPUVITALS_FLIGHT_AFTER", "1s")];
    let agent = node.agent_in(&place, &after);
    agent.until("rows in the ring", |text| value(text, ROWS) > Some(3.0));
    assert_eq!(flight(&directory, &["list"]), "no incident is kept\n");
    agent.process.signal("USR1");
    let said = agent.logged("an incident is written");
    assert!(said["summary"].as_str().unwrap().starts_with("n1: SIGUSR1 asked for it at "), "{said}");
    let found = incidents(&directory);
    let [kept] = &found[..] else { panic!("{found:?}") };
    let gpus: Vec<_> = kept["gpus"].as_array().unwrap().iter().map(|gpu| gpu["gpu"].clone()).collect();
    assert_eq!(gpus, [RX580, VEGA56]);
    assert!(kept["rows"]["gpu_events"].as_u64().unwrap() >= 4, "{kept}");
    let id = kept["id"].as_str().unwrap();
    let folder = directory.join("incidents").join(id);
    let mut names: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    // The machine of the test may say something meanwhile.
    names.retain(|name| name != "kernel.log");
    assert_eq!(names, ["gpu_events.parquet", "incident.json", "processes.json", "system_events.parquet"]);
    let rows: Vec<_> = gpuvitals_record::Data::open(&folder).unwrap().map(Result::unwrap).collect();
    let said = ["gpu_events", "system_events"].map(|table| kept["rows"][table].as_u64().unwrap());
    let count = rows.iter().map(|batch| batch.rows() as u64).sum::<u64>();
    assert_eq!(count, said.iter().sum::<u64>(), "it is a recording");
    for batch in rows.iter().filter(|batch| batch.table() == gpuvitals_core::Table::GpuEvents) {
        let took = batch.read_us().expect("rows say how long their reading took");
        assert!((0..batch.rows()).all(|row| took.value(row).is_some() && batch.read_error(row).is_none()));
    }
    let shown = flight(&directory, &["show", id]);
    assert!(shown.starts_with("n1: SIGUSR1 asked for it at "), "{shown}");

    let archive = node.path("case.tar");
    let target = archive.to_str().unwrap();
    let listed = flight(&directory, &["bundle", id, "--output", target, "--run", "/bin/echo so it is"]);
    assert!(
        listed.contains(&format!("{id}/incident.json")) && listed.contains("/tool-1-echo.txt"),
        "{listed}"
    );
    let bytes = std::fs::read(&archive).unwrap();
    let said = b"$ /bin/echo so it is\nso it is\n";
    assert!(bytes.windows(said.len()).any(|window| window == said));

    // The ring outlives the agent, and the next one keeps what the kill would have cost, and begins nothing twice.
    agent.process.kill();
    let dumped = flight(&directory, &["dump"]);
    assert!(dumped.contains("somebody asked for it with gpuvitals flight dump"), "{dumped}");
    let agent = node.agent_in(&place, &after);
    agent.until("rows in the ring", |text| value(text, ROWS) > Some(0.0));
    assert_eq!(agent.terminate(), Some(0));
    let found = incidents(&directory);
    let mut kinds: Vec<_> = found.iter().map(|it| it["trigger"]["kind"].as_str().unwrap()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["dump", "ended", "signal"]);
}

#[test]
fn an_incident_that_a_kill_cut_off_is_written_by_the_next_agent() {
    let node = Node::new();
    let directory = node.path("flight");
    let place = ["--flight-dir", directory.to_str().unwrap()];
    let agent = node.agent_in(&place, &[]);
    agent.until("rows in the ring", |text| value(text, ROWS) > Some(0.0));
    agent.process.signal("USR1");
    agent.logged("the flight recorder keeps an incident");
    agent.until("the trigger", |text| value(text, "gpuvitals_flight_triggers_total ") == Some(1.0));
    agent.process.kill();
    // A node that does not come back leaves its disk, and the disk says what had happened.
    let listed: Value = serde_json::from_str(&flight(&directory, &["list", "--json"])).unwrap();
    let [begun] = &listed.as_array().unwrap()[..] else { panic!("{listed}") };
    assert_eq!((&begun["state"], &begun["incident"]), (&"begun".into(), &Value::Null), "{begun}");
    assert_eq!(begun["begun"]["kind"], "signal", "{begun}");
    let said = flight(&directory, &["list"]);
    assert!(said.contains("Z SIGUSR1 asked for it; to be written"), "{said}");
    let agent = node.agent_in(&place, &[("GPUVITALS_FLIGHT_AFTER", "1s")]);
    agent.logged("an incident goes on");
    agent.logged("an incident is written");
    assert_eq!(agent.terminate(), Some(0));
    let found = incidents(&directory);
    let [incident] = &found[..] else { panic!("{found:?}") };
    assert_eq!(incident["id"], begun["id"]);
}

#[test]
fn without_a_place_it_is_off_and_says_so_and_no_signal_kills_the_agent() {
    let node = Node::new();
    let file = node.write("file", "");
    let no_folder = file.join("flight");
    for place in [&[][..], &["--flight-dir", no_folder.to_str().unwrap()]] {
        let agent = node.agent(place);
        agent.logged("the flight recorder is off");
        agent.process.signal("USR1");
        agent.logged("is off and keeps nothing");
        let text = agent.until("a row", |text| text.contains("\ngpu_up{"));
        assert!(!text.contains("gpuvitals_flight"), "{text}");
        assert_eq!(agent.terminate(), Some(0));
    }
}

#[test]
fn systemds_directory_is_taken_and_only_by_one_agent() {
    let node = Node::new();
    let state = [("STATE_DIRECTORY", node.path("state"))];
    let state = state.each_ref().map(|(name, path)| (*name, path.to_str().unwrap()));
    let agent = node.agent_in(&[], &state);
    agent.until("rows in the ring", |text| value(text, ROWS) > Some(0.0));
    assert!(node.path("state/flight/ring").is_dir());
    let second = node.agent_in(&[], &state);
    let said = second.logged("the flight recorder is off");
    assert!(said["error"].as_str().unwrap().contains("in use by another process"), "{said}");
}

#[test]
fn a_wrong_threshold_ends_with_78_and_a_caret() {
    let mut command = gpuvitals!();
    command.arg("agent").env("GPUVITALS_FLIGHT_TRIGGERS", "temperature_c > hot");
    let output = command.finished().unwrap();
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.ends_with("\n  temperature_c > hot\n                  ^\n"), "{said}");
}

#[test]
fn a_name_that_is_none_of_an_incident_leads_nowhere() {
    let directory = tempfile::tempdir().unwrap();
    for id in ["../../etc", "..", "x/y", "\u{1b}[2J", "20261130T031459Z-xid"] {
        let mut command = gpuvitals!();
        let output =
            command.args(["flight", "show", id, "--flight-dir"]).arg(directory.path()).finished().unwrap();
        assert_eq!(output.status.code(), Some(64), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("names no incident") && !said.contains('\u{1b}'), "{said}");
    }
}

#[test]
fn a_threshold_keeps_an_incident_of_its_gpu() {
    let node = Node::new();
    let directory = node.path("flight");
    let rule = "temperature_c > 0";
    let environment = [("GPUVITALS_FLIGHT_AFTER", "1s"), ("GPUVITALS_FLIGHT_TRIGGERS", rule)];
    let agent = node.agent_in(&["--flight-dir", directory.to_str().unwrap()], &environment);
    agent.logged("an incident is written");
    assert_eq!(agent.terminate(), Some(0));
    let found = incidents(&directory);
    let [incident] = &found[..] else { panic!("{found:?}") };
    assert_eq!(incident["trigger"]["kind"], "threshold");
    assert_eq!(incident["trigger"]["rule"], rule);
    assert_eq!(incident["triggers"], 2, "both GPUs are warm, and each says so once");

    // It is a recording for other programs, too, with the columns that only an incident has.
    let folder = directory.join("incidents").join(incident["id"].as_str().unwrap());
    let rows = node.path("rows.csv");
    let mut export = gpuvitals!();
    let output = export.arg("export").arg(&folder).args(["--csv", "-o"]).arg(&rows).finished().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = std::fs::read_to_string(&rows).unwrap();
    assert!(text.lines().next().unwrap().ends_with(",read_us"), "{text}");
}
