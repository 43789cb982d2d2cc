import { searchOf } from "../../shared/location";

export const COLUMNS = ["host", "findings", "gpus", "free", "model", "cpu", "memory", "last_seen"] as const;
export type Column = (typeof COLUMNS)[number];

/** What the list of hosts shows; all of it stands in the address. */
export interface HostsState {
  readonly search: string;
  /** A column, with `-` before it for descending; empty: the most trouble first. */
  readonly sort: string;
  /** Counted from 1. */
  readonly page: number;
}

export const DEFAULT: HostsState = { search: "", sort: "", page: 1 };

/** Reads the address; what is not understood is left at its default, so that an old link still opens. */
export function parseHosts(search: string): HostsState {
  const params = new URLSearchParams(search);
  const sort = params.get("sort") ?? "";
  const page = Number(params.get("page") ?? "");
  return {
    search: params.get("search") ?? "",
    sort: COLUMNS.some((column) => column === sort.replace(/^-/, "")) ? sort : "",
    page: Number.isSafeInteger(page) && page > 0 ? page : 1,
  };
}

export function hostsPath({ search, sort, page }: HostsState): string {
  return `/hosts${searchOf({ search, sort, page: page > 1 ? String(page) : "" })}`;
}
