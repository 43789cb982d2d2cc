import { describe, expect, it } from "vitest";
import { DAY, HOUR, MINUTE } from "../shared/time";
import { stepFor, tickDistances, timeTicks, valueRange, valueTicks } from "./axis";

describe("valueRange", () => {
  it.each([
    ["%", 3, 7, [0, 100]],
    ["%", 0, 180, [0, 180]],
    ["W", null, null, [0, 1]],
    ["W", 100, 200, [88, 212]],
    ["W", 0, 100, [0, 112]],
    ["W", 50, 50, [45, 55]],
    ["", 0, 0, [0, 1]],
    ["°C", -10, 10, [-12.4, 12.4]],
  ])("%s from %s to %s", (unit, low, high, expected) => {
    expect(valueRange(unit, low, high)).toEqual(expected);
  });
});

describe("valueTicks", () => {
  it.each([
    ["%", [0, 50, 100], ["0%", "50%", "100%"]],
    ["W", [500, 550], ["500 W", "550 W"]],
    ["MiB", [0, 20_480, 40_960], ["0 GiB", "20 GiB", "40 GiB"]],
    ["B/s", [0, 2.5e9], ["0 GB/s", "2.5 GB/s"]],
    ["mJ", [13_118_900_000_000, 13_119_000_000_000], ["13.1189 GJ", "13.119 GJ"]],
    ["", [0, 0.25], ["0", "0.25"]],
  ])("%s %o", (unit, splits, expected) => {
    expect(valueTicks(splits, unit)).toEqual(expected);
  });

  it("stands at round numbers of the unit shown", () => {
    expect(tickDistances("MiB")).toContain(20 * 1024);
    expect(tickDistances("W")).toContain(0.5);
  });
});

describe("timeTicks", () => {
  const noon = new Date(2026, 10, 20, 12, 0, 30).getTime();
  it("shows seconds, minutes or days by the distance of the ticks", () => {
    expect(timeTicks([noon], 10_000)).toEqual(["12:00:30"]);
    expect(timeTicks([noon], MINUTE)).toEqual(["12:00"]);
    expect(timeTicks([noon], DAY)).toEqual(["11-20"]);
  });
  it("names the day where it changes", () => {
    const night = new Date(2026, 10, 20, 23, 0).getTime();
    expect(timeTicks([night, night + HOUR], HOUR)).toEqual(["23:00", "00:00\n11-21"]);
  });
});

it.each([
  [5 * MINUTE, 1000],
  [15 * MINUTE, 5000],
  [HOUR, 10_000],
  [DAY, 300_000],
  [7 * DAY, 1_800_000],
  [400 * DAY, 172_800_000],
  [3000, 10],
])("a span of %s ms gets steps of %s ms: at most 360 points", (span, step) => {
  expect(stepFor(span, 360)).toBe(step);
  expect(span / step).toBeLessThanOrEqual(360);
});
