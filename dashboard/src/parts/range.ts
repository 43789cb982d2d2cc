import type { Span } from "../api/queries";
import { stepFor } from "../charts/axis";
import type { Field } from "../shared/address";
import { DAY, HOUR, MINUTE, parseInstant, SECOND } from "../shared/time";

export const PRESETS = { "5m": 5 * MINUTE, "15m": 15 * MINUTE, "1h": HOUR, "6h": 6 * HOUR, "24h": DAY, "7d": 7 * DAY } as const;
export type Preset = keyof typeof PRESETS;

/** Which time is looked at: the last minutes, everything there is, or from one instant to another. */
export type Range =
  | { readonly kind: "preset"; readonly preset: Preset }
  | { readonly kind: "all" }
  | { readonly kind: "custom"; readonly start: number; readonly end: number };

export function isPreset(text: string): text is Preset {
  return Object.hasOwn(PRESETS, text);
}

/** A range in an address: `range=6h`, `range=all`, or `from` and `to`. */
export function range<Fallback extends Range | null>(fallback: Fallback): Field<Range | Fallback> {
  const known = `range ${Object.keys(PRESETS).join(", ")} or all; or from and to, instants of which the first is earlier`;
  return { fallback, parameters: ["range", "from", "to"], known, read: readRange, write: writeRange };
}

function readRange(params: URLSearchParams): Range | null {
  const said = params.get("range") ?? "";
  if (isPreset(said)) return { kind: "preset", preset: said };
  if (said === "all") return { kind: "all" };
  const start = Date.parse(params.get("from") ?? "");
  const end = Date.parse(params.get("to") ?? "");
  return start < end ? { kind: "custom", start, end } : null;
}

function writeRange(said: Range | null): Record<string, string> {
  switch (said?.kind) {
    case undefined:
      return {};
    case "preset":
      return { range: said.preset };
    case "all":
      return { range: "all" };
    case "custom":
      return { from: new Date(said.start).toISOString(), to: new Date(said.end).toISOString() };
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

/** Where ranges of many GPUs end: now (null), or of a recording at its last sample. */
export function anchorOf(hosts: readonly { readonly last_seen: string }[], now: number): number | null {
  const seen = hosts.reduce((most, host) => Math.max(most, parseInstant(host.last_seen) ?? 0), 0);
  return seen > 0 && isRecorded(seen, now) ? seen : null;
}

/** A range up to an anchor as it is asked for; without one a preset moves with the present. */
export function askedRange(range: Range, anchor: number | null): Span | { readonly lengthMs: number } {
  if (range.kind === "custom") return { start: range.start, end: range.end };
  const lengthMs = PRESETS[range.kind === "preset" ? range.preset : "24h"];
  return anchor === null ? { lengthMs } : { start: anchor - lengthMs, end: anchor };
}
