import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { MEMORY_USED, POWER, TEMPERATURE, TEMPERATURE_JUNCTION, TEMPERATURE_MEMORY } from "../shared/headline";
import { HOUR, MINUTE } from "../shared/time";
import { api, dataOf, isNotKept, type Schemas } from "./client";

// Where metrics go, and where they are unusual. The server reads days of the whole fleet for an answer: it is asked for whole
// hours, so that all pages of an hour share its answers.

/** A trend with its metric. */
export interface Trend extends Omit<Schemas["TrendEntry"], "limit" | "reaches_limit_at"> {
  readonly metric: string;
  readonly unit: string;
  readonly limit: number;
  /** When the line reaches the limit. */
  readonly at: number;
}

/** An unusual value with its metric and the end of its hour. */
export type Anomaly = Schemas["AnomalyEntry"] & {
  readonly metric: string;
  readonly unit: string;
  readonly end: number;
};

/** Metrics whose limit the server knows. The power limit is none of these: a busy GPU is meant to run at it. */
export const LIMITED: readonly string[] = [TEMPERATURE, TEMPERATURE_JUNCTION, TEMPERATURE_MEMORY, MEMORY_USED];
/** What is unusual in these is more likely the GPU's than its work's. */
export const WATCHED: readonly string[] = [TEMPERATURE, POWER];

/** The GPUs nearest to their limit, or the most unusual ones: those beyond are not looked at. */
const GPUS_MAX = 1000;

/** An answer is good for its hour; only what failed is asked for again. */
const OF_AN_HOUR = {
  staleTime: Infinity,
  refetchInterval: (query: { readonly state: { readonly status: string } }) => (query.state.status === "error" ? MINUTE : false),
  placeholderData: keepPreviousData,
} as const;

/** The last whole hour ends here. */
export function hourOf(now: number): number {
  return Math.floor(now / HOUR) * HOUR;
}

/** The trends of a metric that rise to their limit, the nearest first. */
export function trendsQuery(metric: string, end: number) {
  return queryOptions({
    queryKey: ["trends", metric, end],
    queryFn: ({ signal }) =>
      ifKept(async () => {
        const query = { metric, end: new Date(end).toISOString(), limit: GPUS_MAX };
        const { trends, unit } = dataOf(await api.GET("/api/v1/analysis/trends", { params: { query }, signal }));
        return trends.flatMap(({ limit, reaches_limit_at: at, ...trend }): Trend[] => (limit === null || at === null || trend.per_day <= 0 ? [] : [{ ...trend, metric, unit, limit, at: Date.parse(at) }]));
      }),
    ...OF_AN_HOUR,
  });
}

/** The unusual values of a metric, the most unusual first. */
export function anomaliesQuery(metric: string, end: number) {
  return queryOptions({
    queryKey: ["anomalies", metric, end],
    queryFn: ({ signal }) =>
      ifKept(async () => {
        const query = { metric, end: new Date(end).toISOString(), limit: GPUS_MAX };
        const { anomalies, unit } = dataOf(await api.GET("/api/v1/analysis/anomalies", { params: { query }, signal }));
        return anomalies.map((anomaly): Anomaly => ({ ...anomaly, metric, unit, end }));
      }),
    ...OF_AN_HOUR,
  });
}

/** A server without a history has no days to look back at: that is no failure. */
async function ifKept<T>(ask: () => Promise<T[]>): Promise<T[]> {
  try {
    return await ask();
  } catch (error) {
    if (isNotKept(error)) return [];
    throw error;
  }
}
