import type { Unread } from "../shared/address";

type Key = string | number | null;

/** How rows are ordered by a column. */
export interface Sort<Row> {
  /** Numbers are first looked at from the top. */
  readonly highestFirst: boolean;
  /** What is compared; null: it is not known. Absent: the server orders the rows. */
  readonly by?: (row: Row) => Key;
}

export function lowestFirst<Row>(by?: (row: Row) => Key): Sort<Row> {
  return by === undefined ? { highestFirst: false } : { highestFirst: false, by };
}

export function highestFirst<Row>(by?: (row: Row) => Key): Sort<Row> {
  return by === undefined ? { highestFirst: true } : { highestFirst: true, by };
}

/** What is ordered: the columns of a list. */
type Sorted<Row> = readonly { readonly id: string; readonly sort?: Sort<Row> }[];

const columnOf = (sort: string) => sort.replace(/^-/, "");

/** An order that an address says, if the list has it. */
export function knownSort<Row>(columns: Sorted<Row>, sort: string, fallback = ""): string {
  return columns.some(({ id, sort: by }) => by !== undefined && id === columnOf(sort)) ? sort : fallback;
}

/** An order that an address says and the list does not have, with those that it has. */
export function unreadSort<Row>(columns: Sorted<Row>, sort: string): readonly Unread[] {
  if (knownSort(columns, sort) === sort) return [];
  const known = columns.flatMap(({ id, sort: by }) => (by === undefined ? [] : [id])).join(", ");
  return [{ name: "sort", said: sort, isParameter: true, known: `${known}, with - before it for descending` }];
}

/** The rows by a column, unknown ones last in either direction; rows that are the same there, and all by an unknown column, as they were. */
export function inOrder<Row>(rows: readonly Row[], columns: Sorted<Row>, sort: string): Row[] {
  const by = columns.find(({ id }) => id === columnOf(sort))?.sort?.by;
  if (by === undefined) return [...rows];
  const sign = sort.startsWith("-") ? -1 : 1;
  return [...rows].sort((a, b) => compareKeys(by(a), by(b), sign));
}

function compareKeys(a: Key, b: Key, sign: number): number {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * compareText(String(a), String(b));
}

const TEXT = new Intl.Collator("en", { numeric: true });

/** As a person orders names: node-2 before node-10. */
export function compareText(a: string, b: string): number {
  return TEXT.compare(a, b);
}

/** Sorting by the column of a header: first its natural direction, then the other, then the order of the list itself. */
export function nextSort(sort: string, column: string, highestFirst: boolean): string {
  const [first, second] = highestFirst ? [`-${column}`, column] : [column, `-${column}`];
  if (sort === first) return second;
  return sort === second ? "" : first;
}

export function ariaSort(sort: string, column: string): "ascending" | "descending" | "none" {
  if (sort === column) return "ascending";
  return sort === `-${column}` ? "descending" : "none";
}
