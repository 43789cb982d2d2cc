import type { Finding } from "../../api/findings";
import { severityWords } from "./filters";

/** How the fleet does, in one sentence. */
export interface Headline {
  readonly mood: "well" | "ill" | "unclear";
  readonly text: string;
  readonly more: string;
}

export interface FleetFacts {
  readonly findings: readonly Finding[];
  /** How many GPUs there are in all, `null` where they were not counted; so are the others. */
  readonly total: number | null;
  readonly unhealthy: number | null;
  readonly stale: number | null;
  /** How many findings there are, also those beyond the limit of an answer. */
  readonly found: number;
  /** Why what is known may not be all or not be true any more; empty: it is. */
  readonly doubts: readonly string[];
}

function gpus(count: number): string {
  return `${count.toLocaleString("en")} ${count === 1 ? "GPU" : "GPUs"}`;
}

/** All is well only where everything was read lately, and neither a finding nor the state of a GPU says otherwise. */
export function headlineOf({ findings, total, unhealthy, stale, found, doubts }: FleetFacts): Headline {
  const doubt = doubts.join(" ");
  if (found > 0) {
    const counted = found > findings.length ? `${found.toLocaleString("en")} findings` : severityWords(findings);
    const of = total === null ? "" : ` among ${gpus(total)}`;
    return { mood: "ill", text: `${counted}${of}`, more: doubt };
  }
  if (doubt !== "") return { mood: "unclear", text: "Nothing is known to be wrong, but not everything is known", more: doubt };
  if (total === null || unhealthy === null || stale === null) return { mood: "unclear", text: "No findings", more: "The GPUs were not counted yet." };
  if (total === 0) return { mood: "unclear", text: "No GPUs yet", more: "They appear here with their first sample." };
  if (unhealthy > 0) {
    const more = "No finding has opened: a finding must hold for a while. Their reasons stand in the list of GPUs.";
    return { mood: "ill", text: `${gpus(unhealthy)} of ${total.toLocaleString("en")} ${unhealthy === 1 ? "is" : "are"} unhealthy`, more };
  }
  if (stale > 0) {
    const text = stale === total ? `None of ${gpus(total)} reports any more` : `${gpus(stale)} of ${total.toLocaleString("en")} ${stale === 1 ? "does" : "do"} not report`;
    return { mood: "unclear", text, more: "Nothing else is known to be wrong. Of a recording that was read in this is how it should be." };
  }
  return { mood: "well", text: "All is well", more: total === 1 ? "The one GPU reports, and nothing is wrong with it." : `All ${gpus(total)} report, and nothing is wrong with any of them.` };
}
