import { expect, test, type Page } from "@playwright/test";
import { complaints, LIVE, needs } from "./servers";

async function openActiveGpu(page: Page): Promise<void> {
  await page.goto(`${LIVE}/gpus?state=active`);
  await page.locator("tr[data-gpu]").first().getByRole("link").click();
  await expect(page.getByTestId("gpu")).toBeVisible();
}

test.describe("live GPUs", () => {
  test.beforeEach(() => needs(LIVE, "GPUVITALS_LIVE_URL"));

  test("list and page say that the GPUs are simulated", async ({ page }) => {
    await page.goto(`${LIVE}/gpus`);
    await expect(page.getByRole("note", { name: "Simulated data" })).toBeVisible();
    await expect(page.locator("tr[data-gpu]").first().getByText("simulated")).toBeVisible();
    await openActiveGpu(page);
    await expect(page.getByRole("note", { name: "Simulated data" })).toBeVisible();
  });

  test("the list renews itself", async ({ page }) => {
    await page.goto(`${LIVE}/gpus`);
    const list = page.getByTestId("fleet");
    await expect(list).not.toHaveAttribute("data-last-update", "0");
    const before = (await list.getAttribute("data-last-update")) ?? "";
    await expect(list).not.toHaveAttribute("data-last-update", before);
  });

  test("a live update arrives by the stream and the chart grows", async ({ page }) => {
    const heard = complaints(page);
    await openActiveGpu(page);
    const view = page.getByTestId("gpu");
    await expect(view).toHaveAttribute("data-live", "live");
    const chart = page.getByTestId("chart").first();
    await expect(chart.locator("canvas")).toBeVisible();
    await expect(chart).not.toHaveAttribute("data-points", "0");
    const before = Number(await view.getAttribute("data-last-update"));
    await expect.poll(async () => Number(await view.getAttribute("data-last-update"))).toBeGreaterThan(before);
    expect(heard).toEqual([]);
  });

  test("without the stream it polls and says so", async ({ page }) => {
    await page.route("**/api/v1/stream**", (route) => route.abort());
    await openActiveGpu(page);
    await expect(page.getByText(/asking every few seconds instead/)).toBeVisible();
    const view = page.getByTestId("gpu");
    const before = Number(await view.getAttribute("data-last-update"));
    await expect.poll(async () => Number(await view.getAttribute("data-last-update"))).toBeGreaterThan(before);
  });

  test("an API that goes down is said to be down since when, and its return is noticed", async ({ page }) => {
    await page.goto(`${LIVE}/gpus`);
    await expect(page.locator("tr[data-gpu]").first()).toBeVisible();
    await expect(page.getByRole("region", { name: "Health" }).locator("li").first()).toHaveAttribute("data-status", "healthy");
    const all = /\/(api\/v1|health|stats)/;
    await page.route(all, (route) => route.abort());
    await expect(page.getByText(/API unreachable since \d\d:\d\d:\d\d/)).toBeVisible();
    await expect(page.getByRole("region", { name: "Health" })).toContainText("unreachable");
    await expect(page.locator("tr[data-gpu]").first()).toBeVisible();
    await page.unroute(all);
    await page.getByRole("button", { name: "Retry now" }).click();
    await expect(page.getByText(/API unreachable since/)).toBeHidden();
  });

  test("a range, buckets and live can be chosen and shared by address", async ({ page }) => {
    await openActiveGpu(page);
    await page.getByRole("button", { name: "Last 5 minutes" }).click();
    await page.getByRole("combobox").selectOption("max");
    await expect(page).toHaveURL(/range=5m&aggregate=max/);
    await page.reload();
    await expect(page.getByRole("button", { name: "Last 5 minutes" })).toHaveAttribute("aria-pressed", "true");
    await expect(page.getByTestId("chart").first()).not.toHaveAttribute("data-points", "0");
  });

  test("statistics are counted", async ({ page }) => {
    await page.goto(`${LIVE}/gpus`);
    await page.getByRole("link", { name: "Statistics" }).click();
    await expect(page.getByText("Processed per second").first()).toBeVisible();
    await expect(page.getByText("Processed per second").first().locator("xpath=..")).not.toContainText("–");
  });
});
