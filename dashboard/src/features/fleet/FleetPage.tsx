import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { Gpu } from "../../api/client";
import { fetchGpusCsv, wholeFleetQuery, type FleetGpu } from "../../api/fleet";
import { catalogueQuery, gpuListQuery, hostsQuery } from "../../api/queries";
import { whereWords } from "../../api/where";
import { COMPARE, FLEET, FLEET_VIEWS, STATE_COLOUR, type FleetState } from "../../parts/addresses";
import { useAddress, type Unread } from "../../shared/address";
import { goTo, Link } from "../../shared/location";
import { useShared } from "../../shared/same";
import { Empty, Failed } from "../../shared/states";
import { formatClock } from "../../shared/time";
import { TimeBar } from "../../parts/asof/TimeBar";
import { SimulatedBanner } from "../../parts/gpuLook";
import { ClearFilters, Pages, Select, useListKeys, WaitingRows } from "../../parts/list";
import { List } from "../../parts/columns";
import { knownSort } from "../../parts/order";
import { PAGE_SIZE } from "../../parts/pages";
import { FleetSummary } from "./FleetSummary";
import { GPU_LIST } from "./gpuList";
import { HeatMap } from "./HeatMap";
import { rowOf } from "./row";
import { useSparks } from "../../parts/sparks";
import { UnreadNotice } from "../../parts/UnreadNotice";
import { useFleetCounts } from "../../parts/counts";
import { MEMORY_TOTAL, MEMORY_USED, POWER, POWER_LIMIT, TEMPERATURE, UTILIZATION } from "../../shared/headline";

/** The GPUs as a list, one page at a time, or all of them as a heat map; filtered alike, renewed while they are looked at. */
export function FleetPage() {
  const { state, change, pathTo } = useAddress(FLEET);
  const { page, view, where, host } = state;
  const filter = { search: state.search, judgement: state.state, host, where };
  const isMap = view === "map";
  const sort = knownSort(GPU_LIST.columns, state.sort) || SICK_FIRST;
  const list = useQuery({ ...gpuListQuery({ ...filter, sort, limit: PAGE_SIZE, offset: (page - 1) * PAGE_SIZE }), enabled: !isMap });
  const unread = useUnreadColour(isMap ? state.colour : STATE_COLOUR);
  const colour = unread.length === 0 ? state.colour : STATE_COLOUR;
  const metric = colour === STATE_COLOUR ? "" : colour;
  const map = useQuery({ ...wholeFleetQuery({ ...filter, group: state.group, metric }), enabled: isMap });
  const shown = isMap ? map : list;
  const counts = useFleetCounts();
  const gpus = isMap ? NONE : (list.data?.gpus ?? NONE);
  const cells = map.data?.gpus ?? NO_CELLS;
  const fitting = isMap ? cells : gpus;
  const total = shown.data?.total ?? 0;
  // Tests of the identity the server applies to what has happened, too.
  const isNarrowed = isMap && map.data !== undefined && `${state.search}${state.state}` !== "";
  const names = useMemo(() => new Map(cells.map(({ id, name }) => [id, name])), [cells]);
  const narrowed = useMemo(() => (isNarrowed ? new Map(cells.map((cell) => [cell.id, cell.host])) : null), [isNarrowed, cells]);
  const sparks = useSparks(gpus, SPARKED);
  const rows = useShared(useMemo(() => gpus.map((gpu) => rowOf(gpu, sparks)), [gpus, sparks]));
  const hosts = useQuery(hostsQuery());
  const allSimulated = hosts.data !== undefined && hosts.data.total > 0 && hosts.data.hosts.every((host) => host.simulated);
  const simulated = (map.data?.simulated ?? 0) > 0 || hosts.data?.hosts.some((host) => host.simulated) === true || gpus.some((gpu) => gpu.simulated);
  const partial = shown.data?.partial ?? null;
  const late = shown.isError && shown.data !== undefined;
  const paging = { page, hasNext: !isMap && list.data?.pagination.has_next === true, pathOf: (other: number) => pathTo({ page: other }) };
  useListKeys(paging);

  return (
    <div data-testid="fleet" data-last-update={shown.dataUpdatedAt}>
      {simulated && (
        <SimulatedBanner>
          {allSimulated
            ? "These GPUs are simulated: their values were made up by gpuvitals, not measured."
            : "Some of these GPUs are simulated: their values were made up by gpuvitals, not measured. They carry a badge."}
        </SimulatedBanner>
      )}
      {isMap && <TimeBar of={{ host, where, namespace: "", kind: "", gpus: narrowed }} names={names} />}
      <FleetSummary counts={counts} chosen={state.state} choose={(word) => change({ state: word })} />
      <div className="mt-3 mb-2 flex flex-wrap items-center gap-2">
        <h1 className="sr-only">GPUs</h1>
        {state.search !== "" && (
          <button type="button" className="badge h-7! max-w-72 text-accent" title="Only GPUs that the search above finds. Remove" onClick={() => change({ search: "" })}>
            <span className="truncate">“{state.search}”</span> ×
          </button>
        )}
        <HostSelect host={state.host} onChange={(host) => change({ host })} />
        {where !== "" && (
          <button type="button" className="badge h-7! text-accent" title={`Only GPUs with ${where}. Remove`} onClick={() => change({ where: "" })}>
            {whereWords(where)} ×
          </button>
        )}
        {isFiltered(state) && (
          <ClearFilters onClick={() => goTo(pathTo({ search: "", state: "", host: "", where: "", page: 1 }))} />
        )}
        {isFiltered(state) && total > 1 && total <= COMPARED_MAX && (state.state === "" || fitting.length === total) && (
          <Link to={COMPARE.to(state.state === "" ? { host, where, search: state.search } : { gpus: fitting.map(({ id }) => id) })} className="button" title="Where these GPUs differ">
            Compare
          </Link>
        )}
        <p role="status" className="num ml-auto text-xs text-muted">
          {late
            ? `Not renewed: as of ${formatClock(shown.dataUpdatedAt)}`
            : shown.data !== undefined && `${total.toLocaleString("en")} ${total === 1 ? "GPU" : "GPUs"}`}
        </p>
        <ViewSwitch state={state} />
      </div>
      <UnreadNotice unread={unread} />
      {partial !== null && (
        <p role="note" aria-label="Incomplete" className="mb-2 text-[13px] text-warn">
          Not all GPUs could be read: {partial}
        </p>
      )}
      {shown.data === undefined ? (
        shown.isError ? (
          <Failed what="The list of GPUs" error={shown.error} retry={() => void shown.refetch()} />
        ) : (
          <WaitingRows label="Loading GPUs" />
        )
      ) : fitting.length === 0 ? (
        <NoGpus state={state} partial={partial !== null} />
      ) : isMap ? (
        map.data !== undefined && <HeatMap state={{ ...state, colour }} change={change} gpus={cells} total={map.data.total} />
      ) : (
        <>
          <List of={GPU_LIST} rows={rows} sort={state.sort} onSort={(sort) => change({ sort })} dim={shown.isPlaceholderData} whole={() => fetchGpusCsv({ ...filter, sort, metrics: LISTED })} />
          <Pages {...paging} size={PAGE_SIZE} total={total} />
        </>
      )}
    </div>
  );
}

