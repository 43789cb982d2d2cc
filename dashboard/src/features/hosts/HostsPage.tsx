import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { ALL_FINDINGS, findingsQuery, isWhole } from "../../api/findings";
import { JUDGEMENTS } from "../../api/judgement";
import { hostLoadsQuery, hostsQuery, roomQuery } from "../../api/queries";
import { HEALTH_INTERVAL_MS } from "../../shared/config";
import { ABSENT, formatNumber, formatValue, shareOf } from "../../shared/format";
import { useAddress } from "../../shared/address";
import { Link } from "../../shared/location";
import { Empty, Failed } from "../../shared/states";
import { formatClock, parseInstant } from "../../shared/time";
import { COMPARE, HOST } from "../../parts/addresses";
import { severityLook } from "../../parts/findings/severity";
import { List, type ListOf } from "../../parts/columns";
import { Cut, LastSeen, Level, LookBadge, SimulatedBadge, SimulatedBanner, JUDGEMENT_LOOKS } from "../../parts/gpuLook";
import { Pages, SearchField, useListKeys, WaitingRows } from "../../parts/list";
import { highestFirst, inOrder, lowestFirst } from "../../parts/order";
import { pageOf, PAGE_SIZE } from "../../parts/pages";
import { HOSTS } from "./address";
import { Room } from "./Room";
import { hostRows, modelsOf, troubleOf, type Host, type HostRow } from "./rows";

const NONE = new Map<string, never>();

/** Every host: what its GPUs do, what is wrong there, and how busy it is itself. The most trouble stands first. */
export function HostsPage() {
  const { state, change, pathTo } = useAddress(HOSTS);
  const hosts = useQuery({ ...hostsQuery(), refetchInterval: HEALTH_INTERVAL_MS });
  const judged = useQuery(findingsQuery(ALL_FINDINGS)).data;
  const rooms = useQuery(roomQuery()).data?.rooms;
  const loads = useQuery(hostLoadsQuery()).data;
  const { data } = hosts;
  const found = useMemo(
    () => hostRows(data?.hosts ?? [], { findings: judged?.findings ?? [], isWhole: isWhole(judged), rooms: rooms ?? NONE, loads: loads ?? NONE }, state.search),
    [data, judged, rooms, loads, state.search],
  );
  const rows = useMemo(() => inOrder(found, HOST_LIST.columns, state.sort), [found, state.sort]);
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
        <SearchField label="Search hosts" placeholder="Name, model, GPU" searched={state.search} onChange={(text) => change({ search: text })} />
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
      ) : (
        <List of={HOST_LIST} rows={shown} without={[...(rows.some(({ room }) => room !== null) ? [] : ["free"]), ...(rows.some(({ load }) => load !== null) ? [] : ["cpu", "memory"])]} sort={state.sort} onSort={(sort) => change({ sort })} whole={rows} />
      )}
      <Pages {...paging} size={PAGE_SIZE} total={rows.length} />
    </div>
  );
}

