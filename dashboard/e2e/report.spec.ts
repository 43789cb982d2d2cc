import { expect, test, type Page } from "@playwright/test";
import { flaws } from "./axe";
import { layoutFlaws } from "./layout";
import { complaints, expectNoSidewaysScroll } from "./servers";

/** The page that `gpuvitals report` writes of a run, as the program's own tests have it: opened from the disk. */
const REPORT = new URL("../../crates/report/tests/report/run.html", import.meta.url).href;
const look = expect.configure({ soft: true, timeout: 120_000 });

/** Height of the smallest text in a chart, px. */
const smallestText = (page: Page) =>
  page.locator("figure > svg text").evaluateAll((texts) =>
    Math.min(...texts.filter((text) => text.checkVisibility()).map((text) => text.getBoundingClientRect().height)),
  );

test.describe("the report of a run", () => {
  test.describe.configure({ timeout: 300_000 });

  test("opens from a disk, with its own style and nothing from elsewhere", async ({ page }) => {
    const heard = complaints(page);
    const asked: string[] = [];
    page.on("request", (request) => asked.push(request.url()));
    await page.goto(REPORT);
    await expect(page.getByRole("heading", { level: 1 })).toContainText("NVIDIA H100");
    await expect(page.locator("path.line.c0").first()).toHaveCSS("stroke", "rgb(47, 111, 208)");
    await page.emulateMedia({ colorScheme: "dark" });
    await expect(page.locator("path.line.c0").first()).toHaveCSS("stroke", "rgb(110, 163, 245)");
    await page.getByText("Values of Power").click();
    await expect(page.getByRole("region", { name: "Power, W" }).getByRole("columnheader")).toHaveText(["From", "0", "1", "2", "3"]);
    expect(asked).toEqual([REPORT]);
    expect(heard).toEqual([]);
  });

  test("keeps nobody out, and is legible on a phone and on paper", async ({ page }) => {
    await page.goto(REPORT);
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme });
      await look.poll(() => flaws(page, { isOfColours: colorScheme === "dark" }), `${colorScheme}, by axe`).toEqual([]);
    }
    await page.setViewportSize({ width: 390, height: 844 });
    await look.poll(() => layoutFlaws(page, { isTouched: true }), "phone").toEqual([]);
    await look.poll(() => flaws(page, { isTouched: true }), "phone, by axe").toEqual([]);
    expect(await smallestText(page)).toBeGreaterThan(7);
    // A4 at 96 dpi, less margins.
    await page.setViewportSize({ width: 718, height: 1047 });
    await page.emulateMedia({ media: "print", colorScheme: "dark" });
    await expectNoSidewaysScroll(page);
    await expect(page.locator("path.line.c0").first()).toHaveCSS("stroke", "rgb(47, 111, 208)");
    await expect(page.getByRole("navigation")).toBeHidden();
    expect((await page.pdf({ format: "A4" })).length).toBeGreaterThan(10_000);
  });
});
