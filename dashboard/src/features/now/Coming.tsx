import { TrendingUp } from "lucide-react";
import { Link } from "../../shared/location";
import { MINUTE, useNow } from "../../shared/time";
import { GPU } from "../../parts/addresses";
import { trendWords, useTrends } from "../../parts/outlook";

/** As many as are read at a glance. */
const SHOWN_MAX = 8;

/** Metrics that reach their limit within a week, the nearest first. Nothing where none does. */
export function Coming({ isItsTurn }: { readonly isItsTurn: boolean }) {
  const now = useNow(MINUTE);
  const { trends, error } = useTrends(now, isItsTurn);
  if (trends.length === 0 && error === null) return null;
  const more = trends.length - SHOWN_MAX;
  return (
    <section aria-label="What is coming" className="card mt-3 p-3 text-[13px]">
      <h2 className="text-[11px] text-faint">What is coming</h2>
      <ul className="mt-1 space-y-1">
        {trends.slice(0, SHOWN_MAX).map((trend) => (
          <li key={`${trend.gpu} ${trend.metric}`} className="flex items-baseline gap-2">
            <TrendingUp size={13} aria-hidden className="shrink-0 self-center text-warn" />
            <span className="min-w-0">
              <Link to={GPU.to({ id: trend.gpu, range: { kind: "preset", preset: "7d" } })} data-row="" className="rounded font-semibold hover:underline">
                {trend.name}
              </Link>
              : <span className="num">{trendWords(trend, now)}</span>
            </span>
          </li>
        ))}
      </ul>
      {more > 0 && <p className="mt-1 text-xs text-muted">and {more.toLocaleString("en")} more within a week</p>}
      {error !== null && <p className="mt-1 text-warn">Trends could not be read: {error.message}</p>}
    </section>
  );
}
