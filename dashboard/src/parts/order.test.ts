import { expect, it } from "vitest";
import { ariaSort, highestFirst, inOrder, knownSort, lowestFirst, nextSort, unreadSort } from "./order";

it("turns through both directions and back to the order of the list itself", () => {
  expect(nextSort("", "power_w", true)).toBe("-power_w");
  expect(nextSort("-power_w", "power_w", true)).toBe("power_w");
  expect(nextSort("power_w", "power_w", true)).toBe("");
  expect(nextSort("-power_w", "model", false)).toBe("model");
  expect(nextSort("model", "model", false)).toBe("-model");
  expect(ariaSort("-model", "model")).toBe("descending");
  expect(ariaSort("model", "model")).toBe("ascending");
  expect(ariaSort("", "model")).toBe("none");
});

const ROWS = [{ name: "n-10", heat: 40 }, { name: "n-9", heat: null }, { name: "n-2", heat: 80 }, { name: "n-3", heat: 40 }];
const COLUMNS = [{ id: "name", sort: lowestFirst<(typeof ROWS)[number]>(({ name }) => name) }, { id: "heat", sort: highestFirst<(typeof ROWS)[number]>(({ heat }) => heat) }, { id: "look" }];

it.each([
  ["", ["n-10", "n-9", "n-2", "n-3"]],
  ["name", ["n-2", "n-3", "n-9", "n-10"]],
  ["-name", ["n-10", "n-9", "n-3", "n-2"]],
  ["heat", ["n-10", "n-3", "n-2", "n-9"]],
  ["-heat", ["n-2", "n-10", "n-3", "n-9"]],
  ["look", ["n-10", "n-9", "n-2", "n-3"]],
  ["constructor", ["n-10", "n-9", "n-2", "n-3"]],
])("by %s: numbers in names as numbers, what is not known last, else as they were", (sort, names) => {
  expect(inOrder(ROWS, COLUMNS, sort).map(({ name }) => name)).toEqual(names);
});

it("an order that no column has is none", () => {
  expect(["-heat", "name", "look", "constructor", ""].map((sort) => knownSort(COLUMNS, sort, "name"))).toEqual(["-heat", "name", "name", "name", "name"]);
});

it("an order that no column has is said, with those that there are", () => {
  expect(["-heat", "name", ""].flatMap((sort) => unreadSort(COLUMNS, sort))).toEqual([]);
  expect(unreadSort(COLUMNS, "-look")).toEqual([{ name: "sort", said: "-look", isParameter: true, known: "name, heat, with - before it for descending" }]);
});
