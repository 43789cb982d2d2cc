import type { Health } from "../../api/client";

/** One elsewhere that does not answer is only called degraded: it may work for others. If none answers, nothing comes here. */
const isDead = ({ status, reached }: { readonly status: string; readonly reached: boolean }) => status === "unhealthy" || !reached;

/** Whether nothing new can come: no collector works or is reached, and no queue that would hold what they miss. */
export function isStandstill(report: Health | undefined): boolean {
  if (report === undefined || report.collectors.length === 0 || report.queues.length === 0) return false;
  return report.collectors.every(isDead) && report.queues.every(isDead);
}
