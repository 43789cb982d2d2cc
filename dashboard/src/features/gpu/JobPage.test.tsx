import { screen, waitFor, within } from "@testing-library/react";
import { expect, it } from "vitest";
import { finding, findingsOf, metric, mockApi, ok, type Handler } from "../../testing/mockApi";
import { renderAt } from "../../testing/render";

const FROM = Date.parse("2026-11-20T15:00:00Z");
const RANGE = "from=2026-11-20T15:00:00Z&to=2026-11-20T16:00:00Z";
const PATH = "/api/v1/jobs/job%3A7";
const sums = { held_gpu_hours: 4, shared_gpu_hours: 0, busy_gpu_hours: 2, wasted_gpu_hours: 2, idle_gpu_hours: 1, throttled_gpu_hours: 0, energy_kwh: 3, idle_energy_kwh: 0, power_max_w: 650, temperature_max_c: 70, memory_max_mb: 1024 };
const about = { name: "train", user: "kim", uid: 1001, gpus_asked: 4, account: "ml", queue: null, array_task: null, start: "2026-11-20T15:10:00Z", end: null, state: "running", exit_code: null };
const job = { group: "job:7", holder: "job:7", cluster: "east", namespace: null, pod: null, container: null, job: "7", running: true, gpus: 2, hosts: ["n1", "n2"], about, ...sums };
const card = (gpu: string, hostname: string) => ({ gpu, hostname, model: "H100", index: 0, memory_mb: 1, known_gpu_hours: 2, ...sums });
const step = { step: "0", hosts: ["n1"], gpus: 1, start: "2026-11-20T15:10:00Z", end: "2026-11-20T15:40:00Z", state: "ended", used: { ...sums, energy_kwh: 1.5 }, interpolated: true };
const detail = (part = {}) => ok({ job, gpus: [card("g0", "n1"), card("g1", "n2")], interpolated: true, start: "", end: "", ...part });
const times = [0, 1, 2, 3].map((minute) => FROM + (10 + minute) * 60_000);
const query: Handler = (params) => {
  const line = (labels: Record<string, string>, gpu: string | null, values: (number | null)[]) => ({ metric: params.get("metrics"), unit: "", aggregate: "mean", group: "", labels, gpu, hostname: null, values });
  if (params.get("group_by") === "node") return ok({ times, series: [line({ node: "n1" }, null, [90, 90, 0, null]), line({ node: "n2" }, null, [null, 90, 90, 90])], step_ms: 60_000 });
  const series = (params.get("metrics") ?? "").split(",").flatMap((column) => ["g0", "g1"].map((id) => ({ ...line({ gpu: id }, id, [1, 2, 3, 4]), metric: column })));
  return ok({ times, series, step_ms: 60_000 });
};
const catalogue = ok({ metrics: [metric("utilization_pct", "%", "utilization"), metric("power_w", "W", "power")] });
const handlers = { "/api/v1/metrics": catalogue, "/api/v1/query": query };

