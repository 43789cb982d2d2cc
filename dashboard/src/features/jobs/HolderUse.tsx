import { useMemo } from "react";
import type { JobList, Ledger } from "../../api/usage";
import { List } from "../../parts/columns";
import { hours, kwh } from "../../parts/energy";
import { Pages, useListKeys } from "../../parts/list";
import { inOrder, knownSort, unreadSort } from "../../parts/order";
import { pageOf, PAGE_SIZE } from "../../parts/pages";
import { Tile, TILES } from "../../parts/tiles";
import { UnreadNotice } from "../../parts/UnreadNotice";
import { ABSENT, formatNumber, shareOf } from "../../shared/format";
import { Empty } from "../../shared/states";
import { LEDGER_LISTS } from "./holderList";
import { costOf, holdersOf } from "./holders";
import { percent } from "./usage";

const MOST_WASTED = "-wasted";

interface HolderUseProps {
  readonly by: Ledger;
  readonly list: JobList;
  readonly price: number | null;
  readonly sort: string;
  readonly page: number;
  readonly pathOf: (page: number) => string;
  /** Empty: the order of the list itself. */
  readonly onSort: (sort: string) => void;
}

/** What each job and pod or each user used by the sums that agents make of every sample, and below the time in which nobody had the GPUs. */
export function HolderUse({ by, list, price, sort: asked, page: askedPage, pathOf, onSort }: HolderUseProps) {
  const of = LEDGER_LISTS[by];
  const sort = knownSort(of.columns, asked, MOST_WASTED);
  const rows = useMemo(() => inOrder(holdersOf(list, by, price), of.columns, sort), [list, by, of, price, sort]);
  const { shown, page, hasNext } = pageOf(rows, askedPage);
  const paging = { page, hasNext, pathOf };
  useListKeys(paging);
  const isEmpty = list.whole.held_gpu_hours + list.nobody.held_gpu_hours + list.unobserved_gpu_hours === 0;
  if (isEmpty && list.total === 0) {
    return (
      <Empty title="No agent added anything up in this range">
        <p>
          <code>gpuvitals agent</code>, and <code>up</code> on a machine with GPUs, add up what each job and pod uses. Of files, recordings and clusters that are read from outside the same is made from
          their rows, and there are none in this range. See docs/jobs.md.
        </p>
      </Empty>
    );
  }
  const isPriced = rows.some(({ cost }) => cost !== null);
  return (
    <>
      <Totals by={by} list={list} price={price} />
      {rows.length > 0 && (
        <div className="mt-3">
          <UnreadNotice unread={unreadSort(of.columns, asked)} />
          <List of={of} rows={shown} without={isPriced ? [] : ["cost"]} sort={sort} onSort={onSort} whole={rows} />
        </div>
      )}
      <Pages {...paging} size={PAGE_SIZE} total={rows.length} />
      <ul aria-label="The rest of the time" className="mt-2 space-y-0.5 text-xs text-muted">
        <li>
          Nobody had GPUs for {hours(list.nobody.held_gpu_hours)}
          {list.nobody.energy_kwh !== null && `, ${kwh(list.nobody.energy_kwh)}`}.
        </li>
        {list.unobserved_gpu_hours > 0 && <li>GPUs were not observed for {hours(list.unobserved_gpu_hours)}: they or their hosts were lost, hung or asleep.</li>}
        {list.gpus_by_rows !== undefined && <li>By rows: GPUs of which no agent makes sums ({list.gpus_by_rows.toLocaleString("en")}).</li>}
        {list.interpolated && <li>Of an hour in which the range begins or ends, a part is taken that is as long.</li>}
        {list.total > list.jobs.length && (
          <li>
            These are the {list.jobs.length.toLocaleString("en")} that held most of {list.total.toLocaleString("en")}.
          </li>
        )}
      </ul>
    </>
  );
}

interface TotalsProps {
  readonly by: Ledger;
  readonly list: JobList;
  readonly price: number | null;
}

/** One of them, and several. */
const WHO: Readonly<Record<Ledger, readonly [string, string]>> = { holder: ["job or pod", "jobs and pods"], user: ["user", "users"] };

function Totals({ by, list: { whole, total }, price }: TotalsProps) {
  const wasted = shareOf(whole.wasted_gpu_hours, whole.held_gpu_hours);
  const cost = costOf(whole, price);
  return (
    <dl className={TILES} aria-label="All together">
      <Tile name="Held" value={hours(whole.held_gpu_hours)}>
        <span className="ml-1.5 text-xs text-faint">by {formatNumber(total)} {WHO[by][total === 1 ? 0 : 1]}</span>
      </Tile>
      <Tile name="Busy" value={hours(whole.busy_gpu_hours)} />
      <Tile name="Wasted" value={hours(whole.wasted_gpu_hours)}>
        {wasted !== null && <span className="ml-1.5 text-xs text-faint">{percent(wasted)} of held</span>}
        {whole.idle_gpu_hours !== null && <span className="block text-xs text-faint">{hours(whole.idle_gpu_hours)} of it never used</span>}
      </Tile>
      <Tile name="Shared" value={hours(whole.shared_gpu_hours)} />
      <Tile name="Energy" value={kwh(whole.energy_kwh)} />
      <Tile name="Cost of waste" value={cost === null ? ABSENT : formatNumber(cost)}>
        {cost === null && <span className="block text-xs text-faint">at the price that you type</span>}
      </Tile>
    </dl>
  );
}
