import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { UTILIZATION } from "../shared/headline";
import { MINUTE } from "../shared/time";
import { fetchHistory, type Span } from "./queries";

// Who had GPUs, and where somebody's work ran, over time: which lines have a value in which step.

/** Steps of a strip: more are narrower than a screen shows. */
export const STEPS_MAX = 120;

/** GPUs, or those that pass tests of the identity; each by its holders, or together by host. */
export interface OccupancyAsk {
  readonly gpus?: readonly string[];
  readonly where?: string;
  readonly groupBy: "gpu,namespace,pod,job" | "node";
  readonly span: Span;
  readonly stepMs: number;
}

/** A line of a strip: what the answer calls it, and the mean utilization of each step; null: nothing was read. */
export interface OccupancyLine {
  readonly labels: Readonly<Record<string, string | null>>;
  readonly values: readonly (number | null)[];
}

export interface Occupancy {
  readonly times: readonly number[];
  readonly stepMs: number;
  readonly lines: readonly OccupancyLine[];
}

/** The span begins and ends with a step, so that it is asked for once while that lasts. */
export function occupancyQuery({ gpus = [], where = "", groupBy, span, stepMs }: OccupancyAsk) {
  const whole = { start: Math.floor(span.start / stepMs) * stepMs, end: Math.ceil(span.end / stepMs) * stepMs };
  return queryOptions({
    queryKey: ["occupancy", gpus, where, groupBy, whole, stepMs],
    queryFn: async ({ signal }): Promise<Occupancy> => {
      const answer = await fetchHistory({ metrics: [UTILIZATION], gpus, where, stepMs, aggregates: ["mean"], groupBy }, whole, signal);
      return { times: answer.times, stepMs: answer.step_ms, lines: answer.series.map(({ gpu, labels, values }) => ({ labels: { gpu, ...labels }, values })) };
    },
    placeholderData: keepPreviousData,
    gcTime: MINUTE,
  });
}
