import type { GpuProcess } from "../../api/clusters";
import type { ListOf } from "../../parts/columns";
import { Cut } from "../../parts/gpuLook";
import { highestFirst, lowestFirst } from "../../parts/order";
import { ABSENT, formatValue } from "../../shared/format";
import { Link } from "../../shared/location";
import { NODE } from "./address";

/** A process may use several GPUs, and has a row for each. */
export const PROCESS_LIST: ListOf<GpuProcess> = {
  label: "Processes on GPUs",
  unsorted: "By cluster and node",
  keyOf: (process) => [process.cluster_id, process.node_name, process.gpu_index, process.pid].join("/"),
  mark: ({ pid }) => ({ "data-pid": pid }),
  columns: [
    { id: "command", title: "Command", card: "name", sort: lowestFirst(({ command }) => command), cell: ({ command }) => <Cut text={command ?? ""} />, className: "font-medium", limit: "max-w-72" },
    { id: "pid", title: "PID", sort: lowestFirst(({ pid }) => pid), cell: ({ pid }) => pid, className: "num text-muted" },
    { id: "type", title: "Type", sort: lowestFirst((process) => process.process_type), cell: (process) => process.process_type, className: "num text-muted" },
    { id: "cluster", title: "Cluster", sort: lowestFirst((process) => process.cluster_id), cell: (process) => <Cut text={process.cluster_id} />, className: "num text-muted", limit: "max-w-40" },
    { id: "node", title: "Node", sort: lowestFirst((process) => process.node_name), cell: (process) => <NodeLink process={process} />, className: "num truncate", limit: "max-w-52" },
    { id: "gpu", title: "GPU", sort: lowestFirst((process) => process.gpu_index), cell: (process) => process.gpu_index ?? ABSENT, className: "num text-muted" },
    { id: "sm", title: "SM", sort: highestFirst(({ sm_utilization }) => sm_utilization), cell: ({ sm_utilization }) => formatValue(sm_utilization, "%"), className: "num" },
    { id: "memory_activity", title: "Memory activity", sort: highestFirst(({ memory_utilization }) => memory_utilization), cell: ({ memory_utilization }) => formatValue(memory_utilization, "%"), className: "num" },
    { id: "encoder", title: "Encoder", sort: highestFirst(({ encoder_utilization }) => encoder_utilization), cell: ({ encoder_utilization }) => formatValue(encoder_utilization, "%"), className: "num" },
    { id: "decoder", title: "Decoder", sort: highestFirst(({ decoder_utilization }) => decoder_utilization), cell: ({ decoder_utilization }) => formatValue(decoder_utilization, "%"), className: "num" },
    { id: "memory", title: "Memory", sort: highestFirst((process) => process.fb_memory_mb), cell: (process) => formatValue(process.fb_memory_mb, "MiB"), className: "num" },
  ],
};

/** The columns that say where a process runs. */
export const PROCESS_PLACE = ["cluster", "node"] as const;

function NodeLink({ process }: { readonly process: GpuProcess }) {
  return (
    <Link to={NODE.to({ cluster: process.cluster_id, node: process.node_name })} data-row="" className="rounded hover:underline" title={process.node_name}>
      {process.node_name}
    </Link>
  );
}
