import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { clustersQuery, nodesQuery, processesQuery, summaryQuery, type Cluster } from "../../api/clusters";
import { HEALTH_INTERVAL_MS } from "../../shared/config";
import { ABSENT, formatNumber, formatValue, shareOf } from "../../shared/format";
import { useAddress } from "../../shared/address";
import { goTo, Link } from "../../shared/location";
import { Empty, Failed, NotRenewed } from "../../shared/states";
import { formatClock } from "../../shared/time";
import { List } from "../../parts/columns";
import { Bar, heatColour } from "../../parts/gpuLook";
import { ClearFilters, Pages, SearchField, Select, useListKeys, WaitingRows } from "../../parts/list";
import { inOrder } from "../../parts/order";
import { PAGE_SIZE, pageOf } from "../../parts/pages";
import { Tile, TILES, WaitingTiles } from "../../parts/tiles";
import { absentees, isUnread, nodesOf } from "./absentees";
import { ClusterList } from "./ClusterList";
import { CLUSTERS, isFiltered, viewPath, VIEWS, type ClustersState } from "./address";
import { NODE_LOOKS } from "./look";
import { NODE_LIST } from "./nodeList";
import { NotConfigured } from "./NotConfigured";
import { PROCESS_LIST } from "./processList";
import { choicesOf, nodeRows, processRows } from "./rows";

/** Clusters that are read from outside: all together, each with what of it is missing, and their nodes or processes. */
export function ClustersPage() {
  const { state, change, pathTo } = useAddress(CLUSTERS);
  const clusters = useQuery(clustersQuery(HEALTH_INTERVAL_MS));
  if (clusters.data === undefined) {
    if (clusters.isError) return <Failed what="The clusters" error={clusters.error} retry={() => void clusters.refetch()} />;
    return <Waiting />;
  }
  if (clusters.data.length === 0) return <NotConfigured />;
  const missing = absentees(clusters.data);
  return (
    <div data-testid="clusters" data-last-update={clusters.dataUpdatedAt}>
      <h1 className="sr-only">Clusters</h1>
      <Together clusters={clusters.data} />
      {missing !== null && (
        <p role="note" aria-label="Incomplete" className="mt-2 text-[13px] text-warn">
          Not everything could be read: {missing}.
        </p>
      )}
      <NotRenewed of={[clusters]} />
      <ClusterList clusters={clusters.data} state={state} at={clusters.dataUpdatedAt} />
      <Views state={state} />
      <ViewOf clusters={clusters.data} state={state} change={change} pathTo={pathTo} />
    </div>
  );
}

/** All clusters together. */
function Together({ clusters }: { readonly clusters: readonly Cluster[] }) {
  const { data } = useQuery(summaryQuery(""));
  const nodes = nodesOf(clusters);
  const troubled = clusters.filter((cluster) => isUnread(cluster) || cluster.state === "degraded").length;
  const utilization = data?.average_gpu_utilization_percent ?? null;
  const celsius = data?.average_temperature_celsius ?? null;
  // Of no GPUs there is no sum to show.
  const read = data?.gpu_count === 0 ? undefined : data;
  const [used, total] = [read?.used_memory_mb ?? null, read?.total_memory_mb ?? null];
  return (
    <dl className={TILES} aria-label="All clusters together">
      <Tile name="Clusters" value={formatNumber(clusters.length)}>
        {troubled > 0 && <span className="ml-1.5 text-xs text-warn">{formatNumber(troubled)} not wholly read</span>}
      </Tile>
      <Tile name="Nodes read" value={formatNumber(nodes.read)}>
        <span className="ml-1.5 text-xs text-faint">of {formatNumber(nodes.known)}{nodes.all ? "" : " known"}</span>
      </Tile>
      <Tile name="GPUs read" value={data === undefined ? ABSENT : formatNumber(data.gpu_count)} />
      <Tile name="Mean utilization" value={formatValue(utilization, "%")}>
        <Share share={shareOf(utilization, 100)} label="Mean utilization" />
      </Tile>
      <Tile name="Mean temperature" value={formatValue(celsius, "°C")}>
        <Share share={shareOf(celsius, 100)} label="Mean temperature from 0 to 100 °C" colour={heatColour(celsius)} />
      </Tile>
      <Tile name="Memory" value={formatValue(used, "MiB")}>
        {total !== null && <span className="ml-1.5 text-xs text-faint">of {formatValue(total, "MiB")}</span>}
        <Share share={shareOf(data?.memory_utilization_percent ?? null, 100)} label="Memory in use" />
      </Tile>
    </dl>
  );
}