const HOST_LIST: ListOf<HostRow> = {
  label: "Hosts with their GPUs",
  unsorted: "The most trouble first",
  keyOf: ({ host }) => host.hostname,
  mark: ({ host }) => ({ "data-host": host.hostname }),
  pathOf: ({ host }) => HOST.to({ name: host.hostname }),
  columns: [
    { id: "host", title: "Host", card: "name", sort: lowestFirst(({ host }) => host.hostname), cell: (row) => <HostLink row={row} />, className: "font-medium", limit: "max-w-72" },
    { id: "findings", title: "Findings", card: "corner", sort: highestFirst(troubleOf), value: ({ findings }) => findings, cell: (row) => <Trouble row={row} />, width: "lg:w-36" },
    { id: "gpus", title: "GPUs", sort: highestFirst(({ host }) => host.gpu_count), cell: (row) => <Gpus row={row} />, width: "lg:w-64" },
    { id: "free", title: "Free", sort: highestFirst(({ room }) => room?.free ?? null), cell: (row) => <Free row={row} />, width: "lg:w-28" },
    { id: "model", title: "Models", card: "line", sort: lowestFirst(({ host }) => modelsOf(host)), cell: ({ host }) => <Cut text={modelsOf(host)} />, className: "text-muted", limit: "max-w-72" },
    { id: "cpu", title: "CPU", sort: highestFirst(({ load }) => load?.cpu ?? null), cell: (row) => <Cpu row={row} />, width: "lg:w-28" },
    { id: "memory", title: "Memory", sort: highestFirst(({ load }) => load?.memoryShare ?? null), cell: (row) => <Memory row={row} />, width: "lg:w-28" },
    {
      id: "last_seen",
      title: "Last seen",
      sort: highestFirst(({ host }) => parseInstant(host.last_seen)),
      value: ({ host }) => host.last_seen,
      cell: ({ host }) => <Seen host={host} />,
      className: "num whitespace-nowrap",
      width: "lg:w-32",
    },
    { id: "compare", title: "Compare", cell: (row) => <Comparison row={row} />, width: "lg:w-24" },
  ],
};

function HostLink({ row: { host } }: { readonly row: HostRow }) {
  return (
    <Link to={HOST.to({ name: host.hostname })} data-row="" className="block truncate rounded hover:underline">
      {host.hostname}
    </Link>
  );
}

function Trouble({ row: { findings, worst } }: { readonly row: HostRow }) {
  if (findings === null) return <span className="text-faint">{ABSENT}</span>;
  if (findings === 0) return <span className="text-faint">none</span>;
  const words = worst ?? "finding";
  return <LookBadge look={severityLook(words)} state={words} text={findings === 1 ? words : `${formatNumber(findings)} · ${words}`} reason={null} />;
}

/** How many GPUs, and how they do: as words and as a bar. The end may be cut off, so what needs somebody stands first. */
function Gpus({ row: { host, counts } }: { readonly row: HostRow }) {
  const present = JUDGEMENTS.filter((word) => (counts.get(word) ?? 0) > 0);
  return (
    <div className="min-w-0">
      <span className="num block truncate leading-5">
        {formatNumber(host.gpu_count)}
        <span className="text-muted"> · {present.map((word) => `${formatNumber(counts.get(word) ?? 0)} ${word}`).join(", ")}</span>
      </span>
      <span className="flex h-1 max-w-56 gap-px overflow-hidden rounded-full" aria-hidden>
        {present.map((word) => (
          <span key={word} className={`${JUDGEMENT_LOOKS[word].colour} bg-current`} style={{ flexGrow: counts.get(word) }} />
        ))}
      </span>
    </div>
  );
}

function Comparison({ row: { host } }: { readonly row: HostRow }) {
  if (host.gpu_count < 2) return null;
  return (
    <Link to={COMPARE.to({ host: host.hostname })} className="relative rounded text-accent hover:underline" aria-label={`Compare the GPUs of ${host.hostname}`}>
      Compare
    </Link>
  );
}

/** How many GPUs can take work; why others must not. */
function Free({ row: { room } }: { readonly row: HostRow }) {
  if (room === null) return <span className="text-faint">{ABSENT}</span>;
  const { free, unhealthy } = room;
  return (
    <span className={`num whitespace-nowrap ${free === 0 ? "text-faint" : ""}`} title={unhealthy.map(({ gpu, reasons }) => `${gpu}: ${reasons.join("; ")}`).join("\n") || undefined}>
      {formatNumber(free)}
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

function Seen({ host }: { readonly host: Host }) {
  return (
    <span className={host.states.stale === host.gpu_count ? "text-warn" : "text-muted"}>
      <LastSeen at={parseInstant(host.last_seen)} /> {host.simulated && <SimulatedBadge />}
    </span>
  );
}
