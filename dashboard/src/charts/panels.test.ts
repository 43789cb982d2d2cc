import { describe, expect, it } from "vitest";
import { evidenceFirst, groupTitle, isEvidence, LINES_MAX, panelsOf, rowsOf, type CatalogueRow } from "./panels";

const row = (column: string, unit: string, group: string, instrument = "gauge"): CatalogueRow => ({ column, unit, group, instrument, help: "", bits: [], series: "basic", prometheus: { labels: {} } });
const CATALOGUE = [
  row("gpu_clock_mhz", "MHz", "clock"),
  row("power_w", "W", "power"),
  row("power_limit_w", "W", "power", "info"),
  row("energy_mj", "mJ", "power", "counter"),
  row("utilization_pct", "%", "utilization"),
  row("memory_utilization_pct", "%", "utilization"),
];

describe("rowsOf", () => {
  it("takes the columns a GPU has, headline groups first, unknown columns last", () => {
    const columns = rowsOf(CATALOGUE, ["gpu_clock_mhz", "zeta", "power_w", "utilization_pct", "alpha"]).map((each) => each.column);
    expect(columns).toEqual(["utilization_pct", "power_w", "gpu_clock_mhz", "alpha", "zeta"]);
  });
});

describe("groups", () => {
  it("have headings that say what is in them", () => {
    expect(groupTitle("board")).toBe("Fans and voltages");
    expect(groupTitle("driver")).toBe("Driver and modes");
  });
});

describe("panelsOf", () => {
  const titles = (rows: readonly CatalogueRow[]) => panelsOf(rows).map((panel) => `${panel.title}: ${panel.columns.join(" ")}`);
  it("draws a chart for each group and unit, counters apart, constants not at all", () => {
    expect(titles(CATALOGUE)).toEqual([
      "Utilization: utilization_pct memory_utilization_pct",
      "Power: power_w",
      "Energy: energy_mj",
      "Clocks: gpu_clock_mhz",
    ]);
  });
  it("names a group's charts by their units where each has several lines", () => {
    const rows = [row("a_w", "W", "power"), row("b_w", "W", "power"), row("a_j", "J", "power", "counter"), row("b_j", "J", "power", "counter")];
    expect(titles(rows)).toEqual(["Power and energy · W: a_w b_w", "Power and energy · J total: a_j b_j"]);
  });
  it("splits a group with more lines than can be told apart", () => {
    const many = Array.from({ length: LINES_MAX + 1 }, (_, n) => row(`link_${n}`, "B/s", "interconnect"));
    const panels = panelsOf(many);
    expect(panels.map((panel) => panel.columns.length)).toEqual([LINES_MAX, 1]);
    expect(new Set(panels.map((panel) => panel.id)).size).toBe(2);
  });
  it("draws no columns that the catalogue does not know: the server makes no series of them", () => {
    expect(panelsOf(rowsOf([], ["mystery"]))).toEqual([]);
  });
  it("draws groups it has never heard of", () => {
    expect(titles([row("flux", "", "optical_flow")])).toEqual(["Optical flow: flux"]);
  });
});

it("puts the charts that show what is wrong first, the others stay in their order", () => {
  const panels = panelsOf(CATALOGUE);
  const ordered = evidenceFirst(panels, new Set(["gpu_clock_mhz", "nowhere"]));
  expect(ordered.map((panel) => panel.id)).toEqual(["clock-MHz-0", ...panels.map((panel) => panel.id).filter((id) => id !== "clock-MHz-0")]);
  expect(ordered.map((panel) => isEvidence(panel, new Set(["gpu_clock_mhz"])))).toEqual(ordered.map((_, place) => place === 0));
  expect(evidenceFirst(panels, new Set())).toEqual(panels);
});
