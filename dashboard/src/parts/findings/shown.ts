import type { Metric, QueryAnswer } from "../../api/client";
import type { Finding } from "../../api/findings";
import type { Span } from "../../api/queries";
import { frameOf, lastValue } from "../../charts/frame";
import type { GlimpseOf } from "../../charts/Glimpse";
import { isDrawn } from "../../charts/panels";
import { formatValue, metricTitle } from "../../shared/format";
import { POWER, TEMPERATURE, UTILIZATION } from "../../shared/headline";
import { formatClock, MINUTE, SECOND } from "../../shared/time";
import { limitsOf } from "../limits";
import type { CoursesAsk, Whose } from "./together";

/** What of the history shows a finding. */
export interface Shown {
  readonly column: string;
  /** Columns of its limits. */
  readonly limits: readonly string[];
  /** The GPU whose line it is; null: that of several together. */
  readonly subject: string | null;
  /** Whose courses are drawn: the subject's, or with those that it is compared with. */
  readonly whose: Whose;
  /** Who the others are, in words. */
  readonly others: string;
  /** What the value is compared with. */
  readonly beside: { readonly value: number; readonly origin: string } | null;
  /** Whether it is that nothing comes any more. */
  readonly isSilence: boolean;
}

/** Lines of one answer: more say no more about what is usual. */
const PEERS_MAX = 64;
const SEVERAL_MAX = 8;
const SILENT_KINDS: ReadonlySet<string> = new Set(["gpu_lost", "node_silent"]);
const IDLE_KINDS: ReadonlySet<string> = new Set(["idle_held", "job_stalled"]);
/** Their evidence is a code that says heat, which the temperature shows. */
const HEAT_KINDS: ReadonlySet<string> = new Set(["hardware_thermal_slowdown", "software_thermal_slowdown"]);

/** What shows a finding of a kind whose evidence has no course; null: nothing more than the others. */
function columnOf(kind: string): string | null {
  if (IDLE_KINDS.has(kind)) return UTILIZATION;
  return HEAT_KINDS.has(kind) ? TEMPERATURE : null;
}

/** By its evidence: the first value that has a course. Of a code and of silence it is what the GPU did around that time, of heat how hot it was. Null: nothing shows it. */
export function shownBy({ kind, subject, evidence, reach }: Finding, catalogue: ReadonlyMap<string, Metric>): Shown | null {
  const isSilence = SILENT_KINDS.has(kind);
  const drawn = evidence.find(({ quantity }) => {
    const metric = catalogue.get(quantity);
    return metric !== undefined && isDrawn(metric);
  });
  const isCode = evidence.some(({ quantity }) => catalogue.has(quantity));
  const column = drawn?.quantity ?? columnOf(kind) ?? (isSilence || isCode ? POWER : null);
  const metric = column === null ? undefined : catalogue.get(column);
  if (column === null || metric === undefined) return null;
  const beside = drawn?.compared_with ?? null;
  const limits = beside === null && (drawn !== undefined || HEAT_KINDS.has(kind)) ? limitsOf(metric, catalogue) : [];
  const of = { column, limits, beside, isSilence };
  if (subject.type !== "gpu") {
    if (reach.gpus.length === 0 || (subject.type !== "job" && !isSilence)) return null;
    return { ...of, subject: null, whose: { of: "gpus", gpus: reach.gpus.slice(0, SEVERAL_MAX) }, others: "" };
  }
  const { job, namespace, hostname, concerned_gpus: size } = reach;
  if (beside !== null && beside.origin.includes("job") && job !== null && size <= PEERS_MAX) {
    return { ...of, subject: subject.id, whose: { of: "job", job, namespace }, others: "others of its job" };
  }
  if (beside !== null && hostname !== null) return { ...of, subject: subject.id, whose: { of: "host", host: hostname }, others: "others of its node" };
  return { ...of, subject: subject.id, whose: { of: "gpus", gpus: [subject.id] }, others: "" };
}

const BEFORE_MS = 15 * MINUTE;
const AFTER_MS = 45 * MINUTE;
/** As many as a small picture can tell apart. */
const POINTS_MAX = 90;
/** Few, so that findings of one hour are asked for together, and such as the server has put values together by. */
const STEPS_MS = [10 * SECOND, 30 * SECOND, MINUTE];

/** The time around the beginning: to whole minutes, so that it moves once a minute, and later not at all. */
export function spanAround(since: number, now: number): Span {
  const minute = (instant: number) => Math.floor(instant / MINUTE) * MINUTE;
  return { start: minute(since - BEFORE_MS), end: Math.min(minute(now), minute(since + AFTER_MS)) };
}

export function askOf({ column, limits, whose }: Shown, span: Span): CoursesAsk {
  const stepMs = STEPS_MS.find((step) => (span.end - span.start) / step <= POINTS_MAX) ?? MINUTE;
  return { metrics: [column, ...limits], whose, stepMs, span };
}

/** What is at a share of some values; null without any. */
function quantile(values: readonly number[], share: number): number | null {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.round((sorted.length - 1) * share)] ?? null;
}

/** Of fewer others the whole range is shaded: they have no middle. */
const MIDDLE_FROM = 4;

/** The picture with what is beside the line, in words; null: nothing of it was read. */
export function glimpseOf(shown: Shown, answer: QueryAnswer, unit: string, since: number): { readonly picture: GlimpseOf; readonly legend: readonly string[] } | null {
  const { column, subject, beside } = shown;
  const courses = answer.series.filter((series) => series.metric === column);
  const at = (of: typeof courses, share: number) => answer.times.map((_, place) => quantile(of.flatMap(({ values }) => values[place] ?? []), share));
  const own = subject === null ? at(courses, 0.5) : (frameOf(answer, subject, "mean").values.get(column) ?? []);
  if (lastValue(own) === null) return null;
  const others = subject === null ? courses : courses.filter(({ gpu }) => gpu !== subject);
  const hasMiddle = subject !== null && others.length >= MIDDLE_FROM;
  const share = hasMiddle ? 0.25 : 0;
  const band = others.length < 2 ? null : { low: at(others, share), high: at(others, 1 - share) };
  const limit = shown.limits.flatMap((name) => lastValue(answer.series.find((series) => series.metric === name)?.values) ?? [])[0] ?? null;
  const title = metricTitle(column);
  const legend = [
    subject === null && courses.length > 1 ? `${title}: median and range of ${courses.length} GPUs` : title,
    ...(band !== null && subject !== null ? [`shaded: the ${hasMiddle ? "middle half" : "range"} of ${others.length} ${shown.others}`] : []),
    ...(beside === null ? [] : [`dashed: ${beside.origin}, ${formatValue(beside.value, unit)}`]),
    ...(limit === null ? [] : [`dashed: its limit, ${formatValue(limit, unit)}`]),
    shown.isSilence ? `last sample ${formatClock(since)}` : `dotted: it began at ${formatClock(since)}`,
  ];
  const picture = { label: `${legend.join("; ")}. Last ${formatValue(lastValue(own), unit)}`, unit, stepMs: answer.step_ms, times: answer.times, line: own, band, level: beside?.value ?? limit, mark: since, hasEnded: shown.isSilence };
  return { picture, legend };
}
