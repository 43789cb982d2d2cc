import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import { hostsQuery } from "../../api/queries";
import { HOLDERS, usageQuery, type Holder } from "../../api/usage";
import { whereIs } from "../../api/where";
import { FLEET } from "../../parts/addresses";
import { isRecorded, PRESETS, type Range } from "../../parts/range";
import { useAddress } from "../../shared/address";
import { ABSENT, capital, formatNumber, formatValue, shareOf } from "../../shared/format";
import { Link } from "../../shared/location";
import { useMedia } from "../../shared/media";
import { Empty, Failed } from "../../shared/states";
import { formatClock, formatInstant, MINUTE, parseInstant, useNow } from "../../shared/time";
import { CustomRange, RangeChoices } from "../../parts/rangeChoices";
import { Bar, SimulatedBanner } from "../../parts/gpuLook";
import { HeaderCell, OpeningRow, Pages, useListKeys, WaitingRows, type Header } from "../../parts/list";
import { pageOf, PAGE_SIZE } from "../../parts/pages";
import { Tile, TILES } from "../../parts/tiles";
import { Stragglers } from "./Stragglers";
import { JOBS, MOST_WASTE, parsePrice, PRESETS_SHOWN, type Column } from "./address";
import { rowsOf, sorted, sourceWords, wholeOf, type UsageRow } from "./usage";

const NAMES: Readonly<Record<Holder, string>> = { namespace: "Namespaces", job: "Jobs", pod: "Pods", node: "Nodes" };

/** Who used how many GPU hours and how much energy, and who held GPUs for nothing: the most waste first. */
export function JobsPage() {
  const { state, change, pathTo } = useAddress(JOBS);
  const now = useNow(MINUTE);
  const hosts = useQuery(hostsQuery());
  const anchor = anchorOf(hosts.data?.hosts ?? [], now);
  const usage = useQuery({ ...usageQuery({ by: state.by, range: askedRange(state.range, anchor) }), enabled: hosts.data !== undefined || hosts.isError });
  const { data } = usage;
  const rows = useMemo(() => (data === undefined ? [] : sorted(rowsOf(state.by, data.energy.groups, data.idle.groups, state.price), state.sort)), [data, state.by, state.price, state.sort]);
  const whole = data === undefined ? null : wholeOf(data.energy.whole, data.idle.whole, state.price);
  const { shown, page, hasNext } = pageOf(rows, state.page);
  const paging = { page, hasNext, pathOf: (other: number) => pathTo({ page: other }) };
  useListKeys(paging);
  const span = data?.span ?? { start: now - MINUTE, end: now };
  const isSimulated = hosts.data?.hosts.some((host) => host.simulated) === true;
  const hasHolders = rows.some((row) => row.group !== null);
  const narrow = useMedia("(max-width: 760px)");

  return (
    <div data-testid="jobs" data-last-update={usage.dataUpdatedAt}>
      {isSimulated && <SimulatedBanner>Some of these GPUs are simulated: what they use was made up by gpuvitals, not measured.</SimulatedBanner>}
      <h1 className="sr-only">Jobs and namespaces</h1>
      <div className="mb-3 flex flex-wrap items-center gap-2">
        <nav aria-label="Groups" className="card flex rounded-md! p-0.5">
          {HOLDERS.map((by) => (
            <Link
              key={by}
              to={pathTo({ by, page: 1 })}
              aria-current={state.by === by ? "page" : undefined}
              className={`flex h-7 items-center rounded px-2.5 text-[13px] ${state.by === by ? "bg-raised font-medium" : "text-muted hover:text-fg"}`}
            >
              {NAMES[by]}
            </Link>
          ))}
        </nav>
        <RangeChoices range={state.range} span={span} presets={PRESETS_SHOWN} hasAll={false} onRange={(range) => change({ range })} />
        <PriceField price={state.price} onChange={(price) => change({ price })} />
        <p role="status" className="num ml-auto text-xs text-muted">
          {usage.isError && data !== undefined ? `Not renewed: as of ${formatClock(usage.dataUpdatedAt)}` : data !== undefined && `${formatInstant(span.start, now)} – ${formatInstant(span.end, now)}`}
        </p>
      </div>
      <CustomRange range={state.range} onRange={(range) => change({ range })} />
      {anchor !== null && state.range.kind === "preset" && (
        <p role="note" aria-label="Age of the data" className="mb-2 text-[13px] text-warn">
          Nothing has reported since {formatInstant(anchor, now)}. Ranges end there, not now.
        </p>
      )}
      {data !== undefined && data.partial !== null && (
        <p role="note" aria-label="Incomplete" className="mb-2 text-[13px] text-warn">
          Not everything could be read: {data.partial}
        </p>
      )}
      {state.by === "job" && <Stragglers />}
      {data === undefined || whole === null ? (
        usage.isError ? (
          <Failed what="The use of the GPUs" error={usage.error} retry={() => void usage.refetch()} />
        ) : (
          <WaitingRows label="Loading what GPUs used" />
        )
      ) : whole.gpus === 0 ? (
        <Empty title="No values in this range">No GPU reported anything in this time.</Empty>
      ) : (
        <div className={usage.isPlaceholderData ? "opacity-60" : ""}>
          <Totals whole={whole} />
          {!hasHolders ? (
            <NoHolders by={state.by} />
          ) : narrow ? (
            <UsageCards rows={shown} by={state.by} hasPrice={state.price !== null} />
          ) : (
            <UsageTable rows={shown} by={state.by} sort={state.sort} hasPrice={state.price !== null} onSort={(sort) => change({ sort: sort === "" ? MOST_WASTE : sort })} />
          )}
          <Pages {...paging} size={PAGE_SIZE} total={rows.length} />
          <p className="mt-2 text-xs text-muted">
            Held: a namespace, pod or job has the GPU. Idle: held, with a utilization below 1 % from one sample to the next.
            {data.energy.total > data.energy.groups.length && ` These are the ${data.energy.groups.length.toLocaleString("en")} with the most energy of ${data.energy.total.toLocaleString("en")}.`}
          </p>
        </div>
      )}
    </div>
  );
}

