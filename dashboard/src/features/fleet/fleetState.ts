import { STATES } from "../../api/queries";
import { MEMORY_USED, POWER, TEMPERATURE, UTILIZATION } from "../../shared/headline";
import { searchOf } from "../../shared/location";

/** What the list shows; all of it stands in the address. */
export interface FleetState {
  readonly search: string;
  readonly state: string;
  readonly host: string;
  /** A column, with `-` before it for descending; empty: what needs somebody first. */
  readonly sort: string;
  /** Counted from 1. */
  readonly page: number;
}

export const PAGE_SIZE = 50;
export const SORTABLE = ["model", "hostname", "index", "state", UTILIZATION, POWER, TEMPERATURE, MEMORY_USED, "last_seen"] as const;
export type SortColumn = (typeof SORTABLE)[number];
/** Numbers are first looked at from the top. */
const HIGHEST_FIRST = new Set<string>([UTILIZATION, POWER, TEMPERATURE, MEMORY_USED, "last_seen"]);

export function isHighestFirst(column: SortColumn): boolean {
  return HIGHEST_FIRST.has(column);
}

/** The server's order by state begins with the sick and the silent. */
export const SICK_FIRST = "state";

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
  return `/gpus${searchOf({ ...rest, page: page > 1 ? String(page) : "" })}`;
}
