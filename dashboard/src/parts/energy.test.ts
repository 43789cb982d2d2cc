import { expect, it } from "vitest";
import { countedShare, hours, kwh, sourceWords } from "./energy";

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

it.each([
  [null, "–", "–"],
  [0, "0 h", "0 kWh"],
  [0.0000972, "< 0.01 h", "0.0972 Wh"],
  [0.005, "< 0.01 h", "5 Wh"],
  [0.01, "0.01 h", "0.01 kWh"],
  [24, "24 h", "24 kWh"],
])("%s is said as a time and as an energy", (value, time, energy) => expect([hours(value), kwh(value)]).toEqual([time, energy]));
