import type { NodeGpu } from "../../api/clusters";
import { ABSENT, formatNumber, formatValue, shareOf, shortId } from "../../shared/format";
import { GPU } from "../../parts/addresses";
import { Link } from "../../shared/location";
import { Amount, Heat, Level, MemoryUse, Named } from "../../parts/gpuLook";
import { OpeningRow } from "../../parts/list";

interface NodeGpusProps {
  readonly gpus: readonly NodeGpu[];
  /** Ids of the GPUs that have a page of their own. */
  readonly recorded: readonly string[];
  readonly narrow: boolean;
}

/** The GPUs of a node by its last good reading. */
export function NodeGpus({ gpus, recorded, narrow }: NodeGpusProps) {
  const known = new Set(recorded);
  const shown = gpus.map((gpu, place) => ({ gpu, known: gpu.uuid !== null && known.has(gpu.uuid), key: gpu.uuid ?? String(place) }));
  return (
    <section aria-label="GPUs">
      <h2 className="mb-2 text-[13px] font-semibold">GPUs</h2>
      {narrow ? (
        <ul className="space-y-2">
          {shown.map(({ key, ...each }) => (
            <GpuCard key={key} {...each} />
          ))}
        </ul>
      ) : (
        <div className="card overflow-x-auto">
          <table className="w-full min-w-[740px] text-[13px]">
            <caption className="sr-only">GPUs of the node by its last good reading</caption>
            <thead>
              <tr className="border-b border-line text-left text-xs text-muted">
                {["#", "GPU", "Utilization", "Memory activity", "Memory", "Temperature", "Power", "PCIe", "Fan"].map((title) => (
                  <th key={title} scope="col" className="px-2 py-2 font-medium whitespace-nowrap lg:px-3">
                    {title === "#" ? <abbr title="Index" className="no-underline">#</abbr> : title}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {shown.map(({ key, ...each }) => (
                <GpuRow key={key} {...each} />
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

interface GpuProps {
  readonly gpu: NodeGpu;
  readonly known: boolean;
}

function GpuRow({ gpu, known }: GpuProps) {
  const cells = (
    <>
      <td className="num px-2 py-1.5 text-muted lg:px-3">{gpu.index ?? ABSENT}</td>
      <th scope="row" className="max-w-60 px-2 py-1.5 text-left font-normal lg:px-3">
        <GpuName gpu={gpu} known={known} />
      </th>
      <td className="px-2 py-1.5 lg:px-3">
        <Utilization gpu={gpu} />
      </td>
      <td className="px-2 py-1.5 lg:px-3">
        <Level text={formatValue(gpu.utilization_memory_percent, "%")} share={shareOf(gpu.utilization_memory_percent, 100)} label="Memory activity" />
      </td>
      <td className="px-2 py-1.5 lg:px-3">
        <MemoryUse used={gpu.memory_used_mb} total={gpu.memory_total_mb} />
      </td>
      <td className="px-2 py-1.5 lg:px-3">
        <Heat celsius={gpu.temperature_celsius} />
      </td>
      <td className="px-2 py-1.5 lg:px-3">
        <Power gpu={gpu} />
      </td>
      <td className="num px-2 py-1.5 whitespace-nowrap lg:px-3">{pcieText(gpu)}</td>
      <td className="num px-2 py-1.5 lg:px-3">{formatValue(gpu.fan_speed_percent, "%")}</td>
    </>
  );
  if (known && gpu.uuid !== null) {
    return (
      <OpeningRow to={GPU.to({ id: gpu.uuid })} data-gpu={gpu.uuid}>
        {cells}
      </OpeningRow>
    );
  }
  return (
    <tr className="border-b border-line last:border-0" data-gpu={gpu.uuid}>
      {cells}
    </tr>
  );
}

function GpuCard({ gpu, known }: GpuProps) {
  return (
    <li className="card p-3 text-[13px]" data-gpu={gpu.uuid}>
      <div className="flex items-start gap-2">
        <span className="num text-muted">#{gpu.index ?? ABSENT}</span>
        <div className="min-w-0 flex-1">
          <GpuName gpu={gpu} known={known} />
        </div>
      </div>
      <div className="mt-2 grid grid-cols-2 gap-x-3 gap-y-2">
        <Named name="Utilization">
          <Utilization gpu={gpu} />
        </Named>
        <Named name="Temperature">
          <Heat celsius={gpu.temperature_celsius} />
        </Named>
        <Named name="Memory">
          <MemoryUse used={gpu.memory_used_mb} total={gpu.memory_total_mb} />
        </Named>
        <Named name="Power">
          <Power gpu={gpu} />
        </Named>
      </div>
      <p className="num mt-2 text-xs text-muted">
        Memory activity {formatValue(gpu.utilization_memory_percent, "%")} · PCIe {pcieText(gpu)} · Fan {formatValue(gpu.fan_speed_percent, "%")}
      </p>
    </li>
  );
}

/** Model and id; the way to the GPU's own page where history has it. */
function GpuName({ gpu, known }: GpuProps) {
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

function Utilization({ gpu }: { readonly gpu: NodeGpu }) {
  return <Level text={formatValue(gpu.utilization_gpu_percent, "%")} share={shareOf(gpu.utilization_gpu_percent, 100)} label="Utilization" />;
}

function Power({ gpu }: { readonly gpu: NodeGpu }) {
  return <Amount value={gpu.power_draw_watts} whole={gpu.power_limit_watts} unit="W" label="Power as a share of its limit" />;
}

/** Generation and lanes as they are now: an idle link falls back. */
export function pcieText({ pcie_generation: generation, pcie_link_width: lanes }: NodeGpu): string {
  const parts = [generation === null ? "" : `Gen ${formatNumber(generation)}`, lanes === null ? "" : `×${formatNumber(lanes)}`].filter((part) => part !== "");
  return parts.length === 0 ? ABSENT : parts.join(" ");
}
