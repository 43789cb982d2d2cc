import type { Ledger } from "../../api/usage";
import { COMPARE, FLEET, HOST } from "../../parts/addresses";
import type { ListOf } from "../../parts/columns";
import { hours, kwh } from "../../parts/energy";
import { Bar } from "../../parts/gpuLook";
import { highestFirst, lowestFirst } from "../../parts/order";
import { ABSENT, formatNumber, shareOf } from "../../shared/format";
import { Link } from "../../shared/location";
import { Advice } from "./Advice";
import type { HolderRow } from "./holders";
import { percent } from "./usage";

/** As many hosts as a cell has room for. */
const HOSTS_SHOWN = 2;

/** What a cell says in small of a batch job, in the file each by itself. */
const TOLD = ["gpus_asked", "name", "user", "account", "queue", "state", "exit_code"] as const;

/** The list of jobs and pods. */
export const HOLDER_LIST: ListOf<HolderRow> = {
  label: "GPU hours, energy and waste of each job and pod",
  keyOf: ({ cluster, holder }) => `${cluster ?? ""} ${holder}`,
  mark: ({ holder }) => ({ "data-group": holder }),
  pathOf: ({ page }) => page,
  filed: [
    { id: "cluster", value: ({ cluster }) => cluster },
    { id: "idle", value: ({ idle }) => idle },
    ...TOLD.map((id) => ({ id, value: ({ about }: HolderRow) => about?.[id] ?? null })),
    { id: "simulated", value: ({ isSimulated }) => String(isSimulated) },
  ],
  below: ({ advice }) => (advice === null ? null : <Advice of={advice} />),
  columns: [
    { id: "holder", title: "Holder", card: "name", sort: lowestFirst(({ holder }) => holder), cell: (row) => <Holder row={row} />, className: "font-medium", limit: "max-w-72" },
    { id: "gpus", title: "GPUs", sort: highestFirst(({ gpus }) => gpus), cell: (row) => <Gpus row={row} />, className: "num" },
    { id: "held", title: "Held", sort: highestFirst(({ held }) => held), cell: ({ held }) => hours(held), className: "num" },
    { id: "busy", title: "Busy", sort: highestFirst(({ busy }) => busy), cell: ({ busy }) => hours(busy), className: "num" },
    { id: "wasted", title: "Wasted", sort: highestFirst(({ wasted }) => wasted), cell: (row) => <Wasted row={row} />, className: "num" },
    { id: "shared", title: "Shared", sort: highestFirst(({ shared }) => shared), cell: ({ shared }) => hours(shared), className: "num" },
    { id: "energy", title: "Energy", sort: highestFirst(({ energyKwh }) => energyKwh), cell: ({ energyKwh }) => kwh(energyKwh), className: "num" },
    { id: "cost", title: "Cost of waste", sort: highestFirst(({ cost }) => cost), cell: ({ cost }) => (cost === null ? ABSENT : formatNumber(cost)), className: "num" },
    { id: "hosts", title: "Hosts", value: ({ hosts }) => hosts.join(" "), cell: ({ hosts }) => <Hosts hosts={hosts} /> },
    { id: "compare", title: "Compare", cell: (row) => <Comparison row={row} /> },
  ],
};

/** The lists by what they are put together. */
export const LEDGER_LISTS: Readonly<Record<Ledger, ListOf<HolderRow>>> = {
  holder: HOLDER_LIST,
  user: {
    ...HOLDER_LIST,
    label: "GPU hours, energy and waste of each user",
    filed: [],
    // No identity names users.
    columns: HOLDER_LIST.columns.filter(({ id }) => id !== "compare").map((column) => (column.id === "holder" ? { ...column, title: "User" } : column)),
  },
};

function Holder({ row: { holder, told, cluster, page, isRunning, isSimulated } }: { readonly row: HolderRow }) {
  const notes = [...told, cluster, isRunning ? "has a GPU now" : null, isSimulated ? "simulated" : null].filter((note) => note !== null);
  return (
    <>
      {page === null ? (
        <span className="block truncate" title={holder}>
          {holder}
        </span>
      ) : (
        <Link to={page} data-row="" className="block truncate hover:underline" title={holder}>
          {holder}
        </Link>
      )}
      <span className="block truncate text-[11px] font-normal text-faint" title={notes.join(", ")}>
        {notes.join(", ")}
      </span>
    </>
  );
}

/** How many it had, with the way to those that it has now, and in small how many were asked for, where that is known. */
function Gpus({ row: { holder, gpus, about, where, isRunning } }: { readonly row: HolderRow }) {
  const asked = about?.gpus_asked ?? null;
  return (
    <>
      {where === null || !isRunning ? (
        formatNumber(gpus)
      ) : (
        <Link to={FLEET.to({ where })} className="relative inline-block min-w-[24px] rounded hover:underline" aria-label={`GPUs that ${holder} has now`}>
          {formatNumber(gpus)}
        </Link>
      )}
      {asked !== null && <span className="block text-[11px] text-faint">{formatNumber(asked)} asked</span>}
    </>
  );
}

function Wasted({ row }: { readonly row: HolderRow }) {
  const share = shareOf(row.wasted, row.held);
  return (
    <span className="block w-28">
      {hours(row.wasted)} <span className="text-faint">{percent(share)}</span>
      {share !== null && <Bar share={share} label="Wasted share of the held hours" colour="var(--warn)" />}
      {row.idle !== null && row.idle > 0 && <span className="block text-[11px] text-faint">{hours(row.idle)} never used</span>}
    </span>
  );
}

function Hosts({ hosts }: { readonly hosts: readonly string[] }) {
  const more = hosts.length - HOSTS_SHOWN;
  return (
    <span className="[overflow-wrap:anywhere]">
      {hosts.slice(0, HOSTS_SHOWN).map((name) => (
        <Link key={name} to={HOST.to({ name })} className="relative mr-1.5 rounded hover:underline">
          {name}
        </Link>
      ))}
      {more > 0 && <span className="text-faint" title={hosts.join(", ")}>and {formatNumber(more)} more</span>}
    </span>
  );
}

/** The GPUs that it has now beside each other, where it has several. */
function Comparison({ row: { holder, where, gpus, isRunning } }: { readonly row: HolderRow }) {
  if (where === null || gpus < 2 || !isRunning) return null;
  return (
    <Link to={COMPARE.to({ where })} className="relative rounded text-accent hover:underline" aria-label={`Compare the GPUs of ${holder}`}>
      Compare
    </Link>
  );
}
