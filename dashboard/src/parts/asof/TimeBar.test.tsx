import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { expect, it } from "vitest";
import { savedFiles } from "../../testing/files";
import { finding, findingsOf, gpu, listOf, mockApi, ok } from "../../testing/mockApi";
import { renderAt } from "../../testing/render";

const AT = "2026-11-20T03:10:00Z";
const FINDINGS = "/api/v1/analysis/findings";
const EVENTS = "/api/v1/telemetry";

const event = (timestamp: string, kind: string, detail: string, finding = "") => ({ timestamp, gpu_id: "GPU-a", hostname: "node-1", metrics: { kind, detail, finding } });
const events = [
  event("2026-11-20T03:05:00Z", "finding_closed", "XID 63", "xid:GPU-a"),
  event("2026-11-20T03:01:00Z", "silenced", "Kim"),
  event("2026-11-20T03:00:00Z", "finding_opened", "XID 63", "xid:GPU-a"),
  event("2026-11-20T02:59:00Z", "throttle", "power limit"),
  event("2026-11-20T02:00:00Z", "lost", "it does not answer"),
];

function server(health: Record<string, unknown> = {}) {
  return mockApi({
    [FINDINGS]: findingsOf([]),
    "/api/v1/gpus": listOf([gpu({ id: "GPU-a", name: "node-1 / GPU 6" })]),
    [EVENTS]: ok({ data: events, total: events.length, pagination: { limit: 2000, offset: 0, has_next: false } }),
    ...(Object.keys(health).length === 0 ? {} : { "/health": ok({ service: "api", status: "healthy", collectors: [], queues: [], ...health }) }),
  });
}

const search = () => new URLSearchParams(window.location.search);
const instantsOf = (mock: ReturnType<typeof server>, path: string) => mock.asked.filter((each) => each.path === path).map(({ params }) => params.get("at"));

it("asks for the fleet as of the instant of the address, says so, and keeps it on the way to other pages", async () => {
  const mock = server();
  renderAt(`/?at=${AT}`);
  const notice = await screen.findByTestId("as-of");
  expect(notice.textContent).toContain("03:10:00");
  await waitFor(() => expect(instantsOf(mock, FINDINGS).length).toBeGreaterThan(0));
  expect(new Set([...instantsOf(mock, FINDINGS), ...instantsOf(mock, "/api/v1/gpus")])).toEqual(new Set(["2026-11-20T03:10:00.000Z"]));
  expect(new Set(instantsOf(mock, EVENTS))).toEqual(new Set([null]));
  // Throttling would take all the room of an answer.
  expect(mock.asked.find(({ path }) => path === EVENTS)?.params.get("kind")?.split(",")).toEqual(["finding_opened", "finding_closed", "xid", "ecc", "ras", "lost", "back", "kernel", "reads_slowed", "reads_usual"]);
  const list = screen.getByRole("link", { name: "GPUs" });
  expect(list.getAttribute("href")).toBe("/gpus?at=2026-11-20T03%3A10%3A00Z");
  await userEvent.click(list);
  expect([window.location.pathname, search().get("at")]).toEqual(["/gpus", AT]);
  await userEvent.click(within(screen.getByTestId("as-of")).getByRole("button", { name: "Go to now" }));
  expect(search().has("at")).toBe(false);
  expect(screen.queryByTestId("as-of")).toBeNull();
});

it("is dragged, typed and stepped from change to change", async () => {
  const mock = server();
  renderAt(`/?at=${AT}`);
  const earlier = await screen.findByRole("button", { name: "To the change before" });
  await waitFor(() => expect(earlier.hasAttribute("disabled")).toBe(false));
  await userEvent.click(earlier);
  expect(search().get("at")).toBe("2026-11-20T03:05:01Z");
  await userEvent.click(earlier);
  await userEvent.click(earlier);
  expect(search().get("at"), "what people said and how hard it works is no change").toBe("2026-11-20T02:00:01Z");
  expect(earlier.hasAttribute("disabled")).toBe(true);
  fireEvent.change(screen.getByLabelText("As of"), { target: { value: "2026-11-20T04:00:00" } });
  expect(search().get("at")).toBe(new Date("2026-11-20T04:00:00").toISOString().replace(".000Z", "Z"));
  fireEvent.change(screen.getByRole("slider"), { target: { value: "1440" } });
  await waitFor(() => expect(search().has("at")).toBe(false));
  await waitFor(() => expect(instantsOf(mock, FINDINGS)).toContain(null));
});

