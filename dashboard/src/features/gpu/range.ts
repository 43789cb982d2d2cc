import { AGGREGATES, type Aggregate, type Span } from "../../api/queries";
import { searchOf } from "../../shared/location";
import { DAY, HOUR, MINUTE, SECOND } from "../../shared/time";
import { stepFor } from "../../charts/axis";

export const PRESETS = { "5m": 5 * MINUTE, "15m": 15 * MINUTE, "1h": HOUR, "6h": 6 * HOUR, "24h": DAY, "7d": 7 * DAY } as const;
export type Preset = keyof typeof PRESETS;

/** Which time is looked at: the last minutes, everything there is, or from one instant to another. */
export type Range =
  | { readonly kind: "preset"; readonly preset: Preset }
  | { readonly kind: "all" }
  | { readonly kind: "custom"; readonly start: number; readonly end: number };

/** What the page of a GPU shows; all of it stands in the address. `null` leaves the choice to the data's age. */
export interface GpuState {
  readonly range: Range | null;
  readonly aggregate: Aggregate;
  readonly live: boolean | null;
  /** Whether the median of its peers is drawn. */
  readonly peers: boolean;
  /** Whether it is asked why the GPU was slow. */
  readonly why: boolean;
}

export const DEFAULT: GpuState = { range: null, aggregate: "mean", live: null, peers: true, why: false };

export function isPreset(text: string): text is Preset {
  return Object.hasOwn(PRESETS, text);
}

export function parseGpu(search: string): GpuState {
  const params = new URLSearchParams(search);
  const aggregate = AGGREGATES.find((known) => known === params.get("aggregate")) ?? "mean";
  const live = params.get("live");
  return {
    range: parseRange(params),
    aggregate,
    live: live === "1" ? true : live === "0" ? false : null,
    peers: params.get("peers") !== "0",
    why: params.get("why") === "1",
  };
}

export function parseRange(params: URLSearchParams): Range | null {
  const range = params.get("range") ?? "";
  if (isPreset(range)) return { kind: "preset", preset: range };
  if (range === "all") return { kind: "all" };
  const start = Date.parse(params.get("from") ?? "");
  const end = Date.parse(params.get("to") ?? "");
  return start < end ? { kind: "custom", start, end } : null;
}

export function gpuPath(id: string, part: Partial<GpuState> = {}): string {
  const state = { ...DEFAULT, ...part };
  return `/gpus/${encodeURIComponent(id)}${searchOf({
    ...rangeParts(state.range),
    aggregate: state.aggregate === "mean" ? "" : state.aggregate,
    live: state.live === null ? "" : state.live ? "1" : "0",
    peers: state.peers ? "" : "0",
    why: state.why ? "1" : "",
  })}`;
}

export function rangeParts(range: Range | null): Record<string, string> {
  switch (range?.kind) {
    case undefined:
      return {};
    case "preset":
      return { range: range.preset };
    case "all":
      return { range: "all" };
    case "custom":
      return { from: new Date(range.start).toISOString(), to: new Date(range.end).toISOString() };
  }
}

/** Data older than this is a recording, or of a GPU that is gone: charts look at its time, not at the empty present. */
export const RECORDED_AFTER_MS = 10 * MINUTE;

export function isRecorded(lastSeen: number | null, now: number): boolean {
  return lastSeen !== null && now - lastSeen > RECORDED_AFTER_MS;
}

/** The range when none was chosen: the last minutes; of a recording all of it if it is short, else its last hour. */
export function defaultRange(recorded: boolean, all: Span | null): Range {
  if (!recorded) return { kind: "preset", preset: "15m" };
  const short = all !== null && all.end - all.start <= HOUR;
  return short ? { kind: "all" } : { kind: "preset", preset: "1h" };
}

/** The span of time a range means. `anchor` is now, or the last sample of a recording; `all` is what is stored. */
export function spanOf(range: Range, anchor: number, all: Span | null): Span {
  switch (range.kind) {
    case "preset":
      return { start: anchor - PRESETS[range.preset], end: anchor };
    case "custom":
      return { start: range.start, end: range.end };
    case "all":
      return all === null ? { start: anchor - HOUR, end: anchor } : aired(all);
  }
}

/** A little air on both sides, so that the first and last point do not stick to the frame. */
function aired(span: Span): Span {
  const air = Math.max(5 * SECOND, (span.end - span.start) * 0.02);
  return { start: span.start - air, end: span.end + air };
}

/** Points a line has at most; a screen shows no more. */
export const POINTS_MAX = 360;

export function stepOf(span: Span): number {
  return stepFor(span.end - span.start, POINTS_MAX);
}

/** The server explains at most a day. */
export const WHY_MAX_MS = DAY;

/** A live chart can only show the present. */
export function canBeLive(range: Range): boolean {
  return range.kind === "preset";
}
