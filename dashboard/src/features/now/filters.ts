import { SEVERITIES, type Finding, type FindingsAsk } from "../../api/findings";
import type { HappenedFilter } from "../../api/happened";
import type { NowState } from "../../parts/addresses";

export function askOf({ severity, host, namespace, kind }: NowState): FindingsAsk {
  return { severity, host, namespace, kind, gpus: "" };
}

/** The same filters, of what has happened. */
export function happenedOf({ host, namespace, kind }: NowState): HappenedFilter {
  return { host, namespace, kind, where: "", gpus: null };
}

export function isFiltered(state: NowState): boolean {
  return state.severity !== "" || state.host !== "" || state.namespace !== "" || state.kind !== "";
}

/** The node that a finding is about, or on which what it is about is. */
export function hostOf(finding: Finding): string | null {
  return finding.reach.hostname;
}

/** What occurs among findings and how often, by name. */
export function tally(findings: readonly Finding[], of: (finding: Finding) => string | null): (readonly [string, number])[] {
  const counts = new Map<string, number>();
  for (const finding of findings) {
    const name = of(finding);
    if (name !== null) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return [...counts].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
}

/** `2 critical findings and 1 warning`: how many of each severity, the worst first. */
export function severityWords(findings: readonly Finding[]): string {
  const counts = new Map(tally(findings, (finding) => finding.severity));
  const known = SEVERITIES.filter((severity) => counts.has(severity));
  const others = [...counts.keys()].filter((severity) => !known.some((each) => each === severity));
  const words = [...known, ...others].map((severity) => {
    const count = counts.get(severity) ?? 0;
    const noun = severity === "warning" || severity === "notice" ? severity : `${severity} finding`;
    return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
  });
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1) ?? ""}`;
}
