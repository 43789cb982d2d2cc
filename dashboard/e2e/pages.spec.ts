import { expect, test } from "@playwright/test";
import { flaws } from "./axe";
import { layoutFlaws } from "./layout";
import { needs } from "./servers";
import { STOPS } from "./stops";

// Layouts are not compared with stored pictures: the page uses the fonts of the machine and whatever Chromium it has, so that a picture
// of one machine is no measure on another, and a tolerance that lets both pass lets broken pages pass too.

/** Looks again until a page has laid itself out, and goes on with the next look if it has flaws. Axe judges every element. */
const look = expect.configure({ soft: true, timeout: 120_000 });
const SCREENS = { desktop: { width: 1280, height: 800 }, wide: { width: 2560, height: 1300 }, tablet: { width: 820, height: 1180 }, phone: { width: 390, height: 844 } } as const;
/** On what is touched, targets are as large as a finger needs them. */
const TOUCHED: ReadonlySet<string> = new Set(["phone"]);

test.describe("every page", () => {
  test.describe.configure({ timeout: 300_000 });

  for (const { name, path, server, variable, ready } of STOPS) {
    test(`${name}: nothing overlaps, is cut off, scrolls sideways or keeps people out`, async ({ page }) => {
      needs(server, variable);
      await page.goto(server + path);
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
        await ready(page);
        await look.poll(() => flaws(page, { isOfColours: colorScheme === "dark" }), `${colorScheme}, by axe`).toEqual([]);
      }
      for (const [screen, size] of Object.entries(SCREENS)) {
        await page.setViewportSize(size);
        await ready(page);
        const isTouched = TOUCHED.has(screen);
        await look.poll(() => layoutFlaws(page, { isTouched }), screen).toEqual([]);
        if (isTouched) await look.poll(() => flaws(page, { isTouched }), `${screen}, by axe`).toEqual([]);
      }
    });
  }
});
