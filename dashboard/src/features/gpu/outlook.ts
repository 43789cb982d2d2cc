import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { anomaliesQuery, hourOf, type Anomaly, type Trend } from "../../api/outlook";
import { useTrends } from "../../parts/outlook";

export interface GpuOutlookView {
  readonly trends: readonly Trend[];
  readonly anomalies: readonly Anomaly[];
  /** Why no value is judged, in words; null: they are. */
  readonly note: string | null;
  /** The hour of the anomalies ends here. */
  readonly end: number;
  /** Why some may be missing, in words; empty: none are. */
  readonly doubts: readonly string[];
}

/**
 * The trends of a GPU, and what is unusual about it: for itself at this hour, or beside its peers under like load.
 */
export function useGpuOutlook(gpu: string, now: number, isItsTurn: boolean): GpuOutlookView {
  const { trends, error } = useTrends(now, isItsTurn, gpu);
  const end = hourOf(now);
  const { data: unusual, error: failure } = useQuery({ ...anomaliesQuery(end, gpu), enabled: isItsTurn });
  return useMemo(() => {
    const doubts = [
      ...(error === null ? [] : [`Trends could not be read: ${error.message}`]),
      ...(failure === null ? [] : [`Unusual values could not be read: ${failure.message}`]),
    ];
    return { trends, anomalies: unusual?.anomalies ?? [], note: unusual?.note ?? null, end, doubts };
  }, [trends, error, unusual, failure, end]);
}
