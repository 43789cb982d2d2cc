import { groupTitle, type CatalogueRow } from "../../charts/panels";
import { ABSENT, formatBits, formatValue, metricTitle } from "../../shared/format";
import { formatClock } from "../../shared/time";
import { SaveCsv } from "../../parts/saveCsv";
import { latestCsv, type LatestValues } from "./latest";

interface LatestTableProps {
  /** What the GPU is called. */
  readonly name: string;
  readonly rows: readonly CatalogueRow[];
  readonly latest: LatestValues;
}

/** Every value that is known of the GPU with its own time, by group. */
export function LatestTable({ name, rows, latest }: LatestTableProps) {
  if (rows.length === 0) return null;
  const groups = [...new Set(rows.map((row) => row.group))];
  return (
    <section aria-label="Latest values" className="card overflow-hidden">
      <div className="flex items-center justify-between border-b border-line py-0.5 pr-1 pl-3.5">
        <h2 className="text-[13px] font-semibold">Latest values</h2>
        <SaveCsv label={`${name} latest values`} text={() => latestCsv(rows, latest)} />
      </div>
      <table className="w-full table-fixed text-[13px]">
        <colgroup>
          <col />
          <col className="w-[32%]" />
          <col className="w-[76px]" />
        </colgroup>
        <thead className="sr-only">
          <tr>
            <th scope="col">Metric</th>
            <th scope="col">Value</th>
            <th scope="col">Read at</th>
          </tr>
        </thead>
        {groups.map((group) => (
          <tbody key={group}>
            <tr>
              <th scope="rowgroup" colSpan={3} className="px-3.5 pt-2.5 pb-0.5 text-left text-[11px] font-medium text-faint">
                {groupTitle(group)}
              </th>
            </tr>
            {rows
              .filter((row) => row.group === group)
              .map((row) => (
                <LatestRow key={row.column} row={row} latest={latest} />
              ))}
          </tbody>
        ))}
      </table>
    </section>
  );
}

function LatestRow({ row, latest }: { readonly row: CatalogueRow; readonly latest: LatestValues }) {
  const held = latest.get(row.column);
  const at = held?.at ?? null;
  const isMask = row.bits.length > 0;
  const text = isMask ? formatBits(held?.value, row.bits) : formatValue(held?.value, row.unit);
  const title = isMask || typeof held?.value === "string" ? text : undefined;
  return (
    <tr className="hover:bg-raised/60" title={`${row.column}: ${row.help}`} data-column={row.column}>
      <th scope="row" className="py-1 pl-3.5 text-left font-normal break-words text-muted">
        {metricTitle(row.column)}
      </th>
      <td className={`num px-1 py-1 text-right font-medium ${isMask ? "break-words" : "truncate"}`} title={title}>
        {text}
      </td>
      <td className="num py-1 pr-3.5 pl-2 text-right text-[11px] whitespace-nowrap text-faint" title={at === null ? undefined : new Date(at).toISOString()}>
        {at === null ? ABSENT : formatClock(at)}
      </td>
    </tr>
  );
}
