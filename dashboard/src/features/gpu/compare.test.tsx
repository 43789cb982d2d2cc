import { act, screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { expect, it } from "vitest";
import type { Incident } from "../../api/incidents";
import { FakePlot } from "../../testing/FakePlot";
import { savedFiles } from "../../testing/files";
import { gpu, incident, listOf, metric, mockApi, ok, type Handler } from "../../testing/mockApi";
import { renderAt } from "../../testing/render";

const detail = (id: string, name: string, incidents: readonly Incident[] = []): Handler => {
  const at = new Date().toISOString();
  const latest = { power_w: { value: 1, timestamp: at }, utilization_pct: { value: 1, timestamp: at } };
  return ok({ gpu: gpu({ id, name, last_seen: at }), latest, labels: { uuid: id, partition: null }, first_seen: at, incidents });
};
const history: Handler = (params) => {
  const series = (params.get("metrics") ?? "").split(",").flatMap((metric) =>
    (params.get("gpus") ?? "").split(",").map((id, place) => ({ metric, gpu: id, aggregate: "mean", values: [40 * place, 40 * place + 20] })),
  );
  return ok({ times: [1000, 2000], series, step_ms: 1000 });
};
const two = { "/api/v1/gpus/a": detail("a", "node-1 / GPU 0"), "/api/v1/gpus/b": detail("b", "node-1 / GPU 1"), "/api/v1/query": history };

it("draws a chart for each metric with a line for each GPU, the asked one first", async () => {
  const mock = mockApi(two);
  renderAt("/compare?gpus=a,b&metric=power_w&range=1h");
  await waitFor(() => expect([...document.querySelectorAll("[data-panel]")].map((panel) => panel.getAttribute("data-panel"))).toEqual(["power_w", "utilization_pct"]));
  await waitFor(() => expect(document.querySelector('[data-panel="power_w"]')?.getAttribute("data-points")).toBe("4"));
  expect(FakePlot.made[0]?.options.series.map((series) => series.label)).toEqual([undefined, "a", "b"]);
  expect(document.querySelector('[data-panel="power_w"]')?.textContent).toContain("node-1 / GPU 1");
  const asked = mock.asked.filter(({ path }) => path === "/api/v1/query").map(({ params }) => [params.get("aggregate"), params.get("metrics")]);
  // All of them for the differences, then the course of what differs.
  expect(asked).toEqual([["mean", "utilization_pct,power_w"], ["mean", "power_w,utilization_pct"]]);
  await userEvent.click(screen.getByRole("button", { name: "Without node-1 / GPU 0" }));
  expect(window.location.search).toBe("?gpus=b&metric=power_w&range=1h");
});

it("marks an incident of them on each chart, with the way to the one that failed first", async () => {
  const known = [incident({ first: { gpu: "b", hostname: "node-1", at: "2026-11-20T10:00:20Z", why: "it gave no value after that", doubt: null } })];
  mockApi({ ...two, "/api/v1/gpus/a": detail("a", "node-1 / GPU 0", known), "/api/v1/gpus/b": detail("b", "node-1 / GPU 1", known) });
  renderAt("/compare?gpus=a,b&from=2026-11-20T09:00:00Z&to=2026-11-20T11:00:00Z");
  await waitFor(() => expect([...document.querySelectorAll("[data-panel] [data-incident]")].map((mark) => mark.getAttribute("href"))).toEqual(["/gpus/b?incident=20261120T100030Z-xid", "/gpus/b?incident=20261120T100030Z-xid"]));
});

it("begins with a table of differences to the median, and folds what is alike", async () => {
  const alike: Handler = (params) => {
    const at = (metric: string, place: number) => (metric === "power_w" ? [500, 385, 500][place] : 90);
    const series = (params.get("metrics") ?? "").split(",").flatMap((metric) => (params.get("gpus") ?? "").split(",").map((gpu, place) => ({ metric, gpu, aggregate: "mean", values: [at(metric, place)] })));
    return ok({ times: [1000], series, step_ms: 1000 });
  };
  const metrics = { power_w: 1, utilization_pct: 1 };
  const of = (place: number, driver: string) => gpu({ id: `g${place}`, name: `node-1 / GPU ${place}`, index: place, driver_version: driver, metrics });
  const mock = mockApi({ "/api/v1/gpus": listOf([of(0, "570"), of(1, "535"), of(2, "570")], 70), "/api/v1/query": alike });
  renderAt("/compare?where=job%3Dtrain-7");
  const table = await screen.findByRole("table");
  expect([...table.querySelectorAll("tr")].map((line) => line.textContent)).toEqual(["DiffersMedian of 3GPU 0GPU 1GPU 2", "Power500 W500 W=385 W−23%500 W="]);
  expect(screen.getByRole("heading", { level: 1 }).textContent).toBe("3 GPUs of job train-7 compared");
  expect(screen.getByText("The first 3 of 70.")).toBeTruthy();
  expect(screen.getByText("Drivers differ: 570 (2), 535 (1)")).toBeTruthy();
  expect(mock.asked.find(({ path }) => path === "/api/v1/gpus")?.params.get("where")).toBe("job=train-7");
  const panels = () => [...document.querySelectorAll("[data-panel]")].map((panel) => panel.getAttribute("data-panel"));
  expect(panels()).toEqual(["power_w"]);
  await userEvent.click(screen.getByRole("button", { name: "Draw them too" }));
  expect(panels()).toEqual(["power_w", "utilization_pct"]);
  const files = savedFiles();
  await userEvent.click(screen.getByRole("button", { name: "CSV" }));
  await waitFor(() => expect(files).toHaveLength(1));
  expect(await files[0]?.text()).toMatch(/^metric,unit,median,node-1 \/ GPU 0,node-1 \/ GPU 1,node-1 \/ GPU 2\r\npower_w,W,500,/);
});

it("compares their energy by the server's rule, also of GPUs without a counter, and says where it comes from", async () => {
  const energy = (group: string, energy_kwh: number | null, counted_kwh: number | null) => ({ group, energy_kwh, counted_kwh, source: null, gpu_hours: 1, busy_gpu_hours: 1, throttled_gpu_hours: 0, gpus: 1 });
  const groups = [energy("a", 0.5, 0.5), energy("b", 1, 0), energy("c", null, null)];
  const mock = mockApi({
    ...two,
    "/api/v1/gpus/c": detail("c", "node-1 / GPU 2"),
    "/api/v1/metrics": ok({ metrics: [metric("power_w", "W", "power"), metric("energy_mj", "mJ", "power", "counter"), metric("utilization_pct", "%", "utilization")] }),
    "/api/v1/analysis/energy": ok({ groups, whole: energy("", 1.5, 0.5), start: "", end: "", total: 3, pagination: { limit: 9, offset: 0, has_next: false } }),
  });
  renderAt("/compare?gpus=a,b,c&from=2026-11-20T10:00:00Z&to=2026-11-20T11:00:00Z");
  await screen.findByRole("table");
  const cells = [...document.querySelectorAll('[data-difference="energy_mj"] td')];
  expect(cells.map((cell) => cell.textContent)).toEqual(["2.7 MJ", "1.8 MJ−33%", "3.6 MJ+33%", "–"]);
  expect(cells.map((cell) => cell.getAttribute("title"))).toEqual([null, "counters", "integrated power", null]);
  const asked = mock.asked.filter(({ path }) => path === "/api/v1/analysis/energy").map(({ params }) => ["by", "gpus", "start", "end"].map((name) => params.get(name)).join(" "));
  expect(asked).toEqual(["gpu a,b,c 2026-11-20T10:00:00.000Z 2026-11-20T11:00:00.000Z"]);
  // There is nothing to draw of a counter that was not read.
  expect(mock.asked.some(({ path, params }) => path === "/api/v1/query" && params.get("metrics")?.includes("energy_mj") === true)).toBe(false);
});

it("says how GPUs are picked when there are none, and which one is not there", async () => {
  mockApi(two);
  const { unmount } = renderAt("/compare");
  expect(screen.getByRole("link", { name: "To the heat map" }).getAttribute("href")).toBe("/gpus?view=map");
  unmount();
  renderAt("/compare?gpus=a,gone");
  expect((await screen.findByRole("alert")).textContent).toContain("there is no /api/v1/gpus/gone");
});

it("leaves a range that was chosen by dragging when going back", async () => {
  mockApi(two);
  renderAt("/compare?gpus=a,b&range=1h");
  await waitFor(() => expect(FakePlot.made.length).toBeGreaterThan(0));
  const before = window.history.length;
  const plot = { select: { left: 10, width: 50 }, posToVal: (at: number) => at * 1000, setSelect: () => undefined };
  act(() => FakePlot.made.at(-1)?.options.hooks?.setSelect?.[0]?.(plot as never));
  expect(window.location.search).toContain("from=1970-01-01T00%3A00%3A10.000Z&to=1970-01-01T00%3A01%3A00.000Z");
  expect(window.history.length).toBe(before + 1);
});

it.each([
  ["the GPUs", "/api/v1/gpus/b"],
  ["their values", "/api/v1/query"],
])("says that %s are old when they could not be renewed, and shows them", async (_name, path) => {
  const mock = mockApi(two);
  const { client } = renderAt("/compare?gpus=a,b&range=1h");
  await waitFor(() => expect(document.querySelector('[data-panel="power_w"]')?.getAttribute("data-points")).toBe("4"));
  expect(screen.queryByRole("note", { name: "Not renewed" })).toBeNull();
  mock.set(path, { status: 503, body: { error: "unavailable", message: "too busy", code: "busy" } });
  await act(() => client.refetchQueries());
  expect((await screen.findByRole("note", { name: "Not renewed" })).textContent).toMatch(/^Not renewed: as of \d\d:\d\d:\d\d\. too busy$/);
  expect(document.querySelector('[data-panel="power_w"]')?.getAttribute("data-points")).toBe("4");
});
