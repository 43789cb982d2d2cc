import { describe, expect, it } from "vitest";
import { bridged, countPoints, EMPTY, extend, frameOf, heldValue, isolated, lastValue, type Frame } from "./frame";

const frame = (times: number[], values: Record<string, (number | null)[]>, stepMs = 1000): Frame => ({
  stepMs,
  times,
  values: new Map(Object.entries(values)),
});
const plain = (made: Frame) => ({ times: made.times, ...Object.fromEntries(made.values) });

describe("frameOf", () => {
  it("takes the series of one GPU as they are, gaps as null", () => {
    const answer = {
      times: [1000, 2000],
      step_ms: 1000,
      series: [
        { metric: "power_w", gpu: "a", values: [1, null] },
        { metric: "power_w", gpu: "b", values: [8, 9] },
      ],
    };
    expect(plain(frameOf(answer, "a", "mean"))).toEqual({ times: [1000, 2000], power_w: [1, null] });
  });
});

describe("extend", () => {
  const base = frame([1000, 2000], { power_w: [10, 11] });
  it.each([
    ["appends a sample in the next bucket", [{ timestamp: 3400, metrics: { power_w: 12 } }], { times: [1000, 2000, 3000], power_w: [10, 11, 12] }],
    ["keeps a gap where a metric is missing", [{ timestamp: 3000, metrics: { power_w: null } }], { times: [1000, 2000, 3000], power_w: [10, 11, null] }],
    ["replaces the value of the last bucket", [{ timestamp: 2900, metrics: { power_w: 15 } }], { times: [1000, 2000], power_w: [10, 15] }],
    ["leaves out what is older than the last bucket", [{ timestamp: 1500, metrics: { power_w: 99 } }], { times: [1000, 2000], power_w: [10, 11] }],
    ["starts a metric that was not there", [{ timestamp: 3000, metrics: { temperature_c: 50 } }], { times: [1000, 2000, 3000], power_w: [10, 11, null], temperature_c: [null, null, 50] }],
    ["joins partial rows of one instant", [{ timestamp: 3000, metrics: { power_w: 1 } }, { timestamp: 3000, metrics: { b: 2 } }], { times: [1000, 2000, 3000], power_w: [10, 11, 1], b: [null, null, 2] }],
    ["leaves out what is no number", [{ timestamp: 3000, metrics: { power_w: "high", b: Number.NaN } }], { times: [1000, 2000, 3000], power_w: [10, 11, null] }],
  ])("%s", (_name, samples, expected) => {
    expect(plain(extend(base, samples, 0, "mean"))).toEqual(expected);
  });

  it("drops what lies before the range, whole buckets only", () => {
    expect(plain(extend(base, [], 2500, "mean"))).toEqual({ times: [2000], power_w: [11] });
    expect(plain(extend(base, [], 9000, "mean"))).toEqual({ times: [], power_w: [] });
  });

  it.each([
    ["max", 15, 11],
    ["min", 11, 9],
    ["last", 11, 9],
  ])("%s decides what a bucket keeps", (aggregate, after15, after9) => {
    const take = (power_w: number) => extend(base, [{ timestamp: 2500, metrics: { power_w } }], 0, aggregate).values.get("power_w")?.at(-1);
    expect([take(15), take(9)]).toEqual(aggregate === "last" ? [15, 9] : [after15, after9]);
  });

  it("begins an empty frame and leaves the frame it was given alone", () => {
    expect(plain(extend(EMPTY, [{ timestamp: 1500, metrics: { a: 1 } }], 0, "mean"))).toEqual({ times: [1000], a: [1] });
    expect(plain(base)).toEqual({ times: [1000, 2000], power_w: [10, 11] });
  });

  it("never holds more points than the range has buckets", () => {
    const many = Array.from({ length: 5000 }, (_, n) => ({ timestamp: n * 100, metrics: { a: n } }));
    const made = extend(EMPTY, many, 500_000 - 60_000, "mean");
    expect(made.times.length).toBeLessThanOrEqual(61);
  });
});

describe("bridged", () => {
  const times = Array.from({ length: 9 }, (_, n) => n * 1000);
  it.each([
    ["a value in each bucket stays as it is", [1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 4, 5, 6, 7, 8, 9]],
    ["a missed sample of a source at the step's pace is a gap", [1, 2, null, 4, 5, 6, 7, 8, 9], [1, 2, null, 4, 5, 6, 7, 8, 9]],
    ["a slower source has no gaps", [1, null, 3, null, 5, null, 7, null, 9], [1, undefined, 3, undefined, 5, undefined, 7, undefined, 9]],
    ["a slower source that pauses has one", [1, null, 3, null, null, null, null, null, 9], [1, undefined, 3, null, null, null, null, null, 9]],
    ["two values say nothing about the pace", [1, null, null, null, 5, null, null, null, null], [1, null, null, null, 5, null, null, null, null]],
    ["nothing is nothing", times.map(() => null), times.map(() => null)],
  ])("%s", (_name, values, expected) => {
    expect(bridged(times, values, 1000)).toEqual(expected);
  });
});

describe("isolated", () => {
  it.each([
    [[null, 1, null], [1]],
    [[1, null, 2, 3, null, 4], [0, 5]],
    [[1, undefined, 2], []],
    [[undefined, 1, undefined, null], [1]],
    [[], []],
  ])("%o stand alone at %o", (values, expected) => {
    expect(isolated(values)).toEqual(expected);
  });
});

it("counts and finds values, not gaps", () => {
  const made = frame([0, 1, 2], { a: [1, null, 0], b: [null, null, null] });
  expect(countPoints(made, ["a", "b", "c"])).toBe(2);
  expect(lastValue([1, 2, null])).toBe(2);
  expect(lastValue([null])).toBeNull();
  expect(lastValue(undefined)).toBeNull();
});

it("a value that is read rarely holds until the next, the first also before it was read", () => {
  const values = [null, 7, null, 8, null];
  expect(values.map((_, place) => heldValue(values, place))).toEqual([7, 7, 7, 8, 8]);
  expect(heldValue([null], 0)).toBeNull();
});
