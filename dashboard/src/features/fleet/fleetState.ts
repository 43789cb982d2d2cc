import { GROUPINGS, type Grouping } from "../../api/fleet";
import { STATES } from "../../api/queries";
import { MEMORY_USED, POWER, TEMPERATURE, UTILIZATION } from "../../shared/headline";
import { searchOf } from "../../shared/location";

export const VIEWS = ["list", "map"] as const;
export type FleetView = (typeof VIEWS)[number];

/** What colours mean besides metrics. */
export const STATE_COLOUR = "state";
export const SEVERITY_COLOUR = "severity";

/** What the list or the heat map shows; all of it stands in the address. */
export interface FleetState {
  readonly view: FleetView;
  readonly search: string;
  readonly state: string;
  readonly host: string;
  /** Tests of the identity, as the API writes them; links from other pages come with them. */
  readonly where: string;
  /** Of the list: a column, with `-` before it for descending; empty: what needs somebody first. */
  readonly sort: string;
  /** Of the list: counted from 1. */
  readonly page: number;
  /** Of the map: `state`, `severity` or a column. */
  readonly colour: string;
  readonly group: Grouping;
  /** Of the map: how far it is enlarged, and the GPU in its middle. */
  readonly zoom: number;
  readonly at: string;
  /** GPUs that were picked on the map. */
  readonly picked: readonly string[];
}

export const SORTABLE = ["model", "hostname", "index", "state", UTILIZATION, POWER, TEMPERATURE, MEMORY_USED, "last_seen"] as const;
export type SortColumn = (typeof SORTABLE)[number];
/** Numbers are first looked at from the top. */
const HIGHEST_FIRST = new Set<string>([UTILIZATION, POWER, TEMPERATURE, MEMORY_USED, "last_seen"]);

export function isHighestFirst(column: SortColumn): boolean {
  return HIGHEST_FIRST.has(column);
}

/** The server's order by state begins with the sick and the silent. */
export const SICK_FIRST = "state";

export const DEFAULT: FleetState = {
  view: "list",
  search: "",
  state: "",
  host: "",
  where: "",
  sort: "",
  page: 1,
  colour: STATE_COLOUR,
  group: "node",
  zoom: 1,
  at: "",
  picked: [],
};

/** Reads the address; what is not understood is left at its default, so that an old link still opens. */
export function parseFleet(search: string): FleetState {
  const params = new URLSearchParams(search);
  const text = (name: string) => params.get(name) ?? "";
  const sort = text("sort");
  const state = text("state");
  const page = Number(text("page"));
  const zoom = Number(text("zoom"));
  const colour = text("colour");
  return {
    view: VIEWS.find((known) => known === text("view")) ?? DEFAULT.view,
    search: text("search"),
    host: text("host"),
    where: text("where"),
    state: STATES.some((known) => known === state) ? state : "",
    sort: SORTABLE.some((column) => column === sort.replace(/^-/, "")) ? sort : "",
    page: Number.isSafeInteger(page) && page > 0 ? page : 1,
    // Which columns there are, only the catalogue knows.
    colour: /^[a-z][a-z0-9_]*$/.test(colour) ? colour : DEFAULT.colour,
    group: GROUPINGS.find((known) => known === text("group")) ?? DEFAULT.group,
    zoom: zoom > 1 && Number.isFinite(zoom) ? zoom : 1,
    at: text("at"),
    picked: text("picked").split(",").filter((id) => id !== ""),
  };
}

export function fleetPath(state: FleetState): string {
  const { view, page, colour, group, zoom, picked, ...texts } = state;
  return `/gpus${searchOf({
    view: view === DEFAULT.view ? "" : view,
    ...texts,
    page: page > 1 ? String(page) : "",
    colour: colour === DEFAULT.colour ? "" : colour,
    group: group === DEFAULT.group ? "" : group,
    zoom: zoom > 1 ? String(zoom) : "",
    picked: picked.join(","),
  })}`;
}

export function isFiltered({ search, state, host, where }: FleetState): boolean {
  return search !== "" || state !== "" || host !== "" || where !== "";
}

/** A test for GPUs with this text, or without one, in an identity column. Commas and semicolons in it would end it: then any character may stand there. */
export function whereIs(column: string, text: string | null): string {
  if (text === null) return `${column}=`;
  if (!/[,;]/.test(text)) return `${column}=${text}`;
  return `${column}=~^${text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&").replace(/[,;]/g, ".")}$`;
}

/** Tests in words: `namespace research`. */
export function whereWords(where: string): string {
  return where
    .split(";")
    .map((test) => (/^[a-z]+=$/.test(test) ? `no ${test.slice(0, -1)}` : test.replace(/^([a-z]+)=(?!~)/, "$1 ")))
    .join(", ");
}
