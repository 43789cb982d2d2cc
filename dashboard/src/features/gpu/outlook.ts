import { useQueries } from "@tanstack/react-query";
import { useMemo } from "react";
import { anomaliesQuery, hourOf, WATCHED, type Anomaly, type Trend } from "../../api/outlook";
import { useTrends } from "../outlook";

export interface GpuOutlookView {
  readonly trends: readonly Trend[];
  readonly anomalies: readonly Anomaly[];
}

/**
 * The trends of a GPU, and what is unusual both for it and for its model. Without days of its own to look back at it is only
 * unlike its model, as every GPU with other work is.
 */
export function useGpuOutlook(gpu: string, now: number, isItsTurn: boolean): GpuOutlookView {
  const all = useTrends(now, isItsTurn).trends;
  const end = hourOf(now);
  const unusual = useQueries({ queries: WATCHED.map((metric) => ({ ...anomaliesQuery(metric, end), enabled: isItsTurn })), combine: (answers) => answers.flatMap((answer) => answer.data ?? []) });
  return useMemo(
    () => ({
      trends: all.filter((trend) => trend.gpu === gpu),
      anomalies: unusual.filter((anomaly) => anomaly.gpu === gpu && anomaly.own !== null),
    }),
    [all, unusual, gpu],
  );
}
