import type { Theme } from "../shared/theme";

/** How a cell is drawn: shapes tell apart what must be seen without colours too. */
export interface Look {
  /** A colour, or the name of a custom property that has it. */
  readonly colour: string;
  readonly shape: "full" | "framed" | "holed" | "hollow";
}

/** What is drawn in the cells. */
export interface Painting {
  readonly looks: readonly Look[];
  /** Number of the look of each cell. */
  readonly lookOf: Uint8Array;
}

/**
 * Viridis: even steps of lightness, told apart with any colour blindness. Each theme leaves out the end that its background
 * swallows, and low values are those that are nearer to the background.
 */
const VIRIDIS: readonly string[] = ["#482475", "#414487", "#355f8d", "#2a788e", "#21918c", "#22a884", "#44bf70", "#7ad151", "#bddf26"];
const RAMPS: Readonly<Record<Theme, readonly string[]>> = {
  dark: [...VIRIDIS, "#fde725"],
  light: [...VIRIDIS].reverse().concat("#440154"),
};

/** Colours of the ramp, from the lowest value to the highest. */
export const STEPS = 32;

const mixed = (a: string, b: string, share: number) => {
  const part = (colour: string, at: number) => parseInt(colour.slice(1 + 2 * at, 3 + 2 * at), 16);
  const channel = (at: number) => Math.round(part(a, at) * (1 - share) + part(b, at) * share);
  return `#${[0, 1, 2].map((at) => channel(at).toString(16).padStart(2, "0")).join("")}`;
};

export function ramp(theme: Theme): string[] {
  return between(RAMPS[theme]);
}

/** Of differences: two hues, told apart with any colour blindness, that meet where nothing changed. */
const DIFFERENCES: Readonly<Record<Theme, readonly string[]>> = {
  dark: ["#7cc0ff", "#3f78b0", "#2a323d", "#b8702a", "#ffb45c"],
  light: ["#08519c", "#6baed6", "#e3e6ea", "#f0a35a", "#a63603"],
};

export function differenceRamp(theme: Theme): string[] {
  return between(DIFFERENCES[theme]);
}

function between(stops: readonly string[]): string[] {
  return Array.from({ length: STEPS }, (_, step) => {
    const at = (step / (STEPS - 1)) * (stops.length - 1);
    const from = Math.min(stops.length - 2, Math.floor(at));
    return mixed(stops[from] ?? "#000000", stops[from + 1] ?? "#000000", at - from);
  });
}

/** From where to where colours tell values apart. */
export interface Domain {
  readonly low: number;
  readonly high: number;
}

/**
 * Round bounds around the values that there are. Shares have their whole range, and what reaches down to a fifth begins at 0;
 * nothing goes beyond what the catalogue says can be true. Null without values.
 */
export function domainOf(values: readonly (number | null)[], unit: string, possible: Domain): Domain | null {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value === null) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return null;
  if (unit === "%") return { low: Math.min(0, low), high: Math.max(100, high) };
  if (low >= 0 && low < high / 5) low = 0;
  const room = high - low || Math.abs(high) * 0.1 || 1;
  const coarse = 10 ** Math.floor(Math.log10(room));
  const step = [0.1, 0.2, 0.5, 1].map((part) => part * coarse).find((each) => room / each <= 12) ?? coarse;
  const tidy = (value: number) => Number(value.toPrecision(12));
  const bounds = { low: tidy(Math.floor(low / step) * step), high: tidy(Math.ceil(high / step) * step) };
  const held = { low: Math.max(bounds.low, Math.min(possible.low, low)), high: Math.min(bounds.high, Math.max(possible.high, high)) };
  return held.low < held.high ? held : { low: held.low, high: held.low + step };
}

/** Where the looks of values that are no colour of the ramp stand. */
export const NOT_READ = STEPS;
export const OLD = STEPS + 1;

/** Values as colours; what was not read is a hollow cell, which no value looks like, and what is old is grey with a hole. */
export function paintValues(values: readonly (number | null)[], { low, high }: Domain, colours: readonly string[], isOld: (place: number) => boolean = () => false): Painting {
  const looks: Look[] = [...colours.map((colour): Look => ({ colour, shape: "full" })), { colour: "--faint", shape: "hollow" }, { colour: "--cell-unknown", shape: "holed" }];
  const lookOf = new Uint8Array(values.length);
  values.forEach((value, place) => {
    lookOf[place] = isOld(place) ? OLD : value === null ? NOT_READ : Math.min(STEPS - 1, Math.max(0, Math.floor(((value - low) / (high - low)) * STEPS)));
  });
  return { looks, lookOf };
}
