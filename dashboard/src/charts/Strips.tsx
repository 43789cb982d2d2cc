import { memo } from "react";
import type { Span } from "../api/queries";
import { Link } from "../shared/location";
import { formatInstant } from "../shared/time";
import { coloursOf, wordsIn, type Stretch, type StripLine } from "./strips";

interface StripsProps {
  /** What the strips show. */
  readonly title: string;
  readonly lines: readonly StripLine[];
  readonly span: Span;
  /** To the minute: it only says which day is today. */
  readonly now: number;
  /** Colours of what is not told apart by the colours of lines. */
  readonly plain: Readonly<Record<string, string>>;
  /** What is to be said below; empty: nothing. */
  readonly note: string;
}

/** Strips of time under each other, one a line, with a legend. What is between two stretches of a line is not known. */
export const Strips = memo(function Strips({ title, lines, span, now, plain, note }: StripsProps) {
  const words = wordsIn(lines);
  const colours = coloursOf(words, plain);
  return (
    <section aria-label={title} className="card mb-3 p-3 text-xs">
      <h2 className="mb-2 font-medium">{title}</h2>
      <ul className="space-y-1">
        {lines.map((line) => (
          <li key={line.id} className="grid grid-cols-[minmax(4rem,10rem)_minmax(0,1fr)] items-center gap-x-2" data-strip={line.id}>
            <span className="truncate text-muted" title={line.name}>
              {line.path === null ? (
                line.name
              ) : (
                <Link to={line.path} className="rounded hover:underline">
                  {line.name}
                </Link>
              )}
            </span>
            <span role="img" aria-label={`${line.name}: ${inWords(line.stretches, now)}`} className="relative block h-4 overflow-hidden rounded bg-raised">
              {line.stretches.map((stretch) => (
                <span
                  key={stretch.start}
                  data-what={stretch.what}
                  title={said(stretch, now)}
                  className="absolute inset-y-0 border-l border-line"
                  style={{ left: `${across(stretch.start, span)}%`, width: `${across(stretch.end, span) - across(stretch.start, span)}%`, background: colours.get(stretch.what) }}
                />
              ))}
            </span>
          </li>
        ))}
      </ul>
      <ul aria-label="Legend" className="mt-2 flex flex-wrap gap-x-4 gap-y-1 text-muted">
        {words.map((word) => (
          <li key={word} className="flex min-w-0 items-center gap-1.5">
            <span aria-hidden className="size-2.5 shrink-0 rounded-sm border border-line" style={{ background: colours.get(word) }} />
            <span className="truncate">{word}</span>
          </li>
        ))}
      </ul>
      {note !== "" && <p className="mt-1.5 text-faint">{note}</p>}
    </section>
  );
});

/** Where an instant lies in a span, 0 to 100. */
function across(instant: number, { start, end }: Span): number {
  return end <= start ? 0 : Math.min(100, Math.max(0, ((instant - start) / (end - start)) * 100));
}

function said({ what, start, end }: Stretch, now: number): string {
  return `${what}, ${formatInstant(start, now)} – ${formatInstant(end, now)}`;
}

/** As many stretches as somebody listens to. */
const SAID_MAX = 6;

function inWords(stretches: readonly Stretch[], now: number): string {
  if (stretches.length === 0) return "nothing is known";
  const more = stretches.length - SAID_MAX;
  return stretches.slice(0, SAID_MAX).map((stretch) => said(stretch, now)).join("; ") + (more > 0 ? ` and ${more} more` : "");
}
