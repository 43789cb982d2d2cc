import type { JobUse } from "../../api/usage";
import { whereIs } from "../../api/where";
import { FLEET } from "../../parts/addresses";

/** What one job or pod used; null: not known. */
export interface HolderRow {
  readonly holder: string;
  readonly cluster: string | null;
  readonly isRunning: boolean;
  readonly isSimulated: boolean;
  readonly gpus: number;
  readonly hosts: readonly string[];
  readonly held: number;
  readonly busy: number | null;
  readonly wasted: number | null;
  readonly shared: number;
  readonly energyKwh: number | null;
  /** Of the wasted hours. */
  readonly cost: number | null;
  /** Where the GPUs are that it has now; null: nothing tells them from others, as those of a user. */
  readonly path: string | null;
}

/** Each holder, with the cost of what it wasted: at the price that is typed, or else that of the server. */
export function holdersOf(jobs: readonly JobUse[], price: number | null): HolderRow[] {
  return jobs.map((job) => ({
    holder: job.holder ?? "",
    cluster: job.cluster,
    isRunning: job.running === true,
    isSimulated: job.simulated === true,
    gpus: job.gpus,
    hosts: job.hosts,
    held: job.held_gpu_hours,
    busy: job.busy_gpu_hours,
    wasted: job.wasted_gpu_hours,
    shared: job.shared_gpu_hours,
    energyKwh: job.energy_kwh,
    cost: costOf(job, price),
    path: pathOf(job),
  }));
}

/** What the wasted hours cost; null: not known. */
export function costOf({ wasted_gpu_hours: wasted, wasted_cost: told }: Pick<JobUse, "wasted_gpu_hours" | "wasted_cost">, price: number | null): number | null {
  if (price === null) return told ?? null;
  return wasted === null ? null : price * wasted;
}

/** The GPUs whose identity names the pod or the job. */
function pathOf({ cluster, namespace, pod, job }: JobUse): string | null {
  if (pod === null && job === null) return null;
  const names = pod === null ? { cluster, job } : { cluster, namespace, pod };
  const known = Object.entries(names).flatMap(([column, text]) => (text === null ? [] : [whereIs(column, text)]));
  return FLEET.to({ where: known.join(";") });
}
