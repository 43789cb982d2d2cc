import type { FleetGpu } from "../../api/fleet";
import { differenceRamp, domainOf, NOT_READ, OLD, paintValues, ramp, type Domain, type Look, type Painting } from "../../charts/looks";
import type { CatalogueRow } from "../../charts/panels";
import { formatBits, formatValue, metricTitle, reading } from "../../shared/format";
import type { Theme } from "../../shared/theme";
import { JUDGEMENTS, type Judgement } from "../../api/judgement";
import { isSilent, toldOf } from "../judgement";

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
  /** Their colours, and what is said at the upper end, where that is no value. */
  readonly colours: readonly string[];
  readonly top: string | null;
  /** Of values: those that were not read, and those that are old. */
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

/** As each does. */
export function byJudgement(gpus: readonly FleetGpu[]): Colouring {
  const words = gpus.map(({ verdict }) => verdict.word);
  const counts = new Map<Judgement, number>();
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
  return {
    painting: { looks: JUDGEMENTS.map((word) => JUDGEMENT_CELLS[word]), lookOf: Uint8Array.from(words, (word) => JUDGEMENTS.indexOf(word)) },
    domain: null,
    colours: [],
    top: null,
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

/** How far a value can go. */
export interface Scale {
  /** Where colours begin. */
  readonly low: number;
  /** Of each GPU, by id. */
  readonly wholes: ReadonlyMap<string, number>;
}

/** What is known beside the values. */
export interface ValuesAsk {
  readonly theme: Theme;
  /** Null: colours fit the values. */
  readonly scale: Scale | null;
  /** What the values were an hour ago, by id; null: colours say the values themselves. */
  readonly before: ReadonlyMap<string, number> | null;
}

/** By a metric: what was not read is a shape of its own, never a value, and so is what is old beside GPUs that report. */
export function byValue(gpus: readonly FleetGpu[], row: MeasuredRow, { theme, scale, before }: ValuesAsk): Colouring {
  const isMask = row.bits.length > 0;
  const read = gpus.map((gpu) => amountOf(gpu.value, row));
  const unit = isMask ? "" : row.unit;
  const silent = gpus.map((gpu) => isSilent(gpu.verdict));
  // Of a recording all are silent: then the values are what there is to see.
  const isOld = silent.includes(false) ? (place: number) => silent[place] === true : () => false;
  const values = before === null ? read : read.map((value, place) => differenceOf(value, before.get(gpus[place]?.id ?? "")));
  const fresh = values.filter((_, place) => !isOld(place));
  const reach = scale === null || before !== null ? null : reachOf(gpus, scale);
  const domain = before !== null ? around(fresh, unit) : (reach?.domain ?? domainOf(fresh, unit, isMask ? { low: 0, high: row.bits.length } : { low: row.min, high: row.max }));
  const colours = before === null ? ramp(theme) : differenceRamp(theme);
  const painting = paintValues(reach === null ? values : values.map(reach.shareOf), domain ?? { low: 0, high: 1 }, colours, isOld);
  const entries = [
    { name: before === null ? "not read" : "not known", look: painting.looks[NOT_READ], count: values.filter((value, place) => value === null && !isOld(place)).length },
    { name: "old", look: painting.looks[OLD], count: silent.filter((_, place) => isOld(place)).length },
  ];
  return {
    painting,
    domain: domain === null ? null : { ...domain, unit },
    colours,
    top: reach?.top ?? null,
    legend: entries.flatMap(({ name, look, count }) => (look === undefined || (name === "old" && count === 0) ? [] : [{ name, look, count }])),
    text: (place) => {
      const value = gpus[place]?.value ?? null;
      const words = isMask && value !== null ? formatBits(value, row.bits) : formatValue(value, row.unit);
      const difference = before === null ? null : (values[place] ?? null);
      return difference === null ? words : `${words}, ${signed(difference, unit)} in an hour`;
    },
    short: (place) => (before === null ? reading(values[place] ?? null, unit).text : signed(values[place] ?? null, "")),
  };
}

function differenceOf(value: number | null, before: number | undefined): number | null {
  return value === null || before === undefined ? null : value - before;
}

/** `+12 W` */
function signed(value: number | null, unit: string): string {
  return `${value !== null && value > 0 ? "+" : ""}${formatValue(value, unit)}`;
}

/** As far down as up, so that nothing changed is in the middle. */
function around(values: readonly (number | null)[], unit: string): Domain | null {
  const sizes = values.map((value) => (value === null ? null : Math.abs(value)));
  const domain = domainOf([0, ...sizes], unit === "%" ? "" : unit, { low: 0, high: Infinity });
  return domain === null || sizes.every((size) => size === null) ? null : { low: -domain.high, high: domain.high };
}

/** Each value as far along the colours as it is towards its own whole: parts with different ones share the scale. Null: no whole is known. */
function reachOf(gpus: readonly FleetGpu[], { low, wholes }: Scale) {
  const known = gpus.flatMap(({ id }) => wholes.get(id) ?? []).filter((whole) => whole > low);
  if (known.length === 0) return null;
  const [least, most] = known.reduce<readonly [number, number]>(([l, h], whole) => [Math.min(l, whole), Math.max(h, whole)], [Infinity, -Infinity]);
  const shareOf = (value: number | null, place: number) => {
    const whole = wholes.get(gpus[place]?.id ?? "") ?? most;
    return value === null || whole <= low ? value : low + ((value - low) * (most - low)) / (whole - low);
  };
  return { domain: { low, high: most }, shareOf, top: least === most ? null : "its limit" };
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
