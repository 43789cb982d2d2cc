//! A trace of a recording, decoded by the documented encoding of protocol buffers and compared with the rows.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use gpuvitals_core::batch::Value;
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{AbsenceReason, BatchBuilder, Identity, IdentityColumn, Origin, Table};
use gpuvitals_record::{Data, MarkContent, recorded_marks, write_perfetto};
use gpuvitals_sources::probe::{Driver, Due, Probe, ProbeError, Reading};
use gpuvitals_sources::registry::Discovery;
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use super::{Counting, POWER, config, started};

/// A field of a message.
enum WireField {
    Number(u64),
    Fixed(u64),
    Bytes(Vec<u8>),
}

impl WireField {
    fn number(&self) -> u64 {
        match self {
            Self::Number(number) | Self::Fixed(number) => *number,
            Self::Bytes(bytes) => panic!("{bytes:?} is no number"),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(number) | Self::Fixed(number) => panic!("{number} is no message"),
        }
    }

    fn text(&self) -> String {
        String::from_utf8(self.bytes().to_vec()).unwrap()
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, WireField)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let field = match tag & 7 {
            0 => WireField::Number(varint(&mut bytes)),
            1 => {
                let (value, rest) = bytes.split_first_chunk::<8>().unwrap();
                bytes = rest;
                WireField::Fixed(u64::from_le_bytes(*value))
            }
            2 => {
                let len = usize::try_from(varint(&mut bytes)).unwrap();
                let (value, rest) = bytes.split_at(len);
                bytes = rest;
                WireField::Bytes(value.to_vec())
            }
            kind => panic!("wire type {kind}"),
        };
        found.push((tag >> 3, field));
    }
    found
}

/// The fields of a message by number; of a repeated one the last.
fn message(bytes: &[u8]) -> BTreeMap<u64, WireField> {
    fields(bytes).into_iter().collect()
}

/// A time and what happened, as text.
type Course = Vec<(u64, String)>;

/// What a trace says. Tracks go by the names of their group and of themselves.
#[derive(Default)]
struct Decoded {
    clocks: BTreeMap<u64, u64>,
    names: BTreeMap<u64, (String, String)>,
    units: BTreeMap<(String, String), String>,
    counters: BTreeMap<(String, String), Course>,
    others: Vec<(String, u64, u64, String)>,
    /// What marks say beside their names.
    notes: BTreeMap<String, String>,
}

impl Decoded {
    fn of(directory: &Path) -> Self {
        let mut bytes = Vec::new();
        let totals = write_perfetto(directory, &mut bytes).unwrap();
        let mut decoded = Self::default();
        for (number, packet) in fields(&bytes) {
            assert_eq!(number, 1, "a trace is packets");
            decoded.take(&message(packet.bytes()));
        }
        let events = decoded.counters.values().map(Vec::len).sum::<usize>() + decoded.others.len();
        assert_eq!((totals.events, totals.rows_left_out), (events as u64, 0));
        assert_eq!(totals.tracks, decoded.units.len() as u64);
        decoded
    }

    fn take(&mut self, packet: &BTreeMap<u64, WireField>) {
        assert_eq!(packet[&10].number(), 1, "each packet names its sequence");
        if let Some(snapshot) = packet.get(&6) {
            assert_eq!(packet[&13].number(), 1, "the sequence begins with it");
            for (_, clock) in fields(snapshot.bytes()).iter().filter(|(number, _)| *number == 1) {
                let clock = message(clock.bytes());
                self.clocks.insert(clock[&1].number(), clock[&2].number());
            }
        } else if let Some(descriptor) = packet.get(&60) {
            let track = message(descriptor.bytes());
            let (id, name) = (track[&1].number(), track[&2].text());
            let group = track.get(&5).map(|group| self.names[&group.number()].1.clone());
            let names = (group.unwrap_or_default(), name);
            if let Some(counter) = track.get(&8) {
                let unit = message(counter.bytes()).get(&6).map(WireField::text);
                self.units.insert(names.clone(), unit.unwrap_or_default());
            }
            assert_eq!(self.names.insert(id, names), None, "a track is described once");
        } else {
            assert_eq!(packet[&58].number(), 3, "times are those of the monotonic clock");
            let event = packet[&11].bytes();
            self.event(packet[&8].number(), &message(event));
            for (_, note) in fields(event).iter().filter(|(number, _)| *number == 4) {
                self.note(&message(note.bytes()));
            }
        }
    }

