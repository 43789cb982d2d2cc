import { act, screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { savedFiles } from "../../testing/files";
import { FakeIntersectionObserver } from "../../testing/FakeIntersectionObserver";
import { finding, findingsOf, gpu, judgementsOf, listOf, metric, mockApi, ok, trend, trendsOf, type Handler } from "../../testing/mockApi";
import { renderAt } from "../../testing/render";

const FINDINGS = "/api/v1/analysis/findings";
const SILENCES = "/api/v1/analysis/silences";
const reach = finding().reach;
const silent = finding({
  id: "node_silent:node-2",
  kind: "node_silent",
  subject: { type: "node", id: "node-2", name: "node-2" },
  sentence: "none of its 8 GPUs has reported for 2 min",
  evidence: [],
  reach: { ...reach, gpus: ["GPU-c", "GPU-d"], gpu_count: 12, concerned_gpus: 12, hostname: "node-2", namespace: null, pod: null, job: null },
});
const slow = finding({
  id: "straggler:GPU-b",
  kind: "straggler",
  severity: "warning",
  subject: { type: "gpu", id: "GPU-b", name: "node-1 / GPU 1" },
  sentence: "its clock is 23 % below that of its job",
  evidence: [{ quantity: "gpu_clock_mhz", unit: "MHz", value: 1530, compared_with: { value: 1980, origin: "median of the job" }, text: "GPU clock 1530 MHz against 1980 MHz, median of the job" }],
});
const three = findingsOf([silent, finding(), slow]);
const gpus = listOf([gpu({ id: "GPU-a", index: 6, state: "unhealthy", state_reason: "XID 63" }), gpu({ id: "GPU-b", index: 1 })]);
const items = () => [...document.querySelectorAll<HTMLElement>("[data-finding]")];
const headline = () => screen.findByRole("heading", { level: 1 });

describe("what is wrong now", () => {
  it("loads, and may fail, and is read again", async () => {
    const mock = mockApi({ [FINDINGS]: "never" });
    const { unmount } = renderAt("/");
    expect(screen.getByRole("status", { name: "Loading findings" })).toBeTruthy();
    unmount();
    mock.set(FINDINGS, { status: 500, body: { error: "internal", message: "disk on fire", code: "internal" } });
    renderAt("/");
    expect((await screen.findByRole("alert")).textContent).toContain("disk on fire");
    mock.set(FINDINGS, three);
    await userEvent.click(screen.getByRole("button", { name: "Retry" }));
    await waitFor(() => expect(items()).toHaveLength(3));
  });

  it("lets one be acknowledged with a note, and released", async () => {
    let silenced: ReturnType<typeof finding>["silenced"] = null;
    const mock = mockApi({
      [FINDINGS]: () => findingsOf([finding({ silenced })]),
      [SILENCES]: () => ({ body: { ...silenced, silences: [] } }),
    });
    renderAt("/");
    await userEvent.click(await screen.findByRole("button", { name: "Acknowledge" }));
    await userEvent.type(screen.getByRole("textbox", { name: "Who looks after it, and why" }), "Kim: drained");
    silenced = { type: "finding", id: "xid:GPU-a", at: new Date().toISOString(), until: null, note: "Kim: drained" };
    await userEvent.click(screen.getByRole("button", { name: "Acknowledge" }));
    expect(await screen.findByText("Kim: drained")).toBeTruthy();
    const asked = () => mock.asked.filter(({ path, method }) => path === SILENCES && method !== "GET");
    expect(asked().map(({ method, body }) => [method, JSON.parse(body) as unknown])).toEqual([["POST", { finding: "xid:GPU-a", note: "Kim: drained" }]]);
    silenced = null;
    await userEvent.click(screen.getByRole("button", { name: "Release" }));
    expect(await screen.findByRole("button", { name: "Acknowledge" })).toBeTruthy();
    expect(asked().map(({ method, params }) => [method, params.get("finding")])[1]).toEqual(["DELETE", "xid:GPU-a"]);
  });

  it("gives all that fit the filters as a file, as of the instant", async () => {
    const mock = mockApi({ [FINDINGS]: (params) => (params.get("limit") === "10000" ? { body: "id,kind\r\n" } : three) });
    renderAt("/?severity=critical&at=2026-11-20T03:00:00Z");
    const files = savedFiles();
    await userEvent.click(await screen.findByRole("button", { name: "CSV" }));
    await waitFor(() => expect(files).toHaveLength(1));
    expect(await files[0]?.text()).toBe("id,kind\r\n");
    const asked = mock.asked.find(({ path, params }) => path === FINDINGS && params.get("limit") === "10000")?.params;
    expect(Object.fromEntries(asked ?? [])).toEqual({ severity: "critical", limit: "10000", at: "2026-11-20T03:00:00.000Z" });
  });

  it("says of a file what it lacks, as its last line does", async () => {
    const cut = "id,kind\r\na,xid\r\n# 2 rows are left out: offset=10000 asks for the next.\r\n";
    mockApi({ [FINDINGS]: (params) => (params.get("limit") === "10000" ? { body: cut } : three) });
    renderAt("/");
    const files = savedFiles();
    await userEvent.click(await screen.findByRole("button", { name: "CSV" }));
    expect(await screen.findByText("The file is not whole. 2 rows are left out: offset=10000 asks for the next.")).toBeTruthy();
    expect(await files[0]?.text()).toBe(cut);
  });

  it("lets the host or job of one be silenced until a time, says what is silenced and takes it back", async () => {
    const until = new Date(Date.now() + 3_600_000).toISOString();
    const ofHost = { type: "host", id: "node-1", at: new Date().toISOString(), until, note: "Kim: board exchange" };
    let silences: (typeof ofHost)[] = [];
    const mock = mockApi({
      [FINDINGS]: () => findingsOf([finding({ silenced: silences[0] ?? null })]),
      [SILENCES]: () => ({ body: { ...ofHost, silences, judged_at: "" } }),
    });
    renderAt("/");
    await userEvent.click(await screen.findByRole("button", { name: "Acknowledge" }));
    const what = screen.getByRole("combobox", { name: "What" });
    expect(within(what).getAllByRole("option").map(({ textContent }) => textContent)).toEqual(["this finding", "all of host node-1", "all of job research/train-7"]);
    await userEvent.selectOptions(what, "all of host node-1");
    const when = screen.getByRole("combobox", { name: "Until when" });
    expect(within(when).queryByRole("option", { name: "until it closes" })).toBeNull();
    await userEvent.selectOptions(when, "for 1 hour");
    silences = [ofHost];
    await userEvent.click(screen.getByRole("button", { name: "Silence" }));
    expect((await screen.findByRole("note", { name: "Silences" })).textContent).toMatch(/^1 silence:host node-1 until .*\(Kim: board exchange\)/);
    const asked = () => mock.asked.filter(({ path, method }) => path === SILENCES && method !== "GET");
    const body = JSON.parse(asked()[0]?.body ?? "") as { host: string; until: string };
    expect(body.host).toBe("node-1");
    expect(Math.abs(Date.parse(body.until) - Date.now() - 3_600_000)).toBeLessThan(60_000);
    silences = [];
    await userEvent.click(screen.getAllByRole("button", { name: "Release host node-1" })[0] ?? document.body);
    await waitFor(() => expect(screen.queryByRole("note", { name: "Silences" })).toBeNull());
    expect(asked()[1]?.params.get("host")).toBe("node-1");
  });

  it("says what was silenced at an instant of the past, and lets nothing be changed there", async () => {
    const ofHost = { type: "host", id: "node-1", at: "2026-11-20T02:00:00Z", until: "2026-11-20T09:00:00Z", note: "" };
    const mock = mockApi({ [FINDINGS]: findingsOf([finding({ silenced: ofHost }), slow]), [SILENCES]: { body: { silences: [ofHost], judged_at: "" } } });
    renderAt("/?at=2026-11-20T03:00:00Z");
    expect((await screen.findByRole("note", { name: "Silences" })).textContent).toContain("host node-1");
    expect(await screen.findByText(/Silenced with host node-1/)).toBeTruthy();
    expect(screen.queryByRole("button", { name: /Release|Acknowledge/ })).toBeNull();
    expect(mock.asked.find(({ path }) => path === SILENCES)?.params.get("at")).toBe("2026-11-20T03:00:00.000Z");
  });

  it("says in the tab how many are critical, and what the page shows by its name", async () => {
    const at = new Date().toISOString();
    const detail = ok({ gpu: gpu({ id: "GPU-a", name: "node-1 / GPU 6" }), latest: {}, labels: { uuid: "GPU-a", partition: null }, first_seen: at });
    mockApi({ [FINDINGS]: (params) => (params.get("severity") === "critical" ? findingsOf([finding()], 2) : three), "/api/v1/gpus": gpus, "/api/v1/gpus/GPU-a": detail });
    renderAt("/");
    await waitFor(() => expect(document.title).toBe("2 critical findings · gpuvitals"));
    await userEvent.click((await screen.findAllByRole("link", { name: /GPU 6/ }))[0] ?? document.body);
    await waitFor(() => expect(document.title).toBe("2 critical findings · node-1 / GPU 6 · gpuvitals"));
  });

  it("says plainly that all is well", async () => {
    mockApi({ "/api/v1/gpus": listOf([gpu({ state: "idle" })]) });
    renderAt("/");
    expect(await screen.findByText("All is well")).toBeTruthy();
    expect(screen.getByRole("link", { name: "1 idle" })).toBeTruthy();
    expect(screen.queryByRole("search", { name: "Filters of the findings" })).toBeNull();
  });

  it("does not deny below a critical finding that something is critical", async () => {
    const mock = mockApi({ [FINDINGS]: findingsOf([silent]), "/api/v1/gpus": listOf([gpu({ state: "stale", judgement: "lost" }), gpu({ id: "GPU-b", state: "idle" })]) });
    const { unmount } = renderAt("/");
    expect(await screen.findByRole("link", { name: "1 lost" })).toBeTruthy();
    expect(screen.queryByRole("link", { name: /critical$/ })).toBeNull();
    unmount();
    mock.set("/api/v1/gpus", listOf([gpu({ state: "idle" })]));
    renderAt("/");
    expect(await screen.findByRole("link", { name: "0 critical" })).toBeTruthy();
  });

  it.each([
    ["not everything could be read", { ...findingsOf([]), headers: { "x-partial": "host b does not answer" } }, "host b does not answer"],
    ["it was judged long ago", { body: { ...(findingsOf([]).body as object), judged_at: "2026-11-20T10:00:00Z" } }, "last judged"],
  ])("does not say so where %s", async (_case, answer, words) => {
    mockApi({ [FINDINGS]: answer, "/api/v1/gpus": listOf([gpu()]) });
    renderAt("/");
    expect((await screen.findByRole("note", { name: "About this" })).textContent).toContain(words);
    expect(screen.queryByText("All is well")).toBeNull();
  });

  it("shows sentence, evidence, whom it concerns, since when, and what to do with the number of the GPU", async () => {
    mockApi({ [FINDINGS]: three, "/api/v1/gpus": gpus });
    renderAt("/");
    await waitFor(() => expect(screen.getByText("nvidia-smi --gpu-reset -i 6")).toBeTruthy());
    expect((await headline()).textContent).toBe("2 critical findings and 1 warning among 2 GPUs");
    expect(items().map((item) => item.dataset.kind)).toEqual(["node_silent", "xid", "straggler"]);
    const [first, second, third] = items().map((item) => item.textContent);
    expect(first).toMatch(/critical.*node-2.*None of its 8 GPUs.*GPU-c, GPU-d and 10 more/);
    expect(second).toMatch(/critical.*node-1 \/ GPU 6.*for 10 min.*XID 63.*Last XID 63.*research.*train-7.*1 GPU, in work of 8 GPUs/);
    expect(third).toMatch(/GPU clock 1,530 MHz against 1,980 MHz, median of the job/);
    expect(screen.getByText("for 10 min", { selector: "[data-kind=xid] *" }).title).toMatch(/\(\d{4}-.*Z\)/);
    const link = (name: RegExp) => screen.getByRole("link", { name }).getAttribute("href");
    expect(link(/GPU 6/)).toBe("/gpus/GPU-a?range=15m");
    expect(within(items()[0] ?? document.body).getAllByRole("link", { name: "node-2" })[0]?.getAttribute("href")).toBe("/hosts/node-2");
  });

  it("calls the GPUs of a finding as people do", async () => {
    const many = finding({ subject: { type: "job", id: "a/b/c", name: "c" }, reach: { ...reach, gpus: ["GPU-a", "GPU-x"], gpu_count: 2 } });
    mockApi({ [FINDINGS]: findingsOf([many]), "/api/v1/gpus": listOf([gpu({ id: "GPU-a", name: "node-1 / GPU 6" })]) });
    renderAt("/");
    const link = await screen.findByRole("link", { name: "node-1 / GPU 6" });
    expect([link.title, items()[0]?.textContent.includes("node-1 / GPU 6, GPU-x")]).toEqual(["GPU-a", true]);
  });

  it("says that a finding may have begun earlier than anybody looked", async () => {
    mockApi({ [FINDINGS]: findingsOf([finding({ since_at_least: true })]), "/api/v1/gpus": gpus });
    renderAt("/");
    await waitFor(() => expect(items()[0]?.textContent).toContain("for at least 10 min"));
  });

  it("copies a command, also where the page has no clipboard", async () => {
    mockApi({ [FINDINGS]: three, "/api/v1/gpus": gpus });
    renderAt("/");
    const user = userEvent.setup();
    await user.click((await screen.findAllByRole("button", { name: "Copy nvidia-smi --gpu-reset -i 6" }))[0] ?? document.body);
    expect(await navigator.clipboard.readText()).toBe("nvidia-smi --gpu-reset -i 6");
    vi.spyOn(navigator, "clipboard", "get").mockReturnValue(undefined as unknown as Clipboard);
    const copied: string[] = [];
    Object.assign(document, { execCommand: () => copied.push((document.activeElement as HTMLTextAreaElement).value) > 0 });
    await user.click(screen.getAllByRole("button", { name: /-i 6$|^Copied$/ })[0] ?? document.body);
    expect(copied).toEqual(["nvidia-smi --gpu-reset -i 6"]);
  });

  it("draws the one chart of a finding from one question, once it comes near the screen", async () => {
    const from = Math.floor(Date.now() / 60_000 - 12) * 60_000;
    const series = [
      { metric: "power_w", gpu: "GPU-a", hostname: "node-1", unit: "W", values: [600, 590, 80] },
      { metric: "power_w", gpu: "GPU-z", hostname: "node-1", unit: "W", values: [600, 600, 600] },
    ];
    FakeIntersectionObserver.isSeen = false;
    const catalogue = ok({ metrics: [metric("power_w", "W", "power"), metric("xid_last", "", "reliability", "state")] });
    const mock = mockApi({ [FINDINGS]: findingsOf([finding()]), "/api/v1/gpus": gpus, "/api/v1/metrics": catalogue, "/api/v1/query": ok({ times: [from, from + 60_000, from + 120_000], step_ms: 60_000, series }) });
    renderAt("/");
    await waitFor(() => expect(items()).toHaveLength(1));
    await screen.findByText("Last XID");
    const questions = () => mock.asked.filter(({ path, params }) => path === "/api/v1/query" && params.get("metrics") === "power_w");
    expect(questions()).toHaveLength(0);
    act(() => FakeIntersectionObserver.made.forEach((each) => each.move(true)));
    expect((await screen.findByRole("img", { name: /^Power; dotted: it began at .*\. Last 80 W$/ })).closest("[data-finding]")).toBe(items()[0]);
    expect(questions().map(({ params }) => [params.get("gpus"), params.has("hosts")])).toEqual([["GPU-a", false]]);
  });

  it("is filtered by the address, asks the server, and offers what there is", async () => {
    const mock = mockApi({ [FINDINGS]: (params) => (params.get("kind") === "fan_stopped" ? findingsOf([]) : three), "/api/v1/gpus": gpus });
    renderAt("/");
    await userEvent.selectOptions(await screen.findByRole("combobox", { name: "Severity" }), "warning");
    await userEvent.selectOptions(screen.getByRole("combobox", { name: "Node" }), "node-1 (2)");
    await userEvent.selectOptions(screen.getByRole("combobox", { name: "Namespace" }), "research");
    expect(window.location.search).toBe("?severity=warning&host=node-1&namespace=research");
    await waitFor(() => {
      const last = mock.asked.filter((request) => request.path === FINDINGS && request.params.has("severity")).at(-1)?.params;
      expect(Object.fromEntries(last ?? [])).toEqual({ severity: "warning", host: "node-1", namespace: "research", limit: "500" });
    });
    await userEvent.click(screen.getByRole("button", { name: "Clear filters" }));
    expect(window.location.search).toBe("");
    expect(screen.getByRole("option", { name: "Node silent (1)" })).toBeTruthy();
  });

  it("says that no finding fits the filters of a link, and takes them away", async () => {
    mockApi({ [FINDINGS]: (params) => (params.get("kind") === "fan_stopped" ? findingsOf([]) : three) });
    renderAt("/?kind=fan_stopped");
    await userEvent.click(await screen.findByRole("button", { name: "Show all findings" }));
    await waitFor(() => expect(items()).toHaveLength(3));
    expect(window.location.search).toBe("");
  });

  it("is walked and opened by keys", async () => {
    mockApi({ [FINDINGS]: three, "/api/v1/gpus": gpus });
    renderAt("/");
    await waitFor(() => expect(items()).toHaveLength(3));
    await userEvent.keyboard("jj{Enter}");
    await waitFor(() => expect(window.location.pathname).toBe("/gpus/GPU-a"));
    await userEvent.keyboard("n");
    expect(window.location.pathname).toBe("/");
  });

  it("keeps what it has when the API goes away, and says that it is old", async () => {
    const mock = mockApi({ [FINDINGS]: three, "/api/v1/gpus": gpus });
    const { client } = renderAt("/");
    await waitFor(() => expect(items()).toHaveLength(3));
    mock.goDown(true);
    await act(() => client.refetchQueries());
    expect(await screen.findByText(/^Not renewed: as of \d\d:\d\d:\d\d$/)).toBeTruthy();
    expect(items()).toHaveLength(3);
  });

  it("has a fleet that no answer holds counted by the server", async () => {
    const judgements = { ...judgementsOf([]), active: 12_000, idle: 34 };
    mockApi({ "/api/v1/gpus": ok({ gpus: [gpu()], judgements, total: 12_034, pagination: { limit: 10_000, offset: 0, has_next: true } }) });
    renderAt("/");
    expect(await screen.findByText(/^The first 1 of 12,034 GPUs by host/)).toBeTruthy();
    expect(await screen.findByRole("link", { name: "12,000 active" })).toBeTruthy();
  });

  it("says how many there are beyond those it shows", async () => {
    mockApi({ [FINDINGS]: findingsOf([finding()], 900) });
    renderAt("/");
    expect(await screen.findByText(/the worst 1 of 900/)).toBeTruthy();
    expect((await headline()).textContent).toBe("900 findings among 0 GPUs");
  });
});

describe("a screen on a wall", () => {
  it("has no controls, shows what is wrong one after another, and is left by Esc", async () => {
    vi.useFakeTimers({ shouldAdvanceTime: true });
    onTestFinished(() => void vi.useRealTimers());
    mockApi({ [FINDINGS]: three, "/api/v1/gpus": gpus });
    renderAt("/?tv");
    await waitFor(() => expect(items()).toHaveLength(1));
    expect([screen.queryByRole("navigation"), screen.queryByRole("combobox"), screen.queryByRole("banner")]).toEqual([null, null, null]);
    expect((await headline()).textContent).toBe("2 critical findings and 1 warning among 2 GPUs");
    const seen = new Set<string | undefined>();
    for (let turn = 0; turn < 3; turn += 1) {
      seen.add(items()[0]?.dataset.finding);
      await act(() => vi.advanceTimersByTimeAsync(15_000));
    }
    expect([...seen].sort()).toEqual(["node_silent:node-2", "straggler:GPU-b", "xid:GPU-a"]);
    await userEvent.setup({ advanceTimers: vi.advanceTimersByTime }).keyboard("{Escape}");
    await waitFor(() => expect(items()).toHaveLength(3));
    expect(window.location.search).toBe("");
  });
});

describe("a small fleet", () => {
  const QUERY = "/api/v1/query";
  const cards = () => [...document.querySelectorAll<HTMLElement>("[data-testid=cards] [data-gpu]")];

  it("has a card for each GPU, those that need somebody first, with vitals and their course from one question", async () => {
    const seen = new Date(Date.now() - 3 * 3_600_000).toISOString();
    const fleet = listOf([
      gpu({ id: "GPU-c", name: "node-1 / GPU 2", state: "idle", metrics: {} }),
      gpu({ id: "GPU-b", name: "node-1 / GPU 10", metrics: { power_w: 350, power_limit_w: 700 } }),
      gpu({ id: "GPU-a", name: "node-1 / GPU 6", state: "stale", judgement: "lost", last_seen: seen }),
    ]);
    const series = [{ metric: "power_w", gpu: "GPU-b", hostname: "node-1", unit: "W", values: [300, 350] }];
    const mock = mockApi({ "/api/v1/gpus": fleet, [QUERY]: ok({ times: [0, 15_000], step_ms: 15_000, series }) });
    renderAt("/");
    await waitFor(() => expect(cards().map((card) => card.dataset.gpu)).toEqual(["GPU-a", "GPU-c", "GPU-b"]));
    const [first, second, third] = cards();
    expect([first?.dataset.old, first?.textContent]).toEqual(["", expect.stringMatching(/lost.*last seen 3 h ago/)]);
    expect(second?.textContent).toContain("Power–");
    expect(within(third ?? document.body).getByRole("meter", { name: "Power" }).getAttribute("aria-valuenow")).toBe("50");
    expect(await within(third ?? document.body).findByRole("img", { name: /^Power over/ })).toBeTruthy();
    const asked = mock.asked.filter(({ path, params }) => path === QUERY && params.get("gpus")?.includes(",") === true);
    expect(asked.map(({ params }) => params.get("metrics"))).toEqual(["utilization_pct,power_w,temperature_c,memory_used_mb"]);
  });

  it("is one that a person can look at: of a larger one there are cells alone", async () => {
    mockApi({ "/api/v1/gpus": listOf(Array.from({ length: 33 }, (_, place) => gpu({ id: `GPU-${place}` }))) });
    renderAt("/");
    expect(await screen.findByText("All is well")).toBeTruthy();
    expect(cards()).toEqual([]);
  });
});

describe("what is coming", () => {
  const TRENDS = "/api/v1/analysis/trends";
  const soon = (hours: number) => new Date(Date.now() + hours * 3_600_000).toISOString();
  /** Memory that runs full sooner than the GPUs get too hot. */
  const trends: Handler = (params) =>
    trendsOf(params, [
      trend({ gpu: "GPU-b", name: "node-1 / GPU 7", metric: "memory_used_mb", unit: "MiB", level: 71_680, per_day: 7168, limit: 81_920, reaches_limit_at: soon(7.5) }),
      trend(),
      trend({ gpu: "late", reaches_limit_at: soon(24 * 9) }),
      trend({ gpu: "falls", per_day: -3 }),
      trend({ gpu: "boundless", limit: null, reaches_limit_at: null }),
    ]);
  const region = () => screen.findByRole("region", { name: "What is coming" });

  it("is what reaches its limit within a week, the nearest first, with the way to its chart", async () => {
    const mock = mockApi({ [TRENDS]: trends });
    renderAt("/");
    await waitFor(async () => expect(within(await region()).getAllByRole("listitem")).toHaveLength(2));
    const lines = within(await region()).getAllByRole("listitem").map((line) => line.textContent);
    expect(lines).toEqual([
      "node-1 / GPU 7: Memory used 70 GiB rises by 7 GiB a day and reaches its limit of 80 GiB in 7 h",
      "node-1 / GPU 6: Temperature 82 °C rises by 3 °C a day and reaches its limit of 89 °C in 2 d",
    ]);
    expect(within(await region()).getByRole("link", { name: "node-1 / GPU 7" }).getAttribute("href")).toBe("/gpus/GPU-b?range=7d");
    const ends = mock.asked.filter(({ path }) => path === TRENDS).map(({ params }) => params.get("end"));
    expect(ends.length).toBeGreaterThan(0);
    // Whole hours: the server answers all pages of an hour from its cache.
    expect(ends.every((end) => /:00:00.000Z$/.test(end ?? ""))).toBe(true);
  });

  it("is cut to what is read at a glance", async () => {
    const many = Array.from({ length: 11 }, (_, place) => trend({ gpu: `GPU-${place}` }));
    mockApi({ [TRENDS]: (params) => trendsOf(params, many) });
    renderAt("/");
    expect(await screen.findByText("and 3 more within a week")).toBeTruthy();
    expect(within(await region()).getAllByRole("listitem")).toHaveLength(8);
  });

  it.each([
    ["nothing rises", (params: URLSearchParams) => trendsOf(params, [])],
    ["no history is kept", { status: 404, body: { error: "not found", message: "not kept", code: "not_kept" } }],
  ] as const)("is nothing where %s", async (_name, answer) => {
    mockApi({ [FINDINGS]: three, "/api/v1/gpus": gpus, [TRENDS]: answer });
    const { client } = renderAt("/");
    await waitFor(() => expect(items()).toHaveLength(3));
    await waitFor(() => expect(client.isFetching()).toBe(0));
    expect(screen.queryByRole("region", { name: "What is coming" })).toBeNull();
  });

  it("says what could not be read", async () => {
    const broken = { status: 500, body: { error: "internal", message: "disk on fire", code: "internal" } };
    mockApi({ [TRENDS]: broken });
    renderAt("/");
    expect(await screen.findByText("Trends could not be read: disk on fire")).toBeTruthy();
  });
});
