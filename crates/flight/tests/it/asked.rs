//! Incidents that a gateway asks for, among those of the node itself.

use std::path::Path;
use std::time::Duration;

use gpuvitals_core::Batch;
use gpuvitals_core::clock::now_ns;
use gpuvitals_core::time::MINUTE_NS;
use gpuvitals_flight::{
    FlightError, FlightFolder, FlightPlace, FlightRecorder, FlightSettings, FlightTerms, IncidentFiles,
    IncidentState, IncidentTable,
};
use gpuvitals_settings::Section as _;
use serde_json::json;

/// No row comes.
#[derive(Debug)]
struct NoRows;

impl IncidentTable for NoRows {
    fn takes(&self, _: &Batch) -> bool {
        true
    }
    fn add(&mut self, _: &Batch) -> Result<(), FlightError> {
        Ok(())
    }
    fn settle(&mut self) -> Result<(), FlightError> {
        Ok(())
    }
    fn put(self: Box<Self>) -> Result<u64, FlightError> {
        Ok(0)
    }
}

pub(crate) const NO_FILES: IncidentFiles =
    IncidentFiles { begin: |_, _| Ok(Box::new(NoRows)), read: |_| Ok(Box::new(std::iter::empty())) };

/// Has a recorder that keeps two incidents write one, of what is done with it.
fn kept(directory: &Path, work: impl FnOnce(&FlightRecorder)) {
    let settings = FlightSettings::of(&[("flight.keep", json!(2))]).unwrap();
    let place = FlightPlace::take(directory).unwrap();
    let recorder = FlightRecorder::start(place, FlightTerms::new(&settings, "n1", NO_FILES)).unwrap();
    work(&recorder);
    recorder.finish(Duration::from_mins(1));
}

/// The kind of each incident and its rule, or that of its first other trigger, the oldest first.
fn listed(directory: &Path) -> Vec<(String, Option<String>)> {
    let entries = FlightFolder::of(directory).list().unwrap();
    let of = |state: IncidentState| {
        let IncidentState::Whole(incident) = state else { panic!("{state:?}") };
        (incident.trigger.kind, incident.trigger.rule)
    };
    entries.into_iter().map(|entry| of(entry.state)).collect()
}

#[test]
fn a_gateway_that_asks_every_minute_pushes_out_none_of_the_nodes_own() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path();
    let own = ("signal".to_owned(), None);
    let asked = |id: &str| ("job".to_owned(), Some(id.to_owned()));
    for _ in 0..2 {
        kept(directory, FlightRecorder::signal);
    }
    // Each is younger than those before, by its name.
    for (minute, id) in (1..).zip(["one", "two", "three"]) {
        kept(directory, |recorder| recorder.asked(id, now_ns() + minute * MINUTE_NS));
        assert_eq!(listed(directory), [own.clone(), own.clone(), asked(id)]);
    }
    // One in which the node had something itself is its own, however much is asked for in it.
    kept(directory, |recorder| {
        let at_ns = now_ns() + 4 * MINUTE_NS;
        (0..50).for_each(|number| recorder.asked(&format!("four-{number}"), at_ns));
        recorder.signal();
    });
    assert_eq!(listed(directory), [own, asked("four-0")]);
}
