//! The packets of a trace, as they follow each other in the file: `Trace`, `TracePacket` and what is in them. Their numbers
//! are those of Perfetto's `protos/perfetto/trace`.

use std::io::{self, Write};

use gpuvitals_core::batch::Value;

use super::wire::ProtoMessage;
use crate::mark::MarkContent;

/// Everything is one sequence of packets.
const SEQUENCE: u64 = 1;
/// The first packet of a sequence says that nothing comes before it.
const BEGINS: u64 = 1;
/// Tracks below one stand in the order of their ranks.
const BY_RANK: u64 = 3;

/// A clock of the kernel, by its number in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum TraceClock {
    Realtime = 1,
    Monotonic = 3,
    Boottime = 6,
}

/// What an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum EventKind {
    SliceBegin = 1,
    SliceEnd = 2,
    Instant = 3,
    Counter = 4,
}

/// A track to be described.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrackFacts<'a> {
    pub(super) id: u64,
    /// The group that it is in.
    pub(super) group: Option<u64>,
    pub(super) name: &'a str,
    pub(super) help: &'a str,
    /// Its place in the group.
    pub(super) rank: u16,
}

/// Writes the packets of a trace, one after the other.
pub(super) struct PacketWriter<'a> {
    out: &'a mut dyn Write,
    event: ProtoMessage,
    packet: ProtoMessage,
    head: ProtoMessage,
    /// How many events were written.
    pub(super) events: u64,
}

impl<'a> PacketWriter<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        let [event, packet, head] = std::array::from_fn(|_| ProtoMessage::default());
        Self { out, event, packet, head, events: 0 }
    }

    /// What clocks showed at one moment: the first packet.
    pub(super) fn clocks(&mut self, shown: &[(TraceClock, i64)]) -> io::Result<()> {
        let mut snapshot = ProtoMessage::default();
        for (clock, ns) in shown {
            let mut one = ProtoMessage::default();
            one.number(1, *clock as u64);
            one.number(2, time(*ns));
            snapshot.message(1, &one);
        }
        snapshot.number(2, TraceClock::Monotonic as u64);
        self.packet.clear();
        self.packet.number(10, SEQUENCE);
        self.packet.number(13, BEGINS);
        self.packet.message(6, &snapshot);
        self.put()
    }

    /// A track that others are in, or that has slices and instants.
    pub(super) fn group(&mut self, track: TrackFacts<'_>) -> io::Result<()> {
        let mut descriptor = descriptor(track);
        descriptor.number(11, BY_RANK);
        self.describe(&descriptor)
    }

    /// A track of values in a unit.
    pub(super) fn counter_track(&mut self, track: TrackFacts<'_>, unit: &str) -> io::Result<()> {
        let mut descriptor = descriptor(track);
        let mut counter = ProtoMessage::default();
        if !unit.is_empty() {
            counter.text(6, unit);
        }
        descriptor.message(8, &counter);
        self.describe(&descriptor)
    }

    fn describe(&mut self, descriptor: &ProtoMessage) -> io::Result<()> {
        self.packet.clear();
        self.packet.number(10, SEQUENCE);
        self.packet.message(60, descriptor);
        self.put()
    }

    /// A value from now on.
    pub(super) fn counter(&mut self, time_ns: i64, track: u64, value: Value) -> io::Result<()> {
        self.event(time_ns, EventKind::Counter, track, |event| match value {
            Value::Int(value) => event.number(30, value.cast_unsigned()),
            value => event.double(44, value.as_decimal()),
        })
    }

    /// A mark: an instant with its text, and with the phase, the step and the value beside it.
    pub(super) fn mark(&mut self, time_ns: i64, track: u64, content: &MarkContent) -> io::Result<()> {
        self.event(time_ns, EventKind::Instant, track, |event| {
            event.text(23, &content.text);
            if let Some(phase) = &content.phase {
                event.message(4, &annotation("phase", |it| it.text(6, phase)));
            }
            if let Some(step) = content.step {
                event.message(4, &annotation("step", |it| it.number(4, step.cast_unsigned())));
            }
            if let (Some(name), Some(value)) = (&content.value_name, content.value) {
                event.message(4, &annotation(name, |it| it.double(5, value)));
            }
        })
    }

    pub(super) fn slice_begin(&mut self, time_ns: i64, track: u64, name: &str) -> io::Result<()> {
        self.event(time_ns, EventKind::SliceBegin, track, |event| event.text(23, name))
    }

    pub(super) fn slice_end(&mut self, time_ns: i64, track: u64) -> io::Result<()> {
        self.event(time_ns, EventKind::SliceEnd, track, |_| {})
    }

    fn event(
        &mut self,
        time_ns: i64,
        kind: EventKind,
        track: u64,
        fill: impl FnOnce(&mut ProtoMessage),
    ) -> io::Result<()> {
        self.event.clear();
        self.event.number(9, kind as u64);
        self.event.number(11, track);
        fill(&mut self.event);
        self.packet.clear();
        self.packet.number(8, time(time_ns));
        self.packet.number(58, TraceClock::Monotonic as u64);
        self.packet.number(10, SEQUENCE);
        self.packet.message(11, &self.event);
        self.events += 1;
        self.put()
    }

    /// A trace is a message whose field 1 is repeated.
    fn put(&mut self) -> io::Result<()> {
        self.head.clear();
        self.head.message(1, &self.packet);
        self.out.write_all(self.head.as_bytes())
    }
}

fn descriptor(track: TrackFacts<'_>) -> ProtoMessage {
    let mut descriptor = ProtoMessage::default();
    descriptor.number(1, track.id);
    descriptor.text(2, track.name);
    if let Some(group) = track.group {
        descriptor.number(5, group);
    }
    descriptor.number(12, track.rank.into());
    if !track.help.is_empty() {
        descriptor.text(14, track.help);
    }
    descriptor
}

/// Something that an event says beside its name.
fn annotation(name: &str, fill: impl FnOnce(&mut ProtoMessage)) -> ProtoMessage {
    let mut annotation = ProtoMessage::default();
    annotation.text(10, name);
    fill(&mut annotation);
    annotation
}

/// No clock of a trace is before its begin.
fn time(ns: i64) -> u64 {
    u64::try_from(ns).unwrap_or(0)
}
