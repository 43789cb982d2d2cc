import { describe, expect, it } from "vitest";
import { DAY, HOUR, MINUTE } from "../shared/time";
import { canBeLive, defaultRange, isRecorded, POINTS_MAX, PRESETS, spanOf, stepOf } from "./range";

describe("which time is looked at", () => {
  const now = 1_800_000_000_000;
  it("looks at a recording's own time", () => {
    expect(isRecorded(now - 11 * MINUTE, now)).toBe(true);
    expect(isRecorded(now - 9 * MINUTE, now)).toBe(false);
    expect(isRecorded(null, now)).toBe(false);
  });
  it.each([
    ["a live GPU", false, null, { kind: "preset", preset: "15m" }],
    ["a short recording", true, { start: 0, end: 9000 }, { kind: "all" }],
    ["a long recording", true, { start: 0, end: 2 * DAY }, { kind: "preset", preset: "1h" }],
    ["a recording whose length is not known", true, null, { kind: "preset", preset: "1h" }],
  ] as const)("%s", (_name, recorded, all, expected) => {
    expect(defaultRange(recorded, all)).toEqual(expected);
  });
  it("ends a preset at the anchor and gives a recording air", () => {
    expect(spanOf({ kind: "preset", preset: "1h" }, now, null)).toEqual({ start: now - HOUR, end: now });
    expect(spanOf({ kind: "custom", start: 1, end: 2 }, now, null)).toEqual({ start: 1, end: 2 });
    expect(spanOf({ kind: "all" }, now, { start: 0, end: 0 })).toEqual({ start: -5000, end: 5000 });
    expect(spanOf({ kind: "all" }, now, null)).toEqual({ start: now - HOUR, end: now });
  });
  it("never asks for more points than a chart has room for", () => {
    for (const length of Object.values(PRESETS)) expect(length / stepOf({ start: 0, end: length })).toBeLessThanOrEqual(POINTS_MAX);
  });
  it("is live only where the range ends now", () => {
    expect(canBeLive({ kind: "preset", preset: "5m" })).toBe(true);
    expect(canBeLive({ kind: "all" })).toBe(false);
    expect(canBeLive({ kind: "custom", start: 0, end: 1 })).toBe(false);
  });
});
