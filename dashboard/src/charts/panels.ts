import { capital, metricTitle, unitSymbol, type NamedBit } from "../shared/format";

/** What a panel needs to know of a catalogue row. */
export interface CatalogueRow {
  readonly column: string;
  readonly unit: string;
  readonly group: string;
  readonly instrument: string;
  readonly help: string;
  /** Of a mask: its bits by name. */
  readonly bits: readonly NamedBit[];
  /** Smallest set of Prometheus series that contains it. */
  readonly series: string;
  readonly prometheus: { readonly labels: Readonly<Record<string, string>> };
}

/** One chart: metrics of one group with one unit, so that they share an axis. */
export interface Panel {
  readonly id: string;
  readonly title: string;
  readonly unit: string;
  readonly columns: readonly string[];
  /** Those of the columns that hold from one reading to the next: limits, which are read rarely. */
  readonly limits?: ReadonlySet<string>;
}

/** Lines in one chart that can still be told apart; a group with more is drawn as several charts. */
export const LINES_MAX = 6;
const OTHER = "other";
const FIRST = ["utilization", "power", "temperature", "memory", "clock"];
const TITLES: Readonly<Record<string, string>> = {
  pcie: "PCIe",
  clock: "Clocks",
  temperature: "Temperatures",
  power: "Power and energy",
  board: "Fans and voltages",
  driver: "Driver and modes",
  throttle: "Throttling",
  interconnect: "NVLink and xGMI",
  reliability: "Errors",
  other: "Other columns",
};

export function groupTitle(group: string): string {
  return TITLES[group] ?? capital(group.replaceAll("_", " "));
}

/** The catalogue rows of the columns a GPU has, group by group, in a group in the catalogue's order; unknown columns follow as a group of their own. */
export function rowsOf(catalogue: readonly CatalogueRow[], columns: readonly string[]): CatalogueRow[] {
  const present = new Set(columns);
  const known = catalogue.filter((row) => present.has(row.column));
  for (const row of known) present.delete(row.column);
  const foreign = [...present].sort().map((column) => ({
    column,
    unit: "none",
    group: OTHER,
    instrument: "gauge",
    help: "Not in the catalogue; kept as the source wrote it.",
    bits: [],
    series: "all",
    prometheus: { labels: {} },
  }));
  return [...known.sort((a, b) => rank(a.group) - rank(b.group)), ...foreign];
}

/** Whether its values are codes: what lies between two of them means nothing. They are marks above the lines. */
export function isCode(row: CatalogueRow): boolean {
  return row.instrument === "state" || row.bits.length > 0;
}

/** Whether it says how far others may go. */
export function isLimit(row: CatalogueRow): boolean {
  return row.prometheus.labels.limit !== undefined;
}

/**
 * Whether a row is a line. What changes only with the configuration has no course, codes are marks, and of columns that
 * the catalogue does not know the server makes no series: all stand among the latest values.
 */
export function isDrawn(row: CatalogueRow): boolean {
  return row.instrument !== "info" && !isCode(row) && row.group !== OTHER;
}

/** Panels, group by group. */
export function panelsOf(rows: readonly CatalogueRow[]): Panel[] {
  const groups = new Map<string, Map<string, string[]>>();
  const limits = new Set(rows.filter(isLimit).map((row) => row.column));
  for (const row of rows.filter(isDrawn)) {
    const units = groups.get(row.group) ?? new Map<string, string[]>();
    const axis = axisOf(row);
    units.set(axis, [...(units.get(axis) ?? []), row.column]);
    groups.set(row.group, units);
  }
  return [...groups]
    .sort(([a], [b]) => rank(a) - rank(b))
    .flatMap(([group, units]) => [...units].flatMap(([axis, columns]) => charts(group, axis, columns, units.size > 1)))
    .map((panel) => ({ ...panel, limits }));
}

/** Rows with the same one share a chart. A sum that only grows would flatten what goes up and down beside it. */
export function axisOf(row: CatalogueRow): string {
  return row.instrument === "counter" ? `${row.unit} total` : row.unit;
}

/** Whether a panel shows one of these columns. */
export function isEvidence(panel: Panel, evidence: ReadonlySet<string>): boolean {
  return panel.columns.some((column) => evidence.has(column));
}

/** The panels that show what is wrong before the others, else in their order. */
export function evidenceFirst(panels: readonly Panel[], evidence: ReadonlySet<string>): Panel[] {
  return [...panels.filter((panel) => isEvidence(panel, evidence)), ...panels.filter((panel) => !isEvidence(panel, evidence))];
}

/** What operators look at first stands first; groups of a newer server follow. */
function rank(group: string): number {
  const place = FIRST.indexOf(group);
  return place < 0 ? FIRST.length : place;
}

function charts(group: string, axis: string, columns: readonly string[], several: boolean): Panel[] {
  const unit = axis.replace(/ total$/, "");
  const symbol = unitSymbol(unit);
  const kind = axis === unit ? symbol : `${symbol} total`.trim();
  const out: Panel[] = [];
  for (let at = 0; at < columns.length; at += LINES_MAX) {
    const lines = columns.slice(at, at + LINES_MAX);
    const [only] = lines.length === 1 && (several || at > 0) ? lines : [];
    const whole = several && kind !== "" ? `${groupTitle(group)} · ${kind}` : groupTitle(group);
    const title = only === undefined ? whole : metricTitle(only);
    out.push({ id: `${group}-${axis}-${at}`.replaceAll(" ", "-"), title, unit, columns: lines });
  }
  return out;
}
