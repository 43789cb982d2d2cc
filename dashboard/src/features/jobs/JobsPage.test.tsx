import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { savedFiles } from "../../testing/files";
import { mockApi, ok, type Handler } from "../../testing/mockApi";
import { renderAt } from "../../testing/render";

const ENERGY = "/api/v1/analysis/energy";
const IDLE = "/api/v1/analysis/idle";
const pagination = { limit: 10_000, offset: 0, has_next: false };
const energy = (groups: (string | null)[], part = {}): Handler => {
  const of = (group: string | null) => ({ group, energy_kwh: 12, counted_kwh: 6, source: "both", gpu_hours: 48, busy_gpu_hours: 30, throttled_gpu_hours: 0, gpus: 2, ...part });
  return ok({ groups: groups.map(of), whole: of(null), start: "", end: "", total: groups.length, pagination });
};
const idle = (groups: readonly (readonly [string, number])[]): Handler => {
  const of = (group: string | null, hours: number) => ({ group, held_gpu_hours: 40, idle_gpu_hours: hours, idle_energy_kwh: hours / 10, idle_cost: null, gpus: 2 });
  return ok({ groups: groups.map(([group, hours]) => of(group, hours)), whole: of(null, 30), start: "", end: "", total: groups.length, pagination });
};
const host = (last_seen: string) => ok({ hosts: [{ hostname: "node-1", gpu_count: 2, simulated: false, last_seen }], total: 1, pagination });
const now = () => host(new Date().toISOString());
const groups = () => [...document.querySelectorAll("[data-group]")].map((row) => row.getAttribute("data-group"));

