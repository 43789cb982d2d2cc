import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { present } from "../shared/instant";
import { HEALTH_INTERVAL_MS, REFRESH_INTERVAL_MS } from "../shared/config";
import { HOST_CPU, HOST_MEMORY_AVAILABLE, HOST_MEMORY_TOTAL } from "../shared/headline";
import { MINUTE } from "../shared/time";
import { api, dataOf, isUnknownHost, partialOf, type Gpu, type QueryAnswer, type Schemas } from "./client";

/** The server's largest page. */
const HOSTS_MAX = 10_000;
const FOREVER = Infinity;

export interface GpuListAsk {
  readonly search: string;
  /** Of which judgement; empty: of any. */
  readonly judgement: string;
  readonly host: string;
  /** Tests of the identity, as the API writes them. */
  readonly where: string;
  readonly sort: string;
  readonly limit: number;
  readonly offset: number;
  /** The columns that are wanted, between commas; absent: all. */
  readonly metrics?: string;
  /** The labels that are wanted, between commas. */
  readonly labels?: string;
}

/** The parts that are not empty: the others are not asked for. */
export function given<T extends Readonly<Record<string, string>>>(parts: T): Partial<T> {
  return Object.fromEntries(Object.entries(parts).filter(([, text]) => text !== "")) as Partial<T>;
}

export function gpuListQuery(ask: GpuListAsk) {
  const { limit, offset, metrics, ...filter } = ask;
  const columns = metrics === undefined ? { include: "metrics" } : { metrics };
  return queryOptions({
    queryKey: ["gpus", ask],
    queryFn: async ({ signal }) => {
      const answer = await api.GET("/api/v1/gpus", { params: { query: { ...given(filter), limit, offset, ...columns } }, signal });
      return { ...dataOf(answer), partial: partialOf(answer) };
    },
    refetchInterval: REFRESH_INTERVAL_MS,
    placeholderData: keepPreviousData,
  });
}

export function hostsQuery() {
  return queryOptions({
    queryKey: ["hosts"],
    queryFn: async ({ signal }) => {
      const answer = await api.GET("/api/v1/hosts", { params: { query: { limit: HOSTS_MAX } }, signal });
      return { ...dataOf(answer), partial: partialOf(answer) };
    },
    refetchInterval: MINUTE,
  });
}

/** More GPUs than a host has. */
const GPUS_OF_HOST_MAX = 256;

/** The GPUs of a host by index: all their latest values, who holds them, and where they are plugged in. */
export function hostGpusQuery(host: string) {
  return queryOptions({
    queryKey: ["hosts", "gpus", host],
    queryFn: async ({ signal }) => {
      const query = { host, include: "metrics", labels: "namespace,job,pod,pci", limit: GPUS_OF_HOST_MAX };
      const none: readonly Gpu[] = [];
      try {
        const answer = await api.GET("/api/v1/gpus", { params: { query }, signal });
        const { gpus, total } = dataOf(answer);
        return { gpus: [...gpus].sort((a, b) => (a.index ?? Infinity) - (b.index ?? Infinity)), total, partial: partialOf(answer) };
      } catch (error) {
        if (isUnknownHost(error)) return { gpus: none, total: 0, partial: null };
        throw error;
      }
    },
    refetchInterval: REFRESH_INTERVAL_MS,
  });
}

/** Where the GPUs of a host are plugged in, and what their links lead to: it changes when somebody opens the host. */
export function topologyQuery(host: string) {
  return queryOptions({
    queryKey: ["hosts", "topology", host],
    queryFn: async ({ signal }) => dataOf(await api.GET("/api/v1/hosts/{hostname}/topology", { params: { path: { hostname: host } }, signal })),
    refetchInterval: MINUTE,
  });
}

/** CPU and memory of a host in a span, as far as its agent reports them. */
export function hostCourseQuery(host: string, span: Span, stepMs: number) {
  return queryOptions({
    queryKey: ["hosts", "course", host, span, stepMs],
    queryFn: async ({ signal }) => {
      const query = {
        table: "system_events",
        metrics: [HOST_CPU, HOST_MEMORY_AVAILABLE, HOST_MEMORY_TOTAL].join(","),
        hosts: host,
        start: new Date(span.start).toISOString(),
        end: new Date(span.end).toISOString(),
        step: `${stepMs}ms`,
        aggregate: "mean",
        group_by: "node",
      };
      return dataOf(await api.GET("/api/v1/query", { params: { query }, signal }));
    },
    placeholderData: keepPreviousData,
    gcTime: MINUTE,
  });
}

/** What a host itself does. */
export interface HostLoad {
  /** Share of the time of all its cores, in %. */
  readonly cpu: number | null;
  /** Share of its memory that programs cannot have. */
  readonly memoryShare: number | null;
}

/** A host that reported nothing for longer is away. */
const HOST_LOAD_MS = 5 * MINUTE;

/** What the hosts themselves do, by name: those whose agent reports it. */
export function hostLoadsQuery() {
  return queryOptions({
    queryKey: ["hosts", "loads"],
    queryFn: async ({ signal }): Promise<ReadonlyMap<string, HostLoad>> => {
      const end = present();
      const query = {
        table: "system_events",
        metrics: [HOST_CPU, HOST_MEMORY_AVAILABLE, HOST_MEMORY_TOTAL].join(","),
        start: new Date(end - HOST_LOAD_MS).toISOString(),
        end: new Date(end).toISOString(),
        step: `${HOST_LOAD_MS}ms`,
        aggregate: "last",
        group_by: "node",
      };
      const { series } = dataOf(await api.GET("/api/v1/query", { params: { query }, signal }));
      const newest = new Map<string, Map<string, number>>();
      for (const { metric, group, values } of series) {
        const value = values.findLast((each) => each !== null);
        if (value === undefined) continue;
        const of = newest.get(group) ?? new Map<string, number>();
        newest.set(group, of.set(metric, value));
      }
      return new Map(
        [...newest].map(([host, of]) => {
          const [available, total] = [of.get(HOST_MEMORY_AVAILABLE), of.get(HOST_MEMORY_TOTAL)];
          return [host, { cpu: of.get(HOST_CPU) ?? null, memoryShare: available === undefined || total === undefined || total <= 0 ? null : 1 - available / total }];
        }),
      );
    },
    refetchInterval: MINUTE,
  });
}