function Share(props: { readonly share: number | null; readonly label: string; readonly colour?: string }) {
  return (
    <span className="mt-2 block">
      <Bar {...props} />
    </span>
  );
}

const VIEW_NAMES = { nodes: "Nodes", processes: "Processes" } as const;

function Views({ state }: { readonly state: ClustersState }) {
  return (
    <nav aria-label="Views" className="mt-5 flex gap-4 border-b border-line">
      {VIEWS.map((view) => (
        <Link
          key={view}
          to={viewPath(state, view)}
          aria-current={state.view === view ? "page" : undefined}
          className={`-mb-px border-b-2 px-0.5 py-1.5 text-[13px] ${state.view === view ? "border-accent font-medium" : "border-transparent text-muted hover:text-fg"}`}
        >
          {VIEW_NAMES[view]}
        </Link>
      ))}
    </nav>
  );
}

interface ViewProps {
  readonly clusters: readonly Cluster[];
  readonly state: ClustersState;
  readonly change: (part: Partial<ClustersState>) => void;
  readonly pathTo: (part: Partial<ClustersState>) => string;
}

function ViewOf(props: ViewProps) {
  const { clusters, state } = props;
  const chosen = clusters.find((cluster) => cluster.cluster_id === state.cluster);
  // The server refuses such questions; what it would say is known here.
  if (state.cluster !== "" && chosen === undefined) return <Nothing title="No cluster of this name is configured" state={state} />;
  if (chosen?.has_gpu === false) return <Nothing title="This cluster has no GPUs by configuration" state={state} />;
  return state.view === "nodes" ? <Nodes {...props} /> : <Processes {...props} />;
}

function Nothing({ title, state }: { readonly title: string; readonly state: ClustersState }) {
  return (
    <div className="mt-3">
      <Empty title={title}>
        <button type="button" className="button mt-3" onClick={() => goTo(CLUSTERS.to({ view: state.view }))}>
          Show all clusters
        </button>
      </Empty>
    </div>
  );
}

function Nodes({ clusters, state, change, pathTo }: ViewProps) {
  const nodes = useQuery(nodesQuery(state.cluster));
  const rows = useMemo(() => inOrder(nodeRows(nodes.data ?? [], state, nodes.dataUpdatedAt), NODE_LIST.columns, state.sort), [nodes.data, nodes.dataUpdatedAt, state]);
  const { shown, ...place } = pageOf(rows, state.page);
  const paging = { ...place, pathOf: (page: number) => pathTo({ page }) };
  useListKeys(paging);
  return (
    <section aria-label="Nodes">
      <div className="my-2 flex flex-wrap items-center gap-2">
        <SearchField label="Search nodes" placeholder="Search name, label, model" searched={state.search} onChange={(search) => change({ search })} />
        <ClusterSelect clusters={clusters} state={state} change={change} />
        <Select
          label="State"
          value={state.state}
          all="All states"
          options={Object.entries(NODE_LOOKS).map(([value, look]) => [value, look.name])}
          onChange={(chosen) => change({ state: chosen })}
        />
        {isFiltered(state) && <ClearFilters onClick={() => change({ search: "", state: "" })} />}
        <Count late={nodes.isError && nodes.data !== undefined} at={nodes.dataUpdatedAt} count={nodes.data && rows.length} one="node" />
      </div>
      {nodes.data === undefined ? (
        nodes.isError ? (
          <Failed what="The nodes" error={nodes.error} retry={() => void nodes.refetch()} />
        ) : (
          <WaitingRows label="Loading nodes" rows={6} />
        )
      ) : rows.length === 0 ? (
        <NoRows state={state} title="No GPU nodes are known">
          {absentees(clusters) === null ? "The clusters have none." : "What could not be read may have some."}
        </NoRows>
      ) : (
        <>
          <List of={NODE_LIST} rows={shown} sort={state.sort} onSort={(sort) => change({ sort })} dim={nodes.isPlaceholderData} whole={rows} />
          <Pages {...paging} size={PAGE_SIZE} total={rows.length} />
        </>
      )}
    </section>
  );
}

