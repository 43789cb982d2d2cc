import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { ALL_FINDINGS, findingsQuery, isWhole } from "../../api/findings";
import { hostLoadsQuery, hostsQuery, roomQuery, type State } from "../../api/queries";
import { HEALTH_INTERVAL_MS } from "../../shared/config";
import { ABSENT, formatNumber, formatValue, shareOf } from "../../shared/format";
import { useAddress } from "../../shared/address";
import { Link } from "../../shared/location";
import { useMedia } from "../../shared/media";
import { Empty, Failed } from "../../shared/states";
import { formatAge, formatClock, parseInstant, SECOND, useNow } from "../../shared/time";
import { severityLook } from "../../parts/findings/severity";
import { hostPath } from "../../parts/findings/words";
import { Level, LookBadge, Named, SimulatedBadge, SimulatedBanner, STATE_LOOKS } from "../../parts/gpuLook";
import { HeaderCell, OpeningRow, Pages, SearchField, useListKeys, WaitingRows, type Header } from "../../parts/list";
import { pageOf, PAGE_SIZE } from "../../parts/pages";
import { HOSTS, type Column } from "./address";
import { Room } from "./Room";
import { hostRows, modelsOf, type Host, type HostRow } from "./rows";

const NONE = new Map<string, never>();

/** Every host: what its GPUs do, what is wrong there, and how busy it is itself. The most trouble stands first. */
export function HostsPage() {
  const { state, change, pathTo } = useAddress(HOSTS);
  const now = useNow(SECOND);
  const narrow = useMedia("(max-width: 760px)");
  const hosts = useQuery({ ...hostsQuery(), refetchInterval: HEALTH_INTERVAL_MS });
  const judged = useQuery(findingsQuery(ALL_FINDINGS)).data;
  const rooms = useQuery(roomQuery()).data?.rooms;
  const loads = useQuery(hostLoadsQuery()).data;
  const { data } = hosts;
  const rows = useMemo(
    () => hostRows(data?.hosts ?? [], { findings: judged?.findings ?? [], isWhole: isWhole(judged), rooms: rooms ?? NONE, loads: loads ?? NONE }, state),
    [data, judged, rooms, loads, state],
  );
  const { shown, page, hasNext } = pageOf(rows, state.page);
  const paging = { page, hasNext, pathOf: (other: number) => pathTo({ page: other }) };
  useListKeys(paging);

  if (data === undefined) {
    if (hosts.isError) return <Failed what="The hosts" error={hosts.error} retry={() => void hosts.refetch()} />;
    return <WaitingRows label="Loading hosts" />;
  }
  return (
    <div data-testid="hosts" data-last-update={hosts.dataUpdatedAt}>
      {data.hosts.some((host) => host.simulated) && <SimulatedBanner>Some of these hosts are simulated: their values were made up by gpuvitals, not measured.</SimulatedBanner>}
      <h1 className="sr-only">Hosts</h1>
      <div className="mb-3 flex flex-wrap items-center gap-2">
        <SearchField label="Search hosts" placeholder="Search name, model" searched={state.search} onChange={(text) => change({ search: text })} />
        <p role="status" className="num ml-auto text-xs text-muted">
          {hosts.isError ? `Not renewed: as of ${formatClock(hosts.dataUpdatedAt)}` : rows.length === 1 ? "1 host" : `${rows.length.toLocaleString("en")} hosts`}
        </p>
      </div>
      {data.hosts.length > 0 && <Room />}
      {data.partial !== null && (
        <p role="note" aria-label="Partly read" className="mb-2 text-[13px] text-warn">
          Not everything could be read: {data.partial}
        </p>
      )}
      {data.total > data.hosts.length && (
        <p role="note" aria-label="Incomplete" className="mb-2 text-[13px] text-warn">
          These are the first {data.hosts.length.toLocaleString("en")} of {data.total.toLocaleString("en")} hosts, by name.
        </p>
      )}
      {rows.length === 0 ? (
        <Empty title={data.hosts.length === 0 ? "No host has reported a GPU yet" : "No host matches"}>
          {state.search !== "" && (
            <button type="button" className="button mt-3" onClick={() => change({ search: "" })}>
              Show all hosts
            </button>
          )}
        </Empty>
      ) : narrow ? (
        <HostCards rows={shown} now={now} />
      ) : (
        <HostTable
          rows={shown}
          sort={state.sort}
          hasRooms={rows.some((row) => row.room !== null)}
          hasLoads={rows.some((row) => row.load !== null)}
          now={now}
          onSort={(sort) => change({ sort })}
        />
      )}
      <Pages {...paging} size={PAGE_SIZE} total={rows.length} />
    </div>
  );
}

