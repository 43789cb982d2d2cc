import { act, screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Gpu } from "../../api/client";
import { FakeEventSource } from "../../testing/FakeEventSource";
import { FakePlot } from "../../testing/FakePlot";
import { savedFiles } from "../../testing/files";
import { anomaliesOf, finding, findingsOf, gpu, listOf, metric, mockApi, ok, trend, trendsOf, type Handler } from "../../testing/mockApi";
import { renderAt } from "../../testing/render";

const ID = gpu().id;
const PATH = `/api/v1/gpus/${ID}`;
const LABELS = { source: "csv", pod: null };
const NOW = () => new Date().toISOString();

function detail(part: Partial<Gpu> = {}, at = NOW(), first_seen = at): Handler {
  const latest = {
    power_w: { value: 512.25, timestamp: at },
    utilization_pct: { value: 87, timestamp: at },
    power_limit_w: { value: 700, timestamp: at },
    foreign_thing: { value: 4, timestamp: at },
  };
  return ok({ gpu: gpu({ last_seen: at, ...part }), latest, labels: LABELS, first_seen });
}

/** Three buckets that end now: a value, a gap, a value. */
const history: Handler = (params) => {
  const end = Math.floor(Date.parse(params.get("end") ?? "") / 5000) * 5000;
  const metrics = (params.get("metrics") ?? "").split(",");
  const series = metrics.map((metric) => ({ metric, gpu: ID, hostname: "node-1", unit: "W", values: [500, null, 510] }));
  return ok({ times: [end - 15_000, end - 10_000, end - 5000], series, step_ms: 5000 });
};

const chart = (panel: string) => document.querySelector(`[data-panel="${panel}"]`);

