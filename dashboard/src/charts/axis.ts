import { scaled, unitSymbol } from "../shared/format";
import { DAY, formatClock, formatDay, MINUTE } from "../shared/time";

/** Seconds are shown when ticks are closer than a minute, dates when they are a day or more apart or the day changes. */
export function timeTicks(splits: readonly number[], distance: number): string[] {
  let day = "";
  return splits.map((instant) => {
    const date = formatDay(instant);
    const clock = formatClock(instant);
    const time = distance < MINUTE ? clock : clock.slice(0, 5);
    const turned = day !== "" && date !== day;
    day = date;
    if (distance >= DAY) return date.slice(5);
    return turned ? `${time}\n${date.slice(5)}` : time;
  });
}

/** Ticks with their unit, all in the one that fits the largest, with as many decimals as tell neighbours apart. */
export function valueTicks(splits: readonly number[], unit: string): string[] {
  const widest = splits.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const { value, unit: symbol } = scaled(widest, unit);
  const divisor = value === 0 ? 1 : widest / value;
  const distance = Math.abs((splits[1] ?? 1) - (splits[0] ?? 0)) / divisor;
  const sign = symbol === "" || symbol === "%" ? symbol : ` ${symbol}`;
  const format = new Intl.NumberFormat("en", { maximumFractionDigits: decimalsOf(distance) });
  return splits.map((split) => `${format.format(split / divisor)}${sign}`);
}

/** The fewest decimals that write a distance exactly. */
function decimalsOf(distance: number): number {
  for (let decimals = 0; decimals < 6; decimals += 1) {
    const whole = distance * 10 ** decimals;
    if (Math.abs(whole - Math.round(whole)) < 1e-6) return decimals;
  }
  return 6;
}

/** Distances at which ticks may stand: round numbers of the unit that is shown, which for bytes are not powers of ten. */
export function tickDistances(unit: string): number[] {
  const symbol = unitSymbol(unit);
  const base = symbol === "MiB" || symbol === "B" ? 1024 : 1000;
  const rounds = [1, 2, 5, 10, 20, 50, 100, 200, 500];
  const below = base === 1000 ? rounds.map((round) => round / 1000) : [];
  return [...below, ...[0, 1, 2, 3, 4, 5].flatMap((power) => rounds.map((round) => round * base ** power))];
}

/** The y axis. Shares have their whole range; the rest gets air, and an axis of positive values never goes below 0. */
export function valueRange(unit: string, low: number | null, high: number | null): [number, number] {
  const symbol = unitSymbol(unit);
  if (symbol === "%") return [0, Math.max(100, high ?? 0)];
  if (low === null || high === null || !Number.isFinite(low) || !Number.isFinite(high)) return [0, 1];
  const height = high - low;
  const air = height > 0 ? height * 0.12 : Math.max(Math.abs(high) * 0.1, 1);
  const bottom = low - air;
  return [low >= 0 ? Math.max(0, bottom) : bottom, high + air];
}

const STEPS_S = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400];

/** The smallest round step, in ms, with which a span has at most `points` buckets. */
export function stepFor(spanMs: number, points: number): number {
  const wanted = spanMs / 1000 / points;
  const step = STEPS_S.find((candidate) => candidate >= wanted);
  return (step ?? Math.ceil(wanted / 86_400) * 86_400) * 1000;
}
