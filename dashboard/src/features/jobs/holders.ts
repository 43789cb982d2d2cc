import type { JobAsk, JobList, JobUse, Ledger } from "../../api/usage";
import { isOver, jobPath, toldOf, whereOf } from "../../parts/jobs";

/** What one job or pod used, or one user; null: not known. */
export interface HolderRow {
  readonly holder: string;
  /** What the batch system told of it; null: nothing. */
  readonly about: JobUse["about"] | null;
  /** The same in words. */
  readonly told: readonly string[];
  /** By which advice is asked for; null: there is none before a job is over. */
  readonly advice: JobAsk | null;
  readonly cluster: string | null;
  readonly isRunning: boolean;
  readonly isSimulated: boolean;
  readonly gpus: number;
  readonly hosts: readonly string[];
  readonly held: number;
  readonly busy: number | null;
  readonly wasted: number | null;
  /** The part of the wasted hours in which the GPUs did nothing. */
  readonly idle: number | null;
  readonly shared: number;
  readonly energyKwh: number | null;
  /** Of the wasted hours. */
  readonly cost: number | null;
  /** Tests of the identity that the GPUs pass that it has now; null: nothing tells them from others, as those of a user. */
  readonly where: string | null;
  /** Its page; null: it has none, as a user. */
  readonly page: string | null;
}

/** Whose user nobody told. */
const UNTOLD = "user not told";

/** Each holder or user, with the cost of what it wasted: at the price that is typed, or else that of the server. */
export function holdersOf({ jobs, start, end }: Pick<JobList, "jobs" | "start" | "end">, by: Ledger, price: number | null): HolderRow[] {
  return jobs.map((job) => ({
    holder: by === "holder" ? (job.holder ?? "") : (job.group ?? UNTOLD),
    about: job.about ?? null,
    told: by === "holder" ? toldOf(job) : [],
    advice: by === "holder" && isOver(job.about?.state) ? { holder: job.holder ?? "", cluster: job.cluster, start, end } : null,
    cluster: job.cluster,
    isRunning: job.running === true,
    isSimulated: job.simulated === true,
    gpus: job.gpus,
    hosts: job.hosts,
    held: job.held_gpu_hours,
    busy: job.busy_gpu_hours,
    wasted: job.wasted_gpu_hours,
    idle: job.idle_gpu_hours,
    shared: job.shared_gpu_hours,
    energyKwh: job.energy_kwh,
    cost: costOf(job, price),
    where: by === "holder" ? whereOf(job) : null,
    page: by === "holder" ? jobPath(job, { start, end }) : null,
  }));
}

/** What the wasted hours cost; null: not known. */
export function costOf({ wasted_gpu_hours: wasted, wasted_cost: told }: Pick<JobUse, "wasted_gpu_hours" | "wasted_cost">, price: number | null): number | null {
  if (price === null) return told ?? null;
  return wasted === null ? null : price * wasted;
}
