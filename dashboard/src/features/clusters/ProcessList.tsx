import type { GpuProcess } from "../../api/clusters";
import { ABSENT, formatValue } from "../../shared/format";
import { Link } from "../../shared/location";
import { HeaderCell, type Header } from "../../parts/list";
import { NODE, type ProcessColumn } from "./address";

interface ProcessListProps {
  readonly processes: readonly GpuProcess[];
  readonly sort: string;
  readonly onSort: (sort: string) => void;
  readonly narrow: boolean;
  /** Whether they are of one node, which need not be named. */
  readonly ofNode: boolean;
  readonly dim: boolean;
}

function header(column: ProcessColumn, title: string, highestFirst = false): Header {
  return { column, title, highestFirst, className: "" };
}

const HEADERS: readonly Header[] = [
  header("command", "Command"),
  header("pid", "PID"),
  header("type", "Type"),
  header("cluster", "Cluster"),
  header("node", "Node"),
  header("gpu", "GPU"),
  header("sm", "SM", true),
  header("memory_activity", "Memory activity", true),
  header("encoder", "Encoder", true),
  header("decoder", "Decoder", true),
  header("memory", "Memory", true),
];
const OF_PLACE = new Set(["cluster", "node"]);

export function ProcessList({ processes, sort, onSort, narrow, ofNode, dim }: ProcessListProps) {
  const look = `transition-opacity ${dim ? "opacity-60" : ""}`;
  if (narrow) {
    return (
      <ul className={`space-y-2 ${look}`} aria-label="Processes on GPUs">
        {processes.map((process) => (
          <ProcessCard key={keyOf(process)} process={process} ofNode={ofNode} />
        ))}
      </ul>
    );
  }
  return (
    <div className={`card overflow-x-auto ${look}`}>
      <table className="w-full min-w-[740px] text-[13px]">
        <caption className="sr-only">Processes on GPUs</caption>
        <thead>
          <tr className="border-b border-line text-xs text-muted">
            {HEADERS.filter((each) => !ofNode || !OF_PLACE.has(each.column)).map((each) => (
              <HeaderCell key={each.column} header={each} sort={sort} onSort={onSort} />
            ))}
          </tr>
        </thead>
        <tbody>
          {processes.map((process) => (
            <ProcessRow key={keyOf(process)} process={process} ofNode={ofNode} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** A process may use several GPUs, and has a row for each. */
function keyOf(process: GpuProcess): string {
  return [process.cluster_id, process.node_name, process.gpu_index, process.pid].join("/");
}

interface ProcessProps {
  readonly process: GpuProcess;
  readonly ofNode: boolean;
}

const CELL = "num px-2 py-1.5 lg:px-3";

function ProcessRow({ process, ofNode }: ProcessProps) {
  return (
    <tr className="border-b border-line last:border-0 focus-within:bg-raised hover:bg-raised/60" data-pid={process.pid}>
      <th scope="row" className="max-w-72 truncate px-2 py-1.5 text-left font-medium lg:px-3" title={process.command ?? undefined}>
        {process.command ?? ABSENT}
      </th>
      <td className={`${CELL} text-muted`}>{process.pid}</td>
      <td className={`${CELL} text-muted`}>{process.process_type}</td>
      {!ofNode && (
        <>
          <td className={`${CELL} max-w-40 truncate text-muted`} title={process.cluster_id}>
            {process.cluster_id}
          </td>
          <td className={`${CELL} max-w-52 truncate`}>
            <NodeLink process={process} />
          </td>
        </>
      )}
      <td className={`${CELL} text-muted`}>{process.gpu_index ?? ABSENT}</td>
      <td className={CELL}>{formatValue(process.sm_utilization, "%")}</td>
      <td className={CELL}>{formatValue(process.memory_utilization, "%")}</td>
      <td className={CELL}>{formatValue(process.encoder_utilization, "%")}</td>
      <td className={CELL}>{formatValue(process.decoder_utilization, "%")}</td>
      <td className={CELL}>{formatValue(process.fb_memory_mb, "MiB")}</td>
    </tr>
  );
}

function ProcessCard({ process, ofNode }: ProcessProps) {
  const shares = [
    ["SM", process.sm_utilization],
    ["Memory activity", process.memory_utilization],
    ["Encoder", process.encoder_utilization],
    ["Decoder", process.decoder_utilization],
  ] as const;
  return (
    <li className="card p-3 text-[13px]" data-pid={process.pid}>
      <div className="flex items-baseline gap-2">
        <span className="min-w-0 flex-1 truncate font-medium">{process.command ?? ABSENT}</span>
        <span className="num">{formatValue(process.fb_memory_mb, "MiB")}</span>
      </div>
      <p className="num text-xs text-muted">
        PID {process.pid} · {process.process_type} · GPU {process.gpu_index ?? ABSENT}
        {!ofNode && (
          <>
            {" · "}
            <NodeLink process={process} /> · {process.cluster_id}
          </>
        )}
      </p>
      <dl className="num mt-2 grid grid-cols-2 gap-x-3 gap-y-1">
        {shares.map(([name, share]) => (
          <div key={name} className="flex justify-between gap-2">
            <dt className="text-muted">{name}</dt>
            <dd>{formatValue(share, "%")}</dd>
          </div>
        ))}
      </dl>
    </li>
  );
}

function NodeLink({ process }: { readonly process: GpuProcess }) {
  return (
    <Link to={NODE.to({ cluster: process.cluster_id, node: process.node_name })} data-row="" className="rounded hover:underline" title={process.node_name}>
      {process.node_name}
    </Link>
  );
}
