// The addresses that pages of other features lead to. Those of one feature alone are its own.

import { SEVERITIES } from "../api/findings";
import { GROUPINGS } from "../api/fleet";
import { AGGREGATES } from "../api/queries";
import { address, field, fitting, flag, names, oneOf, pageNumber, sortBy, text, type StateOf } from "../shared/address";
import { JUDGEMENTS, type Judgement } from "../api/judgement";
import { range, type Range } from "./range";

/** What of the findings is shown. */
export const NOW = address("/", {
  severity: oneOf<string>(SEVERITIES, ""),
  host: text(),
  namespace: text(),
  kind: text(),
  page: pageNumber(),
  /** For a screen on a wall: no controls, one finding after another. `?tv` alone says it too. */
  tv: field(false, "1, 0", (said) => said !== "0", (isTv) => (isTv ? "1" : "")),
});
export type NowState = StateOf<typeof NOW>;

export const FLEET_VIEWS = ["list", "map"] as const;
/** What colours mean besides metrics: how the GPU does. */
export const STATE_COLOUR = "state";

/** What the list or the heat map shows. */
export const FLEET = address("/gpus", {
  view: oneOf(FLEET_VIEWS, "list"),
  search: text(),
  host: text(),
  /** Tests of the identity, as the API writes them; links from other pages come with them. */
  where: text(),
  /** A word of the judgement. */
  state: oneOf<Judgement | "">(JUDGEMENTS, ""),
  /** Of the list; empty: what needs somebody first. */
  sort: sortBy(),
  /** Of the map: the GPU in its middle, and how far it is enlarged. */
  middle: text(),
  page: pageNumber(),
  /** Of the map: `state` or a column. Which columns there are, only the catalogue knows. */
  colour: fitting(/^[a-z][a-z0-9_]*$/, `${STATE_COLOUR}, or a column of the catalogue`, STATE_COLOUR),
  group: oneOf(GROUPINGS, "node"),
  /** Of the map: whether colours reach from the lowest to the highest value, not to how far values can go. */
  fit: flag(false),
  /** Of the map: whether colours say how a value differs from that of an hour ago. */
  change: flag(false),
  zoom: field(1, "a number from 1 on", (said) => (Number(said) >= 1 && Number.isFinite(Number(said)) ? Number(said) : null)),
  /** GPUs that were picked on the map. */
  picked: names(),
});
export type FleetState = StateOf<typeof FLEET>;

/** What the page of a GPU shows. */
export const GPU = address("/gpus/:id", {
  /** Null leaves the choice to the data's age; so does it of `live`. */
  range: range(null),
  /** The id of an incident of a job whose window is looked at; empty: none. */
  incident: text(),
  aggregate: oneOf(AGGREGATES, "mean"),
  live: flag(null),
  /** Whether the median of its peers is drawn. */
  peers: flag(true),
  /** Whether it is asked why the GPU was slow. */
  why: flag(false),
});
export type GpuState = StateOf<typeof GPU>;

/** What the page of a host shows: null leaves the range to the data's age. */
export const HOST = address("/hosts/:name", { range: range(null) });

const LAST_DAY: Range = { kind: "preset", preset: "24h" };

/** What the page of a job or pod shows. */
export const JOB = address(
  "/jobs/:id",
  {
    /** Where several clusters have one of its name; empty: where one has. */
    cluster: text(),
    range: range(LAST_DAY),
  },
  // All that there ever was is too much to add up.
  (state) => (state.range.kind === "all" ? { ...state, range: LAST_DAY } : state),
);

/** Which GPUs are beside each other, in which range: those that are named, else all of a host, or that pass tests of the identity. */
export const COMPARE = address("/compare", {
  gpus: names(),
  host: text(),
  where: text(),
  search: text(),
  /** The column whose chart stands first; empty: none. */
  metric: text(),
  range: range(null),
  aggregate: oneOf(AGGREGATES, "mean"),
});
export type CompareState = StateOf<typeof COMPARE>;