describe("the page of a GPU", () => {
  it("says that it loads", () => {
    mockApi({ [PATH]: "never" });
    renderAt(`/gpus/${ID}`);
    expect(screen.getByRole("status", { name: "Loading the GPU" })).toBeTruthy();
  });

  it("says when there is no such GPU", async () => {
    mockApi();
    renderAt("/gpus/..%2F..%2Fx");
    expect(await screen.findByText("No such GPU")).toBeTruthy();
    expect(screen.getByText("../../x")).toBeTruthy();
  });

  it("shows why it could not be read, and reads it again", async () => {
    const mock = mockApi({ [PATH]: { status: 500, body: { error: "internal", message: "disk on fire", code: "internal" } } });
    renderAt(`/gpus/${ID}`);
    expect((await screen.findByRole("alert")).textContent).toContain("disk on fire");
    mock.set(PATH, detail());
    await userEvent.click(screen.getByRole("button", { name: "Retry" }));
    expect(await screen.findByRole("heading", { name: /H100/ })).toBeTruthy();
  });

  it("draws a chart for each group of the catalogue, with gaps, and lists unknown columns", async () => {
    mockApi({ [PATH]: detail(), "/api/v1/query": history });
    renderAt(`/gpus/${ID}`);
    await waitFor(() => expect(chart("power-W-0")?.getAttribute("data-points")).toBe("2"));
    expect(chart("utilization-%-0")).toBeTruthy();
    const plot = () => FakePlot.made.find((made) => made.options.series[1]?.label === "power_w" && made.destroyed === 0);
    await waitFor(() => expect(plot()?.fed.at(-1)?.[1]).toEqual([500, null, 510]));
    const latest = within(screen.getByRole("region", { name: "Latest values" }));
    expect(latest.getByText("512 W")).toBeTruthy();
    expect(latest.getByText("700 W")).toBeTruthy();
    expect(latest.getByText("Other columns")).toBeTruthy();
    expect(latest.getByText("Foreign thing")).toBeTruthy();
    const files = savedFiles();
    await userEvent.click(latest.getByRole("button", { name: "CSV" }));
    await waitFor(() => expect(files).toHaveLength(1));
    expect(await files[0]?.text()).toMatch(/^metric,unit,value,read_at\r\n(.*\r\n)*power_w,W,512\.25,20\S+Z\r\n/);
  });

  it("begins with what is wrong with it, and with the chart that shows it", async () => {
    const evidence = [{ quantity: "power_w", unit: "W", value: 512, compared_with: { value: 700, origin: "median of the job" }, text: "power 512 W against 700 W, median of the job" }];
    const own = finding({ kind: "straggler", subject: { type: "gpu", id: ID, name: "node-1 / GPU 0" }, evidence });
    const mock = mockApi({ [PATH]: detail({ index: 3 }), "/api/v1/query": history, "/api/v1/analysis/findings": findingsOf([own]) });
    renderAt(`/gpus/${ID}`);
    const findings = await screen.findByRole("region", { name: "Findings" });
    expect(findings.textContent).toMatch(/critical.*Straggler.*Power 512 W against 700 W, median of the job.*nvidia-smi --gpu-reset -i 3/);
    expect(within(findings).queryByRole("link", { name: /GPU 0/ })).toBeNull();
    expect(mock.asked.find(({ path, params }) => path === "/api/v1/analysis/findings" && !params.has("severity"))?.params.get("gpus")).toBe(ID);
    await waitFor(() => expect(document.querySelector('[data-evidence="true"]')).toBeTruthy());
    const panels = [...document.querySelectorAll("[data-panel]")].map((panel) => [panel.getAttribute("data-panel"), panel.getAttribute("data-evidence")]);
    expect(panels).toEqual([["power-W-0", "true"], ["utilization-%-0", "false"], ["temperature-°C-0", "false"]].slice(0, panels.length));
  });

  it("names the bits of a mask and draws no mean of them", async () => {
    const at = NOW();
    const mask = { ...metric("throttle_reasons", "", "throttle", "state"), bits: [{ bit: 5, name: "software thermal slowdown" }] };
    mockApi({
      [PATH]: ok({ gpu: gpu(), latest: { throttle_reasons: { value: 32, timestamp: at } }, labels: LABELS, first_seen: at }),
      "/api/v1/metrics": ok({ metrics: [mask] }),
      "/api/v1/query": history,
    });
    renderAt(`/gpus/${ID}`);
    const latest = within(await screen.findByRole("region", { name: "Latest values" }));
    expect(await latest.findByText("software thermal slowdown")).toBeTruthy();
    expect(latest.queryByText("32")).toBeNull();
    expect(document.querySelector("[data-panel]")).toBeNull();
  });

  it("builds each plot once, feeds it, and destroys it once", async () => {
    mockApi({ [PATH]: detail(), "/api/v1/query": history });
    const { unmount, client } = renderAt(`/gpus/${ID}`);
    await waitFor(() => expect(FakePlot.made).toHaveLength(2));
    await act(() => client.refetchQueries());
    expect(FakePlot.made).toHaveLength(2);
    unmount();
    expect(FakePlot.made.map((made) => made.destroyed)).toEqual([1, 1]);
  });

  it("says when a range is empty, and when nothing was ever read", async () => {
    const mock = mockApi({ [PATH]: detail(), "/api/v1/query": ok({ times: [], series: [], step_ms: 5000 }) });
    const { client } = renderAt(`/gpus/${ID}?live=0`);
    expect((await screen.findAllByText("No values in this range")).length).toBeGreaterThan(0);
    mock.set(PATH, ok({ gpu: gpu(), latest: {}, labels: LABELS, first_seen: NOW() }));
    await act(() => client.refetchQueries());
    expect(await screen.findByText("No values yet")).toBeTruthy();
  });

  it("shows why the history could not be read while the rest stands", async () => {
    const body = { error: "bad request", message: "7 d at 1 ms is too much: choose a step of 1 min", code: "too_many_points" };
    mockApi({ [PATH]: detail(), "/api/v1/query": { status: 400, body } });
    renderAt(`/gpus/${ID}`);
    expect((await screen.findByRole("alert")).textContent).toContain("choose a step of 1 min");
    expect(screen.getByRole("heading", { name: /H100/ })).toBeTruthy();
  });

  it.each([
    ["unhealthy", "XID 79"],
    ["stale", "stale since 2026-11-20T16:01:30Z, last seen unhealthy: XID 79"],
  ] as const)("says why a GPU is %s", async (state, state_reason) => {
    mockApi({ [PATH]: detail({ state, state_reason }) });
    renderAt(`/gpus/${ID}`);
    expect(await screen.findByText(state_reason)).toBeTruthy();
  });

  it("says that the charts are old when they could not be renewed", async () => {
    const mock = mockApi({ [PATH]: detail(), "/api/v1/query": history });
    const { client } = renderAt(`/gpus/${ID}`);
    await waitFor(() => expect(chart("power-W-0")?.getAttribute("data-points")).toBe("2"));
    mock.set("/api/v1/query", { status: 503, body: { error: "unavailable", message: "too busy", code: "busy" } });
    await act(() => client.refetchQueries());
    expect((await screen.findByRole("note", { name: "Not renewed" })).textContent).toMatch(/^Not renewed: as of \d\d:\d\d:\d\d\. too busy$/);
    expect(chart("power-W-0")?.getAttribute("data-points")).toBe("2");
  });

  it("says what of a range could not be read", async () => {
    mockApi({ [PATH]: detail(), "/api/v1/query": ok({ times: [], series: [], step_ms: 5000, partial: ["file 7 is damaged"] }) });
    renderAt(`/gpus/${ID}`);
    expect((await screen.findByRole("note", { name: "Incomplete" })).textContent).toContain("file 7 is damaged");
  });

  it("draws what the stream brings where no history is kept, and says why there is nothing older", async () => {
    const body = { error: "not found", message: "this is not kept: collector.sinks has no store", code: "not_kept" };
    mockApi({ [PATH]: detail(), "/api/v1/query": { status: 404, body } });
    renderAt(`/gpus/${ID}`);
    expect((await screen.findByRole("note", { name: "Incomplete" })).textContent).toContain("collector.sinks has no store");
    expect(screen.getByText("No values in this range")).toBeTruthy();
    act(() => FakeEventSource.made.at(-1)?.send([{ gpu_id: ID, hostname: "node-1", metrics: { power_w: 9 }, timestamp: NOW() }]));
    await waitFor(() => expect(chart("power-W-0")?.getAttribute("data-points")).toBe("1"));
  });

  it("asks for many metrics in parts that the server takes", async () => {
    const many = Array.from({ length: 100 }, (_, n) => `m${n}`);
    const latest = Object.fromEntries(many.map((column) => [column, { value: 1, timestamp: NOW() }]));
    const metrics = many.map((column) => metric(column, "W", "power"));
    const mock = mockApi({
      [PATH]: ok({ gpu: gpu(), latest, labels: LABELS, first_seen: NOW() }),
      "/api/v1/metrics": ok({ metrics }),
      "/api/v1/query": history,
    });
    renderAt(`/gpus/${ID}`);
    await waitFor(() => expect(document.querySelectorAll('[data-testid="chart"]').length).toBe(17));
    const sizes = mock.asked.filter((request) => request.path === "/api/v1/query").map((request) => request.params.get("metrics")?.split(",").length);
    expect(sizes.slice(0, 2)).toEqual([64, 36]);
  });

  it("says that a GPU is simulated", async () => {
    mockApi({ [PATH]: detail({ simulated: true }) });
    renderAt(`/gpus/${ID}`);
    expect(await screen.findByRole("note", { name: "Simulated data" })).toBeTruthy();
    expect(screen.getByText("simulated", { selector: ".badge" })).toBeTruthy();
  });
});

