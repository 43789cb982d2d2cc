import { formatNumber, scaled, unitSymbol } from "../shared/format";
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

export function valueTicks(splits: readonly number[], unit: string): string[] {
  const widest = splits.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const { unit: symbol } = scaled(widest, unit);
  const { value } = scaled(widest, unit);
  const divisor = value === 0 ? 1 : widest / value;
  return splits.map((split) => `${formatNumber(split / divisor)}${symbol === "%" ? "%" : ""}`);
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

const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400];

/** The smallest round step, in ms, with which a span has at most `points` buckets. */
export function stepFor(spanMs: number, points: number): number {
  const wanted = spanMs / 1000 / points;
  const step = STEPS_S.find((candidate) => candidate >= wanted);
  return (step ?? Math.ceil(wanted / 86_400) * 86_400) * 1000;
}
