import { useQueries } from "@tanstack/react-query";
import { summaryQuery, type Cluster, type ClusterSummary, type MissingNode } from "../../api/clusters";
import { ABSENT, formatNumber, formatValue, shareOf } from "../../shared/format";
import { Link } from "../../shared/location";
import { formatSpan } from "../../shared/time";
import { Heat, Level, MemoryUse, Named } from "../../parts/gpuLook";
import { CLUSTERS, NODE, type ClustersState } from "./address";
import { ageNow, ClusterBadge, clusterLook, nodeLook, Since, Unverified } from "./look";

/** As many missing nodes are named with their cluster; all of them stand first in the list of nodes. */
const NAMED_MAX = 3;

interface ClusterListProps {
  readonly clusters: readonly Cluster[];
  readonly state: ClustersState;
  readonly narrow: boolean;
  /** When the server told of the clusters. */
  readonly at: number;
  readonly now: number;
}

/** The clusters in the order of the configuration; each is also the filter for its own. */
export function ClusterList({ clusters, narrow, ...rest }: ClusterListProps) {
  // A cluster of which no GPU was read has no sums.
  const read = clusters.filter((cluster) => cluster.gpu_count > 0);
  const answers = useQueries({ queries: read.map((cluster) => summaryQuery(cluster.cluster_id)) });
  const summaries = new Map(read.map((cluster, place) => [cluster.cluster_id, answers[place]?.data]));
  const shown = clusters.map((cluster) => ({ cluster, summary: summaries.get(cluster.cluster_id), ...rest }));
  return (
    <section aria-label="Clusters" className="mt-3">
      {narrow ? (
        <ul className="space-y-2">
          {shown.map((each) => (
            <ClusterCard key={each.cluster.cluster_id} {...each} />
          ))}
        </ul>
      ) : (
        <div className="card overflow-x-auto">
          <table className="w-full min-w-[740px] text-[13px]">
            <caption className="sr-only">Clusters, and what of them is missing</caption>
            <thead>
              <tr className="border-b border-line text-left text-xs text-muted">
                {["Cluster", "State", "Nodes read", "GPUs", "Utilization", "Temperature", "Memory", "Readings"].map((title) => (
                  <th key={title} scope="col" className="px-2 py-2 font-medium whitespace-nowrap lg:px-3">
                    {title}
                  </th>
                ))}
              </tr>
            </thead>
            {shown.map((each) => (
              <ClusterRows key={each.cluster.cluster_id} {...each} />
            ))}
          </table>
        </div>
      )}
    </section>
  );
}

interface OneProps {
  readonly cluster: Cluster;
  readonly summary: ClusterSummary | undefined;
  readonly state: ClustersState;
  readonly at: number;
  readonly now: number;
}

function ClusterRows({ cluster, summary, state, at, now }: OneProps) {
  const chosen = state.cluster === cluster.cluster_id;
  return (
    <tbody className={`border-b border-line last:border-0 ${chosen ? "bg-raised" : ""}`} data-cluster={cluster.cluster_id}>
      <tr>
        <th scope="row" className="px-2 py-1.5 text-left font-medium lg:px-3">
          <ClusterLink cluster={cluster} state={state} />
        </th>
        <td className="px-2 py-1.5 lg:px-3">
          <span className="inline-flex flex-wrap items-center gap-x-2">
            <ClusterBadge state={cluster.state} />
            <Since since={cluster.since} now={now} />
          </span>
        </td>
        <td className="num px-2 py-1.5 lg:px-3">{nodesRead(cluster)}</td>
        <td className="num px-2 py-1.5 lg:px-3">{gpusRead(cluster)}</td>
        <td className="px-2 py-1.5 lg:px-3">
          <MeanUtilization summary={summary} />
        </td>
        <td className="px-2 py-1.5 lg:px-3">
          <Heat celsius={summary?.average_temperature_celsius ?? null} />
        </td>
        <td className="px-2 py-1.5 lg:px-3">
          <MemoryUse used={summary?.used_memory_mb ?? null} total={summary?.total_memory_mb ?? null} />
        </td>
        <td className="num px-2 py-1.5 whitespace-nowrap text-muted lg:px-3">{agesOf(cluster, at, now)}</td>
      </tr>
      {hasTrouble(cluster) && (
        <tr>
          <td colSpan={8} className="px-2 pb-2 lg:px-3">
            <Trouble cluster={cluster} now={now} />
          </td>
        </tr>
      )}
    </tbody>
  );
}

