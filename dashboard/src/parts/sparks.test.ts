import { expect, it } from "vitest";
import type { QueryAnswer } from "../api/client";
import { appended, askedFrom, sparkEnd, sparkKey, sparksOf } from "./sparks";

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

function answer(times: readonly number[], values: Readonly<Record<string, readonly (number | null)[]>>): QueryAnswer {
  const series = Object.entries(values).map(([gpu, of]) => ({ metric: "power_w", aggregate: "mean", group: gpu, gpu, labels: { gpu }, hostname: "n", unit: "W", values: [...of] }));
  return { times: times.map((time) => time * 15_000), step_ms: 15_000, series };
}

const SPAN = { start: 15_000, end: 310_000 };
const steps = (count: number) => Array.from({ length: count }, (_, step) => step + 1);

it.each([
  ["nothing is held", undefined, 15_000],
  ["the newest value is two steps old", answer(steps(20), { a: [...steps(19), null], b: [1] }), 285_000 - 120_000],
  ["what is held is short", answer([1, 2, 3, 4], { a: [1, 2, 3, null] }), 15_000],
  ["no value is held", answer([1, 2], { a: [null, null] }), 15_000],
  ["what is held is older than the span", answer([0, 1], { a: [1, 2] }), 15_000],
  ["not all could be read", { ...answer([1, 2, 3], { a: [1, 2, 3] }), partial: ["a host"] }, 15_000],
  ["the steps are wider than was asked", { ...answer([1, 2, 3], { a: [1, 2, 3] }), step_ms: 60_000 }, 15_000],
])("says from where on is asked where %s", (_case, held, from) => expect(askedFrom(held, SPAN)).toBe(from));

it("puts new points in the place of the end, also of GPUs that come and go", () => {
  const held = answer([0, 1, 2, 3], { a: [0, 1, 2, 3], gone: [0, 1, 2, null] });
  const fresh = answer([3, 4], { a: [30, 40], come: [null, 4] });
  const whole = appended(held, fresh, SPAN);
  expect(whole.times).toEqual([15_000, 30_000, 45_000, 60_000]);
  expect(whole.series.map(({ gpu, values }) => [gpu, values])).toEqual([
    ["a", [1, 2, 30, 40]],
    ["gone", [1, 2, null, null]],
    ["come", [null, null, null, 4]],
  ]);
});
