import { formatBits, formatNumber, metricTitle } from "../shared/format";
import { bridged, type Frame } from "./frame";
import { isCode, type CatalogueRow } from "./panels";

/** A time in which something held the clocks down, as far as the steps of a chart tell it apart. */
export interface ThrottleSpan {
  readonly start: number;
  readonly end: number;
  /** Reasons by name; empty where the source gives none. */
  readonly reasons: readonly string[];
  readonly weight: ThrottleWeight;
}

/** A GPU at its power limit does what it was bought for; heat and hardware call somebody. Without a reason nobody knows. */
export const THROTTLE_WEIGHTS = ["loud", "plain", "quiet"] as const;
export type ThrottleWeight = (typeof THROTTLE_WEIGHTS)[number];

/** Something that happened to the GPU. */
export interface EventMark {
  readonly at: number;
  /** As the server judges it; null where it says nothing of it. */
  readonly severity: string | null;
  readonly text: string;
}

/** Something of which more is kept than the charts show. */
export interface IncidentMark extends EventMark {
  /** The way to it. */
  readonly path: string;
}

/** What stands above the lines of every chart of a GPU, the oldest first. */
export interface Marks {
  readonly spans: readonly ThrottleSpan[];
  readonly events: readonly EventMark[];
  /** Where a code became another one. */
  readonly changes: readonly EventMark[];
  readonly incidents: readonly IncidentMark[];
  /** Why marks may be missing; empty: none are. */
  readonly doubt: string;
}

export const NO_MARKS: Marks = { spans: [], events: [], changes: [], incidents: [], doubt: "" };

const GROUP = "throttle";

/**
 * Whether a metric tells of throttling: by the catalogue a state of that group, or a counter of a reason. Counters outside
 * the standard series also grow while a GPU has too little work, which is no throttling.
 */
export function tellsOfThrottling(row: CatalogueRow): boolean {
  if (row.group !== GROUP || row.bits.length > 0) return false;
  return row.instrument === "state" || (row.instrument === "counter" && reasonOf(row) !== null && row.series !== "all");
}

function reasonOf(row: CatalogueRow): string | null {
  return row.prometheus.labels.reason ?? null;
}

/** Reasons of the catalogue that are no power limit but heat or a fault of board and supply. */
const LOUD = /thermal|^hw_|prochot/;
const QUIET = /power|ppt/;

function weightOf(reasons: readonly string[]): ThrottleWeight {
  if (reasons.some((reason) => LOUD.test(reason))) return "loud";
  return reasons.length > 0 && reasons.every((reason) => QUIET.test(reason)) ? "quiet" : "plain";
}

/**
 * The steps of a frame that were throttled, neighbours with the same reasons as one span. A state throttles while it is not
 * 0, a counter where it grew. A gap in the data has no mark.
 */
export function throttleSpans(frame: Frame, rows: readonly CatalogueRow[]): ThrottleSpan[] {
  const { times, stepMs } = frame;
  // Of each step the reasons; none: it was not throttled.
  const steps = times.map((): Set<string> | null => null);
  for (const row of rows.filter(tellsOfThrottling)) {
    const values = bridged(times, frame.values.get(row.column) ?? [], stepMs);
    const reason = reasonOf(row);
    throttled(values, row.instrument === "counter").forEach((is, place) => {
      if (!is) return;
      const reasons = steps[place] ?? new Set<string>();
      if (reason !== null) reasons.add(reason);
      steps[place] = reasons;
    });
  }
  const spans: ThrottleSpan[] = [];
  steps.forEach((set, place) => {
    const start = times[place];
    if (set === null || start === undefined) return;
    const weight = weightOf([...set]);
    const reasons = [...set].map(metricTitle).sort();
    const before = spans.at(-1);
    if (before?.end === start && before.reasons.join() === reasons.join()) spans[spans.length - 1] = { ...before, end: start + stepMs };
    else spans.push({ start, end: start + stepMs, reasons, weight });
  });
  return spans;
}

/**
 * Where codes became others, the oldest first. States of throttling have the band. What a mask of reasons says the band says as
 * well, where other columns name the reasons.
 */
