import type { Frame } from "./frame";
import { axisOf, isLimit, type CatalogueRow } from "./panels";

/** A row of which one value is all there is in a range. */
export interface StillRow {
  readonly row: CatalogueRow;
  readonly value: number;
}

/** What moved in a range, and what did not. */
export interface Movement {
  /** Worth a line: what moved, what shows something that is wrong, and the limits beside those. */
  readonly moved: readonly CatalogueRow[];
  readonly still: readonly StillRow[];
  /** Without a value in the range. */
  readonly unread: readonly CatalogueRow[];
}

/**
 * Sorts rows by whether their values differ anywhere in these frames: what went up and down within a step moved as well.
 * A range with a single step tells nothing: all that was read counts as moved.
 */
export function movementOf(rows: readonly CatalogueRow[], frames: readonly Frame[], evidence: ReadonlySet<string>): Movement {
  const isLong = frames.some((frame) => frame.times.length > 1);
  const read = rows.map((row) => ({ row, value: onlyValue(row.column, frames) }));
  const isMoving = ({ row, value }: (typeof read)[number]) => value !== null && (!isLong || value === undefined || evidence.has(row.column));
  const placeOf = (row: CatalogueRow) => `${row.group} ${axisOf(row)}`;
  const places = new Set(read.filter((each) => !isLimit(each.row) && isMoving(each)).map(({ row }) => placeOf(row)));
  const isShown = (each: (typeof read)[number]) => isMoving(each) || (each.value !== null && isLimit(each.row) && places.has(placeOf(each.row)));
  return {
    moved: read.filter(isShown).map(({ row }) => row),
    still: read.flatMap((each) => (typeof each.value === "number" && !isShown(each) ? [{ row: each.row, value: each.value }] : [])),
    unread: read.filter(({ value }) => value === null).map(({ row }) => row),
  };
}

/** The one value that a column has in all frames; undefined: it has several, null: it has none. */
function onlyValue(column: string, frames: readonly Frame[]): number | null | undefined {
  let only: number | null = null;
  for (const frame of frames) {
    for (const value of frame.values.get(column) ?? []) {
      if (value === null) continue;
      if (only !== null && value !== only) return undefined;
      only = value;
    }
  }
  return only;
}
