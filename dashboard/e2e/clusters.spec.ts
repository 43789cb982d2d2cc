import { expect, test, type Page } from "@playwright/test";
import { CLUSTERS, complaints, needs, RECORDED, expectNoSidewaysScroll } from "./servers";

/** The node that hangs has failed when its deadline has passed and the page has asked again. */
const FAILED_WITHIN_MS = 30_000;

function cluster(page: Page, name: string) {
  return page.getByRole("region", { name: "Clusters" }).locator(`[data-cluster="${name}"]`);
}

/** The page of clusters when all of them have been tried. */
async function openClusters(page: Page, search = ""): Promise<void> {
  await page.goto(`${CLUSTERS}/clusters${search}`);
  await expect(cluster(page, "east")).toContainText(/4 of 5.*no answer/s, { timeout: FAILED_WITHIN_MS });
}

test.describe("clusters", () => {
  test.beforeEach(() => needs(CLUSTERS, "GPUVITALS_CLUSTERS_URL"));

  test("each says what of it was read, what is missing and why", async ({ page }) => {
    const heard = complaints(page);
    await page.goto(`${CLUSTERS}/`);
    await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Clusters" }).click();
    await openClusters(page);
    await expect(page.getByLabel("All clusters together")).toContainText(/GPUs read\s*32/);
    await expect(page.getByRole("note", { name: "Incomplete" })).toHaveText("Not everything could be read: 1 node, and the cluster lab.");
    await expect(cluster(page, "east")).toContainText(/degraded.*32.*100%.*52 °C.*1,011 GiB \/ 4.39 TiB/s);
    await expect(cluster(page, "east")).not.toContainText("certificate");
    await expect(cluster(page, "lab")).toContainText(/unauthorized.*refuses the token.*401.*certificate is not verified/s);
    await expect(cluster(page, "web")).toContainText("no GPUs");
    const nodes = page.locator("tr[data-node]");
    await expect(nodes).toHaveCount(5);
    await expect(nodes.first()).toContainText(/sick.*failing.*never read/s);
    expect(heard).toEqual([]);
  });

  test("a node opens by keyboard to its GPUs, and a GPU to its history", async ({ page }) => {
    const heard = complaints(page);
    await openClusters(page, "?state=ok");
    await expect(page.locator("tr[data-node]")).toHaveCount(4);
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await expect(page).toHaveURL(/\/clusters\/east\/node-0$/);
    const gpus = page.getByRole("table", { name: /^GPUs of the node/ }).locator("tr[data-gpu]");
    await expect(gpus).toHaveCount(8);
    await expect(gpus.first()).toContainText(/NVIDIA H200.*100%.*52 °C.*626 W \/ 700 W.*Gen 5 ×16/s);
    // This model has no fan, and its tool says N/A.
    await expect(gpus.first().locator("td").last()).toHaveText("–");
    await expect(page.getByRole("region", { name: "Processes" })).toContainText("gpu_burn");
    await gpus.nth(1).getByRole("link").click();
    await expect(page).toHaveURL(/\/gpus\/GPU-node-0-0001$/);
    await expect(page.getByTestId("gpu")).toContainText("node-0");
    await expect(page.locator('[data-metric="power_w"]')).toContainText("626");
    expect(heard).toEqual([]);
  });

  test("processes are filtered, and the address keeps it", async ({ page }) => {
    await openClusters(page, "?view=processes");
    await expect(page.getByRole("status").filter({ hasText: "12 processes" })).toBeVisible();
    await page.getByRole("combobox", { name: "Node" }).selectOption("node-2");
    await page.getByRole("searchbox", { name: /processes/i }).fill("burn");
    const rows = page.locator("tr[data-pid]");
    await expect(rows).toHaveCount(1);
    await expect(rows.first()).toContainText(/gpu_burn.*compute.*east.*node-2.*99%/s);
    await page.reload();
    await expect(rows).toHaveCount(1);
    await page.getByRole("button", { name: "Clear filters" }).click();
    await page.getByRole("button", { name: "SM" }).click();
    await expect(rows.first()).toContainText("99%");
    await expect(page).toHaveURL(/\?view=processes&sort=-sm$/);
  });

  for (const width of [360, 800]) {
    test(`nothing scrolls sideways on a screen ${width} px wide, also with long words`, async ({ page }) => {
      const error = `exec in gpu-operator/${"nvidia-driver-daemonset-".repeat(8)}x7x7x: ${"connection reset by peer; ".repeat(6)}`;
      await page.route(/\/api\/v1\/gpu\/(clusters|nodes)/, async (route) => {
        const response = await route.fetch();
        const body = (await response.text()).replace(/"error":"[^"]*"/g, `"error":${JSON.stringify(error)}`).replaceAll('"true"', `"${"v".repeat(63)}"`);
        await route.fulfill({ response, body });
      });
      await page.setViewportSize({ width, height: 800 });
      for (const path of ["/clusters", "/clusters?view=processes&cluster=east", "/clusters/east/sick", "/clusters/east/node-1"]) {
        await page.goto(`${CLUSTERS}${path}`);
        await expect(page.getByTestId(/^(clusters|node)$/)).toBeVisible();
        await expect(page.locator(path.includes("processes") ? "[data-pid]" : "[data-node], [data-gpu], h1").last()).toBeVisible();
        await expectNoSidewaysScroll(page);
      }
    });
  }
});

test("without clusters there is no way to their page, which says how they come there", async ({ page }) => {
  needs(RECORDED, "GPUVITALS_URL");
  await page.goto(`${RECORDED}/`);
  await expect(page.getByTestId("now").getByRole("heading", { level: 1 })).toBeVisible();
  await expect(page.getByRole("navigation", { name: "Pages" }).getByRole("link")).toHaveText(["Now", "GPUs", "Hosts", "Fleet", "Jobs", "Queue", "Statistics"]);
  await page.keyboard.press("c");
  await expect(page.getByText("No clusters are configured")).toBeVisible();
  await expect(page.getByLabel("Example of the configuration")).toContainText("api_url:");
});
