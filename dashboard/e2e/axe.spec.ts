import { expect, test } from "@playwright/test";
import { flaws } from "./axe";
import { LIVE, needs } from "./servers";

for (const colorScheme of ["light", "dark"] as const) {
  test.describe(`axe finds nothing in the ${colorScheme} theme`, () => {
    test.use({ colorScheme });
    // It looks at every element.
    test.slow();

    test("the keys", async ({ page }) => {
      needs(LIVE, "GPUVITALS_LIVE_URL");
      await page.goto(`${LIVE}/about`);
      // Loaded is not yet drawn, and what is not drawn hears no keys.
      await expect(page.locator("main dl").first()).toBeVisible();
      await page.keyboard.press("?");
      await expect(page.getByRole("dialog", { name: "Keyboard" })).toBeVisible();
      expect(await flaws(page)).toEqual([]);
    });

    test("a phone", async ({ page }) => {
      needs(LIVE, "GPUVITALS_LIVE_URL");
      await page.setViewportSize({ width: 390, height: 844 });
      await page.goto(`${LIVE}/gpus`);
      await expect(page.locator("li[data-gpu]").first()).toBeVisible();
      expect(await flaws(page)).toEqual([]);
    });
  });
}
