import type { ClusterNode } from "../../api/clusters";
import { ABSENT, formatNumber, formatValue, shareOf } from "../../shared/format";
import { Link } from "../../shared/location";
import { Heat, Level, MemoryUse, Named } from "../../parts/gpuLook";
import { HeaderCell, OpeningRow, type Header } from "../../parts/list";
import { NODE, type NodeColumn } from "./address";
import { Age, NodeBadge, Since } from "./look";
import { labelsInOrder, modelsOf, type NodeRow } from "./rows";

interface NodeListProps {
  readonly rows: readonly NodeRow[];
  readonly sort: string;
  readonly onSort: (sort: string) => void;
  readonly narrow: boolean;
  /** When the server told of the nodes. */
  readonly at: number;
  readonly now: number;
  /** What is shown is of another cluster until this one's has come. */
  readonly dim: boolean;
}

function header(column: NodeColumn, title: string, highestFirst: boolean, className = ""): Header {
  return { column, title, highestFirst, className };
}

const HEADERS: readonly Header[] = [
  header("node", "Node", false),
  header("cluster", "Cluster", false),
  header("state", "State", false, "lg:w-64"),
  header("gpus", "GPUs", true),
  header("utilization", "Utilization", true, "lg:w-28"),
  header("temperature", "Hottest", true, "lg:w-28"),
  header("memory", "Memory", true, "lg:w-40"),
  header("age", "Read", false, "lg:w-32"),
];

export function NodeList({ rows, sort, onSort, narrow, at, now, dim }: NodeListProps) {
  const look = `transition-opacity ${dim ? "opacity-60" : ""}`;
  if (narrow) {
    return (
      <ul className={`space-y-2 ${look}`} aria-label="GPU nodes">
        {rows.map((row) => (
          <NodeCard key={`${row.node.cluster_id}/${row.node.node_name}`} row={row} at={at} now={now} />
        ))}
      </ul>
    );
  }
  return (
    <div className={`card overflow-x-auto ${look}`}>
      <table className="w-full min-w-[740px] text-[13px]">
        <caption className="sr-only">GPU nodes</caption>
        <thead>
          <tr className="border-b border-line text-xs text-muted">
            {HEADERS.map((each) => (
              <HeaderCell key={each.column} header={each} sort={sort} onSort={onSort} />
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <NodeTableRow key={`${row.node.cluster_id}/${row.node.node_name}`} row={row} at={at} now={now} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface NodeProps {
  readonly row: NodeRow;
  readonly at: number;
  readonly now: number;
}

function NodeTableRow({ row: { node, load }, at, now }: NodeProps) {
  const path = NODE.to({ cluster: node.cluster_id, node: node.node_name });
  return (
    <OpeningRow to={path} data-node={node.node_name}>
      <th scope="row" className="max-w-72 px-2 py-1.5 text-left font-normal max-lg:max-w-32 lg:px-3">
        <Link to={path} data-row="" className="group block rounded">
          <span className="block truncate font-medium group-hover:underline">{node.node_name}</span>
        </Link>
        <Labels node={node} />
      </th>
      <td className="max-w-40 truncate px-2 py-1.5 text-muted lg:px-3" title={node.cluster_id}>
        {node.cluster_id}
      </td>
      <td className="max-w-72 px-2 py-1.5 lg:px-3">
        <State node={node} now={now} />
      </td>
      <td className="max-w-52 px-2 py-1.5 max-lg:max-w-24 lg:px-3">
        <Gpus node={node} />
      </td>
      <td className="px-2 py-1.5 lg:px-3">
        <MeanUtilization mean={load.utilization} />
      </td>
      <td className="px-2 py-1.5 lg:px-3">
        <Heat celsius={load.temperature} />
      </td>
      <td className="px-2 py-1.5 lg:px-3">
        <MemoryUse {...load.memory} />
      </td>
      <td className="px-2 py-1.5 lg:px-3">
        <Age seconds={node.age_seconds} at={at} now={now} stale={node.stale} />
      </td>
    </OpeningRow>
  );
}

function NodeCard({ row: { node, load }, at, now }: NodeProps) {
  return (
    <li className="card relative p-3 text-[13px] focus-within:bg-raised" data-node={node.node_name}>
      <Link
        to={NODE.to({ cluster: node.cluster_id, node: node.node_name })}
        data-row=""
        className="block truncate font-medium after:absolute after:inset-0 after:rounded-lg"
      >
        {node.node_name}
        <span className="font-normal text-muted"> · {node.cluster_id}</span>
      </Link>
      <Labels node={node} />
      <div className="mt-1.5">
        <State node={node} now={now} />
      </div>
      <div className="mt-2 grid grid-cols-2 gap-x-3 gap-y-2">
        <Named name="GPUs">
          <Gpus node={node} />
        </Named>
        <Named name="Read">
          <Age seconds={node.age_seconds} at={at} now={now} stale={node.stale} />
        </Named>
        {node.gpus.length > 0 && (
          <>
            <Named name="Utilization">
              <MeanUtilization mean={load.utilization} />
            </Named>
            <Named name="Hottest">
              <Heat celsius={load.temperature} />
            </Named>
            <Named name="Memory">
              <MemoryUse {...load.memory} />
            </Named>
          </>
        )}
      </div>
    </li>
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

function State({ node, now }: { readonly node: ClusterNode; readonly now: number }) {
  return (
    <>
      <span className="inline-flex flex-wrap items-center gap-x-2">
        <NodeBadge state={node.state} />
        {node.state !== "ok" && <Since since={node.since} now={now} />}
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

function MeanUtilization({ mean }: { readonly mean: number | null }) {
  return <Level text={formatValue(mean, "%")} share={shareOf(mean, 100)} label="Mean utilization" />;
}
