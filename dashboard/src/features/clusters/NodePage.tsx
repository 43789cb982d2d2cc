import { useQuery } from "@tanstack/react-query";
import { ChevronRight } from "lucide-react";
import { useMemo, type ReactNode } from "react";
import { nodeQuery, recordedGpusQuery, type ClusterNode } from "../../api/clusters";
import { ApiError } from "../../api/client";
import { ABSENT, formatValue } from "../../shared/format";
import { useAddress } from "../../shared/address";
import { Link } from "../../shared/location";
import { Empty, Failed, NotRenewed } from "../../shared/states";
import { List } from "../../parts/columns";
import { Pages, useListKeys, WaitingRows } from "../../parts/list";
import { inOrder } from "../../parts/order";
import { PAGE_SIZE, pageOf } from "../../parts/pages";
import { CLUSTERS, NODE } from "./address";
import { Age, NodeBadge, nodeLook, Since } from "./look";
import { NodeGpus } from "./NodeGpus";
import { gpusText } from "./nodeList";
import { PROCESS_LIST, PROCESS_PLACE } from "./processList";
import { labelsInOrder, modelsOf } from "./rows";

/** One GPU node of a cluster: its state, its GPUs and the processes on them. */
export function NodePage({ cluster, node: name }: { readonly cluster: string; readonly node: string }) {
  const node = useQuery(nodeQuery(cluster, name));
  const recorded = useQuery(recordedGpusQuery(name));
  if (node.data === undefined) {
    if (!node.isError) return <WaitingRows label="Loading the node" />;
    return isMissing(node.error) ? <Missing cluster={cluster} node={name} error={node.error} /> : <Failed what="This node" error={node.error} retry={() => void node.refetch()} />;
  }
  const shown = node.data;
  return (
    <div data-testid="node" data-last-update={node.dataUpdatedAt}>
      <Header node={shown} at={node.dataUpdatedAt} />
      <NotRenewed of={[node]} />
      {shown.stale && (
        <p role="note" aria-label="Age of the data" className="mt-2 text-[13px] text-warn">
          Shown is the last good reading: <Age seconds={shown.age_seconds} at={node.dataUpdatedAt} stale={false} />.
        </p>
      )}
      <div className="mt-4 grid items-start gap-4 xl:grid-cols-[minmax(0,1fr)_21rem]">
        <div className="min-w-0 space-y-4">
          {shown.age_seconds === null ? (
            <Empty title="Never read">{`${nodeLook(shown.state).meaning}. Of its GPUs nothing is known yet.`}</Empty>
          ) : (
            <>
              <NodeGpus gpus={shown.gpus} recorded={recorded.data ?? []} />
              <Processes node={shown} />
            </>
          )}
        </div>
        <Labels labels={shown.labels} />
      </div>
    </div>
  );
}

interface HeaderProps {
  readonly node: ClusterNode;
  readonly at: number;
}

function Header({ node, at }: HeaderProps) {
  const drivers = [...new Set(node.gpus.map((gpu) => gpu.driver_version).filter((version) => version !== null))];
  const models = modelsOf(node.gpus);
  return (
    <header>
      <nav aria-label="Path" className="flex items-center gap-1 text-xs text-muted">
        <Link to={CLUSTERS.path} className="hover:text-fg hover:underline">
          Clusters
        </Link>
        <ChevronRight size={12} aria-hidden />
        <Link to={CLUSTERS.to({ cluster: node.cluster_id })} className="truncate hover:text-fg hover:underline" title="Nodes of this cluster">
          {node.cluster_id}
        </Link>
      </nav>
      <div className="mt-1 flex flex-wrap items-center gap-x-3 gap-y-1">
        <h1 className="min-w-0 text-lg font-semibold tracking-tight break-words">{node.node_name}</h1>
        <NodeBadge state={node.state} />
        <Since since={node.since} />
      </div>
      {node.error !== null && <p className={`mt-1 text-[13px] [overflow-wrap:anywhere] ${nodeLook(node.state).colour}`}>{node.error}</p>}
      <dl className="mt-1 flex flex-wrap items-center gap-x-5 gap-y-1 text-[13px]">
        <Fact name="GPUs">
          {gpusText(node)} {models.join(", ")}
        </Fact>
        <Fact name="Vendor">{node.vendor.toUpperCase()}</Fact>
        <Fact name="Driver">{drivers.length === 0 ? ABSENT : drivers.join(", ")}</Fact>
        <Fact name="Memory">{formatValue(node.gpu_count === 0 ? null : node.total_memory_mb, "MiB")}</Fact>
        <Fact name="Read">
          <Age seconds={node.age_seconds} at={at} stale={node.stale} />
        </Fact>
      </dl>
    </header>
  );
}

function Fact({ name, children }: { readonly name: string; readonly children: ReactNode }) {
  return (
    <div className="flex items-baseline gap-1.5">
      <dt className="text-xs text-faint">{name}</dt>
      <dd className="num text-muted">{children}</dd>
    </div>
  );
}

function Processes({ node }: { readonly node: ClusterNode }) {
  const { state, change, pathTo } = useAddress(NODE);
  const rows = useMemo(() => inOrder(node.gpus.flatMap((gpu) => gpu.processes), PROCESS_LIST.columns, state.sort), [node.gpus, state.sort]);
  const { shown, ...place } = pageOf(rows, state.page);
  const paging = { ...place, pathOf: (page: number) => pathTo({ page }) };
  useListKeys(paging);
  return (
    <section aria-label="Processes">
      <h2 className="mb-2 text-[13px] font-semibold">Processes</h2>
      {node.processes_error !== null && (
        <p role="note" aria-label="Incomplete list" className="mb-2 text-[13px] [overflow-wrap:anywhere] text-warn">
          The processes could not be listed: {node.processes_error}
        </p>
      )}
      {rows.length > 0 ? (
        <List of={PROCESS_LIST} rows={shown} without={PROCESS_PLACE} sort={state.sort} onSort={(sort) => change({ sort })} whole={rows} />
      ) : (
        node.processes_error === null && <p className="card p-4 text-[13px] text-muted">Nothing runs on these GPUs.</p>
      )}
      <Pages {...paging} size={PAGE_SIZE} total={rows.length} />
    </section>
  );
}

function Labels({ labels }: { readonly labels: ClusterNode["labels"] }) {
  const shown = labelsInOrder(labels);
  if (shown.length === 0) return null;
  return (
    <section aria-label="Labels" className="card overflow-hidden">
      <h2 className="border-b border-line px-3.5 py-2 text-[13px] font-semibold">Labels</h2>
      <dl className="space-y-1 px-3.5 py-2 text-[13px]">
        {shown.map(([name, value]) => (
          <div key={name}>
            <dt className="text-[11px] [overflow-wrap:anywhere] text-faint">{name}</dt>
            <dd className="[overflow-wrap:anywhere]">{value === "" ? ABSENT : value}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

function isMissing(error: Error): boolean {
  return error instanceof ApiError && error.failure.kind === "server" && error.failure.status === 404;
}

interface MissingProps {
  readonly cluster: string;
  readonly node: string;
  readonly error: Error;
}

function Missing({ cluster, node, error }: MissingProps) {
  return (
    <Empty title="No such node">
      <p>
        <code className="font-mono break-all">{`${cluster} / ${node}`}</code>: {error.message}
      </p>
      <Link to={CLUSTERS.path} className="button mt-4">
        To the clusters
      </Link>
    </Empty>
  );
}
