import { describe, expect, it } from "vitest";
import { metric } from "../testing/mockApi";
import type { Frame } from "./frame";
import { codeChanges, eventsNear, MARKS_HEIGHT, NO_MARKS, paintMarks, placedIncidents, reasonsOf, throttledMs, throttleSpans, throttleWords } from "./marks";

const of = (column: string, instrument: string, reason?: string, series = "standard") => {
  const row = metric(column, "", "throttle", instrument);
  return { ...row, series, prometheus: { ...row.prometheus, labels: reason === undefined ? {} : { reason } } };
};
const FLAG = of("held", "state");
const CAP = of("held_by_cap", "state", "sw_power_cap");
const HEAT = of("heat_ns", "counter", "thermal");
const N = null;

function frame(values: Record<string, readonly (number | null)[]>): Frame {
  const length = Object.values(values)[0]?.length ?? 0;
  return { stepMs: 10, times: Array.from({ length }, (_, place) => 1000 + place * 10), values: new Map(Object.entries(values)) };
}

const spansOf = (values: Record<string, readonly (number | null)[]>, rows = [FLAG, CAP, HEAT]) =>
  throttleSpans(frame(values), rows).map(({ start, end, reasons }) => [(start - 1000) / 10, (end - 1000) / 10, reasons.join("+")]);

describe("throttleSpans", () => {
  it.each([
    ["a state while it is not 0", { held: [0, 1, 1, 0, 1] }, [[1, 3, ""], [4, 5, ""]]],
    ["a share of a step", { held: [0, 0.01, 0] }, [[1, 2, ""]]],
    ["nothing where all is 0", { held: [0, 0], heat_ns: [5, 5] }, []],
    ["a counter where it grew, not where it began anew", { heat_ns: [7, 9, 9, 2, 3] }, [[1, 2, "Thermal"], [4, 5, "Thermal"]]],
    ["a new span where the reasons change", { held: [1, 1, 1, 0], held_by_cap: [0, 1, 0, 0], heat_ns: [0, 0, 4, 4] }, [[0, 1, ""], [1, 2, "SW power cap"], [2, 3, "Thermal"]]],
    ["nothing over a gap", { held: [1, 1, 1, 1, N, N, N, 1] }, [[0, 4, ""], [7, 8, ""]]],
    ["nothing of a counter over a gap", { heat_ns: [1, 2, 3, 4, N, N, N, 9, 9] }, [[1, 4, "Thermal"]]],
    ["steps that a slow source leaves out", { held: [1, N, 1, N, 1, N, 0], heat_ns: [0, N, 0, N, 3, N, 3] }, [[0, 3, ""], [3, 5, "Thermal"], [5, 6, ""]]],
  ])("finds %s", (_name, values, spans) => {
    expect(spansOf(values)).toEqual(spans);
  });

  it("knows metrics by the catalogue alone", () => {
    const values = { a: [0, 1, 2], b: [1, 1, 1] };
    expect(spansOf(values, [of("a", "counter", "low_utilization", "all"), of("a", "counter"), of("a", "gauge", "heat")])).toEqual([]);
    expect(spansOf(values, [{ ...of("b", "state"), group: "power" }, { ...of("b", "state"), bits: [{ bit: 1, name: "heat" }] }])).toEqual([]);
    expect(spansOf(values, [of("a", "counter", "anything")])).toEqual([[1, 3, "Anything"]]);
  });
});

it.each([
  ["quiet", ["power", "sw_power_cap", "ppt"]],
  ["loud", ["power", "hw_thermal"]],
  ["loud", ["hw_power_brake"]],
  ["loud", ["prochot"]],
  ["plain", ["power", "sync_boost"]],
  ["plain", []],
] as const)("is %s for the reasons %s", (weight, reasons) => {
  const rows = [FLAG, ...reasons.map((reason) => of(reason, "state", reason))];
  const values = Object.fromEntries(rows.map((row) => [row.column, [1]]));
  expect(throttleSpans(frame(values), rows).map((span) => span.weight)).toEqual([weight]);
});

describe("codeChanges", () => {
  const state = metric("performance_state", "", "clock", "state");
  const mask = { ...metric("reasons", "", "throttle", "state"), bits: [{ bit: 2, name: "power cap" }] };
  const textsOf = (values: Record<string, readonly (number | null)[]>, spans: Parameters<typeof codeChanges>[2] = []) =>
    codeChanges(frame(values), [state, mask, FLAG, HEAT], spans).map(({ at, text }) => [at, text]);
  it("are where a code became another one, also over a gap; the first one is no change", () => {
    expect(textsOf({ performance_state: [0, 0, N, 8], reasons: [4, 0, 0, 0] })).toEqual([
      [1010, "Reasons: power cap → none"],
      [1030, "Performance state: 0 → 8"],
    ]);
  });
  it("leave out what the band says", () => {
    const named = [{ start: 0, end: 1, reasons: ["Power"], weight: "quiet" }] as const;
    expect(textsOf({ reasons: [4, 0], held: [0, 1], heat_ns: [1, 2] }, named)).toEqual([]);
  });
});

