import { act, screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { expect, it } from "vitest";
import type { Gpu } from "../../api/client";
import { FakePlot } from "../../testing/FakePlot";
import { finding, findingsOf, gpu, incident, listOf, metric, mockApi, ok, type Handler } from "../../testing/mockApi";
import { renderAt } from "../../testing/render";

const VALUES = { utilization_pct: 50, power_w: 300, power_limit_w: 700, temperature_c: 60, memory_used_mb: 1024, memory_total_mb: 2048, pcie_gen: 5, pcie_width: 16, pcie_gen_max: 5, pcie_width_max: 16, interconnect_links_up: 18 };
const one = (index: number, part: Partial<Gpu> = {}): Gpu =>
  gpu({ id: `g${index}`, name: `node-1 / GPU ${index}`, index, metrics: VALUES, labels: { namespace: "research", job: `train-${index}`, pod: null, pci: `0000:${index}b:00.0` }, ...part });
/** The last first: the page puts them in order. */
const eight = listOf([7, 6, 5, 4, 3, 2, 1, 0].map((index) => one(index, index === 3 ? { metrics: { ...VALUES, pcie_width: 8, temperature_c: 91 }, labels: { namespace: null, job: null, pod: null, pci: null } } : {})));
const catalogue = ok({ metrics: [metric("utilization_pct", "%", "utilization"), metric("power_w", "W", "power"), metric("temperature_c", "°C", "temperature"), metric("memory_used_mb", "MiB", "memory")] });
const query: Handler = (params) => {
  const isOwn = params.get("table") === "system_events";
  const names = isOwn ? [null] : (params.get("gpus") ?? "").split(",");
  const series = (params.get("metrics") ?? "").split(",").flatMap((name) => names.map((id) => ({ metric: name, gpu: id, aggregate: "mean", values: [1, 2] })));
  return ok({ times: [1000, 2000], series, step_ms: 1000 });
};
const handlers = { "/api/v1/gpus": eight, "/api/v1/metrics": catalogue, "/api/v1/query": query };
const panels = () => [...document.querySelectorAll("[data-panel]")].map((panel) => panel.getAttribute("data-panel"));

it("shows what the host does, its GPUs with holders and links, and their courses over each other", async () => {
  const mock = mockApi({ ...handlers, "/api/v1/analysis/findings": findingsOf([finding({ subject: { type: "gpu", id: "g3", name: "node-1 / GPU 3" } })]) });
  renderAt("/hosts/node-1?range=1h");
  expect((await screen.findByTestId("host")).textContent).toMatch(/Driver 535\.129\.03Last seen.*GPUs8Held by somebody7Mean utilization50%Power of the GPUs2,400 Wof 5,600 WHottest GPU91 °CGPU memory in use8 GiBof 16 GiB/);
  const rows = [...document.querySelectorAll("tr[data-gpu]")].map((row) => row.textContent);
  expect(rows).toHaveLength(8);
  expect(rows[0]).toMatch(/^GPU 0active?research \/ train-0.*0000:0b:00\.0Gen 5 ×1618$/);
  expect(rows[3]).toMatch(/^GPU 3active–.*–Gen 5 ×8 of Gen 5 ×1618$/);
  expect(screen.getByText("GPU 0", { selector: "tr a" }).getAttribute("href")).toBe("/gpus/g0");
  // The command names the GPU by its number on this host.
  expect(await screen.findByText("nvidia-smi --gpu-reset -i 3")).toBeTruthy();
  expect(mock.asked.find(({ path }) => path === "/api/v1/analysis/findings")?.params.get("host")).toBe("node-1");
  // Eight GPUs are too many for one chart: two of four.
  await waitFor(() => expect(panels()).toEqual(["host-cpu", "host-memory", ...["utilization_pct", "power_w", "temperature_c", "memory_used_mb"].flatMap((column) => [`${column}-0`, `${column}-1`])]));
  await waitFor(() => expect(document.querySelector('[data-panel="power_w-1"]')?.getAttribute("data-points")).toBe("8"));
  expect(FakePlot.made.find((made) => made.options.series[1]?.label === "g4" && made.destroyed === 0)?.options.series.map(({ label }) => label)).toEqual([undefined, "g4", "g5", "g6", "g7"]);
  expect(document.querySelector('[data-panel="power_w-1"]')?.textContent).toContain("GPU 7");
  const own = mock.asked.find(({ params }) => params.get("table") === "system_events")?.params;
  expect([own?.get("hosts"), own?.get("group_by")]).toEqual(["node-1", "node"]);
  expect(document.title).toBe("1 critical finding · node-1 · gpuvitals");
});

it("counts no values of silent GPUs, says how many these are, and names GPUs as people know them", async () => {
  const lost = (index: number) => one(index, { judgement: "lost", metrics: { ...VALUES, power_w: 900, temperature_c: 99, utilization_pct: 100 } });
  const mock = mockApi({ ...handlers, "/api/v1/gpus": listOf([one(0), one(1), lost(2), lost(3)]), "/api/v1/analysis/findings": findingsOf([finding({ kind: "node_silent", subject: { type: "node", id: "node-1", name: "node-1" }, reach: { ...finding().reach, gpus: ["g0", "g2"], gpu_count: 2 } })]) });
  const { unmount } = renderAt("/hosts/node-1?range=1h");
  expect((await screen.findByTestId("host")).textContent).toMatch(/GPUs4Held by somebody4Mean utilization50%Power of the GPUs600 Wof 1,400 WHottest GPU60 °CGPU memory in use2 GiBof 4 GiBWithout 2 GPUs that are silent\./);
  const named = within(await screen.findByRole("region", { name: "Findings" }));
  expect([named.getByRole("link", { name: "node-1 / GPU 0" }), named.getByRole("link", { name: "node-1 / GPU 2" })].map((link) => link.getAttribute("title"))).toEqual(["g0", "g2"]);
  unmount();
  mock.set("/api/v1/gpus", listOf([lost(2)]));
  renderAt("/hosts/node-1?range=1h");
  // Nothing else is known: the last values, and they look old.
  expect((await screen.findByText("Power of the GPUs")).closest("[data-old]")?.textContent).toContain("900 W");
  expect(screen.getByRole("note", { name: "Silent GPUs" }).textContent).toBe("No GPU reports any more: these are the last values.");
});

it("marks the incidents of its GPUs on every chart, each with the way to its window, and says if some cannot be read", async () => {
  const detail = (id: string) => ok({ gpu: gpu({ id }), latest: {}, labels: {}, first_seen: null, incidents: [incident({ first: null })] });
  const mock = mockApi({ ...handlers, "/api/v1/gpus": listOf([one(0), one(1)]), "/api/v1/gpus/g0": detail("g0"), "/api/v1/gpus/g1": detail("g1") });
  const { unmount } = renderAt("/hosts/node-1?from=2026-11-20T09:00:00Z&to=2026-11-20T11:00:00Z");
  await waitFor(() => expect(document.querySelectorAll("[data-panel] [data-incident]")).toHaveLength(6));
  expect(document.querySelector('[data-panel="power_w-0"] [data-incident]')?.getAttribute("href")).toBe("/gpus/g0?incident=20261120T100030Z-xid");
  expect(screen.getByTestId("marks").textContent).toContain("1 incident");
  unmount();
  mock.set("/api/v1/gpus/g1", { status: 503, body: { error: "unavailable", message: "too busy", code: "busy" } });
  renderAt("/hosts/node-1?from=2026-11-20T09:00:00Z&to=2026-11-20T11:00:00Z");
  expect(await screen.findByText(/^Incidents may be missing: .*too busy/)).toBeTruthy();
  await waitFor(() => expect(document.querySelectorAll("[data-panel] [data-incident]")).toHaveLength(6));
});

it("says what is not known of a host, and leaves its columns out", async () => {
  const bare = listOf([gpu({ id: "g0", labels: { namespace: null, job: null, pod: null, pci: null }, driver_version: null, metrics: { power_w: 9 } })]);
  mockApi({ ...handlers, "/api/v1/gpus": bare, "/api/v1/query": (params) => (params.get("table") === "system_events" ? ok({ times: [], series: [], step_ms: 1000 }) : ok({ times: [1000], series: [{ metric: "power_w", gpu: "g0", aggregate: "mean", values: [9] }], step_ms: 1000 })) });
  renderAt("/hosts/node-1");
  await waitFor(() => expect(panels()).toEqual(["power_w-0"]));
  expect(await screen.findByText("No agent reports CPU and memory of this host in this range.")).toBeTruthy();
  expect([...document.querySelectorAll("thead th")].map((header) => header.textContent)).toEqual(["GPU", "State", "Utilization", "Power", "Temperature", "Memory"]);
  expect(document.querySelector('[aria-label="Findings"]')).toBeNull();
});

it("helps where there is no such host, and says what could not be read or renewed", async () => {
  const unknown = { status: 404, body: { error: "not found", message: 'no host is known as "a/b"', code: "unknown_host" } };
  const mock = mockApi({ ...handlers, "/api/v1/gpus": unknown });
  const { unmount } = renderAt("/hosts/a%2Fb");
  expect(await screen.findByText("No such host")).toBeTruthy();
  expect(screen.getByText("a/b")).toBeTruthy();
  expect(screen.getByRole("link", { name: "To the list of hosts" }).getAttribute("href")).toBe("/hosts");
  unmount();
  const broken = { status: 500, body: { error: "internal", message: "disk on fire", code: "internal" } };
  mock.set("/api/v1/gpus", broken);
  const again = renderAt("/hosts/node-1");
  expect((await screen.findByRole("alert")).textContent).toContain("disk on fire");
  mock.set("/api/v1/gpus", { ...(eight as { body: unknown }), headers: { "x-partial": "a day is damaged" } });
  await act(() => again.client.refetchQueries());
  expect((await screen.findByRole("note", { name: "Partly read" })).textContent).toBe("Not everything could be read: a day is damaged");
  mock.set("/api/v1/gpus", broken);
  await act(() => again.client.refetchQueries());
  expect((await screen.findAllByRole("note", { name: "Not renewed" }))[0]?.textContent).toContain("disk on fire");
});

it("lets the host be silenced until a time, and says so there", async () => {
  const ofHost = { type: "host", id: "lab/node-1", at: new Date().toISOString(), until: new Date(Date.now() + 8 * 3_600_000).toISOString(), note: "" };
  const other = { ...ofHost, id: "lab/node-11" };
  let silences = [other];
  const mock = mockApi({ ...handlers, "/api/v1/gpus": listOf([one(0)]), "/api/v1/analysis/silences": () => ({ body: { ...ofHost, silences, judged_at: "" } }) });
  renderAt("/hosts/node-1?range=1h");
  await userEvent.click(await screen.findByRole("button", { name: "Silence this host" }));
  expect(screen.queryByRole("combobox", { name: "What" })).toBeNull();
  silences = [ofHost, other];
  await userEvent.click(screen.getByRole("button", { name: "Silence" }));
  expect((await screen.findByRole("note", { name: "Silences" })).textContent).toMatch(/^1 silence:host lab\/node-1 until/);
  const sent = mock.asked.find(({ method }) => method === "POST");
  const body = JSON.parse(sent?.body ?? "") as { host: string; until: string };
  expect(body.host).toBe("node-1");
  expect(Math.abs(Date.parse(body.until) - Date.now() - 8 * 3_600_000)).toBeLessThan(60_000);
});

it("draws what the GPUs are plugged into and linked to, and says which has fewer links", async () => {
  const place = (index: number) => ({ id: `g${index}`, name: `node-1 / GPU ${index}`, index, pci: `0000:${index}b:00.0`, numa_node: index < 4 ? 0 : 1, links_up: index === 2 ? 16 : 18 });
  const indices = [0, 1, 2, 3, 4, 5, 6, 7];
  const links = [...indices.map((index) => ({ gpu: `g${index}`, to_gpu: null, peer: "switch", links: 18 })), { gpu: "g0", to_gpu: "g7", peer: "0000:7b:00.0", links: 1 }];
  const topology = ok({ hostname: "node-1", as_of: "2026-11-20T16:00:00Z", gpus: indices.map(place), links });
  const mock = mockApi({ ...handlers, "/api/v1/hosts/node-1/topology": topology });
  renderAt("/hosts/node-1?range=1h");
  const section = await screen.findByRole("region", { name: "NUMA nodes and links" });
  expect(section.textContent).toContain("GPU 2 has 16 links, the others 18.");
  const words = "NUMA node 0: GPU 0, GPU 1, GPU 2, GPU 3; NUMA node 1: GPU 4, GPU 5, GPU 6, GPU 7. Linked: GPU 0 and GPU 7. Every GPU is linked to a switch.";
  expect(within(section).getByRole("group").getAttribute("aria-label")).toBe(words);
  const drawn = (of: string) => [...section.querySelectorAll(`[data-${of}]`)].map((mark) => mark.getAttribute(`data-${of}`));
  expect([drawn("span"), drawn("switched").length, drawn("place")]).toEqual([["0-7"], 8, indices.map((index) => `g${index}`)]);
  expect(section.querySelector('a[href="/gpus/g3"]')?.textContent).toContain("GPU 3");
  expect(mock.asked.filter(({ path }) => path.endsWith("/topology"))).toHaveLength(1);
});
