import { CircleHelp, Info, OctagonAlert, TriangleAlert } from "lucide-react";
import { SEVERITIES, type Severity } from "../../api/findings";
import type { Look } from "../gpuLook";
import { LookBadge } from "../gpuLook";

export const SEVERITY_LOOKS: Readonly<Record<Severity, Look>> = {
  critical: { icon: OctagonAlert, colour: "text-bad", meaning: "Something fails, or its results may be wrong" },
  warning: { icon: TriangleAlert, colour: "text-warn", meaning: "It needs attention" },
  notice: { icon: Info, colour: "text-calm", meaning: "It costs speed or money" },
};
const UNKNOWN: Look = { icon: CircleHelp, colour: "text-faint", meaning: "This page does not know this severity" };

/** A severity of a newer server is shown by its own word. */
export function severityLook(severity: string): Look {
  const known = SEVERITIES.find((each) => each === severity);
  return known === undefined ? UNKNOWN : SEVERITY_LOOKS[known];
}

export function SeverityBadge({ severity }: { readonly severity: string }) {
  return <LookBadge look={severityLook(severity)} state={severity} text={severity} reason={null} />;
}
