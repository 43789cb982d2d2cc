import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import * as headline from "./headline";

// docs/metrics.md is written from the catalogue, which a test of the program holds.
const DOCUMENT = readFileSync(join(import.meta.dirname, "../../../docs/metrics.md"), "utf8");
const UNITS = new Map([...DOCUMENT.matchAll(/^\| `(\w+)` \| \w+ \| (\S*) ?\|/gm)].map(([, name, unit]) => [name, unit]));
/** The units that the pages count on in these columns, by the end of their names; others are counts. */
const WRITTEN = { pct: "%", w: "W", c: "°C", mb: "MiB", mj: "mJ" } as Readonly<Record<string, string>>;

it.each(Object.entries(headline))("%s is a column of the catalogue, in the unit in which it is written", (_, column) => {
  expect(UNITS.get(column)).toBe(WRITTEN[column.split("_").at(-1) ?? ""] ?? "");
});