function header(column: Column, title: string, highestFirst: boolean, className = ""): Header {
  return { column, title, highestFirst, className };
}

const HEADERS: readonly Header[] = [
  header("host", "Host", false),
  header("findings", "Findings", true, "lg:w-36"),
  header("gpus", "GPUs", true, "lg:w-64"),
  header("free", "Free", true, "lg:w-28"),
  header("model", "Models", false),
  header("cpu", "CPU", true, "lg:w-28"),
  header("memory", "Memory", true, "lg:w-28"),
  header("last_seen", "Last seen", true, "lg:w-32"),
];
/** Columns of what agents report of the hosts themselves. */
const OF_LOAD: ReadonlySet<string> = new Set<Column>(["cpu", "memory"]);
const OF_ROOM: Column = "free";

interface HostTableProps {
  readonly rows: readonly HostRow[];
  readonly sort: string;
  readonly hasRooms: boolean;
  readonly hasLoads: boolean;
  readonly now: number;
  readonly onSort: (sort: string) => void;
}

function HostTable({ rows, sort, hasRooms, hasLoads, now, onSort }: HostTableProps) {
  return (
    <div className="card overflow-x-auto">
      <table className="w-full min-w-[740px] text-[13px]">
        <caption className="sr-only">Hosts with their GPUs</caption>
        <thead>
          <tr className="border-b border-line text-xs text-muted">
            {HEADERS.filter(({ column }) => (hasRooms || column !== OF_ROOM) && (hasLoads || !OF_LOAD.has(column))).map((each) => (
              <HeaderCell key={each.column} header={each} sort={sort} onSort={onSort} />
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <OpeningRow key={row.host.hostname} to={hostPath(row.host.hostname)} data-host={row.host.hostname}>
              <th scope="row" className="max-w-72 px-2 py-1.5 text-left font-medium lg:px-3">
                <Link to={hostPath(row.host.hostname)} data-row="" className="block truncate rounded hover:underline">
                  {row.host.hostname}
                </Link>
              </th>
              <td className="px-2 py-1.5 lg:px-3">
                <Trouble row={row} />
              </td>
              <td className="px-2 py-1.5 lg:px-3">
                <States host={row.host} />
              </td>
              {hasRooms && (
                <td className="px-2 py-1.5 lg:px-3">
                  <Free row={row} />
                </td>
              )}
              <td className="max-w-72 truncate px-2 py-1.5 text-muted lg:px-3" title={modelsOf(row.host)}>
                {modelsOf(row.host) || ABSENT}
              </td>
              {hasLoads && (
                <>
                  <td className="px-2 py-1.5 lg:px-3">
                    <Cpu row={row} />
                  </td>
                  <td className="px-2 py-1.5 lg:px-3">
                    <Memory row={row} />
                  </td>
                </>
              )}
              <td className="num px-2 py-1.5 whitespace-nowrap lg:px-3">
                <Age host={row.host} now={now} />
              </td>
            </OpeningRow>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The list on a phone: a card a host. */
function HostCards({ rows, now }: Pick<HostTableProps, "rows" | "now">) {
  return (
    <ul className="space-y-2" aria-label="Hosts with their GPUs">
      {rows.map((row) => (
        <li key={row.host.hostname} className="card relative p-3 text-[13px] focus-within:bg-raised" data-host={row.host.hostname}>
          <div className="flex items-center gap-2">
            <Link to={hostPath(row.host.hostname)} data-row="" className="min-w-0 flex-1 truncate font-medium after:absolute after:inset-0 after:rounded-lg">
              {row.host.hostname}
            </Link>
            {row.findings !== 0 && <Trouble row={row} />}
          </div>
          <p className="mt-0.5 truncate text-muted">{modelsOf(row.host) || ABSENT}</p>
          <div className="mt-1.5 grid grid-cols-2 gap-x-3 gap-y-1.5">
            <Named name="GPUs">
              <States host={row.host} />
            </Named>
            <Named name="Last seen">
              <Age host={row.host} now={now} />
            </Named>
            {row.room !== null && (
              <Named name="Free to schedule">
                <Free row={row} />
              </Named>
            )}
            {row.load !== null && (
              <>
                <Named name="CPU">
                  <Cpu row={row} />
                </Named>
                <Named name="Memory">
                  <Memory row={row} />
                </Named>
              </>
            )}
          </div>
        </li>
      ))}
    </ul>
  );
}

function Trouble({ row: { findings, worst } }: { readonly row: HostRow }) {
  if (findings === null) return <span className="text-faint">{ABSENT}</span>;
  if (findings === 0) return <span className="text-faint">none</span>;
  const words = worst ?? "finding";
  return <LookBadge look={severityLook(words)} state={words} text={findings === 1 ? words : `${formatNumber(findings)} · ${words}`} reason={null} />;
}

/** What needs somebody first: the end may be cut off. */
const WORST_FIRST = ["unhealthy", "stale", "active", "idle", "unknown"] as const satisfies readonly State[];

/** How many GPUs, in which states: as words and as a bar. */
function States({ host }: { readonly host: Host }) {
  const present = WORST_FIRST.filter((state) => host.states[state] > 0);
  return (
    <div className="min-w-0">
      <span className="num block truncate leading-5">
        {formatNumber(host.gpu_count)}
        <span className="text-muted"> · {present.map((state) => `${formatNumber(host.states[state])} ${state}`).join(", ")}</span>
      </span>
      <span className="flex h-1 max-w-56 gap-px overflow-hidden rounded-full" aria-hidden>
        {present.map((state) => (
          <span key={state} className={`${STATE_LOOKS[state].colour} bg-current`} style={{ flexGrow: host.states[state] }} />
        ))}
      </span>
    </div>
  );
}

/** How many GPUs can take work, and how many must not. */
function Free({ row: { room } }: { readonly row: HostRow }) {
  if (room === null) return <span className="text-faint">{ABSENT}</span>;
  const { free, unhealthy } = room;
  return (
    <span className="num whitespace-nowrap" title={unhealthy.map(({ gpu, reasons }) => `${gpu}: ${reasons.join("; ")}`).join("\n") || undefined}>
      <span className={free === 0 ? "text-faint" : ""}>{formatNumber(free)}</span>
      {unhealthy.length > 0 && <span className="text-warn"> · {formatNumber(unhealthy.length)} unfit</span>}
    </span>
  );
}

function Cpu({ row: { load } }: { readonly row: HostRow }) {
  return <Level text={formatValue(load?.cpu ?? null, "%")} share={shareOf(load?.cpu ?? null, 100)} label="CPU" />;
}

function Memory({ row: { load } }: { readonly row: HostRow }) {
  const share = load?.memoryShare ?? null;
  return <Level text={formatValue(share === null ? null : share * 100, "%")} share={share} label="Memory in use" />;
}

function Age({ host, now }: { readonly host: Host; readonly now: number }) {
  const seen = parseInstant(host.last_seen);
  return (
    <span className={host.states.stale === host.gpu_count ? "text-warn" : "text-muted"} title={host.last_seen}>
      {seen === null ? ABSENT : formatAge(seen, now)} {host.simulated && <SimulatedBadge />}
    </span>
  );
}
