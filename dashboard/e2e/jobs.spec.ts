import { expect, test } from "@playwright/test";
import { complaints, LIVE, needs, RECORDED, expectNoSidewaysScroll } from "./servers";

test.describe("jobs and namespaces", () => {
  test.beforeEach(() => needs(LIVE, "GPUVITALS_LIVE_URL"));

  test("who holds GPUs for nothing, what it costs, and which GPUs these are", async ({ page }) => {
    const heard = complaints(page);
    await page.goto(`${LIVE}/`);
    await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Jobs" }).click();
    const rows = page.locator("tr[data-group]");
    await expect(rows.first()).toBeVisible();
    const idle = await rows.evaluateAll((all) => all.map((row) => parseFloat(row.children[5]?.textContent ?? "")).filter((hours) => !Number.isNaN(hours)));
    expect(idle).toEqual([...idle].sort((a, b) => b - a));
    await page.getByRole("textbox", { name: "Price of a GPU hour" }).fill("2,5");
    await expect(page).toHaveURL(/price=2\.5$/);
    await expect(page.getByRole("columnheader", { name: "Cost while idle" })).toBeVisible();
    await page.getByRole("button", { name: "Last 1 hour" }).click();
    await page.getByRole("navigation", { name: "Groups" }).getByRole("link", { name: "Jobs" }).click();
    await expect(page).toHaveURL(/by=job&range=1h&price=2\.5$/);
    await page.reload();
    const held = page.locator("tr[data-group]:not([data-group=''])").first();
    const job = (await held.getAttribute("data-group")) ?? "";
    await held.getByRole("link").click();
    await expect(page).toHaveURL(new RegExp(`where=job%3D${job}$`));
    await expect(page.getByRole("button", { name: `job ${job} ×` })).toBeVisible();
    await page.goBack();
    await expect(held).toBeVisible();
    expect(heard).toEqual([]);
  });

  test("each job and pod by what agents added up, with nobody's time below", async ({ page }) => {
    const heard = complaints(page);
    const rows = page.locator("tbody[data-group]");
    // The first sums come ten seconds after the first sample.
    await expect(async () => {
      await page.goto(`${LIVE}/jobs?by=holder&range=1h&price=2`);
      await expect(rows.first()).toBeVisible({ timeout: 2_000 });
    }).toPass({ timeout: 30_000 });
    await expect(rows.first()).toContainText("simulated");
    await expect(page.getByRole("columnheader", { name: "Cost of waste" })).toBeVisible();
    await expect(page.getByRole("list", { name: "The rest of the time" })).toContainText("Nobody had GPUs for");
    await rows.first().locator("[data-row]").click();
    await expect(page).toHaveURL(/\/jobs\/(pod|job)%3A/);
    await expect(page.getByLabel("All together")).toContainText("never used");
    await expect(page.getByRole("region", { name: "Its hosts over time" }).getByRole("img").first()).toBeVisible();
    await expect(page.getByRole("region", { name: "Its GPUs over each other" }).locator("[data-panel]").first()).toBeVisible();
    await page.goBack();
    await rows.first().getByRole("link", { name: /^sim-node-/ }).first().click();
    await expect(page).toHaveURL(/\/hosts\/sim-node-/);
    expect(heard).toEqual([]);
  });

  test("a phone has cards, and nothing scrolls sideways", async ({ page }) => {
    await page.setViewportSize({ width: 360, height: 800 });
    await page.goto(`${LIVE}/jobs?price=3`);
    await expect(page.locator("li[data-group]").first()).toContainText("Cost while idle");
    await expectNoSidewaysScroll(page);
  });
});

test("ranges of a recording end at its last sample; a time without values says so", async ({ page }) => {
  needs(RECORDED, "GPUVITALS_URL");
  await page.goto(`${RECORDED}/jobs?at=now`);
  await expect(page.getByRole("note", { name: "Age of the data" })).toContainText("Ranges end there, not now.");
  await expect(page.locator("tr[data-group]").first()).toBeVisible();
  await page.goto(`${RECORDED}/jobs?from=2000-01-01T00:00:00Z&to=2000-01-02T00:00:00Z`);
  await expect(page.getByText("No values in this range")).toBeVisible();
});
