import { expect, it } from "vitest";
import { coloursOf, stretchesOf, wordsIn, type StripLine } from "./strips";

const words = (text: string) => (step: number) => (text[step] === "." ? null : (text[step] ?? null));

it("joins steps in which the same holds, and leaves out those of which nothing is known", () => {
  expect(stretchesOf([0, 10, 20, 30, 40, 50], 10, words("aa.abb"))).toEqual([
    { start: 0, end: 20, what: "a" },
    { start: 30, end: 40, what: "a" },
    { start: 40, end: 60, what: "b" },
  ]);
  expect(stretchesOf([0, 10], 10, words(".."))).toEqual([]);
});

it("does not join over steps that are missing", () => {
  expect(stretchesOf([0, 40], 10, words("aa"))).toHaveLength(2);
});

it("takes no name for a word that the language knows", () => {
  expect(coloursOf(["constructor"], {}).get("constructor")).toBe("var(--line-1)");
});

it("gives each word a colour in the order in which they come, and many of them the last one", () => {
  const line = (id: string, text: string): StripLine => ({ id, name: id, path: null, stretches: stretchesOf([0, 1, 2, 3, 4, 5, 6, 7], 1, words(text)) });
  const all = wordsIn([line("x", "...bcdef"), line("y", "na.ghi..")]);
  expect(all.slice(0, 3)).toEqual(["n", "a", "b"]);
  const colours = coloursOf(all, { n: "transparent" });
  expect([colours.get("n"), colours.get("a"), colours.get("b")]).toEqual(["transparent", "var(--line-1)", "var(--line-2)"]);
  expect(colours.get(all.at(-1) ?? "")).toBe("var(--line-6)");
});