describe("jobs and namespaces", () => {
  it("shows the most waste first, with its cost at the price that is typed", async () => {
    const mock = mockApi({ "/api/v1/hosts": now(), [ENERGY]: energy(["research", "vision", null]), [IDLE]: idle([["vision", 20], ["research", 10]]) });
    renderAt("/jobs");
    await screen.findByRole("link", { name: "vision" });
    expect(groups()).toEqual(["vision", "research", ""]);
    const row = screen.getByRole("link", { name: "vision" }).closest("tr");
    expect(row?.textContent).toBe("vision248 h12 kWh50% counters, the rest integrated power40 h20 h 50%2 kWhCompare");
    expect(screen.getByRole("link", { name: "Compare the GPUs of vision" }).getAttribute("href")).toBe("/compare?where=namespace%3Dvision");
    expect(screen.getByRole("link", { name: "No namespace" }).closest("tr")?.textContent).toMatch(/power–– –$/);
    await userEvent.type(screen.getByRole("textbox", { name: "Price of a GPU hour" }), "2,5");
    await waitFor(() => expect(window.location.search).toBe("?price=2.5"));
    expect(within(screen.getByLabelText("All together")).getByText("75")).toBeTruthy();
    expect(row?.textContent).toMatch(/50Compare$/);
    // The price needs no new answer.
    expect(mock.asked.filter(({ path }) => path === IDLE)).toHaveLength(1);
    await userEvent.click(screen.getByRole("button", { name: "Namespace" }));
    expect(groups()).toEqual(["research", "vision", ""]);
    expect(window.location.search).toBe("?price=2.5&sort=group");
  });

  it("leads to the GPUs of a holder, and asks by what is chosen", async () => {
    const mock = mockApi({ "/api/v1/hosts": now(), [ENERGY]: energy(["train-7"]), [IDLE]: idle([]) });
    renderAt("/jobs?by=job&range=1h");
    const link = await screen.findByRole("link", { name: "train-7" });
    expect(link.getAttribute("href")).toBe("/gpus?where=job%3Dtrain-7");
    const asked = mock.asked.find(({ path }) => path === ENERGY)?.params;
    expect(asked?.get("by")).toBe("job");
    expect(Date.parse(asked?.get("end") ?? "") - Date.parse(asked?.get("start") ?? "")).toBe(3_600_000);
    await userEvent.click(screen.getByRole("link", { name: "Nodes" }));
    expect(window.location.search).toBe("?by=node&range=1h");
    await waitFor(() => expect(mock.asked.some(({ path, params }) => path === IDLE && params.get("by") === "node")).toBe(true));
  });

  describe("by holder", () => {
    const LEDGER = "/api/v1/jobs";
    const sums = { held_gpu_hours: 40, shared_gpu_hours: 10, busy_gpu_hours: 30, wasted_gpu_hours: 10, idle_gpu_hours: 8, throttled_gpu_hours: 0, energy_kwh: 12, idle_energy_kwh: 1, power_max_w: 700, temperature_max_c: 70, memory_max_mb: 1 };
    const holder = (name: string, part = {}) => ({ group: name, holder: name, cluster: null, namespace: null, pod: null, container: null, job: name.replace("job:", ""), running: false, gpus: 2, hosts: ["node-1"], ...sums, ...part });
    const ledger = (jobs: readonly object[], part = {}) => ok({ jobs, whole: { ...sums, held_gpu_hours: 40 * jobs.length }, nobody: { ...sums, held_gpu_hours: 3, energy_kwh: 0.5 }, unobserved_gpu_hours: 0, interpolated: false, start: "", end: "", total: jobs.length, pagination, ...part });

    it("shows what each job and pod held, used and wasted, and leads to its GPUs and hosts", async () => {
      const pod = holder("pod:team/a/main", { namespace: "team", pod: "a", job: null, cluster: "east", running: true, simulated: true, wasted_gpu_hours: 25, hosts: ["n1", "n2", "n3"] });
      const mock = mockApi({ "/api/v1/hosts": now(), [LEDGER]: ledger([holder("job:7"), pod]) });
      renderAt("/jobs?by=holder&range=1h");
      const link = await screen.findByRole("link", { name: "job:7" });
      expect(groups()).toEqual(["pod:team/a/main", "job:7"]);
      expect(link.closest("tr")?.textContent).toBe("job:7240 h30 h10 h 25%8 h never used10 h12 kWhnode-1");
      expect(link.getAttribute("href")).toBe("/jobs/job%3A7");
      expect(screen.getByRole("link", { name: "node-1" }).getAttribute("href")).toBe("/hosts/node-1");
      const other = screen.getByRole("link", { name: "pod:team/a/main" });
      expect(other.getAttribute("href")).toBe("/jobs/pod%3Ateam%2Fa%2Fmain?cluster=east");
      const its = screen.getByRole("link", { name: "GPUs that pod:team/a/main has now" });
      expect(its.getAttribute("href")).toBe("/gpus?where=cluster%3Deast%3Bnamespace%3Dteam%3Bpod%3Da");
      expect(other.closest("tr")?.textContent).toMatch(/east, has a GPU now, simulated.*n1n2and 1 moreCompare$/);
      expect(screen.getAllByRole("link", { name: /^Compare/ }).map((way) => [way.getAttribute("aria-label"), way.getAttribute("href")])).toEqual([
        ["Compare the GPUs of pod:team/a/main", "/compare?where=cluster%3Deast%3Bnamespace%3Dteam%3Bpod%3Da"],
      ]);
      const asked = mock.asked.find(({ path }) => path === LEDGER)?.params;
      expect(Date.parse(asked?.get("end") ?? "") - Date.parse(asked?.get("start") ?? "")).toBe(3_600_000);
      expect(mock.asked.some(({ path }) => path === ENERGY)).toBe(false);
    });

    it("has its own order, and says one that it does not have", async () => {
      mockApi({ "/api/v1/hosts": now(), [LEDGER]: ledger([holder("job:7"), holder("job:8", { wasted_gpu_hours: 25 })]), [ENERGY]: energy(["a"]), [IDLE]: idle([]) });
      const { unmount } = renderAt("/jobs?by=holder");
      await screen.findByRole("link", { name: "job:7" });
      expect(groups()).toEqual(["job:8", "job:7"]);
      expect(screen.queryByText(/is not understood/)).toBeNull();
      unmount();
      renderAt("/jobs?by=holder&sort=-idle");
      expect(await screen.findByText(/is not understood/)).toBeTruthy();
      // Another group has other columns.
      await userEvent.click(screen.getByRole("link", { name: "Namespaces" }));
      await screen.findByRole("link", { name: "a" });
      expect(screen.queryByText(/is not understood/)).toBeNull();
      expect(window.location.search).toBe("");
    });

    it("leads nowhere from a user, whose GPUs no identity names", async () => {
      mockApi({ "/api/v1/hosts": now(), [LEDGER]: ledger([holder("user:kim", { job: null })]) });
      renderAt("/jobs?by=holder");
      expect((await screen.findByText("user:kim")).closest("a")).toBeNull();
      expect(screen.getByText("by 1 job or pod")).toBeTruthy();
      expect(screen.getByRole("columnheader", { name: "Holder" })).toBeTruthy();
    });

    it("says who ran a job, and of one that is over on request what it could have done without", async () => {
      const told = { name: "train", user: "kim", uid: 1001, gpus_asked: 4, account: "ml", queue: null, array_task: null, start: null, end: null, state: "ended", exit_code: "0:0" };
      const runs = { ...told, user: "lee", state: "running", exit_code: null };
      const text = "2 of 8 GPUs never passed 1 %; with 6 this job would have saved 31.2 GPU hours";
      const mock = mockApi({
        "/api/v1/hosts": now(),
        [LEDGER]: ledger([holder("job:7", { about: told }), holder("job:8", { about: runs }), holder("pod:team/a/main", { namespace: "team", pod: "a", job: null })], { start: "2026-11-20T15:00:00Z", end: "2026-11-20T16:00:00Z" }),
        [`${LEDGER}/job%3A7`]: ok({ job: holder("job:7"), gpus: [], advice: { text, gpus: 8, idle_gpus: 2, saved_gpu_hours: 31.2 }, interpolated: false, start: "", end: "" }),
      });
      renderAt("/jobs?by=holder");
      expect(await screen.findByText("train, kim, ml, ended with 0:0")).toBeTruthy();
      expect(screen.getByText("train, lee, ml, running")).toBeTruthy();
      expect(screen.getByText("by 3 jobs and pods")).toBeTruthy();
      expect(screen.getAllByText("4 asked")).toHaveLength(2);
      // Of one that does not run now, its page shows the range in which it was found: also of a pod, of which nobody told that it is over.
      expect(screen.getByRole("link", { name: "pod:team/a/main" }).getAttribute("href")).toBe("/jobs/pod%3Ateam%2Fa%2Fmain?from=2026-11-20T15%3A00%3A00.000Z&to=2026-11-20T16%3A00%3A00.000Z");
      expect(screen.getByRole("link", { name: "job:7" }).getAttribute("href")).toBe("/jobs/job%3A7?from=2026-11-20T15%3A00%3A00.000Z&to=2026-11-20T16%3A00%3A00.000Z");
      expect(screen.getByRole("link", { name: "job:8" }).getAttribute("href")).toBe("/jobs/job%3A8");
      const wanted = screen.getAllByRole("button", { name: /^Advice on/ });
      expect(wanted.map((button) => button.textContent)).toEqual(["Advice on job:7"]);
      expect(mock.asked.some(({ path }) => path.startsWith(`${LEDGER}/`))).toBe(false);
      await userEvent.click(screen.getByRole("button", { name: "Advice on job:7" }));
      expect(await screen.findByText(`${text}.`)).toBeTruthy();
      expect(mock.asked.find(({ path }) => path.startsWith(`${LEDGER}/`))?.params.get("start")).toBe("2026-11-20T15:00:00Z");
    });

    it("gives as a file who ran each job, each of what was told by itself", async () => {
      const told = { name: "train", user: "kim", uid: 1001, gpus_asked: 4, account: "ml", queue: null, array_task: null, start: null, end: null, state: "ended", exit_code: "0:0" };
      mockApi({ "/api/v1/hosts": now(), [LEDGER]: ledger([holder("job:7", { about: told })]) });
      renderAt("/jobs?by=holder");
      const files = savedFiles();
      await userEvent.click(await screen.findByRole("button", { name: "CSV" }));
      expect(await files[0]?.text()).toBe(
        "holder,gpus,held,busy,wasted,shared,energy,hosts,cluster,idle,gpus_asked,name,user,account,queue,state,exit_code,simulated\r\njob:7,2,40,30,10,10,12,node-1,,8,4,train,kim,ml,,ended,0:0,false\r\n",
      );
    });

    it("has the waste of each user, and of those whose user nobody told", async () => {
      const mock = mockApi({ "/api/v1/hosts": now(), [LEDGER]: ledger([holder("kim", { holder: null, job: null }), holder("", { group: null, holder: null, job: null })]) });
      renderAt("/jobs?by=user");
      expect((await screen.findByText("kim")).closest("a")).toBeNull();
      expect(screen.getByText("user not told")).toBeTruthy();
      expect(screen.getByRole("columnheader", { name: "User" })).toBeTruthy();
      expect(screen.getByText("by 2 users")).toBeTruthy();
      expect(mock.asked.find(({ path }) => path === LEDGER)?.params.get("by")).toBe("user");
    });

    it("has the cost of the waste at the price that is typed, or else at that of the server", async () => {
      const mock = mockApi({ "/api/v1/hosts": now(), [LEDGER]: ledger([holder("job:7")]) });
      const { unmount } = renderAt("/jobs?by=holder&price=2");
      const link = await screen.findByRole("link", { name: "job:7" });
      expect(link.closest("tr")?.textContent).toContain("12 kWh20node-1");
      unmount();
      mock.set(LEDGER, ledger([holder("job:7", { wasted_cost: 35 })]));
      renderAt("/jobs?by=holder");
      await waitFor(() => expect(screen.getByRole("link", { name: "job:7" }).closest("tr")?.textContent).toContain("12 kWh35node-1"));
    });

    it("says below whose time the rest is, and what is taken of an hour that the range cuts", async () => {
      mockApi({ "/api/v1/hosts": now(), [LEDGER]: ledger([holder("job:7")], { unobserved_gpu_hours: 2, interpolated: true, gpus_by_rows: 4 }) });
      renderAt("/jobs?by=holder");
      const rest = within(await screen.findByRole("list", { name: "The rest of the time" }));
      expect(rest.getAllByRole("listitem").map((item) => item.textContent)).toEqual([
        "Nobody had GPUs for 3 h, 0.5 kWh.",
        "GPUs were not observed for 2 h: they or their hosts were lost, hung or asleep.",
        "By rows: GPUs of which no agent makes sums (4).",
        "Of an hour in which the range begins or ends, a part is taken that is as long.",
      ]);
    });

    it("says where the sums come from when there are none", async () => {
      const none = { ...sums, held_gpu_hours: 0 };
      mockApi({ "/api/v1/hosts": now(), [LEDGER]: ledger([], { whole: none, nobody: none }) });
      renderAt("/jobs?by=holder");
      expect(await screen.findByText("No agent added anything up in this range")).toBeTruthy();
    });
  });

  describe("stragglers", () => {
    const STRAGGLERS = "/api/v1/analysis/stragglers";
    const member = (gpu: string, clock_mhz: number | null, straggler: boolean) => ({ gpu, name: `node-1 / ${gpu}`, straggler, clock_distance: -9, clock_mhz, power_w: 500, utilization_pct: 99 });
    const spread = (job: string, gpus: readonly object[], median: number | null = 1980) => ({ job, clock_mhz: median === null ? null : { median, deviation: 5 }, power_w: null, utilization_pct: null, gpus });
    const listOf = (jobs: readonly object[]) => ({ body: { jobs, total: jobs.length, judged_at: "", pagination: { limit: 50, offset: 0, has_next: false } } });
    const usage = { "/api/v1/hosts": now(), [ENERGY]: energy(["train-7"]), [IDLE]: idle([]) };
    const section = () => screen.findByRole("region", { name: "Stragglers" });

    it("are named with their job and how slow they are, and lead to their page", async () => {
      const jobs = [spread("a/b/train-7", [member("GPU-3", 1530, true), member("GPU-4", 1980, false)]), spread("a/b/odd", [member("GPU-9", null, true), member("GPU-8", null, false)], null)];
      mockApi({ ...usage, [STRAGGLERS]: listOf(jobs) });
      renderAt("/jobs?by=job");
      const list = within(await section());
      await list.findByRole("link", { name: "node-1 / GPU-3" });
      expect(list.getAllByRole("listitem").map((item) => item.textContent)).toEqual([
        "node-1 / GPU-3: clock 1,530 MHz, 23% below the 1,980 MHz of its job a/b/train-7 with 2 GPUs",
        "node-1 / GPU-9: slower than the others of its job a/b/odd with 2 GPUs",
      ]);
      expect(list.getByRole("link", { name: "node-1 / GPU-3" }).getAttribute("href")).toBe("/gpus/GPU-3");
    });

    it("are cut to what is read at a glance, with the way to all of them", async () => {
      mockApi({ ...usage, [STRAGGLERS]: listOf([spread("j", Array.from({ length: 9 }, (_, n) => member(`GPU-${n}`, 1000, true)))]) });
      renderAt("/jobs?by=job");
      const all = await screen.findByRole("link", { name: "All stragglers are among the findings" });
      expect(all.getAttribute("href")).toBe("/?kind=straggler");
      expect(within(await section()).getAllByRole("listitem")).toHaveLength(8);
    });

    it.each([
      ["there are none", listOf([spread("j", [member("GPU-1", 1980, false), member("GPU-2", 1980, false)])]), "No GPU holds its job up."],
      ["no job has several GPUs", listOf([]), "No job with several GPUs runs now."],
      ["they cannot be read", { status: 500, body: { error: "internal", message: "disk on fire", code: "internal" } }, "Stragglers could not be read: disk on fire"],
      ["a part cannot be read", { ...listOf([]), headers: { "x-partial": "host b does not answer" } }, "Not everything could be read: host b does not answer."],
    ])("are missing with a sentence where %s", async (_name, answer, words) => {
      mockApi({ ...usage, [STRAGGLERS]: answer });
      renderAt("/jobs?by=job");
      expect(await within(await section()).findByText(words)).toBeTruthy();
    });

    it("are waited for, and only where jobs are shown", async () => {
      const mock = mockApi({ ...usage, [STRAGGLERS]: "never" });
      const { unmount } = renderAt("/jobs?by=job");
      expect(await screen.findByRole("status", { name: "Loading stragglers" })).toBeTruthy();
      unmount();
      const before = mock.asked.filter(({ path }) => path === STRAGGLERS).length;
      renderAt("/jobs");
      await screen.findByRole("link", { name: "train-7" });
      expect(screen.queryByRole("region", { name: "Stragglers" })).toBeNull();
      expect(mock.asked.filter(({ path }) => path === STRAGGLERS)).toHaveLength(before);
    });
  });

  it("says how holders become known where there are none, and when there are no values at all", async () => {
    const mock = mockApi({ "/api/v1/hosts": now(), [ENERGY]: energy([null]), [IDLE]: idle([]) });
    const { unmount } = renderAt("/jobs?by=job");
    expect(await screen.findByText("No GPU of this time has a job")).toBeTruthy();
    expect(screen.getByText(/SLURM_JOB_ID/)).toBeTruthy();
    unmount();
    mock.set(ENERGY, energy([], { gpu_hours: null, gpus: 0 }));
    renderAt("/jobs");
    expect(await screen.findByText("No values in this range")).toBeTruthy();
  });

  it("ends the ranges of a recording at its last sample", async () => {
    const mock = mockApi({ "/api/v1/hosts": host("2025-07-18T20:42:34Z"), [ENERGY]: energy(["a"]), [IDLE]: idle([]) });
    renderAt("/jobs");
    expect((await screen.findByRole("note", { name: "Age of the data" })).textContent).toMatch(/^Nothing has reported since 2025-07-18/);
    await waitFor(() => expect(mock.asked.find(({ path }) => path === IDLE)?.params.get("end")).toBe("2025-07-18T20:42:34.000Z"));
  });

  it("says what could not be read, and reads it again", async () => {
    const mock = mockApi({ "/api/v1/hosts": now(), [ENERGY]: { status: 500, body: { error: "internal", message: "disk on fire", code: "internal" } } });
    renderAt("/jobs");
    expect((await screen.findByRole("alert")).textContent).toContain("disk on fire");
    const answer = energy(["a"]);
    if (typeof answer !== "object") throw new Error("an answer has a body");
    mock.set(ENERGY, { ...answer, headers: { "x-partial": "host b does not answer" } });
    mock.set(IDLE, idle([]));
    await userEvent.click(screen.getByRole("button", { name: "Retry" }));
    expect((await screen.findByRole("note", { name: "Incomplete" })).textContent).toContain("host b does not answer");
  });
});
