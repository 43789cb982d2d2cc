import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { expect, it } from "vitest";
import type { Incident } from "../../api/incidents";
import { FakePlot } from "../../testing/FakePlot";
import { gpu, incident, mockApi, ok, type Handler } from "../../testing/mockApi";
import { renderAt } from "../../testing/render";

const ID = gpu().id;
const PATH = `/api/v1/gpus/${ID}`;
const NAME = incident().id;
const ROWS = `/api/v1/flight/incidents/${NAME}/rows`;
const FROM = Date.parse("2026-11-20T09:59:30Z");
const HOUR = `from=${new Date(FROM - 1_800_000).toISOString()}&to=${new Date(FROM + 1_800_000).toISOString()}`;

function detail(incidents: readonly Incident[]): Handler {
  const at = new Date().toISOString();
  return ok({ gpu: gpu(), latest: { power_w: { value: 500, timestamp: at } }, labels: { source: "nvml", pod: null }, first_seen: "2026-11-20T08:00:00Z", incidents });
}

/** Two steps of the store. */
const steps: Handler = (params) => {
  const start = Date.parse(params.get("start") ?? "");
  const series = ["mean", "min", "max"].map((aggregate) => ({ metric: "power_w", gpu: ID, aggregate, values: [400, 410] }));
  return ok({ times: [start, start + 1000], series, step_ms: 1000 });
};

const rows = ok({ id: NAME, gpu: ID, node: "node-1", part: "window", times: [0, 10, 20, 30].map((ms) => FROM + ms), values: { power_w: [500, 510, null, 30] } });

const points = () => document.querySelector('[data-panel="power-W-0"]')?.getAttribute("data-points");
const notice = () => screen.findByRole("note", { name: "Incident" });

it("is a mark on each chart, and in words, that opens its window with all rows", async () => {
  const mock = mockApi({ [PATH]: detail([incident()]), "/api/v1/query": steps, [ROWS]: rows });
  renderAt(`/gpus/${ID}?${HOUR}`);
  const marks = await screen.findByRole("region", { name: "Marks above the charts" });
  expect(marks.textContent).toContain("1 incident");
  expect(within(marks).getByRole("link", { hidden: true }).textContent).toBe(`Incident ${NAME}: XID 79`);
  const mark = await screen.findByRole("link", { name: `Incident ${NAME}: XID 79: open its window` });
  expect(mark.style.left).toMatch(/^51\.6/);
  mark.focus();
  await userEvent.keyboard("{Enter}");
  expect(window.location.search).toBe(`?incident=${NAME}`);
  await waitFor(() => expect(points()).toBe("3"));
  expect((await notice()).textContent).toContain("the charts show all 4 rows that node-1 has sent of its window.");
  const scale = () => FakePlot.made.find((made) => made.destroyed === 0)?.scales.at(-1);
  await waitFor(() => expect(scale()).toEqual({ min: FROM, max: FROM + 90_000 }));
  const asked = mock.asked.find(({ path }) => path === ROWS)?.params;
  expect([asked?.get("gpu"), asked?.get("metrics")]).toEqual([ID, "power_w"]);

  await userEvent.click(within(await notice()).getByRole("link", { name: "Show what the store has" }));
  expect(window.location.search).toMatch(/^\?from=.*&to=[^&]*$/);
  await waitFor(() => expect(points()).toBe("2"));
  expect(screen.queryByRole("note", { name: "Incident" })).toBeNull();
});

it("is left when another range is chosen", async () => {
  mockApi({ [PATH]: detail([incident()]), "/api/v1/query": steps, [ROWS]: rows });
  renderAt(`/gpus/${ID}?incident=${NAME}`);
  await notice();
  await userEvent.click(screen.getByRole("button", { name: "Last 6 hours" }));
  expect(window.location.search).toBe("?range=6h");
  expect(screen.queryByRole("note", { name: "Incident" })).toBeNull();
});

it.each([
  ["its node has sent none", [incident({ has_rows: false, nodes_had: 0 })], rows, "its node has sent no rows of this GPU (0 of 3 nodes have answered); the charts show what the store has."],
  ["the token may not read them", [incident()], { status: 403, body: { error: "forbidden", message: "the token lacks the scope flight", code: "forbidden" } }, "its rows could not be read: the token lacks the scope flight; the charts show what the store has."],
  ["it is not kept any more", [], rows, "this server keeps none of this GPU by that id; the charts show what the store has."],
] as const)("shows the store's values and says why where %s", async (_name, incidents, answer, words) => {
  mockApi({ [PATH]: detail(incidents), "/api/v1/query": steps, [ROWS]: answer });
  renderAt(`/gpus/${ID}?incident=${NAME}`);
  await waitFor(async () => expect((await notice()).textContent).toContain(words));
  // Without a window the charts are live, and move on.
  if (incidents.length > 0) await waitFor(() => expect(points()).toBe("2"));
});
