import { act, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { SECOND, formatAge, formatClock, formatInstant, formatSpan, formatUptime, parseField, parseInstant, toField, useClock, usePresent } from "./time";
import { hasZones, nextZone, zoneName } from "./zone";

describe("formatSpan", () => {
  it.each([
    [-5, "0 s"],
    [59_999, "59 s"],
    [60_000, "1 min"],
    [3_600_000, "1 h"],
    [47 * 3_600_000, "47 h"],
    [489 * 86_400_000, "489 d"],
  ])("%s ms", (ms, text) => expect(formatSpan(ms)).toBe(text));
});

it("speaks of the present and the past", () => {
  expect(formatAge(1000, 2500)).toBe("just now");
  expect(formatAge(1000, 9000)).toBe("8 s ago");
});

it.each([
  [12, "12 s"],
  [75, "1 min 15 s"],
  [3700, "1 h 1 min"],
  [200_000, "2 d 7 h"],
])("an uptime of %s s is %s", (seconds, text) => expect(formatUptime(seconds)).toBe(text));

it("reads instants and knows when there is none", () => {
  expect(parseInstant("2025-07-18T20:42:34Z")).toBe(1_752_871_354_000);
  expect(parseInstant("yesterday")).toBeNull();
  expect(parseInstant(null)).toBeNull();
  expect(parseInstant("")).toBeNull();
});

describe("where clocks are ahead of UTC", () => {
  const before = process.env.TZ;
  beforeEach(() => {
    process.env.TZ = "Europe/Berlin";
  });
  afterEach(() => {
    process.env.TZ = before;
  });
  const NIGHT = Date.parse("2026-01-01T23:04:05Z");

  it("shows times in that zone and reads fields in it, until UTC is chosen", () => {
    const shown = () => [zoneName(), formatClock(NIGHT), formatInstant(NIGHT, NIGHT - 3_600_000), toField(NIGHT), parseField(toField(NIGHT))];
    const local = ["Europe/Berlin", "00:04:05", "2026-01-02 00:04:05", "2026-01-02T00:04:05", NIGHT];
    expect(shown()).toEqual(local);
    nextZone();
    expect(shown()).toEqual(["UTC", "23:04:05", "23:04:05", "2026-01-01T23:04:05", NIGHT]);
    nextZone();
    expect(shown()).toEqual(local);
  });

  it("shows in UTC also times that the local clock leaves out", () => {
    nextZone();
    const left = Date.parse("2026-03-29T02:30:00Z");
    expect([toField(left), parseField(toField(left))]).toEqual(["2026-03-29T02:30:00", left]);
  });

  it("offers nothing to choose where the zone is UTC", () => {
    expect(hasZones()).toBe(true);
    process.env.TZ = "Etc/UTC";
    expect([hasZones(), zoneName()]).toEqual([false, "UTC"]);
  });
});

afterEach(() => {
  vi.useRealTimers();
});

it("tells everybody the time at the same moment", () => {
  vi.useFakeTimers({ now: 5000 });
  const one = renderHook(() => useClock(SECOND));
  act(() => {
    vi.advanceTimersByTime(400);
  });
  const other = renderHook(() => useClock(SECOND));
  act(() => {
    vi.advanceTimersByTime(600);
  });
  expect([one.result.current, other.result.current]).toEqual([6000, 6000]);
  expect(vi.getTimerCount()).toBe(1);
  one.unmount();
  other.unmount();
  expect(vi.getTimerCount()).toBe(0);
  vi.setSystemTime(6300);
  expect(renderHook(() => useClock(SECOND)).result.current).toBe(6300);
});

it("renders who tells of the present only when that changes, and not where it is unseen", () => {
  vi.useFakeTimers({ now: 130_000 });
  const told = (isSeen: boolean) => {
    let renders = 0;
    const hook = renderHook(() => {
      renders += 1;
      return usePresent((now) => formatAge(0, now), isSeen);
    });
    return { says: () => hook.result.current, renders: () => renders, end: hook.unmount };
  };
  const [seen, unseen] = [told(true), told(false)];
  const pass = (ms: number) => act(() => void vi.advanceTimersByTime(ms));
  pass(49_000);
  expect([seen.says(), seen.renders()]).toEqual(["2 min ago", 1]);
  pass(2000);
  expect([seen.says(), seen.renders()]).toEqual(["3 min ago", 2]);
  expect([unseen.says(), unseen.renders()]).toEqual(["2 min ago", 1]);
  seen.end();
  unseen.end();
});

it("keeps the clocks of a hidden page still, and puts them right when it is seen again", () => {
  vi.useFakeTimers({ now: 5000 });
  const hidden = vi.spyOn(document, "hidden", "get").mockReturnValue(true);
  const clock = renderHook(() => useClock(SECOND));
  act(() => void vi.advanceTimersByTime(10_000));
  expect(clock.result.current).toBe(5000);
  hidden.mockReturnValue(false);
  act(() => void document.dispatchEvent(new Event("visibilitychange")));
  expect(clock.result.current).toBe(15_000);
  hidden.mockRestore();
});
