import { describe, expect, it } from "vitest";
import { ariaSort, DEFAULT, fleetPath, nextSort, parseFleet } from "./fleetState";

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
    [DEFAULT, "/"],
    [{ ...DEFAULT, page: 2 }, "/?page=2"],
    [{ ...DEFAULT, search: "a&b=c", sort: "-power_w" }, "/?search=a%26b%3Dc&sort=-power_w"],
  ])("%o is written as %s and read back", (state, path) => {
    expect(fleetPath(state)).toBe(path);
    expect(parseFleet(path.slice(2))).toEqual(state);
  });

  it("turns through both directions and back to the server's order", () => {
    expect(nextSort("", "power_w")).toBe("-power_w");
    expect(nextSort("-power_w", "power_w")).toBe("power_w");
    expect(nextSort("power_w", "power_w")).toBe("");
    expect(nextSort("-power_w", "model")).toBe("model");
    expect(nextSort("model", "model")).toBe("-model");
    expect(ariaSort("-model", "model")).toBe("descending");
    expect(ariaSort("model", "model")).toBe("ascending");
    expect(ariaSort("", "model")).toBe("none");
  });
});
