import { JUDGEMENTS, type Counts, type Judgement, type Verdict } from "../api/judgement";

/** `critical, XID 63` */
export function verdictWords({ word, why }: Verdict): string {
  return why === null ? word : `${word}, ${why}`;
}

/** Whether its values are old: they say how it was when it was last seen. */
export function isSilent({ word }: Verdict): boolean {
  return word === "lost" || word === "stale";
}

/** Words that are told also where no GPU has them. */
const ALWAYS: ReadonlySet<Judgement> = new Set(["critical", "lost", "warning", "active", "idle"]);

/** The words whose counts are shown, the worst first: those that some GPU has, and a few always. */
export function toldOf(counts: Counts): Judgement[] {
  return JUDGEMENTS.filter((word) => ALWAYS.has(word) || (counts.get(word) ?? 0) > 0);
}