function ClusterCard({ cluster, summary, state, at, now }: OneProps) {
  const chosen = state.cluster === cluster.cluster_id;
  return (
    <li className={`card p-3 text-[13px] ${chosen ? "bg-raised!" : ""}`} data-cluster={cluster.cluster_id}>
      <div className="flex flex-wrap items-center gap-x-2 gap-y-1">
        <span className="mr-auto min-w-0 font-medium">
          <ClusterLink cluster={cluster} state={state} />
        </span>
        <ClusterBadge state={cluster.state} />
        <Since since={cluster.since} now={now} />
      </div>
      {cluster.node_count !== null && (
        <div className="num mt-2 grid grid-cols-2 gap-x-3 gap-y-2">
          <Named name="Nodes read">{nodesRead(cluster)}</Named>
          <Named name="GPUs">{gpusRead(cluster)}</Named>
          <Named name="Utilization">
            <MeanUtilization summary={summary} />
          </Named>
          <Named name="Temperature">
            <Heat celsius={summary?.average_temperature_celsius ?? null} />
          </Named>
          <Named name="Memory">
            <MemoryUse used={summary?.used_memory_mb ?? null} total={summary?.total_memory_mb ?? null} />
          </Named>
          <Named name="Readings">{agesOf(cluster, at, now)}</Named>
        </div>
      )}
      {hasTrouble(cluster) && (
        <div className="mt-2">
          <Trouble cluster={cluster} now={now} />
        </div>
      )}
    </li>
  );
}

function ClusterLink({ cluster, state }: { readonly cluster: Cluster; readonly state: ClustersState }) {
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

function MeanUtilization({ summary }: { readonly summary: ClusterSummary | undefined }) {
  const mean = summary?.average_gpu_utilization_percent ?? null;
  return <Level text={formatValue(mean, "%")} share={shareOf(mean, 100)} label="Mean utilization" />;
}

function nodesRead(cluster: Cluster): string {
  return cluster.node_count === null ? ABSENT : `${formatNumber(cluster.nodes.ok)} of ${formatNumber(cluster.node_count)}`;
}

/** Of a cluster whose nodes are not known, no GPUs is not a count. */
function gpusRead(cluster: Cluster): string {
  return cluster.node_count === null ? ABSENT : formatNumber(cluster.gpu_count);
}

/** Ages of its newest and oldest reading. */
function agesOf(cluster: Cluster, at: number, now: number): string {
  const { newest_reading_age_seconds: newest, oldest_reading_age_seconds: oldest } = cluster;
  if (newest === null || oldest === null) return ABSENT;
  const [from, to] = [newest, oldest].map((age) => formatSpan(ageNow(age, at, now)));
  return from === to ? `${from ?? ""} ago` : `${from ?? ""} – ${to ?? ""} ago`;
}

function hasTrouble(cluster: Cluster): boolean {
  return cluster.state !== "ok" || cluster.skips_tls_verify || cluster.missing.length > 0;
}

/** What is wrong with a cluster: its state in words, the danger it was told to accept, and the nodes that are missing. */
function Trouble({ cluster, now }: { readonly cluster: Cluster; readonly now: number }) {
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
        <Missing key={node.node_name} cluster={cluster.cluster_id} node={node} now={now} />
      ))}
      {more > 0 && <li className="text-muted">and {more} more, first in the list of nodes</li>}
    </ul>
  );
}

function Missing({ cluster, node, now }: { readonly cluster: string; readonly node: MissingNode; readonly now: number }) {
  const look = nodeLook(node.state);
  return (
    <li>
      <Link to={NODE.to({ cluster, node: node.node_name })} className="rounded underline-offset-2 hover:underline">
        {node.node_name}
      </Link>{" "}
      <span className={look.colour}>{look.name}</span> <Since since={node.since} now={now} />
      {node.error !== null && <span className="[overflow-wrap:anywhere] text-muted">: {node.error}</span>}
      {node.stale && <span className="text-muted"> (its last reading is shown)</span>}
    </li>
  );
}
