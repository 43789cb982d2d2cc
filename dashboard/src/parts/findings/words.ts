import type { Finding } from "../../api/findings";
import { whereIs } from "../../api/where";
import { capital, metricTitle } from "../../shared/format";
import { MINUTE } from "../../shared/time";
import { COMPARE, FLEET, GPU, HOST } from "../addresses";
import { PRESETS, type Preset } from "../range";

/** A piece of a text: prose, or a command to be typed. */
export interface Piece {
  readonly text: string;
  readonly isCommand: boolean;
}

/** Prose and the commands in it, which stand in backquotes. `index` is put in for the INDEX of the GPU where it is known. */
export function piecesOf(step: string, index: number | null): Piece[] {
  const parts = step.split("`");
  // An odd backquote at the end opens no command.
  const commands = parts.length - (parts.length % 2 === 0 ? 1 : 0);
  const filled = (text: string) => (index === null ? text : text.replace(/\bINDEX\b/g, String(index)));
  return parts
    .map((text, place) => (place % 2 === 1 && place < commands ? { text: filled(text), isCommand: true } : { text, isCommand: false }))
    .filter((piece) => piece.text !== "");
}

/** A sentence as it begins a line; a name at its beginning stays as it is written. */
export function inSentenceCase(sentence: string, name: string): string {
  const [first = ""] = sentence.split(" ");
  return /^[a-z]+$/.test(first) && !name.split(/[/ ]+/).includes(first) ? capital(sentence) : sentence;
}

/** `row_remap_pending` -> `Row remap pending`. */
export function kindTitle(kind: string): string {
  return metricTitle(kind);
}

/** Presets from the shortest. */
const LENGTHS = Object.entries(PRESETS) as [Preset, number][];
/** The shortest range that is worth a look. */
const LOOK_MIN_MS = PRESETS["15m"];

/** The shortest range up to now that shows how a finding began, with a fifth of it before; the longest if none does. */
export function rangeSince(since: number, now: number): Preset {
  const wanted = Math.max(LOOK_MIN_MS, (now - since) * 1.25);
  return LENGTHS.find(([, length]) => length >= wanted)?.[0] ?? "7d";
}

/** The range of minutes: a render every second must not change the links. */
export function gpuSince(id: string, since: number | null, now: number): string {
  const range = since === null ? null : ({ kind: "preset", preset: rangeSince(since, Math.floor(now / MINUTE) * MINUTE) } as const);
  return GPU.to({ id, range });
}

export function hostPath(host: string): string {
  return HOST.to({ name: host });
}

/** Where a finding leads: to its GPU, at its time; to its node; to the one GPU of a job; else to all GPUs. */
export function pathOf(finding: Finding, since: number | null, now: number): string {
  const { subject, reach } = finding;
  const [only, more] = reach.gpus;
  if (subject.type === "gpu") return gpuSince(subject.id, since, now);
  if (subject.type === "node") return hostPath(reach.hostname ?? subject.id);
  if (only !== undefined && more === undefined && reach.gpu_count === 1) return gpuSince(only, since, now);
  return reach.hostname === null ? FLEET.path : hostPath(reach.hostname);
}

/** The way to a GPU beside the others of its work, or else of its node; null: there are none, or it is about no single GPU. */
export function besideOf({ subject, reach }: Finding): { readonly path: string; readonly text: string } | null {
  if (subject.type !== "gpu") return null;
  if (reach.job !== null && reach.concerned_gpus > 1) {
    const where = [whereIs("job", reach.job), ...(reach.namespace === null ? [] : [whereIs("namespace", reach.namespace)])].join(";");
    return { path: COMPARE.to({ where }), text: "its job" };
  }
  return reach.hostname === null ? null : { path: COMPARE.to({ host: reach.hostname }), text: "its node" };
}

/** Whom it reaches beyond its subject, in words, and what that costs where it is known. */
export function reachWords(finding: Finding): string {
  const { gpu_count: own, concerned_gpus: concerned, user, gpu_hours_per_hour: wasted } = finding.reach;
  const gpus = (count: number) => `${count.toLocaleString("en")} ${count === 1 ? "GPU" : "GPUs"}`;
  const reached = concerned > own ? `${gpus(own)}, in work of ${gpus(concerned)}` : gpus(own);
  const whose = user === undefined ? "" : `, of ${user}`;
  const cost = wasted === undefined ? "" : `, ${wasted.toLocaleString("en", { maximumFractionDigits: 1 })} GPU hours an hour for nothing`;
  return reached + whose + cost;
}
