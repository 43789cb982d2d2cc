//! Incidents that have begun and are not written yet: the ring alone has them, and an agent that died may never write them.

use std::time::Duration;

use gpuvitals_flight::{
    DumpTerms, FlightError, FlightFolder, FlightPlace, FlightRecorder, FlightSettings, FlightTerms,
    FlightTrigger, IncidentEntry, IncidentState, dump,
};
use gpuvitals_rig::waiting::until;
use gpuvitals_settings::Section as _;

use super::asked::NO_FILES;

#[test]
fn an_incident_is_listed_from_its_trigger_on_and_a_dump_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path();
    let place = FlightPlace::take(directory).unwrap();
    let terms = FlightTerms::new(&FlightSettings::of(&[]).unwrap(), "n1", NO_FILES);
    let recorder = FlightRecorder::start(place, terms).unwrap();
    recorder.signal();
    let incidents = FlightFolder::of(directory);
    let listed = until("the incident", || incidents.list_begun().unwrap(), |all| !all.is_empty());
    let [IncidentEntry { id, bytes: 0, state: IncidentState::Begun(trigger) }] = &listed[..] else {
        panic!("{listed:?}")
    };
    assert_eq!(trigger.kind, "signal");
    assert!(incidents.list().unwrap().is_empty(), "it has no folder");
    assert!(matches!(incidents.read(id), Err(FlightError::Begun { .. })));
    assert!(matches!(incidents.files(id), Err(FlightError::Begun { .. })));
    assert!(matches!(incidents.read("20261130T031459Z-xid"), Err(FlightError::Unknown { .. })));

    let terms = DumpTerms {
        directory: directory.to_owned(),
        node: "n1".to_owned(),
        back_ns: 60_000_000_000,
        keep: 20,
        files: NO_FILES,
    };
    let dumped = dump(terms).unwrap();
    assert_eq!((dumped.triggers, &dumped.others[..]), (2, &[FlightTrigger::clone(trigger)][..]));

    recorder.finish(Duration::from_mins(1));
    let is_whole = |entry: &IncidentEntry| matches!(entry.state, IncidentState::Whole(_));
    let states: Vec<(String, bool)> =
        incidents.list_begun().unwrap().iter().map(|entry| (entry.id.clone(), is_whole(entry))).collect();
    let mut wanted = [(id.clone(), true), (dumped.id, true)];
    wanted.sort();
    assert_eq!(states, wanted, "each once");
}