export function codeChanges(frame: Frame, rows: readonly CatalogueRow[], spans: readonly ThrottleSpan[]): EventMark[] {
  const isNamed = spans.some(({ reasons }) => reasons.length > 0);
  const changes = rows.filter(isCode).flatMap((row): EventMark[] => {
    if (row.group === GROUP && (row.bits.length === 0 || isNamed)) return [];
    const words = (value: number) => (row.bits.length > 0 ? formatBits(value, row.bits) : formatNumber(value));
    let before: number | null = null;
    return (frame.values.get(row.column) ?? []).flatMap((value, place) => {
      const at = frame.times[place];
      if (value === null || at === undefined) return [];
      const was = before;
      before = value;
      return was === null || was === value ? [] : [{ at, severity: null, text: `${metricTitle(row.column)}: ${words(was)} → ${words(value)}` }];
    });
  });
  return changes.sort((a, b) => a.at - b.at);
}

/** Which steps were throttled by the values of one metric. Steps that a slow source leaves out go with their neighbours. */
function throttled(values: readonly (number | null | undefined)[], isCounter: boolean): boolean[] {
  const is = values.map(() => false);
  let before: number | null = null;
  let next = 0;
  values.forEach((value, place) => {
    if (value === undefined) return;
    if (value === null) before = null;
    else if (isCounter) {
      // It grew at some time since the value before.
      if (before !== null && value > before) is.fill(true, next, place + 1);
      before = value;
    } else {
      // A state stays until the next value.
      if (before !== null && before > 0) is.fill(true, next, place);
      is[place] = value > 0;
      before = value;
    }
    next = place + 1;
  });
  return is;
}

/** Time that the spans cover, in ms. */
export function throttledMs(spans: readonly ThrottleSpan[]): number {
  return spans.reduce((sum, { start, end }) => sum + end - start, 0);
}

export function reasonsOf(spans: readonly ThrottleSpan[]): string[] {
  return [...new Set(spans.flatMap((span) => span.reasons))].sort();
}

/** What held the clocks down at an instant, in words; empty: nothing. */
export function throttleWords(spans: readonly ThrottleSpan[], at: number): string {
  const span = spans.find(({ start, end }) => start <= at && at < end);
  if (span === undefined) return "";
  return span.reasons.length === 0 ? "throttled" : `throttled: ${span.reasons.join(", ")}`;
}

export function eventsNear(events: readonly EventMark[], at: number, distance: number): EventMark[] {
  return events.filter((event) => Math.abs(event.at - at) <= distance);
}

/** An incident, and where it stands in a span, as a share of it. */
export interface PlacedIncident {
  readonly incident: IncidentMark;
  readonly share: number;
}

/** Marks that lead somewhere are so far apart at least, as a share of the span: a finger has to meet one of them. */
const APART = 0.04;

/** The incidents of a span whose marks do not lie upon each other: of those that would, the newest. */
export function placedIncidents(incidents: readonly IncidentMark[], start: number, end: number): PlacedIncident[] {
  const placed: PlacedIncident[] = [];
  for (const incident of [...incidents].sort((a, b) => b.at - a.at)) {
    const share = (incident.at - start) / (end - start);
    const after = placed.at(-1);
    if (share >= 0 && share <= 1 && (after === undefined || after.share - share >= APART)) placed.push({ incident, share });
  }
  return placed;
}

/** How an event is drawn: filled or hollow, large or small, so that severities differ without colours too. */
export interface EventLook {
  /** Custom property with the colour. */
  readonly colour: string;
  readonly size: number;
  readonly isFilled: boolean;
}

const LOOKS: Readonly<Record<string, EventLook>> = {
  critical: { colour: "--bad", size: 10, isFilled: true },
  warning: { colour: "--warn", size: 7, isFilled: true },
  notice: { colour: "--calm", size: 7, isFilled: false },
};
const PLAIN: EventLook = { colour: "--muted", size: 7, isFilled: false };
/** How a time of throttling is drawn. */
interface ThrottleLook {
  /** Custom property with the colour. */
  readonly colour: string;
  /** In CSS pixels: what is loud is larger without colours too. */
  readonly height: number;
}

