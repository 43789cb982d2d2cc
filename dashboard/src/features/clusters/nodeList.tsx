import type { ClusterNode } from "../../api/clusters";
import type { ListOf } from "../../parts/columns";
import { Cut, Heat, MeanUtilization, MemoryUse } from "../../parts/gpuLook";
import { highestFirst, lowestFirst } from "../../parts/order";
import { ABSENT, formatNumber } from "../../shared/format";
import { Link } from "../../shared/location";
import { NODE } from "./address";
import { Age, NodeBadge, Since } from "./look";
import { labelsInOrder, modelsOf, severity, type NodeRow } from "./rows";

export const NODE_LIST: ListOf<NodeRow> = {
  label: "GPU nodes",
  unsorted: "The sick first",
  keyOf: ({ node }) => `${node.cluster_id}/${node.node_name}`,
  mark: ({ node }) => ({ "data-node": node.node_name }),
  pathOf: pathOfNode,
  columns: [
    { id: "node", title: "Node", card: "name", sort: lowestFirst(({ node }) => node.node_name), cell: (row) => <Name row={row} />, className: "font-normal", limit: "max-w-72 max-lg:max-w-32" },
    { id: "cluster", title: "Cluster", sort: lowestFirst(({ node }) => node.cluster_id), cell: ({ node }) => <Cut text={node.cluster_id} />, className: "text-muted", limit: "max-w-40" },
    { id: "state", title: "State", card: "line", sort: lowestFirst(({ node }) => severity(node.state)), value: ({ node }) => node.state, cell: ({ node }) => <State node={node} />, limit: "max-w-72", width: "lg:w-64" },
    {
      id: "gpus",
      title: "GPUs",
      sort: highestFirst(({ node }) => Math.max(node.gpu_count, node.gpus_announced ?? 0)),
      cell: ({ node }) => <Gpus node={node} />,
      limit: "max-w-52 max-lg:max-w-24",
    },
    { id: "utilization", title: "Utilization", sort: highestFirst(({ load }) => load.utilization), cell: ({ load }) => <MeanUtilization mean={load.utilization} />, width: "lg:w-28" },
    { id: "temperature", title: "Hottest", sort: highestFirst(({ load }) => load.temperature), cell: ({ load }) => <Heat celsius={load.temperature} />, width: "lg:w-28" },
    { id: "memory", title: "Memory", sort: highestFirst(({ load }) => load.memory.used), cell: ({ load }) => <MemoryUse {...load.memory} />, width: "lg:w-40" },
    {
      id: "age",
      title: "Read",
      sort: lowestFirst(({ node }) => node.age_seconds),
      cell: ({ node, at }) => <Age seconds={node.age_seconds} at={at} stale={node.stale} />,
      width: "lg:w-32",
    },
  ],
};

function pathOfNode({ node }: NodeRow): string {
  return NODE.to({ cluster: node.cluster_id, node: node.node_name });
}

function Name({ row }: { readonly row: NodeRow }) {
  return (
    <>
      <Link to={pathOfNode(row)} data-row="" className="group block rounded">
        <span className="block truncate font-medium group-hover:underline">{row.node.node_name}</span>
      </Link>
      <Labels node={row.node} />
    </>
  );
}

function Labels({ node }: { readonly node: ClusterNode }) {
  // The node's own name stands above.
  const told = labelsInOrder(node.labels).filter(([, value]) => value !== node.node_name);
  const labels = told.map(([name, value]) => `${name}=${value}`);
  if (labels.length === 0) return null;
  return (
    <span className="block truncate text-[11px] text-faint" title={labels.join("\n")}>
      {labels.join("  ")}
    </span>
  );
}

function State({ node }: { readonly node: ClusterNode }) {
  return (
    <>
      <span className="inline-flex flex-wrap items-center gap-x-2">
        <NodeBadge state={node.state} />
        {node.state !== "ok" && <Since since={node.since} />}
      </span>
      {node.error !== null && (
        <span className="mt-0.5 line-clamp-3 text-xs [overflow-wrap:anywhere] text-muted" title={node.error}>
          {node.error}
        </span>
      )}
    </>
  );
}

/** How many GPUs it has, how many of them were read where that is another number, and which model. */
export function gpusText(node: ClusterNode): string {
  const { gpu_count: read, gpus_announced: announced } = node;
  if (announced === null || announced <= read) return read === 0 ? ABSENT : formatNumber(read);
  return read > 0 ? `${formatNumber(read)} of ${formatNumber(announced)}` : formatNumber(announced);
}

function Gpus({ node }: { readonly node: ClusterNode }) {
  const models = modelsOf(node.gpus).join(", ");
  return (
    <span className="num block truncate" title={models === "" ? undefined : models}>
      {gpusText(node)}
      <span className="text-muted"> {models === "" ? node.vendor.toUpperCase() : models}</span>
    </span>
  );
}
