import { describe, expect, it } from "vitest";
import { metric } from "../testing/mockApi";
import type { Frame } from "./frame";
import { movementOf } from "./still";

const N = null;
const ROWS = [
  metric("power_w", "W", "power"),
  { ...metric("power_limit_w", "W", "power"), prometheus: { ...metric("x", "", "").prometheus, labels: { limit: "set" } } },
  metric("replays", "", "pcie", "counter"),
  metric("width", "", "pcie"),
];

function frame(values: Record<string, readonly (number | null)[]>): Frame {
  const length = Object.values(values)[0]?.length ?? 0;
  return { stepMs: 10, times: Array.from({ length }, (_, place) => place * 10), values: new Map(Object.entries(values)) };
}

const sorted = (frames: readonly Frame[], evidence: readonly string[] = []) => {
  const { moved, still, unread } = movementOf(ROWS, frames, new Set(evidence));
  return [moved.map((row) => row.column).join(" "), still.map(({ row, value }) => `${row.column}=${value}`).join(" "), unread.map((row) => row.column).join(" ")];
};

describe("movementOf", () => {
  it.each([
    ["what moved, with the limits beside it", { power_w: [1, 2], power_limit_w: [N, 7], replays: [3, 3] }, [], ["power_w power_limit_w", "replays=3", "width"]],
    ["a limit alone as still", { power_w: [5, N], power_limit_w: [7, 7], width: [16, 16] }, [], ["", "power_w=5 power_limit_w=7 width=16", "replays"]],
    ["what shows something wrong as moved, where it was read", { power_w: [5, 5], width: [N, N] }, ["power_w", "width"], ["power_w", "", "power_limit_w replays width"]],
    ["all that was read in a single step as moved", { power_w: [5], width: [16] }, [], ["power_w width", "", "power_limit_w replays"]],
  ])("takes %s", (_name, values, evidence, expected) => {
    expect(sorted([frame(values)], evidence)).toEqual(expected);
  });

  it("sees what moved within a step", () => {
    expect(sorted([frame({ power_w: [5, 5] }), frame({ power_w: [5, 9] })])[0]).toBe("power_w");
  });
});