const THROTTLE_LOOKS: Readonly<Record<ThrottleWeight, ThrottleLook>> = {
  loud: { colour: "--bad", height: 4 },
  plain: { colour: "--throttle", height: 4 },
  quiet: { colour: "--calm", height: 2 },
};

export function throttleLook(weight: ThrottleWeight): ThrottleLook {
  return THROTTLE_LOOKS[weight];
}

export function eventLook(severity: string | null): EventLook {
  return (severity === null ? undefined : LOOKS[severity]) ?? PLAIN;
}

/** Room above the lines that the marks need, in CSS pixels. */
export const MARKS_HEIGHT = 18;
const BAND_HEIGHT = 4;
const CHANGE_HEIGHT = 5;
const INCIDENT_SIZE = 12;
/** Custom property with the colour of an incident. */
export const INCIDENT_COLOUR = "--accent";
/** Between band and lines, and between triangles and band. */
const AIR = 1;
/** A short span must be seen too. */
const WIDTH_MIN = 2;

/** As much of a plot as the marks need. */
export interface Surface {
  readonly ctx: CanvasRenderingContext2D;
  /** The plotting area, in pixels of the canvas. */
  readonly bbox: { readonly left: number; readonly top: number; readonly width: number };
  readonly valToPos: (value: number, scale: string, canvasPixels: boolean) => number;
}

/**
 * Draws the marks into the room above the lines: spans as a band, and above it events as triangles that point to their instant. An incident
 * is a diamond behind the triangle of what caused it.
 */
export function paintMarks({ ctx, bbox, valToPos }: Surface, { spans, events, changes, incidents }: Marks, ratio: number, colourOf: (name: string) => string): void {
  const [left, right] = [bbox.left, bbox.left + bbox.width];
  const band = bbox.top - (AIR + BAND_HEIGHT) * ratio;
  const foot = band - AIR * ratio;
  ctx.save();
  // The plot leaves its last line's dashes behind.
  ctx.setLineDash([]);
  for (const { start, end, weight } of spans) {
    const { colour, height } = throttleLook(weight);
    ctx.fillStyle = colourOf(colour);
    // Whole pixels: no seam shows between neighbours.
    const from = Math.max(left, Math.floor(valToPos(start, "x", true)));
    const to = Math.min(right, Math.ceil(valToPos(end, "x", true)));
    if (to > left && from < right) ctx.fillRect(from, band + (BAND_HEIGHT - height) * ratio, Math.max(to - from, WIDTH_MIN * ratio), height * ratio);
  }
  ctx.fillStyle = colourOf(PLAIN.colour);
  for (const { at } of changes) {
    const x = valToPos(at, "x", true);
    if (x >= left && x <= right) ctx.fillRect(Math.round(x), foot - CHANGE_HEIGHT * ratio, ratio, CHANGE_HEIGHT * ratio);
  }
  ctx.fillStyle = colourOf(INCIDENT_COLOUR);
  for (const { at } of incidents) {
    const x = valToPos(at, "x", true);
    if (x < left || x > right) continue;
    const half = (INCIDENT_SIZE / 2) * ratio;
    ctx.beginPath();
    ctx.moveTo(x, foot - 2 * half);
    ctx.lineTo(x + half, foot - half);
    ctx.lineTo(x, foot);
    ctx.lineTo(x - half, foot - half);
    ctx.closePath();
    ctx.fill();
  }
  // The worst last, and what is hollow before what is filled: they lie above what happened at the same time.
  const looks = events.map(({ at, severity }) => ({ at, ...eventLook(severity) })).sort((a, b) => a.size - b.size || Number(a.isFilled) - Number(b.isFilled));
  for (const { at, colour, size, isFilled } of looks) {
    const x = valToPos(at, "x", true);
    if (x < left || x > right) continue;
    const half = (size / 2) * ratio;
    ctx.beginPath();
    ctx.moveTo(x - half, foot - size * ratio);
    ctx.lineTo(x + half, foot - size * ratio);
    ctx.lineTo(x, foot);
    ctx.closePath();
    ctx.fillStyle = colourOf(isFilled ? colour : "--card");
    ctx.fill();
    ctx.strokeStyle = colourOf(colour);
    ctx.lineWidth = ratio;
    ctx.stroke();
  }
  ctx.restore();
}
