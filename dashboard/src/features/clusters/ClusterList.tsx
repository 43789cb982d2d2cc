import { useQueries } from "@tanstack/react-query";
import { summaryQuery, type Cluster, type ClusterSummary, type MissingNode } from "../../api/clusters";
import { List, type ListOf } from "../../parts/columns";
import { Heat, MeanUtilization, MemoryUse } from "../../parts/gpuLook";
import { ABSENT, formatNumber } from "../../shared/format";
import { Link } from "../../shared/location";
import { formatSpan, SECOND, useClock } from "../../shared/time";
import { CLUSTERS, NODE, type ClustersState } from "./address";
import { ageNow, ClusterBadge, clusterLook, nodeLook, Since, Unverified } from "./look";

/** As many missing nodes are named with their cluster; all of them stand first in the list of nodes. */
const NAMED_MAX = 3;

interface ClusterRow {
  readonly cluster: Cluster;
  readonly summary: ClusterSummary | undefined;
  readonly state: ClustersState;
  /** When the server told of the clusters. */
  readonly at: number;
}

const CLUSTER_LIST: ListOf<ClusterRow> = {
  label: "Clusters, and what of them is missing",
  keyOf: ({ cluster }) => cluster.cluster_id,
  mark: ({ cluster }) => ({ "data-cluster": cluster.cluster_id }),
  isChosen: ({ cluster, state }) => state.cluster === cluster.cluster_id,
  below: ({ cluster }) => (hasTrouble(cluster) ? <Trouble cluster={cluster} /> : null),
  columns: [
    { id: "cluster", title: "Cluster", value: ({ cluster }) => cluster.cluster_id, card: "name", cell: (row) => <ClusterLink {...row} />, className: "font-medium" },
    { id: "state", title: "State", value: ({ cluster }) => cluster.state, card: "line", cell: ({ cluster }) => <State cluster={cluster} /> },
    { id: "nodes", title: "Nodes read", value: ({ cluster }) => nodesRead(cluster), cell: ({ cluster }) => nodesRead(cluster), className: "num" },
    { id: "gpus", title: "GPUs", value: ({ cluster }) => gpusRead(cluster), cell: ({ cluster }) => gpusRead(cluster), className: "num" },
    { id: "utilization", title: "Utilization", value: ({ summary }) => summary?.average_gpu_utilization_percent ?? null, cell: ({ summary }) => <MeanUtilization mean={summary?.average_gpu_utilization_percent ?? null} /> },
    { id: "temperature", title: "Temperature", value: ({ summary }) => summary?.average_temperature_celsius ?? null, cell: ({ summary }) => <Heat celsius={summary?.average_temperature_celsius ?? null} /> },
    { id: "memory", title: "Memory", value: ({ summary }) => summary?.used_memory_mb ?? null, cell: ({ summary }) => <MemoryUse used={summary?.used_memory_mb ?? null} total={summary?.total_memory_mb ?? null} /> },
    { id: "readings", title: "Readings", cell: (row) => <Ages {...row} />, className: "num whitespace-nowrap text-muted" },
  ],
};

/** The clusters in the order of the configuration; each is also the filter for its own. */
export function ClusterList({ clusters, ...rest }: Pick<ClusterRow, "state" | "at"> & { readonly clusters: readonly Cluster[] }) {
  // A cluster of which no GPU was read has no sums.
  const read = clusters.filter((cluster) => cluster.gpu_count > 0);
  const answers = useQueries({ queries: read.map((cluster) => summaryQuery(cluster.cluster_id)) });
  const summaries = new Map(read.map((cluster, place) => [cluster.cluster_id, answers[place]?.data]));
  return (
    <section aria-label="Clusters" className="mt-3">
      <List of={CLUSTER_LIST} rows={clusters.map((cluster) => ({ cluster, summary: summaries.get(cluster.cluster_id), ...rest }))} />
    </section>
  );
}

function State({ cluster }: { readonly cluster: Cluster }) {
  return (
    <span className="inline-flex flex-wrap items-center gap-x-2">
      <ClusterBadge state={cluster.state} />
      <Since since={cluster.since} />
    </span>
  );
}

function ClusterLink({ cluster, state }: ClusterRow) {
  const name = cluster.cluster_id;
  const chosen = state.cluster === name;
  return (
    <Link
      to={CLUSTERS.to({ ...state, cluster: chosen ? "" : name, node: "", page: 1 })}
      aria-current={chosen ? "true" : undefined}
      title={chosen ? "Show all clusters" : `Show ${name} only`}
      className="rounded break-words hover:underline"
    >
      {name}
    </Link>
  );
}

function nodesRead(cluster: Cluster): string {
  return cluster.node_count === null ? ABSENT : `${formatNumber(cluster.nodes.ok)} of ${formatNumber(cluster.node_count)}`;
}

/** Of a cluster whose nodes are not known, no GPUs is not a count. */
function gpusRead(cluster: Cluster): string {
  return cluster.node_count === null ? ABSENT : formatNumber(cluster.gpu_count);
}

/** Ages of its newest and oldest reading. */
function Ages({ cluster, at }: ClusterRow) {
  const now = useClock(SECOND);
  const { newest_reading_age_seconds: newest, oldest_reading_age_seconds: oldest } = cluster;
  if (newest === null || oldest === null) return ABSENT;
  const [from, to] = [newest, oldest].map((age) => formatSpan(ageNow(age, at, now)));
  return from === to ? `${from ?? ""} ago` : `${from ?? ""} – ${to ?? ""} ago`;
}

function hasTrouble(cluster: Cluster): boolean {
  return cluster.state !== "ok" || cluster.skips_tls_verify || cluster.missing.length > 0;
}

/** What is wrong with a cluster: its state in words, the danger it was told to accept, and the nodes that are missing. */
function Trouble({ cluster }: { readonly cluster: Cluster }) {
  const look = clusterLook(cluster.state);
  // The error of one that misses some nodes is theirs, and stands beside them.
  const says = cluster.state !== "ok" && cluster.state !== "degraded";
  const more = cluster.missing.length - NAMED_MAX;
  return (
    <ul className="space-y-0.5 text-[13px]">
      {says && (
        <li>
          <span className={look.colour}>{look.meaning}</span>
          {cluster.error !== null && <span className="[overflow-wrap:anywhere] text-muted">: {cluster.error}</span>}
        </li>
      )}
      {cluster.skips_tls_verify && (
        <li>
          <Unverified />
        </li>
      )}
      {cluster.missing.slice(0, NAMED_MAX).map((node) => (
        <Missing key={node.node_name} cluster={cluster.cluster_id} node={node} />
      ))}
      {more > 0 && <li className="text-muted">and {more} more, first in the list of nodes</li>}
    </ul>
  );
}

function Missing({ cluster, node }: { readonly cluster: string; readonly node: MissingNode }) {
  const look = nodeLook(node.state);
  return (
    <li>
      <Link to={NODE.to({ cluster, node: node.node_name })} className="rounded underline-offset-2 hover:underline">
        {node.node_name}
      </Link>{" "}
      <span className={look.colour}>{look.name}</span> <Since since={node.since} />
      {node.error !== null && <span className="[overflow-wrap:anywhere] text-muted">: {node.error}</span>}
      {node.stale && <span className="text-muted"> (its last reading is shown)</span>}
    </li>
  );
}
