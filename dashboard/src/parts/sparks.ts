import { keepPreviousData, queryOptions, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { fetchHistory, type Span } from "../api/queries";
import type { Gpu, QueryAnswer } from "../api/client";
import { present } from "../shared/instant";
import { MINUTE, parseInstant, SECOND } from "../shared/time";

type Series = QueryAnswer["series"][number];

/** How far back a sparkline looks, and in how many buckets: bounded whatever the source's rate. */
const LOOK_BACK_MS = 15 * MINUTE;
const STEP_MS = 15 * SECOND;
const REFRESH_MS = 15 * SECOND;
/** How much later than those of others the rows of a GPU may come, and still fill the hole that they left. */
const LATE_MS = 2 * MINUTE;
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

/**
 * From where on an answer is to be asked for again: from some time before the newest value, since rows may come late. From the beginning
 * of the span, where what is held does not reach into it or is not whole.
 */
export function askedFrom(held: QueryAnswer | undefined, span: Span): number {
  if (held === undefined || held.step_ms !== STEP_MS || (held.partial ?? []).length > 0) return span.start;
  const newest = held.times.findLast((_, place) => held.series.some(({ values }) => (values[place] ?? null) !== null));
  const from = (newest ?? 0) - LATE_MS;
  return from > span.start && from < span.end ? from : span.start;
}

/** What is held of a span, and from where a newer answer begins that one. */
export function appended(held: QueryAnswer, fresh: QueryAnswer, span: Span): QueryAnswer {
  const [from] = fresh.times;
  if (from === undefined) return held;
  const kept = held.times.flatMap((time, place) => (time + STEP_MS > span.start && time < from ? [place] : []));
  const keyOf = ({ gpu, metric }: Series) => sparkKey(gpu ?? "", metric);
  const before = new Map(held.series.map((series) => [keyOf(series), series]));
  const since = new Map(fresh.series.map((series) => [keyOf(series), series]));
  const at = (series: Series | undefined, places: readonly number[]) => places.map((place) => series?.values[place] ?? null);
  const series = [...new Map([...before, ...since])].map(([key, one]) => {
    return { ...one, values: [...at(before.get(key), kept), ...at(since.get(key), [...fresh.times.keys()])] };
  });
  return { ...fresh, times: [...kept.flatMap((place) => held.times[place] ?? []), ...fresh.times], series };
}

function sparksQuery(gpus: readonly Gpu[], metrics: readonly string[]) {
  // In an order of their own: a list that is ordered by what changes asks no other question.
  const ids = gpus.map((gpu) => gpu.id).sort();
  const seen = gpus.map((gpu) => parseInstant(gpu.last_seen));
  const queryKey = ["sparks", metrics, ids];
  return queryOptions({
    queryKey,
    queryFn: async ({ client, signal }): Promise<QueryAnswer> => {
      const end = sparkEnd(seen, present());
      const span = { start: end - LOOK_BACK_MS, end };
      const held = client.getQueryData<QueryAnswer>(queryKey);
      const start = askedFrom(held, span);
      const fresh = await fetchHistory({ metrics, gpus: ids, stepMs: STEP_MS, aggregates: ["mean"] }, { start, end }, signal);
      return held === undefined || start === span.start || fresh.step_ms !== held.step_ms ? fresh : appended(held, fresh, span);
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
