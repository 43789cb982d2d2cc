import { expect, it } from "vitest";
import { sparkEnd, sparkKey, sparksOf } from "./sparks";

it("ends sparklines now, or at the newest sample of a recording", () => {
  const now = 1_800_000_000_000;
  expect(sparkEnd([now - 1000, null], now)).toBe(now);
  expect(sparkEnd([], now)).toBe(now);
  expect(sparkEnd([1000, 5000], now)).toBe(20_000);
});

it("finds the series of a GPU and metric", () => {
  const answer = { times: [0], step_ms: 15_000, series: [{ metric: "power_w", aggregate: "mean", group: "a", gpu: "a", labels: { gpu: "a" }, hostname: "n", unit: "W", values: [1] }] };
  expect(sparksOf(answer).get(sparkKey("a", "power_w"))).toEqual({ times: [0], stepMs: 15_000, values: [1] });
  expect(sparksOf(undefined).size).toBe(0);
});
