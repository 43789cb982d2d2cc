import { expect, it } from "vitest";
import { countedShare, sourceWords } from "./energy";

it.each([
  [null, ""],
  [1, "counters"],
  [0, "integrated power"],
  [0.4, "40% counters, the rest integrated power"],
])("a counted share of %s is said", (counted, words) => expect(sourceWords(counted)).toBe(words));

it.each([
  [10, 4, 0.4],
  [0, 0, null],
  [null, null, null],
])("of %s kWh with %s counted the share is %s", (energy_kwh, counted_kwh, share) => expect(countedShare({ energy_kwh, counted_kwh })).toBe(share));
