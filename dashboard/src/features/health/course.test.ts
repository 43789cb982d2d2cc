import { describe, expect, it } from "vitest";
import type { Stats } from "../../api/client";
import { parseFigures } from "../../api/exposition";
import { MINUTE, SECOND } from "../../shared/time";
import { group, topic } from "../../testing/queue";
import { extended, frameOf, KEEP_MS, lineName, panelsOf, type Course, type StatsReading } from "./course";

function reading(at: number, part: { hits?: number; misses?: number; stored?: number; lag?: number; groups?: number; took?: readonly [number, number] } = {}): StatsReading {
  const groups = Object.fromEntries(Array.from({ length: part.groups ?? 1 }, (_, n) => [`g${n}`, group({ lag: (part.lag ?? 0) + n })]));
  const stats = {
    topics: { t: topic({ throughput_msg_per_sec: 64, groups }) },
    total_processed: 0,
    uptime_seconds: 1,
    gateway: { cache_hits: part.hits ?? 0, cache_misses: part.misses ?? 0, requests: 0, uptime_seconds: 1, streams: 2, connections: 3, memory_bytes: 1024 },
    collectors: { here: { total_processed: part.stored ?? 0 }, away: null },
  } as unknown as Stats;
  const [fast, all] = part.took ?? [0, 0];
  const text = `gpuvitals_collector_store_duration_seconds_bucket{le="0.01"} ${fast}\ngpuvitals_collector_store_duration_seconds_bucket{le="+Inf"} ${all}`;
  return { at, stats, figures: parseFigures(text), missing: [] };
}

const courseOf = (readings: readonly StatsReading[]): Course | undefined => readings.reduce<Course | undefined>(extended, undefined);

function line(course: Course | undefined, chart: string, name: string): (number | null)[] {
  if (course === undefined) return [];
  const panel = panelsOf(course).find(({ id }) => id === chart);
  const id = panel?.columns.find((column) => lineName(column) === name);
  return id === undefined ? [] : [...(frameOf(course, [id], SECOND).values.get(id) ?? [])];
}

describe("the course of the figures", () => {
  it("has rates of counters and levels of gauges, and none of what began anew", () => {
    const course = courseOf([
      reading(0, { lag: 5 }),
      reading(5000, { lag: 7, stored: 100, hits: 3, misses: 1, took: [10, 10] }),
      reading(10_000, { lag: 0, stored: 50, hits: 3, misses: 1, took: [10, 10] }),
    ]);
    expect(line(course, "lag", "g0 of t")).toEqual([5, 7, 0]);
    expect(line(course, "rows", "stored")).toEqual([null, 20, null]);
    // Without a request there is no rate of hits, and without a store no latency.
    expect(line(course, "cache", "hits")).toEqual([null, 75, null]);
    expect(line(course, "store", "median")).toEqual([null, 5, null]);
    expect(line(course, "messages", "t published")).toEqual([64, 64, 64]);
    expect(panelsOf(course as Course).map(({ id }) => id)).not.toContain("publish");
  });

  it("breaks where nobody looked, and forgets what is old", () => {
    const gap = courseOf([reading(0), reading(5 * MINUTE)]);
    expect(line(gap, "lag", "g0 of t")).toEqual([0, null, 0]);
    const long = courseOf(Array.from({ length: 400 }, (_, n) => reading(n * 5000)));
    expect(long?.points.length).toBe(KEEP_MS / 5000);
    expect(long?.points.every(({ at }) => at > (long.last.at - KEEP_MS))).toBe(true);
  });

  it("draws the highest of many lines and says so", () => {
    const course = courseOf([reading(0, { groups: 9 })]);
    const lag = panelsOf(course as Course).find(({ id }) => id === "lag");
    expect([lag?.title, lag?.columns.length]).toEqual(["Lag per group, in messages: the 6 highest of 9", 6]);
    expect(lag?.columns.map(lineName)).toContain("g8 of t");
  });
});