it("lists what came again and again once, with how often and on how many GPUs", async () => {
  const mock = server();
  const of = (second: number, gpu_id: string) => ({ ...event(`2026-11-20T03:00:0${second}Z`, "xid", "XID 63"), gpu_id });
  const many = [of(3, "GPU-a"), of(2, "GPU-b"), of(1, "GPU-a")];
  mock.set(EVENTS, ok({ data: many, total: 3, pagination: { limit: 2000, offset: 0, has_next: false } }));
  renderAt("/?at=2026-11-20T03:02:00Z");
  await userEvent.click(await screen.findByText("(3)"));
  const lines = within(screen.getByRole("list", { name: "What changed, the newest first" })).getAllByRole("listitem");
  expect(lines.map((line) => line.textContent)).toEqual([expect.stringContaining("XID 63 ×3 on 2 GPUs, first at ")]);
});

it("lists what changed up to the instant, each with the way to its time", async () => {
  server();
  renderAt("/?at=2026-11-20T03:02:00Z");
  await userEvent.click(await screen.findByText("(2)"));
  const lines = within(screen.getByRole("list", { name: "What changed, the newest first" })).getAllByRole("listitem");
  expect(lines.map((line) => line.textContent)).toEqual([expect.stringContaining("XID 63"), expect.stringContaining("Lost: it does not answer")]);
  expect(lines.map((line) => within(line).getByRole("link", { name: "node-1 / GPU 6" }).getAttribute("href"))).toEqual(Array(2).fill("/gpus/GPU-a?at=2026-11-20T03%3A02%3A00Z"));
  await userEvent.click(screen.getAllByRole("button", { name: /02:00:00$/ })[0] as HTMLElement);
  expect(search().get("at")).toBe("2026-11-20T02:00:01Z");
});

it("tells of jobs and drivers once it is opened, by what they are about", async () => {
  const mock = server();
  const change = (part: object) => ({ at: "2026-11-20T02:30:00Z", kind: "job_started", cluster: null, hostname: "node-1", gpu: "GPU-a", gpus: 8, namespace: "research", pod: null, job: "train-7", from: null, to: null, ...part });
  const changes = [change({}), change({ at: "2026-11-20T01:30:00Z", kind: "driver_changed", gpus: 1, namespace: null, job: null, from: "570.1", to: "580.2" }), change({ at: "2026-11-20T03:30:00Z", kind: "job_ended" })];
  mock.set("/api/v1/analysis/changes", ok({ changes, total: 1203, start: "", end: "", pagination: { limit: 500, offset: 0, has_next: true } }));
  renderAt("/?at=2026-11-20T03:02:00Z&host=node-1");
  const summary = await screen.findByText("(2)");
  expect(mock.asked.some(({ path }) => path.endsWith("/changes"))).toBe(false);
  await userEvent.click(summary);
  await screen.findByText("(4)");
  const lines = () => within(screen.getByRole("list", { name: "What changed, the newest first" })).getAllByRole("listitem").map((line) => line.textContent);
  expect(lines()).toEqual([expect.stringContaining("XID 63"), expect.stringContaining("Job started: research / train-7, 8 GPUs"), expect.stringContaining("Lost"), expect.stringContaining("Driver changed: 570.1 → 580.2, 1 GPU")]);
  expect(screen.getByText("1,200 older changes of jobs and drivers are left out.")).toBeTruthy();
  expect(mock.asked.find(({ path }) => path.endsWith("/changes"))?.params.get("host")).toBe("node-1");
  await userEvent.selectOptions(screen.getByRole("combobox", { name: "What the changes are about" }), "Jobs");
  expect(lines()).toEqual([expect.stringContaining("Job started")]);
});

