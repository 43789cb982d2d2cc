import { describe, expect, it } from "vitest";
import { pageOf, PAGE_SIZE } from "../../parts/pages";
import { CLUSTERS, NODE, viewPath } from "./address";

const DEFAULT = CLUSTERS.defaults;

describe("the page's state in the address", () => {
  it.each([
    ["", DEFAULT],
    ["cluster=east&search=h100&state=failing&sort=-memory&page=3", { ...DEFAULT, cluster: "east", search: "h100", state: "failing", sort: "-memory", page: 3 }],
    ["view=processes&node=n-1&type=compute&sort=-sm", { ...DEFAULT, view: "processes", node: "n-1", type: "compute", sort: "-sm" }],
    ["view=pods", DEFAULT],
    ["node=n-1&type=compute", DEFAULT],
    ["view=processes&state=failing", { ...DEFAULT, view: "processes" }],
    ["page=0", DEFAULT],
    ["page=1.5", DEFAULT],
  ])("%s is read", (search, expected) => {
    expect(CLUSTERS.read(search)).toEqual(expected);
  });

  it.each([
    [DEFAULT, "/clusters"],
    [{ ...DEFAULT, cluster: "a&b", page: 2 }, "/clusters?cluster=a%26b&page=2"],
    [{ ...DEFAULT, view: "processes" as const, node: "n", sort: "-sm" }, "/clusters?view=processes&node=n&sort=-sm"],
  ])("%o is written as %s and read back", (state, path) => {
    expect(CLUSTERS.to(state)).toBe(path);
    expect(CLUSTERS.read(path.split("?")[1] ?? "")).toEqual(state);
  });

  it("goes to the other view of the same cluster without the filters of this one", () => {
    expect(viewPath({ ...DEFAULT, cluster: "east", search: "x", state: "ok", page: 4 }, "processes")).toBe("/clusters?view=processes&cluster=east");
  });

  it("names a node's page, and the order of its processes", () => {
    expect(NODE.to({ cluster: "a b", node: "c/d" })).toBe("/clusters/a%20b/c%2Fd");
    expect(NODE.to({ cluster: "east", node: "n", sort: "-sm", page: 2 })).toBe("/clusters/east/n?sort=-sm&page=2");
    expect(NODE.read("sort=-sm&page=2")).toEqual({ sort: "-sm", page: 2 });
  });
});

it("draws a page of the rows; beyond the end the last", () => {
  const rows = Array.from({ length: PAGE_SIZE + 1 }, (_, row) => row);
  expect(pageOf(rows, 1)).toEqual({ shown: rows.slice(0, PAGE_SIZE), page: 1, hasNext: true });
  expect(pageOf(rows, 2)).toEqual({ shown: [PAGE_SIZE], page: 2, hasNext: false });
  expect(pageOf(rows, 9)).toEqual({ shown: [PAGE_SIZE], page: 2, hasNext: false });
  expect(pageOf([], 3)).toEqual({ shown: [], page: 1, hasNext: false });
});
