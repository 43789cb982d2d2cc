import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { Gpu } from "../api/client";
import { ALL_FINDINGS, findingsQuery, isWhole, namesAllGpus, SEVERITIES, type Finding, type FindingsAnswer, type Severity } from "../api/findings";
import { stateOf, type State } from "../api/queries";

/**
 * How a GPU does: the worst open finding of it, else its state. Everything that shows a GPU or counts some says it by these words
 * and in their looks (`gpuLook.tsx`, `cells/colouring.ts`). What needs somebody first stands first.
 */
export const JUDGEMENTS = ["critical", "lost", "unhealthy", "warning", "notice", "unconfirmed", "stale", "unknown", "active", "idle"] as const;
export type Judgement = (typeof JUDGEMENTS)[number];

/** What is judged. */
export interface Judged {
  readonly id: string;
  readonly host: string | null;
  readonly state: State;
  /** Why it has this state, where the state does not say so itself. */
  readonly reason: string | null;
}

export interface Verdict {
  readonly word: Judgement;
  /** Why, where the word does not say so itself. */
  readonly why: string | null;
}

/** `critical, XID 63`. */
export function verdictWords({ word, why }: Verdict): string {
  return why === null ? word : `${word}, ${why}`;
}

/** Whether its values are old: they say how it was when it was last seen. */
export function isSilent({ word }: Verdict): boolean {
  return word === "lost" || word === "stale";
}

export interface Judge {
  readonly of: (gpu: Judged) => Verdict;
  /** The worst finding that names it. */
  readonly findingOf: (id: string) => Finding | null;
  /** Whether the findings are all known, with every GPU that they are about: only then one that none names has none. */
  readonly isSure: boolean;
}

const GPU_LOST = "gpu_lost";
const NODE_SILENT = "node_silent";
const FLEET_SILENT = "fleet_silent";

/** A severity of a newer server is at least worth a look. */
const severityOf = ({ severity }: Finding): Severity => SEVERITIES.find((known) => known === severity) ?? "warning";
const rankOf = (finding: Finding) => SEVERITIES.indexOf(severityOf(finding));

/**
 * Judges by these findings. A reading alone condemns nothing: where the findings are sure and none names the GPU, an unhealthy state is
 * unconfirmed, since a finding opens only after it held for a while. Silence is told by its host too: the server names 16 GPUs of a finding.
 */
export function judgeOf(answer: FindingsAnswer, isSure = namesAllGpus(answer)): Judge {
  const worst = new Map<string, Finding>();
  const lost = new Map<string, Finding>();
  const silent = new Map<string, Finding>();
  let all: Finding | null = null;
  for (const finding of answer?.findings ?? []) {
    const { kind, reach } = finding;
    if (kind === FLEET_SILENT) all = finding;
    if (kind === NODE_SILENT && reach.hostname !== null) silent.set(reach.hostname, finding);
    for (const gpu of reach.gpus) {
      if (kind === GPU_LOST) lost.set(gpu, finding);
      const before = worst.get(gpu);
      // Those that somebody looks after stand last, whatever their severity.
      if (before === undefined || rankOf(finding) < rankOf(before)) worst.set(gpu, finding);
    }
  }
  const silenceOf = ({ id, host, state }: Judged) => lost.get(id) ?? (state === "stale" ? (silent.get(host ?? "") ?? all) : null);
  return {
    isSure,
    findingOf: (id) => worst.get(id) ?? null,
    of: (gpu) => {
      const silence = silenceOf(gpu);
      if (silence !== null) return { word: "lost", why: gpu.reason ?? silence.sentence };
      const finding = worst.get(gpu.id);
      if (finding !== undefined) return { word: severityOf(finding), why: reasonOf(gpu, finding) };
      return { word: gpu.state === "unhealthy" && isSure ? "unconfirmed" : gpu.state, why: gpu.reason };
    },
  };
}

/** The reason of the state tells every condition, where the finding is one of them. */
function reasonOf({ reason }: Judged, { sentence }: Finding): string {
  return reason?.includes(sentence) === true ? reason : sentence;
}

/** What of a GPU is judged. */
export function judgedOf(gpu: Gpu): Judged {
  return { id: gpu.id, host: gpu.hostname, state: stateOf(gpu), reason: gpu.state_reason };
}

/** Of a GPU by the findings that were asked for as its own: all of them are about it, whichever GPUs they name. */
export function verdictOf(gpu: Judged, own: FindingsAnswer): Verdict {
  const findings = own?.findings.map((finding) => ({ ...finding, reach: { ...finding.reach, gpus: [gpu.id] } })) ?? [];
  return judgeOf(own && { ...own, findings }, isWhole(own)).of(gpu);
}

/** The judge by all open findings, and what is known of them. */
export function useJudge() {
  const found = useQuery(findingsQuery(ALL_FINDINGS));
  const judge = useMemo(() => judgeOf(found.data), [found.data]);
  return { judge, found };
}

/** How many GPUs there are of each word. */
export type Counts = ReadonlyMap<Judgement, number>;

export function countsOf(gpus: readonly Judged[], judge: Judge): Counts {
  const counts = new Map<Judgement, number>();
  for (const gpu of gpus) {
    const { word } = judge.of(gpu);
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  return counts;
}

/** Words that are told also where no GPU has them. */
const ALWAYS: ReadonlySet<Judgement> = new Set(["critical", "lost", "warning", "active", "idle"]);

/** The words whose counts are shown, the worst first: those that some GPU has, and a few always. */
export function toldOf(counts: ReadonlyMap<Judgement, number | null>): Judgement[] {
  return JUDGEMENTS.filter((word) => ALWAYS.has(word) || (counts.get(word) ?? 0) > 0);
}

/** The state that every GPU of a word has; null: they have several. */
export function stateBehind(word: Judgement): State | null {
  if (word === "critical" || word === "lost" || word === "warning" || word === "notice") return null;
  return word === "unconfirmed" ? "unhealthy" : word;
}

/** Whether a GPU is among those that were chosen. */
export function isChosen(gpu: Judged, chosen: string, judge: Judge): boolean {
  return chosen === "" || judge.of(gpu).word === chosen;
}
