import { keepPreviousData, queryOptions, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { fetchHistory } from "../api/queries";
import type { Gpu, QueryAnswer } from "../api/client";
import { present } from "../shared/instant";
import { MINUTE, parseInstant, SECOND } from "../shared/time";

/** How far back a sparkline looks, and in how many buckets: bounded whatever the source's rate. */
const LOOK_BACK_MS = 15 * MINUTE;
const STEP_MS = 15 * SECOND;
const REFRESH_MS = 15 * SECOND;
/** A list whose newest sample is older than this shows the minutes before that sample instead of an empty present. */
const RECORDED_AFTER_MS = 15 * MINUTE;

/** Where sparklines end: now, or at the newest sample of a recording. */
export function sparkEnd(lastSeen: readonly (number | null)[], now: number): number {
  const newest = lastSeen.reduce<number>((most, instant) => Math.max(most, instant ?? 0), 0);
  return newest > 0 && now - newest > RECORDED_AFTER_MS ? newest + STEP_MS : now;
}

export interface Spark {
  readonly times: readonly number[];
  readonly stepMs: number;
  readonly values: readonly (number | null)[];
}

export function sparksOf(answer: QueryAnswer | undefined): ReadonlyMap<string, Spark> {
  if (answer === undefined) return new Map();
  return new Map(
    answer.series.map((series) => [
      sparkKey(series.gpu ?? "", series.metric),
      { times: answer.times, stepMs: answer.step_ms, values: series.values },
    ]),
  );
}

export function sparkKey(gpu: string, metric: string): string {
  return `${metric} ${gpu}`;
}

function sparksQuery(gpus: readonly Gpu[], metrics: readonly string[]) {
  const ids = gpus.map((gpu) => gpu.id);
  const seen = gpus.map((gpu) => parseInstant(gpu.last_seen));
  return queryOptions({
    queryKey: ["sparks", metrics, ids],
    queryFn: ({ signal }) => {
      const end = sparkEnd(seen, present());
      const ask = { metrics, gpus: ids, stepMs: STEP_MS, aggregates: ["mean"] };
      return fetchHistory(ask, { start: end - LOOK_BACK_MS, end }, signal);
    },
    enabled: ids.length > 0,
    refetchInterval: REFRESH_MS,
    staleTime: REFRESH_MS,
    placeholderData: keepPreviousData,
  });
}

/** One request for the GPUs in sight. A list without sparklines is still a list: failures only leave them out. */
export function useSparks(gpus: readonly Gpu[], metrics: readonly string[]): ReadonlyMap<string, Spark> {
  const { data } = useQuery(sparksQuery(gpus, metrics));
  return useMemo(() => sparksOf(data), [data]);
}
