import { describe, expect, it } from "vitest";
import { DEFAULT, fleetPath, parseFleet, whereIs, whereWords } from "./fleetState";

describe("the list's state in the address", () => {
  it.each([
    ["", DEFAULT],
    ["search=h100&state=idle&host=n-1&sort=-power_w&page=3", { ...DEFAULT, search: "h100", state: "idle", host: "n-1", sort: "-power_w", page: 3 }],
    ["state=broken", DEFAULT],
    ["sort=password", DEFAULT],
    ["page=0", DEFAULT],
    ["page=-2", DEFAULT],
    ["page=1e99", DEFAULT],
    ["page=abc&search=a%20b", { ...DEFAULT, search: "a b" }],
    ["view=map&colour=power_w&group=job&zoom=4.5&at=GPU-1&picked=a,,b", { ...DEFAULT, view: "map", colour: "power_w", group: "job", zoom: 4.5, at: "GPU-1", picked: ["a", "b"] }],
    ["view=globe&colour=Red!&group=room&zoom=Infinity", DEFAULT],
    ["zoom=0.2&where=namespace%3Dresearch", { ...DEFAULT, where: "namespace=research" }],
  ])("%s is read", (search, expected) => {
    expect(parseFleet(search)).toEqual(expected);
  });

  it.each([
    [DEFAULT, "/gpus"],
    [{ ...DEFAULT, page: 2 }, "/gpus?page=2"],
    [{ ...DEFAULT, search: "a&b=c", sort: "-power_w" }, "/gpus?search=a%26b%3Dc&sort=-power_w"],
    [{ ...DEFAULT, view: "map", colour: "severity", group: "model", zoom: 2, at: "x", picked: ["a", "b"] } as const, "/gpus?view=map&at=x&colour=severity&group=model&zoom=2&picked=a%2Cb"],
  ])("%o is written as %s and read back", (state, path) => {
    expect(fleetPath(state)).toBe(path);
    expect(parseFleet(path.slice("/gpus?".length))).toEqual(state);
  });
});

describe("tests of the identity", () => {
  it.each([
    ["namespace", "research", "namespace=research", "namespace research"],
    ["job", null, "job=", "no job"],
    ["pod", "a,b;c.d", "pod=~^a.b.c\\.d$", "pod=~^a.b.c\\.d$"],
  ])("%s %s", (column, text, where, words) => {
    expect(whereIs(column, text)).toBe(where);
    expect(whereWords(where)).toBe(words);
  });
});
