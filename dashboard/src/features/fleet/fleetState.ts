import { STATES } from "../../api/queries";
import { MEMORY_USED, POWER, TEMPERATURE, UTILIZATION } from "../../shared/headline";
import { searchOf } from "../../shared/location";

/** What the list shows; all of it stands in the address. */
export interface FleetState {
  readonly search: string;
  readonly state: string;
  readonly host: string;
  /** A column, with `-` before it for descending; empty is the server's order. */
  readonly sort: string;
  /** Counted from 1. */
  readonly page: number;
}

export const PAGE_SIZE = 50;
export const SORTABLE = ["model", "hostname", "index", "state", UTILIZATION, POWER, TEMPERATURE, MEMORY_USED, "last_seen"] as const;
export type SortColumn = (typeof SORTABLE)[number];
/** Numbers are first looked at from the top. */
const DESCENDING_FIRST = new Set<string>([UTILIZATION, POWER, TEMPERATURE, MEMORY_USED, "last_seen"]);

export const DEFAULT: FleetState = { search: "", state: "", host: "", sort: "", page: 1 };

/** Reads the address; what is not understood is left at its default, so that an old link still opens. */
export function parseFleet(search: string): FleetState {
  const params = new URLSearchParams(search);
  const text = (name: string) => params.get(name) ?? "";
  const sort = text("sort");
  const state = text("state");
  const page = Number(text("page"));
  return {
    search: text("search"),
    host: text("host"),
    state: STATES.some((known) => known === state) ? state : "",
    sort: SORTABLE.some((column) => column === sort.replace(/^-/, "")) ? sort : "",
    page: Number.isSafeInteger(page) && page > 0 ? page : 1,
  };
}

export function fleetPath(state: FleetState): string {
  const { page, ...rest } = state;
  return `/${searchOf({ ...rest, page: page > 1 ? String(page) : "" })}`;
}

/** Sorting by the column of a header: first its natural direction, then the other, then the server's order. */
export function nextSort(sort: string, column: SortColumn): string {
  const first = DESCENDING_FIRST.has(column) ? `-${column}` : column;
  const second = DESCENDING_FIRST.has(column) ? column : `-${column}`;
  if (sort === first) return second;
  return sort === second ? "" : first;
}

export function ariaSort(sort: string, column: SortColumn): "ascending" | "descending" | "none" {
  if (sort === column) return "ascending";
  return sort === `-${column}` ? "descending" : "none";
}