it("opens a recording as of its end, unless now is asked for", async () => {
  const end = "2026-11-20T03:10:00.123456789Z";
  server({ recording_end: end });
  const { unmount } = renderAt("/");
  await waitFor(() => expect(search().get("at")).toBe("2026-11-20T03:10:00.124Z"));
  const notice = await screen.findByTestId("as-of");
  expect(notice.textContent).toContain("the end of a recording");
  await userEvent.click(within(notice).getByRole("button", { name: "Go to now" }));
  expect(search().get("at")).toBe("now");
  await userEvent.click(screen.getByRole("button", { name: "To the end of the recording" }));
  expect(search().get("at")).toBe("2026-11-20T03:10:00.124Z");
  unmount();
});

it("marks in a recording what nobody has watched begin, and what rows tell once", async () => {
  const end = "2026-11-20T03:10:00Z";
  const mock = server({ recording_end: end });
  const wrong = [
    finding({ since: "2026-11-20T03:00:00Z" }),
    finding({ id: "gpu_missing:node-2", kind: "gpu_missing", sentence: "the node has 7 GPUs", since: "2026-11-20T02:30:00Z", since_at_least: true }),
  ];
  mock.set(FINDINGS, (params) => findingsOf(params.get("at") === "2026-11-20T03:10:00.001Z" ? wrong : []));
  renderAt("/?at=2026-11-20T03:02:00Z");
  await userEvent.click(await screen.findByText("(2)"));
  const lines = () => within(screen.getByRole("list", { name: "What changed, the newest first" })).getAllByRole("listitem").map((line) => line.textContent);
  expect(lines(), "as of then it is not known to be open").toEqual([expect.stringContaining("XID 63"), expect.stringContaining("Lost")]);
  await userEvent.click(within(screen.getByTestId("as-of")).getByRole("button", { name: "Go to now" }));
  await screen.findByText("(4)");
  expect(lines().filter((line) => line.includes("XID 63")), "opened and over, by their rows").toHaveLength(2);
  expect(lines()).toContainEqual(expect.stringContaining("then or earlier: the node has 7 GPUs"));
});

it.each(["yesterday", "9", "2026-13-01", "03:10"])("says that %s is no instant, what is one, and offers now", async (text) => {
  const mock = server();
  renderAt(`/gpus?at=${text}&search=h100`);
  const notice = await screen.findByTestId("as-of-wrong");
  expect(notice.textContent).toMatch(new RegExp(`^at=${text} is no instant.*such as 2026-11-20T03:10:00Z,.*and now\\. Everything below is of now\\.`));
  await waitFor(() => expect(instantsOf(mock, "/api/v1/gpus").length).toBeGreaterThan(0));
  expect(new Set(instantsOf(mock, "/api/v1/gpus"))).toEqual(new Set([null]));
  await userEvent.click(within(notice).getByRole("button", { name: "Go to now" }));
  expect([search().has("at"), search().get("search")]).toEqual([false, "h100"]);
  expect(screen.queryByTestId("as-of-wrong")).toBeNull();
});

it("opens a recording as of its end also where the address has a wrong instant, and says both", async () => {
  server({ recording_end: "2026-11-20T03:10:00Z" });
  renderAt("/?at=yesterday");
  await waitFor(() => expect(search().get("at")).toBe("2026-11-20T03:10:00.001Z"));
  expect((await screen.findByTestId("as-of")).textContent).toMatch(/^at=yesterday is no instant.*the end of a recording/);
  await userEvent.click(screen.getAllByRole("button", { name: "Go to now" })[0] as HTMLElement);
  expect(search().get("at")).toBe("now");
  expect(document.body.textContent).not.toContain("no instant");
});

it.each([
  ["/", /^ ?Everything below is as of/],
  ["/hosts", /^ ?Everything below is as of/],
  ["/clusters", /^ ?This page is of now\. Findings, GPUs and hosts are as of .*03:10:00/],
  ["/queue", /^ ?This page is of now/],
  ["/statistics", /^ ?This page is of now/],
])("says of %s whether it is as of the instant", async (path, words) => {
  server();
  renderAt(`${path}?at=${AT}`);
  expect((await screen.findByTestId("as-of")).textContent).toMatch(words);
});