function Processes({ clusters, state, change, pathTo }: ViewProps) {
  const answer = useQuery(processesQuery(state.cluster));
  const all = useMemo(() => answer.data?.processes ?? [], [answer.data]);
  const rows = useMemo(() => inOrder(processRows(all, state), PROCESS_LIST.columns, state.sort), [all, state]);
  const { shown, ...place } = pageOf(rows, state.page);
  const paging = { ...place, pathOf: (page: number) => pathTo({ page }) };
  const choices = (field: "node_name" | "process_type") => choicesOf(all, field).map((value) => [value, value] as const);
  const partial = answer.data?.partial ?? null;
  useListKeys(paging);
  return (
    <section aria-label="Processes">
      <div className="my-2 flex flex-wrap items-center gap-2">
        <SearchField label="Search processes" placeholder="Search command, PID" searched={state.search} onChange={(search) => change({ search })} />
        <ClusterSelect clusters={clusters} state={state} change={change} />
        <Select label="Node" value={state.node} all="All nodes" options={choices("node_name")} onChange={(node) => change({ node })} />
        <Select label="Type" value={state.type} all="All types" options={choices("process_type")} onChange={(type) => change({ type })} />
        {isFiltered(state) && <ClearFilters onClick={() => change({ search: "", node: "", type: "" })} />}
        <Count late={answer.isError && answer.data !== undefined} at={answer.dataUpdatedAt} count={answer.data && rows.length} one="process" />
      </div>
      {partial !== null && (
        <p role="note" aria-label="Incomplete list" className="mb-2 truncate text-[13px] text-warn" title={partial}>
          Not all processes could be read: {partial}
        </p>
      )}
      {answer.data === undefined ? (
        answer.isError ? (
          <Failed what="The processes" error={answer.error} retry={() => void answer.refetch()} />
        ) : (
          <WaitingRows label="Loading processes" rows={6} />
        )
      ) : rows.length === 0 ? (
        <NoRows state={state} title="No processes">
          {partial === null ? "Nothing runs on these GPUs." : "What could not be read may have some."}
        </NoRows>
      ) : (
        <>
          <List of={PROCESS_LIST} rows={shown} sort={state.sort} onSort={(sort) => change({ sort })} dim={answer.isPlaceholderData} whole={rows} />
          <Pages {...paging} size={PAGE_SIZE} total={rows.length} />
        </>
      )}
    </section>
  );
}

function ClusterSelect({ clusters, state, change }: Pick<ViewProps, "clusters" | "state" | "change">) {
  if (clusters.length === 1 && state.cluster === "") return null;
  const options = clusters.map(({ cluster_id: name }) => [name, name] as const);
  return <Select label="Cluster" value={state.cluster} all={`All clusters (${clusters.length})`} options={options} onChange={(cluster) => change({ cluster, node: "" })} />;
}

interface CountProps {
  /** What is shown is older than the last attempt to ask. */
  readonly late: boolean;
  readonly at: number;
  readonly count: number | undefined;
  readonly one: "node" | "process";
}

const MANY = { node: "nodes", process: "processes" } as const;

function Count({ late, at, count, one }: CountProps) {
  return (
    <p role="status" className="num ml-auto text-xs text-muted">
      {late ? `Not renewed: as of ${formatClock(at)}` : count !== undefined && `${formatNumber(count)} ${count === 1 ? one : MANY[one]}`}
    </p>
  );
}

function NoRows({ state, title, children }: { readonly state: ClustersState; readonly title: string; readonly children: string }) {
  if (!isFiltered(state)) return <Empty title={title}>{children}</Empty>;
  return (
    <Empty title={`No ${state.view === "nodes" ? "node" : "process"} fits these filters`}>
      <button type="button" className="button mt-3" onClick={() => goTo(viewPath(state, state.view))}>
        Show all {state.view}
      </button>
    </Empty>
  );
}

function Waiting() {
  return (
    <div className="space-y-3">
      <WaitingTiles label="Loading clusters" />
      <div className="waiting h-40" />
    </div>
  );
}