describe("where it goes", () => {
  const usual = (median: number) => ({ median, deviation: 10, count: 7, distance: -24 });
  const anomalies: Handler = (params) => {
    const one = { gpu: ID, name: "node-1 / GPU 0", metric: "power_w", unit: "W", value: 260, score: 24, sentence: "power of 260 W is below 500 W", own: usual(500), peers: usual(540) };
    // Without days of its own it is unlike its peers.
    const ofThis = [one, { ...one, metric: "temperature_c", unit: "°C", sentence: "temperature is above its peers", own: null }];
    return anomaliesOf(params, params.get("gpus") === ID ? ofThis : [{ ...one, gpu: "other" }]);
  };

  it("is said of this GPU alone, and the chart that shows it stands first", async () => {
    const trends: Handler = (params) => trendsOf(params, [trend({ gpu: params.get("gpus") ?? "other" })]);
    const latest = Object.fromEntries(["power_w", "utilization_pct", "temperature_c"].map((column) => [column, { value: 1, timestamp: NOW() }]));
    const known = ok({ gpu: gpu(), latest, labels: LABELS, first_seen: NOW() });
    mockApi({ [PATH]: known, "/api/v1/query": history, "/api/v1/analysis/trends": trends, "/api/v1/analysis/anomalies": anomalies });
    renderAt(`/gpus/${ID}`);
    const list = await screen.findByRole("list", { name: "Trends and anomalies" });
    await waitFor(() => expect(within(list).getAllByRole("listitem")).toHaveLength(3));
    expect(list.textContent).toMatch(/^Temperature 82 °C rises by 3 °C a day and reaches its limit of 89 °C in 2 dIn the hour to \d\d:\d\d power of 260 W is below 500 WIn the hour to \d\d:\d\d temperature is above its peers$/);
    await waitFor(() => expect(document.querySelector("[data-panel]")?.getAttribute("data-panel")).toBe("temperature-°C-0"));
  });

  it("is nothing where nothing is known", async () => {
    mockApi({ [PATH]: detail(), "/api/v1/query": history });
    const { client } = renderAt(`/gpus/${ID}`);
    await screen.findByRole("heading", { name: /H100/ });
    await waitFor(() => expect(client.isFetching()).toBe(0));
    expect(screen.queryByRole("list", { name: "Trends and anomalies" })).toBeNull();
  });

  it("says that a young history is not judged", async () => {
    mockApi({ [PATH]: detail(), "/api/v1/query": history, "/api/v1/analysis/anomalies": (params) => anomaliesOf(params, [], "the history is too young") });
    renderAt(`/gpus/${ID}`);
    const list = await screen.findByRole("list", { name: "Trends and anomalies" });
    expect(list.textContent).toBe("No value is judged as unusual: the history is too young.");
  });

  it("says what could not be read", async () => {
    const broken = (message: string) => ({ status: 500, body: { error: "internal", message, code: "internal" } });
    mockApi({ [PATH]: detail(), "/api/v1/query": history, "/api/v1/analysis/trends": broken("disk on fire"), "/api/v1/analysis/anomalies": broken("disk gone") });
    renderAt(`/gpus/${ID}`);
    const list = await screen.findByRole("list", { name: "Trends and anomalies" });
    await waitFor(() => expect(list.textContent).toBe("Trends could not be read: disk on fireUnusual values could not be read: disk gone"));
  });
});

