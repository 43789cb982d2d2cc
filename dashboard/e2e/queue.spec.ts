import { expect, test, type APIRequestContext, type Page } from "@playwright/test";
import { APART, APART_PAGE, APART_QUEUE, complaints, needs, expectNoSidewaysScroll } from "./servers";

const TOPIC = "gpu-telemetry";

/** A frame of this many rows that the queue takes, and the collector cannot read: it becomes a dead letter. */
function damaged(rows: number): Buffer {
  const text = (word: string) => [word.length, ...Buffer.from(word)];
  const body = Buffer.from([0, ...text("node"), ...Array<number>(16).fill(0), rows, 1, ...text("broken"), 9]);
  const block = (body.length << 3) | 1;
  // zstd: a frame with one block that is not compressed.
  const packed = Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0x20, body.length, block & 0xff, (block >> 8) & 0xff, block >> 16, ...body]);
  return Buffer.concat([Buffer.from("GVB1"), Buffer.from([body.length, 0, 0, 0]), packed]);
}

async function letters(request: APIRequestContext): Promise<number> {
  const stats = (await (await request.get(`${APART}/api/v1/queue/stats/${TOPIC}`)).json()) as { dead_letters: number };
  return stats.dead_letters;
}

/** Makes dead letters with so many rows each, and waits until they are there. */
async function kill(request: APIRequestContext, rows: readonly number[]): Promise<void> {
  const before = await letters(request);
  for (const count of rows) {
    const answer = await request.post(`${APART_QUEUE}/publish/${TOPIC}`, { headers: { "content-type": "application/vnd.gpuvitals.batch" }, data: damaged(count) });
    expect(answer.ok(), await answer.text()).toBe(true);
  }
  const all = before + rows.reduce((sum, count) => sum + count, 0);
  await expect.poll(() => letters(request)).toBe(all);
}

async function purgeAll(request: APIRequestContext): Promise<void> {
  await request.delete(`${APART}/api/v1/queue/topics/${TOPIC}/dead`);
}

const card = (page: Page) => page.getByRole("region", { name: `Topic ${TOPIC}` });

test.describe("the queue", () => {
  test.beforeEach(() => needs(APART, "GPUVITALS_APART_URL"));
  test.afterEach(({ request }) => purgeAll(request));

  test("shows groups, their lag and that they keep up", async ({ page }) => {
    const heard = complaints(page);
    await page.goto(APART);
    await page.getByRole("link", { name: "Queue" }).click();
    const group = card(page).locator("[data-group=store]");
    await expect(group).toBeVisible();
    await expect(group).toContainText(/keeps up|everything is acknowledged/);
    await expect(card(page)).toContainText("No dead letters.");
    expect(heard).toEqual([]);
  });

  test("dead letters are looked at, redriven, and purged after a question", async ({ page, request }) => {
    await kill(request, [3, 4]);
    await page.goto(`${APART}/queue`);
    await expect(card(page)).toContainText("2 dead letters with 7 rows could not be delivered.");
    await page.getByRole("link", { name: "Look at them" }).click();
    await expect(page).toHaveURL(/\/queue\?dead=gpu-telemetry/);
    const first = page.locator("tr[data-letter]").first();
    await expect(first).toContainText("3");
    await expect(first).toContainText(/damaged|broken/i);
    await expect(first).toContainText("binary rows");

    // Redriven, they die again: as new letters.
    const before = await first.getAttribute("data-letter");
    await page.getByRole("button", { name: "Redrive all 7 rows" }).click();
    await expect(page.getByText("Published 2 dead letters again.")).toBeVisible();
    await expect(page.locator("tr[data-letter]").first()).not.toHaveAttribute("data-letter", before ?? "");
    await expect(page.locator("tr[data-letter]")).toHaveCount(2);

    await page.getByRole("button", { name: "Purge all…" }).click();
    const dialog = page.getByRole("dialog", { name: "Purge 2 dead letters of gpu-telemetry?" });
    await expect(dialog).toContainText("7 rows in 2 dead letters will be gone for good");
    await page.keyboard.press("Escape");
    await expect(dialog).toBeHidden();
    expect(await letters(request)).toBe(7);
    await page.getByRole("button", { name: "Purge all…" }).click();
    await dialog.getByRole("button", { name: "Purge 7 rows" }).click();
    await expect(page.getByText("Purged 2 dead letters.")).toBeVisible();
    expect(await letters(request)).toBe(0);
  });

  for (const width of [360, 800]) {
    test(`fits a screen ${width} px wide`, async ({ page, request }) => {
      await kill(request, [2]);
      await page.setViewportSize({ width, height: 800 });
      await page.goto(`${APART}/queue?dead=${TOPIC}`);
      await expect(page.locator("[data-letter]")).toHaveCount(1);
      await expectNoSidewaysScroll(page);
    });
  }
});

test.describe("a page hosted elsewhere", () => {
  test.beforeEach(() => needs(APART_PAGE, "GPUVITALS_APART_PAGE_URL"));
  test.afterEach(({ request }) => purgeAll(request));

  test("reads the gateway and manages the broker, by their CORS", async ({ page, request }) => {
    const heard = complaints(page);
    const asked = new Set<string>();
    page.on("request", (sent) => asked.add(new URL(sent.url()).origin));
    await page.goto(`${APART_PAGE}/gpus`);
    await expect(page.locator("tr[data-gpu]").first()).toBeVisible();
    await expect(page.getByRole("region", { name: "Health" }).locator("li").first()).toHaveAttribute("data-status", "healthy");
    await page.locator("tr[data-gpu]").first().getByRole("link").click();
    await expect(page.getByTestId("gpu")).toHaveAttribute("data-live", "live");

    await kill(request, [5]);
    await page.getByRole("link", { name: "Queue" }).click();
    await page.getByRole("link", { name: "Look at them" }).click();
    await page.getByRole("button", { name: /^Purge letter/ }).click();
    await page.getByRole("button", { name: "Purge 5 rows" }).click();
    await expect(page.getByText("Purged 1 dead letter.")).toBeVisible();
    expect(await letters(request)).toBe(0);
    expect([...asked].sort()).toEqual([APART, APART_PAGE, APART_QUEUE].sort());
    expect(heard).toEqual([]);
  });

  test.describe("in time", () => {
    // It compares a time with a bound, and whatever else the machine does takes some of that time: only such tests are tried again.
    test.describe.configure({ retries: 2 });

    test("asks as often as it was built to", async ({ page }) => {
      // VITE_REFRESH_INTERVAL=1000.
      await page.goto(`${APART_PAGE}/queue`);
      const stats = () => page.waitForRequest(`${APART_QUEUE}/stats`);
      await stats();
      const began = Date.now();
      for (let n = 0; n < 3; n += 1) await stats();
      expect(Date.now() - began).toBeLessThan(8000);
    });
  });

  test("another site's page is let in by neither", async ({ page }) => {
    // The same page under a name that is not configured.
    await page.goto(APART_PAGE.replace("127.0.0.1", "localhost"));
    await expect(page.getByText(/API unreachable since/)).toBeVisible();
    const refused = await page.evaluate(
      async (url) => fetch(url, { method: "POST", body: '{"oldest": 1}' }).then(() => "answered", () => "refused"),
      `${APART_QUEUE}/topics/${TOPIC}/dead/replay`,
    );
    expect(refused).toBe("refused");
  });
});
