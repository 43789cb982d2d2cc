import { expect, test } from "@playwright/test";
import { complaints, needs, RECORDED, expectNoSidewaysScroll } from "./servers";

test.describe("a recorded capture", () => {
  test.beforeEach(() => needs(RECORDED, "GPUVITALS_URL"));

  test("the list shows every GPU of the capture", async ({ page, request }) => {
    const heard = complaints(page);
    const answer = (await (await request.get(`${RECORDED}/api/v1/gpus?limit=1`)).json()) as { total: number };
    await page.goto(`${RECORDED}/gpus`);
    await expect(page.getByRole("status").filter({ hasText: /GPUs?$/ })).toHaveText(`${answer.total.toLocaleString("en")} GPUs`);
    const rows = page.locator("tr[data-gpu]");
    await expect(rows).toHaveCount(Math.min(50, answer.total));
    // It opens as of its end: then all of them reported.
    await expect(page.getByTestId("as-of")).toContainText("the end of a recording");
    await expect(page.getByRole("button", { name: /^stale/i })).toHaveCount(0);
    await expect(rows.first()).toContainText("°C");
    expect(heard).toEqual([]);
  });

  test("search narrows the list and stands in the address", async ({ page }) => {
    await page.goto(`${RECORDED}/gpus`);
    const row = page.locator("tr[data-gpu]").nth(3);
    const id = (await row.getAttribute("data-gpu")) ?? "";
    await page.keyboard.press("/");
    await page.keyboard.type(id);
    await expect(page.locator("tr[data-gpu]")).toHaveCount(1);
    await page.reload();
    await expect(page.locator("tr[data-gpu]")).toHaveCount(1);
    await expect(page.getByRole("searchbox", { name: "Search GPUs" })).toHaveValue(id);
  });

  test("a host is chosen, a column sorts", async ({ page }) => {
    await page.goto(`${RECORDED}/gpus`);
    const hosts = page.getByRole("combobox", { name: "Host" });
    await expect(hosts.locator("option")).not.toHaveCount(1);
    const host = (await hosts.locator("option").nth(1).getAttribute("value")) ?? "";
    await hosts.selectOption(host);
    await expect(page).toHaveURL(new RegExp(`host=${host}`));
    await page.getByRole("button", { name: "Temperature" }).click();
    await expect(page.getByRole("columnheader", { name: "Temperature" })).toHaveAttribute("aria-sort", "descending");
    const cells = page.locator("tr[data-gpu] td:nth-of-type(6)");
    await expect
      .poll(async () => {
        const celsius = (await cells.allInnerTexts()).map((text) => Number.parseFloat(text)).filter((value) => !Number.isNaN(value));
        return celsius.every((value, place) => place === 0 || value <= (celsius[place - 1] ?? value));
      })
      .toBe(true);
  });

  test("a GPU opens by keyboard; its chart shows the recorded values at their own time", async ({ page }) => {
    const heard = complaints(page);
    await page.goto(`${RECORDED}/gpus?at=now`);
    await expect(page.locator("tr[data-gpu]").first()).toBeVisible();
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await expect(page).toHaveURL(/\/gpus\/.+/);
    await expect(page.getByRole("note", { name: "Age of the data" })).toContainText(/Last seen \d+ \w+ ago/);
    const chart = page.getByTestId("chart").first();
    await expect(chart).not.toHaveAttribute("data-points", "0");
    await expect(chart.locator("canvas")).toBeVisible();
    expect(await chart.locator("canvas").evaluate(isPainted)).toBe(true);
    await expect(page.locator('[data-metric="power_w"]')).toContainText("W");
    expect(heard).toEqual([]);
  });

  test("times are those of the person's zone, which stands beside the range, until UTC is chosen", async ({ browser }) => {
    const context = await browser.newContext({ timezoneId: "Asia/Tokyo" });
    const page = await context.newPage();
    await page.goto(`${RECORDED}/gpus?at=now`);
    await page.locator("tr[data-gpu]").first().getByRole("link").click();
    const age = page.getByRole("note", { name: "Age of the data" });
    const seen = async (offset: string) => Date.parse(((await age.locator("[title]").getAttribute("title")) ?? "").replace(/^(\S+) (\S+) .*$/, `$1T$2${offset}`));
    await expect(page.getByRole("button", { name: "Times in Asia/Tokyo. Change" })).toBeVisible();
    const instant = await seen("+09:00");
    expect(instant).toBeGreaterThan(0);
    const url = page.url();
    await page.keyboard.press("u");
    await expect(page.getByRole("button", { name: "Times in UTC. Change" })).toBeVisible();
    expect(await seen("Z")).toBe(instant);
    expect(page.url()).toBe(url);
    await page.reload();
    await expect(page.getByRole("button", { name: "Times in UTC. Change" })).toBeVisible();
    await context.close();
  });

  test("a click anywhere in a row opens its GPU", async ({ page }) => {
    await page.goto(`${RECORDED}/gpus`);
    await page.locator("tr[data-gpu]").first().locator("td").last().click();
    await expect(page).toHaveURL(/\/gpus\/.+/);
  });

  test("an unknown GPU is said to be unknown", async ({ page }) => {
    await page.goto(`${RECORDED}/gpus/${encodeURIComponent("../../x")}`);
    await expect(page.getByText("No such GPU")).toBeVisible();
  });

  for (const width of [360, 390]) {
    test(`a phone ${width} px wide: cards, a GPU, no sideways scrolling`, async ({ page }) => {
      await page.setViewportSize({ width, height: 800 });
      await page.goto(`${RECORDED}/gpus`);
      const card = page.locator("li[data-gpu]").first();
      await expect(card).toBeVisible();
      await expect(page.locator("table")).toHaveCount(0);
      await expectNoSidewaysScroll(page);
      await card.getByRole("link").click();
      await expect(page.getByTestId("chart").first()).not.toHaveAttribute("data-points", "0");
      await expectNoSidewaysScroll(page);
    });
  }

  for (const width of [360, 390, 800]) {
    test(`a long reason of trouble fits a screen ${width} px wide`, async ({ page }) => {
      const reason = `rows cannot be stored: writing /var/lib/gpuvitals/${"very_long_name_".repeat(12)}000017.log: ${"no space left on device; ".repeat(8)}trying again`;
      const part = { status: "degraded", reason, since: "2026-11-19T08:30:00Z" };
      await page.route("**/health", (route) =>
        route.fulfill({ status: 503, json: { ...part, service: "telemetry-api-gateway", timestamp: part.since, version: "0", queue: part, queues: [], collector: part, collectors: [], store: part } }),
      );
      await page.route(/\/api\/v1\/gpus/, async (route) => {
        const response = await route.fetch();
        const body = (await response.text()).replace(/"state_reason":(null|"[^"]*")/g, `"state_reason":${JSON.stringify(reason)}`);
        await route.fulfill({ response, body });
      });
      await page.setViewportSize({ width, height: 800 });
      await page.goto(`${RECORDED}/gpus`);
      const gpu = page.locator("[data-gpu]").first();
      await expect(gpu).toBeVisible();
      await expect(page.getByRole("region", { name: "Health" })).toContainText("no space left on device");
      await expectNoSidewaysScroll(page);
      await expect.poll(() => page.getByRole("region", { name: "Health" }).evaluate((strip) => strip.scrollWidth - strip.clientWidth)).toBeLessThanOrEqual(0);
      await gpu.getByRole("link").first().click();
      await expect(page.getByTestId("chart").first()).toBeVisible();
      await expect(page.getByRole("main")).toContainText("no space left on device");
      await expectNoSidewaysScroll(page);
      await page.goto(`${RECORDED}/statistics`);
      await expect(page.getByText("Messages processed")).toBeVisible();
      await expectNoSidewaysScroll(page);
    });
  }

  for (const colorScheme of ["dark", "light"] as const) {
    test(`the ${colorScheme} theme follows the system and can be changed`, async ({ browser }) => {
      const context = await browser.newContext({ colorScheme });
      const page = await context.newPage();
      await page.goto(`${RECORDED}/gpus`);
      await expect(page.locator("html")).toHaveAttribute("data-theme", colorScheme);
      const before = await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
      await page.getByRole("button", { name: /^Theme/ }).click();
      if (colorScheme === "light") await page.getByRole("button", { name: /^Theme/ }).click();
      const after = await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
      expect(after).not.toBe(before);
      await context.close();
    });
  }
});

/** Whether anything was drawn on a canvas. */
function isPainted(canvas: HTMLElement | SVGElement): boolean {
  if (!(canvas instanceof HTMLCanvasElement)) return false;
  const pixels = canvas.getContext("2d")?.getImageData(0, 0, canvas.width, canvas.height).data;
  return pixels?.some((channel) => channel !== 0) === true;
}
