import { expect, test } from "@playwright/test";
import { complaints, FLEET, judged, needs } from "./servers";

/** Half of the range in which an event is looked for. */
const HALF_MS = 30 * 60_000;

test.describe("the page of a sick GPU", () => {
  test.beforeEach(async ({ page }) => {
    needs(FLEET, "GPUVITALS_FLEET_URL");
    await judged(page, FLEET);
    await page.goto(`${FLEET}/gpus?state=warning`);
    await page.locator("tr[data-gpu]").filter({ hasText: "XID 63" }).getByRole("link").click();
    // Live charts would move on between two looks.
    await page.getByRole("button", { name: "Live" }).click();
    await expect(page.getByTestId("chart").first()).not.toHaveAttribute("data-points", "0");
  });

  test("a range is chosen by dragging, explained, and left by going back", async ({ page }) => {
    const heard = complaints(page);
    await expect(page.getByRole("button", { name: "Peers (7)" })).toHaveAttribute("aria-pressed", "true");
    await expect(page.locator('[data-panel^="power"]').first()).toContainText(/peers \d+ W/);
    const plot = page.getByTestId("chart").first().locator(".u-over");
    await plot.scrollIntoViewIfNeeded();
    const box = await plot.boundingBox();
    if (box === null) throw new Error("the chart has no plot");
    await page.mouse.move(box.x + box.width * 0.6, box.y + 40);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.95, box.y + 40, { steps: 5 });
    await page.mouse.up();
    await expect(page).toHaveURL(/from=.*&to=/);
    await page.getByRole("button", { name: "Why was it slow?" }).click();
    await expect(page).toHaveURL(/why=1$/);
    await expect(page.getByTestId("why")).toContainText(/Compared with \d+ GPUs of its (job|model)/);
    await page.goBack();
    await expect(page).not.toHaveURL(/from=/);
    expect(heard).toEqual([]);
  });

  test("what happened stands above the charts, and is said to those who point at it and those who do not", async ({ page }) => {
    const chart = page.getByTestId("chart").first();
    const marks = page.getByRole("region", { name: "Marks above the charts" });
    const { pathname } = new URL(page.url());
    // The row of an event is stored a little after its finding is known.
    const openedAt = async () => {
      const rows = await page.request.get(`${FLEET}/api/v1${pathname}/telemetry?table=gpu_health_events&limit=1000`);
      const { data } = (await rows.json()) as { data: readonly { timestamp: string; metrics: { kind?: unknown; detail?: unknown } }[] };
      const opened = data.find(({ metrics: { kind, detail } }) => kind === "finding_opened" && typeof detail === "string" && detail.startsWith("XID 63"));
      return Date.parse(opened?.timestamp ?? "");
    };
    await expect.poll(openedAt).toBeGreaterThan(0);
    const opened = await openedAt();
    // Around it: then its place on the chart does not depend on when the page asks.
    const [from, to] = [opened - HALF_MS, opened + HALF_MS];
    await page.goto(`${FLEET}${pathname}?from=${new Date(from).toISOString()}&to=${new Date(to).toISOString()}`);
    await expect(marks.getByText(/\d+ events?$/)).toBeVisible();
    const isDrawn = () =>
      chart.locator("canvas").evaluate((canvas: HTMLCanvasElement) => {
        const brush = document.createElement("canvas").getContext("2d");
        const colour = brush === null ? "" : ((brush.fillStyle = getComputedStyle(canvas).getPropertyValue("--warn")), brush.fillStyle);
        const { data } = canvas.getContext("2d")?.getImageData(0, 0, canvas.width, 18 * devicePixelRatio) ?? { data: new Uint8ClampedArray() };
        const hex = (place: number) => `#${[0, 1, 2].map((part) => (data[place + part] ?? 0).toString(16).padStart(2, "0")).join("")}`;
        return Array.from({ length: data.length / 4 }, (_, pixel) => hex(pixel * 4)).includes(colour);
      });
    await expect.poll(isDrawn).toBe(true);
    await marks.locator("summary").focus();
    await page.keyboard.press("Enter");
    await expect(marks.getByRole("listitem").filter({ hasText: "warning Finding opened: XID 63" })).toBeVisible();
    await page.keyboard.press("Enter");
    const plot = chart.locator(".u-over");
    // The chart forgets the pointer when it is built anew, as it is when an answer brings its band or its peers.
    await expect(async () => {
      await plot.scrollIntoViewIfNeeded();
      const box = await plot.boundingBox();
      if (box === null) throw new Error("the chart has no plot");
      const x = box.x + (box.width * (opened - from)) / (to - from);
      await page.mouse.move(x, box.y + 40);
      await page.mouse.move(x, box.y + 60);
      await expect(chart.getByTestId("near")).toContainText("Finding opened: ", { timeout: 1000 });
    }).toPass({ timeout: 15_000 });
  });

  test("a chart is taken away as values, picture, query, command and PromQL", async ({ page, context }) => {
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    const power = page.locator('[data-panel^="power-W"]').first();
    const act = async (name: string) => {
      await power.getByLabel(/^Export/).click();
      await power.getByRole("button", { name }).click();
    };
    const saved = async (name: string) => {
      const [download] = await Promise.all([page.waitForEvent("download"), act(name)]);
      const chunks: Buffer[] = [];
      for await (const chunk of await download.createReadStream()) chunks.push(chunk as Buffer);
      return { name: download.suggestedFilename(), content: Buffer.concat(chunks) };
    };
    const csv = await saved("Values (CSV)");
    expect(csv.name).toMatch(/^GPU-.*_Power-and-energy\.csv$/);
    expect(csv.content.toString()).toMatch(/^timestamp,.*\r\n.*power_w/);
    // A picture cannot be read here: what is written on it can.
    await page.evaluate(`{
      const { fillText } = CanvasRenderingContext2D.prototype;
      document.documentElement.dataset.written = "";
      CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
        document.documentElement.dataset.written += text + "\\n";
        fillText.call(this, text, ...place);
      };
    }`);
    const png = await saved("Picture (PNG)");
    expect(png.name).toMatch(/\.png$/);
    expect(png.content.subarray(1, 4).toString()).toBe("PNG");
    // Twice the pixels of the screen, with a margin of 12 on each side.
    const onScreen = await power.locator(".uplot canvas").evaluate((canvas) => canvas.getBoundingClientRect().width);
    expect(png.content.readUInt32BE(16)).toBe(2 * (Math.round(onScreen) + 24));
    const written = (await page.locator("html").getAttribute("data-written")) ?? "";
    const id = decodeURIComponent(new URL(page.url()).pathname.split("/").at(-1) ?? "");
    const { gpu } = (await (await page.request.get(`${FLEET}/api/v1/gpus/${encodeURIComponent(id)}`)).json()) as { gpu: { name: string; model: string } };
    expect(gpu.name).toMatch(/^sim-node-0001 \/ GPU \d$/);
    // The parts of the caption are written one by one.
    expect(written).toContain(`${gpu.name}, \n${gpu.model}, \n`);
    const copied = async (name: string) => {
      await act(name);
      await expect(power.getByText(`${name}: done`)).toBeVisible();
      return page.evaluate(() => navigator.clipboard.readText());
    };
    const query = await copied("Copy as query");
    expect((await page.request.get(query)).status()).toBe(200);
    expect(await copied("Copy as curl")).toBe(`curl -sS -H 'accept: text/csv' '${query}'`);
    const promql = (await copied("Copy as PromQL")).split("\n")[0] ?? "";
    expect(promql).toMatch(/^gpu_power_watts\{uuid="GPU-/);
    const answer = await page.request.get(`${FLEET}/api/v1/prom/api/v1/query?query=${encodeURIComponent(promql)}`);
    expect(((await answer.json()) as { data: { result: unknown[] } }).data.result).toHaveLength(1);
  });
});
