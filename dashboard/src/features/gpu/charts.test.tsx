import { act, screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { expect, it } from "vitest";
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

it("says the energy of the range by the server's own answer", async () => {
  const latest = { energy_mj: { value: 9e9, timestamp: NOW() } };
  const mock = mockApi({
    [PATH]: ok({ gpu: gpu(), latest, labels: LABELS, first_seen: NOW() }),
    "/api/v1/metrics": ok({ metrics: [metric("energy_mj", "mJ", "power", "counter")] }),
    "/api/v1/query": ok({ times: [0], series: [{ metric: "energy_mj", gpu: ID, aggregate: "increase", values: [1.8e9] }], step_ms: 1 }),
  });
  renderAt(`/gpus/${ID}?from=2026-11-20T10:00:00Z&to=2026-11-20T11:00:00Z`);
  expect((await screen.findByTestId("energy")).textContent).toBe("Energy in this range 0.5 kWh");
  const asked = mock.asked.filter(({ path }) => path === "/api/v1/query").map(({ params }) => ["metrics", "aggregate", "start", "end"].map((name) => params.get(name)).join(" "));
  expect(asked).toEqual(["energy_mj increase 2026-11-20T10:00:00.000Z 2026-11-20T11:00:00.000Z"]);
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
