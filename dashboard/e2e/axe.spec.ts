import AxeBuilder from "@axe-core/playwright";
import { expect, test, type Page } from "@playwright/test";
import { LIVE, needs } from "./servers";
import { STOPS } from "./stops";

/** What nobody may meet on any page. */
const GRAVE = new Set(["serious", "critical"]);

async function grave(page: Page): Promise<string[]> {
  const { violations } = await new AxeBuilder({ page }).analyze();
  return violations
    .filter(({ impact }) => GRAVE.has(impact ?? ""))
    .flatMap(({ id, help, nodes }) => nodes.map(({ target, failureSummary }) => `${id}: ${help} at ${target.join(" ")}: ${failureSummary ?? ""}`));
}

for (const colorScheme of ["light", "dark"] as const) {
  test.describe(`axe finds nothing grave in the ${colorScheme} theme`, () => {
    test.use({ colorScheme });
    // It looks at every element.
    test.slow();

    for (const { name, path, server, variable, ready } of STOPS) {
      test(name, async ({ page }) => {
        needs(server, variable);
        await page.goto(server + path);
        await ready(page);
        expect(await grave(page)).toEqual([]);
      });
    }

    test("the keys", async ({ page }) => {
      needs(LIVE, "GPUVITALS_LIVE_URL");
      await page.goto(`${LIVE}/about`);
      await page.keyboard.press("?");
      await expect(page.getByRole("dialog", { name: "Keyboard" })).toBeVisible();
      expect(await grave(page)).toEqual([]);
    });

    test("a phone", async ({ page }) => {
      needs(LIVE, "GPUVITALS_LIVE_URL");
      await page.setViewportSize({ width: 390, height: 844 });
      await page.goto(`${LIVE}/gpus`);
      await expect(page.locator("li[data-gpu]").first()).toBeVisible();
      expect(await grave(page)).toEqual([]);
    });
  });
}
