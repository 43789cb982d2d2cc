import { useMemo } from "react";
import type { Metric } from "../../api/client";
import { LINES_MAX, type Panel } from "../../charts/panels";
import { metricTitle } from "../../shared/format";
import { MEMORY_USED, POWER, TEMPERATURE, UTILIZATION } from "../../shared/headline";

/** What GPUs of a host or a job are laid over each other by; the page that compares them has every other metric. */
export const COMPARED: readonly string[] = [UTILIZATION, POWER, TEMPERATURE, MEMORY_USED];

/** Charts of these columns: as many a column as the GPUs need, each with about as many of them. */
export function usePanels(gpus: readonly string[], columns: readonly string[], catalogue: readonly Metric[] | undefined): readonly { readonly panel: Panel; readonly column: string }[] {
  // The same panels as long as these GPUs are there: a plot is built anew for others.
  const [ids, read] = [gpus.join(","), columns.join(",")];
  return useMemo(() => {
    const all = ids.split(",");
    const charts = Math.ceil(all.length / LINES_MAX);
    const size = Math.ceil(all.length / charts);
    return read.split(",").flatMap((column) => {
      const row = catalogue?.find((metric) => metric.column === column);
      if (row === undefined) return [];
      return Array.from({ length: charts }, (_, chart) => {
        const part = charts === 1 ? "" : ` · ${chart + 1} of ${charts}`;
        return { column, panel: { id: `${column}-${chart}`, title: metricTitle(column) + part, unit: row.unit, columns: all.slice(chart * size, (chart + 1) * size) } };
      });
    });
  }, [ids, read, catalogue]);
}
