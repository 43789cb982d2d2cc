import { expect, test } from "@playwright/test";
import { layoutFlaws } from "./layout";

test.describe("what the layout is judged by", () => {
  const page = (body: string) => `<style>body { margin: 8px } .card, .badge { width: 100px; height: 40px } .badge { position: absolute; white-space: nowrap }</style>${body}`;
  for (const [name, body, flaws] of [
    ["a page without flaws", `<div class="card">well</div><div class="card" style="overflow: auto">much more text than there is room for in it</div>`, []],
    ["an ellipsis", `<div class="card" style="overflow: hidden; text-overflow: ellipsis; white-space: nowrap">much more than fits</div>`, []],
    ["a wide element", `<div style="width: 3000px">wide</div>`, [/^the page scrolls \d+ px sideways$/]],
    ["cut text", `<div class="card" style="overflow: hidden; white-space: nowrap">much more than fits</div>`, [/^"much more than fits" is cut off by div\.card$/]],
    ["a cut line", `<div style="overflow: hidden; height: 8px">half of it</div>`, [/^"half of it" is cut off by div\./]],
    ["text beyond its box", `<div class="badge">much more text than fits</div>`, [/^"much more text than fits" runs out of its box$/]],
    ["text on text", `<p style="position: absolute; top: 20px">one one</p><p style="position: absolute; top: 24px">two two</p>`, [/^"one one" and "two two" lie over each other$/]],
    ["controls on controls", `<button style="position: absolute; width: 60px; height: 30px">A</button><a href="/" style="position: absolute; left: 60px; top: 30px; width: 60px">B</a>`, [/^<button> "A" and <a> "B" lie over each other$/]],
  ] as const) {
    test(name, async ({ page: tab }) => {
      await tab.setContent(page(body));
      const found = await layoutFlaws(tab);
      expect(found).toHaveLength(flaws.length);
      flaws.forEach((flaw, place) => expect(found[place]).toMatch(flaw));
    });
  }

  const button = (left: number, size: number, text: string) => `<button style="position: absolute; left: ${left}px; top: 50px; width: ${size}px; height: ${size}px; padding: 0; border: 0">${text}</button>`;
  for (const [name, body, flaws] of [
    ["small targets side by side", button(50, 16, "A") + button(68, 16, "B"), [/^<button> "A" is 16 × 16 px, too small for a finger$/, /^<button> "B" is 16 × 16 px/]],
    ["a small target beside a large one", button(50, 16, "A") + button(68, 40, "B"), [/^<button> "A" is 16 × 16 px/]],
    ["a small target that stands alone", button(50, 16, "A") + button(100, 16, "B"), []],
    ["large targets side by side", button(50, 24, "A") + button(74, 24, "B"), []],
    ["links in a line of text", `<p style="font-size: 11px">one <a href="/a">two</a> <a href="/b">three</a></p>`, []],
  ] as const) {
    test(`${name}, where a finger touches`, async ({ page: tab }) => {
      await tab.setContent(page(body));
      expect(await layoutFlaws(tab)).toEqual([]);
      const found = await layoutFlaws(tab, { isTouched: true });
      expect(found).toHaveLength(flaws.length);
      flaws.forEach((flaw, place) => expect(found[place]).toMatch(flaw));
    });
  }
});
