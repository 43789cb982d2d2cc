import { expect, test, type Page } from "@playwright/test";
import { complaints, FLEET, judged, needs, expectNoSidewaysScroll } from "./servers";

const map = (page: Page) => page.getByTestId("heatmap");

test.describe("the heat map of 4,096 GPUs, one of them sick", () => {
  test.beforeEach(async ({ page }) => {
    needs(FLEET, "GPUVITALS_FLEET_URL");
    await judged(page, FLEET);
  });

  test("keys lead to the sick GPU, back to the map, and to a comparison", async ({ page }) => {
    const heard = complaints(page);
    await page.goto(`${FLEET}/gpus`);
    await page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: "Heat map" }).click();
    await expect(page).toHaveURL(/\?view=map$/);
    await expect(map(page)).toHaveAttribute("data-cells", "4096");
    await expect(page.getByTestId("legend")).toContainText(/[1-9]\d* ?warning/);
    await map(page).focus();
    for (let press = 0; press < 7; press += 1) await page.keyboard.press("ArrowRight");
    await expect(page.getByText(/^sim-node-0001 \/ GPU 6: warning, XID 63/)).toBeVisible();
    await page.keyboard.press("Space");
    await page.keyboard.press("ArrowLeft");
    await page.keyboard.press("Space");
    await expect(page).toHaveURL(/picked=GPU-.*6%2CGPU-.*5$/);
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("Enter");
    await expect(page).toHaveURL(/\/gpus\/GPU-.*6$/);
    await page.goBack();
    await expect(map(page)).toHaveAttribute("data-cells", "4096");
    await page.getByRole("link", { name: "Compare 2 GPUs" }).click();
    await expect(page.getByRole("heading", { level: 1 })).toHaveText("2 GPUs compared");
    await expect(page.getByTestId("chart").first()).not.toHaveAttribute("data-points", "0");
    expect(heard).toEqual([]);
  });

  test("colour, group, filter and size stand in the address", async ({ page }) => {
    await page.goto(`${FLEET}/gpus?view=map`);
    await page.getByRole("combobox", { name: "Colour" }).selectOption("power_w");
    await page.getByRole("combobox", { name: "Group by" }).selectOption("namespace");
    await expect(page).toHaveURL(/view=map&colour=power_w&group=namespace$/);
    await expect(page.getByTestId("legend")).toContainText(/0 W.*its limit.*not read/);
    await expect(page.getByTestId("summary")).toContainText(/^Power from .* to \d+ W \(sim-node-\d+ \/ GPU \d\), median/);
    await map(page).hover({ position: { x: 200, y: 100 } });
    for (let turn = 0; turn < 4; turn += 1) await page.mouse.wheel(0, -300);
    await expect(page).toHaveURL(/middle=[^&]+&.*zoom=6\.05/);
    const url = page.url();
    await page.reload();
    await expect(map(page)).toHaveAttribute("data-cells", "4096");
    await page.getByRole("button", { name: "Enlarge (+)" }).click();
    await expect(page).not.toHaveURL(url);
    await page.getByRole("button", { name: "Show the whole (0)" }).click();
    await expect(page).not.toHaveURL(/zoom/);
    // A header without room has the field behind its key.
    await page.keyboard.press("/");
    await page.getByRole("searchbox", { name: "Search GPUs" }).fill("sim-node-0001");
    await expect(map(page)).toHaveAttribute("data-cells", "8");
    await page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: "List" }).click();
    await expect(page.locator("tr[data-gpu]")).toHaveCount(8);
  });

  for (const width of [360, 800]) {
    test(`a finger shows, opens and picks on a screen ${width} px wide, and nothing scrolls sideways`, async ({ browser }) => {
      const context = await browser.newContext({ hasTouch: true, viewport: { width, height: 800 } });
      const page = await context.newPage();
      await page.goto(`${FLEET}/gpus?view=map&search=sim-node-000`);
      await expect(map(page)).toHaveAttribute("data-cells", "72");
      // What comes in above the map moves it away from under the finger.
      await expect(async () => {
        await map(page).tap({ position: { x: 6, y: 26 } });
        await expect(page.getByText(/^sim-node-0001 \/ GPU 0: /)).toBeVisible({ timeout: 3_000 });
      }).toPass({ timeout: 30_000 });
      await expectNoSidewaysScroll(page);
      await page.getByRole("button", { name: "Pick", exact: true }).tap();
      await expect(page.getByRole("link", { name: "Compare 1 GPU" })).toBeVisible();
      await page.getByRole("link", { name: "Open" }).tap();
      await expect(page).toHaveURL(/\/gpus\/GPU-/);
      await context.close();
    });
  }
});
