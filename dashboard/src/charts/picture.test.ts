import { expect, it } from "vitest";
import { legendPlaces } from "./picture";

it.each([
  ["one line", [100, 100], [[0, 0], [110, 0]], 1],
  ["as many as they need", [100, 150, 100], [[0, 0], [110, 0], [0, 1]], 2],
  ["one that is too wide stands alone", [400, 50], [[0, 0], [0, 1]], 2],
  ["none", [], [], 0],
])("puts a legend into %s", (_name, widths, places, lines) => expect(legendPlaces(widths, 280, 10)).toEqual({ places, lines }));
