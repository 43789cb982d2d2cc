import type { Share } from "../../api/fleetUse";
import type { ListOf } from "../../parts/columns";
import { hours, kwh } from "../../parts/energy";
import { highestFirst, lowestFirst } from "../../parts/order";
import { capital, formatNumber, shareOf } from "../../shared/format";
import { Link } from "../../shared/location";
import type { NamedLine } from "./lines";

/** The list of the groups; `pathOf` leads to one of them alone, where that can be asked for. */
export function groupList(by: Share, pathOf: (line: NamedLine) => string | null): ListOf<NamedLine> {
  return {
    label: `Energy and GPU hours by ${by}`,
    keyOf: ({ name, isRest }) => (isRest ? "" : name),
    mark: ({ group }) => ({ "data-group": group ?? "" }),
    pathOf,
    columns: [
      { id: by, title: capital(by), card: "name", sort: lowestFirst(({ name }) => name), cell: (line) => <GroupName line={line} path={pathOf(line)} />, className: "font-medium", limit: "max-w-72" },
      { id: "gpus", title: "GPUs", sort: highestFirst(({ line }) => line.gpus_seen), cell: ({ line }) => formatNumber(line.gpus_seen), className: "num" },
      { id: "energy_kwh", title: "Energy", sort: highestFirst(({ line }) => line.energy_kwh), cell: ({ line }) => kwh(line.energy_kwh), className: "num" },
      { id: "gpu_hours", title: "GPU hours", sort: highestFirst(({ line }) => line.gpu_hours), cell: ({ line }) => hours(line.gpu_hours), className: "num" },
      { id: "busy_gpu_hours", title: "Busy", sort: highestFirst(({ line }) => line.busy_gpu_hours), cell: ({ line }) => <Part of={line.gpu_hours} value={line.busy_gpu_hours} />, className: "num" },
      { id: "held_gpu_hours", title: "Held", sort: highestFirst(({ line }) => line.held_gpu_hours), cell: ({ line }) => <Part of={line.gpu_hours} value={line.held_gpu_hours} />, className: "num" },
      { id: "idle_gpu_hours", title: "Held but idle", sort: highestFirst(({ line }) => line.idle_gpu_hours), cell: ({ line }) => <Part of={line.held_gpu_hours} value={line.idle_gpu_hours} />, className: "num" },
    ],
  };
}

function Part({ value, of }: { readonly value: number | null; readonly of: number | null }) {
  const share = shareOf(value, of);
  return (
    <>
      {hours(value)} {share !== null && <span className="text-faint">{formatNumber(share * 100)}%</span>}
    </>
  );
}

function GroupName({ line: { name, group }, path }: { readonly line: NamedLine; readonly path: string | null }) {
  if (path === null) return <span className={`block truncate ${group === null ? "text-muted" : ""}`}>{name}</span>;
  return (
    <Link to={path} data-row="" className={`block truncate hover:underline ${group === null ? "text-muted" : ""}`} title={`Only ${name}`}>
      {name}
    </Link>
  );
}
