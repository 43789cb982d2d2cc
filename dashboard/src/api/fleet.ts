import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { HEALTH_INTERVAL_MS, REFRESH_INTERVAL_MS } from "../shared/config";
import { numberIn } from "../shared/format";
import { present } from "../shared/instant";
import { HOUR, MINUTE, parseInstant } from "../shared/time";
import { api, dataOf, fetchCsv, partialOf, type Gpu } from "./client";
import { countsOf, verdictOf, type Counts, type Verdict } from "./judgement";
import { fetchHistory, given } from "./queries";

/** The server's limit on the GPUs of one answer. */
export const GPUS_MAX = 10_000;

/** By what GPUs can stand together. */
export const GROUPINGS = ["node", "rack", "model", "vendor", "cluster", "namespace", "job"] as const;
export type Grouping = (typeof GROUPINGS)[number];

/** Which GPUs are asked for, and which of their values. */
export interface FleetAsk {
  readonly search: string;
  /** Of which judgement; empty: of any. */
  readonly judgement: string;
  readonly host: string;
  /** Tests of the identity, as the API writes them. */
  readonly where: string;
  readonly group: Grouping;
  /** A column whose latest value is wanted; empty: none. */
  readonly metric: string;
}

/** The GPUs that fit, as far as one answer goes, and how many there are in all. */
export interface FleetAnswer {
  readonly gpus: readonly FleetGpu[];
  /** Of all that fit, whatever their judgement. */
  readonly counts: { readonly byWord: Counts; readonly total: number };
  readonly total: number;
  readonly simulated: number;
  readonly partial: string | null;
}

export const WHOLE_FLEET: FleetAsk = { search: "", judgement: "", host: "", where: "", group: "node", metric: "" };

/** What of a GPU is known where all of them are shown at once. */
export interface FleetGpu {
  readonly id: string;
  readonly name: string;
  readonly host: string;
  readonly index: number | null;
  readonly verdict: Verdict;
  /** Null: it has no such thing. */
  readonly group: string | null;
  /** Of the metric that was asked for; null: not read. */
  readonly value: number | null;
  /** Its newest row; null: it has none. */
  readonly lastSeen: number | null;
}

/** What the list says of every GPU; the other groupings are labels that are asked for. */
const OWN: Readonly<Partial<Record<Grouping, (gpu: Gpu) => string | null>>> = {
  node: (gpu) => gpu.hostname,
  model: (gpu) => gpu.model,
  vendor: (gpu) => gpu.vendor,
};

/** All GPUs that fit, as far as one answer goes: those of a group together, by host and index. */
export function wholeFleetQuery(ask: FleetAsk = WHOLE_FLEET) {
  const { group, metric, ...filter } = ask;
  const of = OWN[group];
  const query = {
    ...given({ ...filter, metrics: metric, labels: of === undefined ? group : "" }),
    limit: GPUS_MAX,
  };
  return queryOptions({
    queryKey: ["gpus", "whole fleet", ask],
    queryFn: async ({ signal }): Promise<FleetAnswer> => {
      const answer = await api.GET("/api/v1/gpus", { params: { query }, signal });
      const { gpus, judgements, total } = dataOf(answer);
      const cells = gpus.map((gpu): FleetGpu => ({
        id: gpu.id,
        name: gpu.name,
        host: gpu.hostname ?? "",
        index: gpu.index,
        verdict: verdictOf(gpu),
        group: of === undefined ? (gpu.labels?.[group] ?? null) : of(gpu),
        value: metric === "" ? null : numberIn(gpu.metrics, metric),
        lastSeen: parseInstant(gpu.last_seen),
      }));
      return { gpus: together(cells), counts: { byWord: countsOf(judgements), total }, total, simulated: gpus.filter((gpu) => gpu.simulated).length, partial: partialOf(answer) };
    },
    // The overview of states changes slowly; values are looked at while they move.
    refetchInterval: metric === "" ? HEALTH_INTERVAL_MS : REFRESH_INTERVAL_MS,
    placeholderData: keepPreviousData,
    // Comparing 10,000 GPUs with those of before costs more than drawing them.
    structuralSharing: false,
  });
}

