import { describe, expect, it } from "vitest";
import { bandPath, sparkPath, sparkRange } from "./spark";

describe("sparkPath", () => {
  it.each([
    ["a line", [0, 100], "M0.0 19.0h0.01L64.0 1.0"],
    ["a gap lifts the pen", [0, null, 100], "M0.0 19.0h0.01M64.0 1.0h0.01"],
    ["a bridged bucket does not", [0, undefined, 100], "M0.0 19.0h0.01L64.0 1.0"],
    ["what is out of range stays in the box", [-50, 150], "M0.0 19.0h0.01L64.0 1.0"],
    ["nothing", [], ""],
    ["only gaps", [null, null], ""],
  ])("%s", (_name, values, expected) => {
    expect(sparkPath(values, 64, 20, [0, 100])).toBe(expected);
  });
});

it.each([
  [[1, 2], [0, 100], [0, 100]],
  [[], null, [0, 1]],
  [[100, 300], null, [100, 300]],
  [[200, 201], null, [189.95, 211.05]],
] as const)("the range of %o with %o", (values, fixed, expected) => {
  const [low, high] = sparkRange(values, fixed);
  expect(low).toBeCloseTo(expected[0], 1);
  expect(high).toBeCloseTo(expected[1], 0);
});

it("shades between two courses where both are known", () => {
  expect(bandPath([0, 0, null, 50], [100, 50, 100, 100], 60, 20, [0, 100])).toBe("M0.0 1.0L20.0 10.0L20.0 19.0L0.0 19.0Z");
  expect(bandPath([], [], 60, 20, [0, 100])).toBe("");
});
