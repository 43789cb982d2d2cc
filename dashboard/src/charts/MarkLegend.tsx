import { formatInstant, formatSpan } from "../shared/time";
import { eventLook, reasonsOf, THROTTLE_COLOUR, throttledMs, type EventMark, type Marks } from "./marks";

interface MarkLegendProps {
  readonly marks: Marks;
  readonly now: number;
}

/** Events listed at most, the newest of them. */
const LISTED_MAX = 50;

/** What the marks above the lines mean, and all of it in words for those who do not point at them. */
export function MarkLegend({ marks, now }: MarkLegendProps) {
  const { spans, events, doubt } = marks;
  if (spans.length === 0 && events.length === 0 && doubt === "") return null;
  const reasons = reasonsOf(spans);
  return (
    <section aria-label="Marks above the charts" data-testid="marks" className="mb-2 flex flex-wrap items-baseline gap-x-5 gap-y-1 text-xs text-muted">
      {spans.length > 0 && (
        <p className="flex items-baseline gap-1.5">
          <span aria-hidden className="h-1 w-4 self-center rounded-xs" style={{ background: `var(${THROTTLE_COLOUR})` }} />
          <span>
            Throttled for up to {formatSpan(throttledMs(spans))} of this range{reasons.length > 0 && <>: <span className="text-fg">{reasons.join(", ")}</span></>}
          </span>
        </p>
      )}
      {events.length > 0 && (
        <details>
          <summary className="cursor-pointer rounded hover:text-fg">
            <Triangles events={events} /> {events.length.toLocaleString("en")} {events.length === 1 ? "event" : "events"}
          </summary>
          <ol className="num mt-1 max-h-48 space-y-0.5 overflow-y-auto">
            {events.slice(-LISTED_MAX).map((event, place) => (
              <li key={place}>
                {formatInstant(event.at, now)} {event.severity !== null && <strong className="font-medium">{event.severity}</strong>} <span className="text-fg">{event.text}</span>
              </li>
            ))}
          </ol>
        </details>
      )}
      {doubt !== "" && <p className="text-warn">{doubt}</p>}
    </section>
  );
}

/** A triangle for each severity that occurs. */
function Triangles({ events }: { readonly events: readonly EventMark[] }) {
  const severities = [...new Set(events.map((event) => event.severity))];
  return severities.map((severity) => {
    const { colour, size, isFilled } = eventLook(severity);
    return (
      <svg key={severity} aria-hidden width={size + 2} height={size + 2} viewBox={`-1 -1 ${size + 2} ${size + 2}`} className="mr-1 inline">
        <path d={`M0 0H${size}L${size / 2} ${size}Z`} fill={isFilled ? `var(${colour})` : "none"} stroke={`var(${colour})`} />
      </svg>
    );
  });
}
