import { expect, test, type Page } from "@playwright/test";
import { flaws } from "./axe";
import { FLEET, judged, LIVE, madeUp, needs, RECORDED, XID } from "./servers";

/** What a person opens on a page: every page as it comes is looked at in `pages.spec.ts`. */
interface Opened {
  readonly name: string;
  readonly server: string;
  readonly variable: string;
  readonly open: (page: Page) => Promise<void>;
}

const live = { server: LIVE, variable: "GPUVITALS_LIVE_URL" };
const sick = async (page: Page) => {
  await judged(page, LIVE);
  await page.goto(`${LIVE}/`);
  await expect(page.locator(XID)).toBeVisible();
};

const OPENED: readonly Opened[] = [
  {
    ...live,
    name: "the keys",
    open: async (page) => {
      await page.goto(`${LIVE}/about`);
      // Loaded is not yet drawn, and what is not drawn hears no keys.
      await expect(page.locator("main dl").first()).toBeVisible();
      await page.keyboard.press("?");
      await expect(page.getByRole("dialog", { name: "Keyboard" })).toBeVisible();
    },
  },
  {
    ...live,
    name: "the search, opened",
    open: async (page) => {
      await page.goto(`${LIVE}/about`);
      await expect(page.locator("main dl").first()).toBeVisible();
      await page.keyboard.press("/");
      await expect(page.getByRole("searchbox", { name: "Search GPUs" })).toBeFocused();
    },
  },
  {
    ...live,
    name: "a fleet of a few GPUs, each with its card",
    open: async (page) => {
      const metrics = { utilization_pct: 87, power_w: 512, power_limit_w: 700, temperature_c: 61, memory_used_mb: 40_960 };
      const body = madeUp(12, (gpu) => ({ metrics, ...(gpu === 3 && { judgement: "lost", state: "stale" }) }));
      await page.route(/\/api\/v1\/gpus\?/, (route) => route.fulfill({ contentType: "application/json", body }));
      await page.goto(`${LIVE}/`);
      await expect(page.getByTestId("cards").locator("[data-gpu]")).toHaveCount(12);
    },
  },
  {
    server: RECORDED,
    variable: "GPUVITALS_URL",
    name: "a recording as of its end",
    open: async (page) => {
      await page.goto(`${RECORDED}/`);
      await expect(page.getByTestId("as-of")).toBeVisible();
      await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
      await page.getByText("What changed").click();
    },
  },
  {
    ...live,
    name: "an address that is not understood",
    open: async (page) => {
      await page.goto(`${LIVE}/gpus?at=yesterday&state=x`);
      await expect(page.getByTestId("as-of-wrong")).toBeVisible();
      await expect(page.getByRole("list", { name: "Not understood in the address" })).toBeVisible();
      await expect(page.locator("[data-gpu]").first()).toBeVisible();
    },
  },
  {
    ...live,
    name: "the form of a silence",
    open: async (page) => {
      await sick(page);
      await page.locator(XID).getByRole("button", { name: "Acknowledge" }).click();
      await page.getByRole("combobox", { name: "Until when" }).selectOption("until …");
    },
  },
  {
    server: FLEET,
    variable: "GPUVITALS_FLEET_URL",
    name: "why a GPU was slow, and the menu of a chart",
    open: async (page) => {
      await judged(page, FLEET);
      await page.goto(`${FLEET}/gpus/sim-node-0001:gpu6?why=1`);
      await expect(page.getByTestId("why")).toContainText(/\w/);
      const chart = page.getByTestId("chart").first();
      await expect(chart).not.toHaveAttribute("data-points", "0");
      await chart.getByLabel(/^Export/).click();
      await expect(chart.getByRole("button", { name: "Copy as curl" })).toBeVisible();
    },
  },
];

const PHONE = { width: 390, height: 844 };
/** One look takes longer than other answers of a page may, if the machine is busy. */
const LOOK_MS = 60_000;

test("axe names each flaw, those of colours by themselves, and small targets where a finger touches", async ({ page }) => {
  await page.setContent(`<html lang="en"><title>Flaws</title><main><h1>Flaws</h1>
    <p style="background: #fff; color: #aaa">faint</p><p style="background: #fff; color: #aaa">faint, too</p><img src="x.png">
    <button style="width: 9px; height: 9px; padding: 0" aria-label="one"></button><button style="width: 9px; height: 9px; padding: 0" aria-label="two"></button>
  </main></html>`);
  const rules = (found: readonly string[]) => found.map((flaw) => flaw.split(":")[0]);
  const faint = ["serious, color-contrast", "serious, color-contrast"];
  expect(rules(await flaws(page, { isOfColours: true }))).toEqual(faint);
  expect(rules(await flaws(page))).toEqual([...faint, "critical, image-alt"]);
  expect(rules(await flaws(page, { isTouched: true }))).toEqual([...faint, "critical, image-alt", "serious, target-size", "serious, target-size"]);
});

test.describe("axe finds nothing on a desktop", () => {
  // It looks at every element.
  test.slow();

  for (const { name, server, variable, open } of OPENED) {
    test(`${name}, on a desktop`, async ({ page }) => {
      needs(server, variable);
      await open(page);
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
        const look = { message: colorScheme, timeout: LOOK_MS };
        await expect.poll(() => flaws(page, { isOfColours: colorScheme === "dark" }), look).toEqual([]);
      }
    });
  }
});

// Themes differ in colours alone, which do not depend on the screen. The pages as they open are looked at beside their layout.
test.describe("axe finds nothing on a phone", () => {
  test.use({ viewport: PHONE });
  test.slow();

  for (const { name, server, variable, open } of OPENED) {
    test(name, async ({ page }) => {
      needs(server, variable);
      await open(page);
      expect(await flaws(page, { isTouched: true })).toEqual([]);
    });
  }
});