it("shows who runs a job, what it used, what is wrong with its GPUs, its hosts over time and its GPUs over each other", async () => {
  const mock = mockApi({ ...handlers, [PATH]: detail(), "/api/v1/analysis/findings": findingsOf([finding({ subject: { type: "gpu", id: "g0", name: "n1 / GPU 0" } })]) });
  renderAt(`/jobs/job%3A7?cluster=east&${RANGE}`);
  expect(await screen.findByRole("heading", { name: "job:7" })).toBeTruthy();
  expect(await screen.findByText("train, kim, ml, running, east, has a GPU now")).toBeTruthy();
  const totals = await screen.findByLabelText("All together");
  expect(totals.textContent).toBe("GPUs24 askedHeld4 hBusy2 hWasted2 h1 h of it never usedShared0 hEnergy3 kWh");
  const asked = mock.asked.find(({ path }) => path === PATH)?.params;
  expect([asked?.get("cluster"), asked?.get("start")]).toEqual(["east", "2026-11-20T15:00:00.000Z"]);

  const strips = within(await screen.findByRole("region", { name: "Its hosts over time" }));
  expect(strips.getAllByRole("img").map((strip) => [...strip.children].map((part) => part.getAttribute("data-what")))).toEqual([["busy", "idle"], ["busy"]]);
  expect(strips.getByRole("link", { name: "n2" }).getAttribute("href")).toBe("/hosts/n2");
  const where = mock.asked.find(({ params }) => params.get("group_by") === "node")?.params;
  expect(where?.get("where")).toBe("cluster=east;job=7");
  await waitFor(() => expect([...document.querySelectorAll("[data-panel]")].map((panel) => panel.getAttribute("data-panel"))).toEqual(["utilization_pct-0", "power_w-0"]));
  expect(document.querySelector('[data-panel="power_w-0"]')?.textContent).toContain("n2 / GPU 0");
  // The courses are those of its own time.
  expect(mock.asked.find(({ params }) => params.get("metrics")?.includes("power_w"))?.params.get("start")).toBe("2026-11-20T15:10:00.000Z");

  const findings = within(await screen.findByRole("region", { name: "Findings" }));
  expect(findings.getByText("nvidia-smi --gpu-reset -i 0")).toBeTruthy();
  // The title of the tab counts the critical ones of the fleet.
  expect(mock.asked.find(({ path, params }) => path === "/api/v1/analysis/findings" && !params.has("severity"))?.params.get("gpus")).toBe("g0,g1");
  expect(within(screen.getByRole("region", { name: "GPUs of the job" })).getByRole("link", { name: "n1 / GPU 0" }).getAttribute("href")).toBe("/gpus/g0");
  expect(screen.getByRole("link", { name: /^Compare them/ }).getAttribute("href")).toBe("/compare?where=cluster%3Deast%3Bjob%3D7");
  expect(document.title).toContain("job:7");
});

it("lists the steps, says what the job could have done without, and of one that is over leads to its whole time", async () => {
  const over = { ...job, running: null, about: { ...about, start: "2026-11-20T14:00:00Z", end: "2026-11-20T15:30:00Z", state: "completed" } };
  const advice = { text: "1 of 2 GPUs never passed 1 %; with 1 this job would have saved 2.0 GPU hours", gpus: 2, idle_gpus: 1, saved_gpu_hours: 2 };
  const mock = mockApi({ ...handlers, [PATH]: detail({ job: over, advice, steps: [step], steps_total: 60 }) });
  renderAt(`/jobs/job%3A7?${RANGE}`);
  expect((await screen.findByRole("note", { name: "Advice" })).textContent).toBe(`${advice.text}.`);
  expect(document.querySelector("[data-step]")?.textContent).toMatch(/^014 h2 h1\.5 kWh.*n1$/);
  expect(screen.getByText(/These are the 1 that began last of 60\./)).toBeTruthy();
  const whole = screen.getByRole("link", { name: "From its begin to its end" }).getAttribute("href");
  expect(whole).toBe("/jobs/job%3A7?from=2026-11-20T14%3A00%3A00.000Z&to=2026-11-20T15%3A30%3A00.000Z");
  // What is wrong now is not the job's any more.
  expect(mock.asked.some(({ path, params }) => path === "/api/v1/analysis/findings" && params.get("gpus") !== null)).toBe(false);
});

it("says that a job held no GPU in the range, and what could not be read", async () => {
  const mock = mockApi({ ...handlers, [PATH]: { status: 404, body: { error: "not found", message: "no such holder", code: "unknown_job" } } });
  const { unmount } = renderAt("/jobs/job%3A7");
  expect(await screen.findByText("It held no GPU in this range")).toBeTruthy();
  unmount();
  mock.set(PATH, { status: 500, body: { error: "internal", message: "disk on fire", code: "internal" } });
  renderAt("/jobs/job%3A7");
  expect((await screen.findByRole("alert")).textContent).toContain("disk on fire");
});
