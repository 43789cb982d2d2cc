import { describe, expect, it } from "vitest";
import type { FleetGpu } from "../../api/fleet";
import { together } from "../../api/fleet";
import { NOT_READ, OLD, STEPS } from "../../charts/looks";
import { byJudgement, byValue, summaryOf, type MeasuredRow, type ValuesAsk } from "./colouring";

const one = (part: Partial<FleetGpu> = {}): FleetGpu => ({ id: "a", name: "n / GPU 0", host: "n", index: 0, verdict: { word: "active", why: null }, group: "n", value: null, lastSeen: 0, ...part });
const row = (part: Partial<MeasuredRow> = {}): MeasuredRow => ({ column: "power_w", unit: "W", group: "power", instrument: "gauge", help: "", bits: [], series: "basic", prometheus: { labels: {} }, min: 0, max: 10_000, ...part });

const ASK: ValuesAsk = { theme: "dark", scale: null, before: null };

describe("what colours say", () => {
  it("by judgement: what fails has a frame, the silent one a hole, and all are counted, the worst first", () => {
    const gpus = [one(), one({ verdict: { word: "unhealthy", why: null } }), one({ verdict: { word: "stale", why: null }, index: 3 })];
    const colouring = byJudgement(gpus);
    const { painting, legend, text, short } = colouring;
    expect([...painting.lookOf].map((look) => painting.looks[look]?.shape)).toEqual(["full", "framed", "holed"]);
    expect(legend.map(({ name, count }) => [name, count])).toEqual([["critical", 0], ["lost", 0], ["unhealthy", 1], ["warning", 0], ["stale", 1], ["active", 1], ["idle", 0]]);
    expect([text(2), short(2)]).toEqual(["stale", "3"]);
    expect(summaryOf(gpus, colouring, null)).toBe("1 unhealthy, 1 stale, 1 active");
  });

  it("by value: what was not read is neither 0 nor counted among the values", () => {
    const gpus = [one({ value: 0 }), one({ value: 702, name: "n / GPU 1" }), one({ value: null })];
    const colouring = byValue(gpus, row(), ASK);
    expect(colouring.painting.lookOf[2]).toBe(NOT_READ);
    expect(colouring.domain).toEqual({ low: 0, high: 800, unit: "W" });
    expect(colouring.legend.map(({ name, count }) => [name, count])).toEqual([["not read", 1]]);
    expect([0, 1, 2].map(colouring.text)).toEqual(["0 W", "702 W", "–"]);
    expect(summaryOf(gpus, colouring, row())).toBe("Power from 0 W (n / GPU 0) to 702 W (n / GPU 1), median 702 W, not read of 1");
    const none = [one()];
    expect(byValue(none, row(), ASK).domain).toBeNull();
    expect(summaryOf(none, byValue(none, row(), ASK), row())).toBe("Power: not read of any GPU");
  });

  it("by value towards the limit of each part, which may differ", () => {
    const gpus = [one({ id: "a", value: 85 }), one({ id: "b", value: 101 }), one({ id: "c", value: 20 }), one({ id: "d", value: 300 })];
    const heat = row({ column: "temperature_c", unit: "°C" });
    const wholes = new Map([["a", 89], ["b", 106], ["c", 89]]);
    const colouring = byValue(gpus, heat, { ...ASK, scale: { low: 20, wholes } });
    const [a, b, c, d] = colouring.painting.lookOf;
    expect([colouring.domain, colouring.top, a === b, c, d]).toEqual([{ low: 20, high: 106, unit: "°C" }, "its limit", true, 0, STEPS - 1]);
    expect([0, 1].map(colouring.text)).toEqual(["85 °C", "101 °C"]);
    expect(byValue(gpus, heat, { ...ASK, scale: { low: 20, wholes: new Map([["a", 89]]) } }).top).toBeNull();
    // Without any limit they fit the values.
    expect(byValue(gpus, heat, { ...ASK, scale: { low: 20, wholes: new Map() } }).domain).toEqual({ low: 0, high: 300, unit: "°C" });
  });

  it("by the change since an hour ago: to both sides alike, and nothing where either is not known", () => {
    const gpus = [one({ id: "a", value: 500 }), one({ id: "b", value: 100 }), one({ id: "c", value: 50 }), one({ id: "d", value: null })];
    const colouring = byValue(gpus, row(), { ...ASK, before: new Map([["a", 480], ["b", 300], ["d", 7]]) });
    expect([colouring.domain, [0, 1, 2].map(colouring.text), [0, 1].map(colouring.short)]).toEqual([{ low: -200, high: 200, unit: "W" }, ["500 W, +20 W in an hour", "100 W, -200 W in an hour", "50 W"], ["+20", "-200"]]);
    expect([...colouring.painting.lookOf]).toEqual([17, 0, NOT_READ, NOT_READ]);
    expect(colouring.legend.map(({ name, count }) => [name, count])).toEqual([["not known", 2]]);
    expect(byValue(gpus, row(), { ...ASK, before: new Map() }).domain).toBeNull();
  });

  it("that a value is old, beside GPUs that report: it has no part in the scale", () => {
    const gpus = [one({ id: "a", value: 100 }), one({ id: "b", value: 900, verdict: { word: "stale", why: null } })];
    const colouring = byValue(gpus, row(), ASK);
    expect([colouring.painting.lookOf[1], colouring.domain?.high]).toEqual([OLD, 101]);
    expect(colouring.legend.map(({ name, count }) => [name, count])).toEqual([["not read", 0], ["old", 1]]);
    // Of a recording all are.
    expect(byValue(gpus.slice(1), row(), ASK).painting.lookOf[0]).not.toBe(OLD);
  });

  it("by mask: how many bits are set, which ones in words", () => {
    const mask = row({ column: "throttle_reasons", unit: "", bits: [{ bit: 2, name: "power cap" }, { bit: 5, name: "heat" }] });
    const colouring = byValue([one({ value: 0 }), one({ value: 36 })], mask, ASK);
    expect(colouring.domain).toEqual({ low: 0, high: 2, unit: "" });
    expect([0, 1].map(colouring.text)).toEqual(["none", "power cap, heat"]);
    expect(colouring.short(1)).toBe("2");
  });
});

it("puts groups together by name, numbers in words as numbers, those without one last", () => {
  const gpus = ["j-10", null, "j-9", "j-10", null].map((group, n) => one({ id: String(n), group }));
  expect(together(gpus).map(({ id }) => id)).toEqual(["2", "0", "3", "1", "4"]);
});