    fn note(&mut self, note: &BTreeMap<u64, WireField>) {
        let whole = |field: &WireField| field.number().cast_signed().to_string();
        let value = note.get(&6).map(WireField::text).or_else(|| note.get(&4).map(whole));
        let value = value.unwrap_or_else(|| f64::from_bits(note[&5].number()).to_string());
        self.notes.insert(note[&10].text(), value);
    }

    fn event(&mut self, time: u64, event: &BTreeMap<u64, WireField>) {
        let names = self.names[&event[&11].number()].clone();
        let kind = event[&9].number();
        if kind == 4 {
            let value = event.get(&30).map(|value| value.number().cast_signed().to_string());
            let value = value.unwrap_or_else(|| f64::from_bits(event[&44].number()).to_string());
            self.counters.entry(names).or_default().push((time, value));
        } else {
            let text = event.get(&23).map(WireField::text).unwrap_or_default();
            self.others.push((names.1, time, kind, text));
        }
    }
}

/// Each change of each value, from the rows.
fn wanted(directory: &Path) -> BTreeMap<(String, String), Course> {
    let mut wanted: BTreeMap<(String, String), Course> = BTreeMap::new();
    for batch in Data::open(directory).unwrap() {
        let batch = batch.unwrap();
        let times = batch.monotonic().unwrap();
        for (id, column) in batch.metrics() {
            for (row, time) in times.iter().enumerate() {
                let Some(value) = column.value(row) else { continue };
                let group = match batch.table() {
                    Table::GpuEvents => format!("GPU on n1, {}", batch.identity(row).key().unwrap()),
                    _ => "host n1".to_owned(),
                };
                let course = wanted.entry((group, id.metric().column.to_owned())).or_default();
                let value = value.as_decimal().to_string();
                if course.last().is_none_or(|(_, before)| *before != value) {
                    course.push((u64::try_from(*time).unwrap(), value));
                }
            }
        }
    }
    wanted
}

#[test]
fn a_trace_has_each_change_of_each_value_on_the_monotonic_clock_with_its_unit() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = started(Counting::found(2), config(dir.path()), 200);
    let told = MarkContent {
        phase: Some("train".to_owned()),
        step: Some(-3),
        value_name: Some("loss".to_owned()),
        value: Some(0.5),
        ..MarkContent::from("epoch 1 – \u{1f600}")
    };
    recorder.mark(told).unwrap();
    let running = Decoded::of(dir.path());
    assert!(!running.counters.is_empty(), "one that runs has a trace, too");
    recorder.stop().unwrap();

    let trace = Decoded::of(dir.path());
    assert_eq!(trace.counters, wanted(dir.path()));
    let unit = |group: &str, name: &str| trace.units[&(group.to_owned(), name.to_owned())].clone();
    assert_eq!(unit("GPU on n1, GPU-1", "power_w"), "W");
    assert_eq!(unit("GPU on n1, GPU-0", "fan_speed_rpm"), "rpm");
    assert_eq!(unit("host n1", "cpu_pct"), "%");

    let first = Data::open(dir.path()).unwrap().next().unwrap().unwrap();
    let shown = |clock| i64::try_from(trace.clocks[&clock]).unwrap();
    assert_eq!((shown(3), shown(1)), (first.monotonic().unwrap()[0], first.timestamps()[0]));
    assert!(shown(6) > shown(3) - 1_000_000, "the time since boot is no less");
    let (marks, _) = recorded_marks(dir.path(), 9).unwrap();
    let time = u64::try_from(marks[0].monotonic_ns).unwrap();
    assert_eq!(trace.others, [("marks".to_owned(), time, 3, "epoch 1 – \u{1f600}".to_owned())]);
    let notes = [("loss", "0.5"), ("phase", "train"), ("step", "-3")];
    let notes = notes.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(trace.notes, BTreeMap::from(notes));
}

/// A device that sleeps for some readings, and has the same value before and after.
struct Sleeping {
    identity: Arc<Identity>,
    readings: u32,
}

impl Probe for Sleeping {
    fn driver(&self) -> Driver {
        Driver::AmdSysfs
    }

    fn targets(&self) -> Vec<Arc<Identity>> {
        vec![Arc::clone(&self.identity)]
    }

