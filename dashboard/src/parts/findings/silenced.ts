import type { Finding, Silence, Silenced } from "../../api/findings";
import { DAY, formatDay, formatInstant, HOUR, parseField, parseInstant, toField } from "../../shared/time";

/** How long a silence lasts. */
export const LASTS = ["closes", "1h", "8h", "tomorrow", "typed"] as const;
export type Lasts = (typeof LASTS)[number];

/** What each of them is called. */
export const LASTS_WORDS: Readonly<Record<Lasts, string>> = {
  closes: "until it closes",
  "1h": "for 1 hour",
  "8h": "for 8 hours",
  tomorrow: "until tomorrow, 9:00",
  typed: "until …",
};

/** When a silence that begins now ends; null: when the finding closes; not a number: nothing is typed. */
export function endOf(lasts: Lasts, typed: string, now: number): number | null {
  switch (lasts) {
    case "closes":
      return null;
    case "1h":
      return now + HOUR;
    case "8h":
      return now + 8 * HOUR;
    case "tomorrow":
      return parseField(`${formatDay(now + DAY)}T09:00`);
    case "typed":
      return parseField(typed);
  }
}

/** What can be silenced at a finding: itself, and its host and job with all that is found about them. */
export function silencedBy({ id, subject, reach }: Finding): Silenced[] {
  const host = subject.type === "node" ? subject.id : [reach.cluster, reach.hostname].filter((part) => part !== null).join("/");
  const holder = reach.job ?? reach.pod;
  const job = subject.type === "job" ? subject.id : holder === null ? "" : [reach.cluster, reach.namespace, holder].map((part) => part ?? "").join("/");
  return [
    { type: "finding", id },
    ...(host === "" || (reach.hostname === null && subject.type !== "node") ? [] : [{ type: "host", id: host } as const]),
    ...(job === "" ? [] : [{ type: "job", id: job } as const]),
  ];
}

/** `host node-7`, `job research/train-7`, `this finding`. */
export function silencedWords({ type, id }: Pick<Silence, "type" | "id">): string {
  return type === "finding" ? "this finding" : `${type} ${id.replace(/^\/+/, "")}`;
}

/** ` until 09:00`; nothing where it has no end. */
export function untilWords({ until }: Silence, now: number): string {
  const at = parseInstant(until);
  return at === null ? "" : ` until ${formatInstant(at, now)}`;
}

/** The value of the field for a typed end, at first. */
export function typedAt(now: number): string {
  return toField(now + 8 * HOUR).slice(0, 16);
}
