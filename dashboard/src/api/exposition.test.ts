import { expect, it } from "vitest";
import { bucketsOf, parseFigures, quantileBetween, total } from "./exposition";

const TEXT = `# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{route="/a,b",status="200"} 3
requests_total{route="/c",status="404"} 1.5e1
up 1
took_bucket{route="/a",le="0.1"} 2
took_bucket{route="/a",le="1"} 4
took_bucket{route="/a",le="+Inf"} 4
took_bucket{route="/c",le="0.1"} 1
took_bucket{route="/c",le="1"} 1
took_bucket{route="/c",le="+Inf"} 2
no figure at all {
`;

it("figures are read with their labels and summed over them", () => {
  const figures = parseFigures(TEXT);
  expect(figures.get("up")).toEqual([{ labels: "", value: 1 }]);
  expect([total(figures, "requests_total"), total(figures, "other")]).toEqual([18, null]);
  expect(bucketsOf(figures, "took")).toEqual([
    [0.1, 3],
    [1, 5],
    [Infinity, 6],
  ]);
});

it("a quantile is that of what came between two readings", () => {
  const reading = (counts: readonly number[]) => parseFigures(["0.1", "1", "+Inf"].map((le, n) => `took_bucket{le="${le}"} ${counts[n] ?? 0}`).join("\n"));
  const before = reading([100, 100, 100]);
  const quantile = (counts: readonly number[], share: number) => quantileBetween(before, reading(counts), "took", share);
  // Ten more, all between 0.1 and 1.
  expect(quantile([100, 110, 110], 0.5)).toBeCloseTo(0.55);
  expect(quantile([105, 110, 110], 0.5)).toBeCloseTo(0.1);
  // Beyond the last bound: at least that.
  expect(quantile([100, 100, 101], 0.99)).toBe(1);
  expect(quantile([100, 100, 100], 0.5)).toBeNull();
  expect(quantile([5, 5, 5], 0.5)).toBeNull();
  expect(quantileBetween(new Map(), new Map(), "took", 0.5)).toBeNull();
});