/** How many GPUs there are, and how many of them do how. */
export function fleetCountsQuery() {
  return queryOptions({
    queryKey: ["gpus", "counts"],
    queryFn: async ({ signal }) => {
      const { judgements, total } = dataOf(await api.GET("/api/v1/gpus", { params: { query: { limit: 1 } }, signal }));
      return { byWord: countsOf(judgements), total };
    },
    refetchInterval: HEALTH_INTERVAL_MS,
    placeholderData: keepPreviousData,
  });
}

/** The GPUs whose identity passes some tests, with the jobs that hold them. */
export async function fetchGpusHeld(where: string): Promise<readonly Gpu[]> {
  return dataOf(await api.GET("/api/v1/gpus", { params: { query: { where, labels: "namespace,job", limit: GPUS_MAX } } })).gpus;
}

/** All GPUs that fit, as a file. */
export function fetchGpusCsv(parts: Readonly<Record<string, string>>): Promise<string> {
  const question = new URLSearchParams({ ...given(parts), limit: String(GPUS_MAX) });
  return fetchCsv(`/api/v1/gpus?${question.toString()}`);
}

/** How far a value of each GPU can go, by the first of these columns that it has. They change with the configuration alone. */
export function wholesQuery(columns: readonly string[]) {
  return queryOptions({
    queryKey: ["gpus", "wholes", columns],
    queryFn: async ({ signal }): Promise<ReadonlyMap<string, number>> => {
      const answer = await api.GET("/api/v1/gpus", { params: { query: { metrics: columns.join(","), limit: GPUS_MAX } }, signal });
      return new Map(dataOf(answer).gpus.flatMap(({ id, metrics }) => columns.flatMap((column) => numberIn(metrics, column) ?? []).slice(0, 1).map((whole) => [id, whole] as const)));
    },
    enabled: columns.length > 0,
    staleTime: 10 * MINUTE,
    structuralSharing: false,
  });
}

/** Of what length the mean is that stands for the value an hour ago. */
const AROUND_MS = 5 * MINUTE;

/** What a metric of every GPU was an hour ago: asked once a minute, since it is about as long as a list of all GPUs. */
export function hourAgoQuery(metric: string) {
  return queryOptions({
    queryKey: ["gpus", "hour ago", metric],
    queryFn: async ({ signal }): Promise<ReadonlyMap<string, number>> => {
      const end = Math.floor((present() - HOUR) / AROUND_MS) * AROUND_MS;
      const { series } = await fetchHistory({ metrics: [metric], gpus: [], stepMs: AROUND_MS, aggregates: ["mean"] }, { start: end - AROUND_MS, end: end - 1 }, signal);
      return new Map(
        series.flatMap(({ gpu, values }) => {
          const value = values.find((each) => each !== null) ?? null;
          return typeof gpu !== "string" || value === null ? [] : [[gpu, value] as const];
        }),
      );
    },
    enabled: metric !== "",
    staleTime: MINUTE,
    refetchInterval: MINUTE,
    structuralSharing: false,
  });
}

const COLLATOR = new Intl.Collator("en", { numeric: true });

/** Groups by name, those without one last; within a group the order stays. */
export function together(gpus: readonly FleetGpu[]): FleetGpu[] {
  const groups = new Map<string | null, FleetGpu[]>();
  for (const gpu of gpus) {
    const held = groups.get(gpu.group);
    if (held === undefined) groups.set(gpu.group, [gpu]);
    else held.push(gpu);
  }
  const names = [...groups.keys()].sort((a, b) => (a === null ? 1 : b === null ? -1 : COLLATOR.compare(a, b)));
  return names.flatMap((name) => groups.get(name) ?? []);
}
