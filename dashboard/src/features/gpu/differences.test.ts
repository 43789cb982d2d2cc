import { describe, expect, it } from "vitest";
import { distanceOf, differencesCsv, differencesOf, furthest } from "./differences";
import type { CatalogueRow } from "../../charts/panels";

const row = (column: string, unit = "W"): CatalogueRow => ({ column, unit, group: "power", instrument: "gauge", help: "", bits: [], series: "basic", prometheus: { labels: {} } });
const ROWS = [row("power_w"), row("utilization_pct", "%"), row("sm_active_ratio", ""), row("gpu_clock_mhz", "MHz"), row("xid_count", ""), row("only_one", "")];
const sums = (values: Readonly<Record<string, readonly (number | null)[]>>) => Object.entries(values).flatMap(([metric, of]) => of.map((value, place) => ({ metric, gpu: ["a", "b", "c"][place] ?? "", value })));

describe("where GPUs differ", () => {
  it.each([
    ["a value: as a share of the median", "power_w", "W", 385, 500, -0.23],
    ["a share: in its own points", "utilization_pct", "%", 40, 90, -0.5],
    ["a ratio as well", "sm_active_ratio", "", 0.02, 0.01, 0.01],
    ["where the others have none: all of it", "xid_count", "", 3, 0, 1],
    ["where nobody has any: nothing", "xid_count", "", 0, 0, 0],
  ])("%s", (_name, column, unit, value, median, distance) => expect(distanceOf(value, median, row(column, unit))).toBeCloseTo(distance, 9));

  it("what differs much stands first, in the catalogue's order; what was read of one GPU is not compared", () => {
    const { differing, alike } = differencesOf(ROWS, sums({ power_w: [500, 440, 500], utilization_pct: [90, 91, 92], sm_active_ratio: [0.5, 0.5, 0.9], gpu_clock_mhz: [1980, 1530, null], xid_count: [0, 0, 3], only_one: [null, 7, null] }));
    expect(differing.map(({ row: { column }, median }) => [column, median])).toEqual([["sm_active_ratio", 0.5], ["xid_count", 0], ["power_w", 500], ["gpu_clock_mhz", 1755]]);
    expect(alike.map(({ column }) => column)).toEqual(["utilization_pct"]);
  });

  it("of many the furthest are drawn, in their order", () => {
    const { differing } = differencesOf(ROWS, sums({ power_w: [100, 500, 480] }));
    expect([furthest(["a", "b", "c"], differing, 1), furthest(["a", "b", "c"], differing, 3), furthest(["a", "b", "c"], [], 2)]).toEqual([["a"], ["a", "b", "c"], ["a", "b"]]);
  });

  it("as a file they have a column for each GPU", () => {
    const { differing } = differencesOf(ROWS, sums({ power_w: [500, 440, 500], xid_count: [0, null, 3] }));
    const names = ["a", "b", "c"].map((id) => ({ id, name: `node-1 / GPU ${id}` }));
    expect(differencesCsv(differing, names)).toBe("metric,unit,median,node-1 / GPU a,node-1 / GPU b,node-1 / GPU c\r\nxid_count,,1.5,0,,3\r\npower_w,W,500,500,440,500\r\n");
  });
});
