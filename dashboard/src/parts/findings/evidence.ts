import { useQuery } from "@tanstack/react-query";
import type { Metric } from "../../api/client";
import type { Evidence } from "../../api/findings";
import { catalogueQuery } from "../../api/queries";
import { formatBits, formatValue, metricTitle } from "../../shared/format";

/** What a value shows, in words: its name, the value with its unit, and what it is compared with. */
export interface EvidenceWords {
  readonly name: string;
  readonly value: string;
  readonly beside: string;
}

/** Distances from the median of the others, in units of how much these differ. */
const DEVIATIONS = "deviations";
const RATIO = "ratio";
/** Where the name of the column is no phrase. */
const NAMES: Readonly<Record<string, string>> = { xid_last: "Last XID", robust_distance: "" };

/** Masks by the names of their bits, shares in per cent, distances in words. A column that the catalogue does not have is said as it is. */
export function evidenceWords({ quantity, unit, value, compared_with: other }: Evidence, catalogue: ReadonlyMap<string, Metric>): EvidenceWords {
  const metric = catalogue.get(quantity);
  const words = (amount: number) => {
    if (metric !== undefined && metric.bits.length > 0) return formatBits(amount, metric.bits);
    if (unit === DEVIATIONS) return `far ${amount < 0 ? "below" : "above"} its peers (${formatValue(Math.round(Math.abs(amount)), "")} times their spread)`;
    if (unit === RATIO) return formatValue(amount * 100, "%");
    return formatValue(amount, unit);
  };
  return { name: NAMES[quantity] ?? metricTitle(quantity), value: words(value), beside: other === null ? "" : `against ${words(other.value)}, ${other.origin}` };
}

/** The metrics of GPUs by column. */
export function useGpuMetrics(): ReadonlyMap<string, Metric> {
  return useQuery({ ...catalogueQuery(), select: gpuMetrics }).data ?? NONE;
}

const NONE: ReadonlyMap<string, Metric> = new Map();

function gpuMetrics({ metrics }: { readonly metrics: readonly Metric[] }): ReadonlyMap<string, Metric> {
  return new Map(metrics.filter(({ table }) => table === "gpu_events").map((metric) => [metric.column, metric]));
}
