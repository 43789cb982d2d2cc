import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { HOUR, MINUTE } from "../shared/time";
import { api, dataOf, isNotKept, type Schemas } from "./client";

// Where metrics go, and where they are unusual. The server reads days of the whole fleet for an answer: it is asked for whole
// hours, so that all pages of an hour share its answers.

/** A trend with a limit. */
export interface Trend extends Omit<Schemas["TrendEntry"], "limit" | "reaches_limit_at"> {
  readonly limit: number;
  /** When the line reaches the limit. */
  readonly at: number;
}

export type Anomaly = Schemas["AnomalyEntry"];

/** What is unusual, and why nothing is judged; null: it is. */
export type Unusual = Pick<Schemas["AnomalyList"], "anomalies" | "note">;

const NOT_UNUSUAL: Unusual = { anomalies: [], note: null };

/** As many as are asked for of all GPUs: those that reach their limit later are not looked at. */
const TRENDS_MAX = 1000;

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

/** The trends that rise to their limit, the nearest first: of one GPU, or of all. */
export function trendsQuery(end: number, gpus?: string) {
  return queryOptions({
    queryKey: ["trends", end, gpus],
    queryFn: ({ signal }) =>
      ifKept(async () => {
        const query = { end: new Date(end).toISOString(), limit: TRENDS_MAX, ...(gpus === undefined ? {} : { gpus }) };
        const { trends } = dataOf(await api.GET("/api/v1/analysis/trends", { params: { query }, signal }));
        return trends.flatMap(({ limit, reaches_limit_at: at, ...trend }): Trend[] => (limit === null || at === null || trend.per_day <= 0 ? [] : [{ ...trend, limit, at: Date.parse(at) }]));
      }, []),
    ...OF_AN_HOUR,
  });
}

/** The unusual values of a GPU, the most unusual first. */
export function anomaliesQuery(end: number, gpus: string) {
  return queryOptions({
    queryKey: ["anomalies", end, gpus],
    queryFn: ({ signal }) =>
      ifKept(async () => {
        const query = { end: new Date(end).toISOString(), gpus };
        const { anomalies, note } = dataOf(await api.GET("/api/v1/analysis/anomalies", { params: { query }, signal }));
        return { anomalies, note };
      }, NOT_UNUSUAL),
    ...OF_AN_HOUR,
  });
}

/** A server without a history has no days to look back at: that is no failure. */
async function ifKept<T>(ask: () => Promise<T>, otherwise: T): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    if (isNotKept(error)) return otherwise;
    throw error;
  }
}
