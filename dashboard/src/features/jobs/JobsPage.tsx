import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import { hostsQuery } from "../../api/queries";
import { HOLDERS, usageQuery, type Holder } from "../../api/usage";
import { anchorOf, askedRange } from "../../parts/range";
import { useAddress } from "../../shared/address";
import { ABSENT, formatNumber, shareOf } from "../../shared/format";
import { Link } from "../../shared/location";
import { Empty, Failed } from "../../shared/states";
import { formatClock, formatInstant, MINUTE, useNow } from "../../shared/time";
import { CustomRange, RangeChoices } from "../../parts/rangeChoices";
import { List } from "../../parts/columns";
import { kwh, sourceWords } from "../../parts/energy";
import { SimulatedBanner } from "../../parts/gpuLook";
import { Pages, useListKeys, WaitingRows } from "../../parts/list";
import { inOrder, knownSort } from "../../parts/order";
import { pageOf, PAGE_SIZE } from "../../parts/pages";
import { Tile, TILES } from "../../parts/tiles";
import { Stragglers } from "./Stragglers";
import { JOBS, MOST_WASTE, parsePrice, PRESETS_SHOWN } from "./address";
import { byName, hours, percent, rowsOf, wholeOf, type UsageRow } from "./usage";
import { USAGE_LISTS } from "./usageList";

const NAMES: Readonly<Record<Holder, string>> = { namespace: "Namespaces", job: "Jobs", pod: "Pods", node: "Nodes" };

/** Who used how many GPU hours and how much energy, and who held GPUs for nothing: the most waste first. */
export function JobsPage() {
  const { state, change, pathTo } = useAddress(JOBS);
  const now = useNow(MINUTE);
  const hosts = useQuery(hostsQuery());
  const anchor = anchorOf(hosts.data?.hosts ?? [], now);
  const usage = useQuery({ ...usageQuery({ by: state.by, range: askedRange(state.range, anchor) }), enabled: hosts.data !== undefined || hosts.isError });
  const { data } = usage;
  const { columns } = USAGE_LISTS[state.by];
  const sort = knownSort(columns, state.sort, MOST_WASTE);
  const rows = useMemo(() => (data === undefined ? [] : inOrder(byName(rowsOf(state.by, data.energy.groups, data.idle.groups, state.price)), columns, sort)), [data, state.by, state.price, columns, sort]);
  const whole = data === undefined ? null : wholeOf(data.energy.whole, data.idle.whole, state.price);
  const { shown, page, hasNext } = pageOf(rows, state.page);
  const paging = { page, hasNext, pathOf: (other: number) => pathTo({ page: other }) };
  useListKeys(paging);
  const span = data?.span ?? { start: now - MINUTE, end: now };
  const isSimulated = hosts.data?.hosts.some((host) => host.simulated) === true;
  const hasHolders = rows.some((row) => row.group !== null);

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
          ) : (
            <div className="mt-3">
              <List of={USAGE_LISTS[state.by]} rows={shown} without={state.price === null ? ["cost"] : []} sort={sort} onSort={(next) => change({ sort: next === "" ? MOST_WASTE : next })} whole={rows} />
            </div>
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
