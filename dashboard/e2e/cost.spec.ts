import { expect, test, type Page } from "@playwright/test";
import { gzipSync } from "node:zlib";
import { complaints, FLEET, judged, LIVE, madeUp, needs, say, XID } from "./servers";

// A trace takes pictures of the page all the time.
test.use({ trace: "off" });
// These tests compare times with a bound, and whatever else the machine does takes some of that time: only such tests are tried again.
test.describe.configure({ retries: 2 });

const WITHIN_MS = 5000;
/** The aims are 1.5 s and 32 ms on a machine that does nothing else; a busy one must not fail. */
const FRAME_MS = 100;
const HEAP_MB = 150;
const BUNDLE_KB = 150;
/** How long the map is moved under live values: HEAT_SECONDS=600 for the figure of the documentation. */
const MOVED_S = Number(process.env.HEAT_SECONDS ?? 12);

/**
 * From the click on the page's link to the evidence, in time of the machine: the person is not counted. The program is not
 * optimised here, and reads and judges a fleet for most of it: 3.7 s, 4.3 s and 1.7 s alone, up to 12 s beside other work.
 */
const PATH_WITHIN_MS = 20_000;
/**
 * How much longer the strip may take than its answer does in the same browser, read and thrown away, and a page without data
 * together. A time alone measures how busy the machine is: on two cores the strip took 0.9 to 4.5 s, 1.1 to 2.4 times those.
 */
const STRIP_WITHIN = 4;

/** Marks when a canvas has its 10,000 cells. */
async function markDrawn(page: Page): Promise<void> {
  await page.addInitScript(() => {
    const watcher = new MutationObserver(() => {
      if (document.querySelector('[data-cells="10000"]') === null) return;
      watcher.disconnect();
      requestAnimationFrame(() => performance.mark("drawn"));
    });
    watcher.observe(document, { subtree: true, childList: true, attributes: true, attributeFilter: ["data-cells"] });
  });
}

/** How long after the load of the page that was, in ms. */
function drawnAfter(page: Page): Promise<number> {
  return page.evaluate(() => {
    const [load] = performance.getEntriesByType("navigation") as PerformanceNavigationTiming[];
    return Math.round((performance.getEntriesByName("drawn")[0]?.startTime ?? Infinity) - (load?.loadEventEnd ?? 0));
  });
}

test("10,000 GPUs on the strip: drawn soon after the load", async ({ page }) => {
  needs(LIVE, "GPUVITALS_LIVE_URL");
  const body = madeUp(10_000, () => ({}));
  await page.route(/\/api\/v1\/gpus\?limit=10000$/, (route) => route.fulfill({ contentType: "application/json", body }));
  await markDrawn(page);
  await page.goto(`${LIVE}/`);
  const strip = page.getByTestId("strip");
  await expect(strip).toHaveAttribute("data-cells", "10000");
  const drawn = await drawnAfter(page);
  const frame = await strip.evaluate(async (canvas) => {
    const box = canvas.getBoundingClientRect();
    const times: number[] = [];
    for (let step = 0; step < 60; step += 1) {
      const before = performance.now();
      canvas.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, clientX: box.left + (step * box.width) / 60, clientY: box.top + 20 }));
      await new Promise(requestAnimationFrame);
      times.push(performance.now() - before);
    }
    return times.sort((a, b) => a - b)[57] ?? 0;
  });
  say(`10,000 cells of the strip ${drawn} ms after the load of the page; 95 % of hovered frames within ${frame.toFixed(1)} ms`);
  expect(drawn).toBeLessThan(WITHIN_MS);
});

test("10,000 GPUs on the heat map: drawn soon after the load, smooth under live values, small", async ({ page }) => {
  needs(LIVE, "GPUVITALS_LIVE_URL");
  test.setTimeout(60_000 + MOVED_S * 1000);
  let asked = 0;
  await page.route(/\/api\/v1\/gpus\?.*limit=10000/, (route) => {
    asked += 1;
    const wave = asked;
    const body = madeUp(10_000, (gpu) => ({ metrics: { temperature_c: gpu % 503 === 0 ? null : 30 + ((gpu * 7 + wave * 13) % 56) } }));
    return route.fulfill({ contentType: "application/json", body });
  });
  await markDrawn(page);
  await page.goto(`${LIVE}/gpus?view=map&colour=temperature_c`);
  await expect(page.getByTestId("heatmap")).toHaveAttribute("data-cells", "10000");
  await expect(page.getByTestId("legend")).toContainText(/20 ?not read/);
  const drawn = await drawnAfter(page);
  await page.getByRole("button", { name: "Enlarge (+)" }).click();
  const before = asked;
  const frames = await page.getByTestId("heatmap").evaluate(async (canvas, seconds) => {
    const box = canvas.getBoundingClientRect();
    const fire = (type: string, x: number, y: number) =>
      canvas.dispatchEvent(new PointerEvent(type, { bubbles: true, pointerId: 1, pointerType: "mouse", button: 0, buttons: 1, clientX: box.left + x, clientY: box.top + y }));
    // A pointer that is made up cannot be captured.
    canvas.setPointerCapture = () => undefined;
    const times: number[] = [];
    const began = performance.now();
    let last = began;
    fire("pointerdown", 600, 300);
    while (last - began < seconds * 1000) {
      const turn = (last - began) / 700;
      fire("pointermove", 600 + 250 * Math.sin(turn), 300 + 150 * Math.cos(turn * 1.3));
      const next = await new Promise(requestAnimationFrame);
      times.push(next - last);
      last = next;
    }
    fire("pointerup", 600, 300);
    times.sort((a, b) => a - b);
    return { p50: times[Math.floor(times.length * 0.5)] ?? 0, p95: times[Math.floor(times.length * 0.95)] ?? 0, worst: times.at(-1) ?? 0, count: times.length };
  }, MOVED_S);
  const session = await page.context().newCDPSession(page);
  await session.send("HeapProfiler.collectGarbage");
  const { usedSize } = await session.send("Runtime.getHeapUsage");
  const heap = usedSize / 1_000_000;
  const bundle = await bundleBytes(page);
  say(
    `10,000 cells of the heat map ${drawn} ms after the load of the page; moved for ${MOVED_S} s with ${asked - before} live answers, ${frames.count} frames: half within ${frames.p50.toFixed(1)} ms, ` +
      `95 % within ${frames.p95.toFixed(1)} ms, the longest ${frames.worst.toFixed(0)} ms; heap ${heap.toFixed(0)} MB; bundle ${(bundle / 1000).toFixed(0)} kB compressed by gzip`,
  );
  expect(asked - before).toBeGreaterThan(0);
  expect(drawn).toBeLessThan(WITHIN_MS);
  expect(frames.p95).toBeLessThan(FRAME_MS);
  expect(heap).toBeLessThan(HEAP_MB);
  expect(bundle / 1000).toBeLessThan(BUNDLE_KB);
});

