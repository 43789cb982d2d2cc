import { expect, test } from "@playwright/test";
import { complaints, FLEET, judged, LIVE, needs, RECORDED, say, sidewaysScroll } from "./servers";

/** From the click on the page's link to the evidence, in time of the machine: the person is not counted. */
const PATH_WITHIN_MS = 5000;
/**
 * How much longer the strip may take than its answer does in the same browser, read and thrown away, and a page without data
 * together. A time alone measures how busy the machine is: on two cores the strip took 0.9 to 4.5 s, 1.1 to 2.4 times those.
 */
const STRIP_WITHIN = 4;

/** The XID of the simulated fleet's sick GPU. */
const XID = "[data-finding^='xid:']";

test.describe("4,096 GPUs, one of them sick", () => {
  test.beforeEach(async ({ page }) => {
    needs(FLEET, "GPUVITALS_FLEET_URL");
    await judged(page, FLEET);
  });

  test("from the cold page to the sick GPU and the evidence: two clicks, seconds", async ({ page }) => {
    const heard = complaints(page);
    const began = Date.now();
    await page.goto(`${FLEET}/`);
    const finding = page.locator(XID);
    await expect(finding).toContainText(/critical.*sim-node-0001 \/ GPU 6.*XID 63.*XID last 63/s);
    const seen = Date.now() - began;
    await finding.getByRole("link", { name: /GPU 6/ }).click();
    const own = page.getByRole("region", { name: "Findings" });
    await expect(own.locator(XID)).toContainText("XID 63");
    const chart = page.locator('[data-testid="chart"][data-evidence="true"]').first();
    await expect(chart).not.toHaveAttribute("data-points", "0");
    await expect(chart.locator("canvas")).toBeVisible();
    await chart.scrollIntoViewIfNeeded();
    const whole = Date.now() - began;
    say(`4,096 GPUs: the finding after ${seen} ms, its evidence on the page of the GPU after ${whole} ms`);
    expect(whole).toBeLessThan(PATH_WITHIN_MS);
    await page.goBack();
    await expect(finding).toBeVisible();
    expect(heard).toEqual([]);
  });

  test("the strip has a cell for every GPU and leads to one", async ({ page }) => {
    await page.goto(`${FLEET}/gpus`);
    await expect(page.locator("tr[data-gpu]").first()).toBeVisible();
    const strip = page.getByTestId("strip");
    const timed = async (work: () => Promise<unknown>) => {
      const began = Date.now();
      await work();
      return Date.now() - began;
    };
    const now = page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Now" });
    const cells = await timed(async () => {
      await now.click();
      await expect(strip).toHaveAttribute("data-cells", "4096");
    });
    const empty = await timed(async () => {
      await page.getByRole("link", { name: "About gpuvitals" }).click();
      await expect(page.locator("main dl").first()).toBeVisible();
    });
    // Another limit than the page's: an answer that nobody has cached.
    const answer = await timed(() => page.evaluate(async () => ((await (await fetch("/api/v1/gpus?limit=9999")).json()) as { gpus: unknown[] }).gpus.length));
    say(`4,096 cells after ${cells} ms, their answer alone after ${answer} ms, a page without data after ${empty} ms`);
    expect(cells).toBeLessThan(STRIP_WITHIN * (answer + empty));
    await now.click();
    await strip.hover({ position: { x: 2, y: 2 } });
    await expect(page.getByText(/^sim-node-0001 \/ GPU 0: /)).toBeVisible();
    await strip.focus();
    for (let press = 0; press < 6; press += 1) await page.keyboard.press("ArrowRight");
    await expect(page.getByText(/^sim-node-0001 \/ GPU 6: unhealthy, XID 63/)).toBeVisible();
    await page.keyboard.press("Enter");
    await expect(page).toHaveURL(/\/gpus\/GPU-.*6$/);
    await page.goBack();
    await strip.click({ position: { x: 2, y: 2 } });
    await expect(page).toHaveURL(/\/gpus\/GPU-.*0$/);
  });

  test("the list begins with the sick GPU and says why", async ({ page }) => {
    await page.goto(`${FLEET}/gpus`);
    const rows = page.locator("tr[data-gpu]");
    await expect(rows.first()).toContainText(/sim-node-0001.*unhealthy/s);
    // With time the hot GPU of the same host joins it.
    const sick = rows.filter({ hasText: "XID 63" });
    await expect(sick).toContainText(/sim-node-0001.*unhealthy.*a memory row waits/s);
    expect((await sick.boundingBox())?.y).toBeLessThan(450);
    await page.setViewportSize({ width: 390, height: 800 });
    await expect(page.locator("li[data-gpu]").filter({ hasText: "XID 63" })).toContainText(/unhealthy.*XID 63/s);
  });

  test("filters stand in the address, and a command is copied with the number of the GPU", async ({ page, context }) => {
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    await page.goto(`${FLEET}/`);
    await page.getByRole("combobox", { name: "Kind" }).selectOption("row_remap_pending");
    await expect(page).toHaveURL(/\?kind=row_remap_pending$/);
    await page.reload();
    await expect(page.locator("[data-finding]")).toHaveCount(1);
    await page.getByRole("button", { name: "Copy nvidia-smi --gpu-reset -i 6" }).click();
    await expect(page.getByRole("button", { name: "Copied" })).toBeVisible();
    expect(await page.evaluate(() => navigator.clipboard.readText())).toBe("nvidia-smi --gpu-reset -i 6");
    await page.getByRole("button", { name: "Clear filters" }).click();
    await expect(page.locator(XID)).toBeVisible();
  });
});

test("a recording whose GPUs are silent is not said to be well", async ({ page }) => {
  needs(RECORDED, "GPUVITALS_URL");
  const heard = complaints(page);
  await page.goto(`${RECORDED}/`);
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
    expect(await sidewaysScroll(page)).toBeLessThanOrEqual(0);
    await page.locator(XID).locator("a[data-row]").click();
    await expect(page.getByRole("region", { name: "Findings" })).toBeVisible();
    expect(await sidewaysScroll(page)).toBeLessThanOrEqual(0);
  });
}
