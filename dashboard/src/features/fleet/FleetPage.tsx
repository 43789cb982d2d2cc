import { useQuery } from "@tanstack/react-query";
import { ChevronLeft, ChevronRight, Search, X } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { gpuListQuery, hostsQuery } from "../../api/queries";
import { goTo, usePlace } from "../../shared/location";
import { useMedia } from "../../shared/media";
import { useShortcuts } from "../../shared/shortcuts";
import { Empty, Failed } from "../../shared/states";
import { formatClock, SECOND, useNow } from "../../shared/time";
import { SimulatedBanner } from "../gpuLook";
import { FleetSummary } from "./FleetSummary";
import { DEFAULT, fleetPath, PAGE_SIZE, parseFleet, type FleetState } from "./fleetState";
import { GpuCards, SortSelect } from "./GpuCards";
import { GpuTable } from "./GpuTable";
import { useSparks } from "./sparks";
import { useFleetCounts } from "./counts";

const TYPING_PAUSE_MS = 200;

/** The list of GPUs: search, filter, sort, one page at a time, renewed while it is looked at. */
export function FleetPage() {
  const { search } = usePlace();
  const state = parseFleet(search);
  const { page, ...filter } = state;
  const list = useQuery(gpuListQuery({ ...filter, limit: PAGE_SIZE, offset: (page - 1) * PAGE_SIZE }));
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
  useRowKeys(state, list.data?.pagination.has_next === true);

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
        <SearchField searched={state.search} onChange={(text) => change({ search: text })} />
        <HostSelect host={state.host} onChange={(host) => change({ host })} />
        {narrow && <SortSelect sort={state.sort} onChange={(sort) => change({ sort })} />}
        {(state.search !== "" || state.host !== "" || state.state !== "") && (
          <button type="button" className="button quiet" onClick={() => goTo(fleetPath({ ...DEFAULT, sort: state.sort }))}>
            <X size={13} aria-hidden /> Clear filters
          </button>
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
          <Waiting />
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
          <Pages state={state} total={list.data.total} hasNext={list.data.pagination.has_next} />
        </>
      )}
    </div>
  );
}

/** j and k walk the rows by moving the focus from link to link, so that Enter is simply the browser's. */
function useRowKeys(state: FleetState, hasNext: boolean): void {
  const step = (by: number) => {
    const links = [...document.querySelectorAll<HTMLAnchorElement>("a[data-row]")];
    const at = links.findIndex((link) => link === document.activeElement);
    const next = at < 0 ? 0 : Math.min(links.length - 1, Math.max(0, at + by));
    links[next]?.focus();
    links[next]?.scrollIntoView({ block: "nearest" });
  };
  const turn = (by: number) => {
    if (by > 0 ? hasNext : state.page > 1) goTo(fleetPath({ ...state, page: state.page + by }));
  };
  useShortcuts({
    "/": () => document.getElementById("gpu-search")?.focus(),
    j: () => step(1),
    k: () => step(-1),
    ArrowDown: () => step(1),
    ArrowUp: () => step(-1),
    "]": () => turn(1),
    "[": () => turn(-1),
  });
}

interface SearchFieldProps {
  /** What the address says; it changes also without typing, by a link or the back button. */
  readonly searched: string;
  readonly onChange: (text: string) => void;
}

/** Asks the server when the typing pauses, not at each letter. */
function SearchField({ searched, onChange }: SearchFieldProps) {
  const [text, setText] = useState(searched);
  const [followed, setFollowed] = useState(searched);
  if (followed !== searched) {
    setFollowed(searched);
    if (searched !== text.trim()) setText(searched);
  }
  const pause = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(pause.current), []);
  const type = (next: string) => {
    setText(next);
    clearTimeout(pause.current);
    pause.current = setTimeout(() => onChange(next.trim()), TYPING_PAUSE_MS);
  };
  return (
    <label className="relative w-full sm:w-72">
      <span className="sr-only">Search GPUs</span>
      <Search size={14} className="pointer-events-none absolute top-1/2 left-2.5 -translate-y-1/2 text-faint" aria-hidden />
      <input
        id="gpu-search"
        type="search"
        className="field w-full pl-8!"
        placeholder="Search name, host, id"
        autoComplete="off"
        spellCheck={false}
        value={text}
        onChange={(event) => type(event.target.value)}
        onKeyDown={(event) => event.key === "Escape" && event.currentTarget.blur()}
      />
      {text === "" && <kbd aria-hidden className="key absolute top-1/2 right-2 hidden -translate-y-1/2 text-faint sm:block">/</kbd>}
    </label>
  );
}

function HostSelect({ host, onChange }: { readonly host: string; readonly onChange: (host: string) => void }) {
  const hosts = useQuery(hostsQuery());
  const known = hosts.data?.hosts ?? [];
  const listed = known.some((each) => each.hostname === host);
  return (
    <label className="min-w-0 flex-1 sm:flex-none">
      <span className="sr-only">Host</span>
      <select className="field w-full max-w-full sm:w-56" value={host} onChange={(event) => onChange(event.target.value)}>
        <option value="">All hosts{known.length > 0 ? ` (${hosts.data?.total ?? known.length})` : ""}</option>
        {host !== "" && !listed && <option value={host}>{host}</option>}
        {known.map((each) => (
          <option key={each.hostname} value={each.hostname}>
            {each.hostname} ({each.gpu_count})
          </option>
        ))}
      </select>
    </label>
  );
}

function NoGpus({ state, partial }: { readonly state: FleetState; readonly partial: boolean }) {
  if (state.search !== "" || state.host !== "" || state.state !== "" || state.page > 1) {
    return (
      <Empty title="No GPU fits these filters">
        <button type="button" className="button mt-3" onClick={() => goTo("/")}>
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

interface PagesProps {
  readonly state: FleetState;
  readonly total: number;
  readonly hasNext: boolean;
}

function Pages({ state, total, hasNext }: PagesProps) {
  if (total <= PAGE_SIZE && state.page === 1) return null;
  const first = (state.page - 1) * PAGE_SIZE + 1;
  const last = Math.min(total, state.page * PAGE_SIZE);
  const to = (page: number) => {
    goTo(fleetPath({ ...state, page }));
    window.scrollTo(0, 0);
  };
  return (
    <nav aria-label="Pages of the list" className="mt-3 flex items-center justify-end gap-2 text-[13px]">
      <span className="num mr-1 text-muted">
        {first.toLocaleString("en")}–{last.toLocaleString("en")} of {total.toLocaleString("en")}
      </span>
      <button type="button" className="button square" aria-label="Previous page" title="Previous page ([)" disabled={state.page === 1} onClick={() => to(state.page - 1)}>
        <ChevronLeft size={15} aria-hidden />
      </button>
      <button type="button" className="button square" aria-label="Next page" title="Next page (])" disabled={!hasNext} onClick={() => to(state.page + 1)}>
        <ChevronRight size={15} aria-hidden />
      </button>
    </nav>
  );
}

function Waiting() {
  return (
    <div role="status" aria-label="Loading GPUs" className="card divide-y divide-line">
      {Array.from({ length: 12 }, (_, row) => (
        <div key={row} className="flex items-center gap-6 px-3.5 py-3">
          <div className="waiting h-3.5 w-48" />
          <div className="waiting h-3.5 w-28" />
          <div className="waiting ml-auto h-3.5 w-24" />
        </div>
      ))}
    </div>
  );
}
