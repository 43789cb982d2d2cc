import type { Happened } from "../../api/happened";
import type { Health } from "../../api/client";
import type { Span } from "../../api/queries";
import { HOUR, parseInstant } from "../../shared/time";
import { csvOf } from "../csv";

/** Where on a bar of so many steps an instant lies. */
export function placeOf(at: number, { start, end }: Span, steps: number): number {
  const share = end > start ? (at - start) / (end - start) : 1;
  return Math.round(Math.min(1, Math.max(0, share)) * steps);
}

/** A mark on the bar, at thousandths of its length. */
export interface Tick {
  readonly x: number;
  readonly isEnd: boolean;
}

/** What has happened as marks, those that would lie upon each other once. */
export function ticksOf(all: readonly Happened[], span: Span): Tick[] {
  const ticks = new Map<string, Tick>();
  for (const { at, isEnd } of all) {
    const x = placeOf(at, span, 500) * 2;
    ticks.set(`${x} ${isEnd}`, { x, isEnd });
  }
  return [...ticks.values()];
}

/** Something that happened once, or again and again. */
export interface Repeat {
  /** The newest time. */
  readonly newest: Happened;
  readonly times: number;
  /** The GPUs that it happened to. */
  readonly gpus: ReadonlySet<string>;
  /** The first time. */
  readonly since: number;
}

/** What happened, the newest first: of the health of GPUs the same that came again within an hour once, at its newest time. */
export function repeatsOf(all: readonly Happened[]): readonly Repeat[] {
  const found: { newest: Happened; times: number; gpus: Set<string>; since: number }[] = [];
  const last = new Map<string, (typeof found)[number]>();
  for (const each of all) {
    const key = `${each.kind} ${each.finding} ${each.text}`;
    const same = last.get(key);
    if (same !== undefined && each.about === "health" && same.since - each.at <= HOUR) {
      same.times += 1;
      same.gpus.add(each.gpu);
      same.since = each.at;
    } else {
      const first = { newest: each, times: 1, gpus: new Set([each.gpu]), since: each.at };
      found.push(first);
      last.set(key, first);
    }
  }
  return found;
}

/** How often and on how many GPUs something happened; empty: once. */
export function repeatWords({ times, gpus }: Repeat): string {
  if (times === 1) return "";
  return gpus.size === 1 ? `×${times}` : `×${times} on ${gpus.size} GPUs`;
}

/** The nearest instants with a change before and after one; null: there is none. */
export function stepsTo(all: readonly Happened[], present: number): { readonly earlier: number | null; readonly later: number | null } {
  let [earlier, later]: [number | null, number | null] = [null, null];
  for (const { shows } of all) {
    if (shows < present && (earlier === null || shows > earlier)) earlier = shows;
    if (shows > present && (later === null || shows < later)) later = shows;
  }
  return { earlier, later };
}

/** The end of a recording, so that its last row is not later: a page knows no parts of a millisecond. Null: the rows are none. */
export function endOf(health: Health | undefined): number | null {
  const end = parseInstant(health?.recording_end);
  return end === null ? null : end + 1;
}

/** What has happened, as a file. */
export function changesCsv(all: readonly Happened[]): string {
  const rows = all.map(({ at, gpu, host, kind, finding, namespace, text }) => [new Date(at).toISOString(), gpu, host, kind, finding, namespace, text]);
  return csvOf(["time", "gpu", "host", "kind", "finding", "namespace", "text"], rows);
}
