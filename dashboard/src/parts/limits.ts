import type { Metric } from "../api/client";
import { MEMORY_TOTAL, MEMORY_USED, POWER, POWER_LIMIT } from "../shared/headline";

/** Which limits say how far a value may go, that which is reached first before the others. */
const KINDS = ["slowdown", "max_operating"];

/** The columns of the limits of a temperature, by the catalogue: those of the same sensor. Another quantity has none. */
export function limitsOf({ unit, prometheus: { labels } }: Metric, catalogue: ReadonlyMap<string, Metric>): string[] {
  if (labels.sensor === undefined || labels.limit !== undefined) return [];
  const own = [...catalogue.values()].filter((other) => other.unit === unit && other.prometheus.labels.sensor === labels.sensor);
  return KINDS.flatMap((kind) => own.filter((other) => other.prometheus.labels.limit === kind).map(({ column }) => column));
}

const WHOLES: Readonly<Record<string, string>> = { [POWER]: POWER_LIMIT, [MEMORY_USED]: MEMORY_TOTAL };

/** The columns that say how far a value can go: its limits, or its whole. */
export function wholesOf(metric: Metric, catalogue: ReadonlyMap<string, Metric>): string[] {
  const whole = WHOLES[metric.column];
  return whole === undefined ? limitsOf(metric, catalogue) : [whole];
}
