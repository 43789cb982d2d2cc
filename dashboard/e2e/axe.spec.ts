import AxeBuilder from "@axe-core/playwright";
import { expect, test, type Page } from "@playwright/test";
import { APART, CLUSTERS, FLEET, LIVE, needs } from "./servers";

/** What nobody may meet on any page. */
const GRAVE = new Set(["serious", "critical"]);

async function grave(page: Page): Promise<string[]> {
  const { violations } = await new AxeBuilder({ page }).analyze();
  return violations
    .filter(({ impact }) => GRAVE.has(impact ?? ""))
    .flatMap(({ id, help, nodes }) => nodes.map(({ target, failureSummary }) => `${id}: ${help} at ${target.join(" ")}: ${failureSummary ?? ""}`));
}

interface Stop {
  readonly name: string;
  readonly path: string;
  readonly server: string;
  readonly variable: string;
  readonly ready: (page: Page) => Promise<void>;
}

const visible = (selector: string) => async (page: Page) => expect(page.locator(selector).first()).toBeVisible();

const STOPS: readonly Stop[] = [
  { name: "Now", path: "/", server: FLEET, variable: "GPUVITALS_FLEET_URL", ready: visible("[data-cells]:not([data-cells='0'])") },
  { name: "GPUs", path: "/gpus", server: LIVE, variable: "GPUVITALS_LIVE_URL", ready: visible("[data-gpu]") },
  { name: "Heat map", path: "/gpus?view=map&colour=temperature_c", server: LIVE, variable: "GPUVITALS_LIVE_URL", ready: visible("[data-cells]:not([data-cells='0'])") },
  { name: "Jobs", path: "/jobs?price=2", server: LIVE, variable: "GPUVITALS_LIVE_URL", ready: visible("[data-group]") },
  { name: "Queue", path: "/queue", server: APART, variable: "GPUVITALS_APART_URL", ready: visible("[data-group]") },
  { name: "Statistics", path: "/statistics", server: LIVE, variable: "GPUVITALS_LIVE_URL", ready: visible("[data-testid=chart] canvas") },
  { name: "About", path: "/about", server: LIVE, variable: "GPUVITALS_LIVE_URL", ready: visible("main dl") },
  { name: "Clusters", path: "/clusters", server: CLUSTERS, variable: "GPUVITALS_CLUSTERS_URL", ready: visible("main h1, main h2") },
];

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

    test("a GPU", async ({ page }) => {
      needs(LIVE, "GPUVITALS_LIVE_URL");
      await page.goto(`${LIVE}/gpus?state=active`);
      await page.locator("tr[data-gpu]").first().getByRole("link").click();
      await expect(page.getByTestId("chart").first().locator("canvas")).toBeVisible();
      expect(await grave(page)).toEqual([]);
    });

    test("GPUs compared", async ({ page, request }) => {
      needs(LIVE, "GPUVITALS_LIVE_URL");
      const { gpus } = (await (await request.get(`${LIVE}/api/v1/gpus?limit=2`)).json()) as { gpus: readonly { id: string }[] };
      await page.goto(`${LIVE}/compare?gpus=${gpus.map(({ id }) => encodeURIComponent(id)).join(",")}`);
      await expect(page.getByTestId("chart").first().locator("canvas")).toBeVisible();
      expect(await grave(page)).toEqual([]);
    });

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
