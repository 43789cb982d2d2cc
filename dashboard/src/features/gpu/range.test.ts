import { describe, expect, it } from "vitest";
import { DAY, HOUR, MINUTE } from "../../shared/time";
import { canBeLive, DEFAULT, defaultRange, gpuPath, isRecorded, parseGpu, POINTS_MAX, PRESETS, spanOf, stepOf } from "./range";

const NOTHING = DEFAULT;

describe("the GPU page's state in the address", () => {
  it.each([
    ["", NOTHING],
    ["range=1h", { ...NOTHING, range: { kind: "preset", preset: "1h" } }],
    ["range=all&aggregate=p99&live=0&peers=0&why=1", { ...NOTHING, peers: false, why: true, range: { kind: "all" }, aggregate: "p99", live: false }],
    ["range=3y&aggregate=median&live=maybe", NOTHING],
    ["range=toString", NOTHING],
    ["from=2025-07-18T20:00:00.000Z&to=2025-07-18T21:00:00.000Z", { ...NOTHING, range: { kind: "custom", start: 1_752_868_800_000, end: 1_752_872_400_000 } }],
    ["from=2025-07-18T21:00:00Z&to=2025-07-18T20:00:00Z", NOTHING],
    ["from=soon&to=later", NOTHING],
  ] as const)("%s is read", (search, expected) => {
    expect(parseGpu(search)).toEqual(expected);
  });

  it.each([
    [NOTHING],
    [{ ...NOTHING, range: { kind: "preset", preset: "6h" }, aggregate: "max", live: true }],
    [{ ...NOTHING, why: true, peers: false, range: { kind: "all" }, aggregate: "mean", live: false }],
    [{ ...NOTHING, range: { kind: "custom", start: 1_752_868_800_123, end: 1_752_872_400_000 }, aggregate: "last", live: null }],
  ] as const)("%o comes back from its address", (state) => {
    const path = gpuPath("0000:c1:00.0@n/1", state);
    expect(path.startsWith("/gpus/0000%3Ac1%3A00.0%40n%2F1")).toBe(true);
    expect(parseGpu(path.split("?")[1] ?? "")).toEqual(state);
  });
});

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
