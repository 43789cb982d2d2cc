import type { Finding, FindingsAsk } from "../../api/findings";
import { SEVERITIES } from "../../api/findings";
import { searchOf } from "../../shared/location";

/** What of the findings is shown; all of it stands in the address. */
export interface NowState {
  readonly severity: string;
  /** A node by name; empty is all. */
  readonly host: string;
  readonly namespace: string;
  readonly kind: string;
  /** Counted from 1. */
  readonly page: number;
}

export const DEFAULT: NowState = { severity: "", host: "", namespace: "", kind: "", page: 1 };

/** Reads the address; what is not understood is left at its default, so that an old link still opens. */
export function parseNow(search: string): NowState {
  const params = new URLSearchParams(search);
  const text = (name: string) => params.get(name) ?? "";
  const page = Number(text("page"));
  return {
    severity: SEVERITIES.find((known) => known === text("severity")) ?? "",
    host: text("host"),
    namespace: text("namespace"),
    kind: text("kind"),
    page: Number.isSafeInteger(page) && page > 0 ? page : 1,
  };
}

export function nowPath(state: NowState): string {
  const { page, ...rest } = state;
  return `/${searchOf({ ...rest, page: page > 1 ? String(page) : "" })}`;
}

export function askOf({ severity, host, namespace, kind }: NowState): FindingsAsk {
  return { severity, host, namespace, kind, gpus: "" };
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

/** `2 critical, 1 warning`: how many of each severity, the worst first. */
export function severityWords(findings: readonly Finding[]): string {
  const counts = new Map(tally(findings, (finding) => finding.severity));
  const known = SEVERITIES.filter((severity) => counts.has(severity));
  const others = [...counts.keys()].filter((severity) => !known.some((each) => each === severity));
  const words = [...known, ...others].map((severity) => {
    const count = counts.get(severity) ?? 0;
    const plural = count === 1 || severity === "critical" ? severity : `${severity}s`;
    return `${count.toLocaleString("en")} ${plural}`;
  });
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1) ?? ""}`;
}