describe("marks above the charts", () => {
  const EVENTS = `${PATH}/telemetry`;
  const FROM = Date.parse("2026-11-20T10:00:00Z");
  const at = (seconds: number) => new Date(FROM + seconds * 1000).toISOString();
  const event = (seconds: number, metrics: object) => ({ gpu_id: ID, hostname: "node-1", timestamp: at(seconds), metrics });
  const rows = [
    event(50, { kind: "finding_closed", detail: "the fan stands still", finding: `fan:${ID}` }),
    event(40, { kind: "throttle", detail: "power" }),
    event(30, { kind: "finding_opened", detail: "XID 63", finding: `xid:${ID}` }),
    event(20, { kind: "xid", detail: "XID 63", code: 63 }),
    event(10, { kind: "lost" }),
  ];
  const events = (total = rows.length) => ok({ data: rows, total, pagination: { limit: 1000, offset: 0, has_next: false } });
  const flag = metric("throttled", "", "throttle", "state");
  const steps: Handler = (params) => {
    const columns = (params.get("metrics") ?? "").split(",");
    const series = columns.flatMap((column) => ["mean", "min", "max", "last"].map((aggregate) => ({ metric: column, aggregate, gpu: ID, values: aggregate === "max" ? [0, 1, 1] : aggregate === "last" ? [0, 0, 2] : [0, 0.1, 0] })));
    return ok({ times: [0, 1, 2].map((step) => FROM + step * 10_000), series, step_ms: 10_000 });
  };
  const handlers = {
    [PATH]: ok({ gpu: gpu({ id: ID }), latest: { throttled: { value: 0, timestamp: NOW() }, power_w: { value: 1, timestamp: NOW() }, performance_state: { value: 2, timestamp: NOW() } }, labels: LABELS, first_seen: at(0) }),
    "/api/v1/metrics": ok({ metrics: [flag, metric("power_w", "W", "power"), metric("performance_state", "", "clock", "state")] }),
    "/api/v1/query": steps,
    "/api/v1/analysis/findings": findingsOf([finding({ id: `xid:${ID}`, kind: "xid", severity: "critical" })]),
  };
  const renderHour = () => renderAt(`/gpus/${ID}?from=${at(0)}&to=${at(3600)}`);

  it("say when it was throttled, however briefly, and what happened in the range, also in words", async () => {
    const mock = mockApi({ ...handlers, [EVENTS]: events() });
    renderHour();
    const marks = await screen.findByRole("region", { name: "Marks above the charts" });
    await waitFor(() => expect(marks.textContent).toContain("4 events"));
    expect(marks.textContent).toContain("Throttled for up to 20 s of this range");
    await waitFor(() => expect(marks.textContent).toContain("1 change of codes"));
    expect(marks.textContent).toContain("Performance state: 0 → 2");
    // A code is a mark and never a line.
    expect([...document.querySelectorAll("[data-panel]")].map((panel) => panel.getAttribute("data-panel"))).toEqual(["power-W-0"]);
    const listed = within(screen.getByText(/4 events/).closest("details") as HTMLElement);
    const said = listed.getAllByRole("listitem", { hidden: true }).map((item) => item.textContent.replace(/^\S+ \S+ /, ""));
    expect(said).toEqual([" Lost", "critical XID 63", "critical Finding opened: XID 63", " Finding closed: the fan stands still"]);
    const asked = mock.asked.find(({ path }) => path === EVENTS)?.params;
    expect([asked?.get("table"), asked?.get("start_time"), asked?.get("end_time")]).toEqual(["gpu_health_events", at(0), at(3600)]);
  });

  it("are named under the cursor", async () => {
    mockApi({ ...handlers, [EVENTS]: events() });
    renderHour();
    await waitFor(() => expect(chart("power-W-0")?.getAttribute("data-points")).toBe("3"));
    await screen.findByText(/4 events/);
    const plot = FakePlot.made.find((made) => made.destroyed === 0);
    act(() => plot?.options.hooks?.setCursor?.[0]?.({ cursor: { idx: 1 } } as never));
    const caption = within(chart("power-W-0") as HTMLElement);
    expect(caption.getByText("throttled")).toBeTruthy();
    // As near as a hundredth of the hour.
    expect(caption.getByTestId("near").textContent).toBe("LostXID 63Finding opened: XID 63Performance state: 0 → 2");
    act(() => plot?.options.hooks?.setCursor?.[0]?.({ cursor: { idx: 0 } } as never));
    expect(caption.queryByText("throttled")).toBeNull();
  });

  it("are drawn again when they change", async () => {
    const mock = mockApi({ ...handlers, [EVENTS]: ok({ data: [], total: 0, pagination: { limit: 1000, offset: 0, has_next: false } }) });
    const { client } = renderHour();
    await screen.findByText(/Throttled for up to/);
    await waitFor(() => expect(FakePlot.made.some((made) => made.destroyed === 0)).toBe(true));
    const plot = FakePlot.made.find((made) => made.destroyed === 0);
    const before = plot?.fed.length ?? 0;
    mock.set(EVENTS, events());
    await act(() => client.refetchQueries({ queryKey: ["events"] }));
    await screen.findByText(/4 events/);
    expect(plot?.fed.length).toBeGreaterThan(before);
  });

  it.each([
    ["are cut to the newest", events(2000), "Events may be missing: these are the newest 5 of 2,000 rows"],
    ["could not be read", { status: 500, body: { error: "internal", message: "disk on fire", code: "internal" } }, "Events could not be read: disk on fire"],
  ] as const)("say when they %s", async (_name, answer, words) => {
    mockApi({ ...handlers, [EVENTS]: answer });
    renderHour();
    expect(await screen.findByText(words)).toBeTruthy();
  });

  it("are missing without a word where no such rows are kept", async () => {
    mockApi({ ...handlers, [EVENTS]: { status: 404, body: { error: "not found", message: "not kept", code: "not_kept" } } });
    const { client } = renderHour();
    const marks = await screen.findByRole("region", { name: "Marks above the charts" });
    await waitFor(() => expect(client.isFetching()).toBe(0));
    expect(marks.textContent).toMatch(/^Throttled for up to 20 s of this range 1 change of codes\S+ \S+ {2}Performance state: 0 → 2$/);
  });
});