const CHANGED = "/api/v1/analysis/changes";
const jobChange = (hostname: string, namespace: string) => ({ at: "2026-11-20T02:30:00Z", kind: "job_started", cluster: null, hostname, gpu: `GPU-${hostname}`, gpus: 8, namespace, pod: null, job: "train-7", from: null, to: null });
const changesOf = (...changes: object[]) => ok({ changes, total: changes.length, start: "", end: "", pagination: { limit: 500, offset: 0, has_next: false } });
const listed = () => within(screen.getByRole("list", { name: "What changed, the newest first" })).getAllByRole("listitem").map((line) => line.textContent);

it("lists what changed by the filters of the findings, and says which of them it cannot apply", async () => {
  const mock = server();
  mock.set(CHANGED, changesOf(jobChange("node-1", "research"), jobChange("node-1", "vision")));
  const { unmount } = renderAt(`/?at=${AT}&namespace=research&severity=critical`);
  await userEvent.click(await screen.findByText("What changed", { exact: false }));
  await waitFor(() => expect(listed()).toEqual([expect.stringContaining("over"), expect.stringContaining("XID 63"), expect.stringContaining("research / train-7"), expect.stringContaining("Lost")]));
  expect(mock.asked.find(({ path }) => path === EVENTS)?.params.get("where")).toBe("namespace=research");
  expect(screen.getByText(/these are of every severity/)).toBeTruthy();
  unmount();
  renderAt(`/?at=${AT}&kind=xid`);
  await userEvent.click(await screen.findByText("What changed", { exact: false }));
  await waitFor(() => expect(listed()).toEqual([expect.stringContaining("over"), expect.stringContaining("XID 63")]));
  expect(screen.queryByText(/every severity/)).toBeNull();
});

it("gives what changed as a file", async () => {
  const mock = server();
  mock.set(CHANGED, changesOf(jobChange("node-1", "research")));
  renderAt(`/?at=${AT}`);
  await userEvent.click(await screen.findByText("What changed", { exact: false }));
  await waitFor(() => expect(listed()).toEqual(expect.arrayContaining([expect.stringContaining("research / train-7")])));
  const files = savedFiles();
  await userEvent.click(within(screen.getByTestId("time-bar")).getByRole("button", { name: "CSV" }));
  const text = await files[0]?.text();
  expect(text?.split("\r\n")[0]).toBe("time,gpu,host,kind,finding,namespace,text");
  expect(text).toContain("2026-11-20T02:30:00.000Z,GPU-node-1,node-1,job_started,,research,");
});

it("lists above the map what changed of the GPUs that it shows", async () => {
  const mock = server();
  mock.set("/api/v1/gpus", (params) => listOf(params.get("search") === "b" ? [gpu({ id: "GPU-b", name: "node-2 / GPU 1", hostname: "node-2" })] : [gpu({ id: "GPU-a" }), gpu({ id: "GPU-b", hostname: "node-2" })]));
  mock.set(EVENTS, ok({ data: [...events, { ...event("2026-11-20T03:06:00Z", "back", ""), gpu_id: "GPU-b", hostname: "node-2" }], total: 6, pagination: { limit: 2000, offset: 0, has_next: false } }));
  mock.set(CHANGED, changesOf(jobChange("node-1", "research"), jobChange("node-2", "research")));
  renderAt(`/gpus?view=map&at=${AT}&search=b&where=job%3Dtrain-7`);
  await userEvent.click(await screen.findByText("What changed", { exact: false }));
  await waitFor(() => expect(listed()).toEqual([expect.stringMatching(/Back.*node-2 \/ GPU 1/), expect.stringMatching(/Job started.*node-2/)]));
  expect(mock.asked.find(({ path }) => path === EVENTS)?.params.get("where")).toBe("job=train-7");
});
