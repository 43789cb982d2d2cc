import { describe, expect, it } from "vitest";
import { DEFAULT, fleetPath, parseFleet } from "./fleetState";

describe("the list's state in the address", () => {
  it.each([
    ["", DEFAULT],
    ["search=h100&state=idle&host=n-1&sort=-power_w&page=3", { search: "h100", state: "idle", host: "n-1", sort: "-power_w", page: 3 }],
    ["state=broken", DEFAULT],
    ["sort=password", DEFAULT],
    ["page=0", DEFAULT],
    ["page=-2", DEFAULT],
    ["page=1e99", DEFAULT],
    ["page=abc&search=a%20b", { ...DEFAULT, search: "a b" }],
  ])("%s is read", (search, expected) => {
    expect(parseFleet(search)).toEqual(expected);
  });

  it.each([
    [DEFAULT, "/gpus"],
    [{ ...DEFAULT, page: 2 }, "/gpus?page=2"],
    [{ ...DEFAULT, search: "a&b=c", sort: "-power_w" }, "/gpus?search=a%26b%3Dc&sort=-power_w"],
  ])("%o is written as %s and read back", (state, path) => {
    expect(fleetPath(state)).toBe(path);
    expect(parseFleet(path.slice("/gpus?".length))).toEqual(state);
  });
});
