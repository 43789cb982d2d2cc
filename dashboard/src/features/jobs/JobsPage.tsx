import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import type { Schemas } from "../../api/client";
import { hostsQuery } from "../../api/queries";
import { HOLDERS, jobsQuery, LEDGERS, usageQuery, type Holder } from "../../api/usage";
import { anchorOf, askedRange } from "../../parts/range";
import { useAddress } from "../../shared/address";
import { ABSENT, formatNumber, shareOf } from "../../shared/format";
import { Link } from "../../shared/location";
import { Empty, Failed } from "../../shared/states";
import { formatClock, formatInstant, MINUTE, useNow } from "../../shared/time";
import { CustomRange, RangeChoices } from "../../parts/rangeChoices";
import { List } from "../../parts/columns";
import { hours, kwh, sourceWords } from "../../parts/energy";
import { SimulatedBanner } from "../../parts/gpuLook";
import { Pages, useListKeys, WaitingRows } from "../../parts/list";
import { inOrder, knownSort, unreadSort } from "../../parts/order";
import { pageOf, PAGE_SIZE } from "../../parts/pages";
import { RangeNotes } from "../../parts/rangeNotes";
import { Tile, TILES } from "../../parts/tiles";
import { UnreadNotice } from "../../parts/UnreadNotice";
import { HolderUse } from "./HolderUse";
import { Stragglers } from "./Stragglers";
import { GROUPS, JOBS, parsePrice, PRESETS_SHOWN, type Group } from "./address";
import { byName, percent, rowsOf, wholeOf, type UsageRow } from "./usage";
import { USAGE_LISTS } from "./usageList";

const MOST_WASTE = "-idle";
const NAMES: Readonly<Record<Group, string>> = { holder: "Holders", user: "Users", namespace: "Namespaces", job: "Jobs", pod: "Pods", node: "Nodes" };

/** Who used how many GPU hours and how much energy, and who held GPUs for nothing: the most waste first. */
export function JobsPage() {
  const { state, change, pathTo } = useAddress(JOBS);
  const now = useNow(MINUTE);
  const hosts = useQuery(hostsQuery());
  const anchor = anchorOf(hosts.data?.hosts ?? [], now);
  const range = askedRange(state.range, anchor);
  const isKnown = hosts.data !== undefined || hosts.isError;
  const ledger = LEDGERS.find((by) => by === state.by);
  const holder = HOLDERS.find((by) => by === state.by);
  const usage = useQuery({ ...usageQuery({ by: holder ?? "namespace", range }), enabled: isKnown && holder !== undefined });
  const jobs = useQuery({ ...jobsQuery({ by: ledger ?? "holder", range }), enabled: isKnown && ledger !== undefined });
  const answer = ledger === undefined ? usage : jobs;
  const { data } = answer;
  const pathOf = (page: number) => pathTo({ page });
  const onSort = (sort: string) => change({ sort });
  const span = data?.span ?? { start: now - MINUTE, end: now };
  const isSimulated = hosts.data?.hosts.some((host) => host.simulated) === true;

  return (
    <div data-testid="jobs" data-last-update={answer.dataUpdatedAt}>
      {isSimulated && <SimulatedBanner>Some of these GPUs are simulated: what they use was made up by gpuvitals, not measured.</SimulatedBanner>}
      <h1 className="sr-only">Jobs and namespaces</h1>
      <div className="mb-3 flex flex-wrap items-center gap-2">
        <nav aria-label="Groups" className="card flex max-w-full overflow-x-auto rounded-md! p-0.5">
          {GROUPS.map((by) => (
            <Link
              key={by}
              to={pathTo({ by, page: 1, sort: "" })}
              aria-current={state.by === by ? "page" : undefined}
              className={`flex h-7 items-center rounded px-2.5 text-[13px] ${state.by === by ? "bg-raised font-medium" : "text-muted hover:text-fg"}`}
            >
              {NAMES[by]}
            </Link>
          ))}
        </nav>
        <RangeChoices range={state.range} span={span} presets={PRESETS_SHOWN} hasAll={false} onRange={(next) => change({ range: next })} />
        <PriceField price={state.price} onChange={(price) => change({ price })} />
        <p role="status" className="num ml-auto text-xs text-muted">
          {answer.isError && data !== undefined ? `Not renewed: as of ${formatClock(answer.dataUpdatedAt)}` : data !== undefined && `${formatInstant(span.start, now)} – ${formatInstant(span.end, now)}`}
        </p>
      </div>
      <CustomRange range={state.range} onRange={(next) => change({ range: next })} />
      <RangeNotes endsAt={state.range.kind === "preset" ? anchor : null} now={now} partial={data?.partial ?? null} />
      {state.by === "job" && <Stragglers />}
      {data === undefined ? (
        answer.isError ? (
          <Failed what="The use of the GPUs" error={answer.error} retry={() => void answer.refetch()} />
        ) : (
          <WaitingRows label="Loading what GPUs used" />
        )
      ) : (
        <div className={answer.isPlaceholderData ? "opacity-60" : ""}>
          {ledger !== undefined && jobs.data !== undefined && (
            <HolderUse by={ledger} list={jobs.data.list} price={state.price} sort={state.sort} page={state.page} pathOf={pathOf} onSort={onSort} />
          )}
          {holder !== undefined && usage.data !== undefined && (
            <GroupUse by={holder} answer={usage.data} price={state.price} sort={state.sort} page={state.page} pathOf={pathOf} onSort={onSort} />
          )}
        </div>
      )}
    </div>
  );
}

interface GroupUseProps {
  readonly by: Holder;
  readonly answer: { readonly energy: Schemas["EnergyList"]; readonly idle: Schemas["IdleList"] };
  readonly price: number | null;
  readonly sort: string;
  readonly page: number;
  readonly pathOf: (page: number) => string;
  readonly onSort: (sort: string) => void;
}

/** What holders used together, by the rows of the GPUs. */
function GroupUse({ by, answer: { energy, idle }, price, sort: asked, page: askedPage, pathOf, onSort }: GroupUseProps) {
  const { columns } = USAGE_LISTS[by];
  const sort = knownSort(columns, asked, MOST_WASTE);
  const rows = useMemo(() => inOrder(byName(rowsOf(by, energy.groups, idle.groups, price)), columns, sort), [by, energy, idle, price, columns, sort]);
  const whole = wholeOf(energy.whole, idle.whole, price);
  const { shown, page, hasNext } = pageOf(rows, askedPage);
  const paging = { page, hasNext, pathOf };
  useListKeys(paging);
  if (whole.gpus === 0) return <Empty title="No values in this range">No GPU reported anything in this time.</Empty>;
  return (
    <>
      <Totals whole={whole} />
      {rows.some((row) => row.group !== null) ? (
        <div className="mt-3">
          <UnreadNotice unread={unreadSort(columns, asked)} />
          <List of={USAGE_LISTS[by]} rows={shown} without={price === null ? ["cost"] : []} sort={sort} onSort={onSort} whole={rows} />
        </div>
      ) : (
        <NoHolders by={by} />
      )}
      <Pages {...paging} size={PAGE_SIZE} total={rows.length} />
      <p className="mt-2 text-xs text-muted">
        Held: a namespace, pod or job has the GPU. Idle: held, with a utilization below 1 % from one sample to the next.
        {energy.total > energy.groups.length && ` These are the ${energy.groups.length.toLocaleString("en")} with the most energy of ${energy.total.toLocaleString("en")}.`}
      </p>
    </>
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
