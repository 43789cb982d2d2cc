import { CircleHelp } from "lucide-react";
import { SEVERITIES } from "../../api/findings";
import { JUDGEMENT_LOOKS, LookBadge, type Look } from "../gpuLook";

const UNKNOWN: Look = { icon: CircleHelp, colour: "text-faint", meaning: "This page does not know this severity" };

/** A finding looks as the GPU that has it. A severity of a newer server is shown by its own word. */
export function severityLook(severity: string): Look {
  const known = SEVERITIES.find((each) => each === severity);
  return known === undefined ? UNKNOWN : JUDGEMENT_LOOKS[known];
}

export function SeverityBadge({ severity }: { readonly severity: string }) {
  return <LookBadge look={severityLook(severity)} state={severity} text={severity} reason={null} />;
}
