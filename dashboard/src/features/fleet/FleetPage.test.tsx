import { act, screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { chooseInstant } from "../../shared/instant";
import { gpu, judgementsOf, listOf, mockApi, ok } from "../../testing/mockApi";
import { renderAt } from "../../testing/render";

const two = listOf([gpu({ id: "GPU-a", model: "First" }), gpu({ id: "GPU-b", model: null, name: "Second", state: "idle", metrics: {} })]);

describe("the list of GPUs", () => {
  it("says that it loads", () => {
    mockApi({ "/api/v1/gpus": "never" });
    renderAt("/gpus");
    expect(screen.getByRole("status", { name: "Loading GPUs" })).toBeTruthy();
  });

  it("says how GPUs come when there are none", async () => {
    mockApi();
    renderAt("/gpus");
    expect(await screen.findByText("No GPUs yet")).toBeTruthy();
  });

  it.each([
    ["GPUs", two, "First"],
    ["no GPU", listOf([]), "No GPU could be read"],
  ])("says what could not be read beside %s", async (_case, answer, text) => {
    if (typeof answer === "string") throw new Error("an answer has a body");
    mockApi({ "/api/v1/gpus": { ...answer, headers: { "x-partial": "host b does not answer" } } });
    renderAt("/gpus");
    expect((await screen.findByRole("note", { name: "Incomplete" })).textContent).toContain("host b does not answer");
    expect(screen.getByText(text)).toBeTruthy();
    expect(screen.queryByText("No GPUs yet")).toBeNull();
  });

  it("offers to take the filters away when none fits", async () => {
    mockApi();
    renderAt("/gpus?search=h999&state=idle");
    await userEvent.click(await screen.findByRole("button", { name: "Show all GPUs" }));
    expect(window.location.search).toBe("");
  });

  it("shows values with their units, and nothing where nothing was read", async () => {
    mockApi({ "/api/v1/gpus": two });
    renderAt("/gpus");
    const row = (await screen.findByRole("link", { name: /First/ })).closest("tr");
    if (row === null) throw new Error("the link stands in no row");
    for (const text of ["87%", "512 W", "61 °C", "active", "node-1"]) expect(within(row).getByText(text)).toBeTruthy();
    const other = screen.getByRole("link", { name: /Second/ }).closest("tr");
    expect(other?.textContent).toContain("–");
    expect(other?.textContent).not.toMatch(/0%|0 W/);
  });

  it("leads from a row to the chosen instant, also where the row says the same", async () => {
    mockApi({ "/api/v1/gpus": two });
    renderAt("/gpus");
    const link = await screen.findByRole("link", { name: /First/ });
    act(() => chooseInstant(Date.parse("2026-11-20T12:00:00Z")));
    await waitFor(() => expect(link.getAttribute("href")).toBe("/gpus/GPU-a?at=2026-11-20T12%3A00%3A00Z"));
    expect(link.isConnected).toBe(true);
  });

  it("asks for the sick first unless told otherwise, and says why a GPU is unhealthy", async () => {
    const sick = gpu({ id: "GPU-s", state: "unhealthy", state_reason: "XID 79" });
    const silent = gpu({ id: "GPU-t", state: "stale", state_reason: "stale since noon" });
    const mock = mockApi({ "/api/v1/gpus": listOf([sick, silent]) });
    renderAt("/gpus");
    expect((await screen.findByText("XID 79")).closest("[data-gpu]")?.getAttribute("data-gpu")).toBe("GPU-s");
    expect(screen.queryByText("stale since noon")).toBeNull();
    const asked = mock.asked.filter((request) => request.params.get("include") === "metrics").map((request) => request.params.get("sort"));
    expect(asked).toEqual(["judgement"]);
    await userEvent.click(screen.getByRole("button", { name: "Host" }));
    await waitFor(() => expect(mock.asked.some((request) => request.params.get("sort") === "hostname")).toBe(true));
  });

  it("draws sparklines from one question for the GPUs in sight", async () => {
    const series = [{ metric: "power_w", gpu: "GPU-a", hostname: "node-1", unit: "W", values: [1, 2, null] }];
    const mock = mockApi({ "/api/v1/gpus": two, "/api/v1/query": ok({ times: [0, 15_000, 30_000], step_ms: 15_000, series }) });
    renderAt("/gpus");
    const spark = await screen.findByRole("img", { name: /Power over the last/ });
    expect(spark.getAttribute("data-points")).toBe("2");
    const asked = mock.asked.filter((request) => request.path === "/api/v1/query");
    expect(asked).toHaveLength(1);
    expect(asked[0]?.params.get("gpus")).toBe("GPU-a,GPU-b");
  });

  it("asks for a sparkline only from the end of what it has, and draws both", async () => {
    const answerOf = (params: URLSearchParams) => {
      const [start, end] = ["start", "end"].map((name) => Math.floor(Date.parse(params.get(name) ?? "") / 15_000));
      const times = Array.from({ length: (end ?? 0) - (start ?? 0) + 1 }, (_, step) => ((start ?? 0) + step) * 15_000);
      return ok({ times, step_ms: 15_000, series: [{ metric: "power_w", gpu: "GPU-a", hostname: "node-1", unit: "W", values: times.map((time) => time / 15_000) }] });
    };
    const mock = mockApi({ "/api/v1/gpus": two, "/api/v1/query": answerOf });
    const { client } = renderAt("/gpus");
    const points = Number((await screen.findByRole("img", { name: /Power over the last/ })).getAttribute("data-points"));
    await act(() => client.refetchQueries({ queryKey: ["sparks"] }));
    const lengths = mock.asked.filter(({ path }) => path === "/api/v1/query").map(({ params }) => Date.parse(params.get("end") ?? "") - Date.parse(params.get("start") ?? ""));
    expect(lengths).toHaveLength(2);
    expect(lengths[0]).toBe(15 * 60_000);
    expect(lengths[1], "two minutes, and what of a step is left").toBeLessThan(120_000 + 3 * 15_000);
    // A step may have begun in between.
    expect(Math.abs(Number(screen.getByRole("img", { name: /Power over the last/ }).getAttribute("data-points")) - points)).toBeLessThanOrEqual(1);
  });

  it("shows why the list could not be read, and reads it again", async () => {
    const body = { error: "internal", message: "the store is being restored", code: "unavailable" };
    const mock = mockApi({ "/api/v1/gpus": { status: 500, body } });
    renderAt("/gpus");
    expect((await screen.findByRole("alert")).textContent).toContain("the store is being restored");
    mock.set("/api/v1/gpus", two);
    await userEvent.click(screen.getByRole("button", { name: "Retry" }));
    expect(await screen.findByRole("link", { name: /First/ })).toBeTruthy();
  });

  it("keeps what it has when the API goes away, says since when, and comes back", async () => {
    const mock = mockApi({ "/api/v1/gpus": two });
    const { client } = renderAt("/gpus");
    await screen.findByRole("link", { name: /First/ });
    mock.goDown(true);
    await act(() => client.refetchQueries());
    expect((await screen.findByRole("alert")).textContent).toMatch(/API unreachable since \d\d:\d\d:\d\d/);
    expect(screen.getByText(/Not renewed: as of/)).toBeTruthy();
    expect(screen.getByRole("link", { name: /First/ })).toBeTruthy();
    mock.goDown(false);
    await userEvent.click(screen.getByRole("button", { name: "Retry now" }));
    await waitFor(() => expect(screen.queryByRole("alert")).toBeNull());
  });

  it("marks GPUs that have not been heard of with a word and their age", async () => {
    const seen = new Date(Date.now() - 3 * 3_600_000).toISOString();
    mockApi({ "/api/v1/gpus": listOf([gpu({ state: "stale", last_seen: seen })]) });
    renderAt("/gpus");
    expect(await screen.findByText("stale", { selector: ".badge" })).toBeTruthy();
    expect(screen.getByText("3 h ago").closest("[data-old]")?.getAttribute("data-gpu")).toBe(gpu().id);
  });

  it("says that GPUs are simulated, above the list and in their rows", async () => {
    mockApi({ "/api/v1/gpus": listOf([gpu({ simulated: true })]) });
    renderAt("/gpus");
    expect(await screen.findByRole("note", { name: "Simulated data" })).toBeTruthy();
    expect(screen.getByText("simulated", { selector: ".badge" })).toBeTruthy();
  });

  it("says that hosts are simulated which are on another page of the list", async () => {
    const hosts = [{ hostname: "sim-1", gpu_count: 8, simulated: true }];
    mockApi({ "/api/v1/gpus": two, "/api/v1/hosts": ok({ hosts, total: 1, pagination: { limit: 1000, offset: 0, has_next: false } }) });
    renderAt("/gpus");
    expect(await screen.findByRole("note", { name: "Simulated data" })).toBeTruthy();
  });

  it("says nothing of simulation when everything was measured", async () => {
    mockApi({ "/api/v1/gpus": two });
    renderAt("/gpus");
    await screen.findByRole("link", { name: /First/ });
    expect(screen.queryByText(/simulated/)).toBeNull();
  });

  it("shows the word of a state it has never heard of as unknown", async () => {
    mockApi({ "/api/v1/gpus": listOf([gpu({ state: "melting" as "unknown" })]) });
    renderAt("/gpus");
    expect(await screen.findByText("unknown", { selector: ".badge" })).toBeTruthy();
  });
});

describe("search, order and filter", () => {
  const listAsks = (mock: ReturnType<typeof mockApi>) =>
    mock.asked.filter((request) => request.path === "/api/v1/gpus" && request.params.get("include") === "metrics");

  it("put themselves into the address and ask the server", async () => {
    const mock = mockApi({ "/api/v1/gpus": two });
    renderAt("/gpus");
    await userEvent.type(await screen.findByRole("searchbox", { name: "Search GPUs" }), "h100");
    await waitFor(() => expect(window.location.search).toBe("?search=h100"));
    await userEvent.click(screen.getByRole("button", { name: "Power" }));
    expect(window.location.search).toBe("?search=h100&sort=-power_w");
    expect(screen.getByRole("columnheader", { name: "Power" }).getAttribute("aria-sort")).toBe("descending");
    await userEvent.selectOptions(screen.getByRole("combobox", { name: "Host" }), "node-1");
    await userEvent.click(screen.getByRole("button", { name: /^idle/ }));
    await waitFor(() => {
      const last = listAsks(mock).at(-1)?.params;
      expect(Object.fromEntries(last ?? [])).toMatchObject({ search: "h100", host: "node-1", judgement: "idle", sort: "-power_w", limit: "50", include: "metrics" });
    });
    await userEvent.click(screen.getByRole("button", { name: "Clear filters" }));
    expect(window.location.search).toBe("?sort=-power_w");
    expect(screen.getByRole<HTMLInputElement>("searchbox").value).toBe("");
  });

  it.each([
    ["critical", ["GPU-a"], "1 GPU"],
    ["active", ["GPU-c", "GPU-b"], "2 GPUs"],
    ["lost", [], "0 GPUs"],
  ])("has GPUs chosen and counted by the server: %s", async (word, ids, count) => {
    const fleet = [gpu({ id: "GPU-a", judgement: "critical" }), gpu({ id: "GPU-c" }), gpu({ id: "GPU-b" })];
    mockApi({
      "/api/v1/gpus": (params) => {
        const chosen = fleet.filter(({ judgement }) => !params.has("judgement") || judgement === params.get("judgement"));
        return ok({ gpus: chosen, judgements: judgementsOf(fleet), total: chosen.length, pagination: { limit: 50, offset: 0, has_next: false } });
      },
    });
    renderAt(`/gpus?state=${word}&sort=-power_w`);
    expect((await screen.findByText(count)).getAttribute("role")).toBe("status");
    expect([...document.querySelectorAll("[data-gpu]")].map((row) => row.getAttribute("data-gpu"))).toEqual(ids);
    expect(screen.getByRole("button", { name: new RegExp(`^${word}`) }).textContent).toContain(String(ids.length));
    expect(screen.queryByRole("link", { name: "Compare" })?.getAttribute("href")).toBe(ids.length < 2 ? undefined : "/compare?gpus=GPU-c%2CGPU-b");
  });

  it("turns pages and goes back to the first when the question changes", async () => {
    const mock = mockApi({ "/api/v1/gpus": listOf([gpu()], 10_000) });
    renderAt("/gpus");
    await userEvent.click(await screen.findByRole("button", { name: "Next page" }));
    await waitFor(() => expect(listAsks(mock).at(-1)?.params.get("offset")).toBe("50"));
    expect(screen.getByText("51–100 of 10,000")).toBeTruthy();
    await userEvent.click(screen.getByRole("button", { name: "Temperature" }));
    expect(window.location.search).toBe("?sort=-temperature_c");
  });
});

describe("the keyboard", () => {
  it("walks the rows, opens one, finds the search and shows its help", async () => {
    mockApi({ "/api/v1/gpus": two });
    renderAt("/gpus");
    const first = await screen.findByRole("link", { name: /First/ });
    await userEvent.keyboard("j");
    expect(document.activeElement).toBe(first);
    await userEvent.keyboard("{ArrowDown}");
    expect(document.activeElement?.textContent).toContain("Second");
    await userEvent.keyboard("k");
    expect(document.activeElement).toBe(first);
    await userEvent.keyboard("/");
    expect(document.activeElement).toBe(screen.getByRole("searchbox"));
    await userEvent.keyboard("jt?{Escape}");
    expect(screen.getByRole<HTMLInputElement>("searchbox").value).toContain("jt?");
    await userEvent.keyboard("?");
    expect(document.querySelector("dialog")?.open).toBe(true);
  });

  it("turns the theme and remembers it", async () => {
    mockApi();
    renderAt("/gpus");
    await screen.findByText("No GPUs yet");
    await userEvent.keyboard("t");
    expect(document.documentElement.dataset.theme).toBe("light");
    await userEvent.keyboard("t");
    expect(document.documentElement.dataset.theme).toBe("dark");
    expect(screen.getByRole("button", { name: "Theme: dark. Change" })).toBeTruthy();
  });
});
