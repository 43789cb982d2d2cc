import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { HOLDER_LIST } from "./holderList";

const DOCUMENT = readFileSync(join(import.meta.dirname, "../../../../api/openapi.yaml"), "utf8");
/** Which of the API's sums a column shows. */
const SUMS: Readonly<Record<string, string>> = {
  held: "held_gpu_hours",
  busy: "busy_gpu_hours",
  wasted: "wasted_gpu_hours",
  shared: "shared_gpu_hours",
  energy: "energy_kwh",
  cost: "wasted_cost",
};

it("has the sums in the order of the API", () => {
  const sums = DOCUMENT.slice(DOCUMENT.indexOf("\n    JobSums:\n"));
  const shown = HOLDER_LIST.columns.flatMap(({ id }) => SUMS[id] ?? []);
  expect(shown).toHaveLength(Object.keys(SUMS).length);
  const places = shown.map((field) => sums.indexOf(`\n        ${field}:\n`));
  expect(places.every((place) => place > 0)).toBe(true);
  expect(places).toEqual([...places].sort((one, other) => one - other));
});
