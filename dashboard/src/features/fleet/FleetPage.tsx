import { useQuery } from "@tanstack/react-query";
import { gpuListQuery, hostsQuery } from "../../api/queries";
import { goTo, usePlace } from "../../shared/location";
import { useMedia } from "../../shared/media";
import { Empty, Failed } from "../../shared/states";
import { formatClock, SECOND, useNow } from "../../shared/time";
import { SimulatedBanner } from "../gpuLook";
import { ClearFilters, Pages, SearchField, Select, useListKeys, WaitingRows } from "../list";
import { FleetSummary } from "./FleetSummary";
import { DEFAULT, fleetPath, PAGE_SIZE, parseFleet, SICK_FIRST, type FleetState } from "./fleetState";
import { GpuCards, SortSelect } from "./GpuCards";
import { GpuTable } from "./GpuTable";
import { useSparks } from "./sparks";
import { useFleetCounts } from "./counts";

/** The list of GPUs: search, filter, sort, one page at a time, renewed while it is looked at. */
export function FleetPage() {
  const { search } = usePlace();
  const state = parseFleet(search);
  const { page, ...filter } = state;
  const list = useQuery(gpuListQuery({ ...filter, sort: state.sort === "" ? SICK_FIRST : state.sort, limit: PAGE_SIZE, offset: (page - 1) * PAGE_SIZE }));
  const counts = useFleetCounts();
  const gpus = list.data?.gpus ?? [];
  const sparks = useSparks(gpus);
  const now = useNow(SECOND);
  const narrow = useMedia("(max-width: 760px)");
  const change = (part: Partial<FleetState>) => goTo(fleetPath({ ...state, page: 1, ...part }), { replace: true });
  const hosts = useQuery(hostsQuery());
  const allSimulated = hosts.data !== undefined && hosts.data.total > 0 && hosts.data.hosts.every((host) => host.simulated);
  const simulated = counts.simulated || hosts.data?.hosts.some((host) => host.simulated) === true || gpus.some((gpu) => gpu.simulated);
  const partial = list.data?.partial ?? null;
  const late = list.isError && list.data !== undefined;
  const paging = {
    page,
    hasNext: list.data?.pagination.has_next === true,
    pathOf: (other: number) => fleetPath({ ...state, page: other }),
  };
  useListKeys(paging);

  return (
    <div data-testid="fleet" data-last-update={list.dataUpdatedAt}>
      {simulated && (
        <SimulatedBanner>
          {allSimulated
            ? "These GPUs are simulated: their values were made up by gpuvitals, not measured."
            : "Some of these GPUs are simulated: their values were made up by gpuvitals, not measured. They carry a badge."}
        </SimulatedBanner>
      )}
      <FleetSummary counts={counts} chosen={state.state} choose={(chosen) => change({ state: chosen })} />
      <div className="mt-3 mb-2 flex flex-wrap items-center gap-2">
        <h1 className="sr-only">GPUs</h1>
        <SearchField label="Search GPUs" placeholder="Search name, host, id" searched={state.search} onChange={(text) => change({ search: text })} />
        <HostSelect host={state.host} onChange={(host) => change({ host })} />
        {narrow && <SortSelect sort={state.sort} onChange={(sort) => change({ sort })} />}
        {(state.search !== "" || state.host !== "" || state.state !== "") && (
          <ClearFilters onClick={() => goTo(fleetPath({ ...DEFAULT, sort: state.sort }))} />
        )}
        <p role="status" className="num ml-auto text-xs text-muted">
          {late
            ? `Not renewed: as of ${formatClock(list.dataUpdatedAt)}`
            : list.data !== undefined && `${list.data.total.toLocaleString("en")} ${list.data.total === 1 ? "GPU" : "GPUs"}`}
        </p>
      </div>
      {partial !== null && (
        <p role="note" aria-label="Incomplete" className="mb-2 text-[13px] text-warn">
          Not all GPUs could be read: {partial}
        </p>
      )}
      {list.data === undefined ? (
        list.isError ? (
          <Failed what="The list of GPUs" error={list.error} retry={() => void list.refetch()} />
        ) : (
          <WaitingRows label="Loading GPUs" />
        )
      ) : gpus.length === 0 ? (
        <NoGpus state={state} partial={partial !== null} />
      ) : (
        <>
          {narrow ? (
            <GpuCards gpus={gpus} sparks={sparks} now={now} />
          ) : (
            <GpuTable gpus={gpus} sparks={sparks} now={now} sort={state.sort} onSort={(sort) => change({ sort })} dim={list.isPlaceholderData} />
          )}
          <Pages {...paging} size={PAGE_SIZE} total={list.data.total} />
        </>
      )}
    </div>
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
  if (state.search !== "" || state.host !== "" || state.state !== "" || state.page > 1) {
    return (
      <Empty title="No GPU fits these filters">
        <button type="button" className="button mt-3" onClick={() => goTo("/gpus")}>
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