const SPANS = [
  { start: 1000, end: 1020, reasons: [], weight: "plain" },
  { start: 1040, end: 1050, reasons: ["HW thermal", "Power"], weight: "loud" },
] as const;

it("says the spans in words and adds them up", () => {
  expect([1000, 1020, 1045].map((at) => throttleWords(SPANS, at))).toEqual(["throttled", "", "throttled: HW thermal, Power"]);
  expect(throttledMs(SPANS)).toBe(30);
  expect(reasonsOf(SPANS)).toEqual(["HW thermal", "Power"]);
});

it("finds the events near an instant", () => {
  const events = [100, 200].map((at) => ({ at, severity: null, text: String(at) }));
  expect(eventsNear(events, 110, 10)).toEqual([events[0]]);
  expect(eventsNear(events, 150, 49)).toEqual([]);
});

describe("paintMarks", () => {
  /** A plot of 1000 to 1100 ms on 100 to 300 px, which remembers what is filled. */
  const paint = (part: Partial<typeof NO_MARKS>) => {
    const drawn: unknown[] = [];
    let corners: number[][] = [];
    const ctx = {
      fillStyle: "",
      beginPath: () => (corners = []),
      moveTo: (...corner: number[]) => corners.push(corner),
      lineTo: (...corner: number[]) => corners.push(corner),
      fillRect: (...box: number[]) => drawn.push([ctx.fillStyle, ...box]),
      fill: () => drawn.push([ctx.fillStyle, ...corners]),
      ...Object.fromEntries(["save", "restore", "setLineDash", "closePath", "stroke"].map((name) => [name, () => undefined])),
    };
    const surface = { ctx: ctx as unknown as CanvasRenderingContext2D, bbox: { left: 100, top: MARKS_HEIGHT, width: 200 }, valToPos: (at: number) => 100 + (at - 1000) * 2 };
    paintMarks(surface, { ...NO_MARKS, ...part }, 1, (name) => name);
    return drawn;
  };

  it("draws spans above the lines, as far as the range goes, and wide enough to be seen", () => {
    const spans = [[0, 900], [900, 1010], [1040, 1050], [1060, 1060.01], [1090, 2000], [2000, 2010]].map(([start = 0, end = 0]) => ({ start, end, reasons: [], weight: "plain" as const }));
    expect(paint({ spans })).toEqual([
      ["--throttle", 100, 13, 20, 4],
      ["--throttle", 180, 13, 20, 4],
      ["--throttle", 220, 13, 2, 4],
      ["--throttle", 280, 13, 20, 4],
    ]);
  });

  it("draws heat in the colour of an alarm and the power limit thin, and a change of a code as a tick", () => {
    const spans = [
      { start: 1000, end: 1010, reasons: ["Power"], weight: "quiet" },
      { start: 1020, end: 1030, reasons: ["HW thermal"], weight: "loud" },
    ] as const;
    const changes = [1050, 2000].map((at) => ({ at, severity: null, text: "" }));
    expect(paint({ spans, changes })).toEqual([
      ["--calm", 100, 15, 20, 2],
      ["--bad", 140, 13, 20, 4],
      ["--muted", 200, 7, 1, 5],
    ]);
  });

  it("draws events of the range as triangles above the band, the critical ones large and above the others, the mild ones hollow", () => {
    const events = [["critical", 1010], ["notice", 1020], ["of a newer server", 1020], [null, 999]].map(([severity, at]) => ({ severity: severity as string | null, at: at as number, text: "" }));
    expect(paint({ events })).toEqual([
      ["--card", [136.5, 5], [143.5, 5], [140, 12]],
      ["--card", [136.5, 5], [143.5, 5], [140, 12]],
      ["--bad", [115, 2], [125, 2], [120, 12]],
    ]);
  });

  it("draws an incident of the range as a diamond, behind the triangle of what caused it", () => {
    const incidents = [1010, 2000].map((at) => ({ at, severity: null, text: "", path: "" }));
    const events = [{ at: 1010, severity: "critical", text: "" }];
    expect(paint({ incidents, events })).toEqual([
      ["--accent", [120, 0], [126, 6], [120, 12], [114, 6]],
      ["--bad", [115, 2], [125, 2], [120, 12]],
    ]);
  });
});

it("places the incidents of a span apart, the newest of those that would lie upon each other", () => {
  const incidents = [900, 1000, 1010, 1050, 1100, 1101].map((at) => ({ at, severity: null, text: String(at), path: `/${at}` }));
  const placed = placedIncidents(incidents, 1000, 1100);
  expect(placed.map(({ incident, share }) => [incident.text, share])).toEqual([["1100", 1], ["1050", 0.5], ["1010", 0.1], ["1000", 0]]);
  expect(placedIncidents(incidents, 0, 4000).map(({ incident }) => incident.text)).toEqual(["1101", "900"]);
});
