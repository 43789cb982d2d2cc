import { Activity, TrendingUp } from "lucide-react";
import { anomalyWords, trendWords } from "../../parts/outlook";
import type { GpuOutlookView } from "./outlook";

interface GpuOutlookProps extends GpuOutlookView {
  readonly now: number;
}

/** Where this GPU goes, what is unusual about it, and what of both could not be read: a line each. */
export function GpuOutlook({ trends, anomalies, note, end, doubts, now }: GpuOutlookProps) {
  if (trends.length === 0 && anomalies.length === 0 && note === null && doubts.length === 0) return null;
  return (
    <ul aria-label="Trends and anomalies" className="num mt-3 space-y-1 text-[13px]">
      {trends.map((trend) => (
        <li key={`trend ${trend.metric}`} className="flex items-baseline gap-2">
          <TrendingUp size={13} aria-hidden className="shrink-0 self-center text-warn" />
          {trendWords(trend, now)}
        </li>
      ))}
      {anomalies.map((anomaly) => (
        <li key={`anomaly ${anomaly.metric}`} className="flex items-baseline gap-2 text-muted" title={`${anomaly.score.toFixed(1)} deviations`}>
          <Activity size={13} aria-hidden className="shrink-0 self-center" />
          {anomalyWords(anomaly, end)}
        </li>
      ))}
      {note !== null && <li className="text-muted">No value is judged as unusual: {note}.</li>}
      {doubts.map((words) => (
        <li key={words} className="text-warn">
          {words}
        </li>
      ))}
    </ul>
  );
}
