import type { ReactNode } from "react";
import { Link } from "../shared/location";
import { formatInstant, formatSpan } from "../shared/time";
import { eventLook, INCIDENT_COLOUR, reasonsOf, THROTTLE_WEIGHTS, throttledMs, throttleLook, type EventMark, type IncidentMark, type Marks } from "./marks";

interface MarkLegendProps {
  readonly marks: Marks;
  readonly now: number;
}

/** Events and changes listed at most, the newest of them. */
const LISTED_MAX = 50;

/** What the marks above the lines mean, and all of it in words for those who do not point at them. */
export function MarkLegend({ marks, now }: MarkLegendProps) {
  const { spans, events, changes, incidents, doubt } = marks;
  if (spans.length === 0 && events.length === 0 && changes.length === 0 && incidents.length === 0 && doubt === "") return null;
  const throttled = THROTTLE_WEIGHTS.map((weight) => ({ look: throttleLook(weight), of: spans.filter((span) => span.weight === weight) })).filter(({ of }) => of.length > 0);
  return (
    <section aria-label="Marks above the charts" data-testid="marks" className="mb-2 flex flex-wrap items-baseline gap-x-5 gap-y-1 text-xs text-muted">
      {throttled.map(({ look, of }) => (
        <p key={look.colour} className="flex items-baseline gap-1.5">
          <span aria-hidden className="w-4 self-center rounded-xs" style={{ background: `var(${look.colour})`, height: look.height }} />
          <span>
            Throttled for up to {formatSpan(throttledMs(of))} of this range{reasonsOf(of).length > 0 && <>: <span className="text-fg">{reasonsOf(of).join(", ")}</span></>}
          </span>
        </p>
      ))}
      {events.length > 0 && (
        <Listed marks={events} now={now}>
          <Triangles events={events} /> {events.length.toLocaleString("en")} {events.length === 1 ? "event" : "events"}
        </Listed>
      )}
      {changes.length > 0 && (
        <Listed marks={changes} now={now}>
          <span aria-hidden className="mr-1.5 inline-block h-2 w-px bg-current" /> {changes.length.toLocaleString("en")} {changes.length === 1 ? "change" : "changes"} of codes
        </Listed>
      )}
      {incidents.length > 0 && (
        <Listed marks={incidents} now={now}>
          <Diamond /> {incidents.length.toLocaleString("en")} {incidents.length === 1 ? "incident" : "incidents"}
        </Listed>
      )}
      {doubt !== "" && <p className="text-warn">{doubt}</p>}
    </section>
  );
}

/** How many there are, and on demand each of them. */
function Listed({ marks, now, children }: { readonly marks: readonly (EventMark & Partial<IncidentMark>)[]; readonly now: number; readonly children: ReactNode }) {
  return (
    <details>
      <summary className="cursor-pointer rounded hover:text-fg">{children}</summary>
      <ol className="num mt-1 max-h-48 space-y-0.5 overflow-y-auto">
        {marks.slice(-LISTED_MAX).map((mark, place) => (
          <li key={place}>
            {formatInstant(mark.at, now)} {mark.severity !== null && <strong className="font-medium">{mark.severity}</strong>} {mark.path !== undefined ? (
              <Link to={mark.path} className="rounded text-accent underline-offset-2 hover:underline" title="Open its window">
                {mark.text}
              </Link>
            ) : (
              <span className="text-fg">{mark.text}</span>
            )}
          </li>
        ))}
      </ol>
    </details>
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

function Diamond() {
  return (
    <svg aria-hidden width="12" height="12" viewBox="0 0 12 12" className="mr-1 inline">
      <path d="M6 0L12 6L6 12L0 6Z" fill={`var(${INCIDENT_COLOUR})`} />
    </svg>
  );
}
