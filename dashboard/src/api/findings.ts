import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { REFRESH_INTERVAL_MS } from "../shared/config";
import { api, dataOf, fetchCsv, partialOf, type Schemas } from "./client";
import { given } from "./queries";

// What is wrong now, as the server judges it every 15 seconds.

export type Finding = Schemas["FindingEntry"];
export type Evidence = Schemas["EvidenceEntry"];

export const SEVERITIES = ["critical", "warning", "notice"] as const;
export type Severity = (typeof SEVERITIES)[number];

/** As many as one person can look through; a fleet with more is narrowed by filters. */
export const FINDINGS_MAX = 500;

/** Which findings; empty is all. */
export interface FindingsAsk {
  readonly severity: string;
  readonly host: string;
  readonly namespace: string;
  readonly kind: string;
  readonly gpus: string;
}

export const ALL_FINDINGS: FindingsAsk = { severity: "", host: "", namespace: "", kind: "", gpus: "" };

/** The worst findings of those that are asked for, in the server's order: the worst first. */
export function findingsQuery(ask: FindingsAsk) {
  return queryOptions({
    queryKey: ["findings", ask],
    queryFn: async ({ signal }) => {
      const answer = await api.GET("/api/v1/analysis/findings", { params: { query: { ...given({ ...ask }), limit: FINDINGS_MAX } }, signal });
      return { ...dataOf(answer), partial: partialOf(answer) };
    },
    refetchInterval: REFRESH_INTERVAL_MS,
    placeholderData: keepPreviousData,
  });
}

/** The server's largest page. */
const CSV_MAX = 10_000;

/** All findings that are asked for, as a file. */
export function fetchFindingsCsv(ask: FindingsAsk): Promise<string> {
  const question = new URLSearchParams({ ...given({ ...ask }), limit: String(CSV_MAX) });
  return fetchCsv(`/api/v1/analysis/findings?${question.toString()}`);
}

/** How often the critical findings are counted, also in a tab that nobody looks at: its title says how many there are. */
const COUNTED_EVERY_MS = 30_000;

/** How many critical findings there are. */
export function criticalsQuery() {
  return queryOptions({
    queryKey: ["findings", "criticals"],
    queryFn: async ({ signal }) => dataOf(await api.GET("/api/v1/analysis/findings", { params: { query: { severity: "critical", limit: 1 } }, signal })).total,
    refetchInterval: COUNTED_EVERY_MS,
    refetchIntervalInBackground: true,
  });
}

/** What is known of the findings; nothing while they were not read. */
export type FindingsAnswer = { readonly findings: readonly Finding[]; readonly total: number; readonly partial: string | null } | undefined;

/** Whether no finding is missing: only then a host that none of them names has none. */
export function isWhole(answer: FindingsAnswer): boolean {
  return answer !== undefined && answer.partial === null && answer.total <= answer.findings.length;
}

/** Whether no GPU of a finding is missing either: the server names only some GPUs of a finding that has many. */
export function namesAllGpus(answer: FindingsAnswer): boolean {
  return isWhole(answer) && answer?.findings.every(({ reach }) => reach.gpu_count <= reach.gpus.length) === true;
}

export type Silence = Schemas["SilenceEntry"];

/** What can be silenced: a finding by id, a host or a job with all that is found about it. */
export interface Silenced {
  readonly type: "finding" | "host" | "job";
  readonly id: string;
}

/** Longest note of a silence, in characters. */
export const NOTE_MAX = 500;

/** All silences that hold. */
export function silencesQuery() {
  return queryOptions({
    queryKey: ["findings", "silences"],
    queryFn: async ({ signal }) => dataOf(await api.GET("/api/v1/analysis/silences", { signal })).silences,
    refetchInterval: REFRESH_INTERVAL_MS,
  });
}

/** Says that somebody looks after something, until an instant or, of a finding, until it closes. */
export async function silence({ type, id }: Silenced, note: string, until: number | null): Promise<Silence> {
  const end = until === null ? {} : { until: new Date(until).toISOString() };
  return dataOf(await api.POST("/api/v1/analysis/silences", { body: { [type]: id, note, ...end } }));
}

/** Says that nobody does any more. */
export async function release({ type, id }: Pick<Silence, "type" | "id">): Promise<Silence> {
  return dataOf(await api.DELETE("/api/v1/analysis/silences", { params: { query: { [type]: id } } }));
}