    fn fill(&mut self, _: Due, reading: &mut Reading) -> Result<(), ProbeError> {
        self.readings += 1;
        let row = reading.row(&self.identity);
        if (20..40).contains(&self.readings) {
            row.down(AbsenceReason::Suspended, "asleep");
        } else {
            row.int(POWER, 7);
        }
        Ok(())
    }
}

#[test]
fn a_time_in_which_a_gpu_reports_nothing_is_a_slice_and_its_values_begin_anew() {
    let dir = tempfile::tempdir().unwrap();
    let identity = Identity::default().with(IdentityColumn::Node, "n1").unwrap();
    let identity = Arc::new(identity.with(IdentityColumn::Uuid, "GPU-0").unwrap());
    let mut found = Discovery::default();
    found.probes.push(Box::new(Sleeping { identity, readings: 0 }));
    started(found, config(dir.path()), 60).stop().unwrap();

    let trace = Decoded::of(dir.path());
    let values: Vec<_> = trace.counters.values().flatten().collect();
    assert_eq!(values.len(), 2, "{values:?}");
    assert!(values.iter().all(|(_, value)| value == "7"), "{values:?}");
    let group = "GPU on n1, GPU-0".to_owned();
    let [(first, begin, 1, name), (second, end, 2, _)] = trace.others.as_slice() else {
        panic!("{:?}", trace.others);
    };
    assert_eq!((first, second, name.as_str()), (&group, &group, "reports nothing"));
    assert!(values[0].0 < *begin && *begin < *end, "{:?}", trace.others);
    assert_eq!(values[1].0, *end, "the first value after it ends it");
}

/// A recording of one GPU with rows in five seconds of ten, and such facts.
fn with_gap(facts: &[(&str, &str)]) -> Decoded {
    let dir = tempfile::tempdir().unwrap();
    started(Counting::found(1), config(dir.path()), 5).stop().unwrap();
    let gpu = Identity::default().with(IdentityColumn::Node, "n1").unwrap();
    let mut rows = BatchBuilder::new(Table::GpuEvents);
    let gpu = rows.intern(&gpu.with(IdentityColumn::Uuid, "GPU-0").unwrap());
    for second in [1, 2, 3, 9, 10] {
        let row = rows.row_at(1_000 * SECOND_NS + second * SECOND_NS, second * SECOND_NS, gpu);
        rows.set(row, POWER, Value::Int(7)).unwrap();
    }
    let rows = rows.finish(Origin::default(), 1).unwrap();
    let file = File::create(dir.path().join("gpu_events.parquet")).unwrap();
    let fact = |(key, value): &(&str, &str)| KeyValue::new(format!("gpuvitals.{key}"), (*value).to_owned());
    let facts = facts.iter().map(fact).collect();
    let properties = WriterProperties::builder().set_key_value_metadata(Some(facts)).build();
    let mut writer = ArrowWriter::try_new(file, rows.records().schema(), Some(properties)).unwrap();
    writer.write(rows.records()).unwrap();
    writer.close().unwrap();
    Decoded::of(dir.path())
}

#[test]
fn a_time_without_rows_is_a_slice_and_its_values_begin_anew() {
    let trace = with_gap(&[("rate_hz", "1")]);
    let at = |second: i64| u64::try_from(second * SECOND_NS).unwrap();
    let power = &trace.counters[&("GPU on n1, GPU-0".to_owned(), "power_w".to_owned())];
    assert_eq!(*power, [(at(1), "7".to_owned()), (at(9), "7".to_owned())]);
    let of_gpu: Vec<_> = trace.others.iter().filter(|(group, ..)| group.starts_with("GPU")).collect();
    let [(_, begin, 1, name), (_, end, 2, _)] = of_gpu.as_slice() else { panic!("{of_gpu:?}") };
    assert_eq!((*begin, *end, name.as_str()), (at(3), at(9), "no rows"), "6 s, where 5 s are a gap");
}

#[test]
fn where_nobody_knows_how_often_rows_come_none_is_missing() {
    let trace = with_gap(&[("node", "n1")]);
    let power = &trace.counters[&("GPU on n1, GPU-0".to_owned(), "power_w".to_owned())];
    assert_eq!(power.len(), 1, "{power:?}");
    assert!(trace.others.iter().all(|(group, ..)| !group.starts_with("GPU")), "{:?}", trace.others);
}
