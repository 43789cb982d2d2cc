import { expect, it } from "vitest";
import { whereIs, whereOneOf, whereWords } from "./where";

it.each([
  ["namespace", "research", "namespace=research", "namespace research"],
  ["job", null, "job=", "no job"],
  ["pod", "a,b;c.d", "pod=~^a.b.c\\.d$", "pod=~^a.b.c\\.d$"],
])("%s %s", (column, text, where, words) => {
  expect(whereIs(column, text)).toBe(where);
  expect(whereWords(where)).toBe(words);
});

it("several texts of which one ends a test", () => {
  expect(whereOneOf("job", ["a", "b.c"])).toBe("job=a,b.c");
  expect(whereOneOf("job", ["a", "b.c;d"])).toBe("job=~^(?:a|b\\.c.d)$");
});
