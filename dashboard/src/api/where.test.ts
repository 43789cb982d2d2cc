import { expect, it } from "vitest";
import { whereIs, whereWords } from "./where";

it.each([
  ["namespace", "research", "namespace=research", "namespace research"],
  ["job", null, "job=", "no job"],
  ["pod", "a,b;c.d", "pod=~^a.b.c\\.d$", "pod=~^a.b.c\\.d$"],
])("%s %s", (column, text, where, words) => {
  expect(whereIs(column, text)).toBe(where);
  expect(whereWords(where)).toBe(words);
});
