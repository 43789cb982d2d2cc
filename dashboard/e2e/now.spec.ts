import { expect, test } from "@playwright/test";
import { complaints, expectNoSidewaysScroll, FLEET, judged, LIVE, needs, RECORDED, XID } from "./servers";

test.describe("4,096 GPUs, one of them sick", () => {
  test.beforeEach(async ({ page }) => {
    needs(FLEET, "GPUVITALS_FLEET_URL");
    await judged(page, FLEET);
  });

  test("the list begins with the sick GPU and says why", async ({ page }) => {
    await page.goto(`${FLEET}/gpus`);
    const rows = page.locator("tr[data-gpu]");
    await expect(rows.first()).toContainText(/sim-node-0001.*(lost|critical|warning|unconfirmed)/s);
    // With time the hot GPU of the same host joins it.
    const sick = rows.filter({ hasText: "XID 63" });
    await expect(sick).toContainText(/sim-node-0001.*warning.*a memory row waits/s);
    expect((await sick.boundingBox())?.y).toBeLessThan(450);
    await page.setViewportSize({ width: 390, height: 800 });
    await expect(page.locator("li[data-gpu]").filter({ hasText: "XID 63" })).toContainText(/warning.*XID 63/s);
  });

  test("filters stand in the address, and a command is copied with the number of the GPU", async ({ page, context }) => {
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    await page.goto(`${FLEET}/`);
    await page.getByRole("combobox", { name: "Kind" }).selectOption("xid_nonfatal");
    await expect(page).toHaveURL(/\?kind=xid_nonfatal$/);
    await page.reload();
    await expect(page.locator("[data-finding]")).toHaveCount(1);
    await page.getByRole("button", { name: "Copy nvidia-smi --gpu-reset -i 6" }).click();
    await expect(page.getByRole("button", { name: "Copied" })).toBeVisible();
    expect(await page.evaluate(() => navigator.clipboard.readText())).toBe("nvidia-smi --gpu-reset -i 6");
    await page.getByRole("button", { name: "Clear filters" }).click();
    await expect(page.locator(XID)).toBeVisible();
  });
});

test("a recording opens as of its end, and seen from now its GPUs are silent", async ({ page }) => {
  needs(RECORDED, "GPUVITALS_URL");
  const heard = complaints(page);
  await page.goto(`${RECORDED}/`);
  const notice = page.getByTestId("as-of");
  await expect(notice).toContainText("the end of a recording");
  await expect(page.getByRole("heading", { level: 1 })).not.toHaveText(/reports any more/);
  await expect(page.getByRole("slider")).toHaveValue("1440");
  await notice.getByRole("button", { name: "Go to now" }).click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText(/^None of \d+ GPUs reports any more$/);
  expect(heard).toEqual([]);
});

test("an API that goes down leaves the findings, and says that they are old", async ({ page }) => {
  needs(LIVE, "GPUVITALS_LIVE_URL");
  await judged(page, LIVE);
  await page.goto(`${LIVE}/`);
  await expect(page.locator(XID)).toBeVisible();
  const all = /\/(api\/v1|health|stats)/;
  await page.route(all, (route) => route.abort());
  await expect(page.getByText(/API unreachable since \d\d:\d\d:\d\d/)).toBeVisible();
  await expect(page.getByRole("note", { name: "About this" })).toContainText("Not renewed: as of");
  await expect(page.locator(XID)).toBeVisible();
});

for (const width of [360, 390, 800]) {
  test(`nothing scrolls sideways on a screen ${width} px wide, also with long words`, async ({ page }) => {
    needs(LIVE, "GPUVITALS_LIVE_URL");
    await judged(page, LIVE);
    const long = "very_long_name_".repeat(12);
    await page.route(/\/api\/v1\/analysis\/findings/, async (route) => {
      const response = await route.fetch();
      const body = (await response.text()).replace(/"(pod|job|namespace|sentence)":"[^"]*"/g, `"$1":"${long}"`).replaceAll("dmesg | grep -i xid", `dmesg --${long}`);
      await route.fulfill({ response, body });
    });
    await page.setViewportSize({ width, height: 800 });
    await page.goto(`${LIVE}/`);
    await expect(page.locator(XID)).toBeVisible();
    await expectNoSidewaysScroll(page);
    await page.locator(XID).locator("a[data-row]").click();
    await expect(page.getByRole("region", { name: "Findings" })).toBeVisible();
    await expectNoSidewaysScroll(page);
  });
}