/** Everything that the page loads before it asks the API. */
async function bundleBytes(page: Page): Promise<number> {
  const html = await (await page.request.get(LIVE)).text();
  const files = [...html.matchAll(/(?:src|href)="(\/assets\/[^"]+)"/g)].map((match) => match[1] ?? "");
  const bodies = await Promise.all(files.map(async (file) => (await page.request.get(LIVE + file)).body()));
  expect(bodies.length).toBeGreaterThan(1);
  return [Buffer.from(html), ...bodies].reduce((sum, body) => sum + gzipSync(body).length, 0);
}

test.describe("4,096 GPUs, one of them sick", () => {
  test.beforeEach(async ({ page }) => {
    needs(FLEET, "GPUVITALS_FLEET_URL");
    await judged(page, FLEET);
  });

  test("the night call: what is sick, why and what to do stand on the first screen, without a click", async ({ page }) => {
    const began = Date.now();
    await page.goto(`${FLEET}/`);
    await expect(page.locator(XID)).toContainText(/warning.*sim-node-0001 \/ GPU 6.*XID 63.*Last XID 63/s);
    const worst = page.locator("[data-finding]").first();
    await expect(worst.getByRole("list", { name: "Evidence" })).toBeInViewport();
    await expect(worst.getByTestId("glimpse")).toBeInViewport();
    await expect(worst.getByRole("heading", { name: "What to do" })).toBeInViewport();
    const seen = Date.now() - began;
    say(`4,096 GPUs: the sick one, its evidence and the step are on the first screen after ${seen} ms, 0 clicks`);
    expect(seen).toBeLessThan(PATH_WITHIN_MS);
  });

  test("what was wrong then is found in two actions: the page, the instant", async ({ page }) => {
    const rows = await page.request.get(`${FLEET}/api/v1/analysis/findings?kind=xid_nonfatal`);
    const { findings } = (await rows.json()) as { findings: readonly { since: string }[] };
    const then = new Date(Math.ceil(Date.parse(findings[0]?.since ?? "") / 1000) * 1000 + 20_000);
    await expect.poll(() => Date.now() > then.getTime() + 1000, { timeout: 60_000 }).toBe(true);
    const began = Date.now();
    await page.goto(`${FLEET}/`);
    // The browser's zone is this machine's, and so is the field's.
    const local = new Date(then.getTime() - then.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
    await page.getByLabel("As of", { exact: true }).fill(local);
    await expect(page.getByTestId("as-of")).toBeVisible({ timeout: PATH_WITHIN_MS });
    await expect(page.locator(XID)).toContainText(/sim-node-0001 \/ GPU 6.*XID 63/s, { timeout: PATH_WITHIN_MS });
    const seen = Date.now() - began;
    say(`4,096 GPUs: what was wrong at an instant is found after ${seen} ms, two actions`);
    expect(seen).toBeLessThan(PATH_WITHIN_MS);
  });

  test("from the cold page to the sick GPU and the evidence: two clicks, seconds", async ({ page }) => {
    const heard = complaints(page);
    const began = Date.now();
    await page.goto(`${FLEET}/`);
    const finding = page.locator(XID);
    await expect(finding).toContainText(/warning.*sim-node-0001 \/ GPU 6.*XID 63.*Last XID 63/s);
    const seen = Date.now() - began;
    await finding.getByRole("link", { name: /GPU 6/ }).click();
    const own = page.getByRole("region", { name: "Findings" });
    await expect(own.locator(XID)).toContainText("XID 63");
    await expect(own.locator(XID)).toContainText(/Last XID\s*63/);
    // A code has no line: it is a mark above those that moved, which are drawn once they are on the screen.
    const chart = page.getByTestId("chart").first();
    await expect(chart).not.toHaveAttribute("data-points", "0");
    await chart.scrollIntoViewIfNeeded();
    await expect(chart.locator("canvas")).toBeVisible();
    await expect(page.getByRole("region", { name: "Marks above the charts" })).toBeVisible();
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
    await expect(page.getByText(/^sim-node-0001 \/ GPU 6: warning, XID 63/)).toBeVisible();
    await page.keyboard.press("Enter");
    await expect(page).toHaveURL(/\/gpus\/GPU-.*6$/);
    await page.goBack();
    await strip.click({ position: { x: 2, y: 2 } });
    await expect(page).toHaveURL(/\/gpus\/GPU-.*0$/);
  });
});
