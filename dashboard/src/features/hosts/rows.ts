import type { Schemas } from "../../api/client";
import { SEVERITIES, type Finding, type Severity } from "../../api/findings";
import type { HostLoad, HostRoom } from "../../api/queries";
import type { Column, HostsState } from "./address";

export type Host = Schemas["Host"];

/** A host with what is wrong there. */
export interface HostRow {
  readonly host: Host;
  /** How many; null: not known, since not all findings are read. */
  readonly findings: number | null;
  /** The worst of the findings; null: there are none. */
  readonly worst: Severity | null;
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

/** The hosts that are searched for, in the order that is asked for: the most trouble first, unless a column is named. */
export function hostRows(hosts: readonly Host[], { findings, isWhole, rooms, loads }: HostFacts, { search, sort }: Pick<HostsState, "search" | "sort">): HostRow[] {
  const trouble = new Map<string, { count: number; worst: number }>();
  for (const { reach, severity } of findings) {
    if (reach.hostname === null) continue;
    const rank = SEVERITIES.findIndex((known) => known === severity);
    const before = trouble.get(reach.hostname) ?? { count: 0, worst: SEVERITIES.length };
    trouble.set(reach.hostname, { count: before.count + 1, worst: rank < 0 ? before.worst : Math.min(before.worst, rank) });
  }
  const words = search.toLowerCase();
  const rows = hosts
    .filter(({ hostname, models }) => [hostname, ...models].some((text) => text.toLowerCase().includes(words)))
    .map((host): HostRow => {
      const found = trouble.get(host.hostname);
      return {
        host,
        findings: found?.count ?? (isWhole ? 0 : null),
        worst: SEVERITIES[found?.worst ?? SEVERITIES.length] ?? null,
        room: rooms.get(host.hostname) ?? null,
        load: loads.get(host.hostname) ?? null,
      };
    });
  const column = COLUMN_ORDERS[sort.replace(/^-/, "") as Column] as Order | undefined;
  const sign = sort.startsWith("-") ? -1 : 1;
  return rows.sort((a, b) => (column === undefined ? byTrouble(a, b) : sign * column(a, b)) || byName(a, b));
}

type Order = (a: HostRow, b: HostRow) => number;

const byName: Order = (a, b) => a.host.hostname.localeCompare(b.host.hostname, "en", { numeric: true });
const severityOf = ({ worst }: HostRow) => (worst === null ? SEVERITIES.length : SEVERITIES.indexOf(worst));
const byTrouble: Order = (a, b) =>
  severityOf(a) - severityOf(b) || b.host.states.unhealthy - a.host.states.unhealthy || b.host.states.stale - a.host.states.stale || (b.findings ?? 0) - (a.findings ?? 0);
/** What is not known is less than everything. */
const byNumber =
  (of: (row: HostRow) => number | null): Order =>
  (a, b) =>
    (of(a) ?? -1) - (of(b) ?? -1);

const COLUMN_ORDERS: Readonly<Record<Column, Order>> = {
  host: byName,
  findings: (a, b) => severityOf(b) - severityOf(a) || (a.findings ?? 0) - (b.findings ?? 0),
  gpus: byNumber(({ host }) => host.gpu_count),
  free: byNumber(({ room }) => room?.free ?? null),
  model: (a, b) => modelsOf(a.host).localeCompare(modelsOf(b.host), "en"),
  cpu: byNumber(({ load }) => load?.cpu ?? null),
  memory: byNumber(({ load }) => load?.memoryShare ?? null),
  last_seen: byNumber(({ host }) => Date.parse(host.last_seen)),
};

export const modelsOf = ({ models }: Host) => models.join(", ");