const NONE: readonly Gpu[] = [];
const NO_CELLS: readonly FleetGpu[] = [];
/** More are not compared at once. */
const COMPARED_MAX = 64;
const SPARKED = [UTILIZATION, POWER];
/** The columns that the list shows. */
const LISTED = [UTILIZATION, POWER, POWER_LIMIT, TEMPERATURE, MEMORY_USED, MEMORY_TOTAL].join(",");
/** The server's order by judgement begins with those that need somebody. */
const SICK_FIRST = "judgement";

/** A colour of the address that the catalogue, once it is read, does not have. */
function useUnreadColour(colour: string): readonly Unread[] {
  const catalogue = useQuery({ ...catalogueQuery(), enabled: colour !== STATE_COLOUR }).data;
  const isKnown = colour === STATE_COLOUR || catalogue === undefined || catalogue.metrics.some(({ table, column }) => table === "gpu_events" && column === colour);
  return isKnown ? [] : [{ name: "colour", said: colour, isParameter: true, known: `${STATE_COLOUR}, and the columns that Colour offers` }];
}

function isFiltered({ search, state, host, where }: FleetState): boolean {
  return search !== "" || state !== "" || host !== "" || where !== "";
}

const VIEW_NAMES: Readonly<Record<FleetState["view"], string>> = { list: "List", map: "Heat map" };

function ViewSwitch({ state }: { readonly state: FleetState }) {
  return (
    <nav aria-label="Views" className="card flex rounded-md! p-0.5">
      {FLEET_VIEWS.map((view) => (
        <Link
          key={view}
          to={FLEET.to({ ...state, view })}
          aria-current={state.view === view ? "page" : undefined}
          className={`flex h-7 items-center rounded px-2.5 text-[13px] ${state.view === view ? "bg-raised font-medium" : "text-muted hover:text-fg"}`}
        >
          {VIEW_NAMES[view]}
        </Link>
      ))}
    </nav>
  );
}

function HostSelect({ host, onChange }: { readonly host: string; readonly onChange: (host: string) => void }) {
  const hosts = useQuery(hostsQuery());
  const known = hosts.data?.hosts ?? [];
  const all = `All hosts${known.length > 0 ? ` (${hosts.data?.total ?? known.length})` : ""}`;
  const options = known.map((each) => [each.hostname, `${each.hostname} (${each.gpu_count})`] as const);
  return <Select label="Host" value={host} all={all} options={options} onChange={onChange} className="sm:w-56" />;
}

function NoGpus({ state, partial }: { readonly state: FleetState; readonly partial: boolean }) {
  if (isFiltered(state) || state.page > 1) {
    return (
      <Empty title="No GPU fits these filters">
        <button type="button" className="button mt-3" onClick={() => goTo(FLEET.to({ view: state.view, colour: state.colour, group: state.group }))}>
          Show all GPUs
        </button>
      </Empty>
    );
  }
  if (partial) return <Empty title="No GPU could be read">What could not be read may hold some.</Empty>;
  return (
    <Empty title="No GPUs yet">
      The store is empty. GPUs appear here with their first sample: start gpuvitals with <code>--csv FILE</code> for a recording or{" "}
      <code>--source simulated</code> for a made-up fleet.
    </Empty>
  );
}