it("names the GPUs of a finding about several as people know them", async () => {
  const job = finding({ id: "job_hung:a", kind: "job_hung", subject: { type: "job", id: "a", name: "train-7" }, reach: { ...finding().reach, gpus: [ID, "GPU-b", "GPU-gone"], gpu_count: 3 } });
  const mock = mockApi({ [PATH]: detail(), "/api/v1/gpus/GPU-b": ok({ gpu: gpu({ id: "GPU-b", name: "node-2 / GPU 6" }), latest: {}, labels: {}, first_seen: NOW() }), "/api/v1/query": history, "/api/v1/analysis/findings": findingsOf([job]) });
  renderAt(`/gpus/${ID}`);
  const names = async () => within(await screen.findByRole("region", { name: "Findings" })).getAllByRole("link").map(({ textContent }) => textContent);
  await waitFor(async () => expect(await names()).toEqual(expect.arrayContaining(["node-1 / GPU 0", "node-2 / GPU 6", "GPU-gone"])));
  expect(mock.asked.filter(({ path }) => path === "/api/v1/gpus/GPU-b")).toHaveLength(1);
});

describe("a recording", () => {
  const AT = "2025-07-18T20:42:34.000Z";
  it("says when the GPU was last seen and looks at that time", async () => {
    const mock = mockApi({ [PATH]: detail({ state: "stale" }, AT), "/api/v1/query": history });
    renderAt(`/gpus/${ID}`);
    const age = await screen.findByRole("note", { name: "Age of the data" });
    // As everywhere: an age, with the instant where the pointer rests.
    expect(age.textContent).toMatch(/^Last seen \d+ d ago\. Ranges end there, not now\.$/);
    expect(within(age).getByTitle(/^2025-07-18 /)).toBeTruthy();
    await waitFor(() => expect(mock.asked.some((request) => request.path === "/api/v1/query")).toBe(true));
    const asked = mock.asked.find((request) => request.path === "/api/v1/query")?.params;
    expect(asked?.get("start")).toBe("2025-07-18T20:42:29.000Z");
    expect(asked?.get("end")).toBe("2025-07-18T20:42:39.000Z");
    expect(FakeEventSource.made).toHaveLength(0);
  });

  it("ends the ranges of a long recording at its last sample", async () => {
    const mock = mockApi({ [PATH]: detail({ state: "stale" }, AT, "2025-07-10T00:00:00Z"), "/api/v1/query": history });
    renderAt(`/gpus/${ID}`);
    await waitFor(() => expect(mock.asked.find((request) => request.path === "/api/v1/query")?.params.get("end")).toBe(AT));
    expect(screen.getByRole("button", { name: "Last 1 hour" }).getAttribute("aria-pressed")).toBe("true");
  });
});

