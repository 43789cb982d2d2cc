import { act, screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { finding, findingsOf, judgementsOf, mockApi, ok, type Handler } from "../../testing/mockApi";
import { renderAt } from "../../testing/render";

const HOSTS = "/api/v1/hosts";
const FINDINGS = "/api/v1/analysis/findings";
const QUERY = "/api/v1/query";
const NO_STATES = { active: 0, idle: 0, stale: 0, unhealthy: 0, unknown: 0 };
const host = (hostname: string, states: Partial<typeof NO_STATES>, part = {}) => {
  const all = { ...NO_STATES, ...states };
  const gpu_count = Object.values(all).reduce((sum, count) => sum + count, 0);
  const gpus = Object.entries(all).flatMap(([state, count]) => Array.from({ length: count }, () => ({ judgement: state as keyof typeof all })));
  return { hostname, gpu_count, judgements: judgementsOf(gpus), models: ["H100"], vendors: ["nvidia"], states: all, last_seen: new Date().toISOString(), simulated: false, ...part };
};
const listOf = (hosts: readonly object[], total = hosts.length) => ({ body: { hosts, total, pagination: { limit: 10_000, offset: 0, has_next: false } } });
const three = listOf([host("node-1", { active: 8 }), host("node-2", { active: 6, stale: 2 }), host("node-10", { idle: 7, unhealthy: 1 }, { models: ["MI300X"] })]);
const { reach } = finding();
const found = findingsOf([
  finding({ reach: { ...reach, hostname: "node-10" } }),
  finding({ id: "b", severity: "warning", reach: { ...reach, hostname: "node-10" } }),
  finding({ id: "c", severity: "notice", reach: { ...reach, hostname: null } }),
]);
const names = () => [...document.querySelectorAll("[data-host]")].map((row) => row.getAttribute("data-host"));

describe("hosts", () => {
  it("stand in order of trouble, and lead to their GPUs", async () => {
    mockApi({ [HOSTS]: three, [FINDINGS]: found });
    renderAt("/hosts");
    await waitFor(() => expect(names()).toEqual(["node-10", "node-2", "node-1"]));
    const link = screen.getByRole("link", { name: "node-10" });
    expect(link.getAttribute("href")).toBe("/hosts/node-10");
    expect(link.closest("tr")?.textContent).toBe("node-102 · critical8 · 1 unhealthy, 7 idleMI300Xjust now Compare");
    expect(screen.getByRole("link", { name: "Compare the GPUs of node-10" }).getAttribute("href")).toBe("/compare?host=node-10");
    expect(screen.getByRole("link", { name: "node-1" }).closest("tr")?.textContent).toMatch(/^node-1none8 · 8 active/);
    // Nobody reports the hosts themselves.
    expect(screen.queryByRole("columnheader", { name: "CPU" })).toBeNull();
    await userEvent.click(screen.getByRole("button", { name: "Host" }));
    expect(names()).toEqual(["node-1", "node-2", "node-10"]);
    expect(window.location.search).toBe("?sort=host");
  });

  it("say how busy they are themselves where an agent does", async () => {
    const series = (metric: string, values: readonly (number | null)[]) => ({ metric, unit: "", aggregate: "last", group: "node-2", labels: { node: "node-2" }, gpu: null, hostname: "node-2", values });
    const load: Handler = (params) => {
      expect([params.get("table"), params.get("group_by")]).toEqual(["system_events", "node"]);
      return ok({ times: [0, 1], step_ms: 1, series: [series("cpu_pct", [12, 37.5]), series("host_memory_available_mb", [250, null]), series("host_memory_total_mb", [1000, null])] });
    };
    mockApi({ [HOSTS]: three, [QUERY]: load });
    renderAt("/hosts?sort=-cpu");
    await screen.findByRole("columnheader", { name: "CPU" });
    // Of those of which it is not known, the most trouble stands first.
    expect(names()).toEqual(["node-2", "node-10", "node-1"]);
    expect(screen.getByRole("link", { name: "node-2" }).closest("tr")?.textContent).toMatch(/37\.5%75%/);
  });

  describe("with room for work", () => {
    const HINTS = "/api/v1/schedule/hints";
    const node = (hostname: string, free: number, unhealthy: readonly object[] = []) => ({ cluster: "a", hostname, model: "H100", whole: false, free: Array.from({ length: free }, (_, n) => `f${n}`), busy: [], memory_in_use: [], unhealthy });
    const hints = (nodes: readonly object[], totals = {}) =>
      ({ body: { nodes, totals: { free: 0, busy: 0, memory_in_use: 0, unhealthy: 0, whole_nodes: 0, fragmentation: null, ...totals }, judged_at: "", total: nodes.length, pagination: { limit: 10_000, offset: 0, has_next: false } } });
    const rows = [node("node-1", 2, [{ gpu: "g7", reasons: ["xid: XID 79"] }]), node("node-10", 3), { ...node("node-10", 4), cluster: "b" }];

    it("say how many of their GPUs a scheduler may use, and are sorted by it", async () => {
      mockApi({ [HOSTS]: three, [HINTS]: hints(rows, { free: 9, busy: 14, unhealthy: 1, whole_nodes: 1, fragmentation: 0.222 }) });
      renderAt("/hosts?sort=-free");
      await screen.findByRole("columnheader", { name: "Free" });
      expect(screen.getByTestId("room").textContent).toBe("9 of 24 GPUs are free: 7 on 1 whole host, 2 on partly used hosts. Those that are critical, lost or have a warning get no work. ");
      expect(names()).toEqual(["node-10", "node-1", "node-2"]);
      const free = (name: string) => screen.getByRole("link", { name }).closest("tr")?.children[3];
      expect(["node-10", "node-1", "node-2"].map((name) => free(name)?.textContent)).toEqual(["7", "2", "–"]);
      expect(free("node-1")?.querySelector("[title]")?.getAttribute("title")).toBe("g7: xid: XID 79");
    });

    it("say when none is free, and that they ask", async () => {
      const mock = mockApi({ [HOSTS]: three, [HINTS]: "never" });
      const { unmount } = renderAt("/hosts");
      expect(await screen.findByRole("status", { name: "Loading free GPUs" })).toBeTruthy();
      unmount();
      mock.set(HINTS, hints([]));
      renderAt("/hosts");
      expect((await screen.findByTestId("room")).textContent).toBe("No GPU is free. ");
      expect(screen.queryByRole("columnheader", { name: "Free" })).toBeNull();
    });

    it("say what could not be read, and what is old", async () => {
      const broken = { status: 500, body: { error: "internal", message: "disk on fire", code: "internal" } };
      const mock = mockApi({ [HOSTS]: three, [HINTS]: broken });
      const { client } = renderAt("/hosts");
      expect(await screen.findByText("Which GPUs are free could not be read: disk on fire")).toBeTruthy();
      mock.set(HINTS, { ...hints(rows, { free: 9 }), headers: { "x-partial": "host b does not answer" } });
      await act(() => client.refetchQueries());
      expect((await screen.findByTestId("room")).textContent).toContain("Not everything could be read: host b does not answer.");
      mock.set(HINTS, broken);
      await act(() => client.refetchQueries());
      await waitFor(() => expect(screen.getByTestId("room").textContent).toContain("Not renewed: as of"));
    });
  });

  it("are searched by name and model, and say what is missing", async () => {
    mockApi({ [HOSTS]: listOf([host("node-1", { active: 8 }), host("amd-1", { active: 8 }, { models: ["MI300X"] })], 12) });
    renderAt("/hosts?search=mi300");
    await waitFor(() => expect(names()).toEqual(["amd-1"]));
    expect(screen.getByRole("note", { name: "Incomplete" }).textContent).toBe("These are the first 2 of 12 hosts, by name.");
    await userEvent.type(screen.getByRole("searchbox", { name: "Search hosts" }), "-gone");
    expect(await screen.findByText("No host matches")).toBeTruthy();
    await userEvent.click(screen.getByRole("button", { name: "Show all hosts" }));
    await waitFor(() => expect(names()).toEqual(["amd-1", "node-1"]));
  });

  it.each(["node-1 / GPU 6", "Node-1:gpu6", " node-1 "])("are found by %s", async (search) => {
    mockApi({ [HOSTS]: listOf([host("node-1", { active: 8 }), host("node-2", { active: 8 })]) });
    renderAt(`/hosts?search=${encodeURIComponent(search)}`);
    await waitFor(() => expect(names()).toEqual(["node-1"]));
  });

  it("do not say that nothing is wrong while not all findings are read", async () => {
    const mock = mockApi({ [HOSTS]: { body: three.body, headers: { "x-partial": "a day is damaged" } }, [FINDINGS]: "unreachable" });
    const text = (name: string) => screen.getByRole("link", { name }).closest("tr")?.textContent;
    const { unmount } = renderAt("/hosts");
    expect((await screen.findByRole("note", { name: "Partly read" })).textContent).toBe("Not everything could be read: a day is damaged");
    expect(text("node-1")).toMatch(/^node-1–8/);
    unmount();
    mock.set(FINDINGS, findingsOf([finding({ reach: { ...reach, hostname: "node-10" } })], 900));
    renderAt("/hosts");
    await waitFor(() => expect(text("node-10")).toMatch(/^node-10critical/));
    expect(text("node-1")).toMatch(/^node-1–8/);
  });

  it("are asked for again when they could not be read", async () => {
    const mock = mockApi({ [HOSTS]: { status: 500, body: { error: "internal", message: "disk on fire", code: "internal" } } });
    renderAt("/hosts");
    expect((await screen.findByRole("alert")).textContent).toContain("disk on fire");
    mock.set(HOSTS, listOf([]));
    await userEvent.click(screen.getByRole("button", { name: "Retry" }));
    expect(await screen.findByText("No host has reported a GPU yet")).toBeTruthy();
  });
});
