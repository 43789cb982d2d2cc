import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { metricTitle } from "../shared/format";
import { MINUTE, parseInstant, SECOND } from "../shared/time";
import { api, dataOf, isNotKept, partialOf, type Schemas, type TelemetryEntry } from "./client";
import { FINDINGS_MAX, type Finding } from "./findings";
import type { Span } from "./queries";

// What has happened to the fleet: its health events, among them the life of its findings.

/** More than a person reads, and than a bar can show. */
const HAPPENED_MAX = 2000;
/** The beginning of throttling: a busy fleet has thousands. */
const ONSET = "throttle";
const ENDS: ReadonlySet<string> = new Set(["finding_closed", "back"]);

/** Something that has happened to a GPU. */
export interface Happened {
  readonly at: number;
  /** When it shows: the time of a finding is that of the second in which it began or ended. */
  readonly shows: number;
  readonly gpu: string;
  readonly host: string | null;
  readonly kind: string;
  readonly text: string;
  /** Whether something came to its end: it is good news. */
  readonly isEnd: boolean;
  readonly about: About;
}

/** What changes are about. */
export const ABOUTS = ["health", "jobs", "drivers"] as const;
export type About = (typeof ABOUTS)[number];

/** What people say: it changes no GPU. */
const SAID: ReadonlySet<string> = new Set(["silenced", "released"]);

/** What of rows is worth a line, the newest first. */
export function happenedOf(rows: readonly TelemetryEntry[]): Happened[] {
  return rows.flatMap(({ timestamp, gpu_id, hostname, metrics }): Happened[] => {
    const at = parseInstant(timestamp);
    const text = (name: string) => (typeof metrics[name] === "string" ? metrics[name] : "");
    const kind = text("kind");
    if (at === null || kind === ONSET || SAID.has(kind)) return [];
    const [finding = ""] = text("finding").split(":");
    const what = finding === "" ? metricTitle(kind) : metricTitle(finding) + (kind === "finding_closed" ? ", over" : "");
    return [{ at, shows: at + SECOND, gpu: gpu_id, host: hostname, kind, text: [what, text("detail")].filter((part) => part !== "").join(": "), isEnd: ENDS.has(kind), about: "health" }];
  });
}

/**
 * What is wrong as of the end of a recording, where it began. An opening is a row only if somebody watched at the time.
 * One that may have begun earlier is sure to show at the end.
 */
export function openedOf(findings: readonly Finding[], end: number): Happened[] {
  return findings.flatMap(({ since, since_at_least, kind, sentence, reach }): Happened[] => {
    const at = parseInstant(since);
    const [gpu] = reach.gpus;
    if (at === null || gpu === undefined) return [];
    const text = `${metricTitle(kind)}${since_at_least ? ", then or earlier" : ""}: ${sentence}`;
    return [{ at, shows: since_at_least ? end : at + SECOND, gpu, host: reach.hostname, kind: "finding_opened", text, isEnd: false, about: "health" }];
  });
}

/** Jobs and drivers that changed, in words: a line for each and node. */
export function changedOf(changes: readonly Schemas["Change"][]): Happened[] {
  return changes.flatMap((change): Happened[] => {
    const at = parseInstant(change.at);
    if (at === null) return [];
    const { kind, gpu, gpus, from, to } = change;
    const about = from === null && to === null ? "jobs" : "drivers";
    const holder = [change.namespace, change.job ?? change.pod].filter((name) => name !== null).join(" / ");
    const what = about === "jobs" ? `${metricTitle(kind)}: ${holder}` : `${metricTitle(kind)}: ${from ?? "unknown"} → ${to ?? "unknown"}`;
    return [{ at, shows: at + SECOND, gpu, host: change.hostname, kind, text: `${what}, ${gpus === 1 ? "1 GPU" : `${gpus} GPUs`}`, isEnd: false, about }];
  });
}

/** Both, the newest first. */
export function inTime(some: readonly Happened[], others: readonly Happened[]): Happened[] {
  return [...some, ...others].sort((a, b) => b.at - a.at);
}

/** A busy cluster starts thousands of jobs a day. */
const CHANGED_MAX = 500;

/** Jobs that started and ended in a span on some hosts, or on all, and drivers that changed: more to add up than rows, so it is asked for less often. */
export function changedQuery(span: Span, host: string) {
  return queryOptions({
    queryKey: ["happened", "changes", span, host],
    queryFn: async ({ signal }) => {
      const query = { start: new Date(span.start).toISOString(), end: new Date(span.end).toISOString(), limit: CHANGED_MAX, ...(host === "" ? {} : { host }) };
      const answer = await api.GET("/api/v1/analysis/changes", { params: { query }, signal });
      const { changes, total } = dataOf(answer);
      return { all: changedOf(changes), left: total - changes.length, partial: partialOf(answer) };
    },
    staleTime: 5 * MINUTE,
    placeholderData: keepPreviousData,
    gcTime: 5 * MINUTE,
  });
}

/** The rows of a span about GPUs of some hosts, or of all. A server that keeps no such rows has nothing to tell. */
async function rowsOf(span: Span, host: string, signal: AbortSignal): Promise<{ readonly rows: readonly TelemetryEntry[]; readonly partial: string | null }> {
  const query = {
    table: "gpu_health_events",
    start_time: new Date(span.start).toISOString(),
    end_time: new Date(span.end).toISOString(),
    limit: HAPPENED_MAX,
    ...(host === "" ? {} : { where: `node=${host}` }),
  };
  try {
    const answer = await api.GET("/api/v1/telemetry", { params: { query }, signal });
    return { rows: dataOf(answer).data, partial: partialOf(answer) };
  } catch (error) {
    if (isNotKept(error)) return { rows: [], partial: null };
    throw error;
  }
}

/** What is wrong with GPUs of some hosts, or of all, as of the end of a recording, if it is one. */
async function wrongAt(end: number | null, host: string, signal: AbortSignal): Promise<{ readonly findings: readonly Finding[]; readonly partial: string | null }> {
  if (end === null) return { findings: [], partial: null };
  const query = { at: new Date(end).toISOString(), limit: FINDINGS_MAX, ...(host === "" ? {} : { host }) };
  const answer = await api.GET("/api/v1/analysis/findings", { params: { query }, signal });
  return { findings: dataOf(answer).findings, partial: partialOf(answer) };
}

/** What has happened in a span to GPUs of some hosts, or of all; in a recording also what nobody has watched begin. */
export function happenedQuery(span: Span, host: string, recordingEnd: number | null) {
  return queryOptions({
    queryKey: ["happened", span, host, recordingEnd],
    queryFn: async ({ signal }) => {
      const [told, wrong] = await Promise.all([rowsOf(span, host, signal), wrongAt(recordingEnd, host, signal)]);
      const opened = new Set(told.rows.filter(({ metrics }) => metrics.kind === "finding_opened").map(({ metrics }) => metrics.finding));
      const unwatched = openedOf(wrong.findings.filter(({ id }) => !opened.has(id)), span.end).filter(({ at }) => at >= span.start);
      return { all: inTime(happenedOf(told.rows), unwatched), isCut: told.rows.length >= HAPPENED_MAX, partial: told.partial ?? wrong.partial };
    },
    refetchInterval: MINUTE,
    placeholderData: keepPreviousData,
    gcTime: 5 * MINUTE,
  });
}