/** Where ranges end: now, or of a recording at its last sample. */
function anchorOf(hosts: readonly { readonly last_seen: string }[], now: number): number | null {
  const seen = hosts.reduce((most, host) => Math.max(most, parseInstant(host.last_seen) ?? 0), 0);
  return seen > 0 && isRecorded(seen, now) ? seen : null;
}

function askedRange(range: Range, anchor: number | null) {
  if (range.kind === "custom") return { start: range.start, end: range.end };
  const lengthMs = PRESETS[range.kind === "preset" ? range.preset : "24h"];
  return anchor === null ? { lengthMs } : { start: anchor - lengthMs, end: anchor };
}

const TYPING_PAUSE_MS = 250;

function PriceField({ price, onChange }: { readonly price: number | null; readonly onChange: (price: number | null) => void }) {
  const [text, setText] = useState(price === null ? "" : String(price));
  const [followed, setFollowed] = useState(price);
  if (followed !== price) {
    setFollowed(price);
    if (parsePrice(text) !== price) setText(price === null ? "" : String(price));
  }
  const pause = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(pause.current), []);
  const isWrong = text.trim() !== "" && parsePrice(text) === null;
  return (
    <label className="flex items-center gap-1.5 text-xs text-muted">
      Price of a GPU hour
      <input
        className={`field num w-20 ${isWrong ? "border-bad!" : ""}`}
        inputMode="decimal"
        placeholder="2.50"
        aria-invalid={isWrong}
        title="In any currency"
        value={text}
        onChange={(event) => {
          const typed = event.target.value;
          setText(typed);
          clearTimeout(pause.current);
          pause.current = setTimeout(() => onChange(parsePrice(typed)), TYPING_PAUSE_MS);
        }}
      />
      {isWrong && <span role="alert">No number</span>}
    </label>
  );
}

const hours = (value: number | null) => formatValue(value, "h");
const kwh = (value: number | null) => formatValue(value, "kWh");
const percent = (share: number | null) => (share === null ? "" : `${formatNumber(share * 100)}%`);

function Totals({ whole }: { readonly whole: UsageRow }) {
  const wasted = shareOf(whole.idleHours, whole.heldHours);
  return (
    <dl className={TILES} aria-label="All together">
      <Tile name="GPU hours" value={hours(whole.gpuHours)}>
        <span className="ml-1.5 text-xs text-faint">of {formatNumber(whole.gpus)} GPUs</span>
      </Tile>
      <Tile name="Energy" value={kwh(whole.energyKwh)}>
        <span className="block text-xs text-faint">{sourceWords(whole.counted)}</span>
      </Tile>
      <Tile name="Held" value={hours(whole.heldHours)} />
      <Tile name="Held but idle" value={hours(whole.idleHours)}>
        {wasted !== null && <span className="ml-1.5 text-xs text-faint">{percent(wasted)} of held</span>}
      </Tile>
      <Tile name="Energy while idle" value={kwh(whole.idleKwh)} />
      <Tile name="Cost while idle" value={whole.cost === null ? ABSENT : formatNumber(whole.cost)}>
        {whole.cost === null && <span className="block text-xs text-faint">at the price that you type</span>}
      </Tile>
    </dl>
  );
}

const TITLES: Readonly<Record<Exclude<Column, "group">, string>> = {
  gpus: "GPUs",
  gpu_hours: "GPU hours",
  energy: "Energy",
  held: "Held",
  idle: "Held but idle",
  idle_energy: "Energy while idle",
  cost: "Cost while idle",
};

