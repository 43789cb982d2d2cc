import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { ApiError, isNotKept, type QueryAnswer } from "../../api/client";
import { fetchHistory, type Aggregate, type Span } from "../../api/queries";
import { fetchEnergy, type EnergyGroup } from "../../api/usage";
import { countedShare, sourceWords } from "../../parts/energy";
import { present } from "../../shared/instant";
import { REFRESH_INTERVAL_MS } from "../../shared/config";
import { ENERGY } from "../../shared/headline";
import { DAY, MINUTE, SECOND } from "../../shared/time";
import { spanOf, stepOf, type Range } from "../../parts/range";
import type { Sum } from "./differences";

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

/** The energy of GPUs in the range, by the one rule of the server. It is known of GPUs with a counter or their power. */
export function energyQuery({ gpus, range, anchor, all, live }: Omit<PeersView, "columns">, isKnown: boolean) {
  return queryOptions({
    queryKey: ["history", "energy", gpus, range, anchor, live, range.kind === "all" ? all : null],
    queryFn: ({ signal }) => fetchEnergy(gpus, spanOf(range, anchor ?? present(), all), signal),
    enabled: isKnown && (range.kind !== "all" || all !== null),
    refetchInterval: live ? MINUTE : false,
    placeholderData: keepPreviousData,
    gcTime: 30 * SECOND,
  });
}

/** What GPUs did in the range, each with one value a metric: the energy by its rule, of other counters what they grew by, of everything else the mean. */
export function sumsQuery({ gpus, columns, range, anchor, all, live }: PeersView, isCounter: (column: string) => boolean) {
  return queryOptions({
    queryKey: ["history", "sums", gpus, columns, range, anchor, live, range.kind === "all" ? all : null],
    queryFn: async ({ signal }) => {
      const span = spanOf(range, anchor ?? present(), all);
      const asked = columns.filter((column) => column !== ENERGY);
      const [counters, others] = [asked.filter(isCounter), asked.filter((column) => !isCounter(column))];
      const ask = (metrics: readonly string[], aggregate: string) => fetchHistory({ metrics, gpus, stepMs: WHOLE_RANGE_MS, aggregates: [aggregate] }, span, signal);
      // Energy may be late or fail alone. The table is shown without its row then, and says so.
      const energyOf = columns.includes(ENERGY) ? fetchEnergy(gpus, span, signal).catch(withoutEnergy) : NO_ENERGY;
      const [grown, means, energy] = await Promise.all([ask(counters, "increase"), ask(others, "mean"), energyOf]);
      const sums = [...means.series.map((series) => ({ ...series, value: meanOf(series.values) })), ...grown.series.map((series) => ({ ...series, value: sumOf(series.values) })), ...energy.groups.map(energySum)];
      return { sums, partial: energy.partial };
    },
    enabled: columns.length > 0 && (range.kind !== "all" || all !== null),
    refetchInterval: live ? MINUTE / 4 : false,
    placeholderData: keepPreviousData,
    gcTime: 30 * SECOND,
  });
}

const NO_ENERGY = { groups: [], partial: null };

function withoutEnergy(error: unknown) {
  if (!(error instanceof ApiError)) throw error;
  return { groups: [], partial: `energy: ${error.message}` };
}

/** In the unit of its column. */
function energySum(energy: EnergyGroup): Sum {
  const { group, energy_kwh: value } = energy;
  return { metric: ENERGY, gpu: group, value: value === null ? null : value * MJ_PER_KWH, source: sourceWords(countedShare(energy)) };
}

/** What could not be read, and what else could not. */
export function unread(partial: readonly string[], more: string | null): readonly string[] {
  return more === null || partial.join("; ").includes(more) ? partial : [...partial, more];
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