/** How much work a host can take. */
export interface HostRoom {
  /** How many of its GPUs nobody holds and do nothing. */
  readonly free: number;
  /** Those to keep work away from. */
  readonly unhealthy: readonly Schemas["UnfitEntry"][];
}

/** Which hosts can take work, by name, and all of them together. */
export function roomQuery() {
  return queryOptions({
    queryKey: ["hosts", "room"],
    queryFn: async ({ signal }) => {
      const answer = await api.GET("/api/v1/schedule/hints", { params: { query: { limit: HOSTS_MAX } }, signal });
      const { nodes, totals } = dataOf(answer);
      const rooms = new Map<string, HostRoom>();
      // Clusters may have hosts of the same name: here they are one.
      for (const { hostname, free, unhealthy } of nodes) {
        const before = rooms.get(hostname) ?? { free: 0, unhealthy: [] };
        rooms.set(hostname, { free: before.free + free.length, unhealthy: [...before.unhealthy, ...unhealthy] });
      }
      return { rooms, totals, partial: partialOf(answer) };
    },
    refetchInterval: MINUTE,
  });
}

export function gpuQuery(id: string, refetchInterval: number) {
  return queryOptions({
    queryKey: ["gpu", id],
    queryFn: async ({ signal }) => dataOf(await api.GET("/api/v1/gpus/{id}", { params: { path: { id } }, signal })),
    refetchInterval,
  });
}

export function catalogueQuery() {
  return queryOptions({
    queryKey: ["catalogue"],
    queryFn: async ({ signal }) => dataOf(await api.GET("/api/v1/metrics", { signal })),
    staleTime: FOREVER,
  });
}

export const AGGREGATES = ["mean", "min", "max", "p99", "last"] as const;
export type Aggregate = (typeof AGGREGATES)[number];

export interface Span {
  readonly start: number;
  readonly end: number;
}

export interface HistoryAsk {
  readonly metrics: readonly string[];
  readonly gpus: readonly string[];
  readonly stepMs: number;
  /** Aggregates of a step; each is a series of its own. */
  readonly aggregates: readonly string[];
  /** `all` puts the GPUs together into one series; they are series of their own unless told otherwise, with columns of the identity one for each text. */
  readonly groupBy?: "gpu" | "gpu,namespace,job" | "gpu,namespace,pod,job" | "node" | "all";
  /** Where no GPUs are named: those of some hosts, or those that pass tests of the identity. */
  readonly hosts?: readonly string[];
  readonly where?: string;
}

/** The server's limit on the metrics of one question. */
const METRICS_MAX = 64;

/** Buckets of several metrics of several GPUs, in the shape that a chart draws. Many metrics are asked for in parts. */
export async function fetchHistory(ask: HistoryAsk, span: Span, signal: AbortSignal): Promise<QueryAnswer> {
  const parts: (readonly string[])[] = [];
  for (let at = 0; at < ask.metrics.length; at += METRICS_MAX) parts.push(ask.metrics.slice(at, at + METRICS_MAX));
  const answers = await Promise.all(parts.map((metrics) => fetchPart({ ...ask, metrics }, span, signal)));
  const [first] = answers;
  if (first === undefined) return { times: [], series: [], step_ms: ask.stepMs };
  // Same range and step: the parts have the same times.
  return {
    ...first,
    series: answers.flatMap((answer) => answer.series),
    partial: answers.flatMap((answer) => answer.partial ?? []),
  };
}

function questionOf(ask: HistoryAsk, span: Span) {
  return {
    metrics: ask.metrics.join(","),
    ...given({ gpus: ask.gpus.join(","), hosts: (ask.hosts ?? []).join(","), where: ask.where ?? "" }),
    start: new Date(span.start).toISOString(),
    end: new Date(span.end).toISOString(),
    step: `${ask.stepMs}ms`,
    aggregate: ask.aggregates.join(","),
    group_by: ask.groupBy ?? "gpu",
  };
}

/** The same question as an address, for those who ask it elsewhere. */
export function historyPath(ask: HistoryAsk, span: Span): string {
  return `/api/v1/query?${new URLSearchParams(questionOf(ask, span)).toString()}`;
}

async function fetchPart(ask: HistoryAsk, span: Span, signal: AbortSignal): Promise<QueryAnswer> {
  const query = questionOf(ask, span);
  return dataOf(await api.GET("/api/v1/query", { params: { query }, signal }));
}

export function healthQuery() {
  return queryOptions({
    queryKey: ["health"],
    queryFn: async ({ signal }) => dataOf(await api.GET("/health", { signal })),
    refetchInterval: HEALTH_INTERVAL_MS,
  });
}

export function statsQuery() {
  return queryOptions({
    queryKey: ["stats"],
    queryFn: async ({ signal }) => dataOf(await api.GET("/stats", { signal })),
    refetchInterval: REFRESH_INTERVAL_MS,
  });
}
