import type { Stats } from "../../api/client";
import { quantileBetween, total, type FigureSet } from "../../api/exposition";
import type { Frame } from "../../charts/frame";
import { LINES_MAX, type Panel } from "../../charts/panels";
import { MINUTE } from "../../shared/time";
import { perSecond } from "./rate";

// The figures of queue, collector and gateway as this page has read them, minute by minute.

/** How long readings are kept. */
export const KEEP_MS = 15 * MINUTE;
/** Readings further apart are not compared, and no line is drawn between them: nobody looked in between. */
const APART_MS = MINUTE;

/** What was read at one time. */
export interface StatsReading {
  readonly at: number;
  readonly stats: Stats;
  /** Empty if it could not be read. */
  readonly figures: FigureSet;
  /** What could not be read, in words. */
  readonly missing: readonly string[];
}

interface Point {
  readonly at: number;
  readonly values: ReadonlyMap<string, number>;
}

export interface Course {
  readonly last: StatsReading;
  /** The oldest first. */
  readonly points: readonly Point[];
}

/** A chart of figures; its lines have ids that begin with that of the chart. */
interface FigureChart {
  readonly id: string;
  readonly title: string;
  readonly unit: string;
}

const CHARTS: readonly FigureChart[] = [
  { id: "messages", title: "Messages a second", unit: "/s" },
  { id: "lag", title: "Lag per group, in messages", unit: "" },
  { id: "oldest", title: "Oldest message that waits", unit: "s" },
  { id: "rows", title: "Rows stored a second", unit: "/s" },
  { id: "publish", title: "Latency of a publish", unit: "ms" },
  { id: "store", title: "Latency of a store", unit: "ms" },
  { id: "answer", title: "Latency of an answer of the API", unit: "ms" },
  { id: "requests", title: "Requests a second", unit: "/s" },
  { id: "cache", title: "Cache hit rate", unit: "%" },
  { id: "open", title: "Open streams and connections", unit: "" },
  { id: "memory", title: "Memory of the gateway's process", unit: "MiB" },
];

const LATENCIES: readonly (readonly [string, string])[] = [
  ["publish", "gpuvitals_source_publish_duration_seconds"],
  ["store", "gpuvitals_collector_store_duration_seconds"],
  ["answer", "gpuvitals_gateway_request_duration_seconds"],
];

const SEPARATOR = "\n";
const MIB = 1024 * 1024;
/** The shortest time that the charts show. */
const SHORTEST_MS = 2 * MINUTE;

/** What a line is called: its id without that of its chart. */
export function lineName(id: string): string {
  return id.slice(id.indexOf(SEPARATOR) + 1);
}

/** Adds a reading and drops what is older than [`KEEP_MS`]. */
export function extended(course: Course | undefined, reading: StatsReading): Course {
  const before = course?.last;
  const isNear = before !== undefined && reading.at - before.at <= APART_MS;
  const points = course?.points.filter((point) => point.at > reading.at - KEEP_MS) ?? [];
  const gap = before === undefined || isNear ? [] : [{ at: before.at + 1, values: new Map<string, number>() }];
  return { last: reading, points: [...points, ...gap, { at: reading.at, values: valuesOf(isNear ? before : null, reading) }] };
}

function valuesOf(before: StatsReading | null, reading: StatsReading): Map<string, number> {
  const values = new Map<string, number>();
  const set = (chart: string, line: string, value: unknown) => {
    if (typeof value === "number" && Number.isFinite(value)) values.set(chart + SEPARATOR + line, value);
  };
  const { gateway, topics } = reading.stats;
  for (const [name, topic] of Object.entries(topics ?? {})) {
    set("messages", `${name} published`, topic.throughput_msg_per_sec);
    set("messages", `${name} acknowledged`, topic.acked_msg_per_sec);
    for (const [group, of] of Object.entries(groupsOf(topic))) {
      set("lag", `${group} of ${name}`, of.lag);
      // Nothing waits: the oldest has waited for no time.
      if (typeof of.in_flight === "number" && "members" in of) set("oldest", `${group} of ${name}`, of.oldest_unacked_seconds ?? 0);
    }
  }
  set("open", "streams", gateway.streams);
  set("open", "connections", gateway.connections);
  set("memory", "resident", typeof gateway.memory_bytes === "number" ? gateway.memory_bytes / MIB : null);
  if (before === null) return values;
  const rate = (count: (reading: StatsReading) => number | null | undefined) => {
    const [earlier, later] = [count(before), count(reading)];
    return typeof earlier === "number" && typeof later === "number" ? perSecond({ at: before.at, count: earlier }, { at: reading.at, count: later }) : null;
  };
  set("rows", "stored", rate(({ stats }) => storedRows(stats)));
  set("requests", "answered", rate(({ stats }) => stats.gateway.requests));
  set("requests", "refused by rate", rate(({ figures }) => total(figures, "gpuvitals_gateway_requests_limited_total")));
  const hits = rate(({ stats }) => stats.gateway.cache_hits);
  const misses = rate(({ stats }) => stats.gateway.cache_misses);
  if (hits !== null && misses !== null && hits + misses > 0) set("cache", "hits", (100 * hits) / (hits + misses));
  for (const [chart, name] of LATENCIES) {
    for (const [line, share] of [["median", 0.5], ["p99", 0.99]] as const) {
      const seconds = quantileBetween(before.figures, reading.figures, name, share);
      set(chart, line, seconds === null ? null : seconds * 1000);
    }
  }
  return values;
}

function groupsOf(topic: Readonly<Record<string, unknown>>): Readonly<Record<string, Readonly<Record<string, unknown>>>> {
  const { groups } = topic;
  return typeof groups === "object" && groups !== null ? (groups as Record<string, Record<string, unknown>>) : {};
}

/** Rows that the collectors have stored; `null` while none says. */
function storedRows(stats: Stats): number | null {
  const counts = Object.values(stats.collectors).flatMap((own) => (typeof own?.total_processed === "number" ? [own.total_processed] : []));
  return counts.length === 0 ? null : counts.reduce((sum, count) => sum + count, 0);
}

/** The charts that have something to show. Of more lines than can be told apart, the highest are drawn. */
export function panelsOf(course: Course): Panel[] {
  const highest = new Map<string, number>();
  for (const { values } of course.points) {
    for (const [line, value] of values) highest.set(line, Math.max(highest.get(line) ?? -Infinity, value));
  }
  return CHARTS.flatMap(({ id, title, unit }) => {
    const lines = [...highest].filter(([line]) => line.startsWith(id + SEPARATOR)).sort(([, a], [, b]) => b - a);
    if (lines.length === 0) return [];
    const columns = lines.slice(0, LINES_MAX).map(([line]) => line).sort();
    const shown = lines.length > LINES_MAX ? `${title}: the ${LINES_MAX} highest of ${lines.length}` : title;
    return [{ id, title: shown, unit, columns }];
  });
}

/** The time that the charts show: from the first reading, or the longest that is kept. */
export function spanOf(course: Course): { readonly start: number; readonly end: number } {
  const end = course.last.at;
  const first = course.points[0]?.at ?? end;
  return { start: Math.min(first, end - SHORTEST_MS), end };
}

/** The lines of some charts. */
export function frameOf(course: Course, columns: readonly string[], stepMs: number): Frame {
  return {
    stepMs,
    times: course.points.map((point) => point.at),
    values: new Map(columns.map((line) => [line, course.points.map((point) => point.values.get(line) ?? null)])),
  };
}
