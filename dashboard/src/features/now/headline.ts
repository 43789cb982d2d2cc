import { SEVERITIES, type Finding } from "../../api/findings";
import type { Judgement } from "../../api/judgement";
import type { FleetCounts } from "../../parts/counts";
import { severityWords } from "./filters";

/** How the fleet does, in one sentence. */
export interface Headline {
  /** Of findings the severity of the worst: the headline has the colour of the cells and cards below it. */
  readonly mood: "well" | "unclear" | (typeof SEVERITIES)[number];
  readonly text: string;
  readonly more: string;
}

export interface FleetFacts {
  readonly findings: readonly Finding[];
  readonly counts: FleetCounts;
  /** How many findings there are, also those beyond the limit of an answer. */
  readonly found: number;
  /** Why what is known may not be all or not be true any more; empty: it is. */
  readonly doubts: readonly string[];
  /** Whether the fleet is that of an instant of the past. */
  readonly isPast: boolean;
}

function gpus(count: number): string {
  return `${count.toLocaleString("en")} ${count === 1 ? "GPU" : "GPUs"}`;
}

/** The words of GPUs that a finding is about. */
const CONCERNED = ["critical", "lost", "warning", "notice"] as const satisfies readonly Judgement[];

/** All is well only where everything was read lately, and neither a finding nor the state of a GPU says otherwise. */
export function headlineOf({ findings, counts: { byWord, total }, found, doubts, isPast }: FleetFacts): Headline {
  const doubt = doubts.join(" ");
  const counted = (word: Judgement) => byWord.get(word) ?? 0;
  if (found > 0) {
    const words = found > findings.length ? `${found.toLocaleString("en")} findings` : severityWords(findings);
    const concerned = CONCERNED.reduce((sum, word) => sum + counted(word), 0);
    const of = total === null ? "" : concerned === 0 ? ` among ${gpus(total)}` : ` about ${concerned.toLocaleString("en")} of ${gpus(total)}`;
    // A severity of a newer server may be anything.
    const worst = SEVERITIES.find((severity) => findings.some((finding) => finding.severity === severity)) ?? "critical";
    return { mood: worst, text: `${words}${of}`, more: doubt };
  }
  if (doubt !== "") return { mood: "unclear", text: "Nothing is known to be wrong, but not everything is known", more: doubt };
  if (total === null) return { mood: "unclear", text: "No findings", more: "The GPUs were not counted yet." };
  if (total === 0 && isPast) return { mood: "unclear", text: "No GPU had reported by then", more: "Their history begins later." };
  if (total === 0) return { mood: "unclear", text: "No GPUs yet", more: "They appear here with their first sample." };
  const [unhealthy, unconfirmed, stale] = [counted("unhealthy"), counted("unconfirmed"), counted("stale")];
  const wait = "No finding has opened: a finding must hold for a while. Their reasons stand in the list of GPUs.";
  if (unhealthy > 0) return { mood: "critical", text: `${gpus(unhealthy)} of ${total.toLocaleString("en")} ${unhealthy === 1 ? "is" : "are"} unhealthy`, more: wait };
  if (unconfirmed > 0) return { mood: "unclear", text: `No findings, but the last reading of ${gpus(unconfirmed)} shows an error`, more: wait };
  if (stale > 0) {
    const text = stale === total ? `None of ${gpus(total)} reports any more` : `${gpus(stale)} of ${total.toLocaleString("en")} ${stale === 1 ? "does" : "do"} not report`;
    return { mood: "unclear", text, more: "Nothing else is known to be wrong. Of a recording that was read in this is how it should be." };
  }
  return { mood: "well", text: "All is well", more: total === 1 ? "The one GPU reports, and nothing is wrong with it." : `All ${gpus(total)} report, and nothing is wrong with any of them.` };
}
