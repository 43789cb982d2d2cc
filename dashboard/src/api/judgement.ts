import type { Gpu, Schemas } from "./client";

/**
 * How a GPU does, in the server's word: the worst open finding of it, else its state. Everything that shows a GPU or counts some says
 * it by these words and in their looks (`gpuLook.tsx`, `cells/colouring.ts`). What needs somebody first stands first.
 */
export const JUDGEMENTS = ["critical", "lost", "unhealthy", "warning", "notice", "unconfirmed", "stale", "unknown", "active", "idle"] as const satisfies readonly Schemas["GpuJudgement"][];
export type Judgement = (typeof JUDGEMENTS)[number];

export interface Verdict {
  readonly word: Judgement;
  /** Why, where the word does not say so itself. */
  readonly why: string | null;
}

/** The known words are shown each in its way; one of a newer server is shown as unknown. */
export function verdictOf({ judgement, judgement_reason: why }: Pick<Gpu, "judgement" | "judgement_reason">): Verdict {
  return { word: JUDGEMENTS.find((word) => word === judgement) ?? "unknown", why };
}

/** How many GPUs there are of each word. */
export type Counts = ReadonlyMap<Judgement, number>;

export function countsOf(judgements: Schemas["JudgementCounts"]): Counts {
  return new Map(JUDGEMENTS.map((word) => [word, judgements[word]]));
}
