import { useQuery } from "@tanstack/react-query";
import { TriangleAlert } from "lucide-react";
import { memo, useMemo } from "react";
import { TimeChart } from "../../charts/TimeChart";
import { REFRESH_INTERVAL_MS } from "../../shared/config";
import { ABSENT, formatNumber, formatValue } from "../../shared/format";
import { Link } from "../../shared/location";
import { Failed } from "../../shared/states";
import { formatAge, formatUptime, MINUTE, SECOND, useClock } from "../../shared/time";
import { Tile, TILES, WaitingTiles } from "../../parts/tiles";
import { frameOf, lineName, panelsOf, spanOf, type Course } from "./course";
import { courseQuery } from "./courseQuery";

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const nothing = () => undefined;

/** How queue, collector and gateway have done in the last minutes. */
export function StatisticsPage() {
  const course = useQuery(courseQuery(REFRESH_INTERVAL_MS));
  const now = useClock(SECOND);
  if (course.data === undefined) {
    if (course.error !== null) return <Failed what="The statistics" error={course.error} retry={() => void course.refetch()} />;
    return <WaitingTiles label="Loading statistics" />;
  }
  const { last, points } = course.data;
  const missing = [...(course.error === null ? [] : [`Not renewed for ${formatAge(last.at, now)}: ${course.error.message}`]), ...last.missing];
  return (
    <div className="space-y-4" data-testid="statistics" data-last-update={last.at}>
      <h1 className="text-base font-semibold">Statistics</h1>
      {missing.length > 0 && (
        <ul role="alert" className="card border-warn! px-3.5 py-2 text-[13px]">
          {missing.map((words) => (
            <li key={words} className="flex items-center gap-1.5">
              <TriangleAlert size={14} className="shrink-0 text-warn" aria-hidden /> {words}
            </li>
          ))}
        </ul>
      )}
      <Tiles course={course.data} />
      <p className="text-[13px] text-muted">
        {points.length < 2 ? "The charts begin with the next reading. " : "As read by this page, at most 15 minutes back. "}
        Topics, groups and dead letters: <Link to="/queue" className="text-accent underline underline-offset-2">Queue</Link>.
      </p>
      <Charts course={course.data} now={Math.floor(now / MINUTE) * MINUTE} />
    </div>
  );
}

function Tiles({ course: { last, points } }: { readonly course: Course }) {
  const { total_processed: processed, uptime_seconds: uptime, gateway, topics } = last.stats;
  const acked = Object.values(topics ?? {}).flatMap((topic) => (typeof topic.acked_msg_per_sec === "number" ? [topic.acked_msg_per_sec] : []));
  const stored = points.at(-1)?.values.get("rows\nstored");
  const perSecond = acked.length > 0 ? acked.reduce((sum, rate) => sum + rate, 0) : stored;
  return (
    <dl className={TILES}>
      <Tile name="Messages processed" value={processed === null ? ABSENT : WHOLE.format(processed)} />
      <Tile name="Processed per second" value={perSecond === undefined ? ABSENT : formatNumber(perSecond)} />
      <Tile name="Queue uptime" value={uptime === null ? ABSENT : formatUptime(uptime)} />
      <Tile name="Cache hit rate" value={hitRate(gateway.cache_hit_rate)} />
      <Tile name="API requests" value={WHOLE.format(gateway.requests)} />
      <Tile name="Gateway uptime" value={formatUptime(gateway.uptime_seconds)} />
      <Tile name="Memory" value={formatValue(gateway.memory_bytes, "B")} />
      <Tile name="Open streams" value={WHOLE.format(gateway.streams)} />
      <Tile name="Open connections" value={WHOLE.format(gateway.connections)} />
    </dl>
  );
}

function hitRate(rate: number | null | undefined): string {
  return typeof rate === "number" ? `${formatNumber(rate * 100)}%` : ABSENT;
}

/** Rendered again for a reading, not with each second that the page's clock tells. */
const Charts = memo(function Charts({ course, now }: { readonly course: Course; readonly now: number }) {
  const panels = useMemo(() => panelsOf(course), [course]);
  const span = useMemo(() => spanOf(course), [course]);
  return (
    <div className="grid gap-3 md:grid-cols-2 xl:grid-cols-3">
      {panels.map(({ id, title, unit, columns }) => (
        <FigureChart key={id} id={id} title={title} unit={unit} lines={columns.join(BETWEEN)} course={course} span={span} now={now} />
      ))}
    </div>
  );
});

const BETWEEN = "\u0001";

interface FigureChartProps {
  readonly id: string;
  readonly title: string;
  readonly unit: string;
  readonly lines: string;
  readonly course: Course;
  readonly span: ReturnType<typeof spanOf>;
  readonly now: number;
}

/** A chart that is built anew only when it has other lines, not at each reading. */
function FigureChart({ id, title, unit, lines, course, span, now }: FigureChartProps) {
  const panel = useMemo(() => ({ id, title, unit, columns: lines.split(BETWEEN) }), [id, title, unit, lines]);
  const frame = useMemo(() => frameOf(course, panel.columns, REFRESH_INTERVAL_MS), [course, panel]);
  return <TimeChart panel={panel} marked={false} frame={frame} nameOf={lineName} subject="Statistics" span={span} onSelect={nothing} now={now} />;
}