describe("live", () => {
  const sample = (power_w: number) => [{ gpu_id: ID, hostname: "node-1", metrics: { power_w }, timestamp: NOW() }];

  it("shows samples as they arrive, in tile, table and chart", async () => {
    mockApi({ [PATH]: detail(), "/api/v1/query": history });
    renderAt(`/gpus/${ID}`);
    await waitFor(() => expect(chart("power-W-0")?.getAttribute("data-points")).toBe("2"));
    const source = FakeEventSource.made.at(-1);
    act(() => source?.open());
    act(() => source?.send(sample(333)));
    expect(document.querySelector('[data-metric="power_w"]')?.textContent).toContain("333");
    expect(chart("power-W-0")?.getAttribute("data-points")).toBe("3");
    expect(screen.getByTestId("gpu").getAttribute("data-live")).toBe("live");
  });

  it("says what the stream lacks, until a new connection lacks nothing", async () => {
    mockApi({ [PATH]: detail(), "/api/v1/query": history });
    renderAt(`/gpus/${ID}`);
    await waitFor(() => expect(chart("power-W-0")?.getAttribute("data-points")).toBe("2"));
    const source = FakeEventSource.made.at(-1);
    act(() => source?.open());
    act(() => source?.send(["host b does not answer"], "partial"));
    act(() => source?.send(sample(333)));
    expect(screen.getByRole("note", { name: "Incomplete" }).textContent).toContain("host b does not answer");
    act(() => source?.open());
    expect(screen.queryByRole("note", { name: "Incomplete" })).toBeNull();
  });

  it("draws and streams a GPU by any of its names", async () => {
    const mock = mockApi({ "/api/v1/gpus/node-1%3Agpu0": detail(), "/api/v1/query": history });
    renderAt("/gpus/node-1:gpu0");
    await waitFor(() => expect(chart("power-W-0")?.getAttribute("data-points")).toBe("2"));
    expect(mock.asked.find((request) => request.path === "/api/v1/query")?.params.get("gpus")).toBe(ID);
    const source = FakeEventSource.made.at(-1);
    expect(FakeEventSource.made).toHaveLength(1);
    expect(source?.url).toContain(`gpus=${ID}`);
    act(() => source?.open());
    act(() => source?.send(sample(333)));
    expect(chart("power-W-0")?.getAttribute("data-points")).toBe("3");
  });

  it("says when it must poll, and stops saying so when the stream is back", async () => {
    mockApi({ [PATH]: detail(), "/api/v1/query": history });
    renderAt(`/gpus/${ID}`);
    await waitFor(() => expect(FakeEventSource.made.length).toBeGreaterThan(0));
    const source = FakeEventSource.made.at(-1);
    act(() => source?.fail());
    expect(screen.getByText(/asking every few seconds instead/)).toBeTruthy();
    act(() => source?.open());
    expect(screen.queryByText(/asking every few seconds instead/)).toBeNull();
  });

  it("is switched off by hand and closes the stream", async () => {
    mockApi({ [PATH]: detail(), "/api/v1/query": history });
    renderAt(`/gpus/${ID}`);
    await userEvent.click(await screen.findByRole("button", { name: "Live" }));
    expect(window.location.search).toBe("?live=0");
    expect(screen.getByTestId("gpu").getAttribute("data-live")).toBe("off");
    expect(FakeEventSource.made.at(-1)?.readyState).toBe(FakeEventSource.CLOSED);
  });
});

describe("beside its peers", () => {
  const peer = (id: string, part: Partial<Gpu> = {}) => gpu({ id, ...part });
  const neighbours = listOf([gpu(), peer("p-1"), peer("p-2"), peer("other", { model: "A100" })]);
  const both: Handler = (params) => {
    const times = [0, 1, 2].map((place) => Math.floor(Date.parse(params.get("end") ?? "") / 5000) * 5000 - 15_000 + place * 5000);
    const isPeers = params.get("group_by") === "all";
    const series = (params.get("metrics") ?? "").split(",").flatMap((metric) =>
      (params.get("aggregate") ?? "").split(",").map((aggregate) => ({ metric, aggregate, gpu: isPeers ? null : ID, values: aggregate === "min" ? [490, null, 500] : aggregate === "max" ? [520, null, 530] : isPeers ? [300, 310, 320] : [500, null, 510] })),
    );
    return ok({ times, series, step_ms: 5000 });
  };
  const powerPlot = () => FakePlot.made.find((made) => made.options.series[1]?.label === "power_w" && made.destroyed === 0);

  it("draws how far the values went and the median of the GPUs of its host and model", async () => {
    const mock = mockApi({ [PATH]: detail(), "/api/v1/query": both, "/api/v1/gpus": neighbours });
    renderAt(`/gpus/${ID}?live=0`);
    await waitFor(() => expect(chart("power-W-0")?.textContent).toContain("peers 320 W"));
    expect(screen.getByRole("button", { name: "Peers (2)" }).getAttribute("aria-pressed")).toBe("true");
    const asked = mock.asked.find(({ params }) => params.get("group_by") === "all")?.params;
    expect([asked?.get("gpus"), asked?.get("aggregate")]).toEqual(["p-1,p-2", "p50"]);
    expect(mock.asked.find(({ path, params }) => path === "/api/v1/gpus" && params.get("limit") === "10000")?.params.get("host")).toBe("node-1");
    // The line, its lower and upper edge, the ghost.
    await waitFor(() => expect(powerPlot()?.fed.at(-1)?.slice(1)).toEqual([[500, null, 510], [490, null, 500], [520, null, 530], [300, 310, 320]]));
    expect(powerPlot()?.options.bands).toMatchObject([{ series: [3, 2] }]);
    await userEvent.click(screen.getByRole("button", { name: "Peers (2)" }));
    expect(window.location.search).toBe("?live=0&peers=0");
    expect(powerPlot()?.options.series).toHaveLength(4);
    expect(chart("power-W-0")?.textContent).not.toContain("peers");
  });

  it("has no band behind anything but the mean, and stands alone where it has no peers", async () => {
    const mock = mockApi({ [PATH]: detail(), "/api/v1/query": both, "/api/v1/gpus": listOf([gpu()]) });
    renderAt(`/gpus/${ID}?live=0&aggregate=max`);
    await waitFor(() => expect(powerPlot()?.fed.at(-1)?.[1]).toEqual([520, null, 530]));
    expect(powerPlot()?.options.bands).toEqual([]);
    expect(screen.getByRole("button", { name: "Peers" })).toBeTruthy();
    expect(mock.asked.some(({ params }) => params.get("group_by") === "all")).toBe(false);
  });
});

