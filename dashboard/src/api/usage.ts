import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { present } from "../shared/instant";
import { MINUTE } from "../shared/time";
import { api, dataOf, partialOf, type Schemas } from "./client";
import { given, type Span } from "./queries";

// The energy and the idle hours of GPUs, by their holders; and what holders used, by the sums that agents make.

export type EnergyGroup = Schemas["EnergyGroup"];
export type IdleGroup = Schemas["IdleGroup"];
export type JobUse = Schemas["JobUse"];
export type JobList = Schemas["JobList"];
export type JobDetail = Schemas["JobDetail"];

/** By what use is put together. */
export const HOLDERS = ["namespace", "job", "pod", "node"] as const;
export type Holder = (typeof HOLDERS)[number];

/** By what the sums that agents make are put together. */
export const LEDGERS = ["holder", "user"] as const;
export type Ledger = (typeof LEDGERS)[number];

export interface LedgerAsk {
  readonly by: Ledger;
  readonly range: UsageRange;
}

/** The server's limit on the groups of one answer. */
const GROUPS_MAX = 10_000;

/** The energy of GPUs in a range, each a group under its id, and what could not be read. */
export async function fetchEnergy(gpus: readonly string[], span: Span, signal: AbortSignal): Promise<{ readonly groups: readonly EnergyGroup[]; readonly partial: string | null }> {
  const query = { by: "gpu", gpus: gpus.join(","), ...timesOf(span), limit: GROUPS_MAX };
  const answer = await api.GET("/api/v1/analysis/energy", { params: { query }, signal });
  return { groups: dataOf(answer).groups, partial: partialOf(answer) };
}

function timesOf({ start, end }: Span) {
  return { start: new Date(start).toISOString(), end: new Date(end).toISOString() };
}

/** From a start to an end, or so many milliseconds up to now. */
export type UsageRange = Span | { readonly lengthMs: number };

export interface UsageAsk {
  readonly by: Holder;
  readonly range: UsageRange;
}

function spanOf(range: UsageRange): Span {
  const end = "end" in range ? range.end : present();
  return { start: "start" in range ? range.start : end - range.lengthMs, end };
}

/** A long range changes slowly and costs more: it is asked for at most sixty times while it passes. */
function everyMs(range: UsageRange): number | false {
  return "end" in range ? false : Math.max(MINUTE, range.lengthMs / 60);
}

/** Energy and idle hours of the same range, so that they can be put side by side. */
export function usageQuery({ by, range }: UsageAsk) {
  return queryOptions({
    queryKey: ["usage", by, range],
    queryFn: async ({ signal }) => {
      const span = spanOf(range);
      const query = { by, ...timesOf(span), limit: GROUPS_MAX };
      const [energy, idle] = await Promise.all([
        api.GET("/api/v1/analysis/energy", { params: { query }, signal }),
        api.GET("/api/v1/analysis/idle", { params: { query }, signal }),
      ]);
      return { span, energy: dataOf(energy), idle: dataOf(idle), partial: partialOf(energy) ?? partialOf(idle) };
    },
    refetchInterval: everyMs(range),
    placeholderData: keepPreviousData,
  });
}

/** What each holder or user used, by the sums that agents make of every sample. */
export function jobsQuery({ by, range }: LedgerAsk) {
  return queryOptions({
    queryKey: ["jobs", by, range],
    queryFn: async ({ signal }) => {
      const span = spanOf(range);
      const answer = await api.GET("/api/v1/jobs", { params: { query: { by, ...timesOf(span), limit: GROUPS_MAX } }, signal });
      return { span, list: dataOf(answer), partial: partialOf(answer) };
    },
    refetchInterval: everyMs(range),
    placeholderData: keepPreviousData,
  });
}

export interface OneJobAsk {
  /** The holder, or the number of a batch job. */
  readonly id: string;
  /** Where several clusters have one of its name; empty: where one has. */
  readonly cluster: string;
  readonly range: UsageRange;
}

/** What one job or pod used, of each of its GPUs and in each of its steps. */
export function oneJobQuery({ id, cluster, range }: OneJobAsk) {
  return queryOptions({
    queryKey: ["jobs", "one", id, cluster, range],
    queryFn: async ({ signal }) => {
      const span = spanOf(range);
      const answer = await api.GET("/api/v1/jobs/{id}", { params: { path: { id }, query: { ...timesOf(span), ...given({ cluster }) } }, signal });
      return { span, detail: dataOf(answer), partial: partialOf(answer) };
    },
    refetchInterval: everyMs(range),
    placeholderData: keepPreviousData,
  });
}

/** A job or pod in a range, as the list of them names both. */
export interface JobAsk {
  readonly holder: string;
  readonly cluster: string | null;
  readonly start: string;
  readonly end: string;
}

/** What a job that is over could have done without; null: that is not safe to say. */
export function adviceQuery({ holder, cluster, start, end }: JobAsk) {
  return queryOptions({
    queryKey: ["advice", holder, cluster, start, end],
    queryFn: async ({ signal }) => {
      const query = { start, end, ...(cluster === null ? {} : { cluster }) };
      const answer = await api.GET("/api/v1/jobs/{id}", { params: { path: { id: holder }, query }, signal });
      return dataOf(answer).advice?.text ?? null;
    },
  });
}
