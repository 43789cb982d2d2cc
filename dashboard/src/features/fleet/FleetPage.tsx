import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { Gpu } from "../../api/client";
import { fetchGpusCsv, GPUS_MAX, wholeFleetQuery } from "../../api/fleet";
import { gpuListQuery, hostsQuery } from "../../api/queries";
import { whereWords } from "../../api/where";
import { COMPARE, FLEET, FLEET_VIEWS, STATE_COLOUR, type FleetState } from "../../parts/addresses";
import { useAddress } from "../../shared/address";
import { goTo, Link } from "../../shared/location";
import { Empty, Failed } from "../../shared/states";
import { formatClock } from "../../shared/time";
import { TimeBar } from "../../parts/asof/TimeBar";
import { SimulatedBanner } from "../../parts/gpuLook";
import { ClearFilters, Pages, SearchField, Select, useListKeys, WaitingRows } from "../../parts/list";
import { List } from "../../parts/columns";
import { inOrder, knownSort } from "../../parts/order";
import { pageOf, PAGE_SIZE } from "../../parts/pages";
import { FleetSummary } from "./FleetSummary";
import { GPU_LIST } from "./gpuList";
import { HeatMap } from "./HeatMap";
import { rowOf } from "./row";
import { useSparks } from "../../parts/sparks";
import { useJudgedFleet } from "../../parts/counts";
import { judgeDoubts } from "../../parts/findings/doubts";
import { isChosen, judgedOf, stateBehind } from "../../parts/judgement";
import { MEMORY_TOTAL, MEMORY_USED, POWER, POWER_LIMIT, TEMPERATURE, UTILIZATION } from "../../shared/headline";

/** The GPUs as a list, one page at a time, or all of them as a heat map; filtered alike, renewed while they are looked at. */
export function FleetPage() {
  const { state, change, pathTo } = useAddress(FLEET);
  const { page, view, where, host } = state;
  const chosen = state.state;
  const filter = { search: state.search, state: chosen === "" ? "" : (stateBehind(chosen) ?? ""), host, where };
  const isMap = view === "map";
  const sort = knownSort(GPU_LIST.columns, state.sort) || SICK_FIRST;
  const list = useQuery({ ...gpuListQuery({ ...filter, sort, limit: PAGE_SIZE, offset: (page - 1) * PAGE_SIZE }), enabled: !isMap && chosen === "" });
  // The server knows states, not judgements: of all that may fit the page chooses.
  const all = useQuery({ ...gpuListQuery({ ...filter, sort: "", limit: GPUS_MAX, offset: 0, metrics: LISTED }), enabled: !isMap && chosen !== "" });
  const metric = state.colour === STATE_COLOUR ? "" : state.colour;
  const map = useQuery({ ...wholeFleetQuery({ ...filter, group: state.group, metric }), enabled: isMap });
  const shown = isMap ? map : chosen === "" ? list : all;
  const { fleet, judge, found, counts } = useJudgedFleet();
  const fitting = useMemo(
    () => (chosen === "" ? NONE : inOrder((all.data?.gpus ?? NONE).filter((gpu) => isChosen(judgedOf(gpu), chosen, judge)).map((gpu) => rowOf(gpu, judge, NO_SPARKS)), GPU_LIST.columns, sort).map(({ gpu }) => gpu)),
    [all.data, chosen, judge, sort],
  );
  const cells = useMemo(() => map.data?.gpus.filter((gpu) => isChosen(gpu, chosen, judge)) ?? [], [map.data, chosen, judge]);
  const whole = useMemo(() => fitting.map((gpu) => rowOf(gpu, judge, NO_SPARKS)), [fitting, judge]);
  const part = pageOf(fitting, page);
  const gpus = isMap ? NONE : chosen === "" ? (list.data?.gpus ?? NONE) : part.shown;
  const total = shown.data === undefined || chosen === "" ? (shown.data?.total ?? 0) : isMap ? cells.length : fitting.length;
  const sparks = useSparks(gpus, SPARKED);
  const rows = useMemo(() => gpus.map((gpu) => rowOf(gpu, judge, sparks)), [gpus, judge, sparks]);
  const hosts = useQuery(hostsQuery());
  const allSimulated = hosts.data !== undefined && hosts.data.total > 0 && hosts.data.hosts.every((host) => host.simulated);
  const simulated = (fleet.data?.simulated ?? 0) > 0 || hosts.data?.hosts.some((host) => host.simulated) === true || gpus.some((gpu) => gpu.simulated);
  const partial = shown.data?.partial ?? null;
  const late = shown.isError && shown.data !== undefined;
  const doubts = judgeDoubts(found, judge);
  const paging = {
    page: chosen === "" ? page : part.page,
    hasNext: !isMap && (chosen === "" ? list.data?.pagination.has_next === true : part.hasNext),
    pathOf: (other: number) => pathTo({ page: other }),
  };
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
      {isMap && <TimeBar host={host} />}
      <FleetSummary counts={counts} chosen={state.state} choose={(word) => change({ state: word })} />
      <div className="mt-3 mb-2 flex flex-wrap items-center gap-2">
        <h1 className="sr-only">GPUs</h1>
        <SearchField label="Search GPUs" placeholder="Search name, host, id" searched={state.search} onChange={(text) => change({ search: text })} />
        <HostSelect host={state.host} onChange={(host) => change({ host })} />
        {where !== "" && (
          <button type="button" className="badge h-7! text-accent" title={`Only GPUs with ${where}. Remove`} onClick={() => change({ where: "" })}>
            {whereWords(where)} ×
          </button>
        )}
        {isFiltered(state) && (
          <ClearFilters onClick={() => goTo(pathTo({ search: "", state: "", host: "", where: "", page: 1 }))} />
        )}
        {isFiltered(state) && total > 1 && total <= COMPARED_MAX && (
          <Link to={COMPARE.to(chosen === "" ? { host, where, search: state.search } : { gpus: (isMap ? cells : fitting).map(({ id }) => id) })} className="button" title="Where these GPUs differ">
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
      ) : (isMap ? cells : gpus).length === 0 ? (
        <NoGpus state={state} partial={partial !== null} />
      ) : isMap ? (
        map.data !== undefined && <HeatMap state={state} change={change} gpus={cells} total={chosen === "" ? map.data.total : cells.length} />
      ) : (
        <>
          {doubts.length > 0 && !late && (
            <p role="note" aria-label="About the findings" className="mb-2 text-[13px] text-warn">
              {doubts.join(" ")}
            </p>
          )}
          <List of={GPU_LIST} rows={rows} sort={state.sort} onSort={(sort) => change({ sort })} dim={shown.isPlaceholderData} whole={chosen === "" ? () => fetchGpusCsv({ ...filter, sort, metrics: LISTED }) : whole} />
          <Pages {...paging} size={PAGE_SIZE} total={total} />
        </>
      )}
    </div>
  );
}

const NONE: readonly Gpu[] = [];
const NO_SPARKS = new Map<string, never>();
/** More are not compared at once. */
const COMPARED_MAX = 64;
const SPARKED = [UTILIZATION, POWER];
/** The columns that the list shows. */
const LISTED = [UTILIZATION, POWER, POWER_LIMIT, TEMPERATURE, MEMORY_USED, MEMORY_TOTAL].join(",");
/** The server's order by state begins with the sick and the silent. */
const SICK_FIRST = "state";

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