describe("why it was slow", () => {
  const WHY = `/api/v1/gpus/${ID}/explain`;
  const explanation = {
    gpu: ID, name: "node-1 / GPU 0", start: "2026-11-20T10:00:00Z", end: "2026-11-20T11:00:00Z", verdict: "heat held the clock down",
    causes: [{ id: "heat", weight: 0.6, sentence: "heat held the clock down for 60 % of the time", evidence: [{ quantity: "gpu_clock_mhz", unit: "MHz", value: 1500, compared_with: { value: 1980, origin: "median of its peers" } }, { quantity: "share_of_time_at_power_limit", unit: "ratio", value: 0.724, compared_with: null }] }],
    peers: { basis: "job", name: "train-7", count: 7 }, figures: null, events: [{ timestamp: "2026-11-20T10:12:00Z", kind: "xid", detail: "XID 13" }],
  };

  it("is asked of the range that is shown, in whole minutes, and of a day at most", async () => {
    const mock = mockApi({ [PATH]: detail(), "/api/v1/query": history, [WHY]: ok(explanation) });
    renderAt(`/gpus/${ID}?from=2026-11-18T10:00:20Z&to=2026-11-20T10:59:50Z`);
    await userEvent.click(await screen.findByRole("button", { name: "Why was it slow?" }));
    const why = await screen.findByRole("region", { name: "Why was it slow?" });
    expect(await within(why).findByText("heat held the clock down")).toBeTruthy();
    expect(why.textContent).toMatch(/Heat mainly, 60%heat held.*GPU clock 1,500 MHz against 1,980 MHz, median of its peersShare of time at power limit 72\.4%.*xid XID 13.*Compared with 7 GPUs of its job: train-7.*Only the last 24 hours/);
    const asked = mock.asked.find(({ path }) => path === WHY)?.params;
    expect([asked?.get("start"), asked?.get("end")]).toEqual(["2026-11-19T11:00:00.000Z", "2026-11-20T11:00:00.000Z"]);
    expect(window.location.search).toContain("why=1");
    await userEvent.click(within(why).getByRole("button", { name: "Close" }));
    expect(window.location.search).not.toContain("why=1");
  });

  it("lists two causes with the same id", async () => {
    const complain = vi.spyOn(console, "error").mockImplementation(() => undefined);
    const [cause] = explanation.causes;
    const causes = [cause, { ...cause, weight: 0.2, sentence: "heat stopped it once" }];
    mockApi({ [PATH]: detail(), "/api/v1/query": history, [WHY]: ok({ ...explanation, causes }) });
    renderAt(`/gpus/${ID}?why=1`);
    await screen.findByText("heat stopped it once");
    expect(document.querySelectorAll('[data-cause="heat"]')).toHaveLength(2);
    expect(complain.mock.calls.filter(([words]) => String(words).includes("same key"))).toEqual([]);
  });

  it("says why it cannot be explained", async () => {
    mockApi({ [PATH]: detail(), "/api/v1/query": history, [WHY]: { status: 404, body: { error: "not found", message: "no values are kept", code: "not_kept" } } });
    renderAt(`/gpus/${ID}?why=1`);
    expect(await screen.findByText("no values are kept")).toBeTruthy();
  });
});

