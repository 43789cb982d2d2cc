import type { FleetGpu } from "../../api/fleet";
import { SEVERITIES, type Finding, type Severity } from "../../api/findings";
import { STATES, type State } from "../../api/queries";
import { domainOf, paintValues, STEPS, type Domain, type Look, type Painting } from "../../charts/looks";
import type { CatalogueRow } from "../../charts/panels";
import { formatBits, formatValue, metricTitle, reading } from "../../shared/format";
import type { Theme } from "../../shared/theme";

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

/** The sick one has a frame, the silent one a hole, so that colour is not all. */
export const STATE_CELLS: Readonly<Record<State, Look>> = {
  active: { colour: "--cell-active", shape: "full" },
  idle: { colour: "--cell-idle", shape: "full" },
  stale: { colour: "--cell-stale", shape: "holed" },
  unhealthy: { colour: "--cell-unhealthy", shape: "framed" },
  unknown: { colour: "--cell-unknown", shape: "full" },
};

/** The cells in the colours of some names, with a legend that counts them. */
function byName<Name extends string>(gpus: readonly FleetGpu[], names: readonly Name[], looks: Readonly<Record<Name, Look>>, nameOf: (place: number) => Name): Colouring {
  const lookOf = Uint8Array.from({ length: gpus.length }, (_, place) => names.indexOf(nameOf(place)));
  const counts = names.map(() => 0);
  for (const look of lookOf) counts[look] = (counts[look] ?? 0) + 1;
  return {
    painting: { looks: names.map((name) => looks[name]), lookOf },
    domain: null,
    legend: names.map((name, place) => ({ name, look: looks[name], count: counts[place] ?? 0 })),
    text: nameOf,
    // The colour says the rest.
    short: (place) => String(gpus[place]?.index ?? ""),
  };
}

export function byState(gpus: readonly FleetGpu[]): Colouring {
  return byName(gpus, STATES, STATE_CELLS, (place) => gpus[place]?.state ?? "unknown");
}

const WELL = "no finding";
export const NOT_KNOWN = "not known";
const SEVERITY_CELLS: Readonly<Record<Severity | typeof WELL | typeof NOT_KNOWN, Look>> = {
  critical: { colour: "--cell-unhealthy", shape: "framed" },
  warning: { colour: "--cell-stale", shape: "full" },
  notice: { colour: "--cell-active", shape: "full" },
  [WELL]: { colour: "--cell-idle", shape: "full" },
  [NOT_KNOWN]: { colour: "--faint", shape: "hollow" },
};

/** The worst finding that names a GPU; findings come the worst first. */
export function worstOf(findings: readonly Finding[]): ReadonlyMap<string, Finding> {
  const worst = new Map<string, Finding>();
  for (const finding of findings) {
    for (const gpu of finding.reach.gpus) if (!worst.has(gpu)) worst.set(gpu, finding);
  }
  return worst;
}

/** By the worst finding. A GPU that none names is without one only if the findings name every GPU that they are about. */
export function bySeverity(gpus: readonly FleetGpu[], worst: ReadonlyMap<string, Finding>, namesAll: boolean): Colouring {
  const severity = (place: number) => {
    const found = worst.get(gpus[place]?.id ?? "")?.severity;
    if (found === undefined) return namesAll ? WELL : NOT_KNOWN;
    // A severity of a newer server is at least worth a look.
    return SEVERITIES.find((known) => known === found) ?? "warning";
  };
  return byName(gpus, [...SEVERITIES, WELL, NOT_KNOWN], SEVERITY_CELLS, severity);
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
