import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { metricTitle } from "../shared/format";
import { MINUTE, parseInstant, SECOND } from "../shared/time";
import { api, dataOf, isNotKept, partialOf, type Schemas, type TelemetryEntry } from "./client";
import { FINDINGS_MAX, type Finding } from "./findings";
import type { Span } from "./queries";
import { whereIs } from "./where";

// What has happened to the fleet: its health events, among them the life of its findings.

/** More than a person reads, and than a bar can show. */
const HAPPENED_MAX = 2000;
/** What changes a GPU. The beginning of throttling, of which a busy fleet has thousands, and what people say are left out. */
const KINDS = ["finding_opened", "finding_closed", "xid", "ecc", "ras", "lost", "back", "kernel", "reads_slowed", "reads_usual"];
const ENDS: ReadonlySet<string> = new Set(["finding_closed", "back", "reads_usual"]);

/** Something that has happened to a GPU. */
export interface Happened {
  readonly at: number;
  /** When it shows: the time of a finding is that of the second in which it began or ended. */
  readonly shows: number;
  readonly gpu: string;
  readonly host: string | null;
  readonly kind: string;
  /** The kind of the finding that it belongs to; empty: to none. */
  readonly finding: string;
  /** Of the job that changed; null: it is about no job, or about one without. */
  readonly namespace: string | null;
  readonly text: string;
  /** Whether something came to its end: it is good news. */
  readonly isEnd: boolean;
  readonly about: About;
}

/** What changes are about. */
export const ABOUTS = ["health", "jobs", "drivers"] as const;
export type About = (typeof ABOUTS)[number];

/** What of rows is worth a line, the newest first. */
export function happenedOf(rows: readonly TelemetryEntry[]): Happened[] {
  return rows.flatMap(({ timestamp, gpu_id, hostname, metrics }): Happened[] => {
    const at = parseInstant(timestamp);
    const text = (name: string) => (typeof metrics[name] === "string" ? metrics[name] : "");
    const kind = text("kind");
    if (at === null || !KINDS.includes(kind)) return [];
    const [finding = ""] = text("finding").split(":");
    const what = finding === "" ? metricTitle(kind) : metricTitle(finding) + (kind === "finding_closed" ? ", over" : "");
    return [{ at, shows: at + SECOND, gpu: gpu_id, host: hostname, kind, finding, namespace: null, text: [what, text("detail")].filter((part) => part !== "").join(": "), isEnd: ENDS.has(kind), about: "health" }];
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
    return [{ at, shows: since_at_least ? end : at + SECOND, gpu, host: reach.hostname, kind: "finding_opened", finding: kind, namespace: null, text, isEnd: false, about: "health" }];
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
    return [{ at, shows: at + SECOND, gpu, host: change.hostname, kind, finding: "", namespace: change.namespace, text: `${what}, ${gpus === 1 ? "1 GPU" : `${gpus} GPUs`}`, isEnd: false, about }];
  });
}

/** What of all that happened a page shows; empty or null: everything. */
export interface HappenedFilter {
  /** Hosts, between commas. */
  readonly host: string;
  readonly namespace: string;
  /** Kinds of findings, between commas. */
  readonly kind: string;
  /** Tests of the identity. */
  readonly where: string;
  /** The GPUs that the page shows, with their hosts. */
  readonly gpus: ReadonlyMap<string, string> | null;
}

/** What the server was not asked for: kinds of findings, and of jobs, which have several GPUs and name one, the hosts. */
export function fitting(all: readonly Happened[], { namespace, kind, gpus }: HappenedFilter): readonly Happened[] {
  if (namespace === "" && kind === "" && gpus === null) return all;
  const kinds = kind === "" ? null : new Set(kind.split(","));
  const hosts = gpus === null ? null : new Set(gpus.values());
  return all.filter((each) => {
    if (kinds !== null && !kinds.has(each.finding)) return false;
    if (each.about === "health") return gpus === null || gpus.has(each.gpu);
    // A driver is of all namespaces.
    if (each.about === "jobs" && namespace !== "" && each.namespace !== namespace) return false;
    return hosts === null || hosts.has(each.host ?? "");
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

type Place = Pick<HappenedFilter, "host" | "namespace" | "where">;

/** The rows of a span about GPUs whose identity fits. A server that keeps no such rows has nothing to tell. */
async function rowsOf(span: Span, { host, namespace, where }: Place, signal: AbortSignal): Promise<{ readonly rows: readonly TelemetryEntry[]; readonly partial: string | null }> {
  const tests = [...(host === "" ? [] : [`node=${host}`]), ...(namespace === "" ? [] : [whereIs("namespace", namespace)]), ...(where === "" ? [] : [where])].join(";");
  const query = {
    table: "gpu_health_events",
    kind: KINDS.join(","),
    start_time: new Date(span.start).toISOString(),
    end_time: new Date(span.end).toISOString(),
    limit: HAPPENED_MAX,
    ...(tests === "" ? {} : { where: tests }),
  };
  try {
    const answer = await api.GET("/api/v1/telemetry", { params: { query }, signal });
    return { rows: dataOf(answer).data, partial: partialOf(answer) };
  } catch (error) {
    if (isNotKept(error)) return { rows: [], partial: null };
    throw error;
  }
}

/** What is wrong as of the end of a recording, if it is one. Findings are not chosen by tests of the identity: with these nothing is said. */
async function wrongAt(end: number | null, { host, namespace, where }: Place, signal: AbortSignal): Promise<{ readonly findings: readonly Finding[]; readonly partial: string | null }> {
  if (end === null || where !== "") return { findings: [], partial: null };
  const query = { at: new Date(end).toISOString(), limit: FINDINGS_MAX, ...(host === "" ? {} : { host }), ...(namespace === "" ? {} : { namespace }) };
  const answer = await api.GET("/api/v1/analysis/findings", { params: { query }, signal });
  return { findings: dataOf(answer).findings, partial: partialOf(answer) };
}

/** What has happened in a span to GPUs whose identity fits; in a recording also what nobody has watched begin. */
export function happenedQuery(span: Span, { host, namespace, where }: Place, recordingEnd: number | null) {
  const place = { host, namespace, where };
  return queryOptions({
    queryKey: ["happened", span, place, recordingEnd],
    queryFn: async ({ signal }) => {
      const [told, wrong] = await Promise.all([rowsOf(span, place, signal), wrongAt(recordingEnd, place, signal)]);
      const opened = new Set(told.rows.filter(({ metrics }) => metrics.kind === "finding_opened").map(({ metrics }) => metrics.finding));
      const unwatched = openedOf(wrong.findings.filter(({ id }) => !opened.has(id)), span.end).filter(({ at }) => at >= span.start);
      return { all: inTime(happenedOf(told.rows), unwatched), isCut: told.rows.length >= HAPPENED_MAX, partial: told.partial ?? wrong.partial };
    },
    refetchInterval: MINUTE,
    placeholderData: keepPreviousData,
    // A span that moves each minute leaves one answer after another behind.
    gcTime: MINUTE,
  });
}