describe("what can be taken away", () => {
  const power = { ...metric("power_w", "W", "power"), prometheus: { name: "gpu_power_watts", labels: { kind: 'a"b' }, unit: "watts", factor: 1 } };

  it("is the question behind a chart: as query, curl and PromQL", async () => {
    const copied = vi.fn(() => Promise.resolve());
    mockApi({ [PATH]: detail(), "/api/v1/query": history, "/api/v1/metrics": ok({ metrics: [power] }) });
    renderAt(`/gpus/${ID}?from=2026-11-20T10:00:00Z&to=2026-11-20T11:00:00Z`);
    const menu = await screen.findByLabelText("Export Power and energy");
    vi.spyOn(navigator.clipboard, "writeText").mockImplementation(copied);
    const act = async (name: string) => {
      await userEvent.click(menu);
      await userEvent.click(screen.getByRole("button", { name }));
      await screen.findByText(`${name}: done`);
      return (copied.mock.calls.at(-1) as string[] | undefined)?.[0] ?? "";
    };
    const query = new URL(await act("Copy as query"));
    expect(Object.fromEntries(query.searchParams)).toEqual({
      metrics: "power_w", gpus: ID, start: "2026-11-20T10:00:00.000Z", end: "2026-11-20T11:00:00.000Z", step: "10000ms", aggregate: "mean,min,max", group_by: "gpu",
    });
    expect(await act("Copy as curl")).toBe(`curl -sS -H 'accept: text/csv' '${query.href}'`);
    expect(await act("Copy as PromQL")).toBe(`gpu_power_watts{kind="a\\"b",uuid="${ID}"}`);
    expect(screen.queryByText("Copy as query"), "what is closed has no elements").toBeNull();
    await userEvent.click(menu);
    expect(screen.getByText("Copy as query")).toBeTruthy();
    await userEvent.keyboard("{Escape}");
    expect(screen.queryByText("Copy as query")).toBeNull();
  });
});

describe("the zone of times", () => {
  const before = process.env.TZ;
  beforeEach(() => {
    process.env.TZ = "Asia/Tokyo";
  });
  afterEach(() => {
    process.env.TZ = before;
  });

  it("stands beside the range; fields, axes, table and captions follow it, the address does not", async () => {
    const at = "2026-11-20T20:00:00.000Z";
    mockApi({ [PATH]: detail({ state: "stale" }, at), "/api/v1/query": history });
    renderAt(`/gpus/${ID}?from=2026-11-20T19:00:10.000Z&to=2026-11-20T20:00:00.000Z`);
    const { search } = window.location;
    const zone = await screen.findByRole("button", { name: "Times in Asia/Tokyo. Change" });
    const row = () => document.querySelector('[data-column="power_w"]')?.lastElementChild?.textContent;
    const noon = Date.parse("2026-11-20T12:00:00Z");
    const axis = () => {
      const { axes, tzDate } = FakePlot.made.findLast((made) => made.destroyed === 0)?.options ?? {};
      const values = axes?.[0]?.values;
      return [typeof values === "function" ? values({} as never, [noon], 0, 0, 3_600_000) : null, tzDate?.(noon).getHours()];
    };
    await waitFor(() => expect(FakePlot.made.length).toBeGreaterThan(0));
    const shown = () => [screen.getByLabelText<HTMLInputElement>("From").value, row(), ...axis()];
    expect(shown()).toEqual(["2026-11-21T04:00:10", "05:00:00", ["21:00"], 21]);
    await userEvent.click(zone);
    expect(screen.getByRole("button", { name: "Times in UTC. Change" })).toBeTruthy();
    expect(shown()).toEqual(["2026-11-20T19:00:10", "20:00:00", ["12:00"], 12]);
    expect(within(screen.getByRole("note", { name: "Age of the data" })).getByTitle("2026-11-20 20:00:00 UTC")).toBeTruthy();
    await userEvent.click(screen.getByRole("button", { name: "Apply" }));
    expect(window.location.search).toBe(search.replaceAll(":", "%3A"));
    await userEvent.keyboard("u");
    expect(screen.getByRole("button", { name: "Times in Asia/Tokyo. Change" })).toBeTruthy();
  });
});

describe("the toolbar", () => {
  it("puts range, buckets and a custom span into the address", async () => {
    mockApi({ [PATH]: detail(), "/api/v1/query": history });
    renderAt(`/gpus/${ID}`);
    await userEvent.click(await screen.findByRole("button", { name: "Last 6 hours" }));
    await userEvent.selectOptions(screen.getByRole("combobox"), "p99");
    expect(window.location.search).toBe("?range=6h&aggregate=p99");
    await userEvent.click(screen.getByRole("button", { name: "Custom range" }));
    expect(window.location.search).toMatch(/from=.*&to=/);
    expect(screen.getByRole<HTMLButtonElement>("button", { name: "Live" }).disabled).toBe(true);
    expect(screen.getByRole("button", { name: "Apply" })).toBeTruthy();
  });
});
