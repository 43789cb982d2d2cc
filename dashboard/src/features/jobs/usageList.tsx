import { HOLDERS, type Holder } from "../../api/usage";
import { whereIs } from "../../api/where";
import { COMPARE, FLEET } from "../../parts/addresses";
import type { ListOf } from "../../parts/columns";
import { hours, kwh, sourceWords } from "../../parts/energy";
import { Bar } from "../../parts/gpuLook";
import { highestFirst, lowestFirst } from "../../parts/order";
import { ABSENT, capital, formatNumber, shareOf } from "../../shared/format";
import { Link } from "../../shared/location";
import { percent, type UsageRow } from "./usage";

/** By holder: the list of those who used GPUs. */
export const USAGE_LISTS = Object.fromEntries(HOLDERS.map((by) => [by, usageList(by)])) as Readonly<Record<Holder, ListOf<UsageRow>>>;

function usageList(by: Holder): ListOf<UsageRow> {
  return {
    label: `GPU hours, energy and waste by ${by}`,
    keyOf: ({ group }) => group ?? "",
    mark: ({ group }) => ({ "data-group": group ?? "" }),
    pathOf: ({ group }) => gpusPath(by, group),
    columns: [
      { id: "group", title: capital(by), card: "name", sort: lowestFirst(({ group }) => group), cell: ({ group }) => <GroupLink by={by} group={group} />, className: "font-medium", limit: "max-w-72" },
      { id: "gpus", title: "GPUs", sort: highestFirst(({ gpus }) => gpus), cell: ({ gpus }) => formatNumber(gpus), className: "num" },
      { id: "gpu_hours", title: "GPU hours", sort: highestFirst(({ gpuHours }) => gpuHours), cell: ({ gpuHours }) => hours(gpuHours), className: "num" },
      { id: "energy", title: "Energy", sort: highestFirst(({ energyKwh }) => energyKwh), cell: (row) => <Energy row={row} />, className: "num" },
      { id: "held", title: "Held", sort: highestFirst(({ heldHours }) => heldHours), cell: ({ heldHours }) => hours(heldHours), className: "num" },
      { id: "idle", title: "Held but idle", sort: highestFirst(({ idleHours }) => idleHours), cell: (row) => <Idle row={row} />, className: "num" },
      { id: "idle_energy", title: "Energy while idle", sort: highestFirst(({ idleKwh }) => idleKwh), cell: ({ idleKwh }) => kwh(idleKwh), className: "num" },
      { id: "cost", title: "Cost while idle", sort: highestFirst(({ cost }) => cost), cell: ({ cost }) => (cost === null ? ABSENT : formatNumber(cost)), className: "num" },
      { id: "compare", title: "Compare", cell: (row) => <Comparison by={by} row={row} /> },
    ],
  };
}

function Energy({ row }: { readonly row: UsageRow }) {
  return (
    <>
      {kwh(row.energyKwh)}
      <span className="block text-[11px] text-faint">{sourceWords(row.counted)}</span>
    </>
  );
}

function Idle({ row }: { readonly row: UsageRow }) {
  const share = shareOf(row.idleHours, row.heldHours);
  return (
    <span className="block w-28">
      {hours(row.idleHours)} <span className="text-faint">{percent(share)}</span>
      {share !== null && <Bar share={share} label="Idle share of the held hours" colour="var(--warn)" />}
    </span>
  );
}

/** The GPUs of a holder beside each other, where it has several. */
function Comparison({ by, row: { group, gpus } }: { readonly by: Holder; readonly row: UsageRow }) {
  if (group === null || gpus < 2) return null;
  return (
    <Link to={COMPARE.to(by === "node" ? { host: group } : { where: whereIs(by, group) })} className="relative rounded text-accent hover:underline" aria-label={`Compare the GPUs of ${group}`}>
      Compare
    </Link>
  );
}

function gpusPath(by: Holder, group: string | null): string {
  if (by === "node" && group !== null) return FLEET.to({ host: group });
  return FLEET.to({ where: whereIs(by, group) });
}

function GroupLink({ by, group }: { readonly by: Holder; readonly group: string | null }) {
  return (
    <Link
      to={gpusPath(by, group)}
      data-row=""
      className={`block truncate hover:underline ${group === null ? "text-muted" : ""}`}
      title={group === null ? `GPUs that no ${by} holds now` : `GPUs that ${group} holds now`}
    >
      {group ?? `No ${by}`}
    </Link>
  );
}
