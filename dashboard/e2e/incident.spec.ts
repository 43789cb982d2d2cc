import { expect, test } from "@playwright/test";
import { flaws } from "./axe";
import { complaints, LIVE, needs } from "./servers";

interface Held {
  readonly id: string;
  readonly hostname: string;
  readonly labels: { readonly job: string | null; readonly cluster: string | null };
}

/** What was said of a GPU serves until the fleet is judged again. */
const SAID_WITHIN_MS = 40_000;

test("an incident is a mark on each chart of its GPU, which opens its window", async ({ page }) => {
  needs(LIVE, "GPUVITALS_LIVE_URL");
  test.setTimeout(90_000);
  const heard = complaints(page);
  const list = (await (await page.request.get(`${LIVE}/api/v1/gpus?labels=job,cluster`)).json()) as { gpus: readonly Held[] };
  const held = list.gpus.find(({ labels }) => labels.job !== null);
  if (held === undefined) throw new Error("no GPU has a job");
  // As the agent of its node tells of it. The number is beyond what a browser counts exactly: some of its last digits are 0.
  const trigger = { kind: "xid", gpu: held.id, code: 79, detail: "XID 79: fell off the bus", rule: null, at_ns: Date.now() * 1_000_000 };
  const node = held.labels.cluster === null ? held.hostname : `${held.labels.cluster}/${held.hostname}`;
  const told = await page.request.post(`${LIVE}/api/v1/flight/requests`, { data: { node, incident: `own-${Date.now()}`, trigger } });
  const { id } = (await told.json()) as { id: string | null };
  if (id === null) throw new Error("the gateway knows no job there");
  const named = async () => {
    const { incidents = [] } = (await (await page.request.get(`${LIVE}/api/v1/gpus/${encodeURIComponent(held.id)}`)).json()) as { incidents?: readonly { id: string }[] };
    return incidents.map((incident) => incident.id);
  };
  await expect.poll(named, { timeout: SAID_WITHIN_MS }).toContain(id);

  await page.goto(`${LIVE}/gpus/${encodeURIComponent(held.id)}`);
  const charts = page.getByTestId("chart");
  await expect(charts.first()).not.toHaveAttribute("data-points", "0");
  const marks = page.getByRole("link", { name: /^Incident .*: open its window$/ });
  await expect(marks).toHaveCount(await charts.count());
  await expect(marks.first()).toHaveAttribute("title", `Incident ${id}: XID 79: fell off the bus: open its window`);
  expect(await flaws(page)).toEqual([]);
  await marks.first().focus();
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(new RegExp(`incident=${id}$`));
  const note = page.getByRole("note", { name: "Incident" });
  await expect(note).toContainText("its node has sent no rows of this GPU");
  await expect(note).toContainText(`gpuvitals flight fetch ${id}`);
  expect(await flaws(page)).toEqual([]);
  await note.getByRole("link", { name: "Leave it" }).click();
  await expect(note).toHaveCount(0);
  await expect(page).toHaveURL(/from=.*&to=/);
  expect(heard).toEqual([]);
});
