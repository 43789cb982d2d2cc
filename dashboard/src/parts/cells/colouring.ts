import type { FleetGpu } from "../../api/fleet";
import { domainOf, paintValues, STEPS, type Domain, type Look, type Painting } from "../../charts/looks";
import type { CatalogueRow } from "../../charts/panels";
import { formatBits, formatValue, metricTitle, reading } from "../../shared/format";
import type { Theme } from "../../shared/theme";
import { countsOf, JUDGEMENTS, toldOf, type Judge, type Judgement } from "../judgement";

/** A colour of a legend with what it means and how many GPUs have it. */
export interface LegendEntry {
  readonly name: string;
  readonly look: Look;
  readonly count: number;
}

/** What the colours of the cells say. */
export interface Colouring {
  readonly painting: Painting;
  /** Values from low to high, or null where each look has a meaning of its own. */
  readonly domain: (Domain & { readonly unit: string }) | null;
  /** Of values: those that were not read. */
  readonly legend: readonly LegendEntry[];
  /** What the colour of a cell means, in words. */
  readonly text: (place: number) => string;
  /** The same for a cell that is large enough to hold it. */
  readonly short: (place: number) => string;
}

/** What fails has a frame, the silent one a hole, so that colour is not all. */
export const JUDGEMENT_CELLS: Readonly<Record<Judgement, Look>> = {
  critical: { colour: "--cell-bad", shape: "framed" },
  lost: { colour: "--cell-bad", shape: "holed" },
  unhealthy: { colour: "--cell-bad", shape: "framed" },
  warning: { colour: "--cell-warn", shape: "full" },
  notice: { colour: "--cell-notice", shape: "full" },
  unconfirmed: { colour: "--cell-unknown", shape: "full" },
  stale: { colour: "--cell-unknown", shape: "holed" },
  unknown: { colour: "--faint", shape: "hollow" },
  active: { colour: "--cell-active", shape: "full" },
  idle: { colour: "--cell-idle", shape: "full" },
};

/** As the judge says. */
export function byJudgement(gpus: readonly FleetGpu[], judge: Judge): Colouring {
  const words = gpus.map((gpu) => judge.of(gpu).word);
  const counts = countsOf(gpus, judge);
  return {
    painting: { looks: JUDGEMENTS.map((word) => JUDGEMENT_CELLS[word]), lookOf: Uint8Array.from(words, (word) => JUDGEMENTS.indexOf(word)) },
    domain: null,
    legend: toldOf(counts).map((word) => ({ name: word, look: JUDGEMENT_CELLS[word], count: counts.get(word) ?? 0 })),
    text: (place) => words[place] ?? "unknown",
    // The colour says the rest.
    short: (place) => String(gpus[place]?.index ?? ""),
  };
}

/** A mask is no amount: how many of its bits are set. */
function amountOf(value: number | null, row: CatalogueRow): number | null {
  if (value === null || row.bits.length === 0) return value;
  let rest = value;
  let set = 0;
  while (rest >= 1) {
    set += rest % 2;
    rest = Math.floor(rest / 2);
  }
  return set;
}

export interface MeasuredRow extends CatalogueRow {
  readonly min: number;
  readonly max: number;
}

/** By a metric: what was not read is a shape of its own, never a value. */
export function byValue(gpus: readonly FleetGpu[], row: MeasuredRow, theme: Theme): Colouring {
  const isMask = row.bits.length > 0;
  const values = gpus.map((gpu) => amountOf(gpu.value, row));
  const unit = isMask ? "" : row.unit;
  const domain = domainOf(values, unit, isMask ? { low: 0, high: row.bits.length } : { low: row.min, high: row.max });
  const painting = paintValues(values, domain ?? { low: 0, high: 1 }, theme);
  const absent = painting.looks[STEPS];
  return {
    painting,
    domain: domain === null ? null : { ...domain, unit },
    legend: absent === undefined ? [] : [{ name: "not read", look: absent, count: values.filter((value) => value === null).length }],
    text: (place) => {
      const value = gpus[place]?.value ?? null;
      return isMask && value !== null ? formatBits(value, row.bits) : formatValue(value, row.unit);
    },
    short: (place) => reading(values[place] ?? null, unit).text,
  };
}

/** The whole picture in words, for those who do not see it. */
export function summaryOf(gpus: readonly FleetGpu[], colouring: Colouring, row: MeasuredRow | null): string {
  if (row === null) {
    return colouring.legend
      .filter(({ count }) => count > 0)
      .map(({ count, name }) => `${count.toLocaleString("en")} ${name}`)
      .join(", ");
  }
  const measured = gpus.flatMap((gpu, place) => (gpu.value === null ? [] : [{ gpu, place, value: gpu.value }])).sort((a, b) => a.value - b.value);
  const [low, middle, high] = [measured[0], measured[Math.floor(measured.length / 2)], measured.at(-1)];
  if (low === undefined || middle === undefined || high === undefined) return `${metricTitle(row.column)}: not read of any GPU`;
  const absent = gpus.length - measured.length;
  const parts = [
    `${metricTitle(row.column)} from ${colouring.text(low.place)} (${low.gpu.name}) to ${colouring.text(high.place)} (${high.gpu.name})`,
    `median ${colouring.text(middle.place)}`,
    ...(absent > 0 ? [`not read of ${absent.toLocaleString("en")}`] : []),
  ];
  return parts.join(", ");
}
