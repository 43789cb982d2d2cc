import type { Cluster, ClusterState } from "../../api/clusters";

/** States in which nothing, or not everything, is known of a cluster's nodes. */
const UNREAD: ReadonlySet<ClusterState> = new Set<ClusterState>(["starting", "no_gpu_operator", "unreachable", "unauthorized", "forbidden", "throttled", "failed"]);

export function isUnread(cluster: Cluster): boolean {
  return UNREAD.has(cluster.state);
}

export interface NodesOf {
  /** Read at the last attempt. */
  readonly read: number;
  readonly known: number;
  /** Whether every cluster has listed its nodes. */
  readonly all: boolean;
}

export function nodesOf(clusters: readonly Cluster[]): NodesOf {
  const asked = clusters.filter((cluster) => cluster.has_gpu);
  return {
    read: asked.reduce((sum, cluster) => sum + cluster.nodes.ok, 0),
    known: asked.reduce((sum, cluster) => sum + (cluster.node_count ?? 0), 0),
    all: asked.every((cluster) => cluster.node_count !== null),
  };
}

function list(words: readonly string[]): string {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1) ?? ""}`;
}

/** What is missing from sums, means and lists, in a few words; `null` if nothing is. */
export function absentees(clusters: readonly Cluster[]): string | null {
  const nodes = clusters.filter((cluster) => !isUnread(cluster)).reduce((sum, cluster) => sum + cluster.missing.length, 0);
  const unread = clusters.filter(isUnread).map((cluster) => cluster.cluster_id);
  const parts = [];
  if (nodes > 0) parts.push(nodes === 1 ? "1 node" : `${nodes} nodes`);
  if (unread.length > 0) parts.push(`${unread.length === 1 ? "the cluster" : "the clusters"} ${list(unread)}`);
  return parts.length === 0 ? null : parts.join(", and ");
}
