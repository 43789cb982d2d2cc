import { expect, it } from "vitest";
import { shareOf } from "../../shared/format";
import { gpu } from "../../testing/mockApi";
import { rowOf } from "./row";

it("makes a row without inventing values", () => {
  const row = rowOf(gpu({ metrics: { power_w: 0 }, memory_mb: null, last_seen: null }), new Map());
  expect(row).toMatchObject({ power: 0, utilization: null, temperature: null, memoryTotal: null, lastSeen: null });
  expect(shareOf(null, 5)).toBeNull();
  expect(shareOf(5, 0)).toBeNull();
  expect(shareOf(5, 10)).toBe(0.5);
});
