import type { Schemas } from "../../api/client";
import { SEVERITIES, type Finding, type Severity } from "../../api/findings";
import { countsOf, JUDGEMENTS, type Counts, type Judgement } from "../../api/judgement";
import type { HostLoad, HostRoom } from "../../api/queries";
import { compareText } from "../../parts/order";

export type Host = Schemas["Host"];

/** A host with what is wrong there. */
export interface HostRow {
  readonly host: Host;
  /** How many; null: not known, since not all findings are read. */
  readonly findings: number | null;
  /** The worst of the findings; null: there are none. */
  readonly worst: Severity | null;
  /** How its GPUs do. */
  readonly counts: Counts;
  /** How much work it can take; null: not known. */
  readonly room: HostRoom | null;
  /** What the host itself does; null: no agent reports it. */
  readonly load: HostLoad | null;
}

/** What is known of hosts beside their list. */
export interface HostFacts {
  readonly findings: readonly Finding[];
  /** Whether these are all findings: only then a host that none of them names has none. */
  readonly isWhole: boolean;
  readonly rooms: ReadonlyMap<string, HostRoom>;
  readonly loads: ReadonlyMap<string, HostLoad>;
}

/** What follows the host in the name of a GPU: a search for `node / GPU 6` or `node:gpu6` finds its host. */
const OF_GPU = /(?: \/ gpu ?\d*|:gpu\d*)$/;

/** The hosts that are searched for, the most trouble first. */
export function hostRows(hosts: readonly Host[], { findings, isWhole, rooms, loads }: HostFacts, search: string): HostRow[] {
  const trouble = new Map<string, { count: number; worst: number }>();
  for (const { reach, severity } of findings) {
    if (reach.hostname === null) continue;
    const rank = SEVERITIES.findIndex((known) => known === severity);
    const before = trouble.get(reach.hostname) ?? { count: 0, worst: SEVERITIES.length };
    trouble.set(reach.hostname, { count: before.count + 1, worst: rank < 0 ? before.worst : Math.min(before.worst, rank) });
  }
  const words = search.trim().toLowerCase().replace(OF_GPU, "");
  const rows = hosts
    .filter(({ hostname, models }) => [hostname, ...models].some((text) => text.toLowerCase().includes(words)))
    .map((host): HostRow => {
      const found = trouble.get(host.hostname);
      return {
        host,
        findings: found?.count ?? (isWhole ? 0 : null),
        worst: SEVERITIES[found?.worst ?? SEVERITIES.length] ?? null,
        counts: countsOf(host.judgements),
        room: rooms.get(host.hostname) ?? null,
        load: loads.get(host.hostname) ?? null,
      };
    });
  return rows.sort((a, b) => byTrouble(a, b) || compareText(a.host.hostname, b.host.hostname));
}

const severityOf = ({ worst }: HostRow) => (worst === null ? SEVERITIES.length : SEVERITIES.indexOf(worst));

function byTrouble(a: HostRow, b: HostRow): number {
  const more = (word: Judgement) => (b.counts.get(word) ?? 0) - (a.counts.get(word) ?? 0);
  return severityOf(a) - severityOf(b) || JUDGEMENTS.filter((word) => word !== "active" && word !== "idle").reduce((sum, word) => sum || more(word), 0) || (b.findings ?? 0) - (a.findings ?? 0);
}

/** The worst finding decides, then how many there are: no host has so many that they outweigh it. */
export const troubleOf = (row: HostRow) => (row.findings === null ? null : row.findings - severityOf(row) * 1_000_000);

export const modelsOf = ({ models }: Host) => models.join(", ");
