import { expect, test, type Page } from "@playwright/test";
import { complaints, judged, LIVE, needs, XID } from "./servers";

/** What is silenced now, as the server says it. */
async function silenced(page: Page): Promise<readonly { readonly type: string; readonly id: string }[]> {
  const answer = await page.request.get(`${LIVE}/api/v1/analysis/silences`);
  return ((await answer.json()) as { silences: readonly { type: string; id: string }[] }).silences;
}

/** Other tests look at the same server: what a test left silenced is released. */
async function releaseAll(page: Page): Promise<void> {
  for (const { type, id } of await silenced(page)) await page.request.delete(`${LIVE}/api/v1/analysis/silences?${new URLSearchParams({ [type]: id }).toString()}`);
}

/** An instant of tomorrow, as the field of the browser holds it. */
function tomorrow(): string {
  const then = new Date(Date.now() + 86_400_000);
  return new Date(then.getTime() - then.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

test.beforeEach(async ({ page }) => {
  needs(LIVE, "GPUVITALS_LIVE_URL");
  await judged(page, LIVE);
  await releaseAll(page);
});

test.afterEach(async ({ page }) => {
  if (LIVE !== "") await releaseAll(page);
});

test("a finding is silenced until a time, is so in the list and still counts, and is released", async ({ page }) => {
  const heard = complaints(page);
  await page.goto(`${LIVE}/`);
  const finding = page.locator(XID);
  await expect(finding).not.toHaveAttribute("data-silenced");
  await finding.getByRole("button", { name: "Acknowledge" }).click();
  const form = finding.getByRole("form", { name: "Who looks after it" });
  await form.getByRole("textbox", { name: "Who looks after it, and why" }).fill("Kim: board ordered");
  await form.getByRole("combobox", { name: "Until when" }).selectOption("until …");
  const end = form.getByLabel("End", { exact: true });
  await end.fill("2020-01-01T00:00");
  await expect(form.getByRole("button", { name: "Acknowledge" })).toBeDisabled();
  const until = tomorrow();
  await end.fill(until);
  await form.getByRole("button", { name: "Acknowledge" }).click();

  await expect(finding).toHaveAttribute("data-silenced", "");
  await expect(finding).toContainText(`until ${until.replace("T", " ")}:00`);
  await expect(finding).toContainText("Kim: board ordered");
  // It stands behind all that nobody looks after, and is counted and drawn as before.
  const marks = await page.locator("[data-finding]").evaluateAll((items) => items.map((item) => item.hasAttribute("data-silenced")));
  expect(marks.lastIndexOf(false)).toBeLessThan(marks.indexOf(true));
  await expect(page.getByRole("combobox", { name: "Kind" })).toContainText(/Xid nonfatal \(1\)/i);
  await page.goto(`${LIVE}/?kind=xid_nonfatal`);
  await expect(page.getByText("1 finding", { exact: true })).toBeVisible();
  await expect(finding).toHaveAttribute("data-silenced", "");

  await finding.getByRole("button", { name: "Release" }).click();
  await expect(finding.getByRole("button", { name: "Acknowledge" })).toBeVisible();
  await expect(finding).not.toHaveAttribute("data-silenced");
  expect(await silenced(page)).toEqual([]);
  expect(heard).toEqual([]);
});

test("a host is silenced with all that is found there, and is released", async ({ page }) => {
  await page.goto(`${LIVE}/hosts/sim-node-0001`);
  const findings = page.getByRole("region", { name: "Findings" }).locator("[data-finding]");
  await expect(findings.first()).toBeVisible();
  await page.getByRole("button", { name: "Silence this host" }).click();
  const form = page.getByRole("form", { name: "Who looks after it" });
  await expect(form.getByRole("option", { name: "until it closes" })).toHaveCount(0);
  await form.getByRole("textbox", { name: "Who looks after it, and why" }).fill("Kim: board exchange");
  await form.getByRole("combobox", { name: "Until when" }).selectOption("for 1 hour");
  await form.getByRole("button", { name: "Silence", exact: true }).click();
  const note = page.getByRole("note", { name: "Silences" });
  await expect(note).toContainText(/^1 silence:\s*host (simulated\/)?sim-node-0001 until \d\d.*\(Kim: board exchange\)/);
  await expect(page.locator("[data-finding]:not([data-silenced])")).toHaveCount(0);

  await page.goto(`${LIVE}/`);
  await expect(page.locator(XID)).toContainText(/Silenced with host (simulated\/)?sim-node-0001/);
  await note.getByRole("button", { name: /^Release host / }).click();
  await expect(note).toBeHidden();
  await expect(page.locator(XID)).not.toHaveAttribute("data-silenced");
  expect(await silenced(page)).toEqual([]);
});