interface UsageTableProps {
  readonly rows: readonly UsageRow[];
  readonly by: Holder;
  readonly sort: string;
  readonly hasPrice: boolean;
  readonly onSort: (sort: string) => void;
}

function UsageTable({ rows, by, sort, hasPrice, onSort }: UsageTableProps) {
  const numbers = (Object.entries(TITLES) as [Exclude<Column, "group">, string][]).filter(([column]) => column !== "cost" || hasPrice);
  const headers: Header[] = [
    { column: "group", title: capital(by), highestFirst: false, className: "" },
    ...numbers.map(([column, title]) => ({ column, title, highestFirst: true, className: "" })),
  ];
  return (
    <div className="card mt-3 overflow-x-auto">
      <table className="w-full min-w-[740px] text-[13px]">
        <caption className="sr-only">GPU hours, energy and waste by {by}</caption>
        <thead>
          <tr className="border-b border-line text-xs text-muted">
            {headers.map((header) => (
              <HeaderCell key={header.column} header={header} sort={sort} onSort={onSort} />
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <OpeningRow key={row.group ?? ""} to={gpusPath(by, row.group)} data-group={row.group ?? ""}>
              <th scope="row" className="max-w-72 px-2 py-1.5 text-left font-medium lg:px-3">
                <GroupLink by={by} group={row.group} />
              </th>
              <Cell>{formatNumber(row.gpus)}</Cell>
              <Cell>{hours(row.gpuHours)}</Cell>
              <Cell>
                {kwh(row.energyKwh)}
                <span className="block text-[11px] text-faint">{sourceWords(row.counted)}</span>
              </Cell>
              <Cell>{hours(row.heldHours)}</Cell>
              <Cell>
                <Idle row={row} />
              </Cell>
              <Cell>{kwh(row.idleKwh)}</Cell>
              {hasPrice && <Cell>{row.cost === null ? ABSENT : formatNumber(row.cost)}</Cell>}
            </OpeningRow>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Cell({ children }: { readonly children: React.ReactNode }) {
  return <td className="num px-2 py-1.5 lg:px-3">{children}</td>;
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

/** The list on a phone: a card a group. */
function UsageCards({ rows, by, hasPrice }: Pick<UsageTableProps, "rows" | "by" | "hasPrice">) {
  return (
    <ul className="mt-3 space-y-2" aria-label={`GPU hours, energy and waste by ${by}`}>
      {rows.map((row) => (
        <li key={row.group ?? ""} className="card relative p-3 text-[13px] focus-within:bg-raised" data-group={row.group ?? ""}>
          <p className="font-medium">
            <GroupLink by={by} group={row.group} covers />
          </p>
          <dl className="num mt-1.5 grid grid-cols-2 gap-x-3 gap-y-1.5">
            <Named name="Held but idle">
              <Idle row={row} />
            </Named>
            <Named name={hasPrice ? "Cost while idle" : "Energy while idle"}>{hasPrice ? (row.cost === null ? ABSENT : formatNumber(row.cost)) : kwh(row.idleKwh)}</Named>
            <Named name="GPU hours">
              {hours(row.gpuHours)} <span className="text-faint">of {formatNumber(row.gpus)} GPUs</span>
            </Named>
            <Named name="Energy">
              {kwh(row.energyKwh)} <span className="block text-[11px] text-faint">{sourceWords(row.counted)}</span>
            </Named>
          </dl>
        </li>
      ))}
    </ul>
  );
}

function Named({ name, children }: { readonly name: string; readonly children: React.ReactNode }) {
  return (
    <div className="min-w-0">
      <dt className="text-[11px] text-faint">{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function gpusPath(by: Holder, group: string | null): string {
  if (by === "node" && group !== null) return FLEET.to({ host: group });
  return FLEET.to({ where: whereIs(by, group) });
}

function GroupLink({ by, group, covers = false }: { readonly by: Holder; readonly group: string | null; readonly covers?: boolean }) {
  return (
    <Link
      to={gpusPath(by, group)}
      data-row=""
      className={`block truncate hover:underline ${group === null ? "text-muted" : ""} ${covers ? "after:absolute after:inset-0 after:rounded-lg" : ""}`}
      title={group === null ? `GPUs that no ${by} holds now` : `GPUs that ${group} holds now`}
    >
      {group ?? `No ${by}`}
    </Link>
  );
}

/** How holders become known. */
function NoHolders({ by }: { readonly by: Holder }) {
  return (
    <div className="mt-3">
      <Empty title={`No GPU of this time has a ${by}`}>
        <p>
          <code>gpuvitals agent</code> learns them on each node: namespace, pod and container from the kubelet, if <code>/var/lib/kubelet/pod-resources</code> is mounted and readable; batch jobs from
          Slurm&apos;s cgroups, or <code>SLURM_JOB_ID</code> of the processes on a GPU. Recordings of dcgm-exporter bring their own labels. See docs/agent.md, Attribution.
        </p>
      </Empty>
    </div>
  );
}
