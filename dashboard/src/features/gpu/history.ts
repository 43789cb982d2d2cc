import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { isNotKept, type QueryAnswer } from "../../api/client";
import { fetchHistory, type Aggregate, type Span } from "../../api/queries";
import { present } from "../../shared/instant";
import { REFRESH_INTERVAL_MS } from "../../shared/config";
import { ENERGY } from "../../shared/headline";
import { DAY, MINUTE, SECOND } from "../../shared/time";
import { spanOf, stepOf, type Range } from "../../parts/range";

export interface HistoryView {
  readonly gpus: readonly string[];
  readonly columns: readonly string[];
  readonly range: Range;
  /** Aggregates of a step; each is a line of its own. */
  readonly aggregates: readonly string[];
  /** Where a preset ends; `null` is "now", taken when the question is asked. */
  readonly anchor: number | null;
  readonly all: Span | null;
  /** Whether the charts move with the time; a picture that is not live stands still. */
  readonly live: boolean;
  /** Whether there is no stream to bring what is new. */
  readonly polling: boolean;
}

/** The charts' data. Live, it is renewed: each minute beside a stream, at the usual pace without one. */
export function historyQuery(view: HistoryView) {
  const { gpus, columns, range, aggregates, anchor, all, live, polling } = view;
  return queryOptions({
    queryKey: ["history", gpus, columns, range, aggregates, anchor, live, range.kind === "all" ? all : null],
    queryFn: async ({ signal }) => {
      const span = spanOf(range, anchor ?? present(), all);
      const ask = { metrics: columns, gpus, stepMs: stepOf(span), aggregates };
      const answer = await fetchHistory(ask, span, signal).catch((error: unknown) => unkept(error, ask.stepMs));
      return { span, answer };
    },
    enabled: columns.length > 0 && (range.kind !== "all" || all !== null),
    refetchInterval: live ? (polling ? REFRESH_INTERVAL_MS : MINUTE) : false,
    placeholderData: keepPreviousData,
    // Ranges that move leave one answer after another behind.
    gcTime: 30 * SECOND,
  });
}

/** Behind the mean stands how far the values went. */
export function aggregatesOf(aggregate: Aggregate): readonly string[] {
  return aggregate === "mean" ? ["mean", "min", "max"] : [aggregate];
}

export type PeersView = Omit<HistoryView, "aggregates" | "polling">;

/** The median of other GPUs together. Charts without it are still charts: it comes beside them and may fail alone. */
export function peersQuery({ gpus, columns, range, anchor, all, live }: PeersView) {
  return queryOptions({
    queryKey: ["peers", gpus, columns, range, anchor, live, range.kind === "all" ? all : null],
    queryFn: ({ signal }) => {
      const span = spanOf(range, anchor ?? present(), all);
      return fetchHistory({ metrics: columns, gpus, stepMs: stepOf(span), aggregates: ["p50"], groupBy: "all" }, span, signal);
    },
    enabled: gpus.length > 0 && columns.length > 0 && (range.kind !== "all" || all !== null),
    refetchInterval: live ? MINUTE / 4 : false,
    placeholderData: keepPreviousData,
    gcTime: 30 * SECOND,
  });
}

/** A step that no range is longer than: the server puts a whole range into one, or into two where its steps meet. */
const WHOLE_RANGE_MS = 3650 * DAY;
const MJ_PER_KWH = 3.6e9;

/** The energy of a GPU in the range, in kWh: by how much its counter grew. Null: it was not read twice. */
export function energyQuery({ gpus, range, anchor, all, live }: Omit<PeersView, "columns">, isCounted: boolean) {
  return queryOptions({
    queryKey: ["history", "energy", gpus, range, anchor, live, range.kind === "all" ? all : null],
    queryFn: async ({ signal }) => {
      const span = spanOf(range, anchor ?? present(), all);
      const { series } = await fetchHistory({ metrics: [ENERGY], gpus, stepMs: WHOLE_RANGE_MS, aggregates: ["increase"] }, span, signal);
      const grown = sumOf(series.flatMap(({ values }) => values));
      return grown === null ? null : grown / MJ_PER_KWH;
    },
    enabled: isCounted && (range.kind !== "all" || all !== null),
    refetchInterval: live ? MINUTE : false,
    placeholderData: keepPreviousData,
    gcTime: 30 * SECOND,
  });
}

/** What GPUs did in the range, each with one value a metric: of counters what they grew by, of everything else the mean. */
export function sumsQuery({ gpus, columns, range, anchor, all, live }: PeersView, isCounter: (column: string) => boolean) {
  return queryOptions({
    queryKey: ["history", "sums", gpus, columns, range, anchor, live, range.kind === "all" ? all : null],
    queryFn: async ({ signal }) => {
      const span = spanOf(range, anchor ?? present(), all);
      const [counters, others] = [columns.filter(isCounter), columns.filter((column) => !isCounter(column))];
      const ask = (metrics: readonly string[], aggregate: string) => fetchHistory({ metrics, gpus, stepMs: WHOLE_RANGE_MS, aggregates: [aggregate] }, span, signal);
      const [grown, means] = await Promise.all([ask(counters, "increase"), ask(others, "mean")]);
      return [...means.series.map((series) => ({ ...series, value: meanOf(series.values) })), ...grown.series.map((series) => ({ ...series, value: sumOf(series.values) }))];
    },
    enabled: columns.length > 0 && (range.kind !== "all" || all !== null),
    refetchInterval: live ? MINUTE / 4 : false,
    placeholderData: keepPreviousData,
    gcTime: 30 * SECOND,
  });
}

function sumOf(values: readonly (number | null)[]): number | null {
  const held = values.filter((value) => value !== null);
  return held.length === 0 ? null : held.reduce((sum, value) => sum + value, 0);
}

/** The range is one step, or two where the server's steps meet in it. */
function meanOf(values: readonly (number | null)[]): number | null {
  const sum = sumOf(values);
  return sum === null ? null : sum / values.filter((value) => value !== null).length;
}

/** A server without a history: the charts draw what the stream brings, and say why there is nothing older. */
function unkept(error: unknown, stepMs: number): QueryAnswer {
  if (!isNotKept(error)) throw error;
  return { times: [], series: [], step_ms: stepMs, partial: [error.message] };
}
