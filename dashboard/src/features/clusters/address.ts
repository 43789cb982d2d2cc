import { address, oneOf, pageNumber, sortBy, text, type StateOf } from "../../shared/address";

export const VIEWS = ["nodes", "processes"] as const;
export type View = (typeof VIEWS)[number];

export const NODE_COLUMNS = ["node", "cluster", "state", "gpus", "utilization", "temperature", "memory", "age"] as const;
export type NodeColumn = (typeof NODE_COLUMNS)[number];
export const PROCESS_COLUMNS = ["command", "pid", "type", "cluster", "node", "gpu", "sm", "memory_activity", "encoder", "decoder", "memory"] as const;
export type ProcessColumn = (typeof PROCESS_COLUMNS)[number];
const SORTABLE: Readonly<Record<View, readonly string[]>> = { nodes: NODE_COLUMNS, processes: PROCESS_COLUMNS };

/** What the page of clusters shows. */
export const CLUSTERS = address(
  "/clusters",
  {
    view: oneOf(VIEWS, "nodes"),
    /** A cluster by name; empty is all. */
    cluster: text(),
    search: text(),
    /** Only nodes in this state. */
    state: text(),
    /** Only processes of nodes of this name, of this type. */
    node: text(),
    type: text(),
    /** Of the view; without one sick nodes first, processes by cluster and node. */
    sort: sortBy([...NODE_COLUMNS, ...PROCESS_COLUMNS]),
    page: pageNumber(),
  },
  (state) => ({
    ...state,
    ...(state.view === "nodes" ? { node: "", type: "" } : { state: "" }),
    sort: SORTABLE[state.view].includes(state.sort.replace(/^-/, "")) ? state.sort : "",
  }),
);
export type ClustersState = StateOf<typeof CLUSTERS>;

/** A node; its processes have an order and pages, as in the list of all. */
export const NODE = address("/clusters/:cluster/:node", { sort: sortBy(PROCESS_COLUMNS), page: pageNumber() });

/** The other view of the same cluster. What filters one view means nothing in the other. */
export function viewPath({ cluster }: ClustersState, view: View): string {
  return CLUSTERS.to({ view, cluster });
}

/** Whether rows are left out. */
export function isFiltered(state: ClustersState): boolean {
  return state.search !== "" || state.state !== "" || state.node !== "" || state.type !== "";
}
