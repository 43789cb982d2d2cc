import { searchOf } from "../../shared/location";

export const VIEWS = ["nodes", "processes"] as const;
export type View = (typeof VIEWS)[number];

/** What the page of clusters shows; all of it stands in the address. */
export interface ClustersState {
  readonly view: View;
  /** A cluster by name; empty is all. */
  readonly cluster: string;
  readonly search: string;
  /** Only nodes in this state. */
  readonly state: string;
  /** Only processes of nodes of this name. */
  readonly node: string;
  /** Only processes of this type. */
  readonly type: string;
  /** A column of the view, with `-` before it for descending; empty: sick nodes first, processes by cluster and node. */
  readonly sort: string;
  /** Counted from 1. */
  readonly page: number;
}

export const NODE_COLUMNS = ["node", "cluster", "state", "gpus", "utilization", "temperature", "memory", "age"] as const;
export type NodeColumn = (typeof NODE_COLUMNS)[number];
export const PROCESS_COLUMNS = ["command", "pid", "type", "cluster", "node", "gpu", "sm", "memory_activity", "encoder", "decoder", "memory"] as const;
export type ProcessColumn = (typeof PROCESS_COLUMNS)[number];
const SORTABLE: Readonly<Record<View, readonly string[]>> = { nodes: NODE_COLUMNS, processes: PROCESS_COLUMNS };

export const DEFAULT: ClustersState = { view: "nodes", cluster: "", search: "", state: "", node: "", type: "", sort: "", page: 1 };

/** Reads the address, of a page with both views or `only` with one; what is not understood is left at its default, so that an old link still opens. */
export function parseClusters(search: string, only?: View): ClustersState {
  const params = new URLSearchParams(search);
  const text = (name: string) => params.get(name) ?? "";
  const view = only ?? VIEWS.find((known) => known === text("view")) ?? "nodes";
  const sort = text("sort");
  const page = Number(text("page"));
  return {
    view,
    cluster: text("cluster"),
    search: text("search"),
    state: view === "nodes" ? text("state") : "",
    node: view === "processes" ? text("node") : "",
    type: view === "processes" ? text("type") : "",
    sort: SORTABLE[view].includes(sort.replace(/^-/, "")) ? sort : "",
    page: Number.isSafeInteger(page) && page > 0 ? page : 1,
  };
}

export function clustersPath(state: ClustersState): string {
  const { page, view, ...rest } = state;
  return `/clusters${searchOf({ view: view === "nodes" ? "" : view, ...rest, page: page > 1 ? String(page) : "" })}`;
}

/** The other view of the same cluster. What filters one view means nothing in the other. */
export function viewPath(state: ClustersState, view: View): string {
  return clustersPath({ ...DEFAULT, view, cluster: state.cluster });
}

/** Whether rows are left out. */
export function isFiltered(state: ClustersState): boolean {
  return state.search !== "" || state.state !== "" || state.node !== "" || state.type !== "";
}

/** The page of a node; its processes have an order and pages, as in the list of all. */
export function nodePath(cluster: string, node: string, list: Pick<ClustersState, "sort" | "page"> = DEFAULT): string {
  const page = list.page > 1 ? String(list.page) : "";
  return `/clusters/${encodeURIComponent(cluster)}/${encodeURIComponent(node)}${searchOf({ sort: list.sort, page })}`;
}
