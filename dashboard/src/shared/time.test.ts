import { describe, expect, it } from "vitest";
import { formatAge, formatSpan, formatUptime, parseInstant, toLocalField } from "./time";

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

it("writes the field of a form in local time", () => {
  const instant = new Date(2026, 0, 2, 3, 4, 5).getTime();
  expect(toLocalField(instant)).toBe("2026-01-02T03:04:05");
});
