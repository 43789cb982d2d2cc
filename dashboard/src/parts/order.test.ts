import { expect, it } from "vitest";
import { ariaSort, nextSort } from "./order";

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
