import type { NodeGpu } from "../../api/clusters";
import { GPU } from "../../parts/addresses";
import { List, type ListOf } from "../../parts/columns";
import { Amount, Heat, Level, MemoryUse } from "../../parts/gpuLook";
import { ABSENT, formatNumber, formatValue, shareOf, shortId } from "../../shared/format";
import { Link } from "../../shared/location";

interface NodeGpuRow {
  readonly gpu: NodeGpu;
  /** Whether it has a page of its own. */
  readonly known: boolean;
  readonly key: string;
}

const NODE_GPU_LIST: ListOf<NodeGpuRow> = {
  label: "GPUs of the node by its last good reading",
  keyOf: ({ key }) => key,
  mark: ({ gpu }) => (gpu.uuid === null ? {} : { "data-gpu": gpu.uuid }),
  pathOf: ({ gpu, known }) => (known && gpu.uuid !== null ? GPU.to({ id: gpu.uuid }) : null),
  columns: [
    { id: "index", title: "#", value: ({ gpu }) => gpu.index, spoken: "Index", card: "corner", cell: ({ gpu }) => gpu.index ?? ABSENT, className: "num text-muted" },
    { id: "gpu", title: "GPU", value: ({ gpu }) => gpu.uuid, card: "name", cell: (row) => <GpuName {...row} />, className: "font-normal", limit: "max-w-60" },
    {
      id: "utilization",
      title: "Utilization",
      cell: ({ gpu }) => <Level text={formatValue(gpu.utilization_gpu_percent, "%")} share={shareOf(gpu.utilization_gpu_percent, 100)} label="Utilization" />,
    },
    {
      id: "memory_activity",
      title: "Memory activity",
      cell: ({ gpu }) => <Level text={formatValue(gpu.utilization_memory_percent, "%")} share={shareOf(gpu.utilization_memory_percent, 100)} label="Memory activity" />,
    },
    { id: "memory", title: "Memory", value: ({ gpu }) => gpu.memory_used_mb, cell: ({ gpu }) => <MemoryUse used={gpu.memory_used_mb} total={gpu.memory_total_mb} /> },
    { id: "temperature", title: "Temperature", value: ({ gpu }) => gpu.temperature_celsius, cell: ({ gpu }) => <Heat celsius={gpu.temperature_celsius} /> },
    { id: "power", title: "Power", value: ({ gpu }) => gpu.power_draw_watts, cell: ({ gpu }) => <Amount value={gpu.power_draw_watts} whole={gpu.power_limit_watts} unit="W" label="Power as a share of its limit" /> },
    { id: "pcie", title: "PCIe", value: ({ gpu }) => pcieText(gpu), cell: ({ gpu }) => pcieText(gpu), className: "num whitespace-nowrap" },
    { id: "fan", title: "Fan", value: ({ gpu }) => gpu.fan_speed_percent, cell: ({ gpu }) => formatValue(gpu.fan_speed_percent, "%"), className: "num" },
  ],
};

interface NodeGpusProps {
  readonly gpus: readonly NodeGpu[];
  /** Ids of the GPUs that have a page of their own. */
  readonly recorded: readonly string[];
}

/** The GPUs of a node by its last good reading. */
export function NodeGpus({ gpus, recorded }: NodeGpusProps) {
  const known = new Set(recorded);
  return (
    <section aria-label="GPUs">
      <h2 className="mb-2 text-[13px] font-semibold">GPUs</h2>
      <List of={NODE_GPU_LIST} rows={gpus.map((gpu, place) => ({ gpu, known: gpu.uuid !== null && known.has(gpu.uuid), key: gpu.uuid ?? String(place) }))} />
    </section>
  );
}

/** Model and id; the way to the GPU's own page where history has it. */
function GpuName({ gpu, known }: NodeGpuRow) {
  const name = gpu.name ?? "model unknown";
  const id = <span className="block truncate font-mono text-[11px] text-faint">{gpu.uuid === null ? "no uuid" : shortId(gpu.uuid)}</span>;
  if (!known || gpu.uuid === null) {
    return (
      <span title={gpu.uuid ?? undefined}>
        <span className="block truncate font-medium">{name}</span>
        {id}
      </span>
    );
  }
  return (
    <Link to={GPU.to({ id: gpu.uuid })} data-row="" className="group block rounded" title={`${gpu.uuid}: its page, with history`}>
      <span className="block truncate font-medium group-hover:underline">{name}</span>
      {id}
    </Link>
  );
}

/** Generation and lanes as they are now: an idle link falls back. */
export function pcieText({ pcie_generation: generation, pcie_link_width: lanes }: NodeGpu): string {
  const parts = [generation === null ? "" : `Gen ${formatNumber(generation)}`, lanes === null ? "" : `×${formatNumber(lanes)}`].filter((part) => part !== "");
  return parts.length === 0 ? ABSENT : parts.join(" ");
}
