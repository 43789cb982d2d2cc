import type { Metric } from "../api/client";

/** Which limits say how far a value may go, that which is reached first before the others. */
const KINDS = ["slowdown", "max_operating"];

/** The columns of the limits of a temperature, by the catalogue: those of the same sensor. Another quantity has none. */
export function limitsOf({ unit, prometheus: { labels } }: Metric, catalogue: ReadonlyMap<string, Metric>): string[] {
  if (labels.sensor === undefined || labels.limit !== undefined) return [];
  const own = [...catalogue.values()].filter((other) => other.unit === unit && other.prometheus.labels.sensor === labels.sensor);
  return KINDS.flatMap((kind) => own.filter((other) => other.prometheus.labels.limit === kind).map(({ column }) => column));
}
