import { act, screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { cluster, node, nodeGpu, process, silentGpu, summary, unread } from "../../testing/clusters";
import { gpu, listOf, mockApi, ok, type Handler } from "../../testing/mockApi";
import { renderAt } from "../../testing/render";

const COUNTS = cluster().nodes;
const SICK = { node_name: "sick", state: "failing" as const, since: "2026-11-20T10:00:00Z", error: "no answer within 9s", stale: true };
const EAST = cluster({ state: "degraded", error: "sick: no answer within 9s", node_count: 2, nodes: { ...COUNTS, failing: 1 }, missing: [SICK] });
const LAB = cluster({ cluster_id: "lab", state: "unauthorized", error: "the API server answers 401", node_count: null, nodes: { ...COUNTS, ok: 0 }, gpu_count: 0, newest_reading_age_seconds: null, oldest_reading_age_seconds: null, skips_tls_verify: true });
const WEB = cluster({ cluster_id: "web", state: "no_gpu", has_gpu: false, node_count: null, nodes: { ...COUNTS, ok: 0 }, gpu_count: 0 });
const NODES = [node(), unread({ node_name: "sick", labels: { "topology.kubernetes.io/zone": "z1" } })];
const PROCESSES = [process(), process({ pid: 99, command: "ffmpeg", process_type: "graphics", node_name: "node-2", sm_utilization: null, fb_memory_mb: null })];

const FLEET: Readonly<Record<string, Handler>> = {
  "/api/v1/gpu/clusters": ok([EAST, LAB, WEB]),
  "/api/v1/gpu/summary": (params) => ok(summary({ cluster_id: params.get("cluster_id") })),
  "/api/v1/gpu/nodes": ok(NODES),
  "/api/v1/gpu/processes": { body: PROCESSES, headers: { "x-partial": "cluster lab: unauthorized" } },
};

const tab = () => screen.queryByRole("link", { name: "Clusters" });

describe("the way to the page", () => {
  it("is in the navigation when there are clusters", async () => {
    mockApi(FLEET);
    renderAt("/");
    await userEvent.click(await screen.findByRole("link", { name: "Clusters" }));
    expect(window.location.pathname).toBe("/clusters");
    expect(tab()?.getAttribute("aria-current")).toBe("page");
    expect(document.title).toBe("Clusters · gpuvitals");
  });

  it("is not there without, and the page says how clusters come here", async () => {
    const mock = mockApi();
    renderAt("/");
    await screen.findByText("No GPUs yet");
    await waitFor(() => expect(mock.asked.some(({ path }) => path === "/api/v1/gpu/clusters")).toBe(true));
    expect(tab()).toBeNull();
    await userEvent.keyboard("c");
    expect(await screen.findByText("No clusters are configured")).toBeTruthy();
    expect(screen.getByLabelText("Example of the configuration").textContent).toContain("token_file:");
  });
});

describe("the clusters", () => {
  it("load, and may fail", async () => {
    const mock = mockApi({ ...FLEET, "/api/v1/gpu/clusters": { status: 503, body: { error: "busy", message: "too many requests at once", code: "busy" } } });
    renderAt("/clusters");
    expect(screen.getByRole("status", { name: "Loading clusters" })).toBeTruthy();
    expect((await screen.findByRole("alert")).textContent).toContain("too many requests at once");
    mock.set("/api/v1/gpu/clusters", ok([EAST]));
    await userEvent.click(screen.getByRole("button", { name: "Retry" }));
    expect(await screen.findByRole("link", { name: "node-1" })).toBeTruthy();
  });

  it("are shown together and each by itself, with what is missing and why", async () => {
    mockApi(FLEET);
    renderAt("/clusters");
    const together = await screen.findByLabelText("All clusters together");
    await waitFor(() => expect(together.textContent).toContain("63.4%"));
    expect(together.textContent).toMatch(/Clusters32 not wholly read/);
    expect(together.textContent).toMatch(/Nodes read1of 2 known/);
    expect(together.textContent).toMatch(/Memory1 TiBof 2 TiB/);
    expect(screen.getByRole("note", { name: "Incomplete" }).textContent).toBe("Not everything could be read: 1 node, and the cluster lab.");
    const list = within(screen.getByRole("region", { name: "Clusters" }));
    const east = list.getByRole("link", { name: "east" }).closest("tbody");
    expect(east?.textContent).toMatch(/degraded.*1 of 2/);
    expect(east?.textContent).toMatch(/sick failing since .*: no answer within 9s \(its last reading is shown\)/);
    const lab = list.getByRole("link", { name: "lab" }).closest("tbody");
    expect(lab?.textContent).toContain("Its API server refuses the token: the API server answers 401");
    expect(lab?.textContent).toContain("Its certificate is not verified");
    expect(lab?.textContent).not.toMatch(/\b0\b/);
    const web = list.getByRole("link", { name: "web" }).closest("tbody");
    expect(web?.textContent).toContain("By configuration it has no GPUs; it is never asked");
  });

  it("ask for sums of those that were read, and for no others", async () => {
    const mock = mockApi(FLEET);
    renderAt("/clusters");
    await screen.findByRole("link", { name: "node-1" });
    const asked = mock.asked.filter(({ path }) => path === "/api/v1/gpu/summary").map(({ params }) => params.get("cluster_id"));
    expect(new Set(asked)).toEqual(new Set([null, "east"]));
  });

  it("name a few of many missing nodes", async () => {
    const many = Array.from({ length: 9 }, (_, at) => ({ ...SICK, node_name: `sick-${at}`, error: null }));
    mockApi({ ...FLEET, "/api/v1/gpu/clusters": ok([{ ...EAST, missing: many }]) });
    renderAt("/clusters");
    expect(await screen.findByText("and 6 more, first in the list of nodes")).toBeTruthy();
    expect(screen.getByRole("link", { name: "sick-2" }).getAttribute("href")).toBe("/clusters/east/sick-2");
    expect(screen.queryByRole("link", { name: "sick-3" })).toBeNull();
  });

  it("show a state they have never heard of by its word", async () => {
    mockApi({ ...FLEET, "/api/v1/gpu/clusters": ok([cluster({ state: "on_fire" as "ok" })]) });
    renderAt("/clusters");
    expect(await screen.findByText("on fire", { selector: ".badge" })).toBeTruthy();
  });

  it("keep what was read when the gateway goes away, and say so", async () => {
    const mock = mockApi(FLEET);
    const { client } = renderAt("/clusters");
    await screen.findByRole("link", { name: "node-1" });
    mock.goDown(true);
    await act(() => client.refetchQueries());
    expect((await screen.findByRole("note", { name: "Not renewed" })).textContent).toMatch(/as of \d\d:\d\d:\d\d/);
    expect(screen.getByText(/^Not renewed: as of/, { selector: "[role=status]" })).toBeTruthy();
    expect(screen.getByRole("link", { name: "node-1" })).toBeTruthy();
  });
});

describe("the nodes", () => {
  it("have the sick first, absent values absent, and the age of a reading", async () => {
    mockApi({ ...FLEET, "/api/v1/gpu/nodes": ok([node({ gpus: [silentGpu()] }), unread({ node_name: "sick" }), node({ node_name: "old", state: "failing", stale: true, age_seconds: 7260 })]) });
    renderAt("/clusters");
    await screen.findByRole("link", { name: "node-1" });
    const rows = [...document.querySelectorAll<HTMLElement>("tr[data-node]")];
    expect(rows.map((row) => row.dataset.node)).toEqual(["old", "sick", "node-1"]);
    expect(rows[0]?.textContent).toContain("stale, 2 h ago");
    expect(rows[1]?.textContent).toContain("never read");
    expect(rows[1]?.textContent).toContain("no answer within 9s");
    expect(rows[2]?.textContent).not.toMatch(/0%|0 °C|0 MiB/);
  });

  it("are those of a chosen cluster, and the address says so", async () => {
    const mock = mockApi(FLEET);
    renderAt("/clusters");
    await userEvent.click(within(await screen.findByRole("region", { name: "Clusters" })).getByRole("link", { name: "east" }));
    expect(window.location.search).toBe("?cluster=east");
    await waitFor(() => expect(mock.asked.filter(({ path }) => path === "/api/v1/gpu/nodes").at(-1)?.params.get("cluster_id")).toBe("east"));
    await userEvent.selectOptions(screen.getByRole("combobox", { name: "Cluster" }), "");
    expect(window.location.search).toBe("");
  });

  it.each([
    ["?cluster=web", "This cluster has no GPUs by configuration"],
    ["?cluster=gone", "No cluster of this name is configured"],
  ])("of %s are not asked for", async (search, title) => {
    const mock = mockApi(FLEET);
    renderAt(`/clusters${search}`);
    expect(await screen.findByText(title)).toBeTruthy();
    expect(mock.asked.some(({ path }) => path === "/api/v1/gpu/nodes")).toBe(false);
    await userEvent.click(screen.getByRole("button", { name: "Show all clusters" }));
    expect(await screen.findByRole("link", { name: "node-1" })).toBeTruthy();
  });

  it("are searched, filtered and sorted by the address", async () => {
    mockApi(FLEET);
    renderAt("/clusters");
    await userEvent.type(await screen.findByRole("searchbox", { name: "Search nodes" }), "zone=z1");
    await waitFor(() => expect(window.location.search).toBe("?search=zone%3Dz1"));
    expect(screen.queryByRole("link", { name: "node-1" })).toBeNull();
    await userEvent.selectOptions(screen.getByRole("combobox", { name: "State" }), "ok");
    expect(await screen.findByText("No node fits these filters")).toBeTruthy();
    await userEvent.click(screen.getByRole("button", { name: "Show all nodes" }));
    await userEvent.click(screen.getByRole("button", { name: "Memory" }));
    expect(window.location.search).toBe("?sort=-memory");
    const header = within(screen.getByRole("table", { name: "GPU nodes" })).getByRole("columnheader", { name: "Memory" });
    expect(header.getAttribute("aria-sort")).toBe("descending");
  });

  it("may be none, and fail", async () => {
    const mock = mockApi({ ...FLEET, "/api/v1/gpu/nodes": { status: 500, body: { error: "internal", message: "broken", code: "internal" } } });
    renderAt("/clusters");
    expect((await screen.findByRole("alert")).textContent).toContain("The nodes could not be read");
    mock.set("/api/v1/gpu/nodes", ok([]));
    await userEvent.click(screen.getByRole("button", { name: "Retry" }));
    expect(await screen.findByText("What could not be read may have some.")).toBeTruthy();
  });

  it("are walked and opened by keys", async () => {
    mockApi({ ...FLEET, "/api/v1/gpu/nodes/east/sick": ok(NODES[1]) });
    renderAt("/clusters");
    await screen.findByRole("link", { name: "node-1" });
    await userEvent.keyboard("j{Enter}");
    expect(window.location.pathname).toBe("/clusters/east/sick");
  });
});

describe("the processes", () => {
  it("are filtered by node, type and command", async () => {
    mockApi(FLEET);
    renderAt("/clusters?view=processes");
    const row = (await screen.findByText("ffmpeg")).closest("tr");
    expect(row?.textContent).toBe("ffmpeg99graphicseastnode-20–7%–––");
    expect(screen.getByRole("note", { name: "Incomplete list" }).textContent).toContain("cluster lab: unauthorized");
    await userEvent.selectOptions(screen.getByRole("combobox", { name: "Node" }), "node-1");
    expect(screen.queryByText("ffmpeg")).toBeNull();
    expect(window.location.search).toBe("?view=processes&node=node-1");
    await userEvent.selectOptions(screen.getByRole("combobox", { name: "Type" }), "graphics");
    expect(await screen.findByText("No process fits these filters")).toBeTruthy();
    await userEvent.click(screen.getByRole("button", { name: "Clear filters" }));
    await userEvent.type(screen.getByRole("searchbox", { name: "Search processes" }), "pyth");
    await waitFor(() => expect(screen.queryByText("ffmpeg")).toBeNull());
    expect(screen.getByText("1 process")).toBeTruthy();
  });

  it("are drawn a page at a time", async () => {
    const many = Array.from({ length: 120 }, (_, pid) => process({ pid }));
    mockApi({ ...FLEET, "/api/v1/gpu/processes": ok(many) });
    renderAt("/clusters?view=processes&page=9");
    expect(await screen.findByText("101–120 of 120")).toBeTruthy();
    expect(document.querySelectorAll("tr[data-pid]")).toHaveLength(20);
    await userEvent.keyboard("[[");
    expect(window.location.search).toBe("?view=processes&page=2");
    expect(document.querySelectorAll("tr[data-pid]")).toHaveLength(50);
  });
});

describe("a node", () => {
  const path = "/api/v1/gpu/nodes/east/node-1";

  it("opens to its GPUs, with the way to those that history has, and its processes", async () => {
    const gpus = [nodeGpu({ processes: [process({ sm_utilization: 5 }), process({ pid: 2, command: "trainer", sm_utilization: 95 })] }), silentGpu({ index: 1, uuid: "GPU-b" })];
    mockApi({ ...FLEET, [path]: ok(node({ gpus, gpu_count: 2, gpus_announced: 3, labels: { zone: "z1" } })), "/api/v1/gpus": listOf([gpu({ id: "GPU-a" })]) });
    renderAt("/clusters/east/node-1");
    const table = within(await screen.findByRole("table", { name: /^GPUs of the node/ }));
    const link = await table.findByRole("link", { name: /NVIDIA H100/ });
    expect(link.getAttribute("href")).toBe("/gpus/GPU-a");
    for (const text of ["87%", "12%", "61 °C", "Gen 5 ×16", "40%"]) expect(table.getByText(text)).toBeTruthy();
    expect(link.closest("tr")?.textContent).toContain("512 W / 700 W");
    expect(document.querySelector("tr[data-gpu='GPU-b']")?.textContent).toBe("1NVIDIA H100GPU-b–––––––");
    expect(screen.getByText("2 of 3", { exact: false })).toBeTruthy();
    expect(screen.getByRole("region", { name: "Labels" }).textContent).toContain("zonez1");
    const commands = () => [...document.querySelectorAll("tr[data-pid] th")].map((cell) => cell.textContent);
    expect(commands()).toEqual(["python3", "trainer"]);
    await userEvent.click(screen.getByRole("button", { name: "SM" }));
    expect(commands()).toEqual(["trainer", "python3"]);
    expect(window.location.search).toBe("?sort=-sm");
    expect(document.title).toBe("node-1 · east · gpuvitals");
  });

  it("says how old a reading is that is shown for want of a newer, and why processes are missing", async () => {
    mockApi({ ...FLEET, [path]: ok(node({ state: "failing", error: "the pod is gone", stale: true, age_seconds: 600, processes_error: "pmon is not supported" })) });
    renderAt("/clusters/east/node-1");
    expect((await screen.findByRole("note", { name: "Age of the data" })).textContent).toContain("10 min ago");
    expect(screen.getByText("the pod is gone")).toBeTruthy();
    expect(screen.getByRole("note", { name: "Incomplete list" }).textContent).toContain("pmon is not supported");
    expect(screen.queryByText("Nothing runs on these GPUs.")).toBeNull();
  });

  it("was perhaps never read", async () => {
    mockApi({ ...FLEET, [path]: ok(unread()) });
    renderAt("/clusters/east/node-1");
    expect(await screen.findByText("Never read")).toBeTruthy();
    expect(screen.queryByRole("table")).toBeNull();
  });

  it.each([
    [404, "no node of this name", "No such node"],
    [503, "cluster east does not tell its nodes", "This node could not be read"],
  ])("may not be there: %s", async (status, message, title) => {
    mockApi({ ...FLEET, [path]: { status, body: { error: "x", message, code: "x" } } });
    renderAt("/clusters/east/node-1");
    expect(await screen.findByText(title)).toBeTruthy();
    expect(screen.getByText(message, { exact: false })).toBeTruthy();
  });
});
