import type { Health } from "../../api/client";

const isDead = ({ status }: { readonly status: string }) => status === "unhealthy";

/** Whether nothing new can come: no collector works, and no queue would hold what they miss. */
export function isStandstill(report: Health | undefined): boolean {
  if (report === undefined || report.collectors.length === 0 || report.queues.length === 0) return false;
  return report.collectors.every(isDead) && report.queues.every(isDead);
}
