"""Decodes a trace with Perfetto's own schema and compares it with the rows of the recording: each value at each time, marks, clocks."""

import math
import sys
from pathlib import Path

import pyarrow.parquet
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

recording, trace_file = Path(sys.argv[1]), Path(sys.argv[2])
IDENTITY = {"cluster", "node", "uuid", "vendor", "model", "pci", "partition", "driver", "vbios", "pod", "namespace", "container"}
NO_METRIC = IDENTITY | {"job", "source", "gpu", "timestamp_ns", "monotonic_ns", "core"}
passed, failed = 0, 0


def check(what, found, expected):
    global passed, failed
    passed, failed = passed + (found == expected), failed + (found != expected)
    if found != expected and failed < 20:
        print(f"{what}: {found!r}, not {expected!r}")


trace = schema.Trace()
trace.ParseFromString(trace_file.read_bytes())
tracks, counters, instants, clocks = {}, {}, [], {}
for packet in trace.packet:
    kind = packet.WhichOneof("data")
    if kind == "clock_snapshot":
        clocks = {clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks}
        check("the trace's own clock", packet.clock_snapshot.primary_trace_clock, schema.BUILTIN_CLOCK_MONOTONIC)
    elif kind == "track_descriptor":
        tracks[packet.track_descriptor.uuid] = packet.track_descriptor
    elif kind == "track_event":
        event = packet.track_event
        check("the clock of an event", packet.timestamp_clock_id, schema.BUILTIN_CLOCK_MONOTONIC)
        if event.type == schema.TrackEvent.TYPE_COUNTER:
            value = getattr(event, event.WhichOneof("counter_value_field"))
            counters.setdefault(event.track_uuid, {})[packet.timestamp] = value
        elif event.type == schema.TrackEvent.TYPE_INSTANT:
            beside = {note.name: getattr(note, note.WhichOneof("value")) for note in event.debug_annotations}
            instants.append((packet.timestamp, event.name, beside))
    else:
        check("a packet", kind, "one that is expected")
    check("fields that the schema does not know", len(UnknownFieldSet(packet)), 0)

# By the name of the group and that of the metric; no two may be alike.
named = {}
for uuid, course in counters.items():
    track = tracks[uuid]
    name = (tracks[track.parent_uuid].name, track.name)
    check(f"{name} has the kind of a counter", track.HasField("counter"), True)
    named[name] = (course, track.counter.unit_name)
check("tracks by name", len(named), len(counters))


def group(row):
    """The group of a row, as the trace names it."""
    if row.get("uuid") is None:
        return f"CPU {row['core']} of {row['node']}" if row.get("core") is not None else f"host {row['node']}"
    return next(name for name, _ in named if name.startswith("GPU ") and name.endswith(f" on {row['node']}, {row['uuid']}"))


def beside_text(mark):
    """What a mark says beside its text."""
    said = {"phase": mark["phase"], "step": mark["step"], mark["value_name"]: mark["value"]}
    return {name: value for name, value in said.items() if value is not None}


shown = {}
first = None
for table in ("gpu_events", "system_events"):
    for row in pyarrow.parquet.read_table(recording / f"{table}.parquet").to_pylist():
        first = first or row
        for column, value in row.items():
            if value is None or column in NO_METRIC:
                continue
            name = (group(row), column)
            if name not in named:
                check("a track", None, name)
                continue
            # A track keeps its value until the next.
            shown[name] = named[name][0].get(row["monotonic_ns"], shown.get(name))
            check(f"{name} at {row['monotonic_ns']}, {value}", math.isclose(shown[name], value, rel_tol=1e-6), True)
check("tracks that no row has", sorted(set(named) - set(shown)), [])
for name, (_, unit) in named.items():
    if name[1] in ("power_w", "temperature_c", "gpu_clock_mhz", "cpu_pct", "memory_used_mb"):
        check(f"the unit of {name}", unit, {"w": "W", "c": "°C", "mhz": "MHz", "pct": "%", "mb": "MiB"}[name[1].rsplit("_", 1)[1]])
check("the monotonic clock", clocks[schema.BUILTIN_CLOCK_MONOTONIC], first["monotonic_ns"])
check("UTC", clocks[schema.BUILTIN_CLOCK_REALTIME], first["timestamp_ns"])
check("the time since boot is no less", clocks[schema.BUILTIN_CLOCK_BOOTTIME] >= first["monotonic_ns"] - 1_000_000, True)
marks = pyarrow.parquet.read_table(recording / "marks.parquet").to_pylist()
check("there are marks", len(marks), 3)
check("marks", instants, [(mark["monotonic_ns"], mark["text"], beside_text(mark)) for mark in marks])

print(f"traces: {passed} passed, {failed} failed")
sys.exit(failed > 0)
