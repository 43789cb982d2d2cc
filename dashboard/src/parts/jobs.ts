import type { JobUse } from "../api/usage";
import { whereIs } from "../api/where";
import { parseInstant } from "../shared/time";
import { JOB } from "./addresses";

/** Name, user, account, queue and labels of a job, and how it ended, as far as the batch system told. */
export function toldOf({ about }: Pick<JobUse, "about">): string[] {
  if (about === undefined) return [];
  const { name, user, account, queue, state, exit_code: code, labels = {} } = about;
  const hasCode = (state === "ended" || state === "failed") && code !== null;
  const end = hasCode ? `${state} with ${code}` : (state?.replaceAll("_", " ") ?? null);
  const chosen = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
  return [name, user, account, queue, ...chosen, end].filter((part) => part !== null);
}

/** That the identity names the pod or the job; null: nothing tells its GPUs from others, as those of a user. */
export function whereOf({ cluster, namespace, pod, job }: Pick<JobUse, "cluster" | "namespace" | "pod" | "job">): string | null {
  if (pod === null && job === null) return null;
  const names = pod === null ? { cluster, job } : { cluster, namespace, pod };
  const known = Object.entries(names).flatMap(([column, text]) => (text === null ? [] : [whereIs(column, text)]));
  return known.join(";");
}

/** Whether it is known that a job is over. */
export function isOver(state: string | null | undefined): boolean {
  return state !== undefined && state !== null && state !== "running";
}

/** The page of a job or pod; of one that does not run now, in the range in which it was found. Null: it has none. */
export function jobPath(job: JobUse, range: { readonly start: string; readonly end: string }): string | null {
  if (job.holder === null || whereOf(job) === null) return null;
  const [start, end] = [parseInstant(range.start), parseInstant(range.end)];
  // Of a range that ended before now it is not known whether it runs, and its state is that at the end.
  const runs = job.running !== null && (job.running || job.about?.state === "running");
  const found = !runs && start !== null && end !== null && start < end;
  return JOB.to({ id: job.holder, cluster: job.cluster ?? "", ...(found && { range: { kind: "custom", start, end } as const }) });
}
