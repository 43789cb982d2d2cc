import type { JobDetail } from "../../api/usage";
import { GPU, HOST } from "../../parts/addresses";
import type { ListOf } from "../../parts/columns";
import { hours, kwh } from "../../parts/energy";
import { ABSENT, formatNumber, formatValue } from "../../shared/format";
import { Link } from "../../shared/location";
import { formatInstant, parseInstant } from "../../shared/time";

export type JobGpu = JobDetail["gpus"][number];
type JobStep = NonNullable<JobDetail["steps"]>[number];

/** What people call a GPU of a job. */
export function gpuName({ gpu, hostname, index }: JobGpu): string {
  return hostname === null || index === null ? gpu : `${hostname} / GPU ${index}`;
}

/** What a job used of each of its GPUs. */
export const JOB_GPUS: ListOf<JobGpu> = {
  label: "What the job used of each GPU",
  keyOf: ({ gpu }) => gpu,
  mark: ({ gpu }) => ({ "data-gpu": gpu }),
  pathOf: ({ gpu }) => GPU.to({ id: gpu }),
  columns: [
    {
      id: "gpu",
      title: "GPU",
      value: gpuName,
      card: "name",
      cell: (row) => (
        <Link to={GPU.to({ id: row.gpu })} data-row="" className="rounded hover:underline" title={row.gpu}>
          {gpuName(row)}
        </Link>
      ),
      className: "font-medium",
      limit: "max-w-72",
    },
    { id: "held", title: "Held", value: ({ held_gpu_hours: held }) => held, cell: ({ held_gpu_hours: held }) => hours(held), className: "num" },
    { id: "busy", title: "Busy", value: ({ busy_gpu_hours: busy }) => busy, cell: ({ busy_gpu_hours: busy }) => hours(busy), className: "num" },
    { id: "wasted", title: "Wasted", value: ({ wasted_gpu_hours: wasted }) => wasted, cell: ({ wasted_gpu_hours: wasted }) => hours(wasted), className: "num" },
    { id: "idle", title: "Never used", value: ({ idle_gpu_hours: idle }) => idle, cell: ({ idle_gpu_hours: idle }) => hours(idle), className: "num" },
    { id: "energy", title: "Energy", value: ({ energy_kwh: energy }) => energy, cell: ({ energy_kwh: energy }) => kwh(energy), className: "num" },
    { id: "power", title: "Highest power", value: ({ power_max_w: power }) => power, cell: ({ power_max_w: power }) => formatValue(power, "W"), className: "num" },
    { id: "temperature", title: "Hottest", value: ({ temperature_max_c: heat }) => heat, cell: ({ temperature_max_c: heat }) => formatValue(heat, "°C"), className: "num" },
    { id: "memory", title: "Most memory", value: ({ memory_max_mb: memory }) => memory, cell: ({ memory_max_mb: memory }) => formatValue(memory, "MiB"), className: "num" },
  ],
};

/** The steps of a Slurm job. Instants have their date: a job may be long over. */
export const JOB_STEPS: ListOf<JobStep> = {
  label: "Steps of the job",
  keyOf: ({ step }) => step,
  mark: ({ step }) => ({ "data-step": step }),
  columns: [
    { id: "step", title: "Step", value: ({ step }) => step, card: "name", cell: ({ step }) => step, className: "font-medium" },
    { id: "gpus", title: "GPUs", value: ({ gpus }) => gpus, cell: ({ gpus }) => (gpus === null ? ABSENT : formatNumber(gpus)), className: "num" },
    { id: "held", title: "Held", value: ({ used }) => used?.held_gpu_hours ?? null, cell: ({ used }) => hours(used?.held_gpu_hours ?? null), className: "num" },
    { id: "busy", title: "Busy", value: ({ used }) => used?.busy_gpu_hours ?? null, cell: ({ used }) => hours(used?.busy_gpu_hours ?? null), className: "num" },
    { id: "energy", title: "Energy", value: ({ used }) => used?.energy_kwh ?? null, cell: ({ used }) => kwh(used?.energy_kwh ?? null), className: "num" },
    { id: "start", title: "Began", value: ({ start }) => start, cell: ({ start }) => instantOf(start), className: "num" },
    { id: "end", title: "Ended", value: ({ end }) => end, cell: ({ end, state }) => (end === null ? (state ?? ABSENT) : instantOf(end)), className: "num" },
    {
      id: "hosts",
      title: "Hosts",
      value: ({ hosts }) => hosts.join(" "),
      cell: ({ hosts }) => (
        <span className="[overflow-wrap:anywhere]">
          {hosts.map((name) => (
            <Link key={name} to={HOST.to({ name })} className="mr-1.5 rounded hover:underline">
              {name}
            </Link>
          ))}
        </span>
      ),
    },
  ],
};

/** With its date, whatever day is today. */
function instantOf(text: string | null): string {
  const instant = parseInstant(text);
  return instant === null ? ABSENT : formatInstant(instant, 0);
}
