import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { hourOf, trendsQuery, type Anomaly, type Trend } from "../api/outlook";
import { formatValue, metricTitle } from "../shared/format";
import { DAY, formatClock, formatSpan } from "../shared/time";

/** What reaches its limit later than this may still turn. */
const WITHIN_MS = 7 * DAY;
const NONE: readonly Trend[] = [];

export interface Outlook {
  readonly trends: readonly Trend[];
  /** Why trends are missing; null: none are. */
  readonly error: Error | null;
}

/**
 * The trends that reach their limit within a week, the nearest first: of one GPU, or of all. The server reads days for them, so
 * they wait until `isTheirTurn`: what is wrong now comes first.
 */
export function useTrends(now: number, isTheirTurn: boolean, gpu?: string): Outlook {
  const end = hourOf(now);
  const { data = NONE, error } = useQuery({ ...trendsQuery(end, gpu), enabled: isTheirTurn });
  const trends = useMemo(() => data.filter((trend) => trend.at - end <= WITHIN_MS), [data, end]);
  return { trends, error };
}

/** `Temperature 82 °C rises by 3 °C a day and reaches its limit of 89 °C in 2 d` */
export function trendWords({ metric, unit, level, per_day: slope, limit, at }: Trend, now: number): string {
  const [title, value, rise, end] = [metricTitle(metric), formatValue(level, unit), formatValue(slope, unit), formatValue(limit, unit)];
  if (at <= now) return `${title} has risen by ${rise} a day to its limit of ${end}`;
  return `${title} ${value} rises by ${rise} a day and reaches its limit of ${end} in ${formatSpan(at - now)}`;
}

/** What is unusual in the hour that ends then, in the server's words. */
export function anomalyWords({ sentence }: Anomaly, end: number): string {
  return `In the hour to ${formatClock(end).slice(0, 5)} ${sentence}`;
}
