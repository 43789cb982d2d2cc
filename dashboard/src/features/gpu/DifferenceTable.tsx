import { useState } from "react";
import type { Gpu } from "../../api/client";
import { GPU } from "../../parts/addresses";
import { ABSENT, formatNumber, formatValue, metricTitle } from "../../shared/format";
import { Link } from "../../shared/location";
import { SaveCsv } from "../../parts/saveCsv";
import { differencesCsv, distanceOf, type Difference } from "./differences";

/** As many as are read at a glance; the rest on demand. */
const SHOWN_MAX = 8;
/** From here on a difference is set off. */
const FAR = 0.1;

interface DifferencesProps {
  readonly differing: readonly Difference[];
  /** The GPUs that have a column, with the colours of their lines. */
  readonly gpus: readonly Gpu[];
  readonly nameOf: (id: string) => string;
  /** All that are compared: a file has no lack of room. */
  readonly all: readonly Gpu[];
}

/**
 * What the GPUs did in the range, beside the median of all that are compared: what differs much first. A matrix and no list: its columns
 * are the GPUs that are compared, so a row is no card.
 */
export function Differences({ differing, gpus, nameOf, all }: DifferencesProps) {
  const [isWhole, setIsWhole] = useState(false);
  if (differing.length === 0) return <p className="card p-3 text-[13px] text-muted">They are alike: in this range nothing differs by 5 % or more.</p>;
  const shown = isWhole ? differing : differing.slice(0, SHOWN_MAX);
  return (
    <section aria-label="Differences to the median" className="card overflow-x-auto">
      <table className="w-full text-[13px]">
        <caption className="sr-only">Means of the range, and how far they are from the median, what differs much first</caption>
        <thead>
          <tr className="border-b border-line text-left text-xs text-muted">
            <th scope="col" className="sticky left-0 bg-card px-3 py-2 font-medium">
              Differs
            </th>
            <th scope="col" className="px-3 py-2 text-right font-medium whitespace-nowrap">
              Median of {all.length}
            </th>
            {gpus.map((gpu, place) => (
              <th key={gpu.id} scope="col" className="px-3 py-2 text-right font-medium whitespace-nowrap" title={gpu.name}>
                <span aria-hidden className="mr-1.5 inline-block h-0.5 w-3 rounded-full align-middle" style={{ background: `var(--line-${place + 1})` }} />
                <Link to={GPU.to({ id: gpu.id })} className="rounded hover:underline">
                  {nameOf(gpu.id)}
                </Link>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((difference) => (
            <tr key={difference.row.column} className="border-b border-line last:border-0" data-difference={difference.row.column}>
              <th scope="row" className="sticky left-0 bg-card px-3 py-1.5 text-left font-normal" title={difference.row.help}>
                {metricTitle(difference.row.column)}
              </th>
              <td className="num px-3 py-1.5 text-right whitespace-nowrap text-muted">{formatValue(difference.median, difference.row.unit)}</td>
              {gpus.map(({ id }) => (
                <Cell key={id} difference={difference} value={difference.values.get(id) ?? null} source={difference.sources.get(id)} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      <div className="flex flex-wrap items-center justify-between gap-2 p-1">
        {differing.length > SHOWN_MAX && (
          <button type="button" className="button quiet" aria-expanded={isWhole} onClick={() => setIsWhole(!isWhole)}>
            {isWhole ? "Fewer" : `All ${differing.length} differences`}
          </button>
        )}
        <SaveCsv label="GPUs compared" text={() => differencesCsv(differing, all)} />
      </div>
    </section>
  );
}

function Cell({ difference: { row, median }, value, source }: { readonly difference: Difference; readonly value: number | null; readonly source: string | undefined }) {
  const distance = value === null ? 0 : distanceOf(value, median, row);
  const isFar = Math.abs(distance) >= FAR;
  return (
    <td className="num px-3 py-1.5 text-right whitespace-nowrap" title={source}>
      {value === null ? ABSENT : formatValue(value, row.unit)}
      <span className={`ml-2 inline-block w-14 text-xs ${isFar ? "font-semibold text-warn" : "text-faint"}`}>{value === null ? "" : words(distance, row.unit)}</span>
    </td>
  );
}

/** `+12%`; of shares in their own points. */
function words(distance: number, unit: string): string {
  const rounded = Math.round(distance * 100);
  if (rounded === 0) return "=";
  return `${rounded > 0 ? "+" : "−"}${formatNumber(Math.abs(rounded))}${unit === "%" ? " pts" : "%"}`;
}
