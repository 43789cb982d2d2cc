import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import type { FleetUse, FleetUseLine } from "../../api/fleetUse";
import { mockApi, ok, type Answer } from "../../testing/mockApi";
import { renderAt } from "../../testing/render";

const USAGE = "/api/v1/analysis/usage";
const pagination = { limit: 10_000, offset: 0, has_next: false };
const host = (last_seen: string) => ok({ hosts: [{ hostname: "node-1", gpu_count: 2, simulated: false, last_seen }], total: 1, pagination });
const now = () => host(new Date().toISOString());

const line = (group: string | null, part: Partial<FleetUseLine> = {}): FleetUseLine => ({
  group,
  gpus: [2, 2, null],
  held_gpus: [2, 1.5, null],
  idle_gpus: [0, 0.5, null],
  utilization_pct: [90, 80, null],
  power_w: [1200, 1100, null],
  power_gpus: [2, 2, null],
  energy_kwh: 12,
  gpu_hours: 48,
  busy_gpu_hours: 36,
  held_gpu_hours: 40,
  idle_gpu_hours: 10,
  gpus_seen: 2,
  ...part,
});
const use = (part: Partial<FleetUse> = {}): FleetUse => ({
  times: [0, 900_000, 1_800_000].map((after) => Date.parse("2026-11-20T10:00:00Z") + after),
  step_ms: 900_000,
  start: "2026-11-20T10:00:00Z",
  end: "2026-11-20T10:45:00Z",
  whole: line(null, { gpus: [4096, 4095, null], gpus_seen: 4096 }),
  groups: [line("research"), line(null, { held_gpus: [0, 0, null], idle_gpus: [0, 0, null], power_w: [null, null, null], energy_kwh: null, power_gpus: [null, null, null] })],
  rest: line(null),
  total: 9,
  ...part,
});
const panel = (name: string) => document.querySelector(`[data-panel="${name}"]`);

describe("the fleet over time", () => {
  it("shows what the fleet did, by whom, and says how many GPUs reported", async () => {
    mockApi({ "/api/v1/hosts": now(), [USAGE]: ok(use()) });
    renderAt("/fleet");
    const totals = within(await screen.findByLabelText("All together"));
    expect(totals.getAllByRole("definition").map((each) => each.textContent)).toEqual([
      "4,0964,095 in the last step",
      "12 kWhpower of 2 GPUs",
      "48 h",
      "36 h75% of all",
      "40 h83.3% of all",
      "10 h25% of held",
    ]);
    expect(screen.getAllByTestId("chart").map((chart) => chart.getAttribute("aria-label"))).toEqual([
      "GPUs: 6 values",
      "Power: 2 values",
      "Utilization: 2 values",
      "Held GPUs by namespace: 6 values",
      "Power by namespace: 4 values",
      "Utilization by namespace: 6 values",
      "Held but idle GPUs by namespace: 6 values",
    ]);
    // What was not read is no line, and no zero.
    expect(panel("power-by-namespace")?.querySelector("ul[aria-label^=Lines]")?.textContent).toBe("research1.1 kW7 others1.1 kW");
    expect(panel("gpus")?.querySelector("ul[aria-label^=Lines]")?.textContent).toBe("Reporting4,095Held1.5Held but idle0.5");
    expect([...document.querySelectorAll("[data-group]")].map((row) => row.textContent)).toEqual([
      "research212 kWh48 h36 h 75%40 h 83.3%10 h 25%",
      "No namespace2–48 h36 h 75%40 h 83.3%10 h 25%",
      "7 others212 kWh48 h36 h 75%40 h 83.3%10 h 25%",
    ]);
    expect(screen.getByText(/with the most energy of 9/)).toBeTruthy();
  });

  it("asks by what is chosen, and leads to what a group consists of", async () => {
    const mock = mockApi({ "/api/v1/hosts": now(), [USAGE]: ok(use()) });
    renderAt("/fleet?range=7d&where=cluster%3Deast");
    const link = await screen.findByRole("link", { name: "research" });
    expect(link.getAttribute("href")).toBe("/fleet?by=job&where=cluster%3Deast%3Bnamespace%3Dresearch&range=7d");
    expect(screen.queryByRole("link", { name: "7 others" })).toBeNull();
    const asked = mock.asked.find(({ path }) => path === USAGE)?.params;
    expect(Object.fromEntries(asked ?? [])).toMatchObject({ by: "namespace", where: "cluster=east", step: "7200s", top: "5" });
    await userEvent.click(screen.getByRole("link", { name: "Racks" }));
    await waitFor(() => expect(mock.asked.some(({ path, params }) => path === USAGE && params.get("by") === "rack")).toBe(true));
    await userEvent.click(screen.getByRole("button", { name: "Clear filters" }));
    expect(window.location.search).toBe("?by=rack&range=7d");
  });

  it("ends at the chosen instant, and of a recording at its last sample", async () => {
    const mock = mockApi({ "/api/v1/hosts": host("2026-11-20T11:59:58Z"), [USAGE]: ok(use()) });
    const { unmount } = renderAt("/fleet?range=1h&at=2026-11-20T12:00:00Z");
    await waitFor(() => expect(mock.asked.find(({ path }) => path === USAGE)?.params.get("end")).toBe("2026-11-20T12:00:00.000Z"));
    unmount();
    const later = mockApi({ "/api/v1/hosts": host("2025-07-18T20:42:34Z"), [USAGE]: ok(use()) });
    renderAt("/fleet");
    await waitFor(() => expect(later.asked.find(({ path }) => path === USAGE)?.params.get("end")).toBe("2025-07-18T20:42:34.000Z"));
  });

  it("says when there is nothing, what is simulated, what is missing and what failed", async () => {
    const mock = mockApi({ "/api/v1/hosts": now(), [USAGE]: ok(use({ whole: line(null, { gpus_seen: 0 }), groups: [], rest: null, total: 0 })) });
    const { unmount } = renderAt("/fleet?where=job%3Dgone");
    expect(await screen.findByText(/No GPU or holder that passes the filter/)).toBeTruthy();
    unmount();
    mock.set(USAGE, { body: use({ whole: line(null, { simulated: true }) }), headers: { "x-partial": "host b does not answer" } });
    const { unmount: leave } = renderAt("/fleet");
    expect((await screen.findByRole("note", { name: "Incomplete" })).textContent).toContain("host b does not answer");
    expect(screen.getByText(/made up by gpuvitals/)).toBeTruthy();
    leave();
    mock.set(USAGE, { status: 400, body: { error: "bad request", message: "no such column", code: "bad_parameter" } });
    renderAt("/fleet?by=job");
    expect((await screen.findByRole("alert")).textContent).toContain("no such column");
  });

  it("takes wider steps where the answer would be too large, and says so where one step is too large", async () => {
    const tooLarge: Answer = { status: 400, body: { error: "bad request", message: "take a larger step", code: "too_large" } };
    const width = (params: URLSearchParams) => Number.parseFloat(params.get("step") ?? "");
    const mock = mockApi({ "/api/v1/hosts": now(), [USAGE]: (params) => (width(params) < 900 ? tooLarge : ok(use({ step_ms: 960_000 }))) });
    const { unmount } = renderAt("/fleet?range=1h");
    expect(await screen.findByText(/in a step of 16 min/)).toBeTruthy();
    expect(mock.asked.filter(({ path }) => path === USAGE).map(({ params }) => width(params))).toEqual([60, 240, 960]);
    unmount();
    mock.set(USAGE, tooLarge);
    renderAt("/fleet?by=job");
    expect((await screen.findByRole("alert")).textContent).toContain("take a larger step");
  });
});
