import { address, oneOf, pageNumber, sortBy, text, type StateOf } from "../../shared/address";

export const VIEWS = ["nodes", "processes"] as const;
export type View = (typeof VIEWS)[number];

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
    sort: sortBy(),
    page: pageNumber(),
  },
  (state) => ({ ...state, ...(state.view === "nodes" ? { node: "", type: "" } : { state: "" }) }),
);
export type ClustersState = StateOf<typeof CLUSTERS>;

/** A node; its processes have an order and pages, as in the list of all. */
export const NODE = address("/clusters/:cluster/:node", { sort: sortBy(), page: pageNumber() });

/** The other view of the same cluster. What filters one view means nothing in the other. */
export function viewPath({ cluster }: ClustersState, view: View): string {
  return CLUSTERS.to({ view, cluster });
}

/** Whether rows are left out. */
export function isFiltered(state: ClustersState): boolean {
  return state.search !== "" || state.state !== "" || state.node !== "" || state.type !== "";
}
