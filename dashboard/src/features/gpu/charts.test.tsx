import { act, cleanup, screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { FakeEventSource } from "../../testing/FakeEventSource";
import { FakeIntersectionObserver } from "../../testing/FakeIntersectionObserver";
import { FakePlot } from "../../testing/FakePlot";
import { gpu, metric, mockApi, ok, type Handler } from "../../testing/mockApi";
import { renderAt } from "../../testing/render";

const ID = gpu().id;
const PATH = `/api/v1/gpus/${ID}`;
const LABELS = { source: "csv", pod: null };
const NOW = () => new Date().toISOString();
const chart = (panel: string) => document.querySelector(`[data-panel="${panel}"]`);

it("draws a line of what moved with its limits, and folds what did not into a line with its value", async () => {
  const at = NOW();
  const limit = { ...metric("power_limit_w", "W", "power"), prometheus: { ...metric("x", "", "").prometheus, labels: { limit: "set" } } };
  const latest = Object.fromEntries(["power_w", "power_limit_w", "width", "replays", "fan"].map((column) => [column, { value: 1, timestamp: at }]));
  const values: Record<string, (number | null)[]> = { power_w: [500, null, 510], power_limit_w: [700, null, null], width: [16, 16, null], replays: [3, null, 3], fan: [null, null, null] };
  mockApi({
    [PATH]: ok({ gpu: gpu(), latest, labels: LABELS, first_seen: at }),
    "/api/v1/metrics": ok({ metrics: [metric("power_w", "W", "power"), limit, metric("width", "", "pcie"), metric("replays", "", "pcie", "counter"), metric("fan", "%", "board")] }),
    "/api/v1/query": (params) => ok({ times: [0, 5000, 10_000], series: (params.get("metrics") ?? "").split(",").map((metric) => ({ metric, gpu: ID, values: values[metric] ?? [] })), step_ms: 5000 }),
  });
  renderAt(`/gpus/${ID}?from=1970-01-01T00:00:00Z&to=1970-01-01T00:00:15Z`);
  await waitFor(() => expect(chart("power-W-0")).toBeTruthy());
  expect(document.querySelectorAll("[data-panel]")).toHaveLength(1);
  const folded = screen.getAllByTestId("folded");
  expect(folded.map((line) => line.textContent)).toEqual(["Did not move in this range (2): Width 16 · Replays 3", "Not read in this range (1): Fan"]);
  await userEvent.click(folded[0] as HTMLElement);
  expect(folded[0]?.getAttribute("aria-expanded")).toBe("true");
  // A limit that is not read in a step is still the limit.
  const plot = FakePlot.made.find((made) => made.destroyed === 0);
  act(() => plot?.options.hooks?.setCursor?.[0]?.({ cursor: { idx: 1 } } as never));
  expect(chart("power-W-0")?.textContent).toContain("Power–Power limit700 W");
});

describe("the energy of the range", () => {
  const ENERGY = "/api/v1/analysis/energy";
  const answer = (energy_kwh: number | null, counted_kwh: number | null, headers = {}): Handler => {
    const group = { group: ID, energy_kwh, counted_kwh, source: null, gpu_hours: 1, busy_gpu_hours: 1, throttled_gpu_hours: 0, gpus: 1 };
    return { body: { groups: [group], whole: group, start: "", end: "", total: 1, pagination: { limit: 1, offset: 0, has_next: false } }, headers };
  };
  const show = (column: string, energy: Handler, search = "?from=2026-11-20T10:00:00Z&to=2026-11-20T11:00:00Z", seen = NOW()) => {
    const mock = mockApi({
      [PATH]: ok({ gpu: gpu({ last_seen: seen }), latest: { [column]: { value: 9e9, timestamp: seen } }, labels: LABELS, first_seen: "2026-11-01T00:00:00Z" }),
      "/api/v1/metrics": ok({ metrics: [metric("energy_mj", "mJ", "power", "counter"), metric("power_w", "W", "power")] }),
      "/api/v1/query": ok({ times: [0], series: [], step_ms: 1 }),
      [ENERGY]: energy,
    });
    renderAt(`/gpus/${ID}${search}`);
    return mock;
  };
  const asked = (mock: ReturnType<typeof show>) => mock.asked.filter(({ path }) => path === ENERGY).map(({ params }) => ["by", "gpus", "start", "end"].map((name) => params.get(name)).join(" "));

  it.each([
    ["of a counter that is believed", "energy_mj", 0.5, 0.5, "0.5 kWh (counters)"],
    ["of one that is not", "energy_mj", 0.5, 0, "0.5 kWh (integrated power)"],
    ["of both", "energy_mj", 0.5, 0.2, "0.5 kWh (40% counters, the rest integrated power)"],
    ["without a counter", "power_w", 0.5, 0, "0.5 kWh (integrated power)"],
  ])("is that of the server's rule, with its source: %s", async (_name, column, kwh, counted, words) => {
    const mock = show(column, answer(kwh, counted));
    expect((await screen.findByTestId("energy")).textContent).toBe(`Energy in this range ${words}`);
    expect(asked(mock)).toEqual([`gpu ${ID} 2026-11-20T10:00:00.000Z 2026-11-20T11:00:00.000Z`]);
    // No second rule: the counter itself is not asked what it grew by.
    expect(mock.asked.some(({ params }) => params.get("aggregate") === "increase")).toBe(false);
  });

  it("ends at the last sample of a recording, and at the instant that is looked at", async () => {
    const recorded = show("power_w", answer(0.5, 0), "?range=1h", "2026-11-19T12:00:00Z");
    await screen.findByTestId("energy");
    expect(asked(recorded)).toEqual([`gpu ${ID} 2026-11-19T11:00:00.000Z 2026-11-19T12:00:00.000Z`]);
    cleanup();
    const past = show("power_w", answer(0.5, 0), "?range=1h&at=2026-11-18T12:00:00Z", "2026-11-18T12:00:00Z");
    await screen.findByTestId("energy");
    expect(asked(past)).toEqual([`gpu ${ID} 2026-11-18T11:00:00.000Z 2026-11-18T12:00:00.000Z`]);
  });

  it("is not shown where it is not known, and says what it lacks", async () => {
    show("power_w", answer(null, null, { "x-partial": "the use of 1 GPU is added up over the collectors" }));
    expect((await screen.findByRole("note", { name: "Incomplete" })).textContent).toContain("the use of 1 GPU is added up");
    expect(screen.queryByTestId("energy")).toBeNull();
  });
});

it("builds no plot before its chart is near the screen, and feeds it nothing while it is away", async () => {
  FakeIntersectionObserver.isSeen = false;
  const latest = Object.fromEntries(["power_w", "utilization_pct"].map((column) => [column, { value: 1, timestamp: NOW() }]));
  const history: Handler = (params) => {
    const end = Math.floor(Date.parse(params.get("end") ?? "") / 5000) * 5000;
    const series = (params.get("metrics") ?? "").split(",").map((name) => ({ metric: name, gpu: ID, values: [500, null, 510] }));
    return ok({ times: [end - 15_000, end - 10_000, end - 5000], series, step_ms: 5000 });
  };
  mockApi({ [PATH]: ok({ gpu: gpu({ last_seen: NOW() }), latest, labels: LABELS, first_seen: NOW() }), "/api/v1/query": history });
  renderAt(`/gpus/${ID}`);
  await waitFor(() => expect(chart("power-W-0")?.getAttribute("data-points")).toBe("2"));
  expect(FakePlot.made).toHaveLength(0);
  const move = (isSeen: boolean) => act(() => FakeIntersectionObserver.made.forEach((watcher) => watcher.move(isSeen)));
  move(true);
  expect(FakePlot.made).toHaveLength(2);
  move(false);
  const fed = () => FakePlot.made.map((made) => made.fed.length);
  const before = fed();
  act(() => FakeEventSource.made.at(-1)?.send([{ gpu_id: ID, hostname: "node-1", metrics: { power_w: 9 }, timestamp: NOW() }]));
  expect(chart("power-W-0")?.getAttribute("data-points")).toBe("3");
  expect(fed()).toEqual(before);
  move(true);
  expect(FakePlot.made.find((made) => made.options.series[1]?.label === "power_w")?.fed.at(-1)?.[1]).toEqual([500, null, 510, 9]);
});
